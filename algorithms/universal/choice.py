"""The choice of the stationary matrix, by the elements that the busiest rank would move; index
arithmetic alone."""

from collections.abc import Iterable

from drbench.program.problem import Problem

from .slicing import slices

#: An accumulate takes a lock, reads and writes where a get reads.
_ACCUMULATE = 3
#: The most ranks that are examined, evenly spread.
_ASKED = 16


def fewest_moved(problem: Problem, among: Iterable[str] = "CBA") -> str:
    """The matrix that ``stationary="auto"`` keeps in place, for the command line, the library and
    DTensor alike: the one for which the busiest rank moves fewest elements; on a tie C, then B.

    Examples
    --------
    Row blocks: with Stationary C only B moves; with fewer tokens A and C are smaller than B.

    >>> [fewest_moved(Problem(m, 64, 64, 4, a="row", b="row", c="row")) for m in (256, 8)]
    ['C', 'B']
    """
    return min(among, key=lambda each: busiest_rank(problem, each))


def busiest_rank(problem: Problem, stationary: str) -> int:
    """Elements that the busiest of 16 evenly spread ranks moves with that matrix stationary: each
    block it reads from others once, each that it accumulates into others' tiles three times.

    Examples
    --------
    All by columns: only A moves with Stationary C; with Stationary A, whose columns need rows of B
    that are on all ranks, B is read and C accumulated:

    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [busiest_rank(problem, stationary) for stationary in "CBA"]
    [32, 32, 112]
    """
    count = min(problem.nprocs, _ASKED)
    ranks = (x * (problem.nprocs - 1) // max(count - 1, 1) for x in range(count))
    return max(moved_by(problem, rank, stationary, _ACCUMULATE) for rank in ranks)


def moved_by(problem: Problem, rank: int, stationary: str, accumulate: int = 1) -> int:
    """Elements that a rank moves with that matrix stationary: each block it reads from others once,
    each that it accumulates ``accumulate`` times.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [moved_by(problem, 0, stationary) for stationary in "CBA"]
    [32, 32, 48]
    """
    seen, moved = set(), 0
    for group in slices(problem, rank, stationary):
        for gemm in group:
            for block in (gemm.a, gemm.b):
                if block.owner != rank and block.key not in seen:
                    seen.add(block.key)
                    moved += block.size
            if gemm.last and gemm.c.owner != rank:
                moved += accumulate * gemm.c.size
    return moved
