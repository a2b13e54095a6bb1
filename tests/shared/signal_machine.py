"""A machine without MPI for programs with signals: every rank's trace worked off by the real
scheduler in its planned arena and inbox, everything completing in random order.

What a step makes is garbage (NaN) from its start and right only at its end; what it takes must be
the same at both. A slot is written by its Push alone, whenever that gets there.
"""

import random

import numpy as np
from oracles import Memory, assign, expected, operands, require

from drbench.plan.schedule import Lookahead, Scheduler, plan_arena
from drbench.plan.signals import plan_inbox
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Assemble,
    Copy,
    Fence,
    Gemm,
    Get,
    Join,
    Panel,
    Part,
    ReplicaAdd,
    Zero,
)

ITEM = 8


class Stuck(AssertionError):
    """Steps are left and nothing can go on."""


class SignalMachine:
    """All ranks of a program; :meth:`run` gives C as each replica holds it, and what it is to be:
    alpha·op(A)·op(B) + beta·C.

    Parameters
    ----------
    scheduler, planner :
        The rule and the plan of inboxes, or mutants of them.
    waits : bool
        An Await ends when its Push has arrived; else whenever.
    before : ndarray, optional
        What C holds, where that counts; NaN without it.
    """

    def __init__(
        self,
        problem,
        traces,
        depth,
        seed,
        scheduler=Scheduler,
        planner=plan_inbox,
        waits=True,
        alpha=1.0,
        beta=0.0,
        before=None,
    ):
        self.alpha, self.beta = alpha, beta
        self.traces, self.chance, self.waits = traces, random.Random(seed), waits
        a, b = operands(problem, seed)
        self.expected, self.memory = alpha * expected(problem, a, b), Memory(problem, a, b, before)
        if beta:
            self.expected += beta * before
        self.schedules, self.arenas, self.inboxes, self.plans, self.slots = [], [], [], [], []
        for trace in traces:
            lookahead = Lookahead(trace, depth)
            own = lambda source, rank=trace.rank: source.owner == rank
            self.plans.append(plan_arena(lookahead, ITEM, own))
            self.slots.append(planner(trace, [ITEM] * len(trace.steps)))
            self.arenas.append(np.full(self.plans[-1].size, np.nan))
            self.inboxes.append(np.full(self.slots[-1].nbytes // ITEM, np.nan))
            self.schedules.append(scheduler(lookahead))
        self.there = set()  # (kind, source, target, key) that have arrived
        self.ends = {
            (step.kind, step.peer, trace.rank, step.key): step
            for trace in traces
            for step in trace.steps
            if isinstance(step, (Await, Take))
        }
        self.begun = [{} for _ in traces]  # rank -> step -> what it took then
        self.fences = [0] * len(traces)
        self.met = {}

    # -- values

    def value(self, rank, step):
        if isinstance(step, Part):
            whole = self.value(rank, step.inputs[0])
            return (
                whole[step.start : step.stop]
                if step.axis == 0
                else whole[:, step.start : step.stop]
            )
        if isinstance(step, Join):
            return np.concatenate([self.value(rank, token) for token in step.inputs], step.axis)
        if isinstance(step, Panel):
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
        else:
            require(isinstance(step, Get) and step.block.owner == rank, "a value has memory", step)
            return self.memory.view(step.block)
        return where[at : at + rows * cols].reshape(rows, cols)

    def taken(self, rank, step):
        takes = [value for value in step.inputs if value.shape is not None]
        return [np.array(self.value(rank, value)) for value in takes]

    # -- events

    def start(self, rank, step):
        self.begun[rank][step.index] = self.taken(rank, step)
        makes = step.shape is not None and step.onto is None and not step.alias
        own = isinstance(step, Get) and step.block.owner == rank
        if makes and not own and not isinstance(step, Await):
            self.value(rank, step)[...] = np.nan
        if type(step) is Push:
            self.value(step.peer, self.other(rank, step))[...] = np.nan
        if type(step) is Fence:
            self.met[self.fences[rank]] = self.met.get(self.fences[rank], 0) + 1
            self.fences[rank] += 1
            self.begun[rank][step.index] = self.fences[rank] - 1

    def other(self, rank, step):
        return self.ends[step.kind, rank, step.peer, step.key]

    def may_end(self, rank, t):
        step = self.traces[rank].steps[t]
        if type(step) is Fence:
            return self.met[self.begun[rank][t]] == len(self.traces)
        if isinstance(step, (Await, Take)) and self.waits:
            return (step.kind, step.peer, rank, step.key) in self.there
        return True

    def end(self, rank, step):
        before, kind = self.begun[rank].pop(step.index), type(step)
        beta = self.beta if step.beta is None else step.beta
        if kind not in (Fence, Assemble) and not step.alias:
            now = self.taken(rank, step)
            if step.onto is not None:  # changed by the step itself
                kept = step.count if kind is Add else 2
                before, now = before[:kept], now[:kept]
            same = all(np.array_equal(x, y, equal_nan=True) for x, y in zip(before, now))
            require(same, "operands are left alone while they are used", rank, step)
        if kind is Assemble:
            (rows, cols), panel = step.block.shape, self.value(rank, step.onto)
            cut = slice(step.row, step.row + rows), slice(step.col, step.col + cols)
            panel[cut] = self.memory.view(step.block)
        elif isinstance(step, Get):
            if step.block.owner != rank:
                self.value(rank, step)[...] = self.memory.view(step.block)
        elif kind is Push:
            self.value(step.peer, self.other(rank, step))[...] = before[0]
        elif kind is Take:
            source = next(
                each
                for each in self.traces[step.peer].steps
                if type(each) is Offer and (each.peer, each.key) == (rank, step.key)
            )
            self.value(rank, step)[...] = self.value(step.peer, source.inputs[0])
        elif kind is Gemm:
            target = self.memory.view(step.block) if step.block else self.value(rank, step)
            a = before[0]
            product = self.alpha * (a @ before[1])
            if isinstance(step.onto, Join):  # which shows several arrays
                start = 0
                for token in step.onto.inputs:
                    stop = start + token.shape[step.onto.axis]
                    cut = slice(start, stop)
                    part = product[cut] if step.onto.axis == 0 else product[:, cut]
                    assign(self.value(rank, token), part, beta)
                    start = stop
            else:
                assign(target, product, beta)
        elif kind in (Add, Accumulate, ReplicaAdd):
            target = self.memory.view(step.block) if step.block else self.value(rank, step)
            for term in before[: len(step.terms) if kind is Add else 1]:
                target += term
        elif kind is Copy:
            assign(self.memory.view(step.block), before[0], beta)
        elif kind is Zero:
            assign(self.memory.view(step.block), 0.0, beta)
        if kind in (Push, Offer):
            self.there.add((step.kind, rank, step.peer, step.key))

    def run(self):
        ranks = range(len(self.traces))
        computing = [False] * len(self.traces)
        while True:
            for rank in ranks:
                schedule, steps = self.schedules[rank], self.traces[rank].steps
                for t in schedule.take():
                    self.start(rank, steps[t])
                if not computing[rank] and (t := schedule.next_compute()) is not None:
                    computing[rank] = True
                    self.start(rank, steps[t])
            open_ = [(rank, t) for rank in ranks for t in self.begun[rank] if self.may_end(rank, t)]
            if not open_:
                break
            rank, t = self.chance.choice(open_)
            step = self.traces[rank].steps[t]
            self.end(rank, step)
            computing[rank] &= not step.computes
            self.schedules[rank].finish(t)
        left = {rank: self.schedules[rank].pending for rank in ranks}
        if any(left.values()):
            raise Stuck(f"steps left by rank: {left}")
        return self.memory.c(), self.expected
