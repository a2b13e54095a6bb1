"""Cheap lower bounds on times: of programs, from the traces of some ranks or all, with GEMMs and
each link one after another; and of data movement without overlap. And on the elements that a rank
needs with any schedule of a multiplication."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from drbench.program.trace import Trace

from .costs import (
    Costs,
    group_flows,
    group_parts,
    on_links,
    parts_of,
    reduction_s,
    sends_words,
)
from .kernel import part_tiles, tilings
from .machine import Machine

#: Words for the direction of a link.
_DIRECTIONS = {"in": "into", "out": "out of", "of": "of", "all": "all of fabric"}


class Bound(NamedTuple):
    """A time that every simulation of a program takes at least.

    Attributes
    ----------
    gemms_s : float
        GEMMs of the busiest rank, one after another.
    links_s : float
        Of the busiest link, or of the rank whose reductions during GEMMs take longest.
    """

    gemms_s: float
    links_s: float

    @property
    def seconds(self) -> float:
        """The longer of both."""
        return max(self)


def bound_of(traces: Iterable[Trace], machine: Machine) -> Bound:
    """The bound of a program that runs one GEMM at a time, from the traces of all ranks, or of
    some, or of one: neither the GEMMs of a rank nor the transfers of a link overlap each other.

    Examples
    --------
    Each of two ranks reads 128 bytes at 64 bytes a second, and multiplies for a second twice; each
    link of the wire is used once:

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> bound_of(traces, Machine("toy", Compute(256.0), (Link("wire", 64.0),)))
    Bound(gemms_s=2.0, links_s=2.0)
    """
    gemms_s, busy = _busy(traces, machine)
    return Bound(gemms_s, max(busy.values(), default=0.0))


class Carried(NamedTuple):
    """The load of one link: its class, its place, bytes, and seconds of their transfer."""

    name: str
    where: str
    nbytes: int
    seconds: float


def carried_by_links(traces: Iterable[Trace], machine: Machine) -> list[Carried]:
    """The loads of all links that a program uses, from the traces of all ranks; the busiest first.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> carried_by_links(traces, Machine("toy", Compute(256.0), (Link("wire", 64.0),)))[0]
    Carried(name='wire', where='out of 1', nbytes=128, seconds=2.0)
    """
    traces, nbytes = list(traces), Counter()
    _, busy = _busy(traces, machine)
    costs = Costs.of(machine, traces[0].problem) if traces else None
    for trace in traces:
        for resource, carried in _loads(trace, costs):
            nbytes[resource] += carried
    loads = [
        Carried(*_name_link(key, machine), nbytes[key], seconds)
        for key, seconds in busy.items()
        if nbytes[key]
    ]
    return sorted(loads, key=lambda load: -load.seconds)


def _loads(trace: Trace, costs: Costs) -> Iterator[tuple]:
    """(link, bytes) of the transfers of a rank, and of what it forwards in its groups."""
    machine = costs.machine
    for step in trace.steps:
        if step.grouped and len(step.group) > 1:
            members, me = step.group.members, step.group.position
            if machine.link(*members[:2]).own_timer:
                direction, _, elements = step.ring()
                elements = step.shard() if step.kind == "shift" else elements
                yield (direction, trace.rank), costs.item(step) * elements
                continue
            for flow in group_flows(step, machine, (me,)):
                if flow.target != flow.source:
                    for resource in machine.route(flow.source, flow.target)[1]:
                        yield resource, costs.item(step) * flow.elements
        elif step.counter is not None and not step.grouped:
            item = costs.item(step) * (1 + sends_words(machine, step, trace.rank))
            for _, elements in step.moved(trace.rank):
                for resource in costs.transfer(step, trace.rank).links:
                    yield resource, item * elements


def _name_link(key: tuple, machine: Machine) -> tuple[str, str]:
    """The class of a link, and its place in words.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> toy = Machine("toy", Compute(1.0), (Link("own", 1.0, shared="initiator"),))
    >>> (
    ...     _name_link(("nvlink", "in", 3), toy),
    ...     _name_link(("xe", 0, 3), toy),
    ...     _name_link(("row+", 2), toy),
    ... )
    (('nvlink', 'into 3'), ('xe', '0 to 3'), ('own', 'row+ of 2'))
    >>> _name_link(("memory", "of", 1), toy), _name_link(("spine", "all", 0), toy)
    (('memory', 'of 1'), ('spine', 'all of fabric 0'))
    """
    if len(key) == 2:  # of a rank alone
        return machine.links[0].name, f"{key[0]} of {key[1]}"
    name, end, other = key
    return name, f"{_DIRECTIONS.get(end, f'{end} to')} {other}"


def _busy(traces: Iterable[Trace], machine: Machine) -> tuple[float, Counter]:
    """Seconds of the GEMMs of the busiest rank; and seconds for which each resource is busy."""
    gemms_s, busy, grouped = 0.0, Counter(), Counter()
    costs = None
    for trace in traces:
        costs = costs or Costs.of(machine, trace.problem)
        computes, of_groups = _busy_of(trace, costs, busy)
        gemms_s = max(gemms_s, computes)
        for resource, seconds in of_groups.items():  # ranks of a ring occupy it together
            grouped[resource] = max(grouped[resource], seconds)
    busy.update(grouped)
    return gemms_s, busy


def _busy_of(trace: Trace, costs: Costs, busy: Counter) -> tuple[float, Counter]:
    """Seconds of a rank's GEMMs, and seconds for which its groups occupy each resource; adds the
    rank's own use of resources to ``busy``."""
    rank, machine, itemsize = trace.rank, costs.machine, costs.itemsize
    parts, kernels = parts_of(trace, machine), tilings(trace.steps, machine, itemsize)
    computes, grouped = 0.0, Counter()
    for step in trace.steps:
        if step.index in kernels:
            tiling = kernels[step.index]
            computes += part_tiles(step, tiling) * tiling.tile_s / tiling.units
        elif step.computes or (step.concurrent and machine.adds_on_core):
            computes += costs.compute_s(step, parts.get(step.index))
        elif step.concurrent:
            busy["sums", rank] += reduction_s(machine, step, costs.item(step), concurrent=False)
        elif step.grouped:
            for resource, seconds in _of_group(costs, step):
                grouped[resource] += seconds
        elif step.counter is not None and step.moved(rank):
            cost = costs.transfer(step, rank)
            for link, part in cost.parts:
                busy[link] += cost.link_s * part
    return computes, grouped


