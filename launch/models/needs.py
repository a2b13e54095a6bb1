"""What the busiest rank of each algorithm and preset needs, beside the lower bound: counted, no
machine asked."""

from dataclasses import replace
from typing import NamedTuple

from algorithms import algorithms
from algorithms.universal.slicing import grid_of
from drbench.errors import DrbenchError, UsageError
from drbench.plan.loads import transfers
from drbench.plan.schedule import pool_bytes
from drbench.program.trace import no_collection
from launch.cases.case import Case, bound, partition_texts
from partitions import PRESETS, LayoutError, io_bound, optimal_grid

#: Above so many ranks only the first, the middle and the last are traced.
ALL_RANKS = 64
OPTIMAL = "optimal"


class Need(NamedTuple):
    """What one way to multiply needs of its busiest rank.

    Attributes
    ----------
    name : str
        The preset, or the algorithm on its own layout.
    how : str
        The matrix that stays, or the grid.
    needed : int
        Bytes of A, B and C it stores, and those that its steps move; None if it does not run.
    moved : int
        Bytes that its steps move.
    memory : int
        Bytes of its tiles and buffers, every remote Get being copied.
    share : float
        FLOPs of the busiest rank over an even share.
    reason : str
        Why there are no numbers.
    """

    name: str
    how: str
    needed: int | None = None
    moved: int | None = None
    memory: int | None = None
    share: float | None = None
    reason: str = ""


def bound_bytes(case: Case, ranks: int, memory: int | None = None) -> float:
    """The lower bound of :func:`partitions.io_bound` in bytes.

    Raises
    ------
    UsageError
        If the matrices do not fit into the memory.

    Examples
    --------
    >>> bound_bytes(Case(512, 512, 512), 8) == 4 * 3 * 256**2
    True
    """
    itemsize = _itemsize(case)
    elements = None if memory is None else memory // itemsize
    try:
        return round(io_bound(case.m, case.n, case.k, ranks, elements) * itemsize, 6)
    except LayoutError as error:
        raise UsageError(f"--memory: {error}.") from None


def needs(case: Case, ranks: int, memory: int | None = None) -> list[Need]:
    """Every preset, by the universal algorithm with the matrix staying that needs least, then every
    other algorithm on its own layout; those that need least first, those that do not run last.

    Parameters
    ----------
    case : Case
        Sizes and element type.
    memory : int, optional
        Bytes a rank may use: optimal takes a grid that fits, and what needs more is a reason.

    Examples
    --------
    >>> found = needs(Case(512, 512, 512), 8)
    >>> found[0].name, found[0].how, found[0].needed == bound_bytes(Case(512, 512, 512), 8)
    ('optimal', 'grid 2x2x2', True)
    """
    others = (name for name in algorithms() if name != "universal")
    rows = [preset_need(case, name, ranks, memory) for name in PRESETS]
    rows += [_counted(name, "", replace(case, algorithm=name), ranks) for name in others]
    rows = [_fitting(row, memory) for row in rows]
    return sorted(rows, key=lambda row: (bool(row.reason), row.needed or 0))


def preset_need(case: Case, name: str, ranks: int, memory: int | None = None) -> Need:
    """What a preset needs, with the matrix staying that makes it need least; optimal on its grid.

    Examples
    --------
    >>> preset_need(Case(8, 8, 8), "megatron", 4).moved
    0
    """
    try:
        text = name
        if name == OPTIMAL:
            elements = None if memory is None else memory // _itemsize(case)
            text = f"{name}:{optimal_grid(case.m, case.n, case.k, ranks, elements)}"
        texts = partition_texts({"preset": text}, ranks)
    except LayoutError as error:
        return Need(name, "", reason=str(error))
    case = replace(case, **texts)
    if name == OPTIMAL:
        grid = grid_of(bound(case, ranks)[1])
        return _counted(name, f"grid {grid}", case, ranks)
    tried = [
        _counted(name, f"S-{each}", replace(case, options={"stationary": each}), ranks)
        for each in "CBA"
    ]
    return min(tried, key=lambda row: (bool(row.reason), row.needed or 0))


@no_collection()
def _counted(name: str, how: str, case: Case, ranks: int) -> Need:
    """What the busiest rank of a case needs, or why it does not run."""
    try:
        algorithm, problem, options = bound(case, ranks)
        settled = algorithm.settle(problem, False, **options)
        mine = range(ranks) if ranks <= ALL_RANKS else (0, ranks // 2, ranks - 1)
        needed = moved = memory = flops = 0
        for rank in mine:
            trace = algorithm.trace(problem, rank, **settled)
            own = sum(problem.tile_bytes(rank).values())
            steps = sum(each.nbytes for each in transfers(trace))
            needed, moved = max(needed, own + steps), max(moved, steps)
            memory = max(memory, own + pool_bytes(trace, case.ahead(settled)))
            flops = max(flops, trace.flops)
    except (LayoutError, DrbenchError) as error:
        return Need(name, how, reason=str(error))
    return Need(name, how, needed, moved, memory, flops * ranks / problem.flops)


def _fitting(row: Need, memory: int | None) -> Need:
    """The row, with a reason if it takes more memory than there is."""
    if memory is None or row.memory is None or row.memory <= memory:
        return row
    return row._replace(reason=f"needs {row.memory} bytes of memory a rank, more than {memory}")


def _itemsize(case: Case) -> int:
    return bound(replace(case, a=None, b=None, c=None), 1)[1].itemsize
