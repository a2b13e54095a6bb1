"""CuPy arrays over the device's memory, and foreign arrays as CuPy arrays."""

import ctypes

import numpy as np

from drbench.device.address import DeviceArray
from drbench.errors import UsageError
from drbench.host.copies import Strided


class CupyArrays:
    """The arrays of a CUDA device for its users: ``cupy.ndarray``, which every library with DLPack
    or ``__cuda_array_interface__`` can use without a copy.

    CuPy runs its own work on its current stream, for which drbench's streams do not wait:
    synchronise before you pass an array (:meth:`drbench.device.base.Device.synchronise`).
    """

    def lend(self, address: int, shape: tuple[int, int], dtype: np.dtype, owner):
        self.use()
        nbytes = max(shape[0] * shape[1] * dtype.itemsize, 1)
        memory = self._modules.cuda.UnownedMemory(address, nbytes, owner, self._index)
        pointer = self._modules.cuda.MemoryPointer(memory, 0)
        return self._modules.cupy.ndarray(shape, dtype, pointer)

    def empty(self, shape: tuple[int, int], dtype: np.dtype):
        self.use()
        return self._modules.cupy.empty(shape, dtype)

    def taken(self, array):
        cupy = self._modules.cupy
        if isinstance(array, (np.ndarray, cupy.ndarray)):
            return array
        self.use()
        if hasattr(array, "__cuda_array_interface__"):
            return cupy.asarray(array)
        if hasattr(array, "__dlpack__"):
            return cupy.from_dlpack(array)
        raise UsageError(
            f"an array of CuPy or NumPy, or one with DLPack, is needed, got {type(array).__name__}."
        )

    def seen(self, array) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        span = Strided(0, array.shape, array.strides).length(array.itemsize)
        memory = (ctypes.c_char * max(span, array.itemsize)).from_address(array.data.ptr)
        return DeviceArray(array.shape, array.dtype, memory, 0, array.strides)


def by_rows(*arrays) -> tuple:
    """Matrices as row-major arguments of kernels: all transposed if the first that has an order is
    column-major. (One row or column of adjacent elements has both orders.)"""
    for array in arrays:
        (rows, columns), (down, across) = array.shape, array.strides
        if columns > 1 and across > down:
            return tuple(matrix.T for matrix in arrays)
        if rows > 1 and down > across:
            break
    return arrays
