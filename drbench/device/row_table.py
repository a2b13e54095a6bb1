"""Which rows a sum of rows is made of, as a device reads it: a table of addresses.

A product of experts takes some rows of the tokens that have come, and a token's result is a
weighted sum of what its experts made. Both are sums of rows that lie anywhere (the former of one
row each), so one table serves both, made before any clock runs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

#: Numbers that a term is told by: the address of the row's first element, elements from one to the
#: next, and the weight.
TERM = 3


class RowTerms(NamedTuple):
    """Rows of one array as terms of a sum.

    Attributes
    ----------
    source : ndarray
        With any strides; of its elements only the addresses are read.
    rows : sequence of int
    places : sequence of int
        The row of the sum that each is added to.
    weights : sequence of int or None
        How often each counts; once without.
    """

    source: np.ndarray
    rows: Sequence[int]
    places: Sequence[int]
    weights: Sequence[int] | None = None


def row_table(rows: int, terms: Iterable[RowTerms]) -> np.ndarray:
    """The table of a sum of so many rows: for each row where its terms begin, counted in terms, and
    where the last one's end; then the terms, :data:`TERM` numbers each.

    Examples
    --------
    The second row of x; and twice the first one, plus the third row of y, which lies by columns:

    >>> x, y = np.zeros((3, 4), "f4"), np.zeros((4, 3), "f4").T
    >>> table = row_table(2, [RowTerms(x, [1, 0], [0, 1], [1, 2]), RowTerms(y, [2], [1])])
    >>> first, (one, twice, other) = table[:3], table[3:].reshape(-1, TERM)
    >>> first.tolist(), one.tolist() == [x.ctypes.data + 16, 1, 1]
    ([0, 1, 3], True)
    >>> twice[1:].tolist(), other[1:].tolist()
    ([1, 2], [3, 1])
    """
    found = []
    for source, which, places, weights in terms:
        down, across = source.strides
        part = np.empty((len(which), 1 + TERM), np.int64)
        part[:, 0] = places
        part[:, 1] = np.asarray(which, np.int64) * down + source.ctypes.data
        part[:, 2] = across // source.itemsize
        part[:, 3] = 1 if weights is None else weights
        found.append(part)
    every = np.concatenate(found) if found else np.empty((0, 1 + TERM), np.int64)
    every = every[np.argsort(every[:, 0], kind="stable")]
    first = np.searchsorted(every[:, 0], np.arange(rows + 1))
    return np.concatenate([first.astype(np.int64), every[:, 1:].reshape(-1)])
