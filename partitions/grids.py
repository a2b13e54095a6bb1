"""Three-dimensional grids of ranks, over m, n and k at once: the elements that a rank needs, the
grid with the fewest, and the lower bound of all schedules of the multiplication.

Rank (i, j, l) of a grid PM×PN×PK multiplies block (i, l) of A with block (l, j) of B, which gives a
term of block (i, j) of C. Each matrix is stored once: a block is dealt to the ranks that share it,
of A and B along k, of C along m. Extents are divided by the ceiling rule (:func:`part`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import NamedTuple

from .arithmetic import ceil_div, part
from .axes import Axis, axis_of
from .errors import LayoutError
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
    found = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", text.strip().lower())
    grid = Grid(*map(int, found.groups())) if found else None
    if grid is None or not grid.size:
        raise LayoutError(
            f"{text!r} is no grid of ranks over m, n and k; write three integers of at least 1, "
            "as 2x3x1"
        )
    return grid


def block(grid: Grid, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Extents of the largest rank's local GEMM along m, n and k.

    Examples
    --------
    >>> block(Grid(2, 3, 1), 8, 8, 8)
    (4, 3, 8)
    """
    x, y, z = map(ceil_div, (m, n, k), grid)
    return x, y, z


def needed(grid: Grid, m: int, n: int, k: int) -> int:
    """Elements that the busiest rank needs: its blocks of A and B and its terms of C, own ones
    included.

    Examples
    --------
    >>> needed(Grid(2, 2, 2), 8, 8, 8), needed(Grid(8, 1, 1), 8, 8, 8)
    (48, 80)
    """
    x, y, z = block(grid, m, n, k)
    return x * z + z * y + x * y


def moved(grid: Grid, m: int, n: int, k: int) -> int:
    """Elements that the busiest rank reads of A and B and adds to C on other ranks, each matrix
    stored once by the ranks of the grid (:class:`GridSpec`).

    Examples
    --------
    Half of each of its three blocks, and nothing of C where k is whole:

    >>> moved(Grid(2, 2, 2), 8, 8, 8), moved(Grid(2, 2, 1), 8, 8, 8)
    (24, 32)
    """
    most = 0
    for i, x in enumerate(_parts(m, grid.m)):
        for j, y in enumerate(_parts(n, grid.n)):
            for l, z in enumerate(_parts(k, grid.k)):
                if x and y and z:
                    a = x * (z - part(z, j, grid.n).extent)
                    b = (z - part(z, i, grid.m).extent) * y
                    c = (x - part(x, l, grid.k).extent) * y
                    most = max(most, a + b + c)
    return most


def held(grid: Grid, m: int, n: int, k: int) -> int:
    """Elements that the busiest rank holds: its share of the three matrices, its terms of C where k
    is divided, and two chunks of k of its blocks of A and B where it shares them and so receives
    them chunk by chunk: a 16th of its part each, or 256 elements.

    Examples
    --------
    >>> held(Grid(2, 2, 2), 8, 8, 8), held(Grid(1, 1, 4), 64, 64, 4096)
    (72, 136192)
    """
    x, y, z = block(grid, m, n, k)
    own = x * ceil_div(z, grid.n) + ceil_div(z, grid.m) * y + ceil_div(x, grid.k) * y
    terms = x * y if grid.k > 1 else 0
    passing = x * (grid.n > 1) + y * (grid.m > 1)
    return own + terms + min(2 * max(256, ceil_div(z, 16)), z) * passing


def optimal_grid(m: int, n: int, k: int, nprocs: int, memory: int | None = None) -> Grid:
    """The grid of up to ``nprocs`` ranks whose busiest rank needs the fewest elements.

    All grids without empty parts are examined. Of equal ones the one with the least work of the
    busiest rank, then that with the fewest ranks, that which moves least, that with the fewest
    parts of k, then of n. Ranks beyond the grid are idle: of 11 ranks 2x2x2 needs less than 11x1x1
    (:func:`frontier` has those with less work).

    Parameters
    ----------
    memory : int, optional
        Elements that fit into a rank's memory (:func:`held`).

    Raises
    ------
    LayoutError
        If no grid fits.

    Examples
    --------
    >>> [str(optimal_grid(4000, 4000, 4000, p)) for p in (2, 4, 8, 11)]
    ['2x1x1', '2x2x1', '2x2x2', '2x2x2']
    >>> str(optimal_grid(1 << 17, 512, 512, 16))
    '16x1x1'
    """
    found = _least(m, n, k, nprocs, memory, inf)
    if found is None:
        raise LayoutError(
            f"no grid of up to {nprocs} ranks multiplies {m}x{n}x{k} with memory for {memory} "
            "elements a rank. Use more ranks or memory."
        )
    return found


