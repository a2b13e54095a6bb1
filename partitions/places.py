"""The ranks of a partition's (row, column, replica) coordinates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from .arithmetic import ProcessGrid
from .errors import LayoutError


@dataclass(frozen=True, slots=True)
class Places:
    """A placement of coordinates on ranks: that of number rows[i] + cols[j] + replicas[q].

    Any mesh whose ranks are row-major has this form, whichever of its dimensions divide rows,
    divide columns or copy, in any order.

    Parameters
    ----------
    rows, cols, replicas : sequence of int
        The term of each coordinate in the number; regular ones are stored as a ``range``.
    terms : tuple of int
        For each replica the number of its term of a pending sum (DTensor's Partial); empty if every
        replica is the matrix.
    idle : int
        Number of further ranks that hold nothing.
    ranks : tuple of int
        The rank of each number; empty where they are equal.

    Raises
    ------
    LayoutError
        If two coordinates have one number, or some number none.

    Examples
    --------
    Rows along the first dimension of a 2x3 mesh, copies along the second:

    >>> places = mesh_places([(2, "rows"), (3, "copies")])
    >>> places.rows, list(places.replicas), places.coords(4)
    (range(0, 6, 3), [0, 1, 2], (1, 0, 1))
    """

    rows: Sequence[int]
    cols: Sequence[int]
    replicas: Sequence[int]
    terms: tuple[int, ...] = ()
    idle: int = 0
    ranks: tuple[int, ...] = ()
    nprocs: int = field(init=False, compare=False)
    _coords: dict = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        put = object.__setattr__
        sides = [regular(getattr(self, name)) for name in ("rows", "cols", "replicas")]
        for name, side in zip(("rows", "cols", "replicas"), sides):
            put(self, name, side)
        put(self, "nprocs", prod(map(len, sides)) + self.idle)
        put(self, "terms", self.terms if any(self.terms) else ())
        put(self, "ranks", () if self.ranks == tuple(range(self.holders)) else self.ranks)
        put(self, "_coords", {})
        if self.holders and (self.ranks or not _mixed_radix(sides)):
            self._list()

    def _list(self) -> None:
        """Coordinates by rank, one by one."""
        numbers = {}
        for i, row in enumerate(self.rows):
            for j, col in enumerate(self.cols):
                for q, copy in enumerate(self.replicas):
                    numbers[row + col + copy] = i, j, q
        self._coords.update((self.numbered(number), place) for number, place in numbers.items())
        if sorted(numbers) != list(range(self.holders)):
            raise LayoutError(
                f"{len(self.rows)}x{len(self.cols)} coordinates of {len(self.replicas)} replicas "
                f"do not use ranks 0 to {self.holders - 1}, one on each"
            )

    @property
    def holders(self) -> int:
        """Number of ranks that have coordinates; the others are idle."""
        return self.nprocs - self.idle

    @property
    def active(self) -> Sequence[int]:
        """The ranks that have coordinates."""
        return self.ranks or range(self.holders)

    def numbered(self, number: int) -> int:
        """The rank of a number."""
        return self.ranks[number] if self.ranks else number

    def holds(self, rank: int) -> bool:
        """Whether a rank has coordinates."""
        return rank in self._coords if self.ranks else rank < self.holders

    def rank(self, row: int, col: int, replica: int = 0) -> int:
        """The rank at a row coordinate, a column coordinate and a replica."""
        return self.numbered(self.rows[row] + self.cols[col] + self.replicas[replica])

    def coords(self, rank: int) -> tuple[int, int, int]:
        """(row, column, replica) of a rank."""
        if self._coords:
            return self._coords[rank]
        rows, cols, replicas = self.rows, self.cols, self.replicas
        return (
            rank // rows.step % len(rows),  # type: ignore[attr-defined]  # ranges
            rank // cols.step % len(cols),  # type: ignore[attr-defined]
            rank // replicas.step % len(replicas),  # type: ignore[attr-defined]
        )

    def transposed(self) -> "Places":
        """The same ranks, with rows and columns exchanged."""
        return replace(self, rows=self.cols, cols=self.rows)

    def renumbered(self, rows: list[int], cols: list[int]) -> "Places":
        """The places whose coordinate x of an axis was coordinate ``rows[x]`` or ``cols[x]``."""
        old = self.rows, self.cols
        rows, cols = ([side[x] for x in new] for side, new in zip(old, (rows, cols)))
        return replace(self, rows=rows, cols=cols)

    @property
    def grid(self) -> ProcessGrid | None:
        """The process grid of a replica, if replicas are contiguous ranks and their ranks fill a
        grid by rows or by columns; else None."""
        rows, cols = len(self.rows), len(self.cols)
        for order in ("row", "col"):
            grid = ProcessGrid(rows, cols, order)
            if grid_places(grid, len(self.replicas), self.terms) == self:
                return grid
        return None


def grid_places(grid: ProcessGrid, replicas: int = 1, terms: tuple[int, ...] = ()) -> Places:
    """Contiguous ranks form a replica, each on a process grid."""
    down, right = (grid.cols, 1) if grid.order == "row" else (1, grid.rows)
    size = grid.size
    return Places(
        range(0, grid.rows * down, down),
        range(0, grid.cols * right, right),
        range(0, replicas * size, size),
        terms,
    )


def mesh_places(dimensions: Iterable[tuple[int, str]]) -> Places:
    """The places of a mesh with row-major ranks.

    Parameters
    ----------
    dimensions : list of (extent, role)
        Outermost first. A role is ``rows`` or ``cols``, which are divided, ``copies``, or ``terms``
        of a pending sum. Coordinates along rows, columns and replicas count the dimensions of
        their role in the same order.
    """
    sides: dict[str, list[int]] = {role: [0] for role in ("rows", "cols", "replicas")}
    terms = [0]
    dimensions = list(dimensions)
    stride = prod(extent for extent, _ in dimensions)
    for extent, role in dimensions:
        stride //= extent
        side = role if role in sides else "replicas"
        sides[side] = [x + y * stride for x in sides[side] for y in range(extent)]
        if side == "replicas":
            of_terms = role == "terms"
            terms = [t * extent + y if of_terms else t for t in terms for y in range(extent)]
    rows, cols, replicas = sides.values()
    return Places(rows, cols, replicas, tuple(terms))


def regular(values: Sequence[int]) -> Sequence[int]:
    """The normal form of a sequence: a range if its values are 0, s, 2s, …, otherwise a tuple.
    Equal sequences have equal normal forms."""
    if len(values) < 2:
        return range(values[0], values[0] + 1) if len(values) else ()
    step = values[1] - values[0]
    if values[0] == 0 and step > 0:
        regular = range(0, step * len(values), step)
        if type(values) is range or all(x == y for x, y in zip(values, regular)):
            return regular
    return tuple(values)


def _mixed_radix(sides: list[Sequence[int]]) -> bool:
    """Whether three ranges of ranks are the digits of one mixed-radix number."""
    ranges = [side for side in sides if isinstance(side, range) and side[0] == 0]
    if len(ranges) < len(sides):
        return False
    stride = 1
    for step, count in sorted((side.step, len(side)) for side in ranges if len(side) > 1):
        if step != stride:
            return False
        stride *= count
    return True
