"""Rules that follow from the layouts alone: who multiplies, and what that leaves in place."""

from dataclasses import replace
from functools import lru_cache

from drbench.errors import UsageError
from drbench.partitions import (
    Axis,
    Grid,
    LayoutError,
    Partition,
    Places,
    balanced_axis,
    ceil_div,
    parse_grid,
    work_on,
)
from drbench.program.problem import Operand, Problem

from .algorithm1 import Share


def largest_matrix(m: int, n: int, k: int) -> str:
    """The largest matrix; on a tie C, then B (paper, §4).

    Examples
    --------
    >>> largest_matrix(4, 4, 4), largest_matrix(1, 8, 4), largest_matrix(8, 1, 4)
    ('C', 'B', 'A')
    """
    sizes = {"C": m * n, "B": k * n, "A": m * k}
    return max(sizes, key=sizes.get)  # max keeps the first of equals


def result_is_local(problem: Problem, stationary: str, work: Operand | None = None) -> bool:
    """True if every GEMM of every rank computes its own tile of C, so that no rank accumulates into
    another's.

    Always with Stationary C; with A (or B) if every rank holds the same rows (columns) of A (B) and
    of C, and C is divided by rows (columns) alone. With a work distribution ``work`` other than the
    owners': with Stationary C, if C is stored in that layout.

    Examples
    --------
    >>> [
    ...     result_is_local(Problem(8, 8, 8, 4, b=b, c=c), "B")
    ...     for b, c in [("column", "column"), ("column", "row"), ("block", "block")]
    ... ]
    [True, False, False]
    """
    if work is not None:
        return stationary == "C" and work.partition == problem.c.partition
    if stationary == "C":
        return True
    along = 0 if stationary == "A" else 1
    return _at_home(problem.operand(stationary).partition, problem.c.partition, along)


@lru_cache(maxsize=64)
def _at_home(stored: Partition, c: Partition, along: int) -> bool:
    """True if every rank holds the same ranges of C and of the stationary matrix along their shared
    axis, and C is not divided along the other one."""
    return (
        _axes(c)[1 - along].parts == 1
        and _axes(stored)[along].key == _axes(c)[along].key
        and (stored.places == c.places or _same_places(stored.places, c.places, along))
    )


def _same_places(first: Places, other: Places, along: int) -> bool:
    """True if every rank that holds a part of one matrix has the same coordinate along an axis of
    the other."""
    return all(
        other.holds(x) and first.coords(x)[along] == other.coords(x)[along] for x in first.active
    )


def _axes(partition: Partition) -> tuple[Axis, Axis]:
    return partition.rows, partition.cols


def cuts_rows(problem: Problem, stationary: str) -> bool:
    """Whether chunks along the free axis would cut stored rows of remote tiles, so that they are
    not contiguous: a rank's core has to pack them.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 4, "row", "row", "row")
    >>> [cuts_rows(problem, each) for each in "ABC"]
    [True, False, False]
    >>> cuts_rows(Problem(8, 8, 8, 4, "column", "column", "column"), "C")
    True
    """
    share = Share(problem, 0, stationary)
    for operand, axis in ((share.x, share.p), (share.y, share.q)):
        if operand.axes[not operand.transposed] != share.free:
            continue
        along, other = operand.axes.index(axis), share.stored.axes.index(axis)
        local = along == other and _at_home(share.stored.partition, operand.partition, along)
        if not local:
            return True
    return False


def has_whole_rows(problem: Problem, stationary: str) -> bool:
    """Whether every tile of A and of B, unless it is stationary, has whole stored rows: then blocks
    of whole rows are contiguous, also where they are packed.

    Examples
    --------
    >>> [has_whole_rows(Problem(8, 8, 8, 4, a, "row", "row"), "C") for a in ("row", "column")]
    [True, False]
    """
    return all(
        (operand.stored.cols.parts == 1) or operand.name == stationary
        for operand in (problem.a, problem.b)
    )


