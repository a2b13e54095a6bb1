"""One dimension of a partition: its segments, and the coordinate of the process mesh that holds
each of them.

Rows and columns of a matrix are distributed independently: every layout here is a Cartesian product
of two axes. An axis is a list of segments in rising order, each with the coordinate that holds it.
A coordinate stores its segments in that order: its *local* indices, as in ScaLAPACK's and DTensor's
local arrays. Equal tiles distributed cyclically are computed (:class:`CyclicAxis`); any other list
is stored (:class:`ExplicitAxis`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from .arithmetic import ceil_div, part
from .errors import LayoutError
from .intervals import Interval, Range, between, intersect, length, split, union


class Segment(NamedTuple):
    """The indices ``[start, stop)`` of one dimension, all held by one coordinate.

    Attributes
    ----------
    start, stop : int
        Global indices.
    coordinate : int
        Of the process mesh along this dimension.
    local : int
        The segment's start among its coordinate's indices.
    """

    start: int
    stop: int
    coordinate: int
    local: int


class _Covered:
    """Methods of axes with any segments."""

    __slots__ = ()
    extent: int

    def at(self, index: int) -> int:
        """The segment that holds an index of the dimension."""
        raise NotImplementedError

    def covering(self, start: int, stop: int) -> range:
        start, stop = intersect((start, stop), (0, self.extent))
        return range(self.at(start), self.at(stop - 1) + 1) if start < stop else range(0)


@dataclass(frozen=True, slots=True)
class CyclicAxis(_Covered):
    """Equal segments, the last one shorter, distributed to the coordinates cyclically; every method
    is O(1).

    Parameters
    ----------
    extent, tile, parts : int
        Elements, elements of a segment, and coordinates.

    Examples
    --------
    >>> axis = CyclicAxis(10, 3, 2)
    >>> axis[len(axis) - 1]
    Segment(start=9, stop=10, coordinate=1, local=3)
    """

    extent: int
    tile: int
    parts: int

    def __len__(self) -> int:
        return ceil_div(self.extent, self.tile)

    def __getitem__(self, x: int) -> Segment:
        """Segment ``x``."""
        if not 0 <= x < len(self):
            raise IndexError(x)
        start = x * self.tile
        cycle, coordinate = divmod(x, self.parts)
        return Segment(start, min(self.extent, start + self.tile), coordinate, cycle * self.tile)

    @property
    def longest(self) -> int:
        """Elements of the longest segment, at least 1."""
        return self.tile

    @property
    def key(self) -> tuple:
        """The key by which two axes have equal segments; a tile may be larger than the matrix."""
        return self.extent, min(self.tile, max(1, self.extent))

    @property
    def used(self) -> int:
        """The number of coordinates that hold a segment: the first ones."""
        return min(len(self), self.parts)

    def at(self, index: int) -> int:
        """The segment that holds an index of the dimension."""
        return index // self.tile

    def held_by(self, coordinate: int) -> range:
        """The segments of a coordinate, in order."""
        return range(coordinate, len(self), self.parts)

    def length(self, coordinate: int) -> int:
        """Elements that a coordinate holds (ScaLAPACK's NUMROC).

        Examples
        --------
        Ten elements in tiles of 3 (3, 3, 3, 1) distributed to two coordinates:

        >>> [CyclicAxis(10, 3, 2).length(coordinate) for coordinate in range(2)]
        [6, 4]
        """
        whole_tiles, tail = divmod(self.extent, self.tile)
        rounds, cycle = divmod(whole_tiles, self.parts)  # `cycle` holds the short tile
        if coordinate < cycle:
            return (rounds + 1) * self.tile
        return rounds * self.tile + (tail if coordinate == cycle else 0)

    def cuts(self, start: int, stop: int) -> list[int]:
        """``start``, the boundaries of segments strictly between, ``stop``; clipped; ``[]`` if
        empty.

        Examples
        --------
        >>> axis = CyclicAxis(10, 3, 1)
        >>> axis.cuts(2, 9), axis.cuts(4, 5), axis.cuts(5, 5)
        ([2, 3, 6, 9], [4, 5], [])
        """
        if start < 0:
            start = 0
        if stop > self.extent:
            stop = self.extent
        if stop <= start:
            return []
        return [start, *range((start // self.tile + 1) * self.tile, stop, self.tile), stop]

    @property
    def even(self) -> bool:
        """Whether every coordinate holds equally many segments, where these are equal."""
        return len(self) % self.parts == 0

    @property
    def chunked(self) -> bool:
        """Whether each coordinate holds one chunk, as with ``torch.chunk`` and DTensor's Shard."""
        return self.key[1] == max(1, ceil_div(self.extent, self.parts))


@dataclass(frozen=True, slots=True)
class ExplicitAxis(_Covered):
    """Any segments; methods are O(log of their number).

    Parameters
    ----------
    extent, parts : int
        Elements, and coordinates.
    segments : tuple of Segment
        In rising order, without gaps; each coordinate's local indices follow that order.

    Examples
    --------
    Seven elements in halves, each half in three:

    >>> axis, _ = axis_of(7, [[(0, 2)], [(2, 4)], [], [(4, 5)], [(5, 6)], [(6, 7)]])
    >>> type(axis).__name__, axis.length(0), axis.at(5), axis.cuts(1, 6)
    ('ExplicitAxis', 2, 3, [1, 2, 4, 5, 6])
    """

    extent: int
    parts: int
    segments: tuple[Segment, ...]
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _held: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        held: list[list[int]] = [[] for _ in range(self.parts)]
        for x, segment in enumerate(self.segments):
            held[segment.coordinate].append(x)
        object.__setattr__(self, "_starts", tuple(segment.start for segment in self.segments))
        object.__setattr__(self, "_held", tuple(map(tuple, held)))

    def __hash__(self) -> int:
        # not of all segments: that would take longer than what is cached by axis
        return hash((self.extent, self.parts, len(self.segments)))

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, x: int) -> Segment:
        return self.segments[x]

    @property
    def longest(self) -> int:
        """As in :class:`CyclicAxis`, like all methods below."""
        return max((stop - start for start, stop, *_ in self.segments), default=1)

    @property
    def key(self) -> tuple:
        return self.extent, self.segments

    @property
    def used(self) -> int:
        return sum(map(bool, self._held))

    def at(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1

    def held_by(self, coordinate: int) -> tuple[int, ...]:
        return self._held[coordinate]

    def length(self, coordinate: int) -> int:
        held = self._held[coordinate]
        if not held:
            return 0
        last = self.segments[held[-1]]
        return last.local + last.stop - last.start

    def cuts(self, start: int, stop: int) -> list[int]:
        start, stop = intersect((start, stop), (0, self.extent))
        if stop <= start:
            return []
        inside = self._starts[bisect_right(self._starts, start) : bisect_left(self._starts, stop)]
        return [start, *inside, stop]

    @property
    def even(self) -> bool:
        return len(set(map(self.length, range(self.parts)))) == 1

    @property
    def chunked(self) -> bool:
        return False


Axis = CyclicAxis | ExplicitAxis


def axis_of(extent: int, held: Sequence[Sequence[Range]]) -> tuple[Axis, list[int]]:
    """The axis on which each coordinate holds its given ranges, in rising order.

    Equal segments distributed cyclically become :class:`CyclicAxis`, whatever the given order of
    coordinates, so that equal axes are equal.

    Parameters
    ----------
    extent : int
    held : list of list of (start, stop)
        For each coordinate its ranges, which all together are ``[0, extent)``.

    Returns
    -------
    axis : CyclicAxis or ExplicitAxis
        With coordinates numbered by their first segment, those that hold nothing last.
    numbers : list of int
        For each coordinate of the axis its number in ``held``.

    Raises
    ------
    LayoutError
        If the ranges leave a gap or overlap.

    Examples
    --------
    >>> axis_of(8, [[(0, 2)], [(4, 6)], [(2, 4)], [(6, 8)]])
    (CyclicAxis(extent=8, tile=2, parts=4), [0, 2, 1, 3])
    """
    pieces = sorted((start, stop, x) for x, mine in enumerate(held) for start, stop in mine)
    ends = [0, *(stop for _, stop, _ in pieces)]
    if [start for start, *_ in pieces] != ends[:-1] or ends[-1] != extent:
        raise LayoutError(f"the ranges {held} do not divide [0, {extent}); give each index once")
    numbers = list(dict.fromkeys([*(x for *_, x in pieces), *range(len(held))]))
    new, local = {x: y for y, x in enumerate(numbers)}, [0] * len(held)
    segments = []
    for start, stop, x in pieces:
        segments.append(Segment(start, stop, new[x], local[x]))
        local[x] += stop - start
    tile = segments[0].stop if segments else 1
    cyclic = CyclicAxis(extent, tile, len(held))
    if len(cyclic) == len(segments) and all(cyclic[x] == y for x, y in enumerate(segments)):
        return cyclic, numbers
    return ExplicitAxis(extent, len(held), tuple(segments)), numbers


def chunked(ranges: list[Range], parts: int) -> list[list[Range]]:
    """Divide ranges into ``parts`` chunks as ``torch.chunk`` does: ceil-sized, the last short or
    empty.

    Examples
    --------
    >>> chunked([(0, 3), (8, 10)], 2)
    [[(0, 3)], [(8, 10)]]
    >>> chunked([(0, 7)], 4)
    [[(0, 2)], [(2, 4)], [(4, 6)], [(6, 7)]]
    """
    extent = length(ranges)
    return split(ranges, [part(extent, x, parts).stop for x in range(parts)])


def strided(ranges: list[Range], parts: int, factor: int) -> list[list[Range]]:
    """Cut ranges into ``factor`` chunks, each of them into ``parts``, and give part x of every
    chunk to x: DTensor's ``_StridedShard``.

    Examples
    --------
    >>> strided([(0, 9)], 4, 2)
    [[(0, 2), (5, 6)], [(2, 4), (6, 7)], [(4, 5), (7, 8)], [(8, 9)]]
    """
    chunks = [chunked(chunk, parts) for chunk in chunked(ranges, factor)]
    return [union(span for chunk in chunks for span in chunk[x]) for x in range(parts)]


def balanced_axis(axis: Axis) -> tuple[Axis, list[int]]:
    """The axis on which all coordinates hold equally many indices, or one more: those with more
    give the ends of their last ranges to those with fewer; all other indices stay.

    Returns
    -------
    axis, numbers
        As in :func:`axis_of`.

    Examples
    --------
    >>> axis, numbers = balanced_axis(CyclicAxis(10, 4, 2))
    >>> [tuple(segment[:3]) for segment in axis], numbers
    ([(0, 4, 0), (4, 8, 1), (8, 9, 0), (9, 10, 1)], [0, 1])
    >>> axis, numbers = balanced_axis(CyclicAxis(9, 3, 4))
    >>> [tuple(segment[:3]) for segment in axis], numbers
    ([(0, 3, 0), (3, 5, 1), (5, 6, 2), (6, 8, 3), (8, 9, 2)], [0, 1, 3, 2])
    """
    lengths = [axis.length(x) for x in range(axis.parts)]
    order = sorted(range(axis.parts), key=lambda x: -lengths[x])
    least, more = divmod(axis.extent, axis.parts)
    share = {x: least + (at < more) for at, x in enumerate(order)}
    held = [[(axis[x].start, axis[x].stop) for x in axis.held_by(c)] for c in range(axis.parts)]
    given: list[Range] = []
    for x in order:
        held[x], left = split(held[x], [share[x], lengths[x]])
        given += left
    lacks = [share[x] - length(held[x]) for x in order]
    for x, taken in zip(order, split(given, list(accumulate(lacks)))):
        held[x] = union([*held[x], *taken])
    return axis_of(axis.extent, held)


def stored_runs(axis: Axis, ranges: Iterable[Range]) -> list[Segment]:
    """Return ranges, each inside one segment of an axis, with their storage positions. Neighbours
    that are also stored one after the other become one.

    Examples
    --------
    Coordinates 0 and 1 of six elements in tiles of 1, 1 and 4:

    >>> axis, _ = axis_of(6, [[(0, 1), (2, 6)], [(1, 2)]])
    >>> [tuple(run) for run in stored_runs(axis, [(0, 1), (2, 6)])]
    [(0, 1, 0, 0), (2, 6, 0, 1)]
    >>> [tuple(run) for run in stored_runs(CyclicAxis(6, 2, 1), [(1, 2), (2, 4), (4, 6)])]
    [(1, 6, 0, 1)]
    """
    runs: list[Segment] = []
    ahead: tuple = ()  # the start, coordinate and local start of a neighbour stored next
    for start, stop in ranges:
        first, _, coordinate, local = axis[axis.at(start)]
        run = Segment(start, stop, coordinate, local + start - first)
        if (start, coordinate, run.local) == ahead:
            run = runs.pop()._replace(stop=stop)
        runs.append(run)
        ahead = stop, coordinate, local + stop - first
    return runs


def common_segments(axis: Axis, other: Axis) -> Iterator[tuple[Interval, int, int]]:
    """Yield (range, segment of one, segment of the other) for each part of two axes of one extent
    that no boundary of either cuts.

    Examples
    --------
    >>> [
    ...     (tuple(span), x, y)
    ...     for span, x, y in common_segments(CyclicAxis(6, 3, 2), CyclicAxis(6, 2, 2))
    ... ]
    [((0, 2), 0, 0), ((2, 3), 0, 1), ((3, 4), 1, 1), ((4, 6), 1, 2)]
    """
    both = sorted({*axis.cuts(0, axis.extent), *other.cuts(0, axis.extent)})
    for start, end in between(both):
        yield Interval(start, end), axis.at(start), other.at(start)
