"""Which matrix should stay, by what the busiest rank would move; index arithmetic alone."""

from drbench.program.problem import Problem

from .slicing import slices

#: An accumulate takes a lock, reads and writes where a get reads.
_ACCUMULATE = 3


def busiest_rank(problem: Problem, stationary: str) -> int:
    """Elements that the busiest rank moves with that matrix stationary: each block it reads from
    others once, what it accumulates into others' tiles three times.

    Examples
    --------
    Everything by columns: only A moves with Stationary C; with A, whose columns meet rows of B that
    lie everywhere, B is read and C accumulated:

    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [busiest_rank(problem, stationary) for stationary in "CBA"]
    [32, 32, 112]
    """
    return max(moved_by(problem, rank, stationary, _ACCUMULATE) for rank in range(problem.nprocs))


def moved_by(problem: Problem, rank: int, stationary: str, accumulate: int = 1) -> int:
    """Elements that a rank moves with that matrix stationary: each block it reads from others once,
    what it accumulates ``accumulate`` times.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [moved_by(problem, 0, stationary) for stationary in "CBA"]
    [32, 32, 48]
    """
    seen, moved = set(), 0
    for group in slices(problem, rank, stationary):
        for product in group:
            for block in (product.a, product.b):
                if block.owner != rank and block.key not in seen:
                    seen.add(block.key)
                    moved += block.size
            if product.last and product.c.owner != rank:
                moved += accumulate * product.c.size
    return moved
