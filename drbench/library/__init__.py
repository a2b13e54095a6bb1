"""drbench as a library: distributed matrices of NumPy arrays, multiplied where they lie.

Reached through the package: ``drbench.init``, ``drbench.multiply``, ``drbench.redistribute``.
"""

import sys

import mpi4py

if "mpi4py.MPI" not in sys.modules:  # MPI is started here: it is ended in order, too
    mpi4py.rc.finalize = True

from .context import Context, MultiplicationPlan
from .functions import init, multiply, redistribute
from .matrix import Matrix

__all__ = ["Context", "Matrix", "MultiplicationPlan", "init", "multiply", "redistribute"]
