"""Collectives through shared memory, as plans: C is exact in every order of completion, on one node
and on several, what moves is what has to, and what is broken on purpose is caught."""

import random
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Violation
from signal_machine import SignalMachine, Stuck

from algorithms import algorithms, get_algorithm
from drbench.common import parse_transport
from drbench.errors import UnsupportedError
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.plan.explain import traffic
from drbench.plan.signals import InboxPlan, pairs_of, plan_inbox
from drbench.program.direct import Gather, Sum
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Get

TWO_D = [name for name, algorithm in algorithms().items() if "mesh" in algorithm.options]
FLOWS = ("OS", "LS", "RS")
MESHES = ("1x1", "1x2", "2x1", "1x3", "2x2", "4x1", "1x5", "2x3", "3x2", "3x3", "4x2")
#: Who shares a node, by ranks: every group of these meshes has two members on a node.
NODES = {"1x4": "0011", "4x1": "0101", "1x5": "00011", "5x1": "01100", "1x6": "001122"}


def traces_of(name, shape, mesh, nodes=None, updates=False, **options):
    rows, cols = map(int, mesh.split("x"))
    algorithm, p = get_algorithm(name), rows * cols
    if name in TWO_D:
        options["mesh"] = mesh
    problem = algorithm.problem(*shape, p, updates=updates, **options)
    settled = algorithm.settle(problem, **options)
    nodes = [0] * p if nodes is None else [int(node) for node in nodes]
    return problem, [algorithm.trace(problem, rank, nodes=nodes, **settled) for rank in range(p)]


def prove(problem, traces, depth, seed, beta=0.0, **machine):
    before = np.random.default_rng(seed).integers(-99, 100, (problem.m, problem.n)).astype(float)
    how = {"beta": beta, "before": before if beta else None, **machine}
    c, expected = SignalMachine(problem, traces, depth, seed, **how).run()
    return np.array_equal(c[0], expected)


def moves(traces, kind):
    return sum(type(step) is kind for trace in traces for step in trace.steps)


@st.composite
def cases(draw):
    name = draw(st.sampled_from(TWO_D))
    mesh = draw(st.sampled_from(MESHES if name != "cannon" else ("1x1", "2x2", "3x3")))
    options = {"dataflow": draw(st.sampled_from(FLOWS))}
    if name == "wang":
        options["unroll"] = draw(st.integers(1, 3))
    if name == "summa":
        options["panel"] = draw(st.sampled_from([None, 1, 3]))
    if name == "meshslice":
        options |= {"slices": draw(st.integers(1, 3)), "block": draw(st.sampled_from([None, 1, 2]))}
        options = {key: value for key, value in options.items() if value is not None}
    options = {key: value for key, value in options.items() if value is not None}
    shape = tuple(draw(st.integers(1, 12)) for _ in "mnk")
    return (
        (name, shape, mesh),
        options,
        {
            "depth": draw(st.sampled_from(["all", 0, 1, 2])),
            "seed": draw(st.integers(0, 1 << 20)),
            "beta": draw(st.sampled_from([0.0, 0.0, 1.0, -2.0])),
        },
    )


@settings(deadline=None, max_examples=150)
@given(cases())
def test_every_algorithm_is_exact_on_one_node_in_every_order_of_completion(case):
    where, options, how = case
    try:
        problem, traces = traces_of(*where, updates=bool(how["beta"]), **options)
    except UnsupportedError:
        return  # more slices than blocks
    pairs_of(traces)
    assert not any(group for trace in traces for group in trace.groups if len(group) > 1)
    assert prove(problem, traces, **how)


@pytest.mark.parametrize("mesh, flow", [*product(NODES, FLOWS)])
def test_every_algorithm_is_exact_on_several_nodes(mesh, flow):
    chance = random.Random(f"{mesh} {flow}")
    for seed, name in enumerate([*TWO_D, *TWO_D]):
        if name == "cannon":
            continue
        shape = tuple(chance.randint(4, 13) for _ in "mnk")
        more = {"slices": 2, "block": 1} if name == "meshslice" else {}
        problem, traces = traces_of(name, shape, mesh, NODES[mesh], dataflow=flow, **more)
        pairs_of(traces)
        assert prove(problem, traces, chance.choice(("all", 0, 1)), seed), (name, shape)


@pytest.mark.parametrize("name", ["collective", "summa", "meshslice", "wang"])
def test_operands_are_read_in_place_and_products_once(name):
    """On one node no operand is copied where it cuts k alone; of C each rank reads what the others
    have made for its tile."""
    _, traces = traces_of(name, (16, 16, 16), "2x2", dataflow="OS")
    assert {type(step) for trace in traces for step in trace.steps if step.moved(trace.rank)} == {
        Get
    }
    _, traces = traces_of(name, (16, 16, 16), "1x4", dataflow="LS")
    assert name == "meshslice" or moves(traces, Gather) == 0  # which packs its short ranges
    if name != "wang":
        assert moves(traces, Offer) == moves(traces, Take) > 0 == moves(traces, Push)
    moved = sum(sum(traffic(trace).counters.values()) for trace in traces)
    assert moved == 3 * 16 * 16 * 4


