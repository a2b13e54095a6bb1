"""drbench as a library: distributed matrices of NumPy arrays, multiplied in place.

Reached through the package: ``drbench.init``, ``drbench.multiply``, ``drbench.redistribute``.
"""

import sys

import mpi4py

from drbench.host.launcher import prepare_mpi

if "mpi4py.MPI" not in sys.modules:  # MPI is started here, and must be finalized in order
    mpi4py.rc.finalize = True
    prepare_mpi()

from .context import Context, MultiplicationPlan
from .functions import init, multiply, redistribute
from .matrix import Matrix

__all__ = ["Context", "Matrix", "MultiplicationPlan", "init", "multiply", "redistribute"]
