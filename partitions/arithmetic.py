"""The integers under every layout: the formulas of one dimension, and process grids, which arrange
the ranks of one replica in rows and columns.

A two-dimensional partition is two independent one-dimensional ones, so each
formula of the package is stated once, here, for one dimension.
"""

from dataclasses import dataclass
from math import isqrt

from .errors import LayoutError
from .intervals import Interval


def ceil_div(x: int, y: int) -> int:
    """Return ⌈x / y⌉ for ``y >= 1``.

    Examples
    --------
    >>> ceil_div(10, 4), ceil_div(8, 4), ceil_div(0, 4)
    (3, 2, 0)
    """
    return -(-x // y)


def part(extent: int, index: int, parts: int) -> Interval:
    """Return one of ``parts`` equal parts of ``[0, extent)``, divided by the ceiling rule.

    Part q is ``[q·⌈D/c⌉, min(D, (q+1)·⌈D/c⌉))``: the parts are in order, the last
    ones may be short or empty. Replica q of a stationary matrix computes this part of
    its free dimension; DTensor's ``Shard`` (``torch.chunk``) divides in the same way.

    Parameters
    ----------
    extent : int
        Length D of the dimension in elements, ``extent >= 0``.
    index : int
        Number of the part, ``0 <= index < parts``.
    parts : int
        Number of parts c, ``parts >= 1``.

    Raises
    ------
    LayoutError
        If an argument is out of its range.

    Examples
    --------
    >>> [tuple(part(10, q, 4)) for q in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]

    Four parts of nine elements are three of three, and an empty one:

    >>> part(9, 3, 4)
    Interval(start=9, stop=9)
    """
    if extent < 0 or not 0 <= index < parts:
        raise LayoutError(
            f"part {index} of {parts} over {extent} elements does not exist;"
            f" it needs 0 <= index < parts and an extent of at least 0"
        )
    size = ceil_div(extent, parts)
    return Interval(min(extent, index * size), min(extent, (index + 1) * size))


@dataclass(frozen=True, slots=True)
class ProcessGrid:
    """A ``rows x cols`` arrangement of ranks ``0 .. rows*cols - 1``.

    Parameters
    ----------
    rows, cols : int
        Extents Pr and Pc, each at least 1.
    order : {"row", "col"}
        Which neighbours have consecutive ranks: those along a process row
        ("row", the default) or those down a process column ("col").

    Raises
    ------
    LayoutError
        If an extent is below 1.

    Examples
    --------
    >>> str(ProcessGrid(2, 3)), str(ProcessGrid(2, 3, "col"))
    ('2x3', '2x3:col')
    """

    rows: int
    cols: int
    order: str = "row"

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise LayoutError(
                f"process grid {self.rows}x{self.cols} holds no rank;"
                f" both extents must be at least 1"
            )

    @property
    def size(self) -> int:
        """Number of ranks on the grid."""
        return self.rows * self.cols

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}" + (":col" if self.order == "col" else "")


def near_square(p: int) -> tuple[int, int]:
    """Return the factors ``(Pr, Pc)`` of ``p`` that are closest, ``Pr <= Pc``.

    Raises
    ------
    LayoutError
        If ``p < 1``.

    Examples
    --------
    >>> near_square(12), near_square(16), near_square(7)
    ((3, 4), (4, 4), (1, 7))
    """
    small = divisors(p)
    rows = small[(len(small) - 1) // 2]  # the divisors pair up around the square root
    return rows, p // rows


def divisors(p: int) -> list[int]:
    """Return the divisors of ``p`` in rising order: the valid replication factors of p ranks.

    Raises
    ------
    LayoutError
        If ``p < 1``.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    if p < 1:
        raise LayoutError(f"{p} ranks cannot be arranged; use at least 1")
    small = [d for d in range(1, isqrt(p) + 1) if p % d == 0]
    return small + [p // d for d in reversed(small) if d * d != p]


def most_replicas(p: int) -> int:
    """Return the replication factor of 2.5-D algorithms: the largest divisor c with c³ <= p.

    Examples
    --------
    >>> most_replicas(7), most_replicas(8), most_replicas(36)
    (1, 2, 3)
    """
    return max(c for c in divisors(p) if c**3 <= p)
