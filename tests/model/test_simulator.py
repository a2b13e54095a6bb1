"""The simulator conserves bytes, respects bounds, is deterministic, and agrees with a slow
simulator that shares nothing with it."""

import random
from itertools import count
from math import inf

import pytest
from any_machines import any_machine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import any_case, traces_of
from slow_simulator import slow_on
from traced import traced

from drbench.algorithms import get_algorithm
from drbench.errors import CaseFailed
from drbench.host.throttle import Throttle
from drbench.model.bounds import bound_of
from drbench.model.costs import step_cost
from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Link, Machine, Rate
from drbench.model.simulate import EffortExhausted, Simulator, TimeLimitExceeded, simulate
from drbench.plan.explain import traffic
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Block,
    Fence,
    Gemm,
    Get,
    Part,
    Put,
    ReplicaGet,
    Scratch,
)
from drbench.transport import parse_transport

ITEM = 4
#: Steps of a program that the slow simulator takes hundredths of a second for.
MOST = 150
seeds, rules = st.integers(0, 10**6), st.sampled_from(sorted(ARBITRATIONS))
quick = settings(max_examples=60, deadline=None, derandomize=True)


@settings(quick, max_examples=50)
@given(seeds, st.integers(0, 3), rules)
def test_time_equals_that_of_a_slow_simulator(seed, depth, rule):
    programs = (traces_of(problem, **options) for problem, options in map(any_case, count(seed)))
    traces = next(each for each in programs if sum(len(trace.steps) for trace in each) <= MOST)
    machine, p = any_machine(seed, accumulate_slowdown=0.0, arbitration=rule), len(traces)
    orders = range(p), range(p)[::-1], random.Random(0).sample(range(p), p)
    expected = [slow_on(machine, traces, depth, list(order)) for order in orders]
    # transfers asked for at the same instant have no oldest: the tie must not matter
    assume(max(expected) - min(expected) < 1e-9)
    assert simulate(traces, machine, prefetch=depth).time_s == pytest.approx(expected[0])


@quick
@given(seeds, st.integers(0, 3), rules)
def test_bytes_are_those_of_the_explainer_and_no_bound_is_broken(seed, depth, rule):
    problem, options = any_case(seed)
    traces, machine = traces_of(problem, **options), any_machine(seed, arbitration=rule)
    found = simulate(traces, machine, prefetch=depth)
    text = {name: sum(traffic(each).counters[name] for each in traces) for name in found.counters}
    assert found.counters == text
    assert bound_of(traces, machine).seconds <= found.time_s * (1 + 1e-9)
    view = Machine(
        "view",
        Compute(1e3),
        (Link("memory", inf, shared="initiator", reads_in_place=True),),
        adds_on_core=True,
    )
    counted = simulate(traces, view).counters
    assert counted["get_bytes"] == 0
    assert counted["direct_bytes"] == text["get_bytes"]


@settings(quick, max_examples=20)
@given(seeds)
def test_the_same_simulation_twice_is_the_same_to_the_last_bit(seed):
    problem, options = any_case(seed)
    machine = any_machine(seed, accumulate_slowdown=0.5)
    first, second = (
        simulate(traces_of(problem, **options), machine, timeline=True) for _ in range(2)
    )
    assert first == second


def _block(matrix, owner, rows, cols):
    return Block(matrix, owner, 0, (0, 0), 0, rows, 0, cols)


def test_accumulates_slow_concurrent_gemms_for_exactly_as_long_as_they_run():
    def program(rank):
        if rank == 0:
            a = yield Get(_block("A", 0, 8, 4))
            b = yield Get(_block("B", 0, 4, 8))
            first = yield Gemm(a, b)
            yield Accumulate(first, _block("C", 1, 8, 8))
            yield Gemm(a, b, into=_block("C", 0, 8, 8))

    traces = traced(program, Problem(8, 8, 8, 2, "column", "row", "row"))
    gemm_s = 512 / 100
    for slowdown, accumulate_s in ((0.0, 1.0), (0.5, 1.0), (0.5, 100.0)):
        machine = Machine(
            "m", Compute(100.0), (Link("wire", 256.0 / accumulate_s),), accumulate_slowdown=slowdown
        )
        slowed = min(accumulate_s, gemm_s * (1 + slowdown))  # of the second GEMM's time
        second = slowed + (gemm_s - slowed / (1 + slowdown))
        assert simulate(traces, machine).time_s == pytest.approx(
            gemm_s + max(second, accumulate_s)
        ), slowdown


def test_a_program_that_waits_for_itself_is_an_error_that_names_the_step():
    def program(rank):
        if rank == 0:
            yield Fence()

    traces = traced(program, Problem(4, 4, 4, 2))
    with pytest.raises(CaseFailed, match="rank 0 step 0, Fence"):
        simulate(traces, Machine("m", Compute(1.0)))


