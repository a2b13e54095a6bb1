"""Check a multiplication of a chain against its operands as they are stored.

C = A·B is multiplied from the left by a few rows L, on all ranks together: L·C and (L·A)·B must
agree. With integers L is random and the comparison exact; otherwise L picks rows, and an element
may differ by (k + 2)·ε·(|A|·|B|), as in :mod:`drbench.measure.verify`.
"""

import numpy as np
from mpi4py import MPI

_ROWS = 16  # of C, checked if sums are rounded
_VECTORS = 2  # if they are exact


def times(comm: MPI.Comm, left: np.ndarray, matrix, copy: int = 0, absolute: bool = False):
    r"""left · M, or left · \|M\|, in float64 on every rank, from the local arrays of one copy of M
    (collective).

    Parameters
    ----------
    comm : MPI.Comm
    left : ndarray, shape (rows, rows of M)
        The same on all ranks.
    matrix : drbench.Matrix
    copy : int
        Replica whose local arrays are used.
    absolute : bool
    """
    out, whole = np.zeros((left.shape[0], matrix.shape[1])), matrix.spec.partition
    if whole.holds(comm.rank) and whole.replica_of(comm.rank) == copy:
        local = matrix.local.astype(float)
        out[:, matrix.columns] = left[:, matrix.rows] @ (np.abs(local) if absolute else local)
    comm.Allreduce(MPI.IN_PLACE, out)
    return out


def multiplication_error(comm: MPI.Comm, c, a, b, exact: bool, seed: int = 0) -> float:
    """The largest difference of C from A·B, over the allowed difference; 0 is exact, above 1 is
    wrong (collective). All copies of C are checked; A and B may be transposed matrices."""
    (rows, k), rng = a.shape, np.random.default_rng(seed)
    if exact:
        left = rng.integers(-1, 2, (_VECTORS, rows)).astype(float)
    else:
        left = np.eye(rows)[rng.choice(rows, min(_ROWS, rows), replace=False)]
    of_a = times(comm, left, a)
    wanted, allowed = times(comm, of_a, b), np.ones(1)
    if not exact:
        float_ = np.finfo(c.dtype)
        allowed = (k + 2) * float_.eps * times(comm, np.abs(of_a), b, absolute=True) + float_.tiny
    worst = 0.0
    for copy in c.spec.partition.copies():
        difference = np.abs(times(comm, left, c, copy) - wanted)
        ratio = np.where(np.isfinite(difference), difference / allowed, np.inf)
        worst = max(worst, float(ratio.max(initial=0.0)))
    return worst