def link_parts(trace: Trace, machine: Machine) -> tuple[float, float, float, float]:
    """Seconds of the GEMMs of a mesh program, and of launching, synchronising and transferring on
    the busiest link on which its chip sends.

    Each is the time without the others, overlapped or not. A collective in both directions uses the
    links of both; a shift farther than to a neighbour uses every link of its direction once for
    each hop.

    Examples
    --------
    Gathers on rows and columns of 2 × 2 chips, on different links: launch 2 s, one synchronisation,
    one shard of 16 bytes.

    >>> from drbench.algorithms import get_algorithm
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
    costs, computes, busy = Costs.of(machine, trace.problem), 0.0, {}
    for step in trace.steps:
        if step.computes:
            computes += costs.compute_s(step)
        elif step.grouped and len(step.group) > 1:
            group = step.group
            rate = machine.link(*group.members[:2]).bandwidth_bytes_per_s
            parts, hops = group_parts(step, machine, *on_links(step, costs.item(step), rate)), 1
            directions = "+-" if machine.collective(step.operation).both_directions else "+"
            if step.kind == "shift":
                direction, hops, _ = step.ring()
                directions = direction[-1]
            for direction in directions:
                before = busy.get((group.name, direction), (0.0, 0.0, 0.0))
                busy[group.name, direction] = tuple(
                    seconds + hops * more for seconds, more in zip(before, parts)
                )
    return computes, *max(busy.values(), key=sum, default=(0.0, 0.0, 0.0))


def _of_group(costs: Costs, step):
    """(resource, seconds) that a group step occupies, of this rank's resources."""
    machine, itemsize, group = costs.machine, costs.item(step), step.group
    if len(group) < 2:
        return []
    members, me = group.members, group.position
    link = machine.link(*members[:2])
    if link.own_timer and link.bandwidth_bytes_per_s < inf:
        direction, _, elements = step.ring()
        return [((direction, members[me]), elements * itemsize / link.bandwidth_bytes_per_s)]
    shifts = step.kind == "shift"
    if shifts and (not step.by % len(group) or machine.adds_on_core):
        return []  # the core's share is only a part
    rate = None if shifts else costs.group(step).bytes_per_s
    cost = costs.group(step, alone=True, rate=rate)
    fifo = machine.arbitration == "fifo"
    seconds = cost.link_s if fifo else cost.link_s - cost.fixed_s
    parts = [(resource, part * seconds) for resource, part in cost.parts]
    if not (fifo or shifts):  # those of one group run one after another
        parts.append((("ring", "of", group), cost.link_s))
    return parts


