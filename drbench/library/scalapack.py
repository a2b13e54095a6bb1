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
    numbers = np.ravel(descriptor).tolist()
    if len(numbers) != 9 or numbers[0] != _DENSE or not all(isinstance(x, int) for x in numbers):
        raise UsageError(
            f"a descriptor is nine integers: {_DENSE}, CTXT, M, N, MB, NB, RSRC, CSRC, LLD; got "
            f"{numbers}. Give that of descinit for a dense matrix."
        )
    _, _, m, n, mb, nb, rsrc, csrc, lld = numbers
    count = ranks if on is None else len(on)
    text, _, order = str(grid or "x".join(map(str, near_square(count)))).partition(":")
    shape = extents(text)
    if not shape or order not in ("", "row", "col"):
        raise UsageError(f"grid is a text such as 2x3 or 2x3:col, got {grid!r}.")
    if shape[0] * shape[1] != count:
        raise UsageError(
            f"the grid {text} is for {shape[0] * shape[1]} ranks, got {count}. Give another grid, "
            "or name its ranks, as ranks=[0, 1]."
        )
    if -1 in (rsrc, csrc):
        raise UsageError(
            f"RSRC = {rsrc}, CSRC = {csrc}: a descriptor with copies (-1) is not read. Use "
            "ctx.wrap and a layout with replicas, as tiles:64x64@2x1/c3."
        )
    if not (0 <= rsrc < shape[0] and 0 <= csrc < shape[1]):
        raise UsageError(
            f"RSRC = {rsrc}, CSRC = {csrc}: this process is not on the grid {text}, whose rows are "
            f"0 to {shape[0] - 1} and columns 0 to {shape[1] - 1}. Give another source, or grid."
        )
    at = f"{ProcessGrid(*shape, order or 'row')}"
    source = f":from{rsrc}x{csrc}" if rsrc or csrc else ""
    suffix = "" if on is None else f"/on{describe_ranks(tuple(on))}"
    return f"tiles:{mb}x{nb}@{at}{source}{suffix}", (m, n), lld


def columns_of(local: np.ndarray, lld: int, shape: tuple[int, int], where: str) -> np.ndarray:
    """The LOCr × LOCc elements of a rank, in its array.

    Parameters
    ----------
    local : ndarray
        By columns: LLD or LOCr rows, or one dimension.
    lld : int
        The distance of the columns of an array of one dimension, in elements.
    shape : (int, int)
        LOCr and LOCc.
    where : str
        The rank and the layout, for errors.

    Raises
    ------
    UsageError
        If LLD is less than LOCr, or the array does not fit.

    Examples
    --------
    >>> columns_of(np.arange(7), 4, (3, 2), "rank 0").tolist()
    [[0, 4], [1, 5], [2, 6]]
    """
    rows, cols = shape
    if lld < max(1, rows):
        raise UsageError(
            f"{where} has {rows}x{cols}, LLD is {lld}. Give LLD of at least {max(1, rows)}: the "
            "distance of its columns."
        )
    if not rows * cols:
        return local.reshape(-1)[:0].reshape(shape)
    if local.ndim == 1 and local.size < lld * cols and isinstance(local, np.ndarray):
        needed = lld * (cols - 1) + rows
        if local.size >= needed and local.strides[0] == local.itemsize:
            columns = local.itemsize, lld * local.itemsize
            return np.lib.stride_tricks.as_strided(local, shape, columns)
    elif local.ndim == 1 and local.size >= lld * cols:
        return local[: lld * cols].reshape((lld, cols), order="F")[:rows]
    elif local.ndim == 2 and local.shape[0] in (lld, rows) and local.shape[1] >= cols:
        return local[:rows, :cols]
    raise UsageError(
        f"{where} has {rows}x{cols}, LLD is {lld}, the array is "
        f"{'x'.join(map(str, local.shape))}. Give LLD x LOCc elements: {lld}x{cols}."
    )


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
