"""The schedule rule in virtual time: the traces of all ranks driven by some delays, and checkers of
the timeline.

The driver knows steps only as things that start and end; the checkers know the rule only as DESIGN
states it, from the steps themselves, and look at all pairs.
"""

import heapq
import random

import numpy as np
from oracles import require, traces_of

from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.problem import Problem
from drbench.program.steps import Fence, Gemm, Get


class Deadlock(AssertionError):
    """Steps are left and none is running."""


class Timeline:
    """When each step of each rank started and ended, counted in events (so that there are no ties),
    and in seconds."""

    def __init__(self, traces):
        self.start = [np.full(len(trace.steps), -1) for trace in traces]
        self.end = [np.full(len(trace.steps), -1) for trace in traces]
        self.time_s = 0.0
        self.events = 0

    def tick(self):
        self.events += 1
        return self.events


class RandomDelays:
    """Seconds of a step: zero, or random over four orders of magnitude."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def end(self, rank, step, now):
        return now + self.rng.choice((0, 0.01, 1, 30)) * self.rng.random()


class Links:
    """Compute at a rate; each rank has a link in and a link out, which carry one transfer after the
    other."""

    def __init__(self, flops_per_s, bytes_per_s, itemsize=4):
        self.flops_per_s, self.bytes_per_s, self.itemsize = flops_per_s, bytes_per_s, itemsize
        self.free = {}

    def end(self, rank, step, now):
        if type(step) is Gemm:
            return now + 2 * step.products / self.flops_per_s
        if step.counter is None or step.block.owner == rank:
            return now
        link = rank, "in" if isinstance(step, Get) else "out"
        begin = max(now, self.free.get(link, 0.0))
        self.free[link] = begin + step.block.size * self.itemsize / self.bytes_per_s
        return self.free[link]


def reads_own(trace, step):
    """Gets from the rank's own tiles take no time."""
    return isinstance(step, Get) and step.onto is None and step.block.owner == trace.rank


def reads_all(trace, step):
    """All Gets are read in place."""
    return isinstance(step, Get)


def reads_even(trace, step):
    """Gets from own tiles and those of even ranks, as where some ranks share the node."""
    return isinstance(step, Get) and (step.block.owner == trace.rank or step.block.owner % 2 == 0)


def reads_none(trace, step):
    """Even own tiles take time."""
    return False


MODES = {
    "own tiles": reads_own,
    "every tile": reads_all,
    "some tiles": reads_even,
    "no tile": reads_none,
}


