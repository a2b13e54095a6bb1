"""What an operation of a lowered program costs (*Slicing Is All You Need*, §4.3): the larger of its
compute and its communication."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple, Protocol

from drbench.model.machine import Machine
from drbench.program.steps import Accumulate, Add, Copy, Fence, Gemm, Step, Zero

from .graph import Graph

__all__ = ["BalanceCosts", "Cost", "Costs", "MachineCosts", "costs_of", "operation_s"]


class Cost(NamedTuple):
    """What one step costs.

    Attributes
    ----------
    core_s : float
        Time of the compute engine; steps of one operation add up.
    link_s : float
        Time on each of ``links``; steps on the same link add up.
    latency_s : float
        After the link, which it does not occupy.
    """

    core_s: float = 0.0
    link_s: float = 0.0
    links: tuple = ()
    latency_s: float = 0.0


class Costs(Protocol):
    """What the lowering asks of a cost model."""

    def cost(self, step: Step, rank: int) -> Cost:
        """Of one step of that rank's program, no Fence."""


class BalanceCosts:
    """The model where no machine is given: FLOPs, and bytes over one link in and one out; local
    memory costs nothing.

    100 FLOPs take as long as one byte (an H100 and its NVLink: 149;
    launch/data/machines/h100x8.toml). Only the ratio matters to a schedule.
    """

    flops_per_s, bytes_per_s = 1e12, 1e10

    def __init__(self, itemsize: int = 4):
        self.itemsize = itemsize

    def cost(self, step: Step, rank: int) -> Cost:
        if type(step) is Gemm:
            return Cost(core_s=step.flops / self.flops_per_s)
        if step.computes or step.block.owner == rank:
            return Cost()
        return Cost(
            link_s=step.block.size * self.itemsize / self.bytes_per_s,
            links=("out" if type(step) is Accumulate else "in",),
        )


class MachineCosts:
    """A machine model (:mod:`drbench.model.machine`), as one rank sees it: what others do to the
    links it shares is not in it.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.steps import Block, Get
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 64.0),))
    >>> MachineCosts(toy, 4).cost(Get(Block("A", 1, 0, (0, 0), 0, 4, 0, 8, 0, 8)), 0)
    Cost(core_s=0.0, link_s=2.0, links=(('wire', 'out', 1), ('wire', 'in', 0)), latency_s=0.0)
    """

    _PASSES = {Add: 3, Copy: 2, Zero: 1}

    def __init__(self, machine: Machine, itemsize: int = 4):
        self.machine, self.itemsize = machine, itemsize

    def cost(self, step: Step, rank: int) -> Cost:
        machine, kind = self.machine, type(step)
        if kind is Gemm:
            (m, k), n = step.inputs[0].shape, step.inputs[1].shape[1]
            return Cost(core_s=machine.compute.gemm_s(m, n, k, self.itemsize))
        nbytes = step.block.size * self.itemsize
        if step.computes:
            return Cost(core_s=machine.compute.memory_s(self._PASSES[kind] * nbytes))
        adds, owner, core_s = kind is Accumulate, step.block.owner, 0.0
        if adds and machine.adds_on_core:
            rate = machine.links[0].core_add_bytes_per_s if machine.links else inf
            core_s = nbytes / rate if rate < inf else machine.compute.memory_s(3 * nbytes)
        if owner == rank:
            return Cost(core_s, 0.0 if core_s else machine.compute.memory_s(3 * nbytes), ("own",))
        link, links = machine.route(*((rank, owner) if adds else (owner, rank)))
        if not adds and link.core_bytes_per_s < inf:
            core_s = link.copy_s(step.block, nbytes)
        seconds = nbytes / (
            link.bandwidth_bytes_per_s * (machine.accumulate_efficiency if adds else 1.0)
        )
        return Cost(
            core_s,
            seconds,
            (("ring", adds),) if link.shared == "initiator" else links,
            link.latency_s,
        )


def costs_of(graph: Graph, model: Costs) -> list[Cost]:
    """The cost of each node. A Fence has none: how long it takes depends on the other ranks."""
    return [
        Cost() if type(node.step) is Fence else model.cost(node.step, graph.trace.rank)
        for node in graph.nodes
    ]


def operation_s(costs: Iterable[Cost]) -> float:
    """What these steps take at the same time.

    Examples
    --------
    >>> operation_s(
    ...     [
    ...         Cost(core_s=3.0),
    ...         Cost(core_s=1.0),
    ...         Cost(link_s=2.0, links=("in",)),
    ...         Cost(link_s=1.5, links=("in",)),
    ...     ]
    ... )
    4.0
    >>> operation_s(
    ...     [Cost(link_s=2.0, links=("in",), latency_s=0.5), Cost(link_s=1.5, links=("out",))]
    ... )
    2.5
    """
    core_s, latency_s, on_link = 0.0, 0.0, {}
    for cost in costs:
        core_s += cost.core_s
        latency_s = max(latency_s, cost.latency_s)
        for link in cost.links:
            on_link[link] = on_link.get(link, 0.0) + cost.link_s
    return max(core_s, max(on_link.values(), default=0.0) + latency_s)
