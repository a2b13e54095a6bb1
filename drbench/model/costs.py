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

The shard is the largest of the ring's, whose shards move in step. That is for the shape ``ring`` of
a machine's collective; ``tree`` has ``log2 P``, rounded up, in place of ``P - 1`` synchronisations
and of the ``P - 1`` stages that fill the pipeline; ``fastest`` is that of the two; ``direct``
sends every shard to every rank at once, each over the link of its pair: one synchronisation, one
shard.

Where each pair of ranks has a link, a group goes over all of its own in several rings. A group over
several nodes has the network cards of its own ranks, and no others: each of its w ranks on a node
sends a w-th of what a ring or a pipeline passes on to the next node, as NCCL does with a channel
for each card. The first link that is full sets the rate (:class:`_OverNodes`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

from drbench.errors import UsageError
from drbench.plan.refinement import product_shapes
from drbench.program.group_steps import GroupStep
from drbench.program.steps import (
    Accumulate,
    Add,
    Combine,
    Copy,
    Gemm,
    Get,
    Part,
    Put,
    ReplicaAdd,
    Step,
    Zero,
)
from drbench.program.trace import Trace

from .machine import Machine

#: Bytes of memory traffic for each byte of the block, by step: an add reads two and writes one.
_MEMORY_PASSES = {Add: 3, Accumulate: 3, ReplicaAdd: 3, Copy: 2, Put: 2, Zero: 1}


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
    bytes_per_s : float
        What moves a second when nothing else does.
    engine : bool
        A copy engine of the rank moves it.
    """

    core_s: float = 0.0
    link_s: float = 0.0
    links: tuple = ()
    latency_s: float = 0.0
    shares: tuple = ()
    lane: str = ""
    bytes_per_s: float = 1.0
    engine: bool = False


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
    ends = (owner, rank) if gets else (rank, owner)
    if owner != rank:
        link, links = machine.route(*ends) if route is None else route(*ends)
        bandwidth = link.bandwidth_bytes_per_s
        if link.shared == "initiator":
            links = ("in",) if gets else ("out",)
    if gets:
        bandwidth = bandwidth * machine.pull_efficiency if link else 0.0
        copied_s = 0.0 if step.onto is None else machine.compute.memory_s(2 * nbytes)
        if link and link.core_bytes_per_s < inf:
            core_s = link.copy_s(block, nbytes)
        elif not link and not machine.adds_on_core:
            return Cost(0.0, copied_s, ("own",))
        elif not link or (link.reads_in_place and machine.adds_on_core):
            core_s = copied_s
    else:
        seconds = machine.compute.memory_s(_MEMORY_PASSES[type(step)] * nbytes)
        if machine.adds_on_core:
            near = link or (machine.link(rank, rank) if machine.links else None)
            rate = near.core_add_bytes_per_s if near else inf
            core_s = near.add_s(block, nbytes, is_cut(step)) if rate < inf else seconds
        elif not link:
            return Cost(0.0, seconds, ("own",))
        if link and isinstance(step, Accumulate):
            bandwidth *= machine.accumulate_efficiency
    if not link:
        return Cost(core_s, 0.0, ("own",))
    adds = type(step) is Accumulate
    return _on_the_way(machine, core_s, nbytes, bandwidth, (link, links), ends, adds)


def is_cut(step: Step) -> bool:
    """Whether the rows of what a step adds lie apart: a part of a product with longer ones."""
    value = step.inputs[0]
    if type(value) is not Part or value.shape == value.inputs[0].shape:
        return False
    return bool(value.axis) != bool(value.transposed)


def _on_the_way(
    machine: Machine,
    core_s: float,
    nbytes: int,
    bandwidth: float,
    way: tuple,
    ends: tuple[int, int],
    adds: bool = False,
) -> Cost:
    """What moving so many bytes takes on a (link, resources), and of the copy engine and the memory
    of both ends."""
    link, links = way
    engine = link.lane == "copy" and not adds  # accumulates are kernels
    shares, rate = machine.shares(link), bandwidth
    memory = () if link.shared == "initiator" else machine.memory_of(*ends)
    passes = (1, 2) if adds else (1, 1)  # what is there is read, and the sum is written
    if engine:
        rate = min(rate, machine.copy_engine_bytes_per_s)
    if memory:
        rate = min(rate, machine.compute.memory_bytes_per_s / max(passes))
    if memory or rate < bandwidth:
        shares = tuple(share * rate / bandwidth for share in shares or (1.0,) * len(links))
        shares += tuple(
            min(1.0, each * rate / machine.compute.memory_bytes_per_s)
            for each, _ in zip(passes, memory)
        )
        links += memory
    seconds = nbytes / rate
    return Cost(core_s, seconds, links, link.latency_s, shares, link.lane, rate, engine)


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
    return _on_the_way(machine, core_s, nbytes, bandwidth, (link, links), ends)


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
    one_s = lambda m, n, k: (
        compute.gemm_s(m, n, k, itemsize) + compute.turned_s(m, n, k, step.turned)
    )
    if parts is not None:
        return sum(one_s(*part) for part in parts)
    m, n, k = step.extents
    copied_s = 0.0 if step.rows is None else compute.memory_s(2 * m * k * itemsize)
    return copied_s + one_s(m, n, k)


def _touched(step: Step) -> int:
    """Elements that a compute other than a product reads and writes."""
    if type(step) is Combine:
        return step.taken + step.shape[0] * step.shape[1]
    if step.block is None:
        rows, cols = step.shape if step.onto is None else step.onto.shape
    else:
        rows, cols = step.block.shape
    passes = len(step.terms) + 2 if type(step) is Add else _MEMORY_PASSES[type(step)]
    return passes * rows * cols


def parts_of(trace: Trace, machine: Machine) -> dict[int, list[tuple[int, int, int]]]:
    """The (m, n, k) of the products that Gemms consist of, where this machine takes more than one
    for a Gemm."""
    return product_shapes(trace.steps) if machine.pieces_apart and trace.groups else {}


def products_of(trace: Trace, machine: Machine) -> Iterator[tuple[int, int, int]]:
    """The (m, n, k) of all products of a rank as this machine makes them."""
    parts = parts_of(trace, machine)
    for step in trace.steps:
        if type(step) is Gemm:
            yield from parts.get(step.index) or (step.extents,)


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
    launch, sync = found.starts(members)
    if step.kind != "shift" and found.across(members):
        bandwidth = _OverNodes.of(machine, step.operation, members).rate
    else:
        own = (found.ring_bandwidth(group, members) or 0.0) * machine.links_within(members)
        bandwidth = (1 + found.both_ways) * (own or bandwidth_bytes_per_s)
    if step.kind == "shift":
        return launch, sync, nbytes / bandwidth
    if step.kind not in ("ring", "pipeline"):
        raise UsageError(f"a group step must be a ring, pipeline or shift, got {step.kind!r}.")
    of_shape = lambda shape: _round(
        step.kind, shape, machine.packets, ranks, nbytes, sync, bandwidth
    )
    shapes = ("ring", "tree") if found.shape == "fastest" else (found.shape,)
    if found.shape == "direct" and found.across(members):
        shapes = ("ring",)
    return launch, *min(map(of_shape, shapes), key=sum)


def _round(
    kind: str, shape: str, packets: int, ranks: int, nbytes: float, sync: float, bandwidth: float
) -> tuple[float, float]:
    """Seconds of synchronising and of transferring on a ring or a tree of ranks.

    A ring passes its shards on P - 1 times; doubling distances moves as many bytes in log2 P rounds
    (Bruck et al., 1997; Thakur, Rabenseifner, Gropp, 2005). Packets go down a chain, or down two
    trees that share the work, so that each rank receives the whole once (Sanders, Speck, Träff,
    2009; NCCL).
    """
    if shape == "direct":
        return sync, nbytes / bandwidth
    rounds = ranks - 1 if shape == "ring" else (ranks - 1).bit_length()
    if kind == "ring":
        return rounds * sync, (ranks - 1) * (nbytes / bandwidth)
    stages = rounds + packets - 1
    return stages * sync, stages * (nbytes / packets / bandwidth)


class _OverNodes(NamedTuple):
    """The rates of a collective of a group over several nodes, in bytes a second.

    Attributes
    ----------
    intra_node : float
        Of a rank inside its node; inf if no node has two members.
    card : float
        Of one network card.
    rate : float
        Of the whole ring: each member of a node that has w of them sends a w-th of it to the next
        node, and all of it to the next member of the node.
    next_local, next_node : dict
        By member: the next one of its node; a rank of the next node, and the member's share of what
        its node sends there.
    """

    intra_node: float
    card: float
    rate: float
    next_local: dict[int, int]
    next_node: dict[int, tuple[int, float]]

    @classmethod
    def of(cls, machine: Machine, operation: str, members: tuple[int, ...]) -> "_OverNodes":
        """Those of a group on a machine.

        Examples
        --------
        One rank on each of two nodes has one card, two ranks have two, unless they share it:

        >>> from drbench.model.gemm import Compute
        >>> from drbench.model.machine import Collective, Link
        >>> def rate(members, shared):
        ...     links = (
        ...         Link("near", 100.0, within=2),
        ...         Link("card", 10.0, shared=shared, node=2),
        ...     )
        ...     gather = {"allgather": Collective(node=2)}
        ...     machine = Machine("toy", Compute(1.0), links, collectives=gather)
        ...     return _OverNodes.of(machine, "allgather", members).rate
        >>> rate((0, 2), "device"), rate((0, 1, 2, 3), "device"), rate((0, 1, 2, 3), "node")
        (10.0, 20.0, 10.0)
        """
        found = machine.over_nodes.get((operation, members))
        if found is None:
            found = machine.over_nodes[operation, members] = cls._made(machine, operation, members)
        return found

    @classmethod
    def _made(cls, machine: Machine, operation: str, members: tuple[int, ...]) -> "_OverNodes":
        collective = machine.collective(operation)
        by_node: dict[int, list[int]] = {}
        for rank in members:
            by_node.setdefault(rank // collective.node, []).append(rank)
        nodes = list(by_node.values())
        own = collective.bandwidth_bytes_per_s
        card = collective.across_bandwidth_bytes_per_s
        if card is None:
            link = machine.link(nodes[0][0], nodes[1][0])
            card = min(link.bandwidth_bytes_per_s, own or inf)
        intra_node = min(
            (
                own * machine.links_within(each)
                if own
                else machine.link(*each[:2]).bandwidth_bytes_per_s
                for each in nodes
                if each[1:]
            ),
            default=inf,
        )
        next_local = {mine[x - 1]: rank for mine in nodes for x, rank in enumerate(mine)}
        next_node = {
            rank: (other[place % len(other)], 1 / len(mine))
            for mine, other in zip(nodes, (*nodes[1:], nodes[0]))
            for place, rank in enumerate(mine)
        }
        if machine.adds_on_core:  # one ring: the core of each rank passes on all of it
            return cls(intra_node, card, card, next_local, next_node)
        parts = Counter()
        for source, (target, part) in next_node.items():
            link, resources = machine.route(source, target)
            for resource, share in zip(resources, machine.shares(link) or (1.0,) * len(resources)):
                parts[resource] += part * share
        rate = min(intra_node, card / max(parts.values()))
        return cls(intra_node, card, rate, next_local, next_node)

    def ways(self, senders: Iterable[int], intra_node: tuple, between: tuple) -> list["Way"]:
        """The ways from some ranks: to the next member of the node, for a part of the time and with
        so many elements (``intra_node``); and to the next node, the rank's share of ``between``."""
        ways = []
        for rank in senders:
            if self.next_local[rank] != rank:
                ways.append(Way(rank, self.next_local[rank], *intra_node))
            target, share = self.next_node[rank]
            ways.append(Way(rank, target, *(each * share for each in between)))
        return ways


class Way(NamedTuple):
    """What a group step sends from one rank to another: for which part of the time that it takes
    to transfer, and how many elements."""

    source: int
    target: int
    part: float
    elements: float


def group_ways(step: GroupStep, machine: Machine, senders: Iterable[int]) -> list[Way]:
    """The ways that a group step takes from the members at some positions of its group.

    Round the ring; of a tree the links of the ring stand for those that it takes, as both are those
    of the same ranks. Over several nodes each rank sends to the next one of its node, and its share
    to the next node.
    """
    members, found = step.group.members, machine.collective(step.operation)
    following = lambda x, by: members[(x + by) % len(members)]
    if step.kind == "shift":
        return [Way(members[x], following(x, step.by), 1.0, step.shard()) for x in senders]
    elements = step.ring().elements
    if not found.across(members) and found.shape == "direct":
        others = range(1, len(members))
        return [
            Way(members[x], following(x, by), 1.0, step.shard()) for x in senders for by in others
        ]
    if not found.across(members):
        elements //= 1 + found.both_ways
        by = (1, -1) if found.both_ways else (1,)
        return [Way(members[x], following(x, each), 1.0, elements) for each in by for x in senders]
    over, ranks = _OverNodes.of(machine, step.operation, members), [members[x] for x in senders]
    busy = lambda limit: 1.0 if over.rate == limit else over.rate / limit
    return over.ways(ranks, (busy(over.intra_node), elements), (busy(over.card), elements))


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


def group_resources(
    step: GroupStep,
    machine: Machine,
    ways: Iterable[Way],
    route: Callable,
    rate: float | None = None,
) -> tuple[float, dict]:
    """Bytes a second of the slowest link on the ways of a group step (``rate`` if that is known of
    more ways than these), over several nodes those of the whole ring; and what it takes of each
    resource on them, as a part of all while it transfers: all of it, but of what carries more where
    links are shared, and over several nodes."""
    routes = [(way, *route(way.source, way.target)) for way in ways]
    over = step.kind != "shift" and machine.collective(step.operation).across(step.group.members)
    if over:
        rate = _OverNodes.of(machine, step.operation, step.group.members).rate
    elif rate is None:
        rate = min(link.bandwidth_bytes_per_s for _, link, _ in routes)
    fair, taken = machine.arbitration == "fair", Counter()
    for way, link, resources in routes:
        shares = (fair or over) and machine.shares(link) or (1.0,) * len(resources)
        slow = rate / link.bandwidth_bytes_per_s if fair and not over and rate < inf else 1.0
        for resource, share in zip(resources, shares):
            part = way.part * slow * share
            taken[resource] = (
                min(1.0, taken[resource] + part) if over else max(taken[resource], part)
            )
    return rate, taken


class GroupCost(NamedTuple):
    """What the data of a group step takes of the links, as a transfer has it."""

    seconds: float
    fixed_s: float = 0.0
    bytes_per_s: float = 1.0
    links: tuple = ()
    shares: tuple = ()


def group_cost(step: GroupStep, machine: Machine, ways: list, itemsize: int, route) -> GroupCost:
    """That of a group step on all these ways at the same time, as fast as the slowest; where the
    core does everything, only the seconds."""
    if machine.adds_on_core:
        rate = min(route(way.source, way.target)[0].bandwidth_bytes_per_s for way in ways)
        return GroupCost(group_seconds(step, machine, *on_links(step, itemsize, rate)))
    rate, taken = group_resources(step, machine, ways, route)
    launch_s, sync_s, moving_s = group_parts(step, machine, *on_links(step, itemsize, rate))
    shares = tuple(taken.values()) if min(taken.values(), default=1.0) < 1 else ()
    seconds = launch_s + (sync_s + moving_s)
    return GroupCost(seconds, launch_s + sync_s, rate, tuple(taken), shares)


def on_links(step: GroupStep, itemsize: int, bandwidth_bytes_per_s: float) -> tuple:
    """What :func:`group_parts` asks of a step: ranks, bytes of a shard, bandwidth, group and its
    members."""
    group = step.group
    return len(group), itemsize * step.shard(), bandwidth_bytes_per_s, group.name, group.members
