"""What can be said of a case without a machine: bytes, balance and memory, counted on all ranks."""

from typing import NamedTuple

from algorithms import get_algorithm
from drbench.plan.explain import Loads, loads
from drbench.plan.schedule import pool_bytes
from drbench.program.problem import Problem
from drbench.program.trace import no_collection
from launch.cases.case import Case, bound


class Counted(NamedTuple):
    """What a case moves, multiplies and holds.

    Attributes
    ----------
    loads : Loads
    memory : int
        Bytes of the largest rank's tiles and buffers, every remote Get being copied.
    share : float
        FLOPs of the busiest rank over its even share: 1 is balanced.
    """

    loads: Loads
    memory: int
    share: float


def share_of(found: Loads, problem: Problem) -> float:
    """FLOPs of the busiest rank over an even share."""
    return found.busiest_flops * problem.nprocs / problem.flops


@no_collection()
def counted(case: Case, ranks: int) -> Counted:
    """Count a case on so many ranks, its gets being copies.

    Raises
    ------
    UnsupportedError
        If the algorithm does not take it.

    Examples
    --------
    >>> found = counted(Case(8, 8, 8, "column", "column", "column"), 2)
    >>> found.loads.busiest_bytes, found.memory, found.share
    (128, 512, 1.0)
    """
    get_algorithm(case.algorithm)  # a peer has no program to count
    algorithm, problem, options = bound(case, ranks)
    resolved = algorithm.resolve(problem, False, **options)
    traces = [algorithm.trace(problem, rank, **resolved) for rank in range(ranks)]
    memory = max(
        sum(problem.tile_bytes(trace.rank).values()) + pool_bytes(trace, case.ahead(resolved))
        for trace in traces
    )
    found = loads(traces)
    return Counted(found, memory, share_of(found, problem))
