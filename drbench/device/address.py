"""Matrices in a device's memory, on the host: NumPy arrays whose data pointer is a device address.

NumPy does all index arithmetic (slices, strides, leading dimensions, reshaping) on such an array as
on any other, because it does not access the elements. So host and device share the code that lays
out values, fragments and collectives. Operations that would read or write elements raise an error
instead of crashing.
"""

import ctypes

import numpy as np


class DeviceArray(np.ndarray):
    """Shape, strides, dtype and address of a matrix on a device. Views have the same type.

    Examples
    --------
    >>> tile = at_address(4096, 64, "f4").reshape(8, 8)
    >>> part = tile[2:4, 3:]
    >>> part.ctypes.data - 4096, part.shape, part.strides
    (76, (2, 5), (32, 4))
    >>> try:
    ...     part + 1
    ... except TypeError as error:
    ...     print(error)
    elements on a device cannot be used by the host: add. Give them to a Device.
    """

    def __repr__(self) -> str:
        return (
            f"DeviceArray({'x'.join(map(str, self.shape))}, {self.dtype}, at "
            f"{self.ctypes.data:#x}, strides {self.strides})"
        )

    __str__ = __repr__

    def _refuse(self, function=None, *args, **kwargs):
        name = f": {function.__name__}" if hasattr(function, "__name__") else ""
        raise TypeError(
            f"elements on a device cannot be used by the host{name}. Give them to a Device."
        )

    __array_ufunc__ = __array_function__ = _refuse
    fill = item = tolist = tobytes = copy = astype = __setitem__ = __iter__ = __float__ = (
        __int__
    ) = __bool__ = __array__ = _refuse


def at_address(address: int, size: int, dtype) -> DeviceArray:
    """``size`` elements from an address on, as a flat array."""
    dtype = np.dtype(dtype)
    memory = (ctypes.c_char * max(size * dtype.itemsize, 1)).from_address(address)
    return DeviceArray((size,), dtype, memory)