def frontier(m: int, n: int, k: int, nprocs: int, memory: int | None = None) -> list[Grid]:
    """The Pareto-optimal grids: no other needs as few elements with less work of the busiest rank.
    The first is :func:`optimal_grid`; the following ones need more elements and multiply less, the
    last the least of all.

    Raises
    ------
    LayoutError
        If no grid fits.

    Examples
    --------
    Of 11 ranks one may be idle, or three:

    >>> [str(grid) for grid in frontier(4000, 4000, 4000, 11)]
    ['2x2x2', '3x1x3', '5x2x1', '11x1x1']
    """
    found: list[Grid] = []
    grid: Grid | None = optimal_grid(m, n, k, nprocs, memory)
    while grid is not None:
        found.append(grid)
        grid = _least(m, n, k, nprocs, memory, prod(block(grid, m, n, k)) - 1)
    return found


def _least(m: int, n: int, k: int, nprocs: int, memory: int | None, work: float) -> Grid | None:
    """The grid that needs fewest elements of those whose busiest rank has at most a number of
    multiply-adds; None if no grid has."""
    if min(m, n, k, nprocs) < 1:
        raise LayoutError(f"{m}x{n}x{k} on {nprocs} ranks is no multiplication; use at least 1")
    best: list[Grid] = []
    least = None
    for grid in _candidates(m, n, k, nprocs):
        x, y, z = block(grid, m, n, k)
        rank = x * z + z * y + x * y, x * y * z, grid.size
        if least is not None and rank > least:
            continue
        if memory is not None and held(grid, m, n, k) > memory:
            continue
        if x * y * z > work:
            continue
        best, least = [*(best if rank == least else ()), grid], rank
    if not best:
        return None
    if len(best) == 1:
        return best[0]
    return min(best, key=lambda grid: (moved(grid, m, n, k), grid[::-1]))


def io_bound(m: int, n: int, k: int, nprocs: int, memory: int | None = None) -> float:
    """Elements of A, B and C that some rank needs, its own ones included, with any schedule.

    The larger of two lower bounds, V = mnk / p being a rank's share of the multiply-adds:

    - 2V / √s + s with s = min(S, V^(2/3)), for a memory of S elements a rank; with enough memory it
      is 3 V^(2/3). (Kwasniewski, Kabić, Besta, VandeVondele, Solcà, Hoefler, "Red-Blue Pebbling
      Revisited", SC'19, Theorem 2: a rank's multiply-adds are a cuboid on a base of s terms of C.)
    - without regard to memory, with d1 ≥ d2 ≥ d3 the extents in falling order, which a cuboid of
      few ranks cannot exceed: (d1·d2 + d1·d3) / p + d2·d3 for p ≤ d1 / d2, 2 √(d1·d2·d3² / p) +
      d1·d2 / p for p ≤ d1·d2 / d3², else 3 V^(2/3). (Al Daas, Ballard, Grigori, Kumar, Rouse,
      "Tight Memory-Independent Parallel Matrix Multiplication Communication Lower Bounds",
      SPAA'22, Theorem 3.)

    Raises
    ------
    LayoutError
        If the three matrices, stored once, do not fit into all ranks' memory.

    Examples
    --------
    >>> [round(io_bound(m, 512, 512, 8)) for m in (512, 1 << 17)]
    [196608, 17039360]
    >>> [round(io_bound(1024, 1024, 1024, 64, memory)) for memory in (None, 3 << 14)]
    [196608, 200501]
    """
    if memory is not None and memory * nprocs < m * k + k * n + m * n:
        raise LayoutError(
            f"A, B and C of {m}x{n}x{k} do not fit into {memory} elements on each of {nprocs} ranks"
            f"; use at least {ceil_div(m * k + k * n + m * n, nprocs)} elements a rank"
        )
    share = m * n * k / nprocs
    cube = share ** (2 / 3)
    base = cube if memory is None else min(memory, cube)
    d1, d2, d3 = sorted((m, n, k), reverse=True)
    if nprocs * d2 <= d1:
        shape = d1 * (d2 + d3) / nprocs + d2 * d3
    elif nprocs * d3**2 <= d1 * d2:
        shape = 2 * (d1 * d2 * d3**2 / nprocs) ** 0.5 + d1 * d2 / nprocs
    else:
        shape = 3 * cube
    return float(max(2 * share / base**0.5 + base, shape))


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
            raise LayoutError(
                f"{self} cuts A, B and C differently and got role {role!r};"
                f' pass role="A", "B" or "C"'
            )
        rows, cols, lacks = _AXES[role]
        within = {"m" if role == "C" else "k": lacks}
        return _laid(self.grid, shape, nprocs, (rows, cols), within, str(self))


