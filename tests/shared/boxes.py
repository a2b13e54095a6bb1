"""Rectangles of texts, to check whether they overlap."""

from typing import NamedTuple


class Box(NamedTuple):
    """An axis-parallel rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float


def overlap(one: Box, other: Box) -> float:
    """Return the common area of two boxes.

    Examples
    --------
    >>> overlap(Box(0, 0, 2, 2), Box(1, 1, 3, 3)), overlap(Box(0, 0, 1, 1), Box(1, 0, 2, 1))
    (1, 0)
    """
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    return width * height if width > 0 and height > 0 else 0
