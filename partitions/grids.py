"""Process grids: how the ranks of one replica are arranged in rows and columns."""

from dataclasses import dataclass
from math import isqrt

from .errors import LayoutError


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
        If an extent is below 1 or the order is neither word.

    Examples
    --------
    >>> ProcessGrid(2, 3).rank(1, 0), ProcessGrid(2, 3, "col").rank(1, 0)
    (3, 1)
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
        if self.order not in ("row", "col"):
            raise LayoutError(
                f"rank order {self.order!r} is unknown;"
                f' use "row" (row-major) or "col" (column-major)'
            )

    @property
    def size(self) -> int:
        """Number of ranks on the grid."""
        return self.rows * self.cols

    def rank(self, i: int, j: int) -> int:
        """Return the rank at process row ``i`` and process column ``j``.

        Raises
        ------
        LayoutError
            If the coordinates are not on the grid.
        """
        if not (0 <= i < self.rows and 0 <= j < self.cols):
            raise LayoutError(
                f"process ({i}, {j}) is not on the {self} grid;"
                f" rows go from 0 to {self.rows - 1} and columns from 0 to {self.cols - 1}"
            )
        return i * self.cols + j if self.order == "row" else j * self.rows + i

    def coords(self, rank: int) -> tuple[int, int]:
        """Return the process row and column of ``rank``, the inverse of :meth:`rank`.

        Raises
        ------
        LayoutError
            If the rank is not on the grid.

        Examples
        --------
        >>> [ProcessGrid(2, 3, "col").coords(r) for r in range(4)]
        [(0, 0), (1, 0), (0, 1), (1, 1)]
        """
        if not 0 <= rank < self.rows * self.cols:
            raise LayoutError(
                f"rank {rank} is not on the {self} grid; its ranks go from 0 to {self.size - 1}"
            )
        if self.order == "row":
            return divmod(rank, self.cols)
        j, i = divmod(rank, self.rows)
        return i, j

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