def own_first_balances(problem: Problem, stationary: str) -> bool:
    """True if every rank computes the same share of its GEMMs into its own tile of C (Stationary A
    or B).

    Then no rank waits long at a Fence after those GEMMs. This holds if all ranks own the same
    number of tiles of C, and of the stationary matrix, which is not replicated, and along their
    shared axis C is not divided or divided alike. Then every rank with work has such a GEMM.

    Examples
    --------
    >>> [
    ...     own_first_balances(Problem(8, 8, 8, 4, b=b, c=c), "B")
    ...     for b, c in [("row", "row"), ("block", "block"), ("column", "block")]
    ... ]
    [True, True, False]
    """
    stored, c = problem.operand(stationary).partition, problem.c.partition
    along = 0 if stationary == "A" else 1
    even = all(axis.even for p in (stored, c) for axis in _axes(p))
    alike = stored.places == c.places and _axes(stored)[along].key == _axes(c)[along].key
    own = stored.replicas == 1 and all(map(c.places.holds, stored.places.active))
    return even and own and (_axes(c)[along].parts == 1 or alike)


def grid_of(problem: Problem) -> Grid | None:
    """The grid of ranks over m, n and k on which all three matrices are stored once
    (:class:`partitions.GridSpec`), if they are.

    Examples
    --------
    >>> grid_of(Problem(8, 8, 8, 4, *["grid:1x2x2"] * 3)), grid_of(Problem(8, 8, 8, 4))
    (Grid(m=1, n=2, k=2), None)
    """
    texts = {operand.stored.text for operand in problem.operands}
    if problem.transpose or len(texts) > 1 or not (text := texts.pop()).startswith("grid:"):
        return None
    return parse_grid(text.removeprefix("grid:"))


def work_of(problem: Problem, stationary: str, work: str) -> Operand | None:
    """The work distribution as a layout of the stationary matrix; None if each rank multiplies its
    own tiles of the stationary matrix.

    Parameters
    ----------
    problem : Problem
    stationary : str
    work : str
        ``"own"``: the owners of its tiles; ``"level"``: every rank as much as the others
        (:func:`level_work`); ``"PMxPNxPK"``: rank (i, j, l) of a grid over m, n and k block
        (i, j, l), so that there is a replica for each part of the axis that the matrix lacks.

    Raises
    ------
    UsageError
        If ``work`` is none of these, or the grid has more than the problem's ranks.

    Examples
    --------
    >>> work_of(Problem(8, 8, 8, 4), "A", "1x2x2").partition.replicas
    2
    """
    stored = problem.operand(stationary).partition
    if work == "own":
        return None
    if work == "level":
        layout = level_work(stored)
        return Operand(stationary, layout) if layout else None
    try:
        grid = parse_grid(work)
    except LayoutError as error:
        raise UsageError(f"work must be own, level, auto or a grid: {error}.") from None
    if grid.size > problem.nprocs:
        raise UsageError(
            f"work {work} needs {grid.size} ranks, got {problem.nprocs}. Use a smaller grid."
        )
    return Operand(stationary, work_on(grid, stationary, stored.shape, problem.nprocs))


def level_work(stored: Partition) -> Partition | None:
    """The layout of a matrix in which every coordinate has the same share of its rows and of its
    columns, and as few elements as possible change their owner; None if the layout is balanced.

    Examples
    --------
    >>> found = level_work(Problem(8, 8, 8, 2, b="tiles:8x3@1x2").b.partition)
    >>> [found.tiles_of(rank) for rank in range(2)]
    [[(0, 0), (0, 2)], [(0, 1), (0, 3)]]
    """
    # by axes: coordinates without a tile may get one, though to equal partitions they do not matter
    return _level(*_axes(stored), stored.places, stored.text)


@lru_cache(maxsize=64)
def _level(rows: Axis, cols: Axis, places: Places, text: str) -> Partition | None:
    axes, ranks = [], []
    for axis, at in ((rows, places.rows), (cols, places.cols)):
        if max(map(axis.length, range(axis.parts))) > ceil_div(axis.extent, axis.parts):
            axis, numbers = balanced_axis(axis)
            at = [at[x] for x in numbers]
        axes.append(axis)
        ranks.append(at)
    if axes == [rows, cols]:
        return None
    return Partition.of(*axes, replace(places, rows=ranks[0], cols=ranks[1]), f"{text} balanced")
