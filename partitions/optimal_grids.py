"""The grid over m, n and k with which a multiplication needs the fewest elements (the optimiser of
COSMA): for preset ``optimal``, and the trades of elements for work that tuning tries."""

from collections.abc import Iterator
from math import inf, prod

from .arithmetic import ceil_div, part
from .errors import LayoutError
from .grids import Grid


def block(grid: Grid, m: int, n: int, k: int) -> tuple[int, int, int]:
    """Extents of the largest rank's local GEMM along m, n and k.

    Examples
    --------
    >>> block(Grid(2, 3, 1), 8, 8, 8)
    (4, 3, 8)
    """
    x, y, z = map(ceil_div, (m, n, k), grid)
    return x, y, z


def moved(grid: Grid, m: int, n: int, k: int) -> int:
    """Elements that the busiest rank reads of A and B and adds to C on other ranks, each matrix
    stored once by the ranks of the grid (:class:`.grids.GridSpec`).

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
    grid = _least(m, n, k, nprocs, memory, inf)
    if grid is None:
        raise LayoutError(
            f"no grid of up to {nprocs} ranks multiplies {m}x{n}x{k} with memory for {memory} "
            "elements a rank. Use more ranks or memory."
        )
    return grid


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
    grids: list[Grid] = []
    grid: Grid | None = optimal_grid(m, n, k, nprocs, memory)
    while grid is not None:
        grids.append(grid)
        grid = _least(m, n, k, nprocs, memory, prod(block(grid, m, n, k)) - 1)
    return grids


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
