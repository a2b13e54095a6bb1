"""Lowered programs do the same work within their bounds, in every order of completion; the search
finds the optimum of an exhaustive search."""

import random
from collections import Counter
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from arena import prove
from oracles import any_case, require, traces_of, universal
from virtual_time import CASES, MODES, RandomDelays, drive

from drbench.algorithms.lowering import search as op_search
from drbench.algorithms.lowering.graph import Graph
from drbench.algorithms.lowering.lowering import cost_greedy, greedy, lowered_operations, program_s
from drbench.algorithms.lowering.op_costs import BALANCE, costs_of
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.costs import Cost, step_cost
from drbench.model.simulate import simulate
from drbench.plan.explain import listing, traffic
from drbench.plan.schedule import Lookahead, plan_arena
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Get,
    Part,
    ReplicaAdd,
    ReplicaGet,
)

LOWERED = ("greedy", "cost", "exhaustive")
BOUNDS = ((1, 1), (1, 2), (2, 2), (3, 4))
FEW = (2, 2), (1, 2), (2, 1)
lowerings = pytest.mark.parametrize("schedule", LOWERED)


def transfers(step, rank):
    """Whether a step is a bounded transfer: every one-sided step except reading an own tile."""
    return type(step) in (ReplicaGet, Accumulate, ReplicaAdd) or (
        type(step) is Get and step.block.owner != rank
    )


@cache
def lowered(seed_or_case, schedule, bounds):
    """Lowered traces; none where the search is refused. Tests share them."""
    problem, options = (
        any_case(seed_or_case) if isinstance(seed_or_case, int) else CASES[seed_or_case]
    )
    try:
        return traces_of(problem, **options, schedule=f"{schedule}:{bounds[0]}x{bounds[1]}")
    except UnsupportedError:
        assert schedule == "exhaustive"
        return []


@pytest.fixture(autouse=True)
def short_searches(monkeypatch):
    """Refused early: a test needs no large case."""
    monkeypatch.setattr(op_search, "MOST_SELECTIONS", 4000)


@lowerings
def test_operations_respect_their_bounds_and_use_only_values_of_earlier_operations(schedule):
    found = Counter()
    for seed in range(50):
        bounds = BOUNDS[seed % 4]
        for trace in lowered(seed, schedule, bounds):
            assert trace.ops is None or trace.ops == sorted(trace.ops)
            op = dict(enumerate(trace.ops or ()))
            for kind, bound in (("computes", bounds[0]), ("transfers", bounds[1])):
                chosen = [
                    s
                    for s in trace.steps
                    if (s.computes if kind == "computes" else transfers(s, trace.rank))
                ]
                counts = Counter(op[s.index] for s in chosen)
                assert all(count <= bound for count in counts.values())
                found[kind] += sum(count == bound for count in counts.values())
            for step in (step for step in trace.steps if type(step) is not Part):
                for value in (
                    each.location()[0] if type(each) is Part else each for each in step.inputs
                ):
                    own = type(value) is Get and value.block.owner == trace.rank
                    if not own and value is not step.onto:
                        assert op[value.index] < op[step.index], (value, step)
    assert found["computes"] and found["transfers"]


@lowerings
def test_a_remote_tile_is_fetched_once_and_no_other_bytes_move(schedule):
    for seed in range(50):
        problem, options = any_case(seed)
        for trace, direct in zip(
            lowered(seed, schedule, BOUNDS[seed % 4]), traces_of(problem, **options)
        ):
            gets = [s.block.key for s in trace.steps if type(s) is Get]
            assert len(gets) == len(set(gets)) and set(gets) == {
                s.block.key for s in direct.steps if type(s) is Get
            }
            sent = lambda t: Counter(
                (type(s), s.block.key)
                for s in t.steps
                if type(s) in (Accumulate, ReplicaAdd, ReplicaGet, Add, Copy)
            )
            assert sent(trace) == sent(direct)
            assert sum(type(s) is Fence for s in trace.steps) == sum(
                type(s) is Fence for s in direct.steps
            )
            assert traffic(trace).counters["get_bytes"] <= traffic(direct).counters["get_bytes"]


