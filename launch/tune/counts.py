"""Counts of a case without a machine: bytes, load balance and memory over all ranks; and a lower
bound of the bytes that some rank needs with any schedule."""

from typing import NamedTuple

from drbench.launch.cases.case import Case, bind_case, refuse_library
from drbench.model.bounds import io_bound
from drbench.plan.explain import Loads, loads, transfers
from drbench.plan.schedule import pool_bytes
from drbench.program.problem import Problem
from drbench.program.trace import no_collection


class Counted(NamedTuple):
    """What a case moves, multiplies and stores.

    Attributes
    ----------
    loads : Loads
    memory : int
        Bytes of the largest rank's tiles and buffers, if every remote Get is a copy.
    share : float
        FLOPs of the busiest rank over an even share: 1 is balanced.
    needed : int
        Largest sum, over ranks, of the bytes of A, B and C that a rank stores and moves.
    layouts : tuple of str
        Text forms of the partitions of A, B and C.
    """

    loads: Loads
    memory: int
    share: float
    needed: int
    layouts: tuple[str, ...]


def share_of(total: Loads, problem: Problem) -> float:
    """FLOPs of the busiest rank over an even share."""
    return total.busiest_flops * problem.nprocs / problem.flops


@no_collection()
def count_case(case: Case, ranks: int) -> Counted:
    """Count a case on ``ranks`` ranks whose gets are copies.

    Raises
    ------
    UnsupportedError
        If the algorithm refuses the case.

    Examples
    --------
    >>> counts = count_case(Case(8, 8, 8, "column", "column", "column"), 2)
    >>> counts.loads.busiest_bytes, counts.memory, counts.share
    (128, 512, 1.0)
    """
    refuse_library(case.algorithm)
    algorithm, problem, options = bind_case(case, ranks)
    resolved = algorithm.resolve(problem, False, **options)
    traces = [algorithm.trace(problem, rank, **resolved) for rank in range(ranks)]
    memory = needed = 0
    for trace in traces:
        stored = sum(problem.tile_bytes(trace.rank).values())
        moved = sum(transfer.nbytes for transfer in transfers(trace))
        memory = max(memory, stored + pool_bytes(trace, case.ahead(resolved)))
        needed = max(needed, stored + moved)
    total = loads(traces)
    return Counted(total, memory, share_of(total, problem), needed, (*problem.texts.values(),))


def least_bytes(case: Case, ranks: int, memory: int | None = None) -> float:
    """Lower bound of the bytes of A, B and C that some rank stores or moves with any schedule
    (:func:`drbench.model.bounds.io_bound`).

    Examples
    --------
    >>> least_bytes(Case(512, 512, 512), 8) == 4 * 3 * 256**2
    True
    """
    itemsize = Problem(1, 1, 1, 1, dtype=case.dtype).itemsize
    elements = None if memory is None else memory // itemsize
    return round(io_bound(case.m, case.n, case.k, ranks, elements) * itemsize, 6)