def test_blocks_of_c_of_another_rank_are_read_in_place_only_after_the_fence():
    """A read in place takes no time, and the GEMM that reads the value does not write C."""
    problem = Problem(8, 8, 8, 2, "R", "R", "row")
    first, second = (problem.c.own_tiles(rank)[0] for rank in range(2))

    def program(rank):
        if rank == 0:
            a = yield Get(problem.a.block(first.rows, (0, 8), 0))
            yield Gemm(a, (yield Get(problem.b.block((0, 8), (0, 8), 0))), into=first)
        yield Fence()
        if rank == 1:
            made = yield Get(first)
            yield Gemm((yield Get(problem.a.block(second.rows, (0, 4), 1))), made)

    link = Link("memory", inf, reads_in_place=True)
    took_s = simulate(traced(program, problem), Machine("m", Compute(100.0), (link,))).time_s
    assert took_s == pytest.approx(2 * 4 * 8 * 8 / 100 + 2 * 4 * 8 * 4 / 100)


def test_a_throttled_transport_is_the_executors_throttle():
    """Each rank's own link, transfers in order, complete a latency after the last byte left."""
    problem = Problem(6, 6, 8, 2, "column", "column", "column")
    machine = Machine.from_dict({"name": "m", "compute": {"peak_flops": 1e30}}).for_transport(
        parse_transport("throttled:1e-9,500000")
    )
    traces = traces_of(problem, stationary="C", chunk=1)
    gets = [step for step in traces[0].steps if type(step) is Get and step.block.owner == 1]
    link, now = Throttle(1.0, 0.5), [0.0, 0.0]
    for step in gets:  # with look-ahead 1 two gets are under way: the next when the oldest is done
        now = [now[1], link.due("in", step.block.size * ITEM, now[0])]
    assert len(gets) == 4 and simulate(traces, machine).time_s == pytest.approx(now[1])


@pytest.mark.parametrize("where, seconds", [("rows", 4.0), ("columns", 8.8), ("cut", 8.8)])
def test_strided_rows_of_the_source_or_the_target_cost_more(where, seconds):
    """64 elements, 256 bytes, to the other rank: in 8 rows."""
    link = Link("rma", inf, add=Rate(64.0, 32.0, 0.1))
    problem = Problem(16, 16, 16, 2)
    target = {
        "rows": Block("C", 1, 0, (0, 0), 0, 4, 0, 16),
        "columns": Block("C", 1, 0, (0, 0), 0, 8, 0, 8, full=False),
        "cut": Block("C", 1, 0, (0, 0), 0, 8, 0, 8),
    }[where]

    def program(rank):
        if rank == 0:
            whole = yield Scratch((8, 16) if where == "cut" else target.shape)
            value = (yield Part(whole, 1, 8, 16)) if where == "cut" else whole
            yield Accumulate(value, target)

    machine = Machine("m", Compute(1.0), (link,), adds_on_core=True)
    assert simulate(traced(program, problem), machine).time_s == pytest.approx(seconds)


@pytest.mark.parametrize("owner, rate", [(0, 64.0), (1, 64.0), (2, 16.0)])
def test_the_core_adds_at_the_rate_of_the_link_it_adds_over(owner, rate):
    """Local and remote memory; in every module that uses the cost of an accumulate."""
    links = tuple(
        Link(name, 8.0, within=within, add=Rate(rate))
        for name, within, rate in (("near", 2, 64.0), ("far", 0, 16.0))
    )
    machine = Machine("two rates", Compute(1e12), links, adds_on_core=True)
    problem = Problem(8, 8, 8, 4)

    def program(rank):
        if rank == 0:
            a = yield Get(problem.a.tile_block((0, 0)))
            yield Accumulate(a, problem.c.tile_block(divmod(owner, 2)))
        yield Fence()

    traces = traced(program, problem)
    nbytes = 16 * ITEM
    cost = step_cost(machine, traces[0].steps[1], 0, ITEM)
    assert cost.core_s == nbytes / rate
    assert simulate(traces, machine).time_s == nbytes / rate + (nbytes / 8.0 if owner else 0)


def test_puts_are_counted_and_occupy_the_link():
    def program(rank):
        if rank == 0:
            a = yield ReplicaGet(_block("C", 0, 4, 4))
            yield Put(a, _block("C", 1, 4, 4))

    traces = traced(program, Problem(4, 4, 4, 2))
    found = simulate(traces, Machine("m", Compute(1.0), (Link("wire", 8.0, 0.5),)))
    assert found.time_s == 64 / 8 + 0.5 and found.counters["put_bytes"] == 64


def test_a_program_that_ends_within_its_limit_is_not_cancelled():
    """The old end event of a GEMM slowed by accumulates is due after the program has ended."""
    wire = Link("wire", 2e7, latency_s=1e-6)
    machine = Machine("device", Compute(1e9, launch_s=1e-6), (wire,))
    problem = Problem(96, 128, 64, 4, "row", "tiles:5x7@2x2", "block")
    resolved = get_algorithm("universal").resolve(problem, False, stationary="B", sums="push")
    simulator = Simulator(traces_of(problem, **resolved), machine)
    time_s = simulator.run("all").time_s
    assert simulator.run("all", within_s=time_s).time_s == time_s
    with pytest.raises(TimeLimitExceeded):
        simulator.run("all", within_s=0.99 * time_s)
    simulator.until_s = 0.0
    with pytest.raises(EffortExhausted):
        simulator.run("all")
