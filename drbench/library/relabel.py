"""Which rank takes which part of a new layout, so that the fewest elements move.

A layout says how a matrix is divided; which rank has which part is often of no importance. Then
every part is given to a rank that has much of it already (COSTA's *communication-optimal process
relabelling*, Kabić et al., 2021): an assignment problem, which SciPy solves. Without SciPy pairs of
part and rank are taken greedily, those with the most common elements first.
"""

from typing import NamedTuple

import numpy as np

from drbench.errors import UnsupportedError
from drbench.partitions import Partition, parse
from drbench.partitions.axes import Axis
from drbench.partitions.blocks import OnRanksSpec
from drbench.partitions.redistribution import shared_indices


class Relabelling(NamedTuple):
    """A layout whose parts are given to other ranks.

    Attributes
    ----------
    layout : str
        The text of the layout, for :func:`drbench.redistribute`.
    moved_bytes, saved_bytes : int
        What moves to this layout, and how much less that is than to the layout as given.
    """

    layout: str
    moved_bytes: int
    saved_bytes: int


def relabel(old: Partition, new: Partition, itemsize: int) -> Relabelling:
    """The ranks for the parts of a new layout with which the fewest elements move.

    Parameters
    ----------
    old, new : Partition
        Of one matrix, on as many ranks.
    itemsize : int
        Bytes of an element.

    Raises
    ------
    UnsupportedError
        If a sum is pending in one of the two.

    Examples
    --------
    Rows 0 to 3 are on rank 1 already:

    >>> from drbench.partitions import partition
    >>> old, new = (partition(text, (8, 4), 2) for text in ("tiles:4x4@2x1:from1x0", "row"))
    >>> relabel(old, new, 4)
    Relabelling(layout='row/on1+0', moved_bytes=0, saved_bytes=128)
    """
    for layout in (old, new):
        if layout.terms > 1:
            raise UnsupportedError(
                f"{layout.text} has a pending sum, of which every rank needs all terms. "
                "Redistribute to a layout without P first."
            )
    common = np.zeros((new.nprocs, old.nprocs), np.int64)
    rows, cols = _common(old.rows, new.rows), _common(old.cols, new.cols)
    at_new, at_old = (np.array([p.places.coords(x) for x in p.places.active]) for p in (new, old))
    if len(at_new) and len(at_old):
        common[np.ix_(new.places.active, old.places.active)] = (
            rows[np.ix_(at_new[:, 0], at_old[:, 0])] * cols[np.ix_(at_new[:, 1], at_old[:, 1])]
        )
    given = list(range(new.nprocs))
    stays = lambda ranks: int(common[given, ranks].sum())
    chosen = max(_assign(common), given, key=stays)
    text = new.text if chosen == given else str(OnRanksSpec(parse(new.text), tuple(chosen)))
    size = sum(map(new.local_size, given))
    moved, saved = size - stays(chosen), stays(chosen) - stays(given)
    return Relabelling(text, moved * itemsize, saved * itemsize)


def _common(old: Axis, new: Axis) -> np.ndarray:
    """Indices that each coordinate of the new axis has in common with each of the old one."""
    counts = np.zeros((new.parts, old.parts), np.int64)
    for coordinate, pairs in enumerate(shared_indices(old, new)):
        for other, elements in pairs:
            counts[coordinate, other] = elements
    return counts


def _assign(common: np.ndarray) -> list[int]:
    """For each part the rank that takes it."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        order = np.argsort(-common, axis=None, kind="stable")
        chosen: dict[int, int] = {}
        taken: set[int] = set()
        for part, rank in zip(*(x.tolist() for x in np.unravel_index(order, common.shape))):
            if part not in chosen and rank not in taken:
                chosen[part] = rank
                taken.add(rank)
        return [chosen[part] for part in range(len(common))]
    return linear_sum_assignment(common, maximize=True)[1].tolist()
