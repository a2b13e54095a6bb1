"""Blocks as ScaLAPACK, COSTA and SLATE lay them out: tiles of any sizes on any process rows and
columns (``tiles:3+4*x2@2x3:from1x0``); and any layout on some of the ranks (``.../on0-3``).

=========================  =========================================================================
``tiles:3+4*x2``           the first tile has 3 rows, each further one 4 (ScaLAPACK's IMB and MB)
``tiles:100+300+600x2``    tiles of 100, 300 and 600 rows
``@2x3:from1x0``           tile (0, 0) is on process row 1, process column 0 (RSRC and CSRC)
``@0+1+1x0+2+1``           the process row of each row of tiles, and the process column of each
                           column of tiles; repeated where there are more tiles
``/on0-2+5``               on ranks 0, 1, 2 and 5, in this order; the others hold nothing
=========================  =========================================================================
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, repeat
from typing import Any

from .arithmetic import ProcessGrid, near_square
from .axes import Axis, CyclicAxis, axis_of
from .errors import LayoutError
from .intervals import Pair, Range
from .partition import Partition, replica_suffix
from .places import grid_places

_ONE = "([0-9]{1,12})"
_LIST = r"[0-9]{1,12}(?:\+[0-9]{1,12})*"
_TILES = re.compile(
    rf"tiles:({_LIST}\*?)x({_LIST}\*?)"
    rf"(?:@(?:{_ONE}x{_ONE}(:col|:row)?(?::from{_ONE}x{_ONE})?|({_LIST})x({_LIST})))?"
)
#: More entries of a list are no layout that someone has written.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class AxisBlocks:
    """The tiles of one dimension.

    Attributes
    ----------
    sizes : tuple of int
        Elements of each tile.
    repeats : bool
        The last size is that of all further tiles; else the tiles are the whole dimension.
    owners : tuple of int
        The process row or column of each tile, again and again; empty: all, cyclically.
    first : int
        The one of the first tile, where there are no owners.
    """

    sizes: tuple[int, ...]
    repeats: bool
    owners: tuple[int, ...]
    first: int = 0

    def bind(self, extent: int, parts: int) -> tuple[Axis, list[int]]:
        """The axis on a number of process rows or columns, as :func:`.axes.axis_of` returns it.

        Raises
        ------
        LayoutError
            If the tiles do not add up to the extent.

        Examples
        --------
        >>> axis, coordinates = AxisBlocks((3, 4), True, (), first=1).bind(9, 2)
        >>> [tuple(segment) for segment in axis], coordinates
        ([(0, 3, 0, 0), (3, 7, 1, 0), (7, 9, 0, 3)], [1, 0])
        """
        if not self.repeats and sum(self.sizes) != extent:
            raise LayoutError(
                f"tiles of {'+'.join(map(str, self.sizes))} have {sum(self.sizes)} elements, the "
                f"matrix has {extent} there. Give sizes that add up, or end them with *."
            )
        owners = self.owners or [(self.first + x) % parts for x in range(parts)]
        if len(self.sizes) == 1 and not self.owners:
            return CyclicAxis(extent, *self.sizes, parts), [*owners]
        more = repeat(self.sizes[-1]) if self.repeats else ()
        held: list[list[Range]] = [[] for _ in range(parts)]
        start = 0
        for x, stop in enumerate(accumulate(chain(self.sizes, more))):
            if start >= extent:
                break
            held[owners[x % len(owners)]].append((start, min(stop, extent)))
            start = stop
        return axis_of(extent, held)


@dataclass(frozen=True, slots=True)
class BlocksSpec:
    """Tiles of any sizes on any process rows and columns, without a matrix.

    Examples
    --------
    >>> p = parse_blocks("tiles:3+4*x2@2x1:from1x0").bind((9, 4), 2)
    >>> p.tiles_of(0), p.owner((0, 0))
    ([(1, 0), (1, 1)], 1)
    """

    text: str
    rows: AxisBlocks
    cols: AxisBlocks
    grid: ProcessGrid | None
    replicas: int = 1

    def __str__(self) -> str:
        return self.text + replica_suffix(self.replicas)

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the spec to a matrix and a number of ranks, as :class:`.text.PartitionSpec` does.

        Raises
        ------
        LayoutError
            If tiles or ranks do not fit.
        """
        ranks = nprocs // self.replicas
        grid = self.grid or ProcessGrid(*near_square(ranks))
        if grid.size * self.replicas != nprocs:
            raise LayoutError(
                f"{self} needs {grid.size * self.replicas} ranks, got {nprocs}. Use another grid, "
                f"or name its ranks, as {self}/on0-{grid.size * self.replicas - 1}."
            )
        rows, i = self.rows.bind(shape[0], grid.rows)
        cols, j = self.cols.bind(shape[1], grid.cols)
        places = grid_places(grid, self.replicas).renumbered(i, j)
        return Partition.of(rows, cols, places, str(self))