def test_a_gather_that_would_cut_m_or_n_is_one_array():
    """LS gathers B along n, RS gathers A along m; OS cuts k."""
    for flow, mesh, gathers in (("LS", "2x1", 2), ("RS", "1x2", 2), ("OS", "2x2", 0)):
        _, traces = traces_of("collective", (16, 16, 16), mesh, dataflow=flow)
        assert moves(traces, Gather) == gathers


def test_between_nodes_a_piece_travels_once():
    """Two nodes of two ranks: of A, dealt by columns, each node gets the other's half once; of the
    sums each rank's part goes between nodes once."""
    _, traces = traces_of("collective", (16, 16, 16), "1x4", "0011", dataflow="OS")
    assert sum(traffic(each).counters["put_bytes"] for each in traces) == 16 * 16 * 4
    _, traces = traces_of("collective", (16, 16, 16), "1x4", "0011", dataflow="LS")
    assert sum(traffic(each).counters["put_bytes"] for each in traces) == 16 * 16 * 4


def test_groups_without_two_ranks_on_a_node_stay_as_they_are():
    _, traces = traces_of("collective", (16, 16, 16), "2x2", "0011", dataflow="OS")
    assert [group.name for group in traces[0].groups] == ["column"]


# -- broken on purpose

LS = ("summa", (12, 12, 12), "1x3"), {"dataflow": "LS", "panel": 2}


def caught(traces, problem, **machine):
    for seed in range(40):
        try:
            if not prove(problem, traces, "all", seed, **machine):
                return True
        except (Violation, Stuck):
            return True
    return False


def test_a_read_that_waits_for_no_flag_is_caught():
    problem, traces = traces_of(*LS[0], **LS[1])
    assert not caught(traces, problem)
    assert caught(traces, problem, waits=False)


def test_a_slot_that_is_used_again_too_early_is_caught():
    """All products that a rank offers lie in one place; likewise what is pushed."""

    def shared(trace, widths):
        plan = plan_inbox(trace, widths)
        return InboxPlan(dict.fromkeys(plan.offsets, 0), plan.nbytes)

    problem, traces = traces_of(*LS[0], **LS[1])
    assert caught(traces, problem, planner=shared)
    problem, traces = traces_of("wang", (12, 12, 12), "1x5", dataflow="LS")
    assert moves(traces, Await) and caught(traces, problem, planner=shared)


def test_a_sum_without_one_of_its_terms_is_caught():
    problem, traces = traces_of(*LS[0], **LS[1])
    for trace in traces:
        for step in trace.steps:
            if type(step) is Sum:
                step.terms -= 1
    assert caught(traces, problem)


# -- predicted


def test_a_sum_takes_memory_speed_and_a_read_in_place_nothing():
    """LS on 1x2: 2·16·16·8 FLOPs at 256 a second; two terms read and one written, 16·8 elements of
    4 bytes each, at 1536 bytes a second. LS on 2x1 copies B of 8·16 elements, read and written."""
    near = Link("near", inf, reads_in_place=True)
    toy = Machine("toy", Compute(256.0, memory_bytes_per_s=1536.0), (near,), adds_on_core=True)
    for mesh, seconds in (("1x2", 16 + 3 * 512 / 1536), ("2x1", 16 + 2 * 1024 / 1536)):
        _, traces = traces_of("collective", (16, 16, 16), mesh, dataflow="LS")
        assert simulate(traces, toy).time_s == pytest.approx(seconds), mesh
    _, traces = traces_of("collective", (16, 16, 16), "2x2", dataflow="OS")
    assert simulate(traces, toy).time_s == pytest.approx(8)


def test_the_throttled_link_of_a_rank_carries_what_it_reads_and_pushes():
    section = {"name": "toy", "compute": {"peak_flops": 4096.0}}
    slow = Machine.from_dict(section)
    slow = slow.for_transport(parse_transport("throttled:0.000001024,0"))  # 1024 bytes a second
    _, traces = traces_of("collective", (16, 16, 16), "1x2", dataflow="OS")  # half of A
    assert simulate(traces, slow).time_s == pytest.approx(0.5 + 1)
    _, traces = traces_of("collective", (16, 16, 16), "1x2", dataflow="LS")  # the other's products
    assert simulate(traces, slow).time_s == pytest.approx(0.5 + 1 + 0)
