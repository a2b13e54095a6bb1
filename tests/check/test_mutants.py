"""Programs of algorithms, broken on purpose in one step: what matters is caught, and what still
passes multiplies right at random times."""

import copy
import random

import numpy as np
import pytest
from any_multiplications import any_of, programs_of
from arena import multiplied
from oracles import results, traces_of

from drbench.algorithms import algorithms
from drbench.check.check import check
from drbench.errors import UnsupportedError, UsageError
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Add, Copy, Fence, Gemm, Get, ReplicaGet, Zero

REDUCED = Problem(7, 5, 6, 4, "tiles:3x2", "row/c2", "column/c2")
SPLIT = Problem(7, 5, 6, 4, "row", "tiles:3x2", "block")


def numbered(traces):
    """The traces, after a change of their lists of steps."""
    for trace in traces:
        for place, step in enumerate(trace.steps):
            step.index, step.uses = place, 0
        for step in trace.steps:
            for value in step.inputs:
                value.uses += 1
    return traces


def verdict_on(traces):
    """The kind of the first fault that is found, or ``right``."""
    findings = check(numbered(traces)).findings
    return findings[0].kind if findings else "right"


def broken_once(problem, stationary, kind, change):
    """Verdicts after breaking one step of a type, for each such step on each rank."""
    verdicts = []
    for rank, trace in enumerate(traces_of(problem, stationary=stationary)):
        for place, step in enumerate(trace.steps):
            if type(step) is kind:
                traces = traces_of(problem, stationary=stationary)
                change(traces[rank].steps, place)
                verdicts.append(verdict_on(traces))
    assert verdicts
    return {*verdicts}


def drop(steps, place):
    del steps[place]


def double(steps, place):
    steps.insert(place, copy.copy(steps[place]))


@pytest.mark.parametrize(
    "problem, stationary, kind, change, kinds",
    [
        (SPLIT, "C", Gemm, drop, {"missing", "unwritten"}),
        (SPLIT, "C", Gemm, double, {"twice", "overwritten"}),
        (SPLIT, "B", Accumulate, drop, {"missing"}),
        (SPLIT, "B", Accumulate, double, {"twice"}),
        (REDUCED, "B", Add, drop, {"missing"}),
        (REDUCED, "B", Add, double, {"twice"}),
        (SPLIT, "A", Zero, drop, {"unwritten"}),
        (SPLIT, "B", Fence, drop, {"deadlock", "race"}),
    ],
)
def test_a_step_lost_or_done_twice_on_one_rank_is_caught(problem, stationary, kind, change, kinds):
    assert broken_once(problem, stationary, kind, change) == kinds


@pytest.mark.parametrize("stationary", "AB")
@pytest.mark.parametrize("place", range(3))
def test_a_fence_left_out_on_all_ranks_is_a_race(stationary, place):
    traces = traces_of(REDUCED, stationary=stationary)
    for trace in traces:
        fences = [t for t, step in enumerate(trace.steps) if type(step) is Fence]
        assert len(fences) == 3
        del trace.steps[fences[place]]
    last = place == 2  # closes the program: nothing follows that it could order
    assert verdict_on(traces) == ("right" if last else "race")


def test_a_wrong_beta_is_caught():
    def change(steps, place):
        steps[place].beta = 1.0 - steps[place].beta

    assert broken_once(SPLIT, "C", Gemm, change) == {"unwritten", "overwritten"}


@pytest.mark.parametrize("attribute", ["owner", "replica", "col1", "row0"])
@pytest.mark.parametrize("kind", [Get, Gemm, ReplicaGet])
def test_a_block_with_a_wrong_attribute_is_caught(attribute, kind):
    def change(steps, place):
        steps[place].block = block = copy.copy(steps[place].block)
        setattr(block, attribute, getattr(block, attribute) + 1)

    assert "right" not in broken_once(REDUCED, "C", kind, change)


# -- what passes is right


def leave_out_a_fence(traces, chance):
    count = sum(type(step) is Fence for step in traces[0].steps)
    which = chance.randrange(count)
    for trace in traces:
        del trace.steps[[t for t, step in enumerate(trace.steps) if type(step) is Fence][which]]


def leave_out_a_step(traces, chance):
    steps = chance.choice(traces).steps
    used = {id(value) for step in steps for value in step.inputs}
    drop(steps, chance.choice([t for t, step in enumerate(steps) if id(step) not in used]))


def do_a_step_twice(traces, chance):
    steps = chance.choice(traces).steps
    double(steps, chance.choice([t for t, step in enumerate(steps) if not step.signals]))


def swap_two_steps(traces, chance):
    steps = chance.choice(traces).steps
    pairs = [t for t in range(1, len(steps)) if steps[t - 1] not in steps[t].inputs]
    place = chance.choice(pairs)
    steps[place - 1 : place + 1] = steps[place], steps[place - 1]


def forget_an_order(traces, chance):
    """Of a step that waits for others than those whose values it uses, which are first."""
    uses = {Gemm: lambda step: 2 + (step.onto is not None), Copy: lambda step: 1}
    uses[Add] = lambda step: step.count + (step.onto is not None)
    steps = [step for trace in traces for step in trace.steps if type(step) in uses]
    step = chance.choice([x for x in steps if len(x.inputs) > uses[type(x)](x)])
    step.inputs = step.inputs[: uses[type(step)](step)]


def exchange_beta(traces, chance):
    steps = [step for trace in traces for step in trace.steps if step.block is not None]
    step = chance.choice([x for x in steps if type(x) in (Gemm, Copy) and x.beta is not None])
    step.beta = 1.0 - step.beta


CHANGES = (
    leave_out_a_fence,
    leave_out_a_step,
    do_a_step_twice,
    swap_two_steps,
    forget_an_order,
    exchange_beta,
)


def survivors(name, seeds):
    """How many programs with one wrong step pass the check, and how many are caught; those that
    pass are run at random times."""
    passed = caught = 0
    for seed in seeds:
        case, chance = any_of(name, seed), random.Random(seed)
        try:
            found, traces = programs_of(case)
            chance.choice(CHANGES)(traces, chance)
        except (UnsupportedError, UsageError, ValueError, IndexError):  # nothing to change
            continue
        if any(trace.ops for trace in traces):
            continue  # steps are numbered by operation
        everywhere = bool(found.get("replicate_result"))
        if check(numbered(traces), everywhere).findings:
            caught += 1
            continue
        passed += 1
        problem, how = traces[0].problem, {}
        if problem.updates:
            shape = problem.c.partition.shape
            before = np.random.default_rng(seed).integers(-99, 100, shape).astype(float)
            how = {"alpha": case["alpha"], "beta": case["beta"], "before": before}
        for depth in (0, 1, "all"):
            c, right = multiplied(traces, depth, seed, **how)
            for total in results(problem, c, everywhere) if problem.plain else c[:1]:
                assert np.array_equal(total, right), (name, seed, depth)
    return passed, caught


@pytest.mark.parametrize("name", algorithms())
def test_what_passes_is_right_at_random_times(name):
    passed, caught = survivors(name, range(120 if name == "universal" else 12))
    assert passed + caught > 2


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", algorithms())
def test_more_of_what_passes_is_right_at_random_times(name):
    passed, caught = survivors(name, range(1000, 3000 if name == "universal" else 1400))
    assert passed > 20 and caught > 20
