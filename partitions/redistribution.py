"""Redistribution of a matrix from one partition to another: the elements that each rank fetches
from each other rank."""

from collections import Counter
from collections.abc import Iterator

from .axes import Axis, common_segments
from .dtensor import PARTIAL, PlacementSpec, parse_placements, to_placements
from .errors import LayoutError
from .partition import Partition


def flows(old: Partition, new: Partition) -> Iterator[tuple[int, int, int]]:
    """Yield (source rank, target rank, elements) for all elements that change their rank.

    Each rank fetches the elements that it holds in the new partition and not in the old one, from
    its own old replica; elements that it holds in both stay. Where a sum is pending in the old
    partition, the other terms are fetched too (:func:`sources`).

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

    >>> from drbench.partitions import partition
    >>> list(flows(partition("row", (4, 4), 2), partition("column", (4, 4), 2)))
    [(1, 0, 4), (0, 1, 4)]

    A second replica: each rank lacks the half that the other holds.

    >>> list(flows(partition("row", (4, 4), 2), partition("row/c2", (4, 4), 2)))
    [(1, 0, 8), (0, 1, 8)]

    Two terms summed, each rank its half of the rows:

    >>> list(flows(partition("P", (4, 4), 2), partition("row", (4, 4), 2)))
    [(1, 0, 8), (0, 1, 8)]
    """
    check_one_matrix(old, new)
    rows, cols = shared_indices(old.rows, new.rows), shared_indices(old.cols, new.cols)
    for target in filter(new.holds, range(new.nprocs)):
        row, col, _ = new.places.coords(target)
        for replica in sources(old, new, target):
            for old_row, of_rows in rows[row]:
                for old_col, of_cols in cols[col]:
                    source = old.places.rank(old_row, old_col, replica)
                    if source != target:
                        yield source, target, of_rows * of_cols


def sources(old: Partition, new: Partition, rank: int) -> list[int]:
    """Return the replicas of the old partition whose sum a rank holds in the new one.

    Its own replica, if no sum is pending. Of a pending sum one copy of every term, its own replica
    among them. Where the new partition has as many terms as the old one, each stays a term; else
    its first term takes the whole sum, and the others are zero: no source.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> two, one, four = (partition(text, (4, 4), 4) for text in ("R,P@2x2", "row", "P"))
    >>> [sources(two, one, rank) for rank in range(4)]
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    >>> [sources(one, two, rank) for rank in range(4)]
    [[0], [], [0], []]
    """
    own = old.replica_of(rank)
    wanted = new.term_of(new.replica_of(rank))
    if old.terms == 1:
        return [] if wanted else [own]
    alike = old.copies(own)
    if old.terms == new.terms:
        return [own if old.term_of(own) == wanted else _copy(old, wanted, alike.index(own))]
    if wanted:
        return []
    at, held = alike.index(own), old.term_of(own)
    return [own, *(_copy(old, term, at) for term in range(old.terms) if term != held)]


def summed(partition: Partition) -> Partition:
    """Return the layout into which a pending sum is best reduced: each term's ranks reduce a part
    of the rows, so that one rank adds up each element; the partition itself without pending sums.

    Rows, where chunks of rows exist: Partial becomes Shard(0) on the same mesh.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> summed(partition("R,P@2x2", (8, 8), 4)).text
    'R,S(0)@2x2'
    """
    if partition.terms == 1:
        return partition
    if partition.part_of is not None:
        whole, rows, cols = partition.part_of
        return summed(whole).part(rows, cols)
    spec = parse_placements(to_placements(partition))
    placements = tuple(0 if placed == PARTIAL else placed for placed in spec.placements)
    return PlacementSpec(placements, spec.mesh).bind(partition.shape, partition.nprocs)


def check_one_matrix(old: Partition, new: Partition) -> None:
    """Refuse partitions of different shapes or numbers of ranks."""
    if old.shape != new.shape or old.nprocs != new.nprocs:
        raise LayoutError(
            f"{old.text} of {old.shape[0]}x{old.shape[1]} on {old.nprocs} ranks and {new.text} of "
            f"{new.shape[0]}x{new.shape[1]} on {new.nprocs} are not one matrix; use one shape and "
            "one number of ranks"
        )


def _copy(old: Partition, term: int, number: int) -> int:
    """The replica that is copy ``number`` of a term."""
    return old.copies(next(q for q in range(old.replicas) if old.term_of(q) == term))[number]


def shared_indices(old: Axis, new: Axis) -> list[list[tuple[int, int]]]:
    """For each coordinate of the new axis those of the old one that share indices with it, and the
    number of shared indices."""
    counts: Counter = Counter()
    for (start, stop), ours, theirs in common_segments(old, new):
        counts[new[theirs].coordinate, old[ours].coordinate] += stop - start
    shared: list[list[tuple[int, int]]] = [[] for _ in range(new.parts)]
    for (coordinate, other), elements in counts.items():
        shared[coordinate].append((other, elements))
    return shared
