"""Values in pieces: arrays stacked or side by side that stand for one matrix, and products over
their common refinement.

A gather along columns leaves one row-major array a member. Copying them into one array first would
cost memory traffic of the whole operand, so products are taken piece by piece instead.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

__all__ = ["Pieces", "cuts_of", "joined", "part_of", "products"]


@dataclass(frozen=True)
class Pieces:
    """Arrays that together are one matrix.

    Attributes
    ----------
    axis : int
        0 if they are stacked, 1 if they lie side by side.
    arrays : list of ndarray
        Equal in the other extent.
    """

    axis: int
    arrays: list

    @property
    def shape(self) -> tuple[int, int]:
        along = sum(array.shape[self.axis] for array in self.arrays)
        across = self.arrays[0].shape[1 - self.axis]
        return (along, across) if self.axis == 0 else (across, along)


def cuts_of(value, axis: int) -> list[int]:
    """Where a value is cut along an axis, both ends included.

    Examples
    --------
    >>> cuts_of(Pieces(1, [np.zeros((2, 3)), np.zeros((2, 4))]), 1), cuts_of(np.zeros((2, 3)), 0)
    ([0, 3, 7], [0, 2])
    """
    if type(value) is Pieces and value.axis == axis:
        return [0, *accumulate(array.shape[axis] for array in value.arrays)]
    return [0, value.shape[axis]]


def part_of(value, axis: int, start: int, stop: int):
    """Rows (axis 0) or columns (1) [start, stop) of a value, as views."""
    if type(value) is not Pieces:
        return value[start:stop] if axis == 0 else value[:, start:stop]
    if value.axis != axis:
        return Pieces(value.axis, [part_of(array, axis, start, stop) for array in value.arrays])
    found = [
        part_of(array, axis, max(start, low) - low, min(stop, high) - low)
        for array, low, high in zip(value.arrays, cuts_of(value, axis), cuts_of(value, axis)[1:])
        if max(start, low) < min(stop, high)
    ]
    if not found:
        return part_of(value.arrays[0], axis, 0, 0)
    return found[0] if len(found) == 1 else Pieces(axis, found)


def joined(values: list, axis: int):
    """Values stacked (axis 0) or side by side (1), as views."""
    arrays: list = []
    for value in values:
        if type(value) is not Pieces:
            arrays.append(value)
        elif value.axis == axis:
            arrays += value.arrays
        else:
            raise ValueError(
                f"values in pieces along axis {value.axis} cannot be joined along axis {axis}"
            )
    return arrays[0] if len(arrays) == 1 else Pieces(axis, arrays)


def products(a, b, c, beta: float) -> list[tuple]:
    """Products of plain arrays that together are c = beta·c + a·b: (a, b, c, beta) over the common
    refinement of the pieces.

    Examples
    --------
    A in two pieces along k, C in two along n: four products, the second along k adding to the
    first.

    >>> a = Pieces(1, [np.ones((2, 3), "f4"), np.ones((2, 5), "f4")])
    >>> c = Pieces(1, [np.ones((2, 4), "f4"), np.ones((2, 6), "f4")])
    >>> for x, y, z, beta in products(a, np.ones((8, 10), "f4"), c, 0.0):
    ...     print(x.shape, y.shape, z.shape, beta)
    (2, 3) (3, 4) (2, 4) 0.0
    (2, 5) (5, 4) (2, 4) 1.0
    (2, 3) (3, 6) (2, 6) 0.0
    (2, 5) (5, 6) (2, 6) 1.0
    """
    if type(a) is not Pieces and type(b) is not Pieces and type(c) is not Pieces:
        return [(a, b, c, beta)]
    rows = _refined(cuts_of(a, 0), cuts_of(c, 0))
    cols = _refined(cuts_of(b, 1), cuts_of(c, 1))
    inner = _refined(cuts_of(a, 1), cuts_of(b, 0)) or [(0, 0)]
    out = []
    for r0, r1 in rows:
        for c0, c1 in cols:
            into = _plain(c, r0, r1, c0, c1)
            for x, (k0, k1) in enumerate(inner):
                out.append(
                    (
                        _plain(a, r0, r1, k0, k1),
                        _plain(b, k0, k1, c0, c1),
                        into,
                        beta if x == 0 else 1.0,
                    )
                )
    return out


def _refined(first: list[int], second: list[int]) -> list[tuple[int, int]]:
    cuts = sorted({*first, *second})
    return list(zip(cuts, cuts[1:]))


def _plain(value, r0: int, r1: int, c0: int, c1: int) -> np.ndarray:
    """A region of a value that lies inside one piece."""
    if type(value) is Pieces:
        start = (r0, c0)[value.axis]
        cuts = cuts_of(value, value.axis)
        x = min(bisect_right(cuts, start) - 1, len(value.arrays) - 1)
        array, low = value.arrays[x], cuts[x]
        return (
            array[r0 - low : r1 - low, c0:c1]
            if value.axis == 0
            else array[r0:r1, c0 - low : c1 - low]
        )
    return value[r0:r1, c0:c1]
