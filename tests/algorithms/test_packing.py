"""GEMMs of packed operands: the same work, however it is cut and whichever axis is outermost."""

import itertools
from dataclasses import fields, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import layouts

from drbench.algorithms import get_algorithm
from drbench.algorithms.universal.distribution import own_first_balances, result_is_local
from drbench.algorithms.universal.footprint import Footprint
from drbench.algorithms.universal.packed import multiply_packed, packed_gemms
from drbench.algorithms.universal.packing import CORES, Packing, choose_packing
from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_planning_model
from drbench.launch.models.predict import predict_with, programs_of
from drbench.model.costs import step_cost
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.plan.explain import traffic
from drbench.plan.schedule import pool_bytes
from drbench.program.problem import Problem
from drbench.program.steps import (
    Copy,
    FilledScratch,
    Gemm,
    Get,
    Pack,
    Scratch,
)
from drbench.program.trace import trace

universal = get_algorithm("universal")


@st.composite
def problems(draw, m=7, n=6, k=8, most_tiles=4):
    nprocs = draw(st.sampled_from([1, 2, 3, 4, 6]))
    abc = [draw(layouts(shape, nprocs, most_tiles)) for shape in ((m, k), (k, n), (m, n))]
    return Problem(m, n, k, nprocs, *abc)


@pytest.mark.parametrize("transpose", ["a", "b", "ab"])
@pytest.mark.parametrize("stationary", "ABC")
def test_panels_are_stored_as_their_matrix(transpose, stationary):
    problem = Problem(9, 8, 10, 4, "tiles:4x3", "tiles:3x4", "tiles:2x5", transpose=transpose)
    steps = universal.trace(problem, 0, stationary=stationary, pack="always").steps
    panels = {step.like: step.transposed for step in steps if type(step) is Scratch}
    assert panels == {name: name.lower() in transpose for name in panels} and panels


@pytest.mark.parametrize("outer", "mnk")
@pytest.mark.parametrize("stationary", "AB")
def test_where_gemms_for_own_tiles_come_first_every_rank_with_work_has_one(stationary, outer):
    """The Fence after them is then among the GEMMs of every such rank, once."""
    seen = 0
    texts = ["row", "column", "block", "tiles:3x2", "grid:1x1x1", "grid:2x1x1", "grid:1x2x1"]
    for a, b, c in itertools.product(texts[:4], texts[:4], texts):
        problem = Problem(8, 6, 8, 4, a, b, c)
        if result_is_local(problem, stationary) or not own_first_balances(problem, stationary):
            continue
        for rank in range(4):
            share = Footprint(problem, rank, stationary)
            groups = {axis: [[each] for each in share.cut(axis)] for axis in "mnk"}
            rounds = packed_gemms(share, Packing(groups, outer), own_first=True)
            fences = sum(gemm.fence for gemms in rounds for gemm in gemms)
            assert fences == 1, (problem, rank)
            seen += 1
    assert seen


# -- when
# ------------------------------------------------------------------------------------------

MISALIGNED = ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block")
CYCLIC = ("tiles:1000x900", "tiles:700x1100", "tiles:1300x512")


def gemms(trace):
    return sum(type(step) is Gemm for step in trace.steps)


@pytest.mark.parametrize("texts", [MISALIGNED, CYCLIC])
@pytest.mark.parametrize("stationary", "ABC")
def test_misaligned_tiles_are_packed_on_cores(texts, stationary):
    problem = Problem(4096, 4096, 4096, 2, *texts)
    for rank in range(2):
        plain, found = (
            universal.trace(problem, rank, stationary=stationary, pack=how, machine=CORES)
            for how in ("never", "auto")
        )
        assert gemms(found) < gemms(plain) / 4 and found.flops == plain.flops
        moved = [sum(traffic(each).counters.values()) for each in (found, plain)]
        assert moved[0] <= moved[1]


