"""DTensor's side of a partition: placements of several matrices on one device mesh. Integers
only."""

from math import prod

from drbench.errors import UnsupportedError
from partitions import LayoutError, Partition, to_placements
from partitions.text import parse

#: (placements, mesh extents): a matrix dimension, or None for Replicate, for each mesh dimension.
Placed = tuple[tuple, tuple]


def placed(bound: Partition) -> Placed:
    """Placements of a partition on a mesh of its own.

    Raises
    ------
    UnsupportedError
        If no placements say the same, as for block-cyclic tiles.

    Examples
    --------
    >>> from partitions import partition
    >>> placed(partition("row/c2", (8, 8), 8)), placed(partition("block", (8, 8), 4))
    (((None, 0), (2, 4)), ((0, 1), (2, 2)))
    """
    try:
        spec = parse(to_placements(bound))
    except LayoutError as error:
        raise UnsupportedError(f"dtensor: {error}") from None
    return spec.placements, spec.mesh or (bound.nprocs,)


def on_one_mesh(operands: list[Placed]) -> list[Placed]:
    """The same placements on a mesh that all operands share, where there is one; else of all but
    the last, which stays as it is.

    A mesh dimension of 4 is split into 2 x 2 where another operand has its boundary there: ranks
    fill meshes row-major, so chunks of chunks are the chunks of one flat cut (of extents that
    divide evenly).

    Examples
    --------
    Rows over four ranks, and 2-D blocks:

    >>> on_one_mesh([((0,), (4,)), ((0, 1), (2, 2))])
    [((0, 0), (2, 2)), ((0, 1), (2, 2))]

    No mesh refines both 2x3 and 3x2:

    >>> on_one_mesh([((0, 1), (2, 3)), ((0, 1), (3, 2))])
    [((0, 1), (2, 3)), ((0, 1), (3, 2))]
    """
    boundaries = sorted({prod(mesh[:end]) for _, mesh in operands for end in range(len(mesh) + 1)})
    if any(high % low for low, high in zip(boundaries, boundaries[1:])):
        return [*on_one_mesh(operands[:-1]), operands[-1]]
    extents = tuple(high // low for low, high in zip(boundaries, boundaries[1:])) or (1,)
    return [
        (tuple(_placement_at(operand, low) for low in boundaries[:-1]) or operand[0][:1], extents)
        for operand in operands
    ]


def _placement_at(operand: Placed, boundary: int):
    """The placement of the mesh dimension that begins at or before a boundary (a product of leading
    extents)."""
    placements, mesh = operand
    end = next(end for end in range(1, len(mesh) + 1) if prod(mesh[:end]) > boundary)
    return placements[end - 1]
