"""The schedule rule broken on purpose: every mutant is caught by the checkers that the real rule
passes."""

import pytest
from oracles import Violation
from virtual_time import CASES, Deadlock, RandomDelays, check_rule, drive, programs

from drbench.plan.schedule import Scheduler
from drbench.program.steps import Fence


def mutant(breaks):
    """Register a wrong scheduler under the rule it breaks; ``Deadlock`` for one that hangs."""

    def register(cls):
        MUTANTS[cls.__name__] = cls, breaks
        return cls

    return register


MUTANTS = {}


@mutant(breaks="a Fence waits for everything that touches C before it")
class FenceForgetsAccumulates(Scheduler):
    def _ready(self, t):
        if type(self.steps[t]) is Fence:
            return self._fence_open == self.lookahead.fences[t]
        return super()._ready(t)


@mutant(breaks="a Fence waits for the Fences before it")
class FencesOverlap(Scheduler):
    def _ready(self, t):
        if type(self.steps[t]) is Fence:
            return not self._segment[self.lookahead.fences[t]]
        return super()._ready(t)


@mutant(breaks="what touches C waits for the Fences before it")
class WorkBeforeTheFence(Scheduler):
    def _ready(self, t):
        if type(self.steps[t]) is Fence:
            return super()._ready(t)
        return all(self.done[value.index] for value in self.steps[t].inputs)


@mutant(breaks="a step starts after its inputs")
class InputsForgotten(Scheduler):
    def _ready(self, t):
        done, self.done = self.done, bytearray(b"\1" * len(self.done))
        try:
            return super()._ready(t)
        finally:
            self.done = done


class _OtherDepth(Scheduler):
    issue = complete = 0  # added to the look-ahead of transfers, and of results in flight

    def _advance(self):
        self.depth += self.issue
        super()._advance()
        self.depth -= self.issue

    def next_compute(self):
        if self._at == len(self._computes):
            return None
        t = self._computes[self._at]
        needed = self.lookahead.before[t] - (self.depth + self.complete)
        needed += not self.depth
        return t if self._clear >= needed and self._ready(t) else None


@mutant(breaks="transfers run ahead by the look-ahead at most")
class WindowIgnoresDepth(_OtherDepth):
    issue = 10**6


@mutant(breaks="transfers run ahead by the look-ahead at most")
class WindowOneTooWide(_OtherDepth):
    issue = 1


@mutant(breaks="results in flight are bounded by the look-ahead")
class ResultsPileUp(_OtherDepth):
    complete = 10**6


@mutant(breaks="results in flight are bounded by the look-ahead")
class ResultsOneTooMany(_OtherDepth):
    complete = 1


@mutant(breaks="computes run in program order")
class ComputesByReadiness(Scheduler):
    def next_compute(self):
        for place in range(self._at, min(self._at + 4, len(self._computes))):
            self._computes[self._at], self._computes[place] = (
                self._computes[place],
                self._computes[self._at],
            )
            t = super().next_compute()
            if t is not None:
                return t
        return None


@mutant(breaks=Deadlock)
class FillsTheWindowFirst(Scheduler):
    """Computes only when every transfer of the window has started: a wait that points forward."""

    def next_compute(self):
        t = super().next_compute()
        return None if t is not None and (self._waiting or any(self._queues.values())) else t


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_broken_on_purpose_is_caught(name):
    cls, breaks = MUTANTS[name]
    caught = set()
    for case in CASES:
        traces = programs(case)
        for depth in (0, 1, 3):
            for seed in range(4):
                try:
                    check_rule(
                        traces, depth, drive(traces, depth, RandomDelays(seed), scheduler=cls)
                    )
                except Violation as violation:
                    caught.add(violation.rule)
                except Deadlock:
                    caught.add(Deadlock)
            if breaks in caught:
                return
    raise AssertionError(f"{name} should break {breaks!r} and was only caught for {caught}")
