"""One rank in virtual time: the work of its core, and when it ends.

Each rank has a work clock. It counts seconds of undisturbed work, so it runs slower than real time
while other operations slow the rank. Computes in progress end at a time of that clock; when its
speed changes, only the next of these times is predicted again.
"""

from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.kinds import GROUP_STEPS, VIEWS, WRITES, table_of_steps
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import (
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    OperationEnd,
    Pack,
    ReplicaGet,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .costs import parts_of
from .gemm import Tiling
from .kernel import Workers, part_tiles, tilings
from .machine import Machine

#: The phase of a compute, or of a wait for another step.
PHASE_OF = table_of_steps(
    "phases of the simulator",
    {
        Gemm: "gemm",
        Fence: "fence",
        Pack: "pack",
        (Get, ReplicaGet, Await, Take): "get_wait",
        (*WRITES, Add, Copy, Zero, Push, Offer): "accumulate",
        GROUP_STEPS: "collective_wait",
        (Scratch, *VIEWS, OperationEnd): None,  # take no time
    },
)
#: Events of a kernel, or of its part: its last tile starts, it is done.
_STARTED, _DONE = 0, 1


class Concurrency(NamedTuple):
    """How many GEMMs and how many accumulates of a rank may run at the same time, and the most
    thread blocks of an accumulate (``-o max_gemms``, ``max_accumulates``, ``accumulate_blocks``).
    """

    gemms: int = 1
    accumulates: float = inf
    blocks: int = 0


#: One GEMM at a time, and any number of accumulates, which leave units to it.
ALONE = Concurrency()


class RankProgram:
    """A rank's trace, and the data of its steps on a machine that do not depend on the look-ahead.

    Attributes
    ----------
    parts : dict
        The (m, n, k) of the calls of GEMM of a step with several.
    kernels : dict of int to Tiling
        Of the steps that are parts of a kernel.
    at_once : list of int
        Steps that take no time.
    """

    def __init__(self, trace: Trace, machine: Machine, itemsize: int):
        self.trace, self.parts = trace, parts_of(trace, machine)
        self.kernels = tilings(trace.steps, machine, itemsize)
        self.at_once, self._aheads = free_steps(trace, machine), {}

    def lookahead(self, depth: int | str) -> Lookahead:
        """The look-ahead of the trace; depths above 0 differ only in the depth."""
        known = self._aheads.get(depth == 0)
        if known is None:
            known = self._aheads[depth == 0] = Lookahead(self.trace, depth)
        ahead = copy(known)
        ahead.depth = inf if depth == "all" else int(depth)
        return ahead


class Rank:
    """The state of a rank's program in a simulation.

    Parameters
    ----------
    program : RankProgram
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`.
    machine : Machine
    at : callable
        ``at(time, act, first, second)``: ``act(time, first, second)`` is called at that time.
    computed : callable
        ``computed(now, rank, version)``, called at an event of a compute (:meth:`due`); the call is
        outdated unless ``version`` is the rank's.
    most : Concurrency

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
        The computes in progress, in program order: one, several GEMMs, or parts of a kernel.
    busy_since, shown_until : float
        Since when computes run without a gap; when the last of them ended.
    started : int
        Steps started since the last compute.
    idle_since, last
        When the last compute ended, and the phase of the wait since then, so far.
    core_free : float
        Until when the core copies or adds.
    own_free : dict
        Queue -> when the rank's own throttled link is free.
    began : dict
        Step in progress -> when it started, for its bar.
    fences : int
        Fences started.
    accumulating : int
        Accumulates in progress.
    tiled : bool
        GEMMs share the units of the device, tile by tile, with each other or with accumulates.
    """

    def __init__(
        self,
        program: RankProgram,
        prefetch: int | str,
        machine: Machine,
        at: Callable,
        computed,
        most: Concurrency,
    ):
        trace = program.trace
        self.number, self.steps = trace.rank, trace.steps
        self.parts, self.kernels = program.parts, program.kernels
        ahead = program.lookahead(prefetch)
        self.schedule = Scheduler(
            ahead, [t for t in program.at_once if not ahead.waits_for_fence(t)]
        )
        self.computing, self.started = [], 0
        self.busy_since = self.shown_until = 0.0
        self.idle_since, self.last, self.core_free = 0.0, "get_wait", 0.0
        self.own_free, self.began, self.fences, self.version = {}, {}, 0, 0
        self._machine, self._at, self._computed = machine, at, computed
        self._due: list[tuple[float, int, int]] = []  # (work, what, step): a heap
        self._work = self._since = 0.0  # the work clock, and when it was read
        self._adding = self._sums = 0  # see change_concurrent()
        self._kernel, self._workers, self._open = None, None, False
        fill = most.blocks >= machine.compute.units  # fused kernels accumulate by themselves
        self._in_order = machine.accumulates_in_order and fill and not self.kernels
        self.tiled = most.gemms > 1 or self._in_order
        self._most, self._waiting, self.accumulating = most, deque(), 0
        # (start, seconds) of what GEMMs share: of those in progress, and of the last that ended
        self._sharing, self._shared_by = {}, deque(maxlen=2 * most.gemms)

    def compute(self, t: int, now: float, seconds: float) -> None:
        """Start a compute that takes ``seconds`` without concurrent operations."""
        self._work, self._since, self._kernel, self._open = 0.0, now, None, False
        self.computing.append(t)
        self.busy_since = now
        self._is_due(seconds, _DONE, t)

    def launch(self, t: int, now: float, tiling: Tiling, launch_s: float, shared_s: float) -> None:
        """Start a GEMM with a kernel of its own. Its tiles follow those of the GEMMs in progress on
        the units that these leave; it needs all of the memory, or of the sustained rate, for
        ``shared_s``."""
        if not self.computing:
            self._work, self._since, self._kernel = 0.0, now, None
            self.busy_since = now
            self._shared_by.clear()
            self._workers = Workers(tiling, 0.0)
        self._workers.tiling, at = tiling, self._own_time(now) + launch_s
        self._sharing[t] = at, shared_s
        self._assign(t, part_tiles(self.steps[t], tiling), at)

    def assign(self, t: int, now: float, launch_s: float) -> None:
        """Start a part of a kernel: assign its tiles to the workers, for the first part after the
        launch."""
        step, tiling = self.steps[t], self.kernels[t]
        if self._kernel is not step.kernel:
            self._work, self._since, self._kernel = 0.0, now, step.kernel
            self._workers = Workers(tiling, launch_s)
        if not self.computing:
            self.busy_since = now
        self._assign(t, part_tiles(step, tiling), self._own_time(now))

    def _assign(self, t: int, tiles: int, at: float) -> None:
        """Assign the tiles of a step to the workers, from a time of the work clock on."""
        self.computing.append(t)
        self._open = False
        last, end = self._workers.assign(tiles, at)
        heappush(self._due, (end, _DONE, t))
        self._is_due(last, _STARTED, t)

    def next_compute(self) -> int | None:
        """The compute that may start now: the next one if none is in progress, or, once all tiles
        of those before have started, the next part of the kernel in progress or the next of the
        concurrent GEMMs. None may start before the end of accumulates that take all units."""
        if self._in_order and self.accumulating:
            return None
        if not self.computing:
            return self.schedule.next_compute()
        t = self.schedule.next_compute(len(self.computing)) if self._open else None
        return t if t is not None and self._may_join(t) else None

    def _may_join(self, t: int) -> bool:
        """Whether a compute may run at the same time as those in progress: it is a part of their
        kernel; or they all are GEMMs, and write neither to one block of C nor onto other values."""
        step, others = self.steps[t], [self.steps[index] for index in self.computing]
        if self._kernel is not None or t in self.kernels:
            return t in self.kernels and step.kernel is self._kernel
        if len(others) >= self._most.gemms or any(
            type(other) is not Gemm or other.onto is not None or not all(other.extents)
            for other in (*others, step)
        ):
            return False
        mine = step.block
        return not (mine and any(o.block and mine.overlaps(o.block) for o in others))

    def next_accumulates(self, ready: Iterable[int]) -> list[int]:
        """The accumulates that start now: of those that waited and of those that are now ``ready``,
        as many as may run at the same time. If they take all units, they follow all tiles of the
        GEMMs before."""
        self._waiting.extend(ready)
        started = []
        wait = self._in_order and self.computing and not self._open
        while self._waiting and self.accumulating < self._most.accumulates and not wait:
            started.append(self._waiting.popleft())
            self.accumulating += 1
        return started

    def due(self, now: float) -> int | None:
        """Handle the predicted event: return the compute that is done, or None if the last tile of
        a part has started, or a GEMM ends later, since others used the memory."""
        work, what, t = heappop(self._due)
        if what == _DONE and t in self._sharing:
            least = self._end_sharing(t)
            if least > work:
                self._is_due(least, _DONE, t)
                return None
        if self._due:
            self._predict()
        if what == _STARTED:
            self._open = True
            return None
        self.computing.remove(t)
        if not self.computing:
            self.idle_since = now
        return t

    def _end_sharing(self, t: int) -> float:
        """The earliest end of a GEMM by what it shares with those that have ended."""
        ended = self._shared_by
        ended.append(self._sharing.pop(t))
        return max(start + sum(s for began, s in ended if began >= start) for start, _ in ended)

    def _own_time(self, now: float) -> float:
        """The time of the work clock."""
        return self._work + (now - self._since) / self._slow()

    def _is_due(self, work: float, what: int, t: int) -> None:
        heappush(self._due, (work, what, t))
        self._predict()

    def _predict(self) -> None:
        self.version += 1
        after = (self._due[0][0] - self._work) * self._slow()
        self._at(self._since + after, self._computed, self, self.version)

    def _slow(self) -> float:
        """The factor by which concurrent operations slow a local GEMM."""
        machine = self._machine
        slows = self._adding and not self._in_order
        slow = 1 + (machine.accumulate_slowdown if slows else 0.0)
        if self._sums and machine.side_units:
            units = machine.compute.units
            used = self._workers.tiling.units if self._kernel is not None else units
            taken = max(0, machine.side_units - (units - used))
            slow += used / (used - taken) - 1
        return slow

    def change_concurrent(self, now: float, adds: int = 0, sums: int = 0) -> None:
        """Count accumulates or reductions that begin or end: they may slow concurrent local
        GEMMs."""
        before, worked = self._slow(), self._own_time(now)
        self._adding += adds
        self._sums += sums
        if self._slow() != before:
            self._work, self._since = worked, now
            if self._due:
                self._predict()

    def on_core(self, now: float, seconds: float) -> float:
        """The end of a copy or add of the core, which runs one at a time."""
        self.core_free = max(now, self.core_free) + seconds
        return self.core_free

    def between(self, now: float, seconds: float) -> float:
        """The end of a copy or add that interrupts the compute in progress, which ends later."""
        if not self.computing:
            return self.on_core(now, seconds)
        self._due = [(work + seconds, what, t) for work, what, t in self._due]  # is still a heap
        self._predict()
        return now + seconds

    def copied(self, now: float, nbytes: int) -> float:
        """The end of a copy of ``nbytes``."""
        seconds = self._machine.compute.memory_s(2 * nbytes)
        return self.on_core(now, seconds) if self._machine.adds_on_core else now + seconds

    def queued(self, queue: tuple, now: float, seconds: float, more: float = 0.0) -> float:
        """The end of a transfer on the rank's own throttled link, in order of starting."""
        free = max(now, self.own_free.get(queue, 0.0)) + seconds + more
        self.own_free[queue] = free
        return free


def free_steps(trace: Trace, machine: Machine) -> list[int]:
    """Steps that take no time: Gets from own tiles, or in place on a link of infinite bandwidth,
    and memory without values."""
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
