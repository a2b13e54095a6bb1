"""The cost of a single step on a machine model: for the simulator, the lower bound and the
lowering passes of the universal algorithm.

Computes and one-sided steps (:func:`step_cost`) take time of the core and of links. Steps of a
process row or column:

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

The shard is the largest of the ring's, whose shards move in step. This is the shape ``ring`` of a
machine's collective; ``tree`` has ``log2 P``, rounded up, instead of ``P - 1`` synchronisations
and of the ``P - 1`` stages that fill the pipeline; ``fastest`` is the faster of the two; ``direct``
sends every shard to every rank at once, each over the link of its pair: one synchronisation, one
shard.

If each pair of ranks has a link, a group uses all of its own in several rings. A group over several
nodes uses the network cards of its own ranks, and no others: each of its w ranks on a node sends a
w-th of what a ring or a pipeline forwards to the next node, as NCCL does with a channel for each
card. The first link that is full sets the rate (:class:`_OverNodes`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple, Self

from drbench.mappings import grouped, remembered
from drbench.plan.strips import gemm_shapes
from drbench.program.group_steps import GroupStep
from drbench.program.kinds import ADDS, GROUP_STEPS, READS, VIEWS, table_of_steps
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    OperationEnd,
    Part,
    Put,
    Scratch,
    Step,
    Zero,
)
from drbench.program.trace import Trace, matrix_of

from .machine import Link, Machine

#: Bytes of memory traffic for each byte of the block: an add reads two and writes one.
_MEMORY_PASSES = table_of_steps(
    "memory traffic of the simulator",
    {
        (Add, *ADDS): 3,  # an Add of one term
        (Copy, Put, Push): 2,
        (*READS, Take): 2,  # if they are copied
        Zero: 1,
        GROUP_STEPS: 0,  # of links alone
        (Gemm, Fence, Await, Offer, Scratch, *VIEWS, OperationEnd): 0,  # no traffic of their own
    },
)


class Cost(NamedTuple):
    """The cost of one step.

    Attributes
    ----------
    core_s : float
        Time of the compute engine, which runs one step at a time.
    link_s : float
        Time on each of ``links``, likewise.
    links : tuple
        The resources of a transfer: links of the machine, or ``("in", rank)`` or ``("out", rank)``,
        the rank's own throttled link; ``("own", rank)`` is its memory.
    latency_s : float
        Added after the transfer has left the links.
    shares : tuple of float
        Fraction of ``link_s`` for which each of ``links`` is occupied; empty: 1.
    lane : str
        The lane of the link class; empty for own memory.
    bytes_per_s : float
        Rate of the transfer if it is alone.
    own_timer : bool
        The transfer is on the rank's own throttled link.
    fixed_s : float
        Part of ``link_s`` in which a group step launches and synchronises.
    """

    core_s: float = 0.0
    link_s: float = 0.0
    links: tuple = ()
    latency_s: float = 0.0
    shares: tuple = ()
    lane: str = ""
    bytes_per_s: float = 1.0
    own_timer: bool = False
    fixed_s: float = 0.0

    @property
    def parts(self) -> Iterator[tuple[tuple, float]]:
        """(link, seconds for which it is occupied)."""
        return zip(self.links, self.shares or (1.0,) * len(self.links))


class Costs:
    """The costs of the steps of programs on a machine. Equal steps are priced once: those of one
    type, on values of one shape, between the same ranks.

    Parameters
    ----------
    machine : Machine
    itemsize : int
        Bytes of one element of A and B.
    sizes : dict, optional
        Bytes of one element of each matrix, if they differ.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.steps import Block, Get
    >>> costs = Costs(Machine("toy", Compute(256.0), (Link("wire", 64.0),)), 4)
    >>> first, other = (Get(Block("A", 1, 0, (0, 0), x, x + 4, 0, 8)) for x in (0, 4))
    >>> costs.transfer(first, 0) is costs.transfer(other, 0)
    True
    """

    def __init__(self, machine: Machine, itemsize: int, sizes: dict[str, int] | None = None):
        self.machine, self.itemsize, self._sizes = machine, itemsize, sizes
        self._known: dict = {}

    @classmethod
    def of(cls, machine: Machine, problem: Problem | None) -> Self:
        """The costs for the element types of a problem; without one, as in tests, of float32."""
        if problem is None:
            return cls(machine, 4)
        sizes = problem.itemsizes
        return cls(machine, problem.itemsize, sizes if len({*sizes.values()}) > 1 else None)

    def item(self, step: Step) -> int:
        """Bytes of an element that a step moves or adds; those of A and B for a GEMM, whose rate
        they determine."""
        return self.itemsize if self._sizes is None else item_of(step, self._sizes)

    def compute_s(self, step: Step, parts: list | None = None) -> float:
        """:func:`compute_s` of a compute."""
        if type(step) is not Gemm:
            return compute_s(self.machine, step, self.item(step))
        key = step.extents, step.transposed_operands, parts and tuple(parts)
        seconds = self._known.get(key)
        if seconds is None:
            seconds = self._known[key] = compute_s(self.machine, step, self.itemsize, parts)
        return seconds

    def transfer(self, step: Step, rank: int) -> Cost:
        """:func:`step_cost` of a one-sided step, or of one with a signal."""
        block, item = step.block, self.item(step)
        if block is None:
            ((other, size),) = step.moved(rank) or ((None, 0),)
            key: tuple = type(step), item, rank, other, size, step.flagged, step.again
        else:
            cut = isinstance(step, (Put, Accumulate)) and is_cut(step)
            where = block.owner, block.shape, block.transposed, block.full
            key = type(step), item, rank, *where, cut
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = step_cost(self.machine, step, rank, item)
        return cost

    def group(self, step: GroupStep, alone: bool = False, rate: float | None = None) -> Cost:
        """:func:`group_cost` of a group step, with the links on which all members send, or only its
        own rank (``alone``)."""
        group, item = step.group, self.item(step)
        sender = alone and (group.position, step.ring())
        key = step.operation, item, group, step.shard(), sender, rate
        cost = self._known.get(key)
        if cost is None:
            senders = (group.position,) if alone else range(len(group))
            cost = self._known[key] = group_cost(step, self.machine, senders, item, rate)
        return cost


def item_of(step: Step, sizes: dict[str, int]) -> int:
    """Bytes of an element that a step moves or adds, as :meth:`Costs.item`."""
    return sizes["A" if type(step) is Gemm else matrix_of(step)]


def step_cost(machine: Machine, step: Step, rank: int, itemsize: int) -> Cost:
    """The cost of a compute or a one-sided step of a rank, or of a step with a signal.

    Parameters
    ----------
    machine : Machine
    step : Step
        No step of a group.
    rank : int
    itemsize : int

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.steps import Block, Get
    >>> toy = Machine("toy", Compute(256.0), (Link("wire", 64.0),))
    >>> cost = step_cost(toy, Get(Block("A", 1, 0, (0, 0), 0, 4, 0, 8)), 0, 4)
    >>> cost.core_s, cost.link_s, cost.links, cost.latency_s
    (0.0, 2.0, (('wire', 'out', 1), ('wire', 'in', 0)), 0.0)
    """
    if step.computes:
        return Cost(compute_s(machine, step, itemsize))
    if step.counter is None:
        return Cost()  # an Await or Offer moves nothing
    if step.signals:
        ((other, elements),) = step.moved(rank)
    else:
        other, elements = step.block.owner, step.block.size
    nbytes, reads, adds = elements * itemsize, step.does == "fetch", isinstance(step, Accumulate)
    link = None if other == rank else machine.link(*((other, rank) if reads else (rank, other)))
    flagged = sends_words(machine, step, rank)
    nbytes *= 1 + flagged
    core_s = _core_s(machine, step, rank, link, nbytes)
    if link is None:
        memory_s = 0.0 if machine.adds_on_core else _memory_s(machine, step, nbytes)
        return Cost(core_s, memory_s, (("own", rank),))
    ends = (other, rank) if reads else (rank, other)
    rate = link.bandwidth_bytes_per_s
    rate *= machine.pull_efficiency if reads else machine.accumulate_efficiency if adds else 1.0
    if link.own_timer:
        links = (("in" if reads else "out", rank),)
    else:
        links = machine.route(*ends)[1]
    seconds, shares, latency_s = nbytes / rate, machine.shares(link), link.latency_s
    if flagged and link.multicast_s:
        latency_s = link.multicast_s
        if step.again:  # only the way into the other rank
            links, shares = links[1:], shares[1:]
    return Cost(core_s, seconds, links, latency_s, shares, link.lane, rate, link.own_timer)


def sends_words(machine: Machine, step: Step, rank: int) -> bool:
    """Whether a step sends a flag in each word: cores do where they share memory with the other
    rank, and send a message elsewhere."""
    if not step.flagged or not machine.adds_on_core:
        return step.flagged
    ((other, _),) = step.moved(rank)
    return other == rank or machine.link(rank, other).reads_in_place


def _core_s(machine: Machine, step: Step, rank: int, link: Link | None, nbytes: int) -> float:
    """Seconds for which the compute core copies or adds for a step; ``link`` is None for own
    memory."""
    if isinstance(step, (Put, Accumulate)):
        if not machine.adds_on_core:
            return 0.0
        local_link = link or (machine.link(rank, rank) if machine.links else None)
        if local_link and local_link.add.bytes_per_s < inf:
            return local_link.add.seconds(step.block, nbytes, is_cut(step))
    elif link and link.get.bytes_per_s < inf:
        return link.get.seconds(step.block, nbytes)
    elif not machine.adds_on_core or (link and not step.signals and not link.reads_in_place):
        return 0.0
    return _memory_s(machine, step, nbytes)


def _memory_s(machine: Machine, step: Step, nbytes: int) -> float:
    """Seconds of the memory traffic of a step in own memory, or into a slot of another rank."""
    if step.does == "fetch" and step.onto is None:
        return 0.0  # a view
    return machine.compute.memory_s(_MEMORY_PASSES[type(step)] * nbytes)


def is_cut(step: Step) -> bool:
    """Whether the rows of the partial sum that a step adds are not contiguous: a part of a GEMM's
    result with longer rows."""
    value = step.inputs[0]
    if type(value) is not Part or value.shape == value.inputs[0].shape:
        return False
    return bool(value.axis) != bool(value.transposed)


def reduction_s(machine: Machine, step: Step, itemsize: int, concurrent: bool) -> float:
    """Seconds of a reduction during GEMMs (``concurrent``), by the workers that it takes from them,
    or after them, by all workers (TD, 3.8: 16 multiprocessors for the first reduction, 132 for the
    second)."""
    compute = machine.compute
    nbytes = _count_accessed(step) * itemsize
    rate = compute.memory_bytes_per_s * compute.memory_share
    if machine.side_units and concurrent:
        rate = min(rate, machine.side_units * compute.unit_bytes_per_s)
    return compute.launch_s + nbytes / rate


def compute_s(machine: Machine, step: Step, itemsize: int, parts: list | None = None) -> float:
    """Seconds of a compute alone; ``parts`` are the (m, n, k) of a step that is several GEMMs."""
    compute = machine.compute
    if type(step) is not Gemm:
        return compute.memory_s(_count_accessed(step) * itemsize)
    one_s = lambda m, n, k: (
        compute.gemm_s(m, n, k, itemsize) + compute.transposed_s(m, n, k, step.transposed_operands)
    )
    if parts is not None:
        return sum(one_s(*part) for part in parts)
    return one_s(*step.extents)


def _count_accessed(step: Step) -> int:
    """Elements that a compute other than a GEMM reads and writes."""
    if step.block is None:
        rows, cols = step.shape if step.onto is None else step.onto.shape
    else:
        rows, cols = step.block.shape
    more = len(step.terms) - 1 if type(step) is Add else 0
    return (_MEMORY_PASSES[type(step)] + more) * rows * cols


def parts_of(trace: Trace, machine: Machine) -> dict[int, list[tuple[int, int, int]]]:
    """The (m, n, k) of the calls of GEMM of each step that needs several on this machine."""
    return gemm_shapes(trace.steps) if machine.gemm_per_fragment and trace.groups else {}


def gemms_of(trace: Trace, machine: Machine) -> Iterator[tuple[int, int, int]]:
    """The (m, n, k) of all calls of GEMM of a rank on this machine."""
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
    """Seconds of launching, of synchronising and of transferring of a group step on free links;
    ``group`` is the name of its group.

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
    if machine.nccl:
        whole = nbytes * (ranks if step.kind == "ring" else 1)
        least_s, seconds = (
            machine.nccl_s(step.operation, size, members or range(ranks)) for size in (0, whole)
        )
        return least_s, 0.0, seconds - least_s
    collective = machine.collective(step.operation)
    launch, sync = collective.starts(members)
    if step.kind != "shift" and collective.across(members):
        bandwidth = _OverNodes.of(machine, step.operation, members).rate
    else:
        own = (collective.ring_bandwidth(group, members) or 0.0) * machine.links_within(members)
        bandwidth = (1 + collective.both_directions) * (own or bandwidth_bytes_per_s)
    if step.kind == "shift":
        return launch, sync, nbytes / bandwidth
    of_shape = lambda shape: _round(
        step.kind, shape, machine.packets, ranks, nbytes, sync, bandwidth
    )
    shapes = ("ring", "tree") if collective.shape == "fastest" else (collective.shape,)
    if collective.shape == "direct" and collective.across(members):
        shapes = ("ring",)
    return launch, *min(map(of_shape, shapes), key=sum)