def moving_s(moved: Iterable[tuple[int, int, int]], machine: Machine) -> float:
    """Seconds of moving (source rank, target rank, bytes), all at once: the busiest link, then the
    busiest core where the core copies, and one latency.

    A lower bound: transfers of a link follow each other without gaps; packing of strided blocks,
    and rearranging of blocks that stay on their rank, are not included.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Link
    >>> toy = Machine("toy", Compute(1.0), (Link("wire", 8.0, latency_s=1.0),))
    >>> moving_s([(0, 1, 16), (0, 2, 16), (2, 1, 8)], toy), moving_s([], toy)
    (5.0, 0.0)
    """
    busy: Counter = Counter()
    core: Counter = Counter()
    latency_s = 0.0
    for source, target, nbytes in moved:
        link, resources = machine.route(source, target)
        if link.own_timer:
            resources = (("in", target),)
        for resource, share in zip(resources, machine.shares(link) or (1.0,) * len(resources)):
            busy[resource] += share * nbytes / link.bandwidth_bytes_per_s
        latency_s = max(latency_s, link.latency_s)
        if machine.adds_on_core:
            copies = link.get.bytes_per_s < inf  # else the core reads and writes memory
            core[target] += (
                nbytes / link.get.bytes_per_s
                if copies
                else 2 * nbytes / machine.compute.memory_bytes_per_s
            )
    return max(busy.values(), default=0.0) + max(core.values(), default=0.0) + latency_s


def io_bound(m: int, n: int, k: int, nprocs: int, memory: int | None = None) -> float:
    """Elements of A, B and C that some rank stores or moves with any schedule that starts from one
    copy of A and B and ends with one of C; inf if these do not fit into the memory of all ranks.

    The larger of two lower bounds, V = mnk / p being a rank's share of the multiply-adds:

    - 2V / √s + s with s = min(S, V^(2/3)), for a memory of S elements a rank; with enough memory it
      is 3 V^(2/3). (Kwasniewski, Kabić, Besta, VandeVondele, Solcà, Hoefler, "Red-Blue Pebbling
      Revisited", SC'19, Theorem 2: a rank's multiply-adds are a cuboid on a base of s terms of C.)
    - without regard to memory, with d1 ≥ d2 ≥ d3 the extents in falling order, which a cuboid of
      few ranks cannot exceed: (d1·d2 + d1·d3) / p + d2·d3 for p ≤ d1 / d2, 2 √(d1·d2·d3² / p) +
      d1·d2 / p for p ≤ d1·d2 / d3², else 3 V^(2/3). (Al Daas, Ballard, Grigori, Kumar, Rouse,
      "Tight Memory-Independent Parallel Matrix Multiplication Communication Lower Bounds",
      SPAA'22, Theorem 3.)

    Examples
    --------
    >>> [round(io_bound(m, 512, 512, 8)) for m in (512, 1 << 17)]
    [196608, 17039360]
    >>> [round(io_bound(1024, 1024, 1024, 64, memory)) for memory in (None, 3 << 14)]
    [196608, 200501]
    """
    if memory is not None and memory * nprocs < m * k + k * n + m * n:
        return inf
    share = m * n * k / nprocs
    cube = share ** (2 / 3)
    base = cube if memory is None else min(memory, cube)
    d1, d2, d3 = sorted((m, n, k), reverse=True)
    if nprocs * d2 <= d1:
        shape = d1 * (d2 + d3) / nprocs + d2 * d3
    elif nprocs * d3**2 <= d1 * d2:
        shape = 2 * (d1 * d2 * d3**2 / nprocs) ** 0.5 + d1 * d2 / nprocs
    else:
        shape = 3 * cube
    return float(max(2 * share / base**0.5 + base, shape))
