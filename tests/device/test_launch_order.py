"""The order in which steps with signals are launched: no rank hangs, even on devices that
execute all their streams as one queue, in the order of launching."""

import itertools
import random

import pytest
from signal_runs import OVERLAP

from drbench.algorithms import get_algorithm
from drbench.device.signals import LaunchOrder
from drbench.errors import UnsupportedError
from drbench.plan.edges import edges
from drbench.plan.schedule import Lookahead, Scheduler, plan_arena
from drbench.program.signal_steps import Await, Push, Signal, Take
from drbench.program.steps import Fence, Gemm, Get, Scratch
from drbench.program.trace import trace


def traced(name, options, p, chance):
    algorithm = get_algorithm(name)
    if name not in ("te_chunks", "async_tp"):
        options = options | {"tile": chance.choice((2, 3, 8)), "part": chance.choice((1, 5))}
    if "swizzle" in algorithm.options:
        options = options | {"swizzle": chance.choice(("ranks", "naive"))}
    if "order" in algorithm.options:
        options = options | {"order": chance.choice(("ranks", "mesh"))}
    problem = algorithm.problem(31, 24, 17, p, **options)
    resolved = algorithm.resolve(problem, False, **options)
    return [algorithm.trace(problem, rank, **resolved) for rank in range(p)]


class Devices:
    """All ranks: hosts that launch, and devices of one queue each; the next event is drawn."""

    def __init__(self, traces, depth, chance):
        self.traces, self.chance = traces, chance
        self.schedules, self.orders, self.edges = [], [], []
        self.queues = [[] for _ in traces]  # what is launched and not done
        self.held = [[] for _ in traces]
        self.flags = set()  # (source, target, kind, key)
        self.fences = {}  # rank -> (step, what its queue must have done)
        for found in traces:
            flagged = {s.index for s in found.steps if isinstance(s, (Await, Take))}
            lookahead = Lookahead(found, depth)
            waits = edges(lookahead, plan_arena(lookahead, 1), {})
            self.schedules.append(Scheduler(lookahead))
            self.edges.append(waits)
            self.orders.append(LaunchOrder(found, waits, flagged))
        self.launched = [set() for _ in traces]
        self.done = [set() for _ in traces]

    def needs(self, rank, t):
        """The flags that a step waits for on its stream."""
        steps = self.traces[rank].steps
        sources = [s for s in (t, *self.edges[rank][t]) if isinstance(steps[s], (Await, Take))]
        if isinstance(steps[t], Await) or steps[t].alias:
            return []
        return [(steps[s].peer, rank, steps[s].kind, steps[s].key) for s in sources]

    def launch(self, rank):
        """One turn of a host's loop; whether anything was launched."""
        schedule, order, moved = self.schedules[rank], self.orders[rank], False
        todo, self.held[rank] = [*self.held[rank], *schedule.take()], []
        for t in sorted(todo):
            step = self.traces[rank].steps[t]
            if not order.may(t):
                self.held[rank].append(t)
                continue
            moved = True
            if type(step) is Fence:
                self.fences[rank] = t, set(self.queues[rank])
                continue
            self.enqueue(rank, t)
            if step.group is None:
                order.passed(t)
        while (t := schedule.next_compute()) is not None and order.may(t):
            moved = True
            self.enqueue(rank, t)
        return moved

    def enqueue(self, rank, t):
        self.queues[rank].append(t)
        self.schedules[rank].finish(t)

    def work(self, rank):
        """Execute the first step of the device's queue, if it can run."""
        queue, steps = self.queues[rank], self.traces[rank].steps
        if not queue or not self.flags.issuperset(self.needs(rank, queue[0])):
            return False
        step = steps[queue.pop(0)]
        self.done[rank].add(step.index)
        if isinstance(step, Signal) and step.sends:
            self.flags.add((rank, step.peer, step.kind, step.key))
        return True

    def meet(self):
        """End the Fences of all ranks, once all have reached them and their queues are empty."""
        if len(self.fences) < len(self.traces) or any(
            not done <= self.done[rank] for rank, (_, done) in self.fences.items()
        ):
            return False
        for rank, (t, _) in self.fences.items():
            self.orders[rank].passed(t)
            self.schedules[rank].finish(t)
        self.fences = {}
        return True

    def run(self):
        """The number of ranks that hang."""
        ranks = range(len(self.traces))
        acts = [(act, r) for act in (self.launch, self.work) for r in ranks] + [(self.meet, None)]
        while True:
            self.chance.shuffle(acts)
            if not any(act() if rank is None else act(rank) for act, rank in acts):
                break
        return sum(bool(self.schedules[r].pending or self.queues[r]) for r in ranks)


@pytest.mark.parametrize("name, options", OVERLAP, ids=lambda x: str(x))
def test_no_rank_hangs_on_devices_of_one_queue(name, options):
    chance, ran = random.Random(f"{name} {options}"), 0
    for p, depth in itertools.product(range(1, 9), ("all", 0, 1, 3)):
        try:
            traces = traced(name, options, p, chance)
        except UnsupportedError:
            continue
        assert Devices(traces, depth, chance).run() == 0, (p, depth)
        ran += 1
    assert ran >= 16


def test_without_the_order_rings_hang(monkeypatch):
    monkeypatch.setattr(LaunchOrder, "may", lambda self, t: True)
    stuck = 0
    for seed in range(20):
        chance = random.Random(seed)
        traces = traced("ag_gemm", {"variant": "ring"}, 4, chance)
        stuck += Devices(traces, "all", chance).run() > 0
    assert stuck > 0


def test_a_step_that_waits_for_no_rank_is_launched_at_once():
    def program():
        b = yield Scratch((4, 4))
        pushed = yield Push(b, 1, "mine")
        assert pushed
        yield Gemm(b, b)
        yield Gemm((yield Await(1, "theirs", (4, 4))), b)

    found = trace(program(), None, 0, fresh=False)
    lookahead = Lookahead(found, "all")
    order = LaunchOrder(found, edges(lookahead, plan_arena(lookahead, 1), {}), {3})
    assert [order.may(t) for t in range(5)] == [True, True, True, True, False]
    order.passed(1)
    assert order.may(4)
    order.restart()
    assert not order.may(4)
    order.passed(2)  # nobody waits for it
    assert not order.may(4)


def test_a_pull_waits_on_its_own_and_a_get_does_not():
    traces = traced("gemm_rs", {"variant": "pull"}, 2, random.Random(0))
    found = traces[0]
    lookahead = Lookahead(found, "all")
    waits = edges(lookahead, plan_arena(lookahead, 1), {})
    takes = {step.index for step in found.steps if type(step) is Take}
    order = LaunchOrder(found, waits, takes)
    assert takes and not any(order.may(t) for t in takes)
    assert all(order.may(step.index) for step in found.steps if isinstance(step, Get))
