"""The integers under every layout: the formulas of one dimension, and process grids, which arrange
the ranks of one replica in rows and columns.

A two-dimensional partition is two independent one-dimensional ones, so each
formula of the package is stated once, here, for one dimension.
"""

from dataclasses import dataclass
from math import isqrt

from .errors import LayoutError
from .intervals import Interval, intersect


def ceil_div(x: int, y: int) -> int:
    """Return ⌈x / y⌉ for ``y >= 1``.

    Examples
    --------
    >>> ceil_div(10, 4), ceil_div(8, 4), ceil_div(0, 4)
    (3, 2, 0)
    """
    return -(-x // y)


def part(extent: int, index: int, parts: int) -> Interval:
    """Return one of ``parts`` equal pieces of ``[0, extent)``, cut by the ceiling rule.

    Piece q is ``[q·⌈D/c⌉, min(D, (q+1)·⌈D/c⌉))``: the pieces are in order, the last
    ones may be short or empty. Replica q of a stationary matrix does this part of
    its free dimension; DTensor's ``Shard`` (``torch.chunk``) cuts the same way.

    Parameters
    ----------
    extent : int
        Length D of the dimension in elements, ``extent >= 0``.
    index : int
        Which piece, ``0 <= index < parts``.
    parts : int
        Number of pieces c, ``parts >= 1``.

    Raises
    ------
    LayoutError
        If an argument is out of its range.

    Examples
    --------
    >>> [tuple(part(10, q, 4)) for q in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]

    Four pieces of nine elements are three of three, and an empty one:

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


def local_extent(n: int, block: int, position: int, nprocs: int) -> int:
    """Count the elements of one block-cyclic dimension that one process owns.

    Parameters
    ----------
    n : int
        Global extent in elements, ``n >= 0``.
    block : int
        Tile extent in elements, ``block >= 1``; the last tile may be short.
    position : int
        Process coordinate, ``0 <= position < nprocs``.
    nprocs : int
        Processes along this dimension of the process grid.

    Raises
    ------
    LayoutError
        If ``n < 0``, ``block < 1`` or ``position`` is not on the grid.

    Notes
    -----
    ScaLAPACK's NUMROC with ISRCPROC = 0.

    Examples
    --------
    Ten elements in tiles of 3 (3, 3, 3, 1) dealt to two processes:

    >>> [local_extent(10, 3, p, 2) for p in range(2)]
    [6, 4]
    """
    if n < 0 or block < 1 or not 0 <= position < nprocs:
        raise LayoutError(
            f"{n} elements in tiles of {block} for process {position} of {nprocs} is no layout;"
            f" it needs n >= 0, block >= 1 and 0 <= position < nprocs"
        )
    whole_tiles, tail = divmod(n, block)
    rounds, turn = divmod(whole_tiles, nprocs)  # `turn` is who the short tile is dealt to
    if position < turn:
        return (rounds + 1) * block
    return rounds * block + (tail if position == turn else 0)


def cuts(start: int, stop: int, tile: int, extent: int) -> list[int]:
    """Cut ``[start, stop)``, clipped to ``[0, extent)``, at the tile boundaries inside it.

    Returns the start, every multiple of ``tile`` strictly inside, and the stop;
    ``[]`` when nothing is left. O(result).

    Examples
    --------
    >>> cuts(2, 9, 3, 10)
    [2, 3, 6, 9]
    >>> cuts(4, 5, 3, 10), cuts(5, 5, 3, 10)
    ([4, 5], [])
    """
    if start < 0:
        start = 0
    if stop > extent:
        stop = extent
    if stop <= start:
        return []
    return [start, *range((start // tile + 1) * tile, stop, tile), stop]


def covering(start: int, stop: int, tile: int, extent: int) -> range:
    """Return the indices of the tiles that ``[start, stop)``, clipped to ``[0, extent)``, touches.

    Examples
    --------
    >>> covering(2, 9, 3, 10)
    range(0, 3)
    >>> len(covering(12, 20, 3, 10))
    0
    """
    start, stop = intersect((start, stop), (0, extent))
    return range(start // tile, ceil_div(stop, tile)) if start < stop else range(0)


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
