"""Slicing: the local GEMMs of a rank, by index arithmetic alone (paper, §4.1, Algorithms 1 and 2).

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

A stationary tile is a range of p times a range of q. The free axis is divided at the tile
boundaries of X and Y, the tile's p range at those of X, its q range at those of Y; every
combination is one GEMM whose three blocks are in one tile each.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

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
    part,
    work_on,
)
from drbench.partitions.intervals import Pair, Range, between, intersect, union
from drbench.program.problem import AXES, Operand, Problem
from drbench.program.steps import Block, Kernel, Part, Step, Steps

#: X and Y of the table above.
_FACTORS = {"C": "AB", "B": "AC", "A": "CB"}
#: What the iteration offset rotates: the whole free axis, and with it the interval of a replica;
#: the replica's interval in itself; nothing.
OFFSETS = ("axis", "interval", "off")


class LocalGemm(NamedTuple):
    """One local GEMM c += a·b of a rank.

    Attributes
    ----------
    a, b, c : Block
        Of A, B and C; several blocks at once as
        :class:`~drbench.algorithms.universal.packing.Packed`, or as a tuple of blocks next to each
        other.
    last : bool
        No later GEMM of the rank adds to this partial sum: it is complete.
    kernel : Kernel, optional
        The launch that the GEMM is a part of.
    """

    a: Any
    b: Any
    c: Any
    last: bool = True
    kernel: Kernel | None = None


#: In place of a GEMM: from here on other ranks may accumulate into this rank's tiles of C.
FENCE = LocalGemm(None, None, None, False)


class Share:
    """One rank's part of the iteration space m x n x k.

    Parameters
    ----------
    problem : Problem
    rank : int
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    work : Operand, optional
        The work distribution as a layout of the stationary matrix, if it is not the layout in which
        that matrix is stored (:func:`work_of`): its blocks are then fetched too, or accumulated.
    offset : str
        One of :data:`OFFSETS`.

    Attributes
    ----------
    stored, x, y : Operand
        The stationary matrix, X and Y of the table above.
    p, q, free : str
        The axes of the table above.
    layout : Partition
        The layout whose tiles the rank multiplies: of ``work``, or of the stationary matrix.
    interval : list of (int, int)
        This rank's elements of the free axis, in order: all, or with c replicas of the layout the
        1/c of its replica. By default that is rotated over the whole axis by the offset of the
        rank's first tile, so that ranks of all replicas begin with different owners. All tiles of
        the rank have the same, so that they share blocks of X and Y, and partial sums.

    Examples
    --------
    The tiles of C in a row need A from four owners. The first replica has half of k:

    >>> problem = Problem(8, 8, 8, 8, "block:1x4/c2", "block:1x4/c2", "block:1x4/c2")
    >>> for offset in ("axis", "interval"):
    ...     print([Share(problem, rank, "C", offset=offset).interval for rank in (0, 1, 3)])
    [[(0, 4)], [(2, 6)], [(6, 8), (0, 2)]]
    [[(0, 4)], [(0, 4)], [(0, 4)]]
    """

    def __init__(
        self,
        problem: Problem,
        rank: int,
        stationary: str,
        work: Operand | None = None,
        offset: str = "axis",
    ):
        self.problem, self.rank, self.stationary, self.work = problem, rank, stationary, work
        self.stored = problem.operand(stationary)
        self.x, self.y = map(problem.operand, _FACTORS[stationary])
        (self.p, self.q), self.free = AXES[stationary], free_axis(stationary)
        self.layout = (work or self.stored).partition
        self.tiles = self.layout.tiles_of(rank)
        self._offset, self._rotated = offset, 0
        extent, replicas = problem.extent(self.free), self.layout.replicas
        start, stop = part(extent, self.layout.replica_of(rank), replicas)
        if offset == "axis" and replicas > 1 and self.tiles:
            self._rotated = iteration_offset(self.tiles[0])
            ranges = cut_at(self.free, (0, extent), (self.x, self.y))
            by, _ = ranges[self._rotated % len(ranges)]
            start, stop = start + by, stop + by
        self.interval = on_ring(start, stop, extent)

    def rotations(self, tile: Pair) -> dict[str, int]:
        """By how many ranges the GEMMs of a tile are rotated along each axis."""
        by = 0 if self._offset == "off" else iteration_offset(tile)
        return {self.p: by, self.q: by, self.free: by - self._rotated}

    @cached_property
    def ranges(self) -> dict[str, list[Range]]:
        """The ranges of m, n and k, neighbours joined; all empty without work.

        Examples
        --------
        >>> Share(Problem(8, 8, 8, 2, "row", "tiles:8x2@1x2", "row"), 0, "B").ranges
        {'k': [(0, 8)], 'n': [(0, 2), (4, 6)], 'm': [(0, 8)]}
        """
        if not self.tiles or not self.interval:
            return {axis: [] for axis in "kmn"}
        (top, left), bounds = self.tiles[0], self.layout.tile_bounds
        rows = [bounds((i, left))[0] for i in dict.fromkeys(i for i, _ in self.tiles)]
        cols = [bounds((top, j))[1] for j in dict.fromkeys(j for _, j in self.tiles)]
        return {self.p: union(rows), self.q: union(cols), self.free: self.interval}

    def cut(self, axis: str, *operands: Operand) -> list[Range]:
        """The ranges of an axis between the tile boundaries of these operands, by default of
        all."""
        work = (self.work,) if self.work else ()
        having = [x for x in operands or (*self.problem.operands, *work) if axis in x.axes]
        return [part for each in self.ranges[axis] for part in cut_at(axis, each, having)]

    def owners(self, operand: Operand, tiles: bool = False) -> dict[int, int]:
        """Owner -> elements of a matrix that the rank multiplies, or has partial sums of; with
        ``tiles`` of whole tiles.

        Examples
        --------
        >>> share = Share(Problem(8, 8, 8, 2, "tiles:8x5", "column", "column"), 0, "C")
        >>> [share.owners(operand) for operand in share.problem.operands]
        [{0: 40, 1: 24}, {0: 32}, {0: 32}]
        """
        ranges = (self.ranges[axis] for axis in operand.axes)
        return owners_of(operand.partition, *ranges, operand.partition.replica_of(self.rank), tiles)

    def remote(self, operand: Operand, tiles: bool = False) -> int:
        """The elements of :meth:`owners` that other ranks own."""
        layout = operand.partition
        sides = [
            _elements(axis, tuple(self.ranges[name]), tiles)
            for axis, name in zip((layout.rows, layout.cols), operand.axes)
        ]
        own = layout.places.coords(self.rank)[:2] if layout.holds(self.rank) else (-1, -1)
        return prod(side.total() for side in sides) - prod(map(Counter.__getitem__, sides, own))


def iteration_offset(tile: Pair) -> int:
    """The number of ranges by which the GEMMs of a stationary tile (i, j) are rotated (paper,
    §4.2): i + j, so that ranks of a row or column of tiles begin with different owners.

    Examples
    --------
    >>> [iteration_offset((0, j)) for j in range(3)]
    [0, 1, 2]
    """
    return sum(tile)


def on_ring(start: int, stop: int, extent: int) -> list[Range]:
    """The ranges of an interval that continues at 0 where the axis ends; the whole axis has no
    beginning.

    Examples
    --------
    >>> on_ring(2, 5, 8), on_ring(6, 9, 8), on_ring(9, 11, 8), on_ring(3, 11, 8)
    ([(2, 5)], [(6, 8), (0, 1)], [(1, 3)], [(0, 8)])
    """
    if stop - start == extent:
        return [(0, extent)]
    around = (start - extent, stop - extent)
    parts = [intersect(each, (0, extent)) for each in ((start, stop), around)]
    return [(low, high) for low, high in parts if low < high]


def cut_at(axis: str, whole: Range, operands: Iterable[Operand]) -> list[Range]:
    """The parts of a range of an axis between the tile boundaries of operands."""
    return between(sorted({cut for each in operands for cut in each.cuts(axis, *whole)}))


def owners_of(
    partition: Partition, rows: list[Range], cols: list[Range], replica: int, tiles: bool = False
) -> dict[int, int]:
    """Owner -> elements that it holds of some rows and columns of a matrix in one replica; with
    ``tiles`` of all tiles that have some of them."""
    places = partition.places
    sides = [
        {ranks[at]: length for at, length in _elements(axis, tuple(ranges), tiles).items()}
        for axis, ranks, ranges in (
            (partition.rows, places.rows, rows),
            (partition.cols, places.cols, cols),
        )
    ]
    return {
        down + right + places.replicas[replica]: height * width
        for down, height in sides[0].items()
        for right, width in sides[1].items()
    }


@lru_cache(maxsize=4096)
def _elements(axis: Axis, ranges: tuple[Range, ...], tiles: bool) -> Counter:
    """Coordinate -> elements that it has of some ranges of an axis, as in :func:`owners_of`; equal
    for all ranks of a row or column, so it is kept."""
    parts = [(axis[x], each) for each in ranges for x in axis.covering(*each)]
    if tiles:
        parts = [(segment, segment[:2]) for segment in {segment for segment, _ in parts}]
    found: Counter = Counter()
    for (low, high, at, _), (start, stop) in parts:
        found[at] += min(high, stop) - max(low, start)
    return found


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
    """The axis that the stationary matrix does not have: C -> k, B -> m, A -> n."""
    (free,) = {"m", "n", "k"} - set(AXES[stationary])
    return free


def result_stays(problem: Problem, stationary: str, work: Operand | None = None) -> bool:
    """True if every GEMM of every rank computes its own tile of C, so that no rank accumulates into
    another's.

    Always with Stationary C; with A (or B) if every rank holds the same rows (columns) of A (B) and
    of C, and C is divided by rows (columns) alone. With a work distribution ``work`` other than the
    owners': with Stationary C, if C is stored in that layout.

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
    """True if every rank holds the same ranges of C and of the stationary matrix along their shared
    axis, and C is not divided along the other one."""
    return (
        _axes(c)[1 - along].parts == 1
        and _axes(still)[along].key == _axes(c)[along].key
        and (still.places == c.places or _same_places(still.places, c.places, along))
    )


