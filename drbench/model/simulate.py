"""Run the traces of all ranks in virtual time on a machine model: same programs, same scheduler, no
MPI, no arrays.

Event-driven and deterministic: events at the same time are worked off in the order they were made.
A transfer starts when every link on its way is free, the oldest first (:mod:`drbench.model.links`);
what a step costs is the machine model's business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from drbench.common import Event
from drbench.errors import CaseFailed
from drbench.plan.explain import track_of
from drbench.plan.layouts import product_shapes
from drbench.plan.schedule import Scheduler, Windows
from drbench.program.steps import (
    COUNTERS,
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    Put,
    ReplicaGet,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .links import Links, Transfer
from .machine import Machine
from .simulate_groups import GroupSteps

__all__ = ["PHASES", "Simulated", "compute_seconds", "simulate"]

#: Where a rank's time goes: the phases of a record.
PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")

#: Bytes of memory traffic for each byte of the block, by step: an add reads two and writes one.
_MEMORY_PASSES = {Add: 3, Copy: 2, Zero: 1}
_WAITS = {
    Get: "get_wait",
    ReplicaGet: "get_wait",
    Put: "accumulate",
    Accumulate: "accumulate",
    Fence: "fence",
}


@dataclass
class Simulated:
    """What a simulation found.

    Attributes
    ----------
    time_s : float
        When the last step of the last rank ended.
    counters : dict of str to int
        Bytes by kind, summed over the ranks, named as in a record.
    phases : dict of str to float
        Seconds by phase, mean over the ranks; waits are named after what ended them.
    compute_s : list of float
        Seconds each rank computed.
    events : int
    timeline : list of Event
        If asked for. A transfer's bar is its time on the link; a group step's begins when the rank
        has come.
    """

    time_s: float
    counters: dict
    phases: dict
    compute_s: list
    events: int
    timeline: list = field(default_factory=list)


def simulate(
    traces: Sequence[Trace],
    machine: Machine,
    *,
    prefetch: int = 1,
    timeline: bool = False,
    folded: Collection[str] = (),
) -> Simulated:
    """Run the traces of all ranks of a problem, in order of rank.

    Parameters
    ----------
    traces : sequence of Trace
        One a rank.
    machine : Machine
    prefetch : int
        Look-ahead of :mod:`drbench.plan.schedule`.
    timeline : bool
        Keep a bar for each step.
    folded : collection of str
        Names of groups whose members do the same at the same time (:mod:`drbench.model.folding`):
        ``traces`` are then those of one member each, of ranks 0, 1, ...; times are as if all were
        there, counters those of all ranks.

    Raises
    ------
    CaseFailed
        If steps are left that can never start: a program that deadlocks.

    Examples
    --------
    Two ranks, 2·8·4·4 FLOPs in each of two products; the second product waits for half of A, 128
    bytes:

    >>> from algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 64.0),))
    >>> found = simulate(traces, toy)
    >>> found.time_s, found.compute_s, found.counters["get_bytes"]
    (3.0, [2.0, 2.0], 256)
    """
    return _Run(traces, machine, prefetch, timeline, folded).run()


def compute_seconds(machine: Machine, step, itemsize: int, parts: list | None = None) -> float:
    """Seconds of a compute by itself; ``parts`` are the (m, n, k) of a Gemm that is several
    products."""
    if type(step) is Gemm:
        if parts is not None:
            return sum(machine.compute.gemm_s(*part, itemsize) for part in parts)
        m, k = step.inputs[0].shape
        return machine.compute.gemm_s(m, step.inputs[1].shape[1], k, itemsize)
    rows, cols = (step.onto if step.block is None else step.block).shape
    return machine.compute.memory_s(_MEMORY_PASSES[type(step)] * rows * cols * itemsize)


class _Run:
    """The state of one simulation; ranks index most lists."""

    def __init__(self, traces, machine, prefetch, timeline, folded):
        ranks = len(traces)
        self.folded, self.stands_for = folded, traces[0].problem.nprocs // ranks if folded else 1
        self.traces, self.machine, self.itemsize = (
            traces,
            machine,
            traces[0].problem.itemsize if traces[0].problem else 4,
        )
        self.schedules = [
            Scheduler(Windows(trace, prefetch), self._resolved(trace)) for trace in traces
        ]
        self.heap, self.order, self.events = [], 0, 0
        self.links = Links(self._begin)
        self.routes: dict = {}  # (source, target) -> (link, resources)
        self.numbers: dict = {}  # what a transfer can occupy -> its number
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.compute_s = [0.0] * ranks
        self.bars = [] if timeline else None
        self.computing: list = [None] * ranks  # step under way
        self.left = [0.0] * ranks  # its seconds left at full speed ...
        self.since = [0.0] * ranks  # ... at this time
        self.version = [0] * ranks  # of its predicted end; a stale one is ignored
        self.adding = [0] * ranks  # accumulates under way
        self.moving = [0] * ranks  # links in use, where that slows products down
        self.core_free = [0.0] * ranks  # until when the core copies or adds
        self.started = [0] * ranks  # steps started since the last compute
        self.idle_since, self.last = [0.0] * ranks, ["get_wait"] * ranks
        self.own_free: dict = {}  # (rank, direction) -> when its throttled link is free
        self.fences: dict = {}  # number -> [(rank, step)]
        self.fence_number = [0] * ranks
        # (rank, step) -> when it started, for the bars of group steps and Fences
        self.began: dict = {}
        self.groups = GroupSteps(self)
        self.pieces = [
            product_shapes(trace.steps) if machine.pieces_apart and trace.groups else {}
            for trace in traces
        ]
        self.end = 0.0

    def _resolved(self, trace) -> list[int]:
        """Steps that take no time: Gets from own tiles, or in place through a link without limits,
        and memory without values."""
        rank, machine = trace.rank, self.machine
        free = {}
        out = []
        for step in trace.steps:
            if type(step) in (Get, ReplicaGet):
                owner = step.block.owner
                if owner == rank:
                    out.append(step.index)
                    continue
                if owner not in free:
                    link = machine.link(owner, rank)
                    free[owner] = (
                        link.reads_in_place
                        and link.bandwidth_bytes_per_s == inf
                        and not link.latency_s
                    )
                if free[owner]:
                    out.append(step.index)
            elif type(step) is Scratch:
                out.append(step.index)
        return out

    def run(self) -> Simulated:
        for trace, schedule in zip(self.traces, self.schedules):
            for step in trace.steps:  # what is read in place is counted without being an event
                if (
                    schedule.done[step.index]
                    and step.block is not None
                    and step.block.owner != trace.rank
                ):
                    self.counters[
                        "direct_bytes" if step.counter == "get_bytes" else step.counter
                    ] += step.block.size * self.itemsize
        for rank in range(len(self.traces)):
            self._wake(rank, 0.0)
        heap = self.heap
        while heap:
            now, _, act, one, two = heappop(heap)
            self.events += 1
            act(now, one, two)
        stuck = [rank for rank, schedule in enumerate(self.schedules) if schedule.pending]
        if stuck:
            rank = stuck[0]
            step = next(
                s for s in self.traces[rank].steps if not self.schedules[rank].done[s.index]
            )
            raise CaseFailed(
                f"the program deadlocks: {len(stuck)} ranks have steps left that can never "
                f"start; on rank {rank} "
                f"step {step.index}, {step!r}. Correct the program."
            )
        end = max(*self.idle_since, self.end)
        for rank in range(len(self.traces)):
            self.phases[self.last[rank]] += end - self.idle_since[rank]
        mean = {name: seconds / len(self.traces) for name, seconds in self.phases.items()}
        return Simulated(end, self.counters, mean, self.compute_s, self.events, self.bars or [])

    def _at(self, time, act, one=None, two=None) -> None:
        self.order += 1
        heappush(self.heap, (time, self.order, act, one, two))

    # -- ranks
    # ---------------------------------------------------------------------------------------------

    def _wake(self, rank: int, now: float) -> None:
        """Start what this rank may start now. A rank whose core does everything itself looks only
        between computes."""
        machine, schedule = self.machine, self.schedules[rank]
        if machine.adds_on_core and self.computing[rank] is not None:
            return
        steps = self.traces[rank].steps
        starters = self._STARTERS
        for t in schedule.take():
            step = steps[t]
            if step.alias:  # memory of other steps, seen differently
                self._at(now, self._seen, rank, t)
                continue
            self.started[rank] += 1
            if step.counter == "collective_bytes":
                self.groups.start(rank, t, step, now)
            else:
                starters[type(step)](self, rank, t, step, now)
        if self.computing[rank] is None:
            t = schedule.next_compute()
            if t is not None:
                self._compute(rank, t, max(now, self.core_free[rank]))

    def _seen(self, now: float, rank: int, t: int) -> None:
        """What a Part or Join shows is there."""
        self.schedules[rank].finish(t)
        self._wake(rank, now)

    def _finish(self, now: float, rank: int, t: int) -> None:
        """A communication step is complete."""
        step = self.traces[rank].steps[t]
        if self.bars is not None and (rank, t) in self.began:
            self.bars.append(
                Event(rank, track_of(step), t, repr(step), self.began.pop((rank, t)), now)
            )
        self.last[rank] = _WAITS.get(type(step), "collective_wait")
        if now > self.end:
            self.end = now
        self.schedules[rank].finish(t)
        self._wake(rank, now)

    # -- computes
    # ---------------------------------------------------------------------------------------------

    def _compute(self, rank: int, t: int, now: float) -> None:
        step, machine = self.traces[rank].steps[t], self.machine
        seconds = compute_seconds(machine, step, self.itemsize, self.pieces[rank].get(t))
        seconds += machine.step_s * (1 + self.started[rank])
        self.started[rank] = 0
        self.phases[self.last[rank]] += now - self.idle_since[rank]
        self.computing[rank], self.left[rank], self.since[rank] = (t, now), seconds, now
        self.compute_s[rank] += seconds
        self._predict(rank)

    def _predict(self, rank: int) -> None:
        self.version[rank] += 1
        self._at(
            self.since[rank] + self.left[rank] * self._slow(rank),
            self._computed,
            rank,
            self.version[rank],
        )

    def _computed(self, now: float, rank: int, version: int) -> None:
        if version != self.version[rank]:
            return  # its speed has changed since
        t, start = self.computing[rank]
        step = self.traces[rank].steps[t]
        self.computing[rank] = None
        kind = type(step)
        self.phases[
            "gemm" if kind is Gemm else "accumulate" if kind in _MEMORY_PASSES else "pack"
        ] += now - start
        self.idle_since[rank] = now
        if self.bars is not None:
            self.bars.append(Event(rank, "compute", t, repr(step), start, now))
        self.schedules[rank].finish(t)
        self._wake(rank, now)

    def _slow(self, rank: int) -> float:
        """By how much longer a local product takes because of what goes on beside it."""
        machine = self.machine
        return (
            1
            + (machine.accumulate_slowdown if self.adding[rank] else 0.0)
            + machine.transfer_slowdown * self.moving[rank]
        )

    def _beside(self, rank: int, now: float, adds: int = 0, moves: int = 0) -> None:
        """An accumulate kernel or a transfer begins or ends: it may slow the local product beside
        it."""
        before = self._slow(rank)
        self.adding[rank] += adds
        self.moving[rank] += moves
        if self.computing[rank] is not None and self._slow(rank) != before:
            self.left[rank] -= (now - self.since[rank]) / before
            self.since[rank] = now
            self._predict(rank)

    # -- one-sided steps
    # --------------------------------------------------------------------------------------------

    def _route(self, source, target):
        found = self.routes.get((source, target))
        if found is None:
            link, resources = self.machine.route(source, target)
            numbers = self.numbers  # links by number: transfers hash them often
            found = self.routes[source, target] = (
                link,
                tuple(numbers.setdefault(resource, len(numbers)) for resource in resources),
            )
        return found

    def _start_get(self, rank, t, step, now) -> None:
        owner, nbytes = step.block.owner, step.block.size * self.itemsize
        link, resources = self._route(owner, rank)
        self.counters[
            "direct_bytes" if link.reads_in_place and step.counter == "get_bytes" else step.counter
        ] += nbytes
        self._send(rank, t, link, resources, nbytes, link.bandwidth_bytes_per_s, "in", now)

    def _start_put(self, rank, t, step, now) -> None:
        owner, machine = step.block.owner, self.machine
        nbytes, adds = step.block.size * self.itemsize, type(step) is Accumulate
        seconds = machine.compute.memory_s((3 if adds else 2) * nbytes)
        if machine.adds_on_core:
            rate = machine.links[0].core_add_bytes_per_s if machine.links else inf
            now = self.core_free[rank] = max(now, self.core_free[rank]) + (
                nbytes / rate if rate < inf else seconds
            )
            seconds = 0.0
        if owner == rank:
            if adds:
                self._beside(rank, now, adds=1)
            return self._at(now + seconds, self._own_done, rank, t)
        self.counters[step.counter] += nbytes
        link, resources = self._route(rank, owner)
        efficiency = machine.accumulate_efficiency if adds else 1.0
        self._send(
            rank, t, link, resources, nbytes, link.bandwidth_bytes_per_s * efficiency, "out", now
        )

    def _own_done(self, now, rank, t) -> None:
        step = self.traces[rank].steps[t]
        if type(step) is Accumulate:
            self._beside(rank, now, adds=-1)
        self._finish(now, rank, t)

    def _send(self, rank, t, link, resources, nbytes, bandwidth, direction, now) -> None:
        if (
            link.core_bytes_per_s < inf and direction == "in"
        ):  # the core itself copies, and computes nothing meanwhile
            now = self.core_free[rank] = max(now, self.core_free[rank]) + link.copy_s(
                self.traces[rank].steps[t].block, nbytes
            )
        seconds = nbytes / bandwidth
        if link.shared == "initiator":  # nobody else uses it: its queue is the order of starting
            free = max(now, self.own_free.get((rank, direction), 0.0)) + seconds
            self.own_free[rank, direction] = free
            return self._at(free + link.latency_s, self._finish, rank, t)
        self.links.ask(Transfer(resources, seconds, link.latency_s, ((rank, t),)), now)

    def _begin(self, transfer: Transfer, now: float) -> None:
        """Its links are free: the transfer goes."""
        for rank, t in transfer.steps:
            step = self.traces[rank].steps[t]
            if type(step) is Accumulate:
                self._beside(rank, now, adds=1)
            if self.machine.transfer_slowdown:
                self._beside(rank, now, moves=transfer.flows)
            if self.bars is not None and step.group is None:
                self.bars.append(
                    Event(rank, track_of(step), t, repr(step), now, now + transfer.seconds)
                )
            elif self.bars is not None:
                self.began[rank, t] = now  # its bar does not show the wait for links
        self._at(now + transfer.seconds, self._gone, transfer)

    def _gone(self, now, transfer, _) -> None:
        """The last byte has left the links."""
        for rank, t in transfer.steps:
            if type(self.traces[rank].steps[t]) is Accumulate:
                self._beside(rank, now, adds=-1)
            if self.machine.transfer_slowdown:
                self._beside(rank, now, moves=-transfer.flows)
        self.links.release(transfer, now)
        if transfer.latency_s:
            for rank, t in transfer.steps:
                self._at(now + transfer.latency_s, self._finish, rank, t)
        else:
            for rank, t in transfer.steps:
                if self.traces[rank].steps[t].group is None:
                    self._finish(now, rank, t)
                else:
                    self.groups.part_done(now, rank, t)

    # -- Fences
    # ---------------------------------------------------------------------------------------------

    def _start_fence(self, rank, t, step, now) -> None:
        number = self.fence_number[rank]
        self.fence_number[rank] += 1
        here = self.fences.setdefault(number, [])
        here.append((rank, t))
        if self.bars is not None:
            self.began[rank, t] = now
        if len(here) == len(self.traces):
            for each in self.fences.pop(number):
                self._at(now + self.machine.fence_s, self._finish, *each)

    _STARTERS = {
        Get: _start_get,
        ReplicaGet: _start_get,
        Put: _start_put,
        Accumulate: _start_put,
        Fence: _start_fence,
    }