@pytest.mark.parametrize(
    "sizes, texts, stationary",
    [
        ((512, 512, 32768), ("block", "block", "tiles:1000x900"), "C"),
        ((8192, 8192, 512), ("block", "tiles:1000x900", "block"), "A"),
    ],
)
def test_packed_operands_take_less_than_twice_the_memory_of_a_ranks_tiles(sizes, texts, stationary):
    problem = Problem(*sizes, 8, *texts)
    trace = universal.trace(problem, 0, stationary=stationary, machine=CORES)
    tiles = sum(each.partition.local_size(0) for each in problem.operands)
    assert 0 < pool_bytes(trace, 1, lambda value: True) < 2 * 4 * tiles


@pytest.mark.parametrize("text", ["row", "column", "block"])
@pytest.mark.parametrize("stationary", "C")
def test_aligned_tiles_are_not_packed(text, stationary):
    problem = Problem(4096, 4096, 4096, 2, text, text, text)
    trace = universal.trace(problem, 0, stationary=stationary, machine=CORES)
    assert not any(type(step) is FilledScratch for step in trace.steps)


def test_halves_of_m_for_two_owners_are_one_gemm():
    problem = Problem(1024, 8192, 2048, 2, "row", "row", "row")
    trace = universal.trace(problem, 0, stationary="B", machine=CORES)
    (gemm,) = (step for step in trace.steps if type(step) is Gemm)
    assert gemm.extents == (1024, 8192, 1024)


@pytest.mark.parametrize("how", ["auto", "never"])
def test_nothing_is_packed_without_cores(how):
    problem = Problem(4096, 4096, 4096, 2, *CYCLIC)
    gpu = Machine("gpu", CORES.compute)
    for machine in (None, gpu):
        trace = universal.trace(problem, 0, stationary="C", pack=how, machine=machine)
        assert not trace.panel_bytes
    assert universal.trace(problem, 0, pack="always", machine=gpu).panel_bytes


class SlowCopies(Compute):
    """GEMMs as before, copies at 0.1 GB/s."""

    def memory_s(self, nbytes):
        return nbytes / 1e8


def test_operands_are_not_packed_where_copies_cost_more_than_short_gemms():
    problem = Problem(4096, 4096, 4096, 2, *CYCLIC)
    share = Footprint(problem, 0, "C")
    assert choose_packing(share)
    constants = {
        each.name: getattr(CORES.compute, each.name) for each in fields(Compute) if each.init
    }
    slow = replace(CORES, compute=SlowCopies(**constants))
    assert choose_packing(share, machine=slow) is None
    unpacked = replace(CORES, compute=Compute(1e11), step_s=0.0)
    assert choose_packing(share, machine=unpacked) is None


@settings(max_examples=60, deadline=None)
@given(problems(40, 50, 60, 6), st.sampled_from("ABC"))
def test_operands_are_packed_where_the_costs_are_lower(problem, stationary):
    for rank in range(problem.nprocs):
        if not result_is_local(problem, stationary):
            return
        share = Footprint(problem, rank, stationary)
        found = choose_packing(share, always=True)
        if found is None:
            continue
        program = multiply_packed(share, found, own_first=False, result_is_local=True)
        steps = list(trace(program, problem, rank, fresh=False).steps)
        copied = sum(step.block.size for step in steps if type(step) in (Pack, Copy))
        assert copied == found.copied
        assert sum(type(step) is Gemm for step in steps) == found.gemms


@pytest.mark.parametrize(
    "options, flag",
    [({"schedule": "greedy"}, "schedule=greedy"), ({"sums": "push"}, "sums=push")],
)
def test_options_that_order_gemms_of_blocks_disable_packing(options, flag):
    problem = Problem(64, 64, 64, 2, "row", "row", "row")
    with pytest.raises(UsageError, match=f"pack=always and {flag}"):
        universal.resolve(problem, pack="always", stationary="B", **options)
    resolved = universal.resolve(problem, stationary="B", **options)
    assert resolved.get("pack", "never") == "never"


