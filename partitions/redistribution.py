"""From one partition of a matrix to another: which rank fetches how many elements from whom."""

from collections import Counter
from collections.abc import Iterator

from .errors import LayoutError
from .partition import Partition


def flows(old: Partition, new: Partition) -> Iterator[tuple[int, int, int]]:
    """Yield (source rank, target rank, elements) for everything that has to change its rank.

    Each rank fetches what it holds in the new partition and not in the old one, from the old
    replica that it belongs to itself; what a rank holds in both stays, however it is stored.

    Parameters
    ----------
    old, new : Partition
        Of matrices of one shape, over as many ranks.

    Raises
    ------
    LayoutError
        If shapes or ranks differ.

    Examples
    --------
    A 4x4 matrix from two halves of its rows to two halves of its columns:

    >>> from partitions import partition
    >>> list(flows(partition("row", (4, 4), 2), partition("column", (4, 4), 2)))
    [(1, 0, 4), (0, 1, 4)]

    A second replica: each rank lacks the half that the other holds.

    >>> list(flows(partition("row", (4, 4), 2), partition("row/c2", (4, 4), 2)))
    [(1, 0, 8), (0, 1, 8)]
    """
    if old.shape != new.shape or old.nprocs != new.nprocs:
        raise LayoutError(
            f"{old.text} of {old.shape[0]}x{old.shape[1]} on {old.nprocs} ranks and {new.text} of "
            f"{new.shape[0]}x{new.shape[1]} on {new.nprocs} are not one matrix; use one shape and "
            "one number of ranks"
        )
    rows, cols = (_shared(old, new, axis) for axis in (0, 1))
    places = [(rank, old.grid.coords(rank)) for rank in range(old.grid.size)]
    for target in range(new.nprocs):
        row, col = new.grid.coords(target - new.replica_of(target) * new.grid.size)
        first = old.replica_of(target) * old.grid.size
        for place, (old_row, old_col) in places:
            elements = rows[old_row, row] * cols[old_col, col]
            if elements and first + place != target:
                yield first + place, target, elements


def _shared(old: Partition, new: Partition, axis: int) -> Counter:
    """(process row of the old grid, of the new one) -> rows that both hold; columns likewise."""
    (extent, own), other = (old.shape[axis], old.tile_shape[axis]), new.tile_shape[axis]
    parts = [(grid.rows, grid.cols)[axis] for grid in (old.grid, new.grid)]
    found: Counter = Counter()
    start = 0
    while start < extent:
        ours, theirs = start // own, start // other
        stop = min(extent, (ours + 1) * own, (theirs + 1) * other)
        found[ours % parts[0], theirs % parts[1]] += stop - start
        start = stop
    return found
