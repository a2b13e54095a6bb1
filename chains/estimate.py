"""What the program of one operation takes, from the trace of one rank: an estimate, and what no
run of it can be faster than. Nothing is simulated.

Ranks of a chain do the same on tiles of the same shape, so one stands for all: rank 0, whose tiles
are the largest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import inf
from typing import Any, NamedTuple

from drbench.model.costs import (
    compute_s,
    group_parts,
    group_resources,
    group_seconds,
    group_ways,
    on_links,
    parts_of,
    side_s,
    step_cost,
)
from drbench.model.machine import Machine
from drbench.program.steps import Accumulate, Fence, Gemm, Step
from drbench.program.trace import Trace


class Estimate(NamedTuple):
    """Seconds of one operation.

    Attributes
    ----------
    time_s : float
        By itself: transfers on each kind of link follow each other, next to computes.
    least_s : float
        What it adds to a chain at least, on the core of rank 0: its GEMMs, and the transfers that
        nothing else in the chain can overlap.
    links : tuple of (str, float)
        Seconds for which each link of rank 0 is busy.
    """

    time_s: float
    least_s: float
    links: tuple[tuple[str, float], ...] = ()

    @property
    def longest_s(self) -> float:
        """The longest of computes and links: the bound of the operation alone."""
        return max((self.least_s, *(seconds for _, seconds in self.links)))


def estimate(
    trace: Trace, machine: Machine, fresh: Collection[str] = (), trailing: bool = False
) -> Estimate:
    """The seconds of a program, from the trace of rank 0.

    Parameters
    ----------
    trace : Trace
    machine : Machine
    fresh : collection of str
        Matrices that the operation before has made: their transfers begin when it ends.
    trailing : bool
        The next operation takes the result, or there is none: transfers of the result end before.

    Examples
    --------
    Rank 0 reads 128 bytes of A at 32 bytes a second and multiplies for a second twice. If A is
    fresh, the second product waits for it:

    >>> from algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> trace = get_algorithm("universal").trace(problem, 0)
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 32.0),))
    >>> estimate(trace, toy), estimate(trace, toy, "A").least_s
    (Estimate(time_s=5.0, least_s=2.0, links=(('wire in', 4.0),)), 5.0)
    """
    itemsize, parts, fresh = trace.problem.itemsize, parts_of(trace, machine), frozenset(fresh)
    alone, bound = _Clock(len(trace.steps)), _Clock(len(trace.steps))
    exposed = bytearray(len(trace.steps))  # values that depend on fresh matrices or computes
    busy: dict[str, float] = defaultdict(float)
    transfers = _Transfers(trace, machine)
    for step in trace.steps:
        t = step.index
        exposed[t] = step.computes or any(exposed[each.index] for each in step.inputs)
        if type(step) is Fence:
            alone.fence(step)
            bound.fence(step)
        elif step.computes:
            seconds = compute_s(machine, step, itemsize, parts.get(t))
            alone.compute(step, seconds)
            # a copy of an operand may overlap with a transfer
            bound.compute(step, seconds if type(step) is Gemm else 0.0)
        elif not step.grouped and step.counter is None:
            alone.wait(step)
            bound.wait(step)
        else:
            found = transfers.find(step)
            alone.transfer(step, found.link, found.seconds, found.latency_s, found.core_s)
            if isinstance(step, Accumulate):  # GEMMs take longer meanwhile, here and at the owner
                slower = machine.accumulate_slowdown + machine.owner_slowdown
                alone.core += found.seconds * slower / (1 + slower)
            exposed[t] |= step.matrix in fresh and not step.sums
            bound.wait(step, found.least_s if exposed[t] else 0.0)
            for name, seconds in found.busy:
                busy[name] += seconds
    least_s = max(bound.core, bound.end) if trailing else bound.core
    return Estimate(max(alone.core, alone.end), least_s, tuple(busy.items()))


class _Clock:
    """When the steps of a rank end: computes in the order of the program, a transfer after those
    before it on its link."""

    def __init__(self, steps: int):
        self.ready = [0.0] * steps
        self.free: dict = defaultdict(float)  # link -> when
        self.core = self.fenced = self.end = 0.0

    def wait(self, step: Step, seconds: float = 0.0) -> None:
        """A step ends so long after its inputs."""
        begin = max(self.fenced, *(self.ready[each.index] for each in step.inputs), 0.0)
        self.ready[step.index] = begin + seconds
        self.end = max(self.end, begin + seconds)

    def compute(self, step: Step, seconds: float) -> None:
        self.wait(step)
        self.core = max(self.core, self.ready[step.index]) + seconds
        self.ready[step.index] = self.core

    def transfer(self, step: Step, link, seconds: float, latency_s: float, core_s: float) -> None:
        self.wait(step)
        begin = self.ready[step.index]
        self.free[link] = max(self.free[link], begin) + seconds
        ends = [self.free[link] + latency_s]
        if core_s:
            self.core = max(self.core, begin) + core_s
            ends.append(self.core)
        self.ready[step.index] = max(ends)
        self.end = max(self.end, *ends)

    def fence(self, step: Step) -> None:
        self.fenced = self.ready[step.index] = max(self.core, self.end)


class _Transfer(NamedTuple):
    """What a step takes that moves data: its link and seconds on it, latency, seconds of the core;
    the least time from beginning to end; and for how long it occupies the rank's links, by name."""

    link: Any
    seconds: float
    latency_s: float = 0.0
    core_s: float = 0.0
    least_s: float = 0.0
    busy: tuple[tuple[str, float], ...] = ()


