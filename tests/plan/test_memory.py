"""The arena plan: the values in it, their sizes and offsets. ``test_schedule.py`` checks that no
buffer is written while another one needs its memory, in any order of completion."""

from itertools import pairwise

import pytest
from arena import ITEM, plans_of
from oracles import any_case, traces_of
from virtual_time import CASES, MODES, programs

from drbench.plan.schedule import ALIGNMENT, Lookahead, buffer_elements, plan_arena
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get

DEPTHS = range(5)

cases = pytest.mark.parametrize("case", CASES)


@cases
@pytest.mark.parametrize("itemsize", [4, 8])
def test_offsets_are_aligned_and_inside_an_arena_no_larger_than_all_buffers(case, itemsize):
    traces = programs(case)
    for depth in DEPTHS:
        for trace in traces:
            plan = plan_arena(Lookahead(trace, depth), itemsize)
            every = 0
            for step in trace.steps:
                if buffer_elements(step, trace.rank):
                    assert plan.offsets[step.index] * itemsize % ALIGNMENT == 0
                    assert plan.offsets[step.index] + step.shape[0] * step.shape[1] <= plan.size
                    nbytes = step.shape[0] * step.shape[1] * itemsize
                    every += -(-nbytes // ALIGNMENT) * ALIGNMENT
            assert plan.size * itemsize <= every


@cases
def test_only_received_and_sent_values_need_memory(case):
    traces = programs(case)
    for in_place in MODES.values():
        for trace, plan in zip(traces, plans_of(traces, 1, in_place), strict=True):
            expected = set()
            for step in trace.steps:
                fetched = (
                    isinstance(step, Get)
                    and not in_place(trace, step)
                    and step.block.owner != trace.rank
                )
                if fetched or (type(step) is Gemm and step.block is None):
                    expected.add(step.index)
            assert set(plan.offsets) == expected


@pytest.mark.parametrize("case", ["misaligned B, chains", "misaligned A, chains"])
def test_gemms_onto_each_other_share_one_place(case):
    traces = programs(case)
    chained = 0
    for trace, plan in zip(traces, plans_of(traces, 1), strict=True):
        for step in trace.steps:
            if type(step) is Gemm and step.onto is not None:
                assert plan.offsets[step.index] == plan.offsets[step.onto.index]
                assert step.shape == step.onto.shape
                chained += 1
    assert chained


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pipeline_has_memory_for_the_operands_in_use_and_in_flight_only(depth):
    problem = Problem(64, 64, 1024, 4, "column", "column", "column")
    for trace in traces_of(problem, stationary="C", chunk=16):
        chunks = plan_arena(Lookahead(trace, depth), 4).size / (64 * 16)
        assert chunks <= depth + 2


@pytest.mark.parametrize("stationary", "ABC")
def test_a_longer_pipeline_needs_no_more_memory(stationary):
    sizes = []
    for length in (256, 512, 1024):
        extents = {"m": 64, "n": 64, "k": 64} | {{"A": "n", "B": "m", "C": "k"}[stationary]: length}
        problem = Problem(**extents, nprocs=4, a="block", b="block", c="block")
        traces = traces_of(problem, stationary=stationary, chunk=16)
        sizes.append(max(plan.size for plan in plans_of(traces, 1)))
    for shorter, longer in pairwise(sizes):
        assert longer <= shorter


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_memory_of_partial_sums_is_limited_by_the_look_ahead(depth):
    problem = Problem(1024, 64, 64, 4, "column", "row", "row")
    for trace in traces_of(problem, stationary="B", chunk=16):
        partials = plan_arena(Lookahead(trace, depth), 4).size / (16 * 64)
        # one computed, one accumulated for each Gemm ahead, one about to be
        assert partials <= depth + 3


def test_more_look_ahead_never_needs_less_memory():
    for case in CASES:
        traces = programs(case)
        for trace in traces:
            sizes = [plan_arena(Lookahead(trace, depth), ITEM).size for depth in DEPTHS]
            assert sizes == sorted(sizes)


@pytest.mark.parametrize("depth", DEPTHS)
def test_reading_tiles_in_place_never_needs_more_than_copying_them_all(depth):
    """Memory can then be checked before the transport is known."""
    for seed in range(30):
        problem, options = any_case(seed)
        for trace in traces_of(problem, **options):
            lookahead = Lookahead(trace, depth)
            announced = plan_arena(lookahead, ITEM).size
            for bits in (0b010101, 0b101010, 0b000111, 0b111111):
                views = (lambda bits: lambda block: bool(bits >> block.owner & 1))(bits)
                assert plan_arena(lookahead, ITEM, views).size <= announced
