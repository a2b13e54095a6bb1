"""One rank in virtual time: what its core is busy with, and how long it still is.

Computes go by a clock of the rank's own, in seconds of work at full speed, which runs slower while
something beside them slows them. What is under way is due at a time of that clock; when its speed
changes, only the next of these times is predicted anew.
"""

from collections.abc import Callable
from copy import copy
from heapq import heappop, heappush
from math import inf

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.steps import (
    Fence,
    Gemm,
    Get,
    Pack,
    Scratch,
    Step,
)
from drbench.program.trace import Trace

from .costs import parts_of
from .kernel import Workers, part_tiles, tilings
from .machine import Machine

#: The phase that a wait for a step counts as, by what it does, but for two types.
_WAITS = {
    Fence: "fence",
    Pack: "pack",
    "fetch": "get_wait",
    "wait": "get_wait",
    "send": "accumulate",
    "add": "accumulate",
}
#: What a kernel's part is due for: its last tile starts, it is done.
_STARTED, _DONE = 0, 1


def wait_of(step: Step) -> str:
    """The phase that a wait for a step counts as."""
    return _WAITS.get(type(step)) or _WAITS.get(step.does, "collective_wait")


def work_of(step: Step) -> str:
    """The phase that a compute counts as."""
    return "gemm" if type(step) is Gemm else "accumulate"


class RankProgram:
    """A rank's trace, and what of its steps on a machine does not depend on the look-ahead.

    Attributes
    ----------
    parts : dict
        The (m, n, k) of the products that a Gemm consists of, where it is several.
    kernels : dict of int to Tiling
        Of the Gemms that are parts of a kernel.
    at_once : list of int
        Steps that take no time.
    """

    __slots__ = ("trace", "parts", "kernels", "at_once", "_aheads")

    def __init__(self, trace: Trace, machine: Machine, itemsize: int):
        self.trace, self.parts = trace, parts_of(trace, machine)
        self.kernels = tilings(trace.steps, machine, itemsize)
        self.at_once, self._aheads = free_steps(trace, machine), {}

    def lookahead(self, depth: int | str) -> Lookahead:
        """That of the trace; those of all depths but 0 differ in nothing else."""
        known = self._aheads.get(depth == 0)
        if known is None:
            known = self._aheads[depth == 0] = Lookahead(self.trace, depth)
        found = copy(known)
        found.depth = inf if depth == "all" else int(depth)
        return found