class _Transfers:
    """The transfers of a rank; those of the same size over the same kind of link are alike."""

    def __init__(self, trace: Trace, machine: Machine):
        self.rank, self.itemsize, self.machine = trace.rank, trace.problem.itemsize, machine
        self.known: dict = {}
        self.nodes = {each.name: each.node for each in machine.links if each.shared == "node"}

    def find(self, step: Step) -> _Transfer:
        """That of a step."""
        if step.grouped:
            return self._of_group(step)
        if step.side:
            return _Transfer("sums", side_s(self.machine, step, self.itemsize, beside=False))
        owner = None if step.block is None else step.block.owner
        link = self.machine.link(owner, self.rank) if owner not in (None, self.rank) else None
        if link is None or link.shared != "device" or self.machine.torus:
            return self._one_sided(step)
        key = type(step), step.block.shape, step.block.full, link.name
        if key not in self.known:
            self.known[key] = self._one_sided(step)
        return self.known[key]

    def _one_sided(self, step: Step) -> _Transfer:
        cost = step_cost(self.machine, step, self.rank, self.itemsize)
        if not step.moved(self.rank):
            return _Transfer(cost.links[0], cost.link_s, cost.latency_s, cost.core_s)
        shares = cost.shares or (1.0,) * len(cost.links)
        own = {
            each: cost.link_s * share
            for each, share in zip(cost.links, shares)
            if each[-1] == self.rank
        }
        link = next(iter(own), cost.links[0])
        return _Transfer(
            link,
            cost.link_s * self.nodes.get(link[0], 1),  # the others of the node move as much
            cost.latency_s,
            cost.core_s,
            max(cost.link_s + cost.latency_s, cost.core_s),
            tuple((_name(each), seconds) for each, seconds in own.items()),
        )

    def _of_group(self, step: Step) -> _Transfer:
        """On free links: of a shift over the slowest link of the ring, at least over the rank's
        own. Collectives of one group follow each other."""
        machine, members = self.machine, step.group.members
        if len(members) < 2 or (step.kind == "shift" and not step.by % len(members)):
            return _Transfer(step.group, 0.0)
        link = machine.link(*members[:2])
        if link.own_timer and link.bandwidth_bytes_per_s < inf:
            way, _, elements = step.ring()
            seconds = elements * self.itemsize / link.bandwidth_bytes_per_s
            return _Transfer(way, seconds, 0.0, 0.0, seconds, ((way, seconds),))
        rate = machine.ring_rate(members)
        seconds = group_seconds(step, machine, *on_links(step, self.itemsize, rate))
        if machine.adds_on_core:  # the core moves the data, or its share of it
            return _Transfer(step.group, 0.0, 0.0, seconds)
        ways = group_ways(step, machine, (step.group.position,))
        if step.kind == "shift":
            rate = min(machine.link(*way[:2]).bandwidth_bytes_per_s for way in ways)
        on = on_links(step, self.itemsize, rate)
        moving_s = group_parts(step, machine, *on)[2]
        busy = defaultdict(float)
        for resource, part in group_resources(step, machine, ways, rate)[1].items():
            if resource[-1] == self.rank:
                busy[_name(resource)] += part * moving_s
        if step.kind != "shift":
            busy[f"collectives of {step.group.name} {len(members)}"] = seconds
        least_s = group_seconds(step, machine, *on)
        return _Transfer(step.group, seconds, 0.0, 0.0, least_s, tuple(busy.items()))


def _name(resource: Any) -> str:
    """A link of the rank, without the rank; a pair of ranks has its own."""
    way = resource[1] if isinstance(resource[1], str) else f"from {resource[1]}"
    return f"{resource[0]} {way}"
