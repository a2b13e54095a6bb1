"""One rank in virtual time: what its core is busy with, and how long it still is."""

from collections.abc import Callable
from math import inf

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.steps import Get, Scratch
from drbench.program.trace import Trace

from .costs import parts_of
from .machine import Machine


class Rank:
    """A rank's program being worked off by a simulation.

    Parameters
    ----------
    trace : Trace
    prefetch : int
        Look-ahead of :mod:`drbench.plan.schedule`.
    machine : Machine
    itemsize : int
    at : callable
        ``at(time, act, one, two)``: ``act(time, one, two)`` is called at that time.
    computed : callable
        ``computed(now, rank, version)``, called when a compute ends; not that of the last
        prediction unless ``version`` is the rank's.

    Attributes
    ----------
    number : int
        The global rank.
    steps : list of Step
    schedule : Scheduler
        Steps that take no time are finished from the start.
    parts : dict
        The (m, n, k) of the products that a Gemm consists of, where it is several.
    computing : tuple of (int, float), or None
        The compute under way and when it started.
    started : int
        Steps started since the last compute.
    idle_since, last
        When the last compute ended, and the phase that the wait since then counts as so far.
    core_free : float
        Until when the core copies or adds.
    own_free : dict
        Direction -> when the rank's own throttled link is free.
    began : dict
        Step under way -> when it started, for its bar.
    fences : int
        Fences started.
    """

    def __init__(
        self, trace: Trace, prefetch: int, machine: Machine, itemsize: int, at: Callable, computed
    ):
        self.number, self.steps, self.parts = trace.rank, trace.steps, parts_of(trace, machine)
        self.schedule = Scheduler(Lookahead(trace, prefetch), at_hand(trace, machine))
        self.computing, self.started = None, 0
        self.idle_since, self.last, self.core_free = 0.0, "get_wait", 0.0
        self.own_free, self.began, self.fences, self.version = {}, {}, 0, 0
        self._machine, self._itemsize, self._at, self._computed = machine, itemsize, at, computed
        self._left = self._since = 0.0  # seconds of the compute left at full speed, and when
        self._adding = self._moving = 0  # accumulates, and links in use, beside it

    def compute(self, t: int, now: float, seconds: float) -> None:
        """A compute starts that takes so long with nothing beside it."""
        self.computing, self._left, self._since = (t, now), seconds, now
        self._predict()

    def _predict(self) -> None:
        self.version += 1
        self._at(self._since + self._left * self._slow(), self._computed, self, self.version)

    def _slow(self) -> float:
        """By how much longer a local product takes because of what goes on beside it."""
        machine = self._machine
        return (
            1
            + (machine.accumulate_slowdown if self._adding else 0.0)
            + machine.transfer_slowdown * self._moving
        )

    def beside(self, now: float, adds: int = 0, moves: int = 0) -> None:
        """Accumulates or transfers begin or end: they may slow the local product beside them."""
        before = self._slow()
        self._adding += adds
        self._moving += moves
        if self.computing is not None and self._slow() != before:
            self._left -= (now - self._since) / before
            self._since = now
            self._predict()

    def on_core(self, now: float, seconds: float) -> float:
        """When the core has copied or added for so long, which it does one after another."""
        self.core_free = max(now, self.core_free) + seconds
        return self.core_free

    def between(self, now: float, seconds: float) -> float:
        """The same now or, if the core computes, in between: the compute then ends later."""
        if self.computing is None:
            return self.on_core(now, seconds)
        self._left += seconds
        self._predict()
        return now + seconds

    def copied(self, now: float, elements: int) -> float:
        """When a copy of so many elements is done."""
        seconds = self._machine.compute.memory_s(2 * elements * self._itemsize)
        return self.on_core(now, seconds) if self._machine.adds_on_core else now + seconds

    def queued(self, direction: str, now: float, seconds: float, more: float = 0.0) -> float:
        """When a transfer on the rank's own throttled link is through: in order of starting."""
        free = max(now, self.own_free.get(direction, 0.0)) + seconds + more
        self.own_free[direction] = free
        return free


def at_hand(trace: Trace, machine: Machine) -> list[int]:
    """Steps that take no time: Gets from own tiles, or in place through a link without limits, and
    memory without values."""
    rank, free, out = trace.rank, {trace.rank: True}, []
    for step in trace.steps:
        if isinstance(step, Get):
            owner = step.block.owner
            if owner not in free:
                link = machine.link(owner, rank)
                free[owner] = (
                    link.reads_in_place and link.bandwidth_bytes_per_s == inf and not link.latency_s
                )
            if free[owner]:
                out.append(step.index)
        elif type(step) is Scratch:
            out.append(step.index)
    return out
