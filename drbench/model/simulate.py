"""Run the traces of all ranks in virtual time on a machine model: same programs, same scheduler, no
MPI, no arrays.

Event-driven and deterministic: events at the same time are handled in the order of their creation.
Transfers share links by the machine's ``arbitration`` (:mod:`drbench.model.links`); the machine
model gives the cost of a step.

The state: a heap of events (time, number of the event, function, arguments); for each rank its
scheduler, its core's clock and its computes in progress (:mod:`drbench.model.rank`); of the network
the links (:class:`drbench.model.links.FirstCome` and :class:`~drbench.model.links.Fair` describe
their state; a link is an integer) and lanes; the ranks that have arrived at Fences and group steps;
and the visible signals.

Traces of some ranks can be run alone, if they represent the others (:mod:`drbench.model.symmetry`)
or for a lower bound: if a group is incomplete, its members do their steps alone, over the links on
which they send.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import inf

from drbench.clock import PHASES, Clock, StepTime
from drbench.errors import CaseFailed
from drbench.plan.explain import track_of
from drbench.plan.signals import pairs_of
from drbench.program.kinds import ADDS, GROUP_STEPS, READS, SIGNAL_STEPS, VIEWS, table_of_steps
from drbench.program.signal_steps import Push
from drbench.program.steps import (
    COUNTERS,
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    OperationEnd,
    Put,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .costs import Costs, reduction_s
from .links import ARBITRATIONS, Lanes, LinkTransfer
from .machine import Machine
from .rank import ALONE, PHASE_OF, Concurrency, Rank, RankProgram
from .simulate_groups import GroupSteps
from .simulate_signals import SimulatedSignals


class TimeLimitExceeded(Exception):
    """The simulated time is above the limit, so the simulation was stopped."""


class EffortExhausted(Exception):
    """The CPU time is spent, so the simulation was stopped."""


@dataclass
class Simulated:
    """The result of a simulation.

    Attributes
    ----------
    time_s : float
        When the last step of the last rank ended.
    counters : dict of str to int
        Bytes by kind, summed over the ranks, named as in a record.
    phases : dict of str to float
        Seconds by phase, mean over the ranks; waits are named after what ended them.
    timeline : list of StepTime
        If requested. A transfer's bar is its time on the link; a group step's begins when the rank
        arrives.
    """

    time_s: float
    counters: dict
    phases: dict
    timeline: list = field(default_factory=list)


def simulate(
    traces: Sequence[Trace],
    machine: Machine,
    *,
    prefetch: int | str = 1,
    most: Concurrency = ALONE,
    timeline: bool = False,
    within_s: float = inf,
) -> Simulated:
    """Run the traces of all ranks of a problem, in order of rank, or of some of them.

    Parameters
    ----------
    traces : sequence of Trace
        One a rank.
    machine : Machine
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`; ``"all"`` for no limit.
    most : Concurrency
        GEMMs and accumulates of a rank that may run at the same time.
    timeline : bool
        Record a bar for each step.
    within_s : float
        Limit of the simulated time.

    Raises
    ------
    TimeLimitExceeded
        If the programs have not ended after ``within_s``.
    CaseFailed
        If steps are left that can never start: a program that deadlocks. The message names signals
        that do not match, or the ranks that wait for each other in a circle.

    Examples
    --------
    Two ranks, 2·8·4·4 FLOPs in each of two GEMMs; the second GEMM waits for half of A, 128 bytes:

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 64.0),))
    >>> result = simulate(traces, toy)
    >>> result.time_s, result.phases["gemm"], result.counters["get_bytes"]
    (3.0, 2.0, 256)
    """
    simulator = Simulator(traces, machine)
    return simulator.run(prefetch, most=most, timeline=timeline, within_s=within_s)


class Simulator:
    """Simulations of the same programs with several look-aheads: data that do not depend on it are
    computed once.

    Parameters
    ----------
    traces, machine
        As of :func:`simulate`.

    Attributes
    ----------
    until_s : float
        CPU time (:meth:`Clock.cpu`) after which :class:`EffortExhausted` stops a simulation.
    """

    until_s = inf

    def __init__(self, traces: Sequence[Trace], machine: Machine):
        problem = traces[0].problem
        self.traces, self.machine = traces, machine
        self.nprocs = problem.nprocs if problem else len(traces)
        self.costs = Costs.of(machine, problem)

    def run(
        self,
        prefetch: int | str = 1,
        *,
        most: Concurrency = ALONE,
        timeline: bool = False,
        within_s: float = inf,
    ) -> Simulated:
        """Run one simulation; parameters and errors as of :func:`simulate`."""
        run = _Simulation(self, prefetch, most, timeline)
        try:
            return run.run(within_s)
        finally:  # ranks and links refer to it: freed now, not by the garbage collector
            vars(run).clear()

    @cached_property
    def programs(self) -> list[RankProgram]:
        """The program of each rank, after a check that signals match."""
        pairs_of(self.traces)
        itemsize = self.costs.itemsize
        return [RankProgram(trace, self.machine, itemsize) for trace in self.traces]

    @cached_property
    def counters(self) -> dict[str, int]:
        """Bytes moved, by kind, of all ranks; ranks that are not simulated move as much."""
        counters, weight = dict.fromkeys(COUNTERS, 0), self.nprocs // len(self.traces)
        for trace in self.traces:
            for step in trace.steps:
                for other, elements in step.moved(trace.rank) if step.counter else ():
                    in_place = step.views and self.machine.link(other, trace.rank).reads_in_place
                    counters[step.counted(in_place)] += weight * self.costs.item(step) * elements
        return counters


class _Simulation:
    """The state of one simulation."""

    def __init__(
        self, simulator: Simulator, prefetch: int | str, most: Concurrency, timeline: bool
    ):
        self.machine, self.costs = simulator.machine, simulator.costs
        self.simulator = simulator
        self.heap, self.order, self.end = [], 0, 0.0
        self.ranks = [
            Rank(program, prefetch, self.machine, self.at, self._finish_compute, most)
            for program in simulator.programs
        ]
        self.by_number = {rank.number: rank for rank in self.ranks}
        self.links = ARBITRATIONS[self.machine.arbitration](self.at, self._begin, self._gone)
        self.lanes = Lanes(self.links.request)
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.bars = [] if timeline else None
        self.fences: dict = {}  # number -> [(rank, step)]
        self.groups, self.signals = GroupSteps(self), SimulatedSignals(self)

    def run(self, within_s: float) -> Simulated:
        for rank in self.ranks:
            self._wake(rank, 0.0)
        heap, ranks, until_s = self.heap, self.ranks, self.simulator.until_s
        while heap:
            now, number, act, first, second = heappop(heap)
            if not number % 256 and Clock.cpu() > until_s:
                raise EffortExhausted
            # outdated predictions of a rank or link may be due after the end of all programs
            if now > within_s and any(rank.schedule.pending for rank in ranks):
                raise TimeLimitExceeded
            act(now, first, second)
        stuck = [rank for rank in ranks if rank.schedule.pending]
        if stuck:
            step = next(s for s in stuck[0].steps if not stuck[0].schedule.done[s.index])
            raise CaseFailed(
                f"the program deadlocks: {len(stuck)} ranks have steps left that can never "
                f"start; on rank {stuck[0].number} step {step.index}, {step!r}. Correct the "
                "program."
            )
        end = max(self.end, *(rank.idle_since for rank in ranks))
        for rank in ranks:
            self.phases[rank.last] += end - rank.idle_since
        mean = {name: seconds / len(ranks) for name, seconds in self.phases.items()}
        return Simulated(end, dict(self.simulator.counters), mean, self.bars or [])

    def at(self, time: float, act, first=None, second=None) -> None:
        """Call ``act(time, first, second)`` at that time, after earlier calls for that time."""
        self.order += 1
        heappush(self.heap, (time, self.order, act, first, second))

    def _bar(self, rank: Rank, step, start: float, stop: float) -> None:
        self.bars.append(StepTime(rank.number, track_of(step), step.index, repr(step), start, stop))

    # -- ranks

    def _wake(self, rank: Rank, now: float) -> None:
        """Start the steps that this rank may start now. A rank whose core computes and communicates
        does so only between computes."""
        schedule, steps = rank.schedule, rank.steps
        if rank.computing and self.machine.adds_on_core:
            return
        self._start_accumulates(rank, now)
        for t in schedule.take():
            step = steps[t]
            rank.started += not step.alias
            self._STARTERS[type(step)](self, rank, t, step, now)
        t = rank.next_compute()
        if t is not None:
            self._compute(rank, t, max(now, rank.core_free))

    def _view(self, rank: Rank, t: int, step, now: float) -> None:
        self.at(now, self._seen, rank, t)

    def _seen(self, now: float, rank: Rank, t: int) -> None:
        """Finish a view of other values, which are complete."""
        rank.schedule.finish(t)
        self._wake(rank, now)

    def finish(self, now: float, rank: Rank, t: int) -> None:
        """Finish a communication step."""
        step = rank.steps[t]
        if self.bars is not None and t in rank.began:
            self._bar(rank, step, rank.began.pop(t), now)
        rank.last = PHASE_OF[type(step)]
        if now > self.end:
            self.end = now
        rank.schedule.finish(t)
        if isinstance(step, Accumulate):
            rank.accumulating -= 1
        if type(step) is Push:
            self.signals.pushed(now, rank, step)
        self._wake(rank, now)

    # -- computes

    def _compute(self, rank: Rank, t: int, now: float) -> None:
        machine = self.machine
        started_s = machine.step_s * (1 + rank.started)
        rank.started = 0
        if not rank.computing:
            self.phases[rank.last] += now - rank.idle_since
        if self.bars is not None:
            rank.began[t] = now
        if t in rank.kernels:
            rank.assign(t, now, machine.compute.launch_s + started_s)
            return
        step, compute = rank.steps[t], machine.compute
        if rank.tiled and type(step) is Gemm and all(step.extents):
            sizes = *step.extents, self.costs.itemsize
            tiling, shared_s = compute.tiling(*sizes), compute.shared_s(*sizes)
            rank.launch(t, now, tiling, compute.launch_s + started_s, shared_s)
        else:
            rank.compute(t, now, self.costs.compute_s(step, rank.parts.get(t)) + started_s)

    def _finish_compute(self, now: float, rank: Rank, version: int) -> None:
        if version != rank.version:
            return  # its speed has changed since
        t = rank.due(now)
        if t is not None:
            step = rank.steps[t]
            if not rank.computing:
                self.phases[PHASE_OF[type(step)]] += now - rank.busy_since
            if self.bars is not None:  # parts of a kernel overlap; bars do not
                self._bar(rank, step, max(rank.began.pop(t), rank.shown_until), now)
                rank.shown_until = now
            rank.schedule.finish(t)
        self._wake(rank, now)

    def _side(self, rank: Rank, t: int, step, now: float) -> None:
        """Start a reduction during the GEMMs: one at a time; it slows them."""
        if self.machine.adds_on_core:
            seconds = self.costs.compute_s(step)
            rank.began[t] = now
            self.at(rank.between(now, seconds), self.finish, rank, t)
            return
        self.at(now, self._sum, rank, t)  # after a GEMM that starts now

    def _sum(self, now: float, rank: Rank, t: int) -> None:
        lane = rank.number, "sums"
        self.lanes.add(LinkTransfer((), 0.0, 0.0, ((rank, t),), lane=lane), now)

    # -- one-sided steps

    def _one_sided(self, rank: Rank, t: int, step, now: float) -> None:
        owner = step.block.owner
        if owner != rank.number:
            self._transfer(rank, t, owner, now)
            return
        cost = self.costs.transfer(step, owner)
        rank.began[t] = now
        if cost.core_s:
            now = rank.on_core(now, cost.core_s)
        if isinstance(step, Accumulate):
            rank.change_concurrent(now, adds=1)
        self.at(now + cost.link_s, self._own_done, rank, t)

    def _accumulate(self, rank: Rank, t: int, step, now: float) -> None:
        self._start_accumulates(rank, now, t)

    def _start_accumulates(self, rank: Rank, now: float, *ready: int) -> None:
        for t in rank.next_accumulates(ready):
            self._one_sided(rank, t, rank.steps[t], now)

    def send(self, rank: Rank, t: int, now: float) -> None:
        """Begin the transfer of a Push or a Take."""
        self._transfer(rank, t, rank.steps[t].peer, now)

    def _transfer(self, rank: Rank, t: int, other: int, now: float) -> None:
        """Put the transfer of a step between this rank and another into its lane."""
        step, streams = rank.steps[t], self.machine.copy_streams
        cost = self.costs.transfer(step, rank.number)
        if cost.core_s:  # the core copies or adds, and does not compute meanwhile
            now = rank.on_core(now, cost.core_s)
        if cost.own_timer:  # used by this rank alone
            free = rank.queued(cost.links[0], now, cost.link_s)
            if self.bars is not None:
                self._bar(rank, step, free - cost.link_s, free)
            self.at(free + cost.latency_s, self.finish, rank, t)
            return
        lane = None
        if streams and not step.flagged:  # a kernel stores flagged values
            reads = step.does == "fetch"
            lane = rank.number, reads, cost.lane, (other - rank.number - 1) % streams
        self.lanes.add(
            LinkTransfer(
                cost.links,
                cost.link_s,
                cost.latency_s,
                ((rank, t),),
                shares=cost.shares,
                lane=lane,
                bytes_per_s=cost.bytes_per_s,
            ),
            now,
        )

    def _own_done(self, now: float, rank: Rank, t: int) -> None:
        if isinstance(rank.steps[t], Accumulate):
            rank.change_concurrent(now, adds=-1)
        self.finish(now, rank, t)

    def _change_concurrent(self, transfer: LinkTransfer, now: float, sign: int) -> None:
        """Count a transfer that begins or ends, on each of its ranks."""
        for rank, t in transfer.steps:
            if isinstance(rank.steps[t], Accumulate):
                rank.change_concurrent(now, adds=sign)
            if rank.steps[t].concurrent:
                rank.change_concurrent(now, sums=sign)

    def _begin(self, transfer: LinkTransfer, now: float) -> None:
        """Start a transfer on its links."""
        rank, t = transfer.steps[0]
        if rank.steps[t].concurrent:
            concurrent = bool(rank.computing)
            step = rank.steps[t]
            transfer.seconds = reduction_s(self.machine, step, self.costs.item(step), concurrent)
        self._change_concurrent(transfer, now, 1)
        transfer.began = now
        for rank, t in transfer.steps if self.bars is not None else ():
            if rank.steps[t].group is not None:
                rank.began[t] = now  # its bar does not show the wait for links

    def _gone(self, now: float, transfer: LinkTransfer, _=None) -> None:
        """Handle the event that the last byte has left the links."""
        self._change_concurrent(transfer, now, -1)
        self.links.release(transfer, now)
        if transfer.lane is not None:
            rank, t = transfer.steps[0]
            signal_s = self.machine.signal_s if type(rank.steps[t]) is Push else 0.0
            if signal_s:  # written by the same queue
                self.at(now + signal_s, self.lanes.start_next, transfer.lane)
            else:
                self.lanes.start_next(now, transfer.lane)
        for rank, t in transfer.steps:
            if self.bars is not None and rank.steps[t].group is None:
                self._bar(rank, rank.steps[t], transfer.began, now)
            if transfer.latency_s:
                self.at(now + transfer.latency_s, self.finish, rank, t)
            elif rank.steps[t].group is None:
                self.finish(now, rank, t)
            else:
                self.groups.part_done(now, rank, t)

    # -- Fences

    def _fence(self, rank: Rank, t: int, step, now: float) -> None:
        here = self.fences.setdefault(rank.fences, [])
        rank.fences += 1
        here.append((rank, t))
        rank.began[t] = now
        if len(here) == len(self.ranks):
            for member in here:
                self.at(now + self.machine.fence_s, self.finish, *member)

    #: How a communication step begins.
    _STARTERS = table_of_steps(
        "the simulator",
        {
            (*READS, Put): _one_sided,
            ADDS: _accumulate,
            Add: _side,
            Fence: _fence,
            GROUP_STEPS: lambda run, *args: run.groups.start(*args),
            SIGNAL_STEPS: lambda run, *args: run.signals.start(*args),
            VIEWS: _view,
            (Gemm, Copy, Zero): None,  # computes
            (Scratch, OperationEnd): None,  # takes no time; is in no trace
        },
    )