def test_packing_occupies_the_core_for_the_time_of_its_memory_traffic():
    problem = Problem(64, 64, 64, 2, "row", "row", "row")
    block = problem.a.block((0, 16), (0, 64))
    panel = Scratch((32, 64), "A")
    cost = step_cost(CORES, Pack(block, panel, 0, 0), 0, 4)
    assert cost.core_s == CORES.compute.memory_s(2 * block.size * 4)
    assert step_cost(CORES, Get(block), 0, 4).core_s == 0


def test_run_and_simulator_have_the_same_program():
    """With the same machine; and the simulation includes the time of packing."""
    case = Case(512, 512, 512, *("tiles:100x90", "tiles:70x110", "tiles:130x51"))
    case = replace(case, options={"stationary": "C", "pack": "always"})
    machine = replace(CORES, links=(Link("memory", inf, reads_in_place=True),))
    simulated = programs_of(case, machine, 2).traces
    problem = Problem(512, 512, 512, 2, case.a, case.b, case.c)
    known = universal.resolve(problem, stationary="C", pack="always") | {"machine": machine}
    for rank, found in enumerate(simulated):
        ours = universal.trace(problem, rank, **known)
        assert list(map(repr, found.steps)) == list(map(repr, ours.steps))
    record, _ = predict_with(case, machine, 2)
    assert record.panel_bytes == sum(each.panel_bytes for each in simulated)
    assert record.phase_gemm_s < record.best_s
    assert record.best_s >= record.phase_gemm_s + 2 * record.panel_bytes / 2 / 1.6e10


@pytest.mark.parametrize("dtype, is_packed", [("float64", True), ("bfloat16:float32", False)])
def test_without_a_model_types_that_cores_multiply_are_packed(dtype, is_packed):
    problem = Problem(4096, 4096, 4096, 2, *CYCLIC, dtype=dtype)
    resolved = universal.resolve(problem, stationary="C")
    machine = find_planning_model(None, resolved, dtype=dtype)
    assert bool(universal.trace(problem, 0, machine, **resolved).panel_bytes) == is_packed


@pytest.mark.parametrize("stationary", "ABC")
@pytest.mark.parametrize(
    "texts",
    [
        ("column", "column", "row"),
        ("row", "column", "column"),
        ("column", "row", "tiles:900x700"),
        ("tiles:900x700", "column", "row"),
        ("row", "tiles:900x700", "tiles:900x700"),
        CYCLIC,
    ],
)
def test_over_slow_links_nothing_is_packed_that_makes_other_ranks_wait(texts, stationary):
    """One large GEMM delays transfers that GEMMs of single tiles would overlap: the simulator
    decides whether packing pays."""
    case = Case(1024, 1024, 2048, *texts, transport="throttled:0.5,10")
    auto, never = (
        predict_with(replace(case, options={"stationary": stationary, "pack": how}), CORES, 2)
        for how in ("auto", "never")
    )
    assert auto[0].median_s <= 1.01 * never[0].median_s


def test_a_run_without_a_model_knows_its_throttled_links():
    problem = Problem(1024, 4096, 1024, 2, "column", "column", "row")
    resolved = universal.resolve(problem, stationary="B")
    panels = {
        transport: universal.trace(
            problem, 0, find_planning_model(None, resolved, transport), **resolved
        ).panel_bytes
        for transport in ("auto", "throttled:0.25,50", "throttled:1000,0")
    }
    assert panels["auto"] == panels["throttled:1000,0"] > 0 == panels["throttled:0.25,50"]


def test_never_disables_packing_with_a_model_too():
    """The program resolves options again: without never in them, it used auto."""
    texts = "tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block"
    problem = Problem(4096, 4096, 4096, 2, *texts)
    is_packed = {}
    for pack in ("auto", "never"):
        resolved = universal.resolve(problem, stationary="C", pack=pack)
        machine = find_planning_model(None, resolved, dtype="float32")
        assert resolved["pack"] == pack and (machine is None) == (pack == "never")
        steps = universal.trace(problem, 0, machine or CORES, **resolved).steps
        is_packed[pack] = sum(type(step) is Pack for step in steps)
    assert is_packed["auto"] and not is_packed["never"]