class Rank:
    """A rank's program being worked off by a simulation.

    Parameters
    ----------
    program : RankProgram
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`.
    machine : Machine
    at : callable
        ``at(time, act, one, two)``: ``act(time, one, two)`` is called at that time.
    computed : callable
        ``computed(now, rank, version)``, called when something of a compute is due (:meth:`due`);
        not that of the last prediction unless ``version`` is the rank's.

    Attributes
    ----------
    number : int
        The global rank.
    steps : list of Step
    schedule : Scheduler
        Steps that take no time are finished from the start.
    parts, kernels : dict
        As of the program.
    computing : list of int
        The computes under way, in program order: one, or parts of a kernel.
    busy_since, shown_until : float
        Since when computes are under way without a gap; when the last of them ended.
    started : int
        Steps started since the last compute.
    idle_since, last
        When the last compute ended, and the phase that the wait since then counts as so far.
    core_free : float
        Until when the core copies or adds.
    own_free : dict
        Way -> when the rank's own throttled link is free.
    began : dict
        Step under way -> when it started, for its bar.
    fences : int
        Fences started.
    """

    def __init__(
        self,
        program: RankProgram,
        prefetch: int | str,
        machine: Machine,
        at: Callable,
        computed,
    ):
        trace = program.trace
        self.number, self.steps = trace.rank, trace.steps
        self.parts, self.kernels = program.parts, program.kernels
        ahead = program.lookahead(prefetch)
        self.schedule = Scheduler(ahead, [t for t in program.at_once if not ahead.held(t)])
        self.computing, self.started = [], 0
        self.busy_since = self.shown_until = 0.0
        self.idle_since, self.last, self.core_free = 0.0, "get_wait", 0.0
        self.own_free, self.began, self.fences, self.version = {}, {}, 0, 0
        self._machine, self._at, self._computed = machine, at, computed
        self._due: list[tuple[float, int, int]] = []  # (work, what, step): a heap
        self._work = self._since = 0.0  # the rank's own clock, and when it was read
        self._adding = self._moving = self._sums = 0  # what is beside: see beside()
        self._kernel, self._workers, self._open = None, None, False

    def compute(self, t: int, now: float, seconds: float) -> None:
        """A compute starts that takes so long with nothing beside it."""
        self._work, self._since, self._kernel = 0.0, now, None
        self.computing.append(t)
        self.busy_since = now
        self._is_due(seconds, _DONE, t)

    def deal(self, t: int, now: float, launch_s: float) -> None:
        """A part of a kernel: its tiles are given to the workers, after the launch if it is the
        first."""
        step, tiling = self.steps[t], self.kernels[t]
        if self._kernel is not step.kernel:
            self._work, self._since, self._kernel = 0.0, now, step.kernel
            self._workers = Workers(tiling, launch_s)
        if not self.computing:
            self.busy_since = now
        self.computing.append(t)
        self._open = False
        last, end = self._workers.deal(part_tiles(step, tiling), self._worked(now))
        heappush(self._due, (end, _DONE, t))
        self._is_due(last, _STARTED, t)

    def next_compute(self) -> int | None:
        """The compute that may start now: if nothing is under way the next, or beside the parts of
        a kernel its next part, once all tiles of these have started."""
        if not self.computing:
            return self.schedule.next_compute()
        if not self._open:
            return None
        t = self.schedule.next_compute(len(self.computing))
        return t if t in self.kernels and self.steps[t].kernel is self._kernel else None

    def due(self, now: float) -> int | None:
        """What was predicted has come: the compute that is done, or None if the last tile of a part
        has started."""
        _, what, t = heappop(self._due)
        if self._due:
            self._predict()
        if what == _STARTED:
            self._open = True
            return None
        self.computing.remove(t)
        if not self.computing:
            self.idle_since = now
        return t

    def _worked(self, now: float) -> float:
        """What the rank's own clock says."""
        return self._work + (now - self._since) / self._slow()

    def _is_due(self, work: float, what: int, t: int) -> None:
        heappush(self._due, (work, what, t))
        self._predict()

    def _predict(self) -> None:
        self.version += 1
        after = (self._due[0][0] - self._work) * self._slow()
        self._at(self._since + after, self._computed, self, self.version)

    def _slow(self) -> float:
        """By how much longer a local product takes because of what goes on beside it."""
        machine = self._machine
        slow = (
            1
            + (machine.accumulate_slowdown if self._adding else 0.0)
            + machine.transfer_slowdown * self._moving
        )
        if self._sums and machine.side_units:
            units = machine.compute.units
            used = self._workers.tiling.units if self._kernel is not None else units
            taken = max(0, machine.side_units - (units - used))
            slow += used / (used - taken) - 1
        return slow

    def change_concurrent(self, now: float, adds: int = 0, moves: int = 0, sums: int = 0) -> None:
        """Accumulates, transfers or sums begin or end: they may slow the local products beside
        them."""
        before, worked = self._slow(), self._worked(now)
        self._adding += adds
        self._moving += moves
        self._sums += sums
        if self._slow() != before:
            self._work, self._since = worked, now
            if self._due:
                self._predict()

    def on_core(self, now: float, seconds: float) -> float:
        """When the core has copied or added for so long, which it does one after another."""
        self.core_free = max(now, self.core_free) + seconds
        return self.core_free

    def between(self, now: float, seconds: float) -> float:
        """The same now or, if the core computes, in between: the compute then ends later."""
        if not self.computing:
            return self.on_core(now, seconds)
        self._due = [(work + seconds, what, t) for work, what, t in self._due]  # a heap still
        self._predict()
        return now + seconds

    def copied(self, now: float, nbytes: int) -> float:
        """When a copy of so many bytes is done."""
        seconds = self._machine.compute.memory_s(2 * nbytes)
        return self.on_core(now, seconds) if self._machine.adds_on_core else now + seconds

    def queued(self, queue: tuple, now: float, seconds: float, more: float = 0.0) -> float:
        """When a transfer on the rank's own throttled link is through: in order of starting."""
        free = max(now, self.own_free.get(queue, 0.0)) + seconds + more
        self.own_free[queue] = free
        return free


def free_steps(trace: Trace, machine: Machine) -> list[int]:
    """Steps that take no time: Gets from own tiles, or in place through a link without limits, and
    memory without values."""
    rank, free, out = trace.rank, {trace.rank: True}, []
    for step in trace.steps:
        if isinstance(step, Get) and step.onto is None:
            owner = step.block.owner
            if owner not in free:
                link = machine.link(owner, rank)
                free[owner] = link.reads_in_place and link.free
            if free[owner]:
                out.append(step.index)
        elif type(step) is Scratch:
            out.append(step.index)
    return out
