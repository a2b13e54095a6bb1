"""Grids over m, n and k: the optimal one compared with all of them, with the lower bounds, and with
the strategies that COSMA prints."""

import itertools
from math import ceil, inf, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import elements_of

from drbench.model.bounds import io_bound
from drbench.partitions import (
    Grid,
    LayoutError,
    frontier,
    optimal_grid,
    parse_grid,
    part,
    partition,
)
from drbench.partitions.optimal_grids import held, moved

SHAPES = {
    "square": (4096, 4096, 4096),
    "tall": (1 << 17, 512, 512),
    "flat": (8192, 8192, 256),
    "large k": (512, 512, 1 << 17),
}
#: Output of cosma_statistics of COSMA 2.8.4 for these shapes with COSMA_MIN_LOCAL_DIMENSION=1:
#: its parallel splits of m, n and k multiplied, by number of ranks that are no primes.
COSMA = {
    "square": {6: "1x2x3", 12: "2x2x3", 60: "3x4x5", 96: "4x4x6", 512: "8x8x8", 2048: "8x16x16"},
    "tall": {256: "256x1x1", 512: "256x1x2", 2048: "512x2x2"},
    "flat": {6: "2x3x1", 36: "6x6x1", 96: "8x12x1", 2048: "32x32x2"},
    "large k": {64: "1x1x64", 512: "1x1x512"},
}
extents, small = st.integers(1, 40), st.integers(1, 14)


def needed(grid, m, n, k):
    """Elements that the busiest rank of a grid needs, its own ones included."""
    x, y, z = (ceil(extent / parts) for extent, parts in zip((m, n, k), grid))
    return x * z + z * y + x * y


def sets_of(grid, m, n, k, rank):
    """The elements of A, B and C that a rank's GEMM reads or writes, one by one."""
    if rank >= grid.size:
        return set(), set(), set()
    i, j, l = rank // (grid.n * grid.k), rank // grid.k % grid.n, rank % grid.k
    mine = [range(*part(extent, x, parts)) for extent, x, parts in zip((m, n, k), (i, j, l), grid)]
    rows, cols, inner = mine
    if not prod(map(len, mine)):
        return set(), set(), set()
    return (
        set(itertools.product(rows, inner)),
        set(itertools.product(inner, cols)),
        set(itertools.product(rows, cols)),
    )


@given(extents, extents, extents, st.integers(1, 24))
def test_no_grid_needs_less(m, n, k, nprocs):
    best = optimal_grid(m, n, k, nprocs)
    assert best.size <= nprocs
    counts = range(1, nprocs + 1)
    every = [grid for grid in itertools.product(counts, repeat=3) if prod(grid) <= nprocs]
    assert needed(best, m, n, k) == min(needed(grid, m, n, k) for grid in every)


@settings(max_examples=30)
@given(st.data(), small, small, small, st.integers(1, 12), st.integers(0, 2))
def test_each_element_is_stored_once_by_a_rank_that_needs_it_and_moves_are_counted(
    data, m, n, k, ranks, idle
):
    grids = [g for g in itertools.product(range(1, ranks + 1), repeat=3) if prod(g) == ranks]
    grid = Grid(*data.draw(st.sampled_from(grids)))
    shapes, nprocs = {"A": (m, k), "B": (k, n), "C": (m, n)}, ranks + idle
    parts = {name: partition(f"grid:{grid}", shape, nprocs, name) for name, shape in shapes.items()}
    needs, moves, seen = 0, 0, dict.fromkeys(shapes, ())
    for rank in range(nprocs):
        touched = dict(zip(shapes, sets_of(grid, m, n, k, rank)))
        own = {name: elements_of(parts[name], rank) for name in shapes}
        for name in shapes:
            seen[name] += tuple(own[name])
            if all(map(len, touched.values())):
                assert own[name] <= touched[name], (name, rank)
        needs = max(needs, sum(map(len, touched.values())))
        moves = max(moves, sum(len(touched[name] - own[name]) for name in shapes))
    for name, shape in shapes.items():
        assert sorted(seen[name]) == sorted(itertools.product(*map(range, shape)))
    assert (needs, moves) == (needed(grid, m, n, k), moved(grid, m, n, k))


@given(extents, extents, extents, st.integers(1, 64), st.none() | st.integers(1, 4000))
def test_nothing_is_below_the_bound(m, n, k, nprocs, memory):
    try:
        grid = optimal_grid(m, n, k, nprocs, memory)
    except LayoutError:
        assert memory is not None
        return
    bound = io_bound(m, n, k, nprocs, memory)
    assert needed(grid, m, n, k) >= bound * (1 - 1e-12)
    assert bound >= (m * k + k * n + m * n) / nprocs * (1 - 1e-12)
    assert memory is None or held(grid, m, n, k) <= memory


