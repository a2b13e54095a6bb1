"""Real numbers multiplied without MPI, in planned memory and at the worst moments: the driver of
``virtual_time`` decides when steps start and end; and the lifetimes of values in that memory.
"""

import numpy as np
from oracles import Memory, assign, operands, require
from virtual_time import RandomDelays, drive, reads_all, reads_even, reads_own
from whole_multiplications import expected

from drbench.plan.schedule import Lookahead, plan_arena
from drbench.plan.signals import plan_inbox
from drbench.program.group_steps import AllGather, Broadcast, Reduce, Shift
from drbench.program.signal_steps import Await, Push, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    FilledScratch,
    Gemm,
    Get,
    Join,
    Pack,
    Part,
    ReplicaAdd,
    Zero,
)

ITEM = 8


def plans_of(traces, depth, in_place=reads_own):
    """Arenas of ranks that read so much in place."""
    views = lambda source: (
        in_place is reads_all or (in_place is reads_even and source.owner % 2 == 0)
    )
    return [plan_arena(Lookahead(trace, depth), ITEM, views) for trace in traces]


class ArenaRun:
    """All ranks of a program, each with its arena and its inbox; the driver calls
    :meth:`on`.

    The value of a step is garbage (NaN) from its start and right only at its end; its inputs must
    be the same at both. A slot is written by its Push alone, at any time; a rank that starts a
    group step provides its input. Races are found without a run (:mod:`drbench.check`).

    Parameters
    ----------
    inbox :
        The plan of inboxes, or a mutant of it.
    before : ndarray, optional
        Values of C, where they count; NaN without them.
    """

    def __init__(
        self,
        traces,
        depth,
        seed=0,
        *,
        in_place=reads_own,
        inbox=plan_inbox,
        alpha=1.0,
        beta=0.0,
        before=None,
    ):
        self.traces, self.alpha, self.beta, problem = traces, alpha, beta, traces[0].problem
        a, b = operands(problem, seed)
        self.memory, self.expected = Memory(problem, a, b, before), alpha * expected(problem, a, b)
        if beta:
            self.expected += beta * before
        self.plans = plans_of(traces, depth, in_place)
        self.arenas = [np.full(plan.size, np.nan) for plan in self.plans]
        self.slots = [inbox(trace, [ITEM] * len(trace.steps)) for trace in traces]
        self.inboxes = [np.full(plan.nbytes // ITEM, np.nan) for plan in self.slots]
        self.begun = {}  # (rank, step) -> its inputs
        self.ends = {}  # (kind, from, to, key) -> both ends of a signal
        for trace in traces:
            for step in trace.steps:
                if step.signals:
                    ends = (trace.rank, step.peer)[:: 1 if step.sends else -1]
                    self.ends.setdefault((step.kind, *ends, step.key), {})[step.sends] = step
        self.calls = {}  # (group, rank) -> its steps so far
        self.given = {}  # (group, which of its steps) -> rank -> step and what it gives

    def on(self, what, rank, t):
        (self.start if what == "start" else self.end)(rank, self.traces[rank].steps[t])

    # -- values

    def value(self, rank, step):
        """The memory of the value of a step; of a Join a copy."""
        if isinstance(step, Part):
            within, whole = slice(step.start, step.stop), self.value(rank, step.inputs[0])
            return whole[within] if step.axis == 0 else whole[:, within]
        if isinstance(step, Join):
            return np.concatenate([self.value(rank, token) for token in step.inputs], step.axis)
        if isinstance(step, FilledScratch):
            return self.value(rank, step.inputs[0])
        if step.onto is not None:
            return self.value(rank, step.onto)
        t, (rows, cols) = step.index, step.shape
        if not rows * cols:
            return np.zeros(step.shape)
        if t in self.slots[rank].offsets:
            at, where = self.slots[rank].offsets[t] // ITEM, self.inboxes[rank]
        elif t in self.plans[rank].offsets:
            at, where = self.plans[rank].offsets[t], self.arenas[rank]
        elif step.grouped:
            return np.concatenate(
                [self.read(each, each.owner) for each in step.fragments], step.axis
            )
        else:
            require(isinstance(step, Get), "a value has memory", step)
            return self.memory.view(step.block)
        return where[at : at + rows * cols].reshape(rows, cols)

    def store(self, rank, token, value, beta=0.0):
        """Write a value plus beta times the old one to the memory of a token."""
        if token.onto is not None:
            self.store(rank, token.onto, value, beta)
        elif isinstance(token, Part):  # perhaps of a Join
            whole = np.array(self.value(rank, token.inputs[0]))
            within = slice(token.start, token.stop)
            assign(whole[within] if token.axis == 0 else whole[:, within], value, beta)
            self.store(rank, token.inputs[0], whole)
        elif isinstance(token, Join):
            cuts = np.cumsum([each.shape[token.axis] for each in token.inputs])[:-1]
            for each, part in zip(token.inputs, np.split(value, cuts, token.axis)):
                self.store(rank, each, part, beta)
        else:
            assign(self.value(rank, token), value, beta)

    def read(self, fragment, rank):
        return self.memory.flat[fragment.block.matrix][self.memory.places_of(fragment, rank)]

    def write(self, fragment, value, rank):
        self.memory.flat[fragment.block.matrix][self.memory.places_of(fragment, rank)] = value

    def taken(self, rank, step):
        """The inputs of a step, which it does not change."""
        if isinstance(step, Get) or step.alias:
            return []
        tokens = step.inputs[:2] if type(step) is Gemm else getattr(step, "terms", step.inputs)
        return [np.array(self.value(rank, token)) for token in tokens if token.shape is not None]

    # -- events

    def start(self, rank, step):
        self.begun[rank, step.index] = taken = self.taken(rank, step)
        if step.grouped:
            number = self.calls[step.group, rank] = self.calls.get((step.group, rank), 0) + 1
            own = self.read(step.own, rank) if step.own else None
            met = self.given.setdefault((step.group, number), {})
            met[rank] = step, taken[0] if taken else own, own
            self.begun[rank, step.index] = [*taken, met]
        filled = step.index in self.plans[rank].offsets or step.index in self.slots[rank].offsets
        if filled and step.shape is not None and step.onto is None and type(step) is not Await:
            self.value(rank, step)[...] = np.nan
        if type(step) is Push:
            self.value(step.peer, self.received(rank, step))[...] = np.nan

    def received(self, rank, step):
        return self.ends[step.kind, rank, step.peer, step.key][False]

    def end(self, rank, step):
        before, kind = self.begun.pop((rank, step.index)), type(step)
        met = before.pop() if step.grouped else None
        now = self.taken(rank, step)
        same = all(x.tobytes() == y.tobytes() for x, y in zip(before, now, strict=True))
        require(same, "operands are left alone while they are used", rank, step)
        beta = self.beta if step.beta is None else step.beta
        where = None if step.block is None else self.memory.view(step.block)
        if met:
            self.leave(rank, step, met)
        elif kind is Pack:
            (rows, cols), panel = step.block.shape, self.value(rank, step.onto)
            panel[step.row : step.row + rows, step.col : step.col + cols] = where
        elif isinstance(step, Get):
            if step.index in self.plans[rank].offsets:
                self.store(rank, step, where)
        elif kind is Push:
            self.store(step.peer, self.received(rank, step), before[0])
        elif kind is Take:
            offer = self.ends[step.kind, step.peer, rank, step.key][True]
            self.store(rank, step, self.value(step.peer, offer.inputs[0]))
        elif kind is Zero:
            assign(where, 0.0, beta)
        elif kind in (Gemm, Add, Copy, Accumulate, ReplicaAdd):
            value = self.alpha * (before[0] @ before[1]) if kind is Gemm else sum(before)
            beta = 1.0 if kind in (Add, Accumulate, ReplicaAdd) else beta
            if where is not None:
                assign(where, value, beta)
            else:
                self.store(rank, step.onto or step, value, beta)

    def leave(self, rank, step, met):
        """Store the result of a group step for a member."""
        given = [met[member][1] for member in step.group.members]
        if type(step) is Shift:
            sender, value, _ = met[step.source]
            require(sender.target == rank and value.shape == step.shape, "shifts fit", step, sender)
            self.store(rank, step, value)
        elif type(step) in (Broadcast, AllGather):
            owners = [fragment.owner for fragment in step.fragments]
            named = type(step) is Broadcast or owners == list(step.group.members)
            require(named, "fragments are those of the members", step)
            if step.index in self.plans[rank].offsets:
                values = given if type(step) is AllGather else [given[step.root]]
                self.store(rank, step, np.concatenate(values, step.axis))
        elif step.own:
            parts = [sum(given)]
            if type(step) is not Reduce:
                cuts = np.cumsum([fragment.shape[step.axis] for fragment in step.fragments])
                require(cuts[-1] == parts[0].shape[step.axis], "fragments make up the sum", step)
                parts = np.split(parts[0], cuts[:-1], step.axis)
            value = parts[step.group.position if len(parts) > 1 else 0]
            beta = self.beta if step.beta is None else step.beta
            onto = beta * met[rank][2] if beta else 0  # the old value is read when the sum begins
            self.write(step.own, value + onto, rank)


def multiplied(traces, depth, seed=0, waits=True, **how):
    """C of each replica after steps with random times, and the expected one:
    alpha·op(A)·op(B) + beta·C. ``how`` as in :class:`ArenaRun`."""
    run = ArenaRun(traces, depth, seed, **how)
    drive(traces, depth, RandomDelays(seed), waits=waits, on=run.on)
    return run.memory.c(), run.expected


def prove(traces, depth, seed, in_place=reads_own):
    """Run with random delays and check that C = A·B, and that no two living values share memory;
    return the timeline."""
    run = ArenaRun(traces, depth, in_place=in_place)
    timeline = drive(traces, depth, RandomDelays(seed), in_place=in_place, on=run.on)
    for trace, plan in zip(traces, run.plans, strict=True):
        check_lifetimes(trace, plan, timeline.start[trace.rank], timeline.end[trace.rank])
    require((run.memory.c()[0] == run.expected).all(), "C is A times B")
    return timeline


def check_lifetimes(trace, plan, start, end):
    """Check that no two living values share memory; a value lives until its last reader has
    ended."""
    root, alive = {}, {}
    for step in trace.steps:
        onto = step.onto if type(step) is Gemm else step.inputs[0] if type(step) is Part else None
        root[step.index] = root[onto.index] if onto is not None else step.index
        if step.index in plan.offsets:
            first, last = alive.get(root[step.index], (start[step.index], 0))
            alive[root[step.index]] = first, max(last, end[step.index])
        for value in step.inputs:
            r = root[value.index]
            if r in alive:
                alive[r] = alive[r][0], max(alive[r][1], end[step.index])
    buffers = sorted(alive)
    size = [trace.steps[t].shape[0] * trace.steps[t].shape[1] for t in buffers]
    low = np.array([plan.offsets[t] for t in buffers])
    high = low + size
    born, dead = np.array([alive[t] for t in buffers]).reshape(-1, 2).T
    for x in range(len(buffers)):
        together = (born < dead[x]) & (born[x] < dead) & (low < high[x]) & (low[x] < high)
        require(
            together.sum() == 1,
            "values alive together have memory of their own",
            trace.steps[buffers[x]],
        )
