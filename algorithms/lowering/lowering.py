"""Lowering a rank's program to operations of concurrent computes and transfers (*Slicing Is All You
Need*, §4.3).

Direct execution runs the steps in the order of the slicing. Lowering instead decides from the
computation graph which computes run at the same time as which transfers, at most a given number of
each in one operation; all end with it. The lowered program has the same kinds of steps, so that all
code for programs works on it.

==============  ====================================================================================
``greedy``      all eligible computes and transfers, up to the bounds, in the order of the direct
                program
``cost``        the cheapest by the model of: greedy; nodes chosen by cost up to the bounds; or only
                while transfers do not take longer than the computes of the operation
``exhaustive``  no choice of operations is cheaper by the model (:mod:`.search`)
==============  ====================================================================================
"""

import re
from collections.abc import Callable, Iterable
from math import inf

from drbench.errors import UsageError
from drbench.model.costs import Cost, item_of, step_cost
from drbench.model.machine import Machine
from drbench.program.problem import Problem
from drbench.program.steps import Get, Step
from drbench.program.trace import trace

from .graph import Frontier, Graph, Operation
from .op_costs import BALANCE, costs_of, operation_s, program_s
from .search import Search

#: ``direct`` does not lower.
SCHEDULES = ("direct", "greedy", "cost", "exhaustive")

#: Default bounds: one GEMM, and the two tiles of another.
MAX_COMPUTE, MAX_COMM = 1, 2

#: How many eligible transfers (in the order of the direct program) the cost-model greedy compares,
#: and how many GEMMs that need each of them.
_WEIGHED, _SERVED = 32, 8


def read_schedule(text: str) -> tuple[str, int, int]:
    """The strategy of a schedule, and the most computes and transfers of one operation.

    Examples
    --------
    >>> read_schedule("greedy"), read_schedule("cost:3x4")
    (('greedy', 1, 2), ('cost', 3, 4))
    """
    strategy, _, bounds = text.partition(":")
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", bounds, re.ASCII)
    if strategy not in SCHEDULES or (bounds and (not match or strategy == "direct")):
        raise UsageError(
            f"must be one of {', '.join(SCHEDULES)}, all but direct with the most computes and "
            f"transfers at a time if it is not {strategy}:{MAX_COMPUTE}x{MAX_COMM}, got {text!r}."
            if strategy in SCHEDULES[1:]
            else f"must be one of {', '.join(SCHEDULES)}, got {text!r}."
        )
    most = map(int, match.groups()) if match else (MAX_COMPUTE, MAX_COMM)
    return strategy, *most


def check_schedule(text: str) -> str:
    """The schedule for records: without default bounds.

    Examples
    --------
    >>> check_schedule("greedy:1x2"), check_schedule("cost:2x2")
    ('greedy', 'cost:2x2')
    """
    strategy, *most = read_schedule(text)
    return strategy if most == [MAX_COMPUTE, MAX_COMM] else text


def lower(
    program: Iterable[Step],
    problem: Problem,
    rank: int,
    schedule: str,
    machine: Machine | None = None,
) -> Iterable[Step]:
    """The lowered program of one rank; with a direct schedule the same program.

    Parameters
    ----------
    program : generator of Step
        The direct program, of one-sided steps.
    schedule : str
        As of :func:`read_schedule`.
    machine : Machine, optional
        The model whose times ``cost`` and ``exhaustive`` use; None for :data:`BALANCE`.

    Raises
    ------
    UnsupportedError
        If the search of ``exhaustive`` would be too long.

    Examples
    --------
    >>> from drbench.plan.explain import listing
    >>> from drbench.algorithms import get_algorithm
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> print("\\n".join(listing(get_algorithm("universal").trace(problem, 0, schedule="greedy"))))
    -- operation 0: 1 compute, 1 transfer
    0  Get(A[0:8, 4:8]@1)    # 128 bytes, rank 1
    1  Get(A[0:8, 0:4]@0)
    2  Get(B[0:4, 0:4]@0)
    3  Gemm(%1 · %2 -> C[0:8, 0:4]@0, 8x4x4, beta=0)    # 256 FLOPs
    -- operation 1: 1 compute, 0 transfers
    4  Get(B[4:8, 0:4]@0)
    5  Gemm(%0 · %4 -> C[0:8, 0:4]@0, 8x4x4, beta=1)    # 256 FLOPs
    """
    if schedule == "direct":
        return program
    graph = Graph(trace(program, problem, rank))
    sizes = problem.itemsizes
    cost = lambda step, rank: step_cost(machine or BALANCE, step, rank, item_of(step, sizes))
    return graph.program(lowered_operations(graph, *read_schedule(schedule), cost))


