"""Descriptors of ScaLAPACK: the nine integers that say how a matrix is distributed."""

from collections.abc import Collection, Sequence

import numpy as np

from drbench.errors import UnsupportedError, UsageError
from drbench.partitions import (
    CyclicAxis,
    Partition,
    ProcessGrid,
    extents,
    grid_places,
    near_square,
)
from drbench.partitions.blocks import describe_ranks

#: DTYPE_ of a dense matrix.
_DENSE = 1


def layout_of(
    descriptor: Sequence[int], ranks: int, grid: str | None, on: Collection[int] | None
) -> tuple[str, tuple[int, int], int]:
    """The text of the layout of a descriptor, the shape of its matrix, and LLD.

    Parameters
    ----------
    descriptor : sequence of int
        DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD.
    ranks : int
        Of the context.
    grid : str or None
        The BLACS grid, as ``2x3`` or, with column-major ranks, ``2x3:col``.
    on : collection of int, or None
        The ranks of the grid, in its order; by default all.

    Raises
    ------
    UsageError
        If it is no descriptor of a dense matrix.

    Examples
    --------
    >>> layout_of([1, 0, 100, 60, 8, 4, 1, 0, 56], 6, "2x3", None)
    ('tiles:8x4@2x3:from1x0', (100, 60), 56)
    """
    numbers = [int(number) for number in np.ravel(descriptor)]
    if len(numbers) != 9 or numbers[0] != _DENSE:
        raise UsageError(
            f"a descriptor is nine integers, the first {_DENSE} for a dense matrix; got {numbers}. "
            "Give that of descinit."
        )
    _, _, m, n, mb, nb, rsrc, csrc, lld = numbers
    count = ranks if on is None else len(on)
    text, _, order = (grid or "x".join(map(str, near_square(count)))).partition(":")
    shape = extents(text)
    if not shape or order not in ("", "row", "col"):
        raise UsageError(f"grid is one such as 2x3 or 2x3:col, got {grid!r}.")
    at = f"{ProcessGrid(*shape, order or 'row')}"
    source = f":from{rsrc}x{csrc}" if rsrc or csrc else ""
    suffix = "" if on is None else f"/on{describe_ranks(tuple(on))}"
    return f"tiles:{mb}x{nb}@{at}{source}{suffix}", (m, n), lld


def descriptor_of(layout: Partition, context: int, lld: int) -> np.ndarray:
    """The descriptor of a layout.

    Raises
    ------
    UnsupportedError
        If the layout is not block-cyclic on a process grid, each element once.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> layout = partition("tiles:8x4@2x3:from1x0", (100, 60), 6)
    >>> descriptor_of(layout, 0, 56).tolist()
    [1, 0, 100, 60, 8, 4, 1, 0, 56]
    """
    rows, cols, places = layout.rows, layout.cols, layout.places
    if isinstance(rows, CyclicAxis) and isinstance(cols, CyclicAxis) and layout.replicas == 1:
        for order in ("row", "col"):
            grid = grid_places(ProcessGrid(rows.parts, cols.parts, order))
            sources = [
                _source(grid.rows, places.rows, rows.used),
                _source(grid.cols, places.cols, cols.used),
            ]
            if None not in sources:
                numbers = _DENSE, context, *layout.shape, rows.tile, cols.tile, *sources, lld
                return np.array(numbers, np.int32)
    raise UnsupportedError(
        f"{layout.text} has no descriptor of ScaLAPACK, which has equal tiles on a process grid, "
        "each once. Redistribute to one such as tiles:64x64@2x2."
    )


def _source(grid: Sequence[int], places: Sequence[int], used: int) -> int | None:
    """The coordinate of the first tile, if those of the others follow it cyclically."""
    if not used:
        return 0
    first = list(grid).index(places[0]) if places[0] in grid else 0
    cyclic = [grid[(first + x) % len(grid)] for x in range(used)]
    return first if cyclic == list(places[:used]) else None