def _round(
    kind: str, shape: str, packets: int, ranks: int, nbytes: float, sync: float, bandwidth: float
) -> tuple[float, float]:
    """Seconds of synchronising and of transferring on a ring or a tree of ranks.

    A ring forwards its shards P - 1 times; recursive doubling moves as many bytes in log2 P rounds
    (Bruck et al., 1997; Thakur, Rabenseifner, Gropp, 2005). Packets are sent down a chain, or down
    two trees that share the work, so that each rank receives the whole once (Sanders, Speck, Träff,
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
        Of the whole ring: of w members on a node, each sends a w-th of the data to the next node,
        and all of the data to the next member on the node.
    next_local, next_node : dict
        By member: the next one on its node; a rank of the next node, and the member's share of the
        data that its node sends there.
    """

    intra_node: float
    card: float
    rate: float
    next_local: dict[int, int]
    next_node: dict[int, tuple[int, float]]

    @classmethod
    def of(cls, machine: Machine, operation: str, members: tuple[int, ...]) -> "_OverNodes":
        """The rates of a group on a machine.

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
        of = operation, members
        return remembered(machine.known, of, lambda: cls._made(machine, *of))

    @classmethod
    def _made(cls, machine: Machine, operation: str, members: tuple[int, ...]) -> "_OverNodes":
        collective = machine.collective(operation)
        nodes = list(grouped(members, lambda rank: rank // collective.node).values())
        own = collective.bandwidth_bytes_per_s
        card = collective.across_bandwidth_bytes_per_s
        if card is None:
            link = machine.link(nodes[0][0], nodes[1][0])
            card = min(link.bandwidth_bytes_per_s, own or inf)
        intra_node = min(
            (
                own * machine.links_within(ranks)
                if own
                else machine.link(*ranks[:2]).bandwidth_bytes_per_s
                for ranks in nodes
                if ranks[1:]
            ),
            default=inf,
        )
        next_local = {mine[x - 1]: rank for mine in nodes for x, rank in enumerate(mine)}
        next_node = {
            rank: (other[place % len(other)], 1 / len(mine))
            for mine, other in zip(nodes, (*nodes[1:], nodes[0]))
            for place, rank in enumerate(mine)
        }
        if machine.adds_on_core:  # one ring: the core of each rank forwards all data
            return cls(intra_node, card, card, next_local, next_node)
        parts = Counter()
        for source, (target, part) in next_node.items():
            link, resources = machine.route(source, target)
            for resource, share in zip(resources, machine.shares(link) or (1.0,) * len(resources)):
                parts[resource] += part * share
        rate = min(intra_node, card / max(parts.values()))
        return cls(intra_node, card, rate, next_local, next_node)

    def flows(self, senders: Iterable[int], intra_node: tuple, between: tuple) -> list["Flow"]:
        """The flows from some ranks: to the next member on the node, with the fraction of the time
        and the elements of ``intra_node``; and to the next node, the rank's share of ``between``.
        """
        flows = []
        for rank in senders:
            if self.next_local[rank] != rank:
                flows.append(Flow(rank, self.next_local[rank], *intra_node))
            target, share = self.next_node[rank]
            flows.append(Flow(rank, target, *(amount * share for amount in between)))
        return flows


class Flow(NamedTuple):
    """Data that a group step sends from one rank to another: the fraction of its transfer time, and
    the elements."""

    source: int
    target: int
    part: float
    elements: float


def group_flows(step: GroupStep, machine: Machine, senders: Iterable[int]) -> list[Flow]:
    """The flows of a group step from the members at some positions of its group.

    Around the ring; a tree is modelled on the links of the ring, as both are links of the same
    ranks. Over several nodes each rank sends to the next one on its node, and its share to the next
    node.
    """
    members, collective = step.group.members, machine.collective(step.operation)
    following = lambda x, by: members[(x + by) % len(members)]
    if step.kind == "shift":
        return [Flow(members[x], following(x, step.by), 1.0, step.shard()) for x in senders]
    elements = step.ring().elements
    if not collective.across(members) and collective.shape == "direct":
        others = range(1, len(members))
        return [
            Flow(members[x], following(x, by), 1.0, step.shard()) for x in senders for by in others
        ]
    if not collective.across(members):
        elements //= 1 + collective.both_directions
        by = (1, -1) if collective.both_directions else (1,)
        return [Flow(members[x], following(x, sign), 1.0, elements) for sign in by for x in senders]
    over, ranks = _OverNodes.of(machine, step.operation, members), [members[x] for x in senders]
    busy = lambda limit: 1.0 if over.rate == limit else over.rate / limit
    return over.flows(ranks, (busy(over.intra_node), elements), (busy(over.card), elements))


def group_cost(
    step: GroupStep,
    machine: Machine,
    senders: Iterable[int],
    itemsize: int,
    rate: float | None = None,
) -> Cost:
    """The cost of the data of a group step that the members at some positions of its group send at
    the same time, at the rate of the slowest.

    Parameters
    ----------
    rate : float, optional
        Bytes a second of the slowest link, if more links than these count; over several nodes that
        of the whole ring.

    Notes
    -----
    The step occupies each link fully while its data moves, except links with more bandwidth that
    are shared, and over several nodes.
    """
    flows = group_flows(step, machine, senders)
    routes = [(flow, *machine.route(flow.source, flow.target)) for flow in flows]
    over = step.kind != "shift" and machine.collective(step.operation).across(step.group.members)
    if over:
        rate = _OverNodes.of(machine, step.operation, step.group.members).rate
    elif rate is None:
        rate = min(link.bandwidth_bytes_per_s for _, link, _ in routes)
    fair, taken = machine.arbitration == "fair", Counter()
    for flow, link, resources in routes:
        shares = (fair or over) and machine.shares(link) or (1.0,) * len(resources)
        slow = rate / link.bandwidth_bytes_per_s if fair and not over and rate < inf else 1.0
        for resource, share in zip(resources, shares):
            part = flow.part * slow * share
            taken[resource] = (
                min(1.0, taken[resource] + part) if over else max(taken[resource], part)
            )
    launch_s, sync_s, moving_s = group_parts(step, machine, *on_links(step, itemsize, rate))
    return Cost(
        link_s=launch_s + (sync_s + moving_s),
        links=tuple(taken),
        shares=tuple(taken.values()) if min(taken.values(), default=1.0) < 1 else (),
        bytes_per_s=rate,
        fixed_s=launch_s + sync_s,
    )


def on_links(step: GroupStep, itemsize: int, bandwidth_bytes_per_s: float) -> tuple:
    """The arguments of :func:`group_parts` for a step: ranks, bytes of a shard, bandwidth, group
    and its members."""
    group = step.group
    return len(group), itemsize * step.shard(), bandwidth_bytes_per_s, group.name, group.members