# -- the rule
# -------------------------------------------------------------------------------------------------


def check_operations(traces, timeline, in_place, depth):
    """Nothing starts before every step of every earlier operation has ended."""
    for trace in traces:
        start, end = timeline.start[trace.rank], timeline.end[trace.rank]
        real = [s for s in trace.steps if not in_place(trace, s)]
        ops = sorted(set(trace.ops or ()))
        for op in ops:
            here = [s.index for s in real if trace.ops[s.index] == op]
            before = [s.index for s in real if trace.ops[s.index] < op]
            if here and before:
                require(
                    max(end[t] for t in before) < min(start[t] for t in here),
                    "operations run one after the other",
                    trace.rank,
                    op,
                )
            if depth == 0:
                communication = [end[t] for t in here if not trace.steps[t].computes]
                computes = [start[t] for t in here if trace.steps[t].computes]
                require(
                    max(communication, default=0) < min(computes, default=1e9),
                    "without look-ahead computes wait",
                    op,
                )
        computes = [s.index for s in trace.steps if s.computes]
        require(
            all(end[x] < start[y] for x, y in zip(computes, computes[1:])),
            "computes run in program order",
        )


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("case", CASES)
def test_no_order_of_completion_passes_the_end_of_an_operation_or_deadlocks(case, depth):
    for x, schedule in enumerate(LOWERED):
        traces = lowered(case, schedule, BOUNDS[x + 1])
        for seed, in_place in enumerate(MODES.values() if traces else ()):
            timeline = drive(traces, depth, RandomDelays(seed), in_place=in_place)
            check_operations(traces, timeline, in_place, depth)


@pytest.mark.parametrize("depth", [0, 1, 3])
@lowerings
def test_no_order_of_completion_makes_two_living_values_share_memory(schedule, depth, dealt):
    for seed in dealt(range(50), depth, 2):
        if traces := lowered(seed, schedule, BOUNDS[seed % 4]):
            prove(traces, depth, seed, list(MODES.values())[seed % 4])


@pytest.mark.parametrize("depth", [1, 3, "all"])
def test_memory_of_an_operation_is_free_in_the_next_whatever_the_look_ahead(depth):
    """And not before: the memory of a lowered program is that of its operations."""
    for seed in range(40):
        for trace in lowered(seed, "greedy", BOUNDS[seed % 4]):
            if trace.ops is None:
                continue
            ahead, ops = Lookahead(trace, depth), np.array(trace.ops)
            births, deaths = np.array(ahead.births()), np.array(ahead.deaths())
            free = deaths[:, None] <= births[None, :]
            assert (free == (ops[:, None] < ops[None, :])).all()
            assert plan_arena(ahead, 8) == plan_arena(Lookahead(trace, 2), 8)


# -- the cost model
# -------------------------------------------------------------------------------------------------


def on(machine):
    """Costs of float32 steps on a machine model."""
    return lambda step, rank: step_cost(machine, step, rank, 4)


class RandomCosts:
    """Any times, over one link in, one out, one for some pairs; some transfers use the core too."""

    def __init__(self, seed):
        self.seed = seed

    def cost(self, step, rank):
        block = (
            step.block.key
            if step.block is not None
            else tuple(value.location()[0].block.key for value in step.inputs[:2])
            if step.computes
            else ()
        )
        chance = random.Random(repr((self.seed, type(step).__name__, block)))
        some = lambda: float(chance.choice((0, 1, 1, 2, 5)))
        if step.computes:
            return Cost(core_s=some())
        links = (
            ("out",)
            if isinstance(step, Accumulate)
            else ("in", ("pair", step.block.owner))
            if self.seed % 2
            else (("pair", step.block.owner),)
        )
        return Cost(
            some() if self.seed % 5 == 0 else 0.0,
            some(),
            links,
            some() if self.seed % 7 == 0 else 0.0,
        )


