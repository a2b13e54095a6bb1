"""Work on a grid over m, n and k: every unit once, in the right place, with the bytes and within
the memory of the closed forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import everyone_of

from drbench.algorithms import get_algorithm
from drbench.errors import UsageError
from drbench.partitions import Grid, optimal_grid
from drbench.partitions.optimal_grids import held, moved
from drbench.plan.schedule import pool_bytes
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Gemm

UNIVERSAL = get_algorithm("universal")


def stored_once(grid, sizes, nprocs):
    return Problem(*sizes, nprocs, *[f"grid:{grid}"] * 3)


def resolved_traces(problem, in_place=True, **options):
    return everyone_of(UNIVERSAL, problem, UNIVERSAL.resolve(problem, in_place, **options))


def elements_moved(trace):
    return sum(n for step in trace.steps if step.counter for _, n in step.moved(trace.rank))


grids = st.builds(Grid, *[st.integers(1, 3)] * 3).filter(lambda grid: grid.size <= 12)
extents = st.integers(1, 13)


@settings(max_examples=40, deadline=None)
@given(grids, extents, extents, extents, st.integers(0, 2))
def test_stored_once_it_moves_as_many_bytes_as_the_closed_form(grid, m, n, k, idle):
    traces = resolved_traces(stored_once(grid, (m, n, k), grid.size + idle))
    assert max(map(elements_moved, traces)) == moved(grid, m, n, k)
    busy = [trace.flops for trace in traces]
    assert sum(busy) == 2 * m * n * k and not any(busy[grid.size :])


@pytest.mark.parametrize("stationary", "ABC")
def test_which_block_is_kept_changes_no_byte(stationary):
    problem = stored_once(Grid(2, 3, 2), (24, 36, 48), 13)
    traces = resolved_traces(problem, stationary=stationary, work="2x3x2", chunk=4)
    assert max(map(elements_moved, traces)) == moved(Grid(2, 3, 2), 24, 36, 48)


def test_a_term_of_c_is_added_once_and_nothing_where_k_is_whole():
    for grid in (Grid(2, 2, 2), Grid(2, 4, 1)):
        traces = resolved_traces(stored_once(grid, (64, 64, 4096), 8), in_place=False)
        for trace in traces:
            added = [step.block for step in trace.steps if type(step) is Accumulate]
            assert len(set(added)) == len(added) == (grid.k if grid.k > 1 else 0)
            assert sum(type(step) is Gemm for step in trace.steps) > 1


@pytest.mark.parametrize("ranks", [2, 4, 5, 8, 12])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (256, 256, 8192), (2048, 128, 512)])
def test_the_plan_needs_no_more_memory_than_the_formula_of_the_grid(ranks, sizes):
    grid = optimal_grid(*sizes, ranks)
    problem = stored_once(grid, sizes, ranks)
    for trace in resolved_traces(problem, in_place=False)[:: max(1, ranks // 3)]:
        own = sum(problem.tile_bytes(trace.rank).values())
        assert (own + pool_bytes(trace, 1)) // 4 <= held(grid, *sizes)


def test_little_memory_makes_c_whole_and_moves_more():
    sizes, ranks = (1024, 1024, 1024), 64
    wide = optimal_grid(*sizes, ranks)
    narrow = optimal_grid(*sizes, ranks, memory=held(Grid(8, 8, 1), *sizes))
    assert (wide, narrow.k) == (Grid(4, 4, 4), 1)
    assert moved(narrow, *sizes) > moved(wide, *sizes)


def test_a_layout_on_a_grid_is_multiplied_on_it_by_default():
    problem = stored_once(Grid(1, 2, 2), (8, 8, 8), 4)
    assert UNIVERSAL.resolve(problem)["work"] == "1x2x2"
    assert "work" not in UNIVERSAL.resolve(problem, work="own")
    assert "work" not in UNIVERSAL.resolve(problem, stationary="B")
    mixed = Problem(8, 8, 8, 4, "grid:1x2x2", "grid:1x2x2", "block")
    assert "work" not in UNIVERSAL.resolve(mixed)


@pytest.mark.parametrize(
    "text, words", [("2x2", "write three integers"), ("4x4x4", "needs 64 ranks")]
)
def test_an_impossible_grid_is_refused(text, words):
    with pytest.raises(UsageError, match=words):
        UNIVERSAL.resolve(Problem(8, 8, 8, 4), work=text)
