"""Slicing: which local products a rank computes, by index arithmetic alone (paper, §4.1, Algorithms
1 and 2).

One function serves the three stationary matrices. Call the stationary matrix's axes p and q and the
third axis f, the *free* one (C: m, n and k; B: k, n and m; A: m, k and n). The matrix X has the
axes p and f, the matrix Y q and f:

==========  ==  ==  ==  ==========  ==========
stationary  p   q   f   X           Y
==========  ==  ==  ==  ==========  ==========
C           m   n   k   A (m×k)     B (k×n)
B           k   n   m   A (m×k)     C (m×n)
A           m   k   n   C (m×n)     B (k×n)
==========  ==  ==  ==  ==========  ==========

A stationary tile is a range of p times a range of q. The free axis is cut at the tile boundaries of
X and Y, the tile's p range at those of X, its q range at those of Y; every combination is one
product whose three blocks lie in one tile each.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from drbench.program.problem import AXES, Operand, Problem
from drbench.program.steps import Block, Part, Step
from partitions import (
    Axis,
    Grid,
    Partition,
    Places,
    ceil_div,
    levelled_axis,
    parse_grid,
    part,
    work_on,
)
from partitions.intervals import between

#: In what order the free ranges of a stationary tile are worked off: rotated by its place; or so,
#: but beginning with that which the fewest elements of A and B are fetched for.
ORDERS = ("offset", "cheapest")

#: X and Y of the table above.
_FACTORS = {"C": "AB", "B": "AC", "A": "CB"}


class Product(NamedTuple):
    """One local product c += a·b of blocks. ``first`` and ``last`` mark the ends of a run of
    products with the same c."""

    a: Block
    b: Block
    c: Block
    first: bool
    last: bool


def largest_matrix(m: int, n: int, k: int) -> str:
    """The largest matrix; on a tie C, then B (paper, §4).

    Examples
    --------
    >>> largest_matrix(4, 4, 4), largest_matrix(1, 8, 4), largest_matrix(8, 1, 4)
    ('C', 'B', 'A')
    """
    sizes = {"C": m * n, "B": k * n, "A": m * k}
    return max(sizes, key=sizes.get)  # max keeps the first of equals


def free_axis(stationary: str) -> str:
    """The axis the stationary matrix does not have: C -> k, B -> m, A -> n."""
    (free,) = {"m", "n", "k"} - set(AXES[stationary])
    return free


def result_stays(problem: Problem, stationary: str, work: Operand | None = None) -> bool:
    """True if every product of every rank lands in a tile of C of its own, so that no rank
    accumulates into another's.

    Always with Stationary C; with A (or B) if every rank holds the same rows (columns) of A (B) and
    of C, and C is divided by rows (columns) alone. ``work`` says who multiplies what if not the
    owners of the stationary matrix: then with Stationary C, if C is stored so.

    Examples
    --------
    >>> [
    ...     result_stays(Problem(8, 8, 8, 4, b=b, c=c), "B")
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
def _at_home(still: Partition, c: Partition, along: int) -> bool:
    """True if every rank holds the same of C along the axis it shares with the stationary matrix,
    and C is not divided along the other one."""
    return (
        _axes(c)[1 - along].parts == 1
        and _axes(still)[along].key == _axes(c)[along].key
        and _same_places(still, c, along)
    )


def _axes(partition: Partition) -> tuple[Axis, Axis]:
    return partition.rows, partition.cols


def _same_places(one: Partition, other: Partition, along: int) -> bool:
    """True if every rank has the same coordinate along an axis in two partitions."""
    if one.places == other.places:
        return True
    at = ((one.places.coords(rank), other.places.coords(rank)) for rank in range(one.nprocs))
    return all(x[along] == y[along] for x, y in at)


def cuts_rows(problem: Problem, stationary: str) -> bool:
    """Whether cutting the free axis cuts rows, as they are stored, of tiles that other ranks hold.

    What is left of them does not lie side by side, and is packed by some rank's core.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 4, "row", "row", "row")
    >>> [cuts_rows(problem, each) for each in "ABC"]
    [True, False, False]
    >>> cuts_rows(Problem(8, 8, 8, 4, "column", "column", "column"), "C")
    True
    """
    still, *factors, (p, q, free) = roles(problem, stationary)
    for operand, beside in zip(factors, (p, q)):
        if operand.axes[not operand.transposed] != free:
            continue
        along, other = operand.axes.index(beside), still.axes.index(beside)
        alike = along == other and _at_home(still.partition, operand.partition, along)
        if not alike:
            return True
    return False


def keeps_rows(problem: Problem, stationary: str) -> bool:
    """Whether what moves of A and B has rows, as they are stored, that no tile boundary cuts: then
    pieces of them lie side by side, also where they are assembled.

    Examples
    --------
    >>> [keeps_rows(Problem(8, 8, 8, 4, a, "row", "row"), "C") for a in ("row", "column")]
    [True, False]
    """
    return all(
        (each.stored.cols.parts == 1) or each.name == stationary for each in (problem.a, problem.b)
    )


def widened(problem: Problem, rank: int, block: Block, most: int) -> Block:
    """What a rank fetches for a block: the whole rows of its tile, as it is stored, where those are
    at most so many times as large, rounded down, and a message brings them; else the block.

    Between nodes MPI moves what lies side by side without the core at the other end; rows that lie
    apart that core packs, once it looks at MPI, and this rank unpacks them.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row")
    >>> block = problem.a.block((4, 8), (0, 4))
    >>> [widened(problem, 0, block, most) for most in (1, 2)]
    [A[4:8, 0:4]@1, A[4:8, 0:8]@1]
    >>> widened(problem.on_nodes([0, 0]), 0, block, 2)
    A[4:8, 0:4]@1
    """
    if most < 2 or block.stored_shape[0] < 2 or problem.is_near(rank, block.owner):
        return block
    operand = problem.operand(block.matrix)
    tile = operand.tile_block(block.tile, block.replica)
    wide = rows_of(operand, block, tile)
    return wide if block.size < wide.size < (most + 1) * block.size else block


def rows_of(operand: Operand, block: Block, tile: Block) -> Block:
    """The whole rows of a tile, as it is stored, that a block of it is part of."""
    rows, cols = (block.row0, block.row1), (block.col0, block.col1)
    if block.transposed:
        rows = tile.row0, tile.row1
    else:
        cols = tile.col0, tile.col1
    return operand.block(rows, cols, block.replica)


def cut_out(token: Step, whole: Block, block: Block) -> Generator[Step, Step, Step]:
    """The part of the copy of a block that a smaller one is."""
    for axis, start, stop, first in (
        (0, block.row0, block.row1, whole.row0),
        (1, block.col0, block.col1, whole.col0),
    ):
        if stop - start < whole.shape[axis]:
            token = yield Part(token, axis, start - first, stop - first)
    return token


def own_first_balances(problem: Problem, stationary: str) -> bool:
    """True if every rank does the same share of its products into its own tile of C (Stationary A
    or B).

    Then a Fence after those products keeps no rank waiting. So it is if all ranks own the same
    number of tiles of C, and of the stationary matrix, which is not replicated, and along the axis
    the two share C is not divided or divided alike.

    Examples
    --------
    >>> [
    ...     own_first_balances(Problem(8, 8, 8, 4, b=b, c=c), "B")
    ...     for b, c in [("row", "row"), ("block", "block"), ("column", "block")]
    ... ]
    [True, True, False]
    """
    still, c = problem.operand(stationary).partition, problem.c.partition
    along = 0 if stationary == "A" else 1
    even = all(axis.even for p in (still, c) for axis in _axes(p))
    alike = still.places == c.places and _axes(still)[along].key == _axes(c)[along].key
    return even and still.replicas == 1 and (_axes(c)[along].parts == 1 or alike)


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


def on_grid(problem: Problem, stationary: str, grid: Grid) -> Operand:
    """Who does which products on a grid, as a layout of the stationary matrix: its tiles are the
    blocks of the grid, with a replica for each part of the axis that it lacks.

    Examples
    --------
    >>> on_grid(Problem(8, 8, 8, 4), "A", Grid(1, 2, 2)).partition.replicas
    2
    """
    shape = problem.operand(stationary).partition.shape
    return Operand(stationary, work_on(grid, stationary, shape, problem.nprocs))


def levelled(stored: Partition) -> Partition | None:
    """Who does which products once ranks that hold more of the stationary matrix than others leave
    them some, as a layout of it: every coordinate has the same share of rows and of columns, and
    the least changes hands. None if the matrix is dealt so.

    Examples
    --------
    >>> found = levelled(Problem(8, 8, 8, 2, b="tiles:8x3@1x2").b.partition)
    >>> [found.tiles_of(rank) for rank in range(2)]
    [[(0, 0), (0, 2)], [(0, 1), (0, 3)]]
    """
    # by axes: coordinates without a tile may get one, though to equal partitions they do not matter
    return _levelled(*_axes(stored), stored.places, stored.text)


@lru_cache(maxsize=64)
def _levelled(rows: Axis, cols: Axis, places: Places, text: str) -> Partition | None:
    sides, stand = [], []
    for axis, ranks in ((rows, places.rows), (cols, places.cols)):
        if max(map(axis.length, range(axis.parts))) > ceil_div(axis.extent, axis.parts):
            axis, numbers = levelled_axis(axis)
            ranks = [ranks[x] for x in numbers]
        sides.append(axis)
        stand.append(ranks)
    if sides == [rows, cols]:
        return None
    moved = replace(places, rows=stand[0], cols=stand[1])
    return Partition.of(*sides, moved, f"{text} levelled")


def slices(
    problem: Problem,
    rank: int,
    stationary: str,
    chunk: int | None = None,
    work: Operand | None = None,
    order: str = "offset",
) -> Iterator[list[Product]]:
    """The products of one rank, in groups that share a range of the free axis.

    Parameters
    ----------
    problem : Problem
    rank : int
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    chunk : int, optional
        Longest free range of one product, in elements; None leaves ranges as long as the tiles
        allow. Ranges without transfers are left whole where cutting them would only cost: those of
        m and n always, those of k if nothing is transferred for the tile.
    work : Operand, optional
        A layout of the stationary matrix that says who multiplies what, where it is not the one it
        is stored in (:func:`on_grid`, :func:`levelled`): its blocks are then fetched too, or
        accumulated.
    order : str
        One of :data:`ORDERS`.

    Yields
    ------
    list of Product
        For Stationary C a group is one range of k, and a run goes through all of a tile's groups;
        for A and B the products of a group that add to the same block of C follow each other, so
        that their sum is accumulated once.

    Notes
    -----
    Replica q of a replicated stationary matrix does the q-th part of the free axis. Order: for the
    stationary tile (i, j) the free ranges between tile boundaries are rotated by i + j, and so are
    the pieces along p and q, so that a whole row or column of ranks never asks the same owner at
    the same time (paper, §4.2, *iteration offset*). Ranges whose operands are all at hand are then
    spread evenly between those that need transfers, to be computed meanwhile.
    """
    stored, x, y, (p, q, free) = roles(problem, stationary)
    still = work or stored
    replica, ranges = (
        stored.partition.replica_of(rank),
        _free_ranges(rank, still, x, y, free, chunk),
    )
    panels: dict = {}  # tiles of one tile row (column) share their panel of X (Y)
    for i, j in still.partition.tiles_of(rank):
        p_range, q_range = still.partition.tile_bounds((i, j))
        p_cuts, q_cuts = x.cuts(p, *p_range), y.cuts(q, *q_range)
        if work:
            p_cuts = sorted({*p_cuts, *stored.cuts(p, *p_range)})
            q_cuts = sorted({*q_cuts, *stored.cuts(q, *q_range)})
        p_pieces, q_pieces = between(p_cuts), between(q_cuts)
        if (p, i) not in panels:
            panels[p, i] = _panel(x, p_pieces, ranges, rank, free)
        if (q, j) not in panels:
            panels[q, j] = _panel(y, q_pieces, ranges, rank, free)
        xs, ys, offset = panels[p, i], panels[q, j], i + j
        s_order, t_order = rotated(p_pieces, offset), rotated(q_pieces, offset)
        if stationary == "B":  # of the stationary tile: where X's pieces meet Y's
            own = [stored.block(s, t, replica) for t in t_order for s in s_order]
            ends = _ends(s_order) * len(t_order)
        else:
            own = [stored.block(s, t, replica) for s in s_order for t in t_order]
            ends = _ends(t_order) * len(s_order)
        in_order = _order(ranges, xs, ys, free, offset)
        if order == "cheapest":
            in_order = _cheapest_first(in_order, xs, ys, rank)
        for f in in_order:
            x_blocks, y_blocks = rotated(xs[f][0], offset), rotated(ys[f][0], offset)
            if stationary == "C":  # C[s, t] += A[s, f] · B[f, t]
                pairs = product(x_blocks, y_blocks)
                end = f == in_order[0], f == in_order[-1]
                yield [Product(a, b, c, *end) for (a, b), c in zip(pairs, own)]
            elif stationary == "B":  # C[f, t] = sum over the pieces s of A[f, s] · B[s, t]
                pairs = product(y_blocks, x_blocks)
                yield [Product(a, b, c, *end) for (c, a), b, end in zip(pairs, own, ends)]
            else:  # C[s, f] = sum over the pieces t of A[s, t] · B[t, f]
                pairs = product(x_blocks, y_blocks)
                yield [Product(a, b, c, *end) for (c, b), a, end in zip(pairs, own, ends)]


def _ends(pieces: list) -> list[tuple[bool, bool]]:
    """Which of the products of a run is the first, and the last."""
    return [(x == 0, x == len(pieces) - 1) for x in range(len(pieces))]


def roles(problem: Problem, stationary: str):
    """The stationary matrix, X and Y, and the axes p, q and f, as in the table above."""
    x, y = map(problem.operand, _FACTORS[stationary])
    return problem.operand(stationary), x, y, (*AXES[stationary], free_axis(stationary))


def _free_ranges(rank, still, x, y, free, chunk) -> list[tuple]:
    """What this rank's replica does of the free axis: each range between tile boundaries, and the
    chunks it is cut into, if it is."""
    extent = x.partition.shape[x.axes.index(free)]
    replica, replicas = still.partition.replica_of(rank), still.partition.replicas
    start, stop = part(extent, replica, replicas)
    found = []
    for whole in between(sorted({*x.cuts(free, start, stop), *y.cuts(free, start, stop)})):
        (low, high), chunks = whole, []
        if chunk and high - low > chunk:
            count = ceil_div(high - low, chunk)
            chunks = between([low + (high - low) * s // count for s in range(count + 1)])
        found.append((whole, chunks))
    return found


def _panel(operand, pieces: list, ranges: list, rank: int, free: str) -> dict:
    """For each free range the blocks of X or Y beside the stationary tile, and whether one of them
    is another rank's."""
    replica, rows_free = operand.partition.replica_of(rank), operand.axes[0] == free
    panel, block = {}, operand.block
    for whole, chunks in ranges:
        for f in (whole, *chunks):
            blocks = [block(f, s, replica) if rows_free else block(s, f, replica) for s in pieces]
            panel[f] = blocks, {each.owner for each in blocks} != {rank}
    return panel


def _order(ranges: list, xs: dict, ys: dict, free: str, offset: int) -> list[tuple]:
    """The free ranges of one stationary tile, in the order in which they are worked off."""
    order: list[tuple] = []
    moves = {whole: xs[whole][1] or ys[whole][1] for whole, _ in ranges}
    beside = free == "k" and any(moves.values())  # pieces of local ranges fill the gaps
    for whole, chunks in rotated(ranges, offset):
        order += chunks if chunks and (moves[whole] or beside) else [whole]
    return spread(order, [xs[f][1] or ys[f][1] for f in order])


def _cheapest_first(order: list[tuple], xs: dict, ys: dict, rank: int) -> list[tuple]:
    """The same order, but first the range that the fewest elements of A and B are fetched for: of
    several the first."""
    fetched = [
        sum(
            block.size
            for block in (*xs[f][0], *ys[f][0])
            if block.owner != rank and block.matrix != "C"
        )
        for f in order
    ]
    least = fetched.index(min(fetched)) if order else 0
    return [*order[least : least + 1], *order[:least], *order[least + 1 :]]


def rotated(items: list, by: int) -> list:
    if len(items) < 2:
        return items
    by %= len(items)
    return [*items[by:], *items[:by]]


def spread(items: list, moves: list[bool]) -> list:
    """Items without transfers spread evenly between those with, each kind in its own order, one
    without first.

    Examples
    --------
    >>> (
    ...     "".join(spread(list("ABCdef"), [True] * 3 + [False] * 3)),
    ...     "".join(spread(list("aBCDE"), [False] + [True] * 4)),
    ... )
    ('dAeBfC', 'aBCDE')
    """
    still = [item for item, moving in zip(items, moves) if not moving]
    if not still or len(still) == len(items):
        return items
    moving = [item for item, moves_it in zip(items, moves) if moves_it]
    places = [((2 * x) / (2 * len(still)), 0, x, item) for x, item in enumerate(still)]
    places += [((2 * x + 1) / (2 * len(moving)), 1, x, item) for x, item in enumerate(moving)]
    return [item for *_, item in sorted(places, key=lambda place: place[:3])]
