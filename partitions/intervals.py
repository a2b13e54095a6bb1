"""Half-open intervals of integers, and lists of them: the ranges of rows, of columns or of k that a
rank holds or multiplies.

A list of ranges has an order, in which its elements are counted; :func:`union` makes it rising.
Empty ranges are harmless everywhere.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Range = tuple[int, int]
#: Rows and columns: the shape of a matrix or of a tile, or which tile of its grid.
Pair = tuple[int, int]


class Interval(NamedTuple):
    """The integers ``start <= x < stop``.

    A plain tuple, so it unpacks, compares and hashes at tuple speed. An interval
    with ``stop <= start`` is empty and harmless. (Being a tuple of two, its
    ``len`` is 2 and ``in`` looks at the bounds: ask :attr:`extent` instead.)

    Examples
    --------
    >>> rows = Interval(4, 10)
    >>> rows.extent, rows.empty
    (6, False)
    >>> start, stop = rows
    """

    start: int
    stop: int

    @property
    def extent(self) -> int:
        """Number of integers inside, never negative."""
        return self.stop - self.start if self.stop > self.start else 0

    @property
    def empty(self) -> bool:
        """Whether no integer is inside."""
        return self.stop <= self.start


def intersect(x: Range, y: Range) -> Interval:
    """Return the part that two intervals share, normalised so that ``stop >= start``.

    Examples
    --------
    >>> intersect((0, 6), (4, 9))
    Interval(start=4, stop=6)
    >>> intersect((0, 2), (7, 9)).empty
    True
    """
    start = x[0] if x[0] > y[0] else y[0]
    stop = x[1] if x[1] < y[1] else y[1]
    return Interval(start, stop if stop > start else start)


def between(cuts: Sequence[int]) -> list[Range]:
    """Return the intervals between rising cuts.

    Examples
    --------
    >>> between([1, 3, 6, 7])
    [(1, 3), (3, 6), (6, 7)]
    """
    return list(zip(cuts, cuts[1:]))


def length(ranges: Iterable[Range]) -> int:
    """Count the elements of ranges.

    Examples
    --------
    >>> length([(0, 4), (10, 16)])
    10
    """
    return sum(stop - start for start, stop in ranges if start < stop)


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the fewest rising ranges that hold the same elements, each once.

    Examples
    --------
    >>> union([(4, 6), (0, 2), (2, 3), (5, 9), (7, 7)])
    [(0, 3), (4, 9)]
    """
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        elif start < stop:
            joined.append((start, stop))
    return joined


def split(ranges: Iterable[Range], ends: Sequence[int]) -> list[list[Range]]:
    """Cut ranges, counted one after another, into one list for each of some ends.

    Parameters
    ----------
    ranges : iterable of (start, stop)
    ends : sequence of int
        Rising: after how many elements of the ranges each list ends, where the next one begins.
        Elements behind the last end are in no list.

    Examples
    --------
    >>> split([(0, 4), (10, 16)], [5, 5, 8])
    [[(0, 4), (10, 11)], [], [(11, 14)]]
    """
    lists: list[list[Range]] = [[] for _ in ends]
    x = counted = 0
    for start, stop in ranges:
        while start < stop:
            while x < len(ends) and ends[x] <= counted:
                x += 1
            if x == len(ends):
                return lists
            cut = min(stop, start + ends[x] - counted)
            lists[x].append((start, cut))
            counted, start = counted + cut - start, cut
    return lists
