"""The schedule rule for programs with several communicators: the same order on all members, and no
deadlock."""

import random
from collections import deque

import pytest
from oracles import Violation
from virtual_time import Deadlock, RandomDelays, check_rule, drive, reads_none

from drbench.plan.schedule import Scheduler
from drbench.program.steps import Block, Gemm, Get, Group
from drbench.program.trace import trace

DEPTHS = range(5)


class Collective(Get):
    """A step of a named communicator whose members issue it together."""

    __slots__ = ("group", "tag")
    counter = "collective_bytes"

    def __init__(self, block, group, tag):
        super().__init__(block)
        self.group, self.tag = group, tag


def collectives(seed, rank, rows, cols):
    """Random collectives along process rows and columns, the same for all, between other computes
    on each rank."""
    shared, own = random.Random(seed), random.Random(seed * 1000 + rank)
    i, j = divmod(rank, cols)
    tokens = []
    for tag in range(shared.randint(3, 20)):
        along = shared.choice(["row", "column", "world"])
        members = {
            "row": tuple(i * cols + x for x in range(cols)),
            "column": tuple(x * cols + j for x in range(rows)),
            "world": tuple(range(rows * cols)),
        }[along]
        block = Block("A", shared.choice([0, rank, rank + 1]), 0, (0, 0), 0, 1, 0, 1)
        group = Group(along, members, members.index(rank))
        tokens.append((yield Collective(block, group, tag)))
        for _ in range(own.choice((0, 0, 1, 3))):
            target = Block("C", rank, 0, (0, 0), 0, 1, 0, 1)
            yield Gemm(own.choice(tokens), own.choice(tokens), into=own.choice([None, target]))


def collective_programs(seed):
    rows, cols = random.Random(seed).choice([(1, 3), (2, 2), (3, 2), (3, 3)])
    return [
        trace(collectives(seed, rank, rows, cols), None, rank, fresh=False)
        for rank in range(rows * cols)
    ]


@pytest.mark.parametrize("depth", DEPTHS)
def test_several_communicators_with_unequal_computes_between_never_deadlock(depth, dealt):
    for seed in dealt(range(100), depth, 5):
        traces = collective_programs(seed)
        check_rule(
            traces, depth, drive(traces, depth, RandomDelays(seed), in_place=reads_none), reads_none
        )


class AnyOrderInAGroup(Scheduler):
    """A ready step of a communicator starts, whatever step is before it."""

    def take(self):
        out = super().take()
        for name, queue in self._queues.items():
            ready = [t for t in queue if self._ready(t)]
            self._queues[name] = deque(t for t in queue if t not in ready)
            out += ready
        random.Random(len(self.steps) + self.pending).shuffle(out)
        return out


def test_a_communicator_out_of_order_is_caught():
    for seed in range(30):
        traces, delays = collective_programs(seed), RandomDelays(seed)
        try:
            timeline = drive(traces, 2, delays, scheduler=AnyOrderInAGroup, in_place=reads_none)
            check_rule(traces, 2, timeline, reads_none)
        except Deadlock:
            return
        except Violation as violation:
            assert violation.rule in (
                "members of a communicator start the same step together",
                "a communicator's steps start in program order",
            )
            return
    pytest.fail("30 programs ran in any order")