def parse_blocks(text: str, replicas: int = 1) -> BlocksSpec:
    """Read ``tiles:SIZESxSIZES@GRID``.

    Raises
    ------
    LayoutError
        If it is something else.
    """
    match = _TILES.fullmatch(text)
    if not match:
        raise LayoutError(
            f"{text!r} is no tiles:SIZESxSIZES@GRID, as tiles:64x64@2x3:from1x0 or "
            "tiles:100+300*x64@0+1+1x0+2+1"
        )
    high, wide, rows, cols, order, row, col, *owners = match.groups()
    sides = [_numbers(side.removesuffix("*")) for side in (high, wide)]
    if not all(map(min, sides)):
        raise LayoutError(f"{text!r} has a tile of 0 elements; every tile has at least 1")
    repeats = [side.endswith("*") or "+" not in side for side in (high, wide)]
    grid: ProcessGrid | None = None
    places: list[tuple[int, ...]] = [(), ()]
    first = int(row or 0), int(col or 0)
    if owners[0]:
        places = [_numbers(side) for side in owners]
        grid = ProcessGrid(max(places[0]) + 1, max(places[1]) + 1)
    elif rows:
        grid = ProcessGrid(int(rows), int(cols), (order or ":row")[1:])
        if not (first[0] < grid.rows and first[1] < grid.cols):
            raise LayoutError(f"{text!r}: process {row}x{col} is not on the grid {grid}")
    down, across = (AxisBlocks(*side) for side in zip(sides, repeats, places, first))
    return BlocksSpec(text, down, across, grid, replicas)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("+")))


@dataclass(frozen=True, slots=True)
class OnRanksSpec:
    """A layout on some of the ranks; the others hold nothing.

    Parameters
    ----------
    inner : spec
        Of the layout, on as many ranks.
    ranks : tuple of int
        The rank that is rank 0 of the layout, the one that is rank 1, and so on.
    """

    inner: Any
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.inner}/on{describe_ranks(self.ranks)}"

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the spec to a matrix and a number of ranks.

        Raises
        ------
        LayoutError
            If there is no such rank, one is named twice, or the layout does not fit.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("row/on3+1", (4, 4), 6)
        >>> [p.tiles_of(rank) for rank in (1, 3, 5)], p.text
        ([[(1, 0)], [(0, 0)], []], 'row/on3+1')
        """
        if max(self.ranks) >= nprocs or len({*self.ranks}) < len(self.ranks):
            raise LayoutError(
                f"{self}: each rank after /on is one of 0 to {nprocs - 1}, and is named once"
            )
        layout = self.inner.bind(shape, len(self.ranks), role)
        idle = nprocs - layout.places.holders
        ranks = tuple(self.ranks[rank] for rank in layout.places.active)
        places = replace(layout.places, idle=idle, ranks=ranks)
        return Partition.of(layout.rows, layout.cols, places, str(self))


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read a list of ranks, as ``0-2+5``.

    Raises
    ------
    LayoutError
        If it is something else, or too long.

    Examples
    --------
    >>> parse_ranks("0-2+5")
    (0, 1, 2, 5)
    """
    ranks: list[int] = []
    for item in text.split("+"):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last - first + len(ranks) >= _MOST:
            raise LayoutError(f"/on needs ranks, as /on0-3 or /on0-2+5; got {text!r}")
        ranks += range(first, last + 1)
    return tuple(ranks)


def describe_ranks(ranks: Sequence[int]) -> str:
    """The text of a list of ranks, as :func:`parse_ranks` reads it.

    Examples
    --------
    >>> describe_ranks((0, 1, 2, 5, 4))
    '0-2+5+4'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return "+".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def layout_of_blocks(
    rows: Sequence[int], cols: Sequence[int], owners: Sequence[Sequence[int]]
) -> str:
    """The text of a layout given by its blocks, as COSTA and SLATE describe one.

    Parameters
    ----------
    rows, cols : sequence of int
        Rows of each row of blocks, and columns of each column of blocks.
    owners : sequence of sequence of int
        The rank of each block, by rows of blocks.

    Raises
    ------
    LayoutError
        If there is not one owner for each block, or if a rank owns blocks that are no product of
        some rows of blocks and some columns.

    Examples
    --------
    >>> layout_of_blocks([1, 3, 2], [4, 5], [[2, 0], [1, 3], [2, 0]])
    'tiles:1+3+2x4+5@0+1+0x0+1/on2+0-1+3'
    >>> layout_of_blocks([1, 1], [1, 1], [[0, 1], [1, 0]])
    Traceback (most recent call last):
    drbench.partitions.errors.LayoutError: rank 1 owns block (0, 1) and block (1, 0), but not all \
blocks of their rows and columns. ...
    """
    if len(owners) != len(rows) or any(len(line) != len(cols) for line in owners):
        raise LayoutError(f"{len(rows)}x{len(cols)} blocks need as many owners, got {owners}")
    lines = [tuple(map(int, line)) for line in owners]
    columns = list(zip(*lines))
    downs, rights = list(dict.fromkeys(lines)), list(dict.fromkeys(columns))
    first: dict[int, Pair] = {}
    for line in downs:
        for column in rights:
            at = lines.index(line), columns.index(column)
            if (other := first.setdefault(lines[at[0]][at[1]], at)) != at:
                raise LayoutError(
                    f"rank {lines[at[0]][at[1]]} owns block {other} and block {at}, but not all "
                    "blocks of their rows and columns. Redistribute to a layout whose ranks are a "
                    "grid, as COSTA does, or give this rank other blocks."
                )
    texts = ["+".join(map(str, sizes)) for sizes in (rows, cols)]
    grid = f"{len(downs)}x{len(rights)}"
    if len(rows) > 1 or len(cols) > 1:
        numbers = map(downs.index, lines), map(rights.index, columns)
        grid = "x".join("+".join(map(str, side)) for side in numbers)
    return f"tiles:{'x'.join(texts)}@{grid}/on{describe_ranks(tuple(first))}"