def seconds_of(costs):
    links = Counter()
    for cost in costs:
        for link in cost.links:
            links[link] += cost.link_s
    return max(
        sum(c.core_s for c in costs),
        max(links.values(), default=0) + max((c.latency_s for c in costs), default=0),
    )


def least_seconds(graph, costs, max_compute, max_comm):
    """The cheapest schedule, by trying every choice of every operation, idle ones too."""
    kinds = [
        "compute" if n.step.computes else "fence" if type(n.step) is Fence else "transfer"
        for n in graph.nodes
    ]
    most = {"compute": max_compute, "transfer": max_comm, "fence": len(kinds)}

    @cache
    def least(done):
        if len(done) == len(kinds):
            return 0.0
        eligible = [
            n for n in range(len(kinds)) if n not in done and set(graph.nodes[n].needs) <= done
        ]
        best = float("inf")
        for size in range(1, len(eligible) + 1):
            for chosen in combinations(eligible, size):
                if all(
                    sum(kinds[n] == kind for n in chosen) <= bound for kind, bound in most.items()
                ):
                    best = min(
                        best, seconds_of([costs[n] for n in chosen]) + least(done | set(chosen))
                    )
        return best

    return least(frozenset())


class Few:
    """Costs from few values, so that parts of a graph are similar."""

    def cost(self, step, rank):
        if step.computes:
            return Cost(core_s=2.0)
        links = ("out",) if type(step) is Accumulate else ("in",)
        return Cost(link_s=1.0 + step.block.owner % 2, links=links)


def test_the_search_finds_the_optimum_of_trying_every_choice(monkeypatch):
    """On small graphs, in which only equivalent parts count as one."""
    monkeypatch.setattr(op_search, "MOST_SELECTIONS", 10**9)
    compared = improved = 0
    for seed in range(400):
        problem, options = any_case(seed)
        for graph in map(Graph, traces_of(problem, **options)[:2]):
            if not 3 <= len(graph.nodes) <= 9:
                continue
            for model, bounds in ((RandomCosts(seed), BOUNDS[seed % 4]), (Few(), FEW[seed % 3])):
                costs, known = costs_of(graph, model.cost), greedy(graph, *bounds)
                found = program_s(op_search.Search(graph, costs, *bounds).run(known), costs)
                least = least_seconds(graph, costs, *bounds)
                assert found == pytest.approx(least), (seed, bounds)
                compared += 1
                improved += found < program_s(known, costs)
    assert compared > 200 and improved > 10


def test_exhaustive_is_never_worse_than_cost_and_cost_never_worse_than_greedy():
    better = Counter()
    for seed in range(40):
        problem, options = any_case(seed)
        graph = Graph(traces_of(problem, **options)[seed % problem.nprocs])
        for model in (on(BALANCE), RandomCosts(seed).cost):
            costs, bounds = costs_of(graph, model), BOUNDS[seed % 4]
            by_greedy, by_cost = (
                program_s(lower(graph, *args), costs)
                for lower, args in (
                    (greedy, bounds),
                    (lambda g, *b: cost_greedy(g, costs, *b), bounds),
                )
            )
            assert by_cost <= by_greedy
            better["cost"] += by_cost < by_greedy
            try:
                by_search = program_s(
                    lowered_operations(graph, "exhaustive", *bounds, model), costs
                )
            except UnsupportedError:
                continue
            assert by_search <= by_cost
            better["exhaustive"] += by_search < by_cost * (1 - 1e-9)
    assert better["cost"] > 5 and better["exhaustive"] > 5


# -- on machine models
# -------------------------------------------------------------------------------------------------

PVC, H100 = find_machine("pvc12"), find_machine("h100x8")


