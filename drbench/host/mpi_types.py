"""The MPI types of matrix elements."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

__all__ = ["mpi_type"]

_BY_NAME = {"float32": MPI.FLOAT, "float64": MPI.DOUBLE, "bfloat16": MPI.UINT16_T}


def mpi_type(dtype: np.dtype) -> MPI.Datatype:
    """float32, float64, or the bits of a bfloat16, which MPI moves but cannot add."""
    return _BY_NAME[dtype.name]
