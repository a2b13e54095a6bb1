"""How long moving data takes that nothing overlaps with, such as a matrix into another layout."""

from collections import Counter
from collections.abc import Iterable
from math import inf

from .machine import Machine


def moving_s(moved: Iterable[tuple[int, int, int]], machine: Machine) -> float:
    """Seconds of moving (source rank, target rank, bytes), all at once: the busiest link, then the
    busiest core where the core copies, and one latency.

    A lower bound, as a link's transfers follow each other without gaps; packing what lies apart,
    and rearranging what stays on its rank, are not in it.

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
        if link.shared == "initiator":
            resources = (("in", target),)
        for resource, share in zip(resources, machine.shares(link) or (1.0,) * len(resources)):
            busy[resource] += share * nbytes / link.bandwidth_bytes_per_s
        latency_s = max(latency_s, link.latency_s)
        if machine.adds_on_core:
            copies = link.core_bytes_per_s < inf  # else the core reads and writes memory
            core[target] += (
                nbytes / link.core_bytes_per_s
                if copies
                else 2 * nbytes / machine.compute.memory_bytes_per_s
            )
    return max(busy.values(), default=0.0) + max(core.values(), default=0.0) + latency_s
