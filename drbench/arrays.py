"""Element types and addresses of NumPy arrays."""

import numpy as np

from .errors import UnsupportedError


def address_of(array: np.ndarray) -> int:
    """The address of the first element of a NumPy array."""
    return array.__array_interface__["data"][0]


def numpy_type(name: str) -> np.dtype:
    """The NumPy type of a name; bfloat16 is that of the package ml_dtypes.

    Raises
    ------
    UnsupportedError
        If the name is bfloat16 and ml_dtypes is missing.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError(
                "bfloat16 elements need the package ml_dtypes. pip install ml_dtypes."
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
