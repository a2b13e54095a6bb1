"""The schedule rule, driven in virtual time by random delays, is safe and never deadlocks, and
results in the planned arena are right."""

import pytest
from arena import prove
from oracles import any_case, traces_of
from virtual_time import CASES, MODES, RandomDelays, check_rule, drive, programs

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.problem import Problem

DEPTHS = range(5)
cases = pytest.mark.parametrize("case", CASES)


def prove_in_any_order(problem, options, depth, seeds):
    """Check that C is exact in planned memory, no two living values share memory, and steps start
    by the rule, whichever blocks are read in place."""
    traces = traces_of(problem, **options)
    for seed in seeds:
        in_place = list(MODES.values())[seed % len(MODES)]
        check_rule(traces, depth, prove(traces, depth, seed, in_place), in_place)


@cases
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_order_of_completion_keeps_the_rule_and_the_memory(case, depth, dealt):
    prove_in_any_order(*CASES[case], depth, dealt(range(12), depth + len(case), 3))


@pytest.mark.parametrize("depth", DEPTHS)
def test_sampled_programs_keep_the_rule_and_the_memory(depth, dealt):
    for seed in dealt(range(150), depth, 5):
        prove_in_any_order(*any_case(seed), depth, [seed])


@cases
def test_the_fastest_computes_and_the_fastest_transfers_are_safe_too(case):
    class Lopsided:
        def __init__(self, slow):
            self.slow = slow

        def end(self, rank, step, now):
            return now + (1.0 if step.computes == (self.slow == "compute") else 0.0)

    traces = programs(case)
    for depth in DEPTHS:
        for slow in ("compute", "transfer"):
            check_rule(traces, depth, drive(traces, depth, Lopsided(slow)))


@cases
def test_without_look_ahead_a_rank_does_one_thing_at_a_time(case):
    """Prefetch 0: transfers that feed one compute may overlap each other, but no compute."""
    traces = programs(case)
    busy = {}

    def watch(what, rank, t):
        computes = traces[rank].steps[t].computes
        in_flight = busy.setdefault(rank, [])
        if what == "start":
            assert all(not computes and not other for other in in_flight)
            in_flight.append(computes)
        else:
            in_flight.remove(computes)

    for seed in range(3):
        drive(traces, 0, RandomDelays(seed), on=watch)


@pytest.mark.parametrize("case", [case for case in CASES if "nothing read" not in case])
def test_with_look_ahead_transfers_overlap_computes(case):
    """The opposite claim, so that the one above can fail: somewhere a transfer is under way during
    a compute."""
    traces = programs(case)
    overlaps, busy = [], {}

    def watch(what, rank, t):
        step, in_flight = traces[rank].steps[t], busy.setdefault(rank, set())
        if what == "start":
            overlaps.extend(other for other in in_flight if other.computes != step.computes)
            in_flight.add(step)
        else:
            in_flight.remove(step)

    for seed in range(3):
        drive(traces, 2, RandomDelays(seed), on=watch)
    assert overlaps


@cases
def test_every_step_is_started_once_and_counted_once(case):
    for in_place in MODES.values():
        for program in programs(case)[:1]:
            resolved = [step.index for step in program.steps if in_place(program, step)]
            schedule = Scheduler(Lookahead(program, 1), resolved)
            assert schedule.pending == len(program.steps) - len(resolved)
            handed = []
            while schedule.pending:
                now = schedule.take()
                assert not set(schedule.take()) & set(now)
                compute = schedule.next_compute()
                handed += now + ([compute] if compute is not None else [])
                for t in now + ([compute] if compute is not None else []):
                    schedule.finish(t)
            assert sorted(handed + resolved) == list(range(len(program.steps)))
            assert schedule.take() == [] and schedule.next_compute() is None


def test_computes_on_own_data_do_not_use_up_the_look_ahead():
    """A rank with much local work already starts the transfers after it."""
    problem = Problem(8, 8, 64, 2, "column", "column", "column")
    program = traces_of(problem, stationary="C", chunk=4)[0]
    lookahead = Lookahead(program, 1)
    for step in program.steps:
        if step.computes:
            assert lookahead.exposed[step.index] == any(
                value.block.owner != 0 for value in step.inputs
            )
    assert 0 < lookahead.count < sum(step.computes for step in program.steps)
