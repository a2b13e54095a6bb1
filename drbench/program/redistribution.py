"""Redistribution of a matrix as steps: each rank reads the elements that it lacks, each once."""

from collections.abc import Generator, Iterator

from drbench.partitions import Axis, sources, stored_runs
from drbench.partitions.intervals import Range, between

from .problem import Operand
from .steps import Add, Copy, Get, Step, Zero

#: Elements of one step that moves several rows: large enough for full bandwidth, small enough for a
#: receive buffer.
_CHUNK = 1 << 20
#: The same for sums of three or more terms: the sum of the first two is still in a core's cache
#: when the next one is added.
_SUMMED_CHUNK = 1 << 16


def redistribute(
    old: Operand, new: Operand, rank: int, most: int | None = None
) -> Generator[Step, Step, None]:
    """Copy the elements of ``old`` into the rank's tiles of ``new``, read from the rank's own
    replica; for a pending reduction (Partial) from one copy of each term.

    Parameters
    ----------
    old, new : Operand
        Of matrices of one shape and one type, over equally many ranks, each with one local array: a
        block may cover neighbouring tiles of one rank, which are adjacent there.
    rank : int
    most : int, optional
        Most blocks in which the data of one rank is read, however large they are then.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> old = Operand("A", partition("row", (4, 4), 2))
    >>> new = Operand("C", partition("column", (4, 4), 2))
    >>> list(redistribute(old, new, 0))[::2]
    [Get(A[0:2, 0:2]@0), Get(A[2:4, 0:2]@1)]
    """
    before, after = old.partition, new.partition
    if not after.holds(rank):
        return
    terms, replica = sources(before, after, rank), after.replica_of(rank)
    row, col, _ = after.places.coords(rank)
    here = before.places.coords(rank) if before.holds(rank) else (0, 0)  # the rank to begin with
    columns = _by_owner(before.cols, here[1], _stored_ranges(after.cols, col))
    widest = max((stop - start for start, stop in columns), default=1)
    height = max(1, (_CHUNK if len(terms) < 3 else _SUMMED_CHUNK) // widest)
    for ranges in _by_owner(before.rows, here[0], _stored_ranges(after.rows, row)):
        tall = max(height, -(-(ranges[1] - ranges[0]) // most)) if most else height
        for rows in _chunks(*ranges, tall):
            for cols in columns:
                into = new.block(rows, cols, replica)
                if not terms:  # another term has the whole sum
                    yield Zero(into)
                for term in terms:
                    read = yield Get(old.block(rows, cols, term))
                    yield (Copy if term == terms[0] else Add)(read, into=into)


def _stored_ranges(axis: Axis, coordinate: int) -> list[Range]:
    """The ranges at a coordinate, each contiguous there and as long as possible."""
    return [run[:2] for run in stored_runs(axis, (axis[x][:2] for x in axis.held_by(coordinate)))]


def _by_owner(axis: Axis, first: int, ranges: list[Range]) -> list[Range]:
    """Ranges cut into ranges that are each contiguous at one coordinate, sorted by that coordinate,
    the rank's own first: the elements of one rank are copied together, and ranks begin with
    different sources."""
    runs = [run for ends in ranges for run in stored_runs(axis, between(axis.cuts(*ends)))]
    return [run[:2] for run in sorted(runs, key=lambda run: (run.coordinate - first) % axis.parts)]


def _chunks(start: int, stop: int, height: int) -> Iterator[tuple[int, int]]:
    """[start, stop) cut into ranges of at most ``height``."""
    for row in range(start, stop, height):
        yield row, min(stop, row + height)
