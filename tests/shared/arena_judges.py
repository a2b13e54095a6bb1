"""Two independent judges of an arena plan: lifetimes in virtual time, and real numbers multiplied
out of the arena at the worst moments."""

import numpy as np
from oracles import Memory, assign, operands, require
from virtual_time import RandomDelays, drive, reads_all, reads_even, reads_own

from drbench.plan.schedule import Lookahead, plan_arena
from drbench.program.steps import Accumulate, Add, Copy, Gemm, Get, Part, ReplicaAdd, Zero

ITEMSIZE = 8


def seen_through(in_place):
    """``views`` of the planner for ranks that read so much in place."""
    return lambda block: in_place is reads_all or (in_place is reads_even and block.owner % 2 == 0)


def plans_of(traces, depth, in_place=reads_own, planner=plan_arena):
    return [planner(Lookahead(trace, depth), ITEMSIZE, seen_through(in_place)) for trace in traces]


def check_lifetimes(trace, plan, start, end):
    """No two values that are alive together share memory; a value lives until its last taker has
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


class ArenaRun:
    """Executes real numbers out of the arena as the driver says, at the worst moments.

    What a step makes is garbage from its start and right only at its end; what it takes must be the
    same at both.
    """

    def __init__(self, problem, traces, plans):
        a, b = operands(problem)
        self.expected = a @ b
        self.memory = Memory(problem, a, b)
        self.traces = traces
        self.arenas = [np.full(plan.size, np.nan) for plan in plans]
        self.plans = plans
        self.taken = {}

    def value(self, rank, t):
        step, offset = self.traces[rank].steps[t], self.plans[rank].offsets.get(t)
        if type(step) is Part:
            whole, within = self.value(rank, step.inputs[0].index), slice(step.start, step.stop)
            return whole[within] if step.axis == 0 else whole[:, within]
        if offset is None:
            return self.memory.view(step.block)
        rows, cols = step.shape
        return self.arenas[rank][offset : offset + rows * cols].reshape(rows, cols)

    def on(self, what, rank, t):
        step = self.traces[rank].steps[t]
        kind = type(step)
        if what == "start":
            if t in self.plans[rank].offsets and not (kind is Gemm and step.onto is not None):
                self.value(rank, t)[...] = np.nan
            if not isinstance(step, Get):
                self.taken[rank, t] = [
                    self.value(rank, value.index).copy() for value in step.inputs
                ]
            return
        if isinstance(step, Get):
            if t in self.plans[rank].offsets:
                self.value(rank, t)[...] = self.memory.view(step.block)
            return
        if type(step) is Part:
            return
        taken = [self.value(rank, value.index) for value in step.inputs]
        same = all(np.array_equal(x, y) for x, y in zip(self.taken[rank, t], taken, strict=True))
        require(same, "operands are left alone while they are used", step)
        if kind is Gemm:
            target = self.memory.view(step.block) if step.block is not None else self.value(rank, t)
            assign(target, taken[0] @ taken[1], step.beta)
        elif kind in (Accumulate, Add, ReplicaAdd):
            self.memory.view(step.block)[...] += taken[0]
        elif kind is Copy:
            self.memory.view(step.block)[...] = taken[0]
        elif kind is Zero:
            self.memory.view(step.block)[...] = 0


def prove(problem, traces, depth, seed, in_place=reads_own, planner=plan_arena):
    """Run with random delays; both judges are content, and C = A·B."""
    plans = plans_of(traces, depth, in_place, planner)
    run = ArenaRun(problem, traces, plans)
    timeline = drive(traces, depth, RandomDelays(seed), in_place=in_place, on=run.on)
    for trace, plan in zip(traces, plans, strict=True):
        check_lifetimes(trace, plan, timeline.start[trace.rank], timeline.end[trace.rank])
    require((run.memory.c()[0] == run.expected).all(), "C is A times B")