ALIGNED = [
    (machine, 8192, *each)
    for machine, each in [
        *((H100, each) for each in [("row", "C"), ("traditional", "C"), ("column,row,row", "B")]),
        *((PVC, each) for each in [("column", "C"), ("row", "C")]),
    ]
]


@pytest.mark.parametrize(
    "machine, batch, layout, stationary", ALIGNED, ids=lambda each: getattr(each, "name", None)
)
def test_direct_execution_is_within_5_percent_of_the_best_lowering_on_aligned_tiles(
    machine, batch, layout, stationary, monkeypatch
):
    """results/simulated has more cases, and misaligned tiles, for which it is not."""
    monkeypatch.setattr(op_search, "MOST_SELECTIONS", 200_000)
    texts = layout.split(",") if "," in layout else [layout] * 3
    problem = Problem(batch, 12288, 12288, machine.devices, *texts)
    times = {}
    for schedule in ("direct", "exhaustive"):
        options = {"schedule": schedule} | ({"machine": machine} if schedule != "direct" else {})
        times[schedule] = simulate(
            traces_of(problem, stationary=stationary, **options), machine
        ).time_s
    assert times["direct"] <= 1.05 * times["exhaustive"], times


@lowerings
def test_simulated_bytes_of_lowered_programs_are_the_explainers(schedule):
    for seed in range(20):
        if traces := lowered(seed, schedule, BOUNDS[seed % 4]):
            found, planned = simulate(traces, PVC), Counter()
            for trace in traces:
                planned.update(traffic(trace).counters)
            simulated = found.counters | {
                "get_bytes": found.counters["get_bytes"] + found.counters["direct_bytes"],
                "direct_bytes": 0,
            }
            assert simulated == dict(planned)


def test_one_operation_takes_the_time_of_the_model():
    """A rank alone on its links: the simulator's time of its program is the sum over its
    operations."""
    problem = Problem(4096, 4096, 4096, 2, "column", "column", "column")
    traces = traces_of(problem, stationary="C", chunk=512, schedule="cost", machine=H100)
    model, graph = on(H100), Graph(traces_of(problem, stationary="C", chunk=512)[0])
    predicted = program_s(lowered_operations(graph, "cost", 1, 2, model), costs_of(graph, model))
    assert simulate(traces, H100).time_s == pytest.approx(predicted, rel=0.05)


# -- refusals and listings
# ----------------------------------------------------------------------------------


def test_a_search_that_would_take_too_long_is_refused_with_its_time_and_the_remedy():
    problem = Problem(97, 89, 83, 4, "tiles:13x11", "tiles:17x19", "block")
    with pytest.raises(
        UnsupportedError,
        match=r"rank 1's \d+ computes and \d+ transfers would examine more than 4000 "
        r"choices.*-o schedule=cost",
    ):
        universal.trace(problem, 1, stationary="B", schedule="exhaustive:3x3")


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "best"},
        {"schedule": "direct:1x2"},
        {"schedule": "greedy:1x0"},
        {"schedule": "greedy:2"},
    ],
)
def test_invalid_options_are_refused(options):
    with pytest.raises(UsageError):
        universal.resolve(Problem(8, 8, 8, 2), **options)


def test_a_schedule_is_recorded_without_the_bounds_that_it_has_by_default():
    read = universal.options["schedule"].read
    assert [read(text) for text in ("direct", "cost:1x2", "greedy:3x2")] == [
        "direct",
        "cost",
        "greedy:3x2",
    ]


def test_the_listing_has_a_line_for_each_operation_that_counts_right():
    for seed in range(10):
        for trace in lowered(seed, "greedy", BOUNDS[seed % 4]):
            heads = [line for line in listing(trace) if line.startswith("-- operation")]
            assert len(heads) == len(set(trace.ops or ()))
            assert sum(int(line.split()[3]) for line in heads) == sum(
                step.computes for step in trace.steps
            )
            assert sum(int(line.split()[5]) for line in heads) == sum(
                transfers(step, trace.rank) for step in trace.steps
            )
