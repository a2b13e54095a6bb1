"""What a rank's share of the multiplication touches: ranges of m, n and k, and their owners."""

from collections import Counter
from functools import cached_property, lru_cache
from math import prod

from drbench.partitions import Axis, Partition
from drbench.partitions.intervals import Range, union
from drbench.program.problem import Operand

from .algorithm1 import Share, common_ranges


class Footprint(Share):
    """A share, its ranges of the three axes, and the ranks that own its blocks.

    All tiles of a rank have the same interval of the free axis, so that they share blocks of X and
    Y, and partial sums.
    """

    @cached_property
    def ranges(self) -> dict[str, list[Range]]:
        """The ranges of m, n and k, neighbours joined; all empty without work.

        Examples
        --------
        >>> from drbench.program.problem import Problem
        >>> Footprint(Problem(8, 8, 8, 2, "row", "tiles:8x2@1x2", "row"), 0, "B").ranges
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
        return [
            part for bounds in self.ranges[axis] for part in common_ranges(axis, bounds, *having)
        ]

    def owners(self, operand: Operand, tiles: bool = False) -> dict[int, int]:
        """Owner -> elements of a matrix that the rank multiplies, or has partial sums of; with
        ``tiles`` of whole tiles.

        Examples
        --------
        >>> from drbench.program.problem import Problem
        >>> share = Footprint(Problem(8, 8, 8, 2, "tiles:8x5", "column", "column"), 0, "C")
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
        places.numbered(down + right + places.replicas[replica]): height * width
        for down, height in sides[0].items()
        for right, width in sides[1].items()
    }


@lru_cache(maxsize=4096)
def _elements(axis: Axis, ranges: tuple[Range, ...], tiles: bool) -> Counter:
    """Coordinate -> elements that it has of some ranges of an axis, as in :func:`owners_of`; equal
    for all ranks of a row or column, so it is kept."""
    parts = [(axis[x], span) for span in ranges for x in axis.covering(*span)]
    if tiles:
        parts = [(segment, segment[:2]) for segment in {segment for segment, _ in parts}]
    elements: Counter = Counter()
    for (low, high, at, _), (start, stop) in parts:
        elements[at] += min(high, stop) - max(low, start)
    return elements