@settings(max_examples=30)
@given(extents, extents, extents, st.integers(1, 64))
def test_the_bound_is_the_least_cuboid_that_fits(m, n, k, nprocs):
    """Of cuboids with real edges no longer than the extents, and a rank's share of m·n·k."""
    share, found = m * n * k / nprocs, []
    steps = [m * 0.98**e for e in range(400)]
    for x in [*steps, share / n / k]:
        for y in (
            n,
            (share / x) ** 0.5,
            share / x / k,
        ):  # least at an end or with equal edges
            z = share / x / y
            if y <= n * (1 + 1e-9) and z <= k * (1 + 1e-9):
                found.append(x * y + y * z + x * z)
    assert io_bound(m, n, k, nprocs) == pytest.approx(min(found), rel=5e-3)


def test_the_bound_of_little_memory_is_that_of_the_paper():
    m = n = k = 1024
    for nprocs, memory in ((64, 1 << 16), (16, 3 << 16), (64, 1 << 20)):
        share = m * n * k / nprocs
        wide = memory >= share ** (2 / 3)
        paper = 3 * share ** (2 / 3) if wide else 2 * share / memory**0.5 + memory
        assert io_bound(m, n, k, nprocs, memory) == pytest.approx(paper)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_number_of_ranks_is_within_three_tenths_of_the_bound(shape):
    ratios = {
        p: needed(optimal_grid(*shape, p), *shape) / io_bound(*shape, p) for p in range(1, 129)
    }
    assert max(ratios.values()) <= 1.3, {p: r for p, r in ratios.items() if r > 1.3}


@pytest.mark.parametrize("shape", COSMA)
def test_cosma_moves_no_fewer_elements_with_its_own_memory_either(shape):
    """Its first buffers, and for each split the copies of the matrix that is not split."""
    sizes = SHAPES[shape]
    for nprocs, text in COSMA[shape].items():
        theirs = parse_grid(text)
        x, y, z = (ceil(extent / parts) for extent, parts in zip(sizes, theirs))
        copies = (x * z) * (theirs.n > 1) + (z * y) * (theirs.m > 1) + (x * y) * (theirs.k > 1)
        own = x * ceil(z / theirs.n) + ceil(z / theirs.m) * y + ceil(x / theirs.k) * y
        free, tight = (optimal_grid(*sizes, nprocs, memory) for memory in (None, own + copies))
        assert needed(free, *sizes) <= needed(theirs, *sizes), (nprocs, free)
        for ours in (free, tight):
            assert moved(ours, *sizes) <= moved(theirs, *sizes), (nprocs, ours, text)


@given(extents, extents, extents, st.integers(1, 16), st.none() | st.integers(100, 4000))
def test_the_frontier_is_every_trade_of_elements_for_work(m, n, k, nprocs, memory):
    """Compared with all grids without empty parts, pair by pair."""
    of = lambda extent: [x for x in range(1, nprocs + 1) if ceil(extent / ceil(extent / x)) == x]
    grids = itertools.product(*map(of, (m, n, k)))
    every = [Grid(*grid) for grid in grids if prod(grid) <= nprocs]
    fit = [grid for grid in every if memory is None or held(grid, m, n, k) <= memory]
    work = lambda grid: prod(map(ceil, (m / grid.m, n / grid.n, k / grid.k)))
    ranks = {(needed(grid, m, n, k), work(grid)) for grid in fit}
    best = {a for a in ranks if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in ranks)}
    if not best:
        with pytest.raises(LayoutError):
            frontier(m, n, k, nprocs, memory)
        return
    found = frontier(m, n, k, nprocs, memory)
    assert [(needed(grid, m, n, k), work(grid)) for grid in found] == sorted(best)
    assert found[0] == optimal_grid(m, n, k, nprocs, memory)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_powers_of_two_up_to_4096_ranks_are_within_a_tenth_of_the_bound_for_every_shape(shape):
    for power in range(1, 13):
        grid = optimal_grid(*shape, 1 << power)
        ratio = needed(grid, *shape) / io_bound(*shape, 1 << power)
        assert 1 <= ratio <= 1.1, (power, grid, ratio)


def test_texts_are_read_or_refused():
    assert parse_grid(" 2X3x1 ") == (2, 3, 1)
    for text in ("2x3", "2x3x0", "axbxc", ""):
        with pytest.raises(LayoutError, match="write three integers"):
            parse_grid(text)
    with pytest.raises(LayoutError, match="Use more ranks or memory"):
        optimal_grid(64, 64, 64, 4, memory=100)
    assert io_bound(64, 64, 64, 4, memory=100) == inf
    with pytest.raises(LayoutError, match="at least 1"):
        optimal_grid(64, 0, 64, 4)
