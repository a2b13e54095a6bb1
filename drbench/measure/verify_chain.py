"""Whether every matrix of a chain is what it is to be, given those that it was made of.

Each operation is held against what it took as it lies there: if all are right, and what was given
is untouched, so is the chain. A product C = A·B is multiplied from the left by a few rows L, on all
ranks together: L·C and (L·A)·B must agree. With integers L is random and the comparison exact;
otherwise L picks rows, and an element may differ by (k + 2)·ε·(|A|·|B|), as in
:mod:`drbench.measure.verify`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

_ROWS = 16  # of a product that are looked at where sums are rounded
_VECTORS = 2  # where they are exact


def times(comm: MPI.Comm, left: np.ndarray, matrix, transposed: bool = False, copy: int = 0):
    """left · op(M) in float64 on every rank, from the tiles of one copy of M (collective).

    Parameters
    ----------
    comm : MPI.Comm
    left : ndarray, shape (rows, rows of op(M))
        The same on all ranks.
    matrix : DistributedMatrix
    transposed : bool
    copy : int
        Replica whose tiles are taken.
    """
    rows, cols = matrix.partition.shape
    out = np.zeros((left.shape[0], rows if transposed else cols))
    if matrix.partition.replica_of(comm.rank) == copy and matrix.partition.holds(comm.rank):
        for block, tile in matrix.own_blocks():
            whole = tile.astype(float)
            one, two = (block.row0, block.row1), (block.col0, block.col1)
            if transposed:
                whole, one, two = whole.T, two, one
            out[:, two[0] : two[1]] += left[:, one[0] : one[1]] @ whole
    comm.Allreduce(MPI.IN_PLACE, out)
    return out


def product_error(
    comm: MPI.Comm, c, a, b, transpose: str, k: int, exact: bool, seed: int = 0
) -> float:
    """The largest difference of C from op(A)·op(B), over what it may be; 0 is exact, above 1 is
    wrong (collective). All copies of C are looked at."""
    rows = c.partition.shape[0]
    rng = np.random.default_rng(seed)
    if exact:
        left = rng.integers(-1, 2, (_VECTORS, rows)).astype(float)
    else:
        left = np.zeros((min(_ROWS, rows), rows))
        picked = rng.choice(rows, left.shape[0], replace=False)
        left[np.arange(len(picked)), picked] = 1.0
    of_a = times(comm, left, a, "a" in transpose)
    wanted = times(comm, of_a, b, "b" in transpose)
    worst = 0.0
    allowed = np.ones(1)
    if not exact:
        allowed = _absolute(comm, np.abs(of_a), b, "b" in transpose)
        allowed = (k + 2) * np.finfo(c.dtype).eps * allowed + np.finfo(c.dtype).tiny
    for copy in c.partition.copies():
        found = times(comm, left, c, copy=copy)
        difference = np.abs(found - wanted)
        ratio = np.where(np.isfinite(difference), difference / allowed, np.inf)
        worst = max(worst, float(ratio.max(initial=0.0)))
    return worst


def _absolute(comm: MPI.Comm, left: np.ndarray, matrix, transposed: bool) -> np.ndarray:
    """left · |op(M)|."""

    class Positive:
        partition = matrix.partition

        @staticmethod
        def own_blocks():
            return [(block, np.abs(tile)) for block, tile in matrix.own_blocks()]

    return times(comm, left, Positive, transposed)


def tiles_error(comm: MPI.Comm, matrix, made: Callable[[object, np.ndarray], None]) -> float:
    """Whether own tiles are what ``made(block, out)`` writes: 0, or infinity if some rank's are
    not (collective)."""
    wrong = False
    for block, tile in matrix.own_blocks():
        wanted = np.empty(tile.shape, tile.dtype)
        made(block, wanted)
        wrong |= not np.array_equal(wanted, tile)
    return float("inf") if comm.allreduce(wrong, MPI.LOR) else 0.0
