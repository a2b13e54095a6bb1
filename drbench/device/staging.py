"""Pinned host memory as a copy of device memory, for data that MPI moves on a device's behalf."""

import numpy as np

from .base import Device


class HostTwins:
    """For an array in device memory, an array of the same shape in host memory; two views of one
    buffer have views of one twin.

    Parameters
    ----------
    device : Device
    arena : DeviceArray, flat
        Twins of arrays inside it share one host buffer, made at the first use; other arrays get
        their own.
    """

    def __init__(self, device: Device, arena):
        self._device, self._base, self._size = device, arena.ctypes.data, arena.nbytes
        self._arena: np.ndarray | None = None
        self._others: dict[tuple[int, int], np.ndarray] = {}

    def of(self, array) -> np.ndarray | None:
        """The twin of an array, which may have gaps between rows or columns; None for None."""
        if array is None:
            return None
        if not array.nbytes:
            return np.empty(array.shape, array.dtype)
        at, item = array.ctypes.data, array.dtype.itemsize
        steps = zip(array.shape, array.strides)
        nbytes = item + sum((extent - 1) * stride for extent, stride in steps)
        if self._base <= at and at + nbytes <= self._base + self._size:
            if self._arena is None:
                self._arena = self._device.allocate_host(self._size)
            memory = self._arena[at - self._base : at - self._base + nbytes]
        else:
            memory = self._others.get((at, nbytes))
            if memory is None:
                memory = self._others[at, nbytes] = self._device.allocate_host(nbytes)
        return np.ndarray(array.shape, array.dtype, memory, 0, array.strides)
