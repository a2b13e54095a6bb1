"""From one layout of a matrix to another, as steps: each rank reads what it lacks, each element
once."""

from collections.abc import Generator, Iterator

from partitions import Partition, sources

from .problem import Operand
from .steps import Add, Copy, Get, Step, Zero

#: Elements of one step where more than one row is moved: large enough for full bandwidth, small
#: enough for a receive buffer.
_PANEL = 1 << 18


def redistribute(old: Operand, new: Operand, rank: int) -> Generator[Step, Step, None]:
    """The rank's tiles of ``new`` = the same elements of ``old``, read from the replica that it
    belongs to itself; of a pending sum (Partial) from one copy of each term.

    Parameters
    ----------
    old, new : Operand
        Of matrices of one shape and one type, over as many ranks.

    Examples
    --------
    >>> from partitions import partition
    >>> old = Operand("A", partition("row", (4, 4), 2))
    >>> new = Operand("C", partition("column", (4, 4), 2))
    >>> list(redistribute(old, new, 0))[::2]
    [Get(A[0:2, 0:2]@0), Get(A[2:4, 0:2]@1)]
    """
    terms = sources(old.partition, new.partition, rank)
    for tile in new.own_tiles(rank):
        if not terms:  # another term has the whole sum
            yield Zero(tile)
        columns = old.partition.col_cuts(tile.col0, tile.col1)
        for cols in zip(columns, columns[1:]):
            for rows in _panels(old.partition, (tile.row0, tile.row1), cols[1] - cols[0]):
                into = new.block(rows, cols, tile.replica)
                for term in terms:
                    read = yield Get(old.block(rows, cols, term))
                    yield (Copy if term == terms[0] else Add)(read, into=into)


def _panels(partition: Partition, rows: tuple[int, int], width: int) -> Iterator[tuple[int, int]]:
    """The rows in ranges that lie in one tile each and are not too large."""
    cuts, height = partition.row_cuts(*rows), max(1, _PANEL // max(1, width))
    for start, stop in zip(cuts, cuts[1:]):
        for row in range(start, stop, height):
            yield row, min(stop, row + height)
