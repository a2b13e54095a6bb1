"""DTensor placements of partitions: of several matrices on one device mesh. Integers only."""

from bisect import bisect
from itertools import accumulate, pairwise
from operator import mul

from drbench.errors import UnsupportedError
from drbench.partitions import LayoutError, Partition, to_placements
from drbench.partitions.text import parse

#: (placements, mesh extents): a matrix dimension, or None for Replicate, for each mesh dimension.
Placed = tuple[tuple, tuple]


def find_placements(bound: Partition, library: str = "dtensor") -> Placed:
    """The placements of a partition on its own mesh, for a library.

    Raises
    ------
    UnsupportedError
        If no placements are equivalent, as for block-cyclic tiles.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> (
    ...     find_placements(partition("row/c2", (8, 8), 8)),
    ...     find_placements(partition("block", (8, 8), 4)),
    ... )
    (((None, 0), (2, 4)), ((0, 1), (2, 2)))
    """
    try:
        spec = parse(to_placements(bound))
    except LayoutError as error:
        raise UnsupportedError(f"{library}: {error}") from None
    odd = [placement for placement in spec.placements if placement not in (None, 0, 1)]
    if odd:
        raise UnsupportedError(
            f"{library}: {bound.text} has a pending sum or a strided shard, which our adapter does "
            "not fill or check. Use S(0), S(1) and R, or --algorithm universal."
        )
    return spec.placements, spec.mesh or (bound.nprocs,)


def share_mesh(operands: list[Placed]) -> list[Placed]:
    """The same placements on a mesh shared by all operands, if there is one; else by all but the
    last, which is unchanged.

    A mesh dimension of 4 is split into 2 x 2 where another operand has its boundary there: ranks
    fill meshes row-major, so chunks of chunks are the chunks of one flat cut (of extents that
    divide evenly).

    Examples
    --------
    Rows over four ranks, and 2-D blocks:

    >>> share_mesh([((0,), (4,)), ((0, 1), (2, 2))])
    [((0, 0), (2, 2)), ((0, 1), (2, 2))]

    No mesh refines both 2x3 and 3x2:

    >>> share_mesh([((0, 1), (2, 3)), ((0, 1), (3, 2))])
    [((0, 1), (2, 3)), ((0, 1), (3, 2))]
    """
    # cumulative extents
    boundaries = sorted({at for _, mesh in operands for at in accumulate(mesh, mul, initial=1)})
    steps = list(pairwise(boundaries))
    if any(high % low for low, high in steps):
        return [*share_mesh(operands[:-1]), operands[-1]]
    extents = tuple(high // low for low, high in steps) or (1,)
    out = []
    for placements, mesh in operands:
        ends = list(accumulate(mesh, mul))  # ends of its dimensions: the first beyond a boundary
        dims = tuple(placements[bisect(ends, low)] for low, _ in steps)
        out.append((dims or placements[:1], extents))
    return out
