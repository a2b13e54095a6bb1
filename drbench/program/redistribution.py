"""From one layout of a matrix to another, as steps: each rank reads what it lacks, each element
once."""

from collections.abc import Generator, Iterator

from partitions import Axis, sources

from .problem import Operand
from .steps import Add, Copy, Get, Step, Zero

#: Elements of one step where more than one row is moved: large enough for full bandwidth, small
#: enough for a receive buffer.
_PANEL = 1 << 20


def redistribute(old: Operand, new: Operand, rank: int) -> Generator[Step, Step, None]:
    """The rank's tiles of ``new`` = the same elements of ``old``, read from the replica that it
    belongs to itself; of a pending sum (Partial) from one copy of each term.

    Parameters
    ----------
    old, new : Operand
        Of matrices of one shape and one type, over as many ranks, whose local arrays are one array
        each: a block may cover neighbouring tiles of one rank, which touch there.

    Examples
    --------
    >>> from partitions import partition
    >>> old = Operand("A", partition("row", (4, 4), 2))
    >>> new = Operand("C", partition("column", (4, 4), 2))
    >>> list(redistribute(old, new, 0))[::2]
    [Get(A[0:2, 0:2]@0), Get(A[2:4, 0:2]@1)]
    """
    before, after = old.partition, new.partition
    terms, replica = sources(before, after, rank), after.replica_of(rank)
    row, col, _ = after.places.coords(rank)
    columns = [
        (start, stop)
        for left, right in _held(after.cols, col)
        for start, stop in _in_one_piece(before.cols, left, right)
    ]
    for top, bottom in _held(after.rows, row):
        for cols in columns:
            for rows in _panels(before.rows, top, bottom, cols[1] - cols[0]):
                into = new.block(rows, cols, replica)
                if not terms:  # another term has the whole sum
                    yield Zero(into)
                for term in terms:
                    read = yield Get(old.block(rows, cols, term))
                    yield (Copy if term == terms[0] else Add)(read, into=into)


def _held(axis: Axis, coordinate: int) -> list[tuple[int, int]]:
    """The ranges that lie at a coordinate, each in one piece there and as long as it can be."""
    return _joined(axis, [axis[x][:2] for x in axis.held_by(coordinate)])


def _in_one_piece(axis: Axis, start: int, stop: int) -> list[tuple[int, int]]:
    """[start, stop) in ranges that lie at one coordinate each, in one piece there."""
    cuts = axis.cuts(start, stop)
    return _joined(axis, list(zip(cuts, cuts[1:])))


def _joined(axis: Axis, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges inside one tile each; neighbours become one that are neighbours where they lie,
    too."""
    found: list[tuple[int, int]] = []
    ahead = None  # where, and at which place there, the next one would have to lie
    for start, stop in ranges:
        first, _, coordinate, local = axis[axis.at(start)]
        here = start, coordinate, local + start - first
        if here == ahead:
            start = found.pop()[0]
        found.append((start, stop))
        ahead = stop, coordinate, local + stop - first
    return found


def _panels(axis: Axis, start: int, stop: int, width: int) -> Iterator[tuple[int, int]]:
    """The rows of :func:`_in_one_piece` in ranges that are not too large."""
    height = max(1, _PANEL // max(1, width))
    for top, bottom in _in_one_piece(axis, start, stop):
        for row in range(top, bottom, height):
            yield row, min(bottom, row + height)
