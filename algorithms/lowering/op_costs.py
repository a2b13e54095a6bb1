"""The cost of an operation of a lowered program (*Slicing Is All You Need*, §4.3): the larger of
its compute and its communication."""

from collections.abc import Callable, Iterable

from drbench.model.costs import Cost
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.program.steps import Fence, Step

from .graph import Graph, Operation

#: The default performance model: FLOPs, and bytes over one link in and one out; local memory
#: costs nothing. 100 FLOPs take as long as one byte (an H100 and its NVLink: 149;
#: launch/data/machines/h100x8.toml). Only the ratio matters to a schedule.
BALANCE = Machine("balance", Compute(1e12), (Link("wire", 1e10, shared="initiator"),))


def costs_of(graph: Graph, cost: Callable[[Step, int], Cost]) -> list[Cost]:
    """The cost of each node; ``cost(step, rank)`` is that of a step. A Fence has none: its time
    depends on the other ranks, as does contention on shared links."""
    return [
        Cost() if type(node.step) is Fence else cost(node.step, graph.trace.rank)
        for node in graph.nodes
    ]


def operation_s(costs: Iterable[Cost]) -> float:
    """Seconds of steps that run at the same time.

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


def program_s(operations: Iterable[Operation], costs: list[Cost]) -> float:
    """The model's seconds of a list of operations: they run one after the other."""
    return sum(
        operation_s(costs[number] for numbers in operation for number in numbers)
        for operation in operations
    )