def _same_places(one: Places, other: Places, along: int) -> bool:
    """True if every rank that holds a part of one matrix has the same coordinate along an axis of
    the other."""
    return one.holders <= other.holders and all(
        one.coords(x)[along] == other.coords(x)[along] for x in range(one.holders)
    )


def _axes(partition: Partition) -> tuple[Axis, Axis]:
    return partition.rows, partition.cols


def cuts_rows(problem: Problem, stationary: str) -> bool:
    """Whether dividing the free axis divides rows, as they are stored, of other ranks' tiles.

    Parts of such rows are not contiguous, and a rank's core packs them.

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


def keeps_rows(problem: Problem, stationary: str) -> bool:
    """Whether no tile boundary divides rows, as they are stored, of the moving matrices A and B:
    then blocks of whole rows are contiguous, also where they are packed.

    Examples
    --------
    >>> [keeps_rows(Problem(8, 8, 8, 4, a, "row", "row"), "C") for a in ("row", "column")]
    [True, False]
    """
    return all(
        (each.stored.cols.parts == 1) or each.name == stationary for each in (problem.a, problem.b)
    )


def rows_of(operand: Operand, block: Block, tile: Block) -> Block:
    """The whole rows of a tile, as it is stored, that contain a block."""
    rows, cols = (tile.rows, block.cols) if block.transposed else (block.rows, tile.cols)
    return operand.block(rows, cols, block.replica)


def cut_out(token: Step, row: int, col: int, shape: Pair) -> Steps:
    """The token of the part of a value that begins at a row and a column."""
    for axis, start in enumerate((row, col)):
        if shape[axis] < token.shape[axis]:
            token = yield Part(token, axis, start, start + shape[axis])
    return token


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
    still, c = problem.operand(stationary).partition, problem.c.partition
    along = 0 if stationary == "A" else 1
    even = all(axis.even for p in (still, c) for axis in _axes(p))
    alike = still.places == c.places and _axes(still)[along].key == _axes(c)[along].key
    own = still.replicas == 1 and still.places.holders <= c.places.holders
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


def slices(share: Share, chunk: int | None = None) -> Iterator[list[LocalGemm]]:
    """The local GEMMs of one rank, in rounds that share a range of the free axis.

    Parameters
    ----------
    share : Share
    chunk : int, optional
        Longest free range of one GEMM, in elements; None leaves ranges as long as the tiles allow.
        Ranges without transfers are left whole where cutting them would only cost: those of m and n
        always, those of k if nothing is transferred for the tile.

    Yields
    ------
    list of LocalGemm
        For Stationary C a round is one range of k, and a partial sum is complete after all rounds
        of a tile; for A and B the GEMMs of a round that add to the same block of C follow each
        other, so that their sum is accumulated once.

    Notes
    -----
    Order: for the stationary tile (i, j) the free ranges between tile boundaries are rotated by
    i + j (:func:`iteration_offset`), with replicas together with the interval of the replica
    (:attr:`Share.interval`), and so are the ranges along p and q: the ranks of a row or column do
    not all read from one owner at the same time. Ranges whose operands are all local are then
    spread evenly between those that need transfers, to overlap with these (:func:`spread`).

    In the code f is a range of the free axis, s a part of the tile's range of p, t one of q.
    """
    rank, stationary, work = share.rank, share.stationary, share.work
    ranges = _free_ranges(share, chunk)
    stored, replica = share.stored, share.stored.partition.replica_of(rank)
    strips: dict = {}  # of X for a row of stationary tiles, of Y for a column
    for tile in share.tiles:
        by = share.rotations(tile)
        sides = []
        for operand, axis, x, bounds in zip(
            (share.x, share.y), (share.p, share.q), tile, share.layout.tile_bounds(tile)
        ):
            if (axis, x) not in strips:
                fragments = cut_at(axis, bounds, (operand, stored) if work else (operand,))
                strips[axis, x] = fragments, _strip(operand, fragments, ranges, rank, share.free)
            sides.append(strips[axis, x])
        (p_fragments, xs), (q_fragments, ys) = sides
        s_order, t_order = rotated(p_fragments, by[share.p]), rotated(q_fragments, by[share.q])
        if stationary == "B":  # of the stationary tile: where ranges of X and Y intersect
            own = [stored.block(s, t, replica) for t in t_order for s in s_order]
            last = _last(s_order) * len(t_order)
        else:
            own = [stored.block(s, t, replica) for s in s_order for t in t_order]
            last = _last(t_order) * len(s_order)
        in_order = _order(ranges, xs, ys, share.free, by[share.free])
        for f in in_order:
            x_blocks, y_blocks = rotated(xs[f][0], by[share.p]), rotated(ys[f][0], by[share.q])
            if stationary == "C":  # C[s, t] += A[s, f] · B[f, t]
                end, pairs = f == in_order[-1], itertools.product(x_blocks, y_blocks)
                yield [LocalGemm(a, b, c, end) for (a, b), c in zip(pairs, own)]
            elif stationary == "B":  # C[f, t] = sum over the ranges s of A[f, s] · B[s, t]
                pairs = itertools.product(y_blocks, x_blocks)
                yield [LocalGemm(a, b, c, end) for (c, a), b, end in zip(pairs, own, last)]
            else:  # C[s, f] = sum over the ranges t of A[s, t] · B[t, f]
                pairs = itertools.product(x_blocks, y_blocks)
                yield [LocalGemm(a, b, c, end) for (c, b), a, end in zip(pairs, own, last)]


def _last(fragments: list) -> list[bool]:
    """Whether a range is the last of those that add to one block."""
    return [False] * (len(fragments) - 1) + [True]


def _free_ranges(share: Share, chunk: int | None) -> list[tuple]:
    """The rank's ranges of the free axis between tile boundaries, each with its chunks if it is
    divided."""
    found = []
    for whole in share.cut(share.free, share.x, share.y):
        (low, high), chunks = whole, []
        if chunk and high - low > chunk:
            count = ceil_div(high - low, chunk)
            chunks = between([low + (high - low) * s // count for s in range(count + 1)])
        found.append((whole, chunks))
    return found


def _strip(operand: Operand, fragments: list, ranges: list, rank: int, free: str) -> dict:
    """For each free range the blocks of X or Y that are multiplied with the stationary tile, and
    whether another rank owns one of them."""
    replica, rows_free = operand.partition.replica_of(rank), operand.axes[0] == free
    strip, block = {}, operand.block
    for whole, chunks in ranges:
        for f in (whole, *chunks):
            blocks = [
                block(f, s, replica) if rows_free else block(s, f, replica) for s in fragments
            ]
            strip[f] = blocks, {each.owner for each in blocks} != {rank}
    return strip


def _order(ranges: list, xs: dict, ys: dict, free: str, offset: int) -> list[tuple]:
    """The free ranges of one stationary tile, in execution order."""
    order: list[tuple] = []
    moves = {whole: xs[whole][1] or ys[whole][1] for whole, _ in ranges}
    cut_local = free == "k" and any(moves.values())  # GEMMs of local ranges hide transfers
    for whole, chunks in rotated(ranges, offset):
        order += chunks if chunks and (moves[whole] or cut_local) else [whole]
    return spread(order, [xs[f][1] or ys[f][1] for f in order])


def rotated(items: list, by: int) -> list:
    """The items from number ``by`` on, modulo their number, then those before it.

    Examples
    --------
    >>> rotated(["k0", "k1", "k2"], 1), rotated(["k0", "k1", "k2"], 5)
    (['k1', 'k2', 'k0'], ['k2', 'k0', 'k1'])
    """
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
