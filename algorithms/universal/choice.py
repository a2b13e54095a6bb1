"""The choice of the stationary matrix and of the iteration offset, by the elements that the busiest
rank would move: index arithmetic; and by the busiest link of a machine model, if there is one."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from drbench.model.bounds import moving_s
from drbench.model.machine import Machine
from drbench.partitions import ceil_div
from drbench.program.problem import AXES, Problem

from .distribution import work_of
from .footprint import Footprint

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
    return min(among, key=lambda matrix: busiest_rank(problem, matrix))


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


def choose_offset(
    problem: Problem,
    stationary: str,
    work: str = "own",
    tiles: bool = False,
    machine: Machine | None = None,
) -> str:
    """What ``offset="auto"`` rotates with replicas: the whole axis, or each replica's interval.

    The interval if ranks then move fewer elements, because each has the tiles that its replica's
    interval needs. On a machine with a link for each pair of ranks readers of one owner do not
    share a link, so the interval also if the busiest link then carries less: with partial sums the
    whole axis may load one link with operands and sums in the same direction. With ``tiles`` ranks
    fetch whole tiles.

    Examples
    --------
    >>> texts = {8: ["block/c2"] * 3, 4: ["S(0),S(1)@2x2", "R,S(0)@2x2", "S(0),R@2x2"]}
    >>> [choose_offset(Problem(8, 8, 8, ranks, *texts[ranks]), "C") for ranks in texts]
    ['axis', 'interval']
    """
    cache = _cache(problem, stationary, work, tiles, id(machine))
    if not cache:  # it holds the machine, so that no other one has its id
        *_, chosen = _least(problem, stationary, work, tiles)
        if machine and any(link.shared == "pair" for link in machine.links) and chosen == "axis":
            layout = work_of(problem, stationary, work)
            share = lambda rank, offset: Footprint(problem, rank, stationary, layout, offset)
            shares = lambda offset: (share(rank, offset) for rank in range(problem.nprocs))
            busiest_s = lambda offset: moving_s(_flows(shares(offset), tiles, machine), machine)
            chosen = min(("axis", "interval"), key=busiest_s)
        cache += [chosen, machine]
    return cache[0]


@lru_cache(maxsize=2)
def _cache(*asked) -> list:
    return []


def _flows(
    shares: Iterable[Footprint], tiles: bool, machine: Machine
) -> Iterator[tuple[int, int, float]]:
    """(source, target, bytes) of ranks; of partial sums as many as a copy in the same time."""
    for share in shares:
        rank, problem = share.rank, share.problem
        for operand in problem.operands:
            nbytes, sums = problem.itemsizes[operand.name], operand.name == "C"
            for owner, elements in share.owners(operand, tiles and not sums).items():
                if sums and owner != rank:
                    yield rank, owner, elements * nbytes / machine.accumulate_efficiency
                elif owner != rank:
                    yield owner, rank, elements * nbytes


@lru_cache(maxsize=8)
def _least(
    problem: Problem, stationary: str, work: str = "own", tiles: bool = False
) -> tuple[int, int, str]:
    """Elements that the busiest rank and all ranks move, and the offset for which they are
    fewest: of the ranks that have at most 16 evenly spread tiles, or replicas of these."""
    balanced = work_of(problem, stationary, work)
    layout = (balanced or problem.operand(stationary)).partition
    members, places = layout.members(), layout.places
    count = min(len(members), ceil_div(_ASKED, layout.replicas))
    asked = [members[x * (len(members) - 1) // max(count - 1, 1)] for x in range(count)]
    at = [places.coords(rank)[:2] for rank in asked]
    ranks = [places.rank(*pair, copy) for pair in at for copy in range(layout.replicas)]

    def moved(offset: str) -> tuple[int, int, str]:
        shares = (Footprint(problem, rank, stationary, balanced, offset) for rank in ranks)
        elements = [moved_by(share, tiles) for share in shares]
        return max(elements), sum(elements), offset

    return min(map(moved, ("axis", "interval")[: min(layout.replicas, 2)]))  # on a tie the axis


def moved_by(share: Footprint, tiles: bool = False) -> int:
    """Elements that a rank moves: each that it reads from others once, or with ``tiles`` whole
    tiles, each that it accumulates three times.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> [moved_by(Footprint(problem, 0, stationary)) for stationary in "CBA"]
    [32, 32, 112]
    """
    a, b, c = share.problem.operands
    sums = 1  # tiles along k have separate partial sums
    if share.stationary != "C":
        along = AXES[share.stationary].index("k")
        sums = len({tile[along] for tile in share.tiles})
    return share.remote(a, tiles) + share.remote(b, tiles) + _ACCUMULATE * sums * share.remote(c)
