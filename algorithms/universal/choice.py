"""The choice of the stationary matrix, by the elements that the busiest rank would move; index
arithmetic alone."""

from collections.abc import Iterable
from functools import lru_cache

from drbench.program.problem import AXES, Operand, Problem

from partitions import ceil_div

from .slicing import OFFSETS, Share

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
    return _least(problem, stationary)[0]


def choose_offset(problem: Problem, stationary: str, work: Operand | None = None) -> str:
    """What ``offset="auto"`` rotates: the whole axis, unless ranks would then move more elements,
    because with replicas each rank's tiles are those that its replica's interval needs.

    Examples
    --------
    >>> texts = {8: ["block/c2"] * 3, 4: ["S(0),S(1)@2x2", "R,S(0)@2x2", "S(0),R@2x2"]}
    >>> [choose_offset(Problem(8, 8, 8, ranks, *texts[ranks]), "C") for ranks in texts]
    ['axis', 'interval']
    """
    return _least(problem, stationary, work)[-1]


@lru_cache(maxsize=8)
def _least(
    problem: Problem, stationary: str, work: Operand | None = None
) -> tuple[int, int, str]:
    """Elements that the busiest rank and all ranks move, and the offset for which they are
    fewest: of the ranks that have at most 16 evenly spread tiles, or replicas of these."""
    layout = (work or problem.operand(stationary)).partition
    members, (first, *others) = layout.members(), layout.places.replicas
    count = min(len(members), ceil_div(_ASKED, layout.replicas))
    asked = [members[x * (len(members) - 1) // max(count - 1, 1)] for x in range(count)]
    ranks = [rank + other - first for rank in asked for other in (first, *others)]

    def moved(offset: str) -> tuple[int, int, str]:
        shares = (Share(problem, rank, stationary, work, offset) for rank in ranks)
        each = [moved_by(share, _ACCUMULATE) for share in shares]
        return max(each), sum(each), offset

    return min(map(moved, OFFSETS[: min(layout.replicas, 2)]))  # of equals the first in the alphabet


def moved_by(share: Share, accumulate: int = 1) -> int:
    """Elements that a rank moves: each that it reads from others once, each that it accumulates
    ``accumulate`` times.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [moved_by(Share(problem, 0, stationary)) for stationary in "CBA"]
    [32, 32, 48]
    """
    a, b, c = map(share.remote, share.problem.operands)
    if share.stationary != "C":  # tiles along k have separate partial sums
        along = AXES[share.stationary].index("k")
        c *= len({tile[along] for tile in share.tiles})
    return a + b + accumulate * c
