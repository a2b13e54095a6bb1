"""The oracles can fail: programs broken on purpose are caught."""

import copy
import itertools

import pytest
from arena import multiplied
from oracles import Violation, replicas_moved, traces_of, work_done
from virtual_time import Deadlock

from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Add, Fence, Gemm, Get, ReplicaGet, Zero

REDUCED = Problem(7, 5, 6, 4, "tiles:3x2", "row/c2", "column/c2")
SPLIT = Problem(7, 5, 6, 4, "row", "tiles:3x2", "block")


def outcome(problem, traces, stationary):
    """The verdict on a set of programs: ``right``, or the rule that the oracles report."""
    try:
        if not (work_done(problem, traces, stationary) == 1).all():
            return "work"
        if not (replicas_moved(problem, traces, Add)[1:] == 1).all():
            return "reduction"
        for trace in traces:
            for place, step in enumerate(trace.steps):
                step.index = place
        c, right = multiplied(traces, "all")
        return "right" if (c[0] == right).all() else "values"
    except Deadlock:
        return "deadlock or a race"
    except Violation as violation:
        races = "nobody", "two ranks"
        return "deadlock or a race" if violation.rule.startswith(races) else violation.rule


def broken_once(problem, stationary, kind, change):
    """Verdicts after breaking one step of a type, for each such step on each rank."""
    outcomes = []
    for rank, trace in enumerate(traces_of(problem, stationary=stationary)):
        for place, step in enumerate(trace.steps):
            if type(step) is kind:
                traces = traces_of(problem, stationary=stationary)
                change(traces[rank].steps, place)
                outcomes.append(outcome(problem, traces, stationary))
    assert outcomes
    return outcomes


def drop(steps, place):
    del steps[place]


def double(steps, place):
    steps.insert(place, steps[place])


@pytest.mark.parametrize("problem, stationary", [(REDUCED, "C"), (SPLIT, "C")])
def test_unchanged_programs_are_right(problem, stationary):
    assert outcome(problem, traces_of(problem, stationary=stationary), stationary) == "right"


@pytest.mark.parametrize(
    "problem, stationary, kind, change, how",
    [
        (SPLIT, "C", Gemm, drop, "work"),
        (SPLIT, "C", Gemm, double, "work"),
        (SPLIT, "B", Accumulate, drop, "every partial sum is accumulated"),
        (SPLIT, "B", Accumulate, double, "a sum is taken once"),
        (REDUCED, "B", Add, drop, "reduction"),
        (REDUCED, "B", Add, double, "reduction"),
        (SPLIT, "A", Zero, drop, "values"),
        (SPLIT, "B", Fence, drop, "deadlock or a race"),
    ],
)
def test_a_step_lost_or_done_twice_on_one_rank_is_caught(problem, stationary, kind, change, how):
    assert set(broken_once(problem, stationary, kind, change)) == {how}


@pytest.mark.parametrize("stationary, place", list(itertools.product("AB", range(3))))
def test_a_fence_left_out_on_all_ranks_is_a_race(stationary, place):
    traces = traces_of(REDUCED, stationary=stationary)
    for trace in traces:
        fences = [t for t, step in enumerate(trace.steps) if type(step) is Fence]
        assert len(fences) == 3
        del trace.steps[fences[place]]
    last = place == 2  # closes the program: nothing follows that it could order
    assert (outcome(REDUCED, traces, stationary) == "right") == last


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_wrong_beta_is_caught(beta):
    def change(steps, place):
        steps[place].beta = 1.0 - steps[place].beta

    assert set(broken_once(SPLIT, "C", Gemm, change)) == {"values"}


@pytest.mark.parametrize("attribute", ["owner", "replica", "col1", "row0"])
@pytest.mark.parametrize("kind", [Get, Gemm, ReplicaGet])
def test_a_block_with_a_wrong_attribute_is_caught(attribute, kind):
    def change(steps, place):
        steps[place].block = block = copy.copy(steps[place].block)
        setattr(block, attribute, getattr(block, attribute) + 1)

    try:
        assert "right" not in broken_once(REDUCED, "C", kind, change)
    except (IndexError, KeyError):  # out of the matrix, out of the grid
        assert attribute in ("owner", "replica", "col1", "row0")
