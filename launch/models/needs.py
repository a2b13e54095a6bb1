"""What the busiest rank of each algorithm and preset needs, beside the lower bound: counted. A
machine is asked for one thing only, which grid is the fastest."""

from dataclasses import replace
from typing import NamedTuple

from algorithms import algorithms, get_algorithm
from algorithms.universal.choice import moved_by
from algorithms.universal.slicing import grid_of
from drbench.errors import DrbenchError, UsageError
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from drbench.plan.schedule import pool_bytes
from drbench.program.trace import no_collection
from launch.cases.case import Case, bound, partition_texts
from partitions import PRESETS, Grid, LayoutError, frontier, io_bound, optimal_grid
from partitions.presets import GRID

from .predict import refuse_more_ranks, resolved_on, seen_by

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
        The matrix that stays, or the grid, and how many ranks it leaves idle.
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


def bounds_rows(
    case: Case, ranks: int, memory: int | None = None, machine: Machine | None = None
) -> list:
    """The rows (:mod:`plots.figures.bounds`) of :func:`needs`, each with the bound.

    Examples
    --------
    >>> row = bounds_rows(Case(512, 512, 512), 8)[0]
    >>> row.name, row.ranks, row.ratio
    ('optimal', 8, 1.0)
    """
    from plots.figures.bounds import BoundsRow

    least = bound_bytes(case, ranks, memory)
    about = (case.m, case.n, case.k, case.dtype, ranks, memory, least)
    found = needs(case, ranks, memory, machine)
    return [BoundsRow(*about, family(row.name, row.how), *row) for row in found]


def family(name: str, how: str) -> str:
    """In how many dimensions the ranks of a preset, or of an algorithm on its own layout, divide
    the products (:data:`plots.figures.bounds.FAMILIES`); ``how`` tells the preset from the
    algorithm of the same name.

    Examples
    --------
    >>> [family(name, "S-C") for name in ("row", "block", "2.5d", "optimal", "fsdp")]
    ['1-D', '2-D', '2.5-D', '3-D', '1-D']
    >>> [family(name, "") for name in ("fsdp", "cannon", "summa2.5d")]
    ['1-D', '2-D', '2.5-D']
    """
    if name in PRESETS and (how or name not in algorithms()):
        kinds = PRESETS[name].operands
        if GRID in kinds:
            return "3-D"
        square = {"block", "traditional"} & {*kinds}
        return ("2.5-D" if PRESETS[name].fixed else "2-D") if square else "1-D"
    options = get_algorithm(name).options
    return "2.5-D" if "replicas" in options else "2-D" if "mesh" in options else "1-D"


def needs(
    case: Case, ranks: int, memory: int | None = None, machine: Machine | None = None
) -> list[Need]:
    """Every preset, by the universal algorithm with the matrix staying that needs least, then every
    other algorithm on its own layout; those that need least first, those that do not run last.

    Parameters
    ----------
    case : Case
        Sizes and element type.
    memory : int, optional
        Bytes a rank may use: optimal takes a grid that fits, and what needs more is a reason.
    machine : Machine, optional
        Optimal takes the grid that is fastest there, without one the grid that needs fewest bytes.

    Examples
    --------
    >>> found = needs(Case(512, 512, 512), 8)
    >>> found[0].name, found[0].how, found[0].needed == bound_bytes(Case(512, 512, 512), 8)
    ('optimal', 'grid 2x2x2', True)
    """
    others = (name for name in algorithms() if name != "universal")
    rows = [preset_need(case, name, ranks, memory, machine) for name in PRESETS]
    rows += [_counted(name, "", replace(case, algorithm=name), ranks) for name in others]
    rows = [_fitting(row, memory) for row in rows]
    return sorted(rows, key=lambda row: (bool(row.reason), row.needed or 0))


def preset_need(
    case: Case,
    name: str,
    ranks: int,
    memory: int | None = None,
    machine: Machine | None = None,
) -> Need:
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
            if machine is None:
                grid = optimal_grid(case.m, case.n, case.k, ranks, elements)
            else:
                grid = fastest_grid(case, ranks, machine, elements)
            text = f"{name}:{grid}"
        texts = partition_texts({"preset": text}, ranks)
    except LayoutError as error:
        return Need(name, "", reason=str(error))
    case = replace(case, **texts)
    if name == OPTIMAL:
        grid = grid_of(bound(case, ranks)[1])
        idle = f", {ranks - grid.size} idle" if grid.size < ranks else ""
        return _counted(name, f"grid {grid}{idle}", case, ranks)
    problem = bound(case, ranks)[1]
    stored = {rank: sum(problem.tile_bytes(rank).values()) for rank in _some(ranks)}
    least = {
        each: max(
            own + moved_by(problem, rank, each) * problem.itemsize for rank, own in stored.items()
        )
        for each in "CBA"
    }
    best = min(least, key=least.get)
    options = {"stationary": best}
    if ranks > ALL_RANKS:
        options["chunk"] = "none"  # what so many ranks share is small already
    return _counted(name, f"S-{best}", replace(case, options=options), ranks)


def fastest_grid(case: Case, ranks: int, machine: Machine, elements: int | None = None) -> Grid:
    """The grid that is fastest on a machine, by products and busiest link of its program: more
    ranks than it has may be idle where that saves more bytes than it costs time.

    Parameters
    ----------
    elements : int, optional
        Elements that a rank has room for.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> str(fastest_grid(Case(4096, 4096, 4096), 11, find_machine("pvc12")))
    '5x2x1'
    """
    refuse_more_ranks(machine, ranks)
    seen, found = seen_by(case, machine), {}
    for grid in frontier(case.m, case.n, case.k, ranks, elements):
        texts = partition_texts({"preset": f"{OPTIMAL}:{grid}"}, ranks)
        algorithm, problem, resolved = resolved_on(replace(case, **texts), seen, ranks)
        traces = [algorithm.trace(problem, rank, **resolved) for rank in _some(grid.size)]
        found[grid] = bound_of(traces, seen).seconds
    return min(found, key=found.get)


def _some(ranks: int) -> list[int]:
    """The ranks that are counted: all, or the first, the middle and the last."""
    return list(range(ranks)) if ranks <= ALL_RANKS else [0, ranks // 2, ranks - 1]


@no_collection()
def _counted(name: str, how: str, case: Case, ranks: int) -> Need:
    """What the busiest rank of a case needs, or why it does not run."""
    try:
        algorithm, problem, options = bound(case, ranks)
        resolved = algorithm.resolve(problem, False, **options)
        needed = moved = memory = flops = 0
        most = -1  # above ALL_RANKS memory is that of the rank with most steps: planning it is slow
        for rank in _some(ranks):
            trace = algorithm.trace(problem, rank, **resolved)
            own = sum(problem.tile_bytes(rank).values())
            elements = sum(count for step in trace.steps for _, count in step.moved(rank))
            steps = elements * problem.itemsize
            needed, moved = max(needed, own + steps), max(moved, steps)
            flops = max(flops, trace.flops)
            if ranks <= ALL_RANKS or len(trace.steps) > most:
                memory = max(memory, own + pool_bytes(trace, case.ahead(resolved)))
                most = len(trace.steps)
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
