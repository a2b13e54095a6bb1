"""The order in which devices get the steps of process rows and columns: NCCL needs one common order
on all ranks, also between groups, because a device may execute its collectives one by one."""

import random
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest
from any_multiplications import EXPERTS, SIGNALLED, any_other
from traced import everyone_of, resolved_as

from drbench.algorithms import algorithms
from drbench.device.executor import DeviceExecutor
from drbench.errors import UnsupportedError, UsageError
from drbench.plan.schedule import Lookahead, Scheduler
from drbench.program.steps import Fence, Get, Scratch

#: Programs whose group steps are of all ranks.
ONE_GROUP = {"dtensor_mm", "fsdp", "moe_collective", "tensor_parallel_1d"}


class AnyStep(dict):
    """The way to start a step of any type."""

    def __missing__(self, kind):
        return Launches.start


class Launches(DeviceExecutor):
    """The loop of an executor, without a device: steps are finished when they are launched, and
    the host never waits, as with NCCL in one node."""

    _STARTERS = AnyStep()

    def __init__(self, trace, depth, in_place):
        lookahead, rank = Lookahead(trace, depth), trace.rank
        resolved = [
            step.index
            for step in trace.steps
            if type(step) is Scratch
            or (
                type(step) is Get
                and step.onto is None
                and not lookahead.waits_for_fence(step.index)
            )
            and (in_place or step.block.owner == rank)
        ]
        self.trace, self.steps = trace, trace.steps
        self._schedule = Scheduler(lookahead, resolved)
        self._order, self._on_host, self._published = self, [], True
        self.launched = []
        self._launch_steps()

    def _begin_signals(self):
        pass

    def may(self, t):
        return True

    def passed(self, t):
        pass

    def start(self, t):
        self.launched.append(t)
        self._schedule.finish(t)

    def group_steps(self):
        """The group steps in the order of their launches: group, number in the program, step."""
        numbers, found = Counter(), {}
        for step in self.trace.steps:
            if step.grouped and len(step.group) > 1:
                found[step.index] = step.group, numbers[step.group], type(step)
                numbers[step.group] += 1
        return [found[t] for t in self.launched if t in found]


def host_waits(trace) -> bool:
    """Whether the host may wait before the last group step, so that time decides on the order."""
    last = max((step.index for step in trace.steps if step.grouped), default=0)
    return any(
        type(step) is Fence or step.signals or (step.block and step.block.owner != trace.rank)
        for step in trace.steps[:last]
        if not (step.grouped or step.computes)
    )


def common_order(orders) -> list:
    """All steps in an order that agrees with that of each rank; CycleError if there is none."""
    sorter = TopologicalSorter()
    for order in orders:
        for before, after in zip(order, order[1:]):
            sorter.add(after, before)
    return list(sorter.static_order())


def drawn(name, count):
    """The traces of cases of an algorithm: ragged tiles, idle ranks and any options."""
    for seed in range(count):
        case = any_other(random.Random(seed), name)
        try:
            words = *case["sizes"], case["p"], *case["texts"]
            *what, resolved = resolved_as(name, *words, **case["options"])
        except (UnsupportedError, UsageError):
            continue
        yield case, everyone_of(*what, resolved)


@pytest.mark.parametrize("name", sorted({*algorithms()} - {"universal", *SIGNALLED, *EXPERTS}))
def test_group_steps_of_all_ranks_have_one_common_order(name):
    chance, groups = random.Random(name), Counter()
    for case, traces in drawn(name, 60):
        depth, orders = chance.choice((0, 1, 2, "all")), []
        for trace in traces:
            orders.append(Launches(trace, depth, chance.random() < 0.5).group_steps())
        issued = defaultdict(list)
        for order in orders:
            for group in {step[0] for step in order}:
                issued[group].append([step for step in order if step[0] == group])
        for group, each in issued.items():
            assert len(each) == len(group) and each.count(each[0]) == len(each), (case, group)
        common_order(orders)
        names = {group.name for group in issued}
        groups[len(names)] += 1
        assert len(names) < 2 or not any(map(host_waits, traces)), case
    assert groups[1 if name in ONE_GROUP else 2] >= 5


def test_two_ranks_with_other_orders_have_none_in_common():
    row, column = ("row", 0), ("column", 0)
    assert common_order([[row, column], [row], [column]]) == [row, column]
    with pytest.raises(CycleError):
        common_order([[row, column], [column, row]])
