"""What a step costs by itself on a machine model: for the simulator, the lower bound and the
lowering passes of the universal algorithm.

Computes and one-sided steps (:func:`step_cost`) take time of the core and of links. How the steps
of a process row or column move:

========  ================================================================  ========================
kind      seconds on P ranks                                                steps
========  ================================================================  ========================
ring      ``launch + (P - 1) · (sync + shard / bandwidth)``; begins when    AllGather, ReduceScatter
          all have come
pipeline  ``launch + (P + packets - 2) · (sync + whole / packets /          Broadcast, Reduce
          bandwidth)``; likewise
shift     ``launch + sync + sent / bandwidth`` for each pair of             Shift
          neighbours, when both have come
========  ================================================================  ========================

The shard is the largest of the ring's, whose shards move in step.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from drbench.errors import UsageError
from drbench.plan.refinement import product_shapes
from drbench.program.group_steps import GroupStep
from drbench.program.steps import Accumulate, Add, Combine, Copy, Gemm, Get, Put, Step, Zero
from drbench.program.trace import Trace

from .machine import Machine

#: Bytes of memory traffic for each byte of the block, by step: an add reads two and writes one.
_MEMORY_PASSES = {Add: 3, Accumulate: 3, Copy: 2, Put: 2, Zero: 1}


class Cost(NamedTuple):
    """What one step costs.

    Attributes
    ----------
    core_s : float
        Time of the compute engine, for which its steps follow each other.
    link_s : float
        Time on each of ``links``, likewise.
    links : tuple
        What a transfer occupies: links of the machine, ``"in"`` or ``"out"`` of the rank's own
        throttled link, or ``"own"`` memory.
    latency_s : float
        After the link, which it does not occupy.
    shares : tuple of float
        For which part of ``link_s`` each of ``links`` is occupied; empty for all of it.
    lane : str
        The lane of the link class; empty for own memory.
    """

    core_s: float = 0.0
    link_s: float = 0.0
    links: tuple = ()
    latency_s: float = 0.0
    shares: tuple = ()
    lane: str = ""


def step_cost(
    machine: Machine, step: Step, rank: int, itemsize: int, route: Callable | None = None
) -> Cost:
    """What a compute or a one-sided step of a rank costs.

    Parameters
    ----------
    machine : Machine
    step : Step
        No step of a group.
    rank : int
    itemsize : int
    route : callable, optional
        In place of ``machine.route``.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.steps import Block
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 64.0),))
    >>> cost = step_cost(toy, Get(Block("A", 1, 0, (0, 0), 0, 4, 0, 8, 0, 8)), 0, 4)
    >>> cost.core_s, cost.link_s, cost.links, cost.latency_s
    (0.0, 2.0, (('wire', 'out', 1), ('wire', 'in', 0)), 0.0)
    """
    if step.computes:
        return Cost(compute_s(machine, step, itemsize))
    if step.signals:
        return _signal_cost(machine, step, rank, itemsize, route)
    block, owner, gets, core_s = step.block, step.block.owner, isinstance(step, Get), 0.0
    nbytes, link = block.size * itemsize, None
    if owner != rank:
        ends = (owner, rank) if gets else (rank, owner)
        link, links = machine.route(*ends) if route is None else route(*ends)
        bandwidth = link.bandwidth_bytes_per_s
        if link.shared == "initiator":
            links = ("in",) if gets else ("out",)
    if gets:
        bandwidth = bandwidth * machine.pull_efficiency if link else 0.0
        if link and link.core_bytes_per_s < inf:
            core_s = link.copy_s(block, nbytes)
    else:
        seconds = machine.compute.memory_s(_MEMORY_PASSES[type(step)] * nbytes)
        if machine.adds_on_core:
            near = link or (machine.link(rank, rank) if machine.links else None)
            rate = near.core_add_bytes_per_s if near else inf
            core_s = nbytes / rate if rate < inf else seconds
        elif not link:
            return Cost(0.0, seconds, ("own",))
        if link and type(step) is Accumulate:
            bandwidth *= machine.accumulate_efficiency
    if not link:
        return Cost(core_s, 0.0, ("own",))
    shares = machine.shares(link)
    return Cost(core_s, nbytes / bandwidth, links, link.latency_s, shares, link.lane)


def _signal_cost(
    machine: Machine, step: Step, rank: int, itemsize: int, route: Callable | None
) -> Cost:
    """What a Push or a Take moves, a read for the latter; an Await or Offer moves nothing."""
    if step.counter is None:
        return Cost()
    ((other, elements),) = step.moved(rank)
    nbytes, ends = elements * itemsize, (rank, other) if step.sends else (other, rank)
    link, links = machine.route(*ends) if route is None else route(*ends)
    if link.shared == "initiator":
        links = ("out",) if step.sends else ("in",)
    bandwidth = link.bandwidth_bytes_per_s * (1.0 if step.sends else machine.pull_efficiency)
    core_s = 0.0
    if link.core_bytes_per_s < inf:
        core_s = nbytes / link.core_bytes_per_s
    elif machine.adds_on_core and step.sends:  # a copy into the slot
        core_s = machine.compute.memory_s(2 * nbytes)
    shares = machine.shares(link)
    return Cost(core_s, nbytes / bandwidth, links, link.latency_s, shares, link.lane)


def side_s(machine: Machine, step: Step, itemsize: int, beside: bool) -> float:
    """Seconds of a sum beside the products (``beside``), by the workers that it takes from them, or
    after them, by all (TD, 3.8: 16 multiprocessors for the first reduction, 132 for the second)."""
    compute = machine.compute
    nbytes = _touched(step) * itemsize
    rate = compute.memory_bytes_per_s
    if machine.side_units and beside:
        rate = min(rate, machine.side_units * compute.unit_bytes_per_s)
    return compute.launch_s + nbytes / rate


def sum_bytes(trace: Trace, itemsize: int) -> int:
    """Memory traffic of a rank's sums beside its products."""
    return itemsize * sum(_touched(step) for step in trace.steps if step.side)


