"""A cheap lower bound on a simulated time, from the traces of some ranks or all: products, and each
link, one after another."""

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from drbench.program.trace import Trace

from .costs import compute_s, group_parts, group_seconds, on_links, parts_of, side_s, step_cost
from .kernel import part_tiles, tilings
from .machine import Machine


class Bound(NamedTuple):
    """What no simulation of a program can be faster than.

    Attributes
    ----------
    products_s : float
        Of the busiest rank, one after another.
    links_s : float
        Of the busiest link, or of the rank whose sums beside products take longest.
    """

    products_s: float
    links_s: float

    @property
    def seconds(self) -> float:
        """The longer of both."""
        return max(self)


def bound_of(traces: Iterable[Trace], machine: Machine) -> Bound:
    """The bound of a program from the traces of all ranks, or of some: neither a rank's products
    nor a link's transfers overlap with themselves.

    Examples
    --------
    Each of two ranks reads 128 bytes at 64 bytes a second, and multiplies for a second twice; each
    link of the wire is used once:

    >>> from algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> bound_of(traces, Machine("toy", Compute(256.0), (Link("wire", 64.0),)))
    Bound(products_s=2.0, links_s=2.0)
    """
    products_s, busy, grouped = 0.0, Counter(), Counter()
    for trace in traces:
        computes, mine, of_groups = _busy(trace, machine)
        products_s = max(products_s, computes)
        busy.update(mine)
        for resource, seconds in of_groups.items():  # ranks of a ring occupy it together
            grouped[resource] = max(grouped[resource], seconds)
    busy.update(grouped)
    return Bound(products_s, max(busy.values(), default=0.0))


def lower_bound(trace: Trace, machine: Machine) -> float:
    """Seconds that no simulation of the program on this machine can be below, from the trace of one
    rank.

    Examples
    --------
    Rank 0 reads 128 bytes at 64 bytes a second, and multiplies for a second twice:

    >>> from algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> trace = get_algorithm("universal").trace(
    ...     Problem(8, 8, 8, 2, a="column", b="column", c="column"), 0
    ... )
    >>> (
    ...     lower_bound(trace, Machine("toy", Compute(256.0), (Link("wire", 32.0),))),
    ...     lower_bound(trace, Machine("toy", Compute(256.0), (Link("wire", 96.0),))),
    ... )
    (4.0, 2.0)
    """
    return bound_of([trace], machine).seconds


def _busy(trace: Trace, machine: Machine) -> tuple[float, Counter, Counter]:
    """Seconds of a rank's products; and what it keeps busy for how long, by itself and with its
    groups."""
    rank, itemsize, parts = trace.rank, trace.problem.itemsize, parts_of(trace, machine)
    computes, busy, grouped = 0.0, Counter(), Counter()
    kernels = tilings(trace.steps, machine, itemsize)
    for step in trace.steps:
        if step.index in kernels:
            tiling = kernels[step.index]
            computes += part_tiles(step, tiling) * tiling.tile_s / tiling.units
        elif step.computes:
            computes += compute_s(machine, step, itemsize, parts.get(step.index))
        elif step.side:
            if machine.adds_on_core:
                computes += compute_s(machine, step, itemsize)
            else:
                busy["sums", rank] += side_s(machine, step, itemsize, beside=False)
        elif step.grouped:
            for resource, seconds in _of_group(machine, step, itemsize):
                key = (resource, rank) if isinstance(resource, str) else resource
                grouped[key] += seconds
        elif step.counter is not None and step.moved(rank):
            cost = step_cost(machine, step, rank, itemsize)
            for link, share in zip(cost.links, cost.shares or (1.0,) * len(cost.links)):
                key = (link, rank) if isinstance(link, str) else link
                busy[key] += cost.link_s * share
    return computes, busy, grouped


def link_parts(trace: Trace, machine: Machine) -> tuple[float, float, float, float]:
    """Seconds of the products of a mesh program, and of launching, synchronising and transferring
    on the busiest link that its chip sends on.

    Overlapped or not: what each would take by itself. A collective both ways round is on the links
    of both directions; a shift farther than to a neighbour passes every link of its direction as
    often as it has hops.

    Examples
    --------
    Gathers on rows and columns of 2 × 2 chips, on different links: launch 2 s, one synchronisation,
    one shard of 16 bytes.

    >>> from algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Collective, Link
    >>> toy = Machine(
    ...     "toy",
    ...     Compute(8.0),
    ...     (Link("wire", 4.0),),
    ...     collectives={"allgather": Collective(2.0, 0.5)},
    ... )
    >>> algorithm = get_algorithm("collective")
    >>> problem = algorithm.problem(4, 4, 4, 4, mesh="2x2")
    >>> link_parts(algorithm.trace(problem, 0, dataflow="OS", mesh="2x2"), toy)
    (4.0, 2.0, 0.5, 4.0)
    """
    itemsize, computes, busy = trace.problem.itemsize, 0.0, {}
    for step in trace.steps:
        if step.computes:
            computes += compute_s(machine, step, itemsize)
        elif step.grouped and len(step.group) > 1:
            group = step.group
            rate = machine.link(*group.members[:2]).bandwidth_bytes_per_s
            parts, hops = group_parts(step, machine, *on_links(step, itemsize, rate)), 1
            ways = "+-" if machine.collective(step.operation).both_ways else "+"
            if step.kind == "shift":
                way, hops, _ = step.ring()
                ways = way[-1]
            for way in ways:
                before = busy.get((group.name, way), (0.0, 0.0, 0.0))
                busy[group.name, way] = tuple(one + hops * more for one, more in zip(before, parts))
    return computes, *max(busy.values(), key=sum, default=(0.0, 0.0, 0.0))


def _of_group(machine: Machine, step, itemsize: int):
    """What a group step keeps busy, of what this rank sees: (resource, seconds)."""
    group = step.group
    if len(group) < 2:
        return []
    members, me = group.members, group.position
    link = machine.link(*members[:2])
    if link.shared == "initiator" and link.bandwidth_bytes_per_s < inf:
        way, _, elements = step.ring()
        return [(way, elements * itemsize / link.bandwidth_bytes_per_s)]
    by, pairs = 1, zip(members, members[1:] + members[:1])
    if step.kind == "shift":
        by = step.by
        if not by % len(group) or machine.adds_on_core:
            return []  # the core's share of it is not all of it
        pairs = [(members[me], members[(me + by) % len(group)])]
    rate = min(machine.link(*pair).bandwidth_bytes_per_s for pair in pairs)
    seconds = group_seconds(step, machine, *on_links(step, itemsize, rate))
    target = members[(me + by) % len(group)]
    return [(resource, seconds) for resource in machine.route(members[me], target)[1]]