def drive(
    traces,
    depth,
    delays,
    *,
    scheduler=Scheduler,
    in_place=reads_own,
    on=lambda what, rank, t: None,
    waits=True,
):
    """Run the traces of all ranks; steps of a communicator end after all its members have started
    theirs, and the receiver of a signal after it was sent.

    Parameters
    ----------
    traces : list of Trace
    depth : int
        Look-ahead.
    delays : object
        ``delays.end(rank, step, now)`` -> when a step that starts now ends.
    scheduler : type
        The rule: Scheduler or a mutant of it.
    in_place : callable
        ``in_place(trace, step)``: steps that count as finished from the start.
    on : callable
        ``on("start" or "end", rank, t)`` as it happens.
    waits : bool
        False: receivers of signals do not wait for them.

    Raises
    ------
    Deadlock
        If steps are left that can never start.
    Violation
        If the members of a communicator start their steps on it in different orders.
    """
    timeline, ranks = Timeline(traces), range(len(traces))
    schedules = []
    for trace in traces:
        resolved = [step.index for step in trace.steps if in_place(trace, step)]
        schedules.append(scheduler(Lookahead(trace, depth), resolved))
        for t in resolved:
            timeline.start[trace.rank][t] = timeline.end[trace.rank][t] = 0
    heap, order = [], 0
    computing = [False] * len(traces)
    # of each communicator: how many steps each member has started; who has come to each of them
    issued, met = {}, {}
    signals, awaiting = set(), {}  # that were sent; who has started to wait for one

    def later(end, rank, t):
        nonlocal order
        order += 1
        heapq.heappush(heap, (end, order, rank, t))

    def start(rank, t, now):
        step = traces[rank].steps[t]
        require(timeline.start[rank][t] < 0, "a step starts once", rank, step)
        timeline.start[rank][t] = timeline.tick()
        on("start", rank, t)
        if step.signals and not step.sends and waits:
            signal = step.kind, step.peer, rank, step.key
            if signal not in signals:
                awaiting[signal] = rank, t
                return
        if step.group is None:
            return later(delays.end(rank, step, now), rank, t)
        members = getattr(step.group, "members", ranks)
        count = issued[step.group, rank] = issued.get((step.group, rank), 0) + 1
        here = met.setdefault((step.group, count), [])
        here.append((rank, t))
        if len(here) == len(members):
            tags = {
                (type(traces[r].steps[u]), getattr(traces[r].steps[u], "tag", None))
                for r, u in here
            }
            require(len(tags) == 1, "members of a communicator start the same step together", here)
            for r, u in here:  # they come out of it one by one
                later(delays.end(r, traces[r].steps[u], now), r, u)

    def wake(rank, now):
        schedule = schedules[rank]
        for t in schedule.take():
            start(rank, t, now)
        if not computing[rank]:
            t = schedule.next_compute()
            if t is not None:
                computing[rank] = True
                start(rank, t, now)

    for rank in ranks:
        later(delays.end(rank, Fence(), 0.0), rank, None)  # ranks begin at different times
    while heap:
        now, _, rank, t = heapq.heappop(heap)
        if t is not None:
            timeline.end[rank][t] = timeline.tick()
            on("end", rank, t)
            computing[rank] &= not traces[rank].steps[t].computes
            schedules[rank].finish(t)
            step = traces[rank].steps[t]
            if step.signals and step.sends:
                signal = step.kind, rank, step.peer, step.key
                signals.add(signal)
                if signal in awaiting:
                    r, u = awaiting.pop(signal)
                    later(delays.end(r, traces[r].steps[u], now), r, u)
        timeline.time_s = now
        wake(rank, now)
    left = {rank: schedule.pending for rank, schedule in enumerate(schedules) if schedule.pending}
    if left:
        raise Deadlock(f"steps left by rank: {left}")
    return timeline


# -- checks of every timeline
# -----------------------------------------------------------------------------


def check_rule(traces, depth, timeline, in_place=reads_own):
    """Check that every step started when DESIGN's rule 3 and 4 allow it, and not before.

    Raises
    ------
    Violation
        Whose ``rule`` names what was broken.
    """
    for trace in traces:
        _check_rank(trace, depth, timeline.start[trace.rank], timeline.end[trace.rank], in_place)
    _check_fences(traces, timeline, in_place)


def _check_rank(trace, depth, start, end, in_place):
    steps = trace.steps
    require((start >= 0).all() and (end >= start).all(), "every step starts and ends")
    real = np.array([not in_place(trace, step) for step in steps], bool)
    compute = np.array([step.computes for step in steps], bool)
    comm = real & ~compute
    spends = np.array([_spends_look_ahead(trace, step, depth) for step in steps], bool)
    # computes that spend look-ahead, before each step in program order
    before = np.cumsum(spends) - spends
    groups = np.array([str(step.group) for step in steps])
    for t in np.flatnonzero(real).tolist():
        step, earlier = steps[t], np.arange(len(steps)) < t
        for value in step.inputs:
            require(end[value.index] < start[t], "a step starts after its inputs", step)
        if compute[t]:
            require(
                (end[earlier & compute] < start[t]).all(), "computes run in program order", step
            )
            far = earlier & comm & (before[t] - before > depth)
            require(
                (end[far] < start[t]).all(), "results in flight are bounded by the look-ahead", step
            )
            if depth == 0:
                apart = comm & (start < end[t]) & (end > start[t])
                require(not apart.any(), "without look-ahead nothing overlaps a compute", step)
        else:
            unfinished = earlier & spends & (end > start[t])
            require(
                unfinished.sum() <= depth,
                "transfers run ahead by the look-ahead at most",
                step,
                depth,
            )
            if step.group:
                same = earlier & (groups == str(step.group))
                require(
                    (start[same] < start[t]).all(),
                    "a communicator's steps start in program order",
                    step,
                )


