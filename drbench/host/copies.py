"""Merges equally spaced copies into one strided copy with an additional axis.

A block-cyclic layout needs one small copy for each tile. One by one they pass through memory once
for each tile of a row; as one copy, rows are copied in the order of memory. The functions only
compute places; only :func:`copy_of` copies.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

#: Neighbouring elements of at most this many bytes are copied as one element, which is faster in
#: NumPy than starting a copy of several.
_LONGEST_RUN = 1 << 16
#: Bytes of rows that are copied before the next if several copies share the rows, so that these
#: stay in a core's cache.
_CHUNK = 1 << 18


class Strided(NamedTuple):
    """Elements at equal distances: start of the first, number along each axis, and distances, in
    bytes."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def length(self, item: int) -> int:
        """Bytes from the first element to the end of the last; no stride is negative."""
        return sum((n - 1) * step for n, step in zip(self.shape, self.strides)) + item


#: (target, source) of equal shapes, none of them empty.
Move = tuple[Strided, Strided]


def joined(moves: Sequence[Move], item: int, local: bool = True) -> list[Move]:
    """The same copies, joined to a few strided ones.

    Parameters
    ----------
    moves : sequence of (Strided, Strided)
        Targets and sources, in an order in which they may be copied.
    item : int
        Bytes of an element.
    local : bool
        Targets and sources are in the same memory: copies are not joined if the target of the
        series is inside the range of its source, because NumPy would then copy all of the source
        first, in case the two overlap.

    Examples
    --------
    Every other pair of columns of a 3x8 matrix of bytes into one that has no gaps:

    >>> moves = [(Strided(100 + x, (3, 2), (4, 1)), Strided(2 * x, (3, 2), (8, 1))) for x in (0, 2)]
    >>> [(target, source)] = joined(moves, 1)
    >>> target
    Strided(start=100, shape=(2, 3, 2), strides=(2, 4, 1))
    >>> source
    Strided(start=0, shape=(2, 3, 2), strides=(4, 8, 1))
    """
    merged = list(moves)
    while True:
        before, merged = merged, _once(merged, item, local)
        if len(merged) == len(before):
            return merged


def _once(moves: list[Move], item: int, local: bool) -> list[Move]:
    """Copies of which equally spaced neighbours are merged."""
    merged, x = [], 0
    while x < len(moves):
        first, spacing, stop = moves[x], None, x + 1
        while stop < len(moves) and _alike(first, moves[stop]):
            distance = tuple(
                new.start - old.start for new, old in zip(moves[stop], moves[stop - 1])
            )
            if spacing not in (None, distance) or min(distance) < 0:
                break
            if local and _is_mixed(first, moves[stop], item):
                break
            spacing, stop = distance, stop + 1
        merged.append(
            first
            if spacing is None
            else tuple(
                Strided(at.start, (stop - x, *at.shape), (step, *at.strides))
                for at, step in zip(first, spacing)
            )
        )
        x = stop
    return merged


def _alike(move: Move, other: Move) -> bool:
    """Whether two copies differ only in their places."""
    return all(a[1:] == b[1:] for a, b in zip(move, other))


def _is_mixed(first: Move, last: Move, item: int) -> bool:
    """Whether the target of a series is inside the range of its source."""
    (low, high), (start, stop) = (
        (head.start, tail.start + head.length(item)) for head, tail in zip(first, last)
    )
    return low < stop and start < high


def in_chunks(moves: Sequence[Move], item: int) -> list[Move]:
    """The same copies; if their targets are interleaved, cut into chunks of rows, in the order of
    memory.

    Examples
    --------
    Columns 0:2 and 2:4 of two rows of 512 KiB each:

    >>> moves = [(Strided(x, (2, 2), (1 << 19, 1)), Strided(x, (2, 2), (9, 1))) for x in (0, 2)]
    >>> [target.start for target, _ in in_chunks(moves, 1)]
    [0, 2, 524288, 524290]
    >>> in_chunks(moves[:1], 1) == moves[:1]
    True
    """
    spans = sorted((target.start, target.start + target.length(item)) for target, _ in moves)
    if all(span[1] <= after[0] for span, after in zip(spans, spans[1:])):
        return list(moves)
    chunks = []
    for move in moves:
        strides = move[0].strides
        axis = max(range(len(strides)), key=strides.__getitem__)
        rows = max(1, _CHUNK // max(1, strides[axis]))
        for row in range(0, move[0].shape[axis], rows):
            chunks.append(tuple(_cut(at, axis, row, rows) for at in move))
    return sorted(chunks, key=lambda move: (move[0].start // _CHUNK, move[1].start))


def _cut(at: Strided, axis: int, row: int, rows: int) -> Strided:
    """``rows`` rows along an axis, from ``row`` on."""
    shape = list(at.shape)
    shape[axis] = min(rows, shape[axis] - row)
    return Strided(at.start + row * at.strides[axis], tuple(shape), at.strides)


def copy_of(move: Move, item: int, owner: object) -> Callable[[], None]:
    """A function that copies between addresses of this process; ``owner`` keeps the memory alive.

    Examples
    --------
    >>> source, target = np.arange(24.0).reshape(4, 6), np.zeros((4, 2))
    >>> at = [Strided(x.ctypes.data, (4, 2), x.strides) for x in (target, source)]
    >>> copy_of(tuple(at), 8, (source, target))()
    >>> target[1].tolist()
    [6.0, 7.0]
    """
    axes = sorted(zip(move[0].shape, *(at.strides for at in move)), key=lambda axis: -axis[1])
    run, axes = item, [axis for axis in axes if axis[0] > 1]
    while axes and axes[-1][1:] == (run, run) and axes[-1][0] * run <= _LONGEST_RUN:
        run *= axes.pop()[0]
    shape, *strides = zip(*axes) if axes else ((), (), ())
    return partial(
        np.copyto,
        *(_array(at.start, shape, steps, run, owner) for at, steps in zip(move, strides)),
    )


def _array(start: int, shape: tuple, strides: tuple, run: int, owner: object) -> np.ndarray:
    """An array of elements of ``run`` bytes, of any type, that refers to the owner of its
    memory."""
    kind = {"shape": shape, "strides": strides, "typestr": f"|V{run}", "version": 3}
    kind["data"] = start, False
    return np.asarray(SimpleNamespace(__array_interface__=kind, owner=owner))


def elements(move: Move) -> int:
    """The number of elements of a copy."""
    return prod(move[0].shape)
