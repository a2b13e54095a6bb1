"""The schedule rule, driven in virtual time by random delays, is safe and never stuck."""

import pytest
from oracles import any_case, traces_of
from virtual_time import CASES, MODES, RandomDelays, check_rule, drive, programs

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Block, Fence, Gemm, Get, Zero
from drbench.program.trace import trace

DEPTHS = range(5)
cases = pytest.mark.parametrize("case", CASES)


@cases
@pytest.mark.parametrize("depth", DEPTHS)
def test_steps_start_by_the_rule_and_no_order_of_completion_deadlocks(case, depth):
    traces = programs(case)
    for seed, in_place in enumerate(list(MODES.values()) * 4):
        timeline = drive(traces, depth, RandomDelays(seed), in_place=in_place)
        check_rule(traces, depth, timeline, in_place)


@pytest.mark.parametrize("depth", DEPTHS)
def test_sampled_programs_start_their_steps_by_the_rule(depth):
    for seed in range(250):
        problem, options = any_case(seed)
        traces = traces_of(problem, **options)
        in_place = list(MODES.values())[seed % 4]
        timeline = drive(traces, depth, RandomDelays(seed), in_place=in_place)
        check_rule(traces, depth, timeline, in_place)


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
        under_way = busy.setdefault(rank, [])
        if what == "start":
            assert all(not computes and not other for other in under_way)
            under_way.append(computes)
        else:
            under_way.remove(computes)

    for seed in range(3):
        drive(traces, 0, RandomDelays(seed), on=watch)


@pytest.mark.parametrize("case", [case for case in CASES if "nothing read" not in case])
def test_with_look_ahead_transfers_overlap_computes(case):
    """The opposite claim, so that the one above can fail: somewhere a transfer is under way during
    a compute."""
    traces = programs(case)
    overlaps, busy = [], {}

    def watch(what, rank, t):
        step, under_way = traces[rank].steps[t], busy.setdefault(rank, set())
        if what == "start":
            overlaps.extend(other for other in under_way if other.computes != step.computes)
            under_way.add(step)
        else:
            under_way.remove(step)

    for seed in range(3):
        drive(traces, 2, RandomDelays(seed), on=watch)
    assert overlaps


@cases
def test_every_step_is_handed_out_once_and_counted_once(case):
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
    """A rank that has much to do on its own already starts the transfers behind it."""
    problem = Problem(8, 8, 64, 2, "column", "column", "column")
    program = traces_of(problem, stationary="C", chunk=4)[0]
    lookahead = Lookahead(program, 1)
    for step in program.steps:
        if step.computes:
            assert lookahead.exposed[step.index] == any(
                value.block.owner != 0 for value in step.inputs
            )
    assert 0 < lookahead.count < sum(step.computes for step in program.steps)


def test_what_touches_c_is_open_once_every_fence_before_it_is_finished():
    def program():
        yield Fence()
        yield Zero(tile)
        yield Fence()
        a = yield Get(tile)
        yield Accumulate((yield Gemm(a, a)), tile)

    tile = Block("C", 0, 0, (0, 0), 0, 4, 0, 4)
    schedule = Scheduler(Lookahead(trace(program(), None, 0, fresh=False), 1))
    opened = []
    for done in range(3):
        opened.append([schedule.fenced(t) for t in (1, 5)])
        schedule.finish(done)
    assert opened == [[False, False], [True, False], [True, False]]
    assert schedule.fenced(5)
