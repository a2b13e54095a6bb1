"""Three-dimensional grids of ranks, over m, n and k at once, and the layouts on them.

Rank (i, j, l) of a grid PM×PN×PK multiplies block (i, l) of A with block (l, j) of B, which gives a
term of block (i, j) of C. Each matrix is stored once: a block is distributed to the ranks that
share it, of A and B along k, of C along m. Extents are divided by the ceiling rule (:func:`part`).
"""

import re
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from .arithmetic import part
from .axes import Axis, axis_of
from .errors import LayoutError, needs_role
from .intervals import Pair
from .partition import Partition
from .places import Places


class Grid(NamedTuple):
    """Numbers of parts of m, n and k; ranks are numbered with k fastest.

    Examples
    --------
    >>> grid = Grid(2, 3, 1)
    >>> str(grid), grid.size
    ('2x3x1', 6)
    """

    m: int
    n: int
    k: int

    @property
    def size(self) -> int:
        """Number of ranks that multiply."""
        return prod(self)

    def __str__(self) -> str:
        return "x".join(map(str, self))


def parse_grid(text: str) -> Grid:
    """Read a grid written as PMxPNxPK.

    Raises
    ------
    LayoutError
        If the text is something else, or an extent is 0.

    Examples
    --------
    >>> parse_grid("2x3x1")
    Grid(m=2, n=3, k=1)
    """
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", text.strip().lower())
    grid = Grid(*map(int, match.groups())) if match else None
    if grid is None or not grid.size:
        raise LayoutError(
            f"{text!r} is no grid of ranks over m, n and k; write three integers of at least 1, "
            "as 2x3x1"
        )
    return grid


@dataclass(frozen=True, slots=True)
class GridSpec:
    """A matrix stored once on a grid, A, B or C: the text form ``grid:PMxPNxPK``.

    Ranks beyond the grid hold nothing.

    Examples
    --------
    >>> str(GridSpec(Grid(2, 2, 1)))
    'grid:2x2x1'
    """

    grid: Grid

    def __str__(self) -> str:
        return f"grid:{self.grid}"

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply it to A, B or C.

        Parameters
        ----------
        shape : (int, int)
            Rows and columns of the matrix in elements.
        nprocs : int
            Number of ranks, at least those of the grid.
        role : {"A", "B", "C"}
            Which operand of C = A·B this is.

        Raises
        ------
        LayoutError
            If there is no role, or there are too few ranks.

        Examples
        --------
        Ranks 0 and 2 share the upper half of A; each has half of its columns, and rank 4 nothing:

        >>> p = GridSpec(Grid(2, 2, 1)).bind((8, 8), 5, "A")
        >>> [tuple(map(tuple, p.tile_bounds(p.tiles_of(rank)[0]))) for rank in (0, 1)]
        [((0, 4), (0, 4)), ((0, 4), (4, 8))]
        >>> p.local_shape(4)
        (0, 0)
        """
        if role not in _AXES:
            raise needs_role(str(self), role)
        return _partition(self.grid, role, shape, nprocs, str(self), once=True)


def work_on(grid: Grid, role: str, shape: Pair, nprocs: int) -> Partition:
    """The work distribution on a grid, as a layout of one matrix: its tiles are the blocks of the
    grid, with a replica for each part of the axis that the matrix lacks.

    Examples
    --------
    >>> p = work_on(Grid(1, 2, 2), "C", (8, 8), 4)
    >>> p.replicas, p.members(1), p.local_shape(0)
    (2, [1, 3], (8, 4))
    """
    return _partition(grid, role, shape, nprocs, f"work on {grid}", once=False)


#: The axes of a matrix's rows and columns, and the one it lacks.
_AXES = {"A": ("m", "k", "n"), "B": ("k", "n", "m"), "C": ("m", "n", "k")}


def _partition(grid: Grid, role: str, shape: Pair, nprocs: int, text: str, once: bool) -> Partition:
    """The partition of a matrix into the blocks of a grid. Ranks along the axis that it lacks have
    a replica each, or, if it is stored ``once``, each a part of their block."""
    if grid.size > nprocs:
        raise LayoutError(
            f"the grid {grid} needs {grid.size} ranks, got {nprocs}; use a smaller grid or "
            f"{grid.size} ranks"
        )
    # the difference in rank between neighbours along each axis
    strides, counts = {"m": grid.n * grid.k, "n": grid.k, "k": 1}, grid._asdict()
    *axes, lacks = _AXES[role]
    shared = ("m" if role == "C" else "k") if once else None  # the axis of a block that is divided
    sides: list[list[int]] = []
    cuts: list[Axis] = []
    for axis, extent in zip(axes, shape):
        count, shares = counts[axis], counts[lacks] if axis == shared else 1
        ranges: list = []
        ranks: list[int] = []
        for x in range(count):
            start, stop = part(extent, x, count)
            for y in range(shares):
                low, high = part(stop - start, y, shares)
                ranges.append([(start + low, start + high)] if low < high else [])
                ranks.append(x * strides[axis] + y * strides[lacks])
        cut, numbers = axis_of(extent, ranges)
        sides.append([ranks[x] for x in numbers])
        cuts.append(cut)
    (rows, cols), (down, right) = cuts, sides
    copies = [strides[lacks] * x for x in range(1 if once else counts[lacks])]
    return Partition.of(rows, cols, Places(down, right, copies, idle=nprocs - grid.size), text)