def work_on(grid: Grid, role: str, shape: Pair, nprocs: int) -> Partition:
    """The work distribution on a grid, as a layout of one matrix: its tiles are the blocks of the
    grid, with a replica for each part of the axis that the matrix lacks.

    Examples
    --------
    >>> p = work_on(Grid(1, 2, 2), "C", (8, 8), 4)
    >>> p.replicas, p.members(1), p.local_shape(0)
    (2, [1, 3], (8, 4))
    """
    rows, cols, lacks = _AXES[role]
    stride, parts = _strides(grid)[lacks], getattr(grid, lacks)
    copies = range(0, stride * parts, stride)
    return _laid(grid, shape, nprocs, (rows, cols), {}, f"work on {grid}", copies)


#: The axes of a matrix's rows and columns, and the one it lacks.
_AXES = {"A": ("m", "k", "n"), "B": ("k", "n", "m"), "C": ("m", "n", "k")}


def _strides(grid: Grid) -> dict[str, int]:
    """The stride of each axis: the difference in rank between neighbouring coordinates."""
    return {"m": grid.n * grid.k, "n": grid.k, "k": 1}


def _laid(
    grid: Grid,
    shape: Pair,
    nprocs: int,
    axes: tuple[str, str],
    within: dict[str, str],
    text: str,
    copies: range = range(1),
) -> Partition:
    """The partition whose rows and columns are divided along these axes, each part of an axis of
    ``within`` again along that one."""
    if grid.size > nprocs:
        raise LayoutError(
            f"the grid {grid} needs {grid.size} ranks, got {nprocs}; use a smaller grid or "
            f"{grid.size} ranks"
        )
    strides = _strides(grid)
    sides: list[list[int]] = []
    cuts: list[Axis] = []
    for axis, extent in zip(axes, shape):
        inner = within.get(axis)
        held: list = []
        ranks: list[int] = []
        for x in range(getattr(grid, axis)):
            start, stop = part(extent, x, getattr(grid, axis))
            for y in range(getattr(grid, inner) if inner else 1):
                low, high = (
                    part(stop - start, y, getattr(grid, inner)) if inner else (0, stop - start)
                )
                held.append([(start + low, start + high)] if low < high else [])
                ranks.append(x * strides[axis] + (y * strides[inner] if inner else 0))
        cut, numbers = axis_of(extent, held)
        sides.append([ranks[x] for x in numbers])
        cuts.append(cut)
    (rows, cols), (down, right) = cuts, sides
    return Partition.of(rows, cols, Places(down, right, copies, idle=nprocs - grid.size), text)


def _candidates(m: int, n: int, k: int, nprocs: int) -> Iterator[Grid]:
    """All grids that may be best: for each number of parts of m and n those with k whole, and those
    with most parts of k; no part without elements."""
    for pm in _counts(m, nprocs):
        for pn in _counts(n, nprocs // pm):
            yield Grid(pm, pn, 1)
            most = min(k, nprocs // (pm * pn))
            if most > 1:
                yield Grid(pm, pn, ceil_div(k, ceil_div(k, most)))


def _counts(extent: int, most: int) -> Iterator[int]:
    """Numbers of parts of an extent by the ceiling rule, each with another size."""
    last = 0
    for parts in range(1, min(extent, most) + 1):
        size = ceil_div(extent, parts)
        if size != last:
            last = size
            yield parts


def _parts(extent: int, parts: int) -> list[int]:
    return [part(extent, x, parts).extent for x in range(parts)]
