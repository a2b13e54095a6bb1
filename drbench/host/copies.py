"""Copies that follow one another at equal distances, as one copy with an axis more.

A block-cyclic layout gives one small copy a tile. Made one by one they walk through memory as often
as there are tiles in a row; as one, rows are copied in the order they lie in.
"""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

#: (target, source) of equal shapes.
Pair = tuple[np.ndarray, np.ndarray]


def joined(pairs: Sequence[Pair]) -> list[Pair]:
    """The same copies as few strided ones.

    Parameters
    ----------
    pairs : sequence of (ndarray, ndarray)
        Targets and sources, in an order in which they may be copied.

    Examples
    --------
    Every other pair of columns of a matrix into one that has no gaps:

    >>> source, target = np.arange(24).reshape(3, 8), np.zeros((3, 4), int)
    >>> pairs = [(target[:, x : x + 2], source[:, 2 * x : 2 * x + 2]) for x in (0, 2)]
    >>> [(to, of)] = joined(pairs)
    >>> to.shape
    (2, 3, 2)
    >>> np.copyto(to, of)
    >>> target[1].tolist()
    [8, 9, 12, 13]
    """
    found = list(pairs)
    while True:
        before, found = found, _once(found)
        if len(found) == len(before):
            return found


def _once(pairs: list[Pair]) -> list[Pair]:
    """Neighbours at equal distances as one."""
    found, x = [], 0
    places = [tuple(each.__array_interface__["data"][0] for each in pair) for pair in pairs]
    while x < len(pairs):
        apart, stop, lengths = None, x + 1, [_length(each) for each in pairs[x]]
        while stop < len(pairs) and _alike(pairs[x], pairs[stop]):
            distance = tuple(new - old for new, old in zip(places[stop], places[stop - 1]))
            if apart not in (None, distance) or min(distance) < 0:
                break
            if _mixed(places[x], places[stop], lengths):
                break
            apart, stop = distance, stop + 1
        found.append(pairs[x] if apart is None else _series(pairs[x], stop - x, apart))
        x = stop
    return found


def _alike(one: Pair, other: Pair) -> bool:
    """Whether two copies differ in nothing but where they are."""
    return all(
        a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        for a, b in zip(one, other)
    )


def _mixed(first: tuple, last: tuple, lengths: list[int]) -> bool:
    """Whether the target of a series lies within the reach of its source, as that of several ranks
    may: NumPy would then copy all of the source first, in case the two overlap."""
    (low, high), (start, stop) = (
        (low, high + length) for low, high, length in zip(first, last, lengths)
    )
    return low < stop and start < high


def _length(array: np.ndarray) -> int:
    """Bytes from the first element to behind the last; no stride is negative."""
    apart = ((n - 1) * step for n, step in zip(array.shape, array.strides) if n)
    return sum(apart) + array.itemsize


def _series(first: Pair, count: int, apart: tuple[int, ...]) -> Pair:
    """A copy made ``count`` times, ``apart`` bytes from one to the next."""
    target, source = (
        as_strided(array, (count, *array.shape), (step, *array.strides), writeable=writeable)
        for array, step, writeable in zip(first, apart, (True, False))
    )
    return target, source
