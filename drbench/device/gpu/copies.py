"""The method of a strided copy: as one run of bytes, as rows with a row stride, or element by
element in a kernel."""

from math import gcd
from typing import NamedTuple

#: A row stride of cudaMemcpy2D has 31 bits.
_LARGEST_STRIDE = (1 << 31) - 1


class CopyAxis(NamedTuple):
    """One axis of a copy: its extent, and its strides in the target and in the source."""

    extent: int
    target: int
    source: int


def merged_axes(shape, target_strides, source_strides) -> list[CopyAxis]:
    """The axes of a copy, outermost (in the target's memory) first, without those of extent 1 and
    with neighbours merged if both sides allow it.

    Examples
    --------
    Whole rows of a 64-wide matrix are one run; parts of rows are rows with a stride:

    >>> merged_axes((3, 64), (256, 4), (256, 4))
    [CopyAxis(extent=192, target=4, source=4)]
    >>> merged_axes((3, 1, 1, 16), (64, 64, 64, 4), (256, 256, 4, 4))
    [CopyAxis(extent=3, target=64, source=256), CopyAxis(extent=16, target=4, source=4)]

    So is a part of a matrix that both sides store transposed:

    >>> merged_axes((16, 3), (4, 64), (4, 256))
    [CopyAxis(extent=3, target=64, source=256), CopyAxis(extent=16, target=4, source=4)]
    """
    axes: list[CopyAxis] = []
    all_axes = map(CopyAxis, shape, target_strides, source_strides)
    for inner in sorted(all_axes, key=lambda axis: -axis.target):
        if inner.extent == 1:
            continue
        if (
            axes
            and axes[-1].target == inner.extent * inner.target
            and axes[-1].source == inner.extent * inner.source
        ):
            axes[-1] = inner._replace(extent=axes[-1].extent * inner.extent)
        else:
            axes.append(inner)
    return axes


def as_row_copies(axes: list[CopyAxis], itemsize: int) -> tuple[int, int, int, int] | None:
    """(rows, bytes of a row, target stride, source stride) if a copy is a series of rows that are
    each a run of bytes; else None.

    Examples
    --------
    >>> as_row_copies(merged_axes((3, 16), (64, 4), (256, 4)), 4)
    (3, 64, 64, 256)
    >>> as_row_copies(merged_axes((3, 16), (64, 4), (4, 12)), 4) is None  # the source by columns
    True
    """
    outer, width = list(axes), itemsize
    if outer and outer[-1].target == outer[-1].source == itemsize:
        width = outer.pop().extent * itemsize
    if not outer:
        return 1, width, width, width
    rows, target, source = outer[0]
    if len(outer) > 1 or not width <= min(target, source) or max(target, source) > _LARGEST_STRIDE:
        return None
    return rows, width, target, source


def in_words(
    axes: list[CopyAxis], itemsize: int, target: int, source: int
) -> tuple[int, list[CopyAxis]]:
    """The widest words a kernel can move, and four axes with strides in words.

    Parameters
    ----------
    axes : list of CopyAxis
        At most four, strides in bytes.
    itemsize : int
        Bytes of an element: 2, 4 or 8.
    target, source : int
        Addresses.

    Returns
    -------
    (int, list of CopyAxis)
        Bytes of a word (2, 4, 8 or 16), dividing both addresses and all strides.

    Examples
    --------
    >>> in_words(merged_axes((2, 3, 16), (960, 128, 4), (4096, 512, 4)), 4, 0, 32)[0]
    16
    >>> word, axes = in_words(merged_axes((2, 3, 16), (960, 128, 4), (4096, 512, 4)), 4, 0, 8)
    >>> word, axes[-1]
    (8, CopyAxis(extent=8, target=1, source=1))
    """
    word, axes = itemsize, list(axes)
    if axes and axes[-1].target == axes[-1].source == itemsize:
        last = axes.pop()
        word = gcd(
            16,
            target,
            source,
            last.extent * itemsize,
            *(stride for axis in axes for stride in axis[1:]),
        )
        axes.append(CopyAxis(last.extent * itemsize // word, word, word))
    axes = [CopyAxis(1, 0, 0)] * (4 - len(axes)) + axes
    return word, [CopyAxis(extent, to // word, of // word) for extent, to, of in axes]