def lowered_operations(
    graph: Graph, schedule: str, max_compute: int, max_comm: int, cost: Callable[[Step, int], Cost]
) -> list[Operation]:
    """The operations of a graph by one of the three strategies; deterministic."""
    if schedule == "greedy":
        return greedy(graph, max_compute, max_comm)
    costs = costs_of(graph, cost)
    operations = cost_greedy(graph, costs, max_compute, max_comm)
    if schedule == "cost":
        return operations
    return Search(graph, costs, max_compute, max_comm).run(operations)


def greedy(graph: Graph, max_compute: int, max_comm: int) -> list[Operation]:
    """Eligible computes, then eligible transfers, up to the bounds."""
    frontier, operations = Frontier(graph), []
    while frontier.pending:
        operations.append(
            Operation(
                frontier.transfers[:max_comm], frontier.computes[:max_compute], frontier.fences[:]
            )
        )
        frontier.finish(operations[-1])
    return operations


def cost_greedy(
    graph: Graph, costs: list[Cost], max_compute: int, max_comm: int
) -> list[Operation]:
    """The cheapest of: greedy; filling by cost; balancing, with one compute in an operation or with
    the most allowed."""
    candidates = [
        greedy(graph, max_compute, max_comm),
        _by_cost(graph, costs, max_compute, max_comm, fill=True),
    ]
    candidates += [
        _by_cost(graph, costs, bound, max_comm, fill=False) for bound in sorted({1, max_compute})
    ]
    return min(candidates, key=lambda operations: program_s(operations, costs))


def _by_cost(
    graph: Graph, costs: list[Cost], max_compute: int, max_comm: int, fill: bool
) -> list[Operation]:
    """One pass over the graph: the longest eligible computes, with the transfers that serve
    most computing for their time.

    With ``fill`` transfers are added up to the bound. Otherwise while they take no longer than the
    computes; and, if the next operation would have no computes, until it has one.
    """
    frontier, operations = Frontier(graph), []
    while frontier.pending:
        computes = sorted(
            sorted(frontier.computes[:_WEIGHED], key=lambda number: -costs[number].core_s)[
                :max_compute
            ]
        )
        taken: list[int] = []
        compute_s = operation_s(costs[number] for number in computes)
        fed = (
            len(frontier.computes) > len(computes)
            or not any(
                graph.nodes[user].step.computes  # an eligible transfer serves a later compute
                for number in frontier.transfers[:_WEIGHED]
                for user in graph.users[number]
            )
        )
        while len(taken) < max_comm:
            best = _best_transfer(graph, costs, frontier, taken)
            if best is None:
                break
            longer = operation_s(costs[number] for number in (*computes, *taken, best)) > compute_s
            if not fill and fed and longer and (computes or taken):
                break
            taken.append(best)
            fed = fed or any(
                frontier.missing[user] == sum(other in taken for other in graph.nodes[user].needs)
                for user in graph.users[best]
                if graph.nodes[user].step.computes
            )
        operations.append(Operation(sorted(taken), computes, frontier.fences[:]))
        frontier.finish(operations[-1])
    return operations


def _best_transfer(
    graph: Graph, costs: list[Cost], frontier: Frontier, taken: list[int]
) -> int | None:
    """The eligible transfer with most compute for the time of all transfers that this compute still
    needs; on a tie the first.

    Partial sums are first: until they are sent they need memory.
    """

    def score(number: int) -> float:
        best = 0.0 if isinstance(graph.nodes[number].step, Get) else inf
        for user in graph.users[number][:_SERVED]:
            if not frontier.done[user] and graph.nodes[user].step.computes:
                waits_s = sum(
                    costs[other].link_s
                    for other in graph.nodes[user].needs
                    if not frontier.done[other] and other not in taken
                )
                best = max(best, costs[user].core_s / waits_s if waits_s else inf)
        return best

    eligible = frontier.transfers[: _WEIGHED + len(taken)]
    return max((number for number in eligible if number not in taken), key=score, default=None)
