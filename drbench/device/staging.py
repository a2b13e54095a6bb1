"""Pinned host memory as a copy of device memory, for data that MPI moves on a device's behalf."""

from functools import partial

import numpy as np

from drbench.host.copies import Strided
from drbench.mappings import remembered

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

    def poison(self) -> None:
        """Fill the buffer of the arena with NaN of every type."""
        if self._arena is not None:
            self._arena.fill(0xFF)

    def of(self, array) -> np.ndarray | None:
        """The twin of an array, which may have gaps between rows or columns; None for None."""
        if array is None:
            return None
        if not array.nbytes:
            return np.empty(array.shape, array.dtype)
        at = array.ctypes.data
        nbytes = Strided(at, array.shape, array.strides).length(array.itemsize)
        if self._base <= at and at + nbytes <= self._base + self._size:
            if self._arena is None:
                self._arena = self._device.allocate_host(self._size)
            memory = self._arena[at - self._base :]
        else:
            allocate = partial(self._device.allocate_host, nbytes)
            memory = remembered(self._others, (at, nbytes), allocate)
        return np.ndarray(array.shape, array.dtype, memory, 0, array.strides)
