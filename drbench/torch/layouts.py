"""DTensor's placements as texts that :mod:`drbench.partitions.dtensor` reads: the same layout,
element by element."""

from collections.abc import Sequence
from typing import Any

from .private import reduction, split_factor


def layout_text(placements: Sequence, mesh_shape: Sequence[int]) -> str:
    """Placements of a matrix on a mesh as the text of a partition.

    Parameters
    ----------
    placements : sequence of Placement
        One for each dimension of the mesh.
    mesh_shape : sequence of int

    Raises
    ------
    ValueError
        If a pending reduction is not a sum, or a matrix has no such dimension; with the reason.

    Examples
    --------
    >>> from torch.distributed.tensor import Partial, Replicate, Shard
    >>> layout_text([Shard(-1), Replicate(), Partial()], (2, 3, 4))
    'S(1),R,P@2x3x4'
    """
    words = [_word(placement) for placement in placements]
    return ",".join(words) + "@" + "x".join(map(str, mesh_shape))


def _word(placement: Any) -> str:
    kind = reduction(placement)
    if kind is not None:
        if kind != "sum":
            raise ValueError(f"a pending {kind} is no sum")
        return "P"
    if placement.is_replicate():
        return "R"
    if not -2 <= placement.dim < 2:
        raise ValueError(f"{placement} shards no dimension of a matrix")
    factor = split_factor(placement)
    dim = placement.dim % 2
    return f"S({dim})" if factor is None else f"_S({dim},{factor})"