def _spends_look_ahead(trace, step, depth):
    """Whether a compute reads data of another rank, or makes or reads a partial sum to be sent."""
    if not step.computes:
        return False
    if depth == 0 or step.shape is not None:
        return True
    operands = [value.location()[0] for value in step.inputs]
    return any(value.computes or value.block.owner != trace.rank for value in operands)


def _check_fences(traces, timeline, in_place):
    """Check that accesses to C before a Fence end on every rank before later ones start on any."""
    last_end, first_start, fence_start, fence_end = {}, {}, {}, {}
    for trace in traces:
        segment, latest = 0, 0.0
        start, end = timeline.start[trace.rank], timeline.end[trace.rank]
        for step in trace.steps:
            t = step.index
            if type(step) is Fence:
                alone = not segment or latest < start[t]
                require(alone, "a Fence waits for the Fences before it", step)
                latest = end[t]
                fence_start[segment] = max(fence_start.get(segment, 0), start[t])
                fence_end[segment] = min(fence_end.get(segment, end[t]), end[t])
                segment += 1
            elif (
                step.block is not None
                and step.block.matrix == trace.written
                and not in_place(trace, step)
            ):
                last_end[segment] = max(last_end.get(segment, 0), end[t])
                first_start[segment] = min(first_start.get(segment, start[t]), start[t])
    for fence, ended in fence_end.items():
        require(fence_start[fence] < ended, "a Fence ends after every rank has come to it")
        require(
            last_end.get(fence, 0) < ended, "a Fence waits for everything that touches C before it"
        )
        later = [first for segment, first in first_start.items() if segment > fence]
        require(
            all(ended < first for first in later), "what touches C waits for the Fences before it"
        )


# -- programs to drive
# ---------------------------------------------------------------------------------------------

GIVEN_BACK = {"replicate_result": True}

#: One program for each way in which steps can depend on each other.
CASES = {
    "column C": (
        Problem(4, 8, 24, 4, "column", "column", "column"),
        {"stationary": "C", "chunk": 2},
    ),
    "inner C": (Problem(6, 6, 6, 3, "row", "column", "column"), {"stationary": "C", "chunk": 1}),
    "misaligned C, held operands": (
        Problem(7, 5, 6, 4, "tiles:3x2", "tiles:2x3", "block"),
        {"stationary": "C"},
    ),
    "outer B, nothing read": (
        Problem(8, 8, 8, 4, "column", "row", "row"),
        {"stationary": "B", "chunk": 2},
    ),
    "block B": (Problem(9, 9, 9, 4, "block", "block", "block"), {"stationary": "B", "chunk": 1}),
    "misaligned B, chains": (
        Problem(7, 5, 6, 6, "tiles:2x2", "block", "tiles:3x2"),
        {"stationary": "B"},
    ),
    "misaligned A, chains": (
        Problem(7, 9, 8, 4, "block", "tiles:2x2", "tiles:3x2"),
        {"stationary": "A", "chunk": 1},
    ),
    "replicas C": (
        Problem(7, 5, 6, 6, "block/c2", "row", "block/c3"),
        {"stationary": "C", "chunk": 1},
    ),
    "replicas B": (
        Problem(5, 6, 7, 4, "row/c2", "block/c2", "column/c4"),
        GIVEN_BACK | {"stationary": "B"},
    ),
    "replicas A": (
        Problem(8, 6, 4, 4, "block", "column/c2", "row/c2"),
        GIVEN_BACK | {"stationary": "A"},
    ),
    "idle ranks": (
        Problem(3, 3, 9, 6, "row", "row", "tiles:3x3@2x3"),
        {"stationary": "C", "chunk": 2},
    ),
}


def programs(case):
    problem, options = CASES[case]
    return traces_of(problem, **options)