def compute_s(machine: Machine, step: Step, itemsize: int, parts: list | None = None) -> float:
    """Seconds of a compute by itself; ``parts`` are the (m, n, k) of a Gemm that is several
    products."""
    compute = machine.compute
    if type(step) is not Gemm:
        return compute.memory_s(_touched(step) * itemsize)
    if parts is not None:
        return sum(compute.gemm_s(*part, itemsize) for part in parts)
    m, n, k = step.extents
    copied_s = 0.0 if step.rows is None else compute.memory_s(2 * m * k * itemsize)
    return copied_s + compute.gemm_s(m, n, k, itemsize)


def _touched(step: Step) -> int:
    """Elements that a compute other than a product reads and writes."""
    if type(step) is Combine:
        return step.taken + step.shape[0] * step.shape[1]
    rows, cols = (step.onto if step.block is None else step.block).shape
    return _MEMORY_PASSES[type(step)] * rows * cols


def parts_of(trace: Trace, machine: Machine) -> dict[int, list[tuple[int, int, int]]]:
    """The (m, n, k) of the products that Gemms consist of, where this machine takes more than one
    for a Gemm."""
    return product_shapes(trace.steps) if machine.pieces_apart and trace.groups else {}


def group_parts(
    step: GroupStep | type[GroupStep],
    machine: Machine,
    ranks: int,
    nbytes: float,
    bandwidth_bytes_per_s: float,
    group: str = "row",
    members: tuple[int, ...] = (),
) -> tuple[float, float, float]:
    """Seconds of launching, of synchronising and of transferring that a group step takes on free
    links; ``group`` is the name of its group, ``members`` who is in it.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Collective
    >>> from drbench.program.group_steps import AllGather
    >>> toy = Machine(
    ...     "toy", Compute(1e12), collectives={"allgather": Collective(launch_s=1.0, sync_s=0.5)}
    ... )
    >>> group_parts(AllGather, toy, 4, 100, 100.0)
    (1.0, 1.5, 3.0)
    """
    found = machine.collective(step.operation)
    launch, sync, own = found.launch_s, found.sync_s, found.ring_bandwidth(group, members)
    bandwidth = (1 + found.both_ways) * (own or bandwidth_bytes_per_s)
    if step.kind == "shift":
        return launch, sync, nbytes / bandwidth
    if step.kind == "ring":
        return launch, (ranks - 1) * sync, (ranks - 1) * (nbytes / bandwidth)
    if step.kind == "pipeline":
        stages = ranks + machine.packets - 2
        return launch, stages * sync, stages * (nbytes / machine.packets / bandwidth)
    raise UsageError(f"a group step must be a ring, pipeline or shift, got {step.kind!r}.")


def group_seconds(step: GroupStep | type[GroupStep], machine: Machine, *on) -> float:
    """Seconds a group step takes on free links: the sum of :func:`group_parts`.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Collective
    >>> from drbench.program.group_steps import AllGather
    >>> toy = Machine(
    ...     "toy", Compute(1e12), collectives={"allgather": Collective(launch_s=1.0, sync_s=0.5)}
    ... )
    >>> group_seconds(AllGather, toy, 4, 100, 100.0)
    5.5
    """
    launch, sync, transfer = group_parts(step, machine, *on)
    return launch + (sync + transfer)


def on_links(step: GroupStep, itemsize: int, bandwidth_bytes_per_s: float) -> tuple:
    """What :func:`group_parts` asks of a step: ranks, bytes of a shard, bandwidth, group and its
    members."""
    group = step.group
    return len(group), itemsize * step.shard(), bandwidth_bytes_per_s, group.name, group.members
