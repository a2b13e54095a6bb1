"""The computation graph of one rank (*Slicing Is All You Need*, §4.3): its computes, and the tiles
and partial sums for which they wait.

It is bipartite in the paper: GEMMs on one side, tiles on the other. A tile that this rank owns is
local and not a node; a remote tile is fetched once, however many GEMMs need it. A whole program has
more nodes than the paper's figure: partial sums for another rank's tile, the reduction of the
replicas, and Fences.
"""

from bisect import bisect_left, insort
from typing import NamedTuple

from drbench.program.kinds import GROUP_STEPS, SIGNAL_STEPS, table_of_steps
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Get,
    Join,
    OperationEnd,
    Pack,
    Part,
    Put,
    ReplicaAdd,
    ReplicaGet,
    Scratch,
    Step,
    Steps,
    Zero,
)
from drbench.program.trace import Trace


class Node(NamedTuple):
    """A compute, a transfer or a Fence.

    Attributes
    ----------
    step : Step
        Of the direct program.
    needs : tuple of int
        Nodes that must be finished in an earlier operation.
    sum : int or None
        The number of the block to which GEMMs add; these may run in any order.
    """

    step: Step
    needs: tuple
    sum: int | None = None


class Operation(NamedTuple):
    """An IR operation: nodes that run at the same time. Fences are no transfers and are not
    bounded."""

    transfers: list
    computes: list
    fences: list


class Graph:
    """The nodes of one rank and their dependences.

    Parameters
    ----------
    trace : Trace
        Of the direct program, with one-sided steps only.

    Attributes
    ----------
    nodes : list of Node
        In the order of the direct program.
    users : list of list of int
        For each node, the nodes that need it.
    computes, transfers, fences : list of int
        The nodes of each kind.

    Examples
    --------
    Rank 0 of two, all by columns: one GEMM is ready, the other needs half of A from rank 1.

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> direct = get_algorithm("universal").trace(
    ...     Problem(8, 8, 8, 2, a="column", b="column", c="column"), 0
    ... )
    >>> [(type(node.step).__name__, node.needs) for node in Graph(direct).nodes]
    [('Gemm', ()), ('Get', ()), ('Gemm', (1,))]
    """

    def __init__(self, trace: Trace):
        self.trace, self.nodes, self._sums = trace, [], {}
        fetched: dict[tuple, int] = {}  # blocks of A and B -> the node that fetches them
        node_of: dict[int, int] = {}  # step -> node
        zeros: dict[tuple, int] = {}
        fence, since = None, []  # the last Fence, and the nodes that have accessed C since
        for step in trace.steps:
            kind, block = type(step), step.block
            if kind is Get:
                if block.owner == trace.rank:
                    continue
                if block.key in fetched:
                    node_of[step.index] = fetched[block.key]
                    continue
                fetched[block.key] = len(self.nodes)
            elif kind is Part:
                continue  # of a fetched block
            needs, of_sum = set(), None
            if kind is Gemm and block is None:
                of_sum = node_of[step.index] = (
                    step.index if step.onto is None else node_of[step.onto.index]
                )
                self._sums.setdefault(of_sum, []).append(len(self.nodes))
            else:
                node_of[step.index] = len(self.nodes)
            for value in map(_whole, step.inputs):
                if value is step.onto or (type(value) is Get and value.block.owner == trace.rank):
                    continue
                if type(value) is Gemm and value.block is None:
                    needs.update(self._sums[node_of[value.index]])
                else:
                    needs.add(node_of[value.index])
            if kind is Fence or step.matrix == trace.written:
                if fence is not None:
                    needs.add(fence)
                if kind is Fence:
                    needs.update(since)
                    fence, since = len(self.nodes), []
                    zeros.clear()  # the Fence has waited for them
                else:
                    since.append(len(self.nodes))
                    if kind is Zero:
                        zeros[block.tile] = len(self.nodes)
                    elif step.computes and block.tile in zeros:
                        needs.add(zeros[block.tile])
            self.nodes.append(Node(step, tuple(sorted(needs)), of_sum))
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for other in node.needs:
                self.users[other].append(number)
        self.computes, self.transfers, self.fences = lists = [], [], []
        for number in range(len(self.nodes)):
            self.kind_of(number, lists).append(number)

    def kind_of(self, number: int, of_each: tuple) -> list:
        """The one of three items for a node's kind: compute, transfer or Fence."""
        step = self.nodes[number].step
        return of_each[0 if step.computes else 2 if type(step) is Fence else 1]

    def program(self, operations: list[Operation]) -> Steps:
        """The steps of the lowered program: in each operation communication, then computes, then
        its OperationEnd."""
        tokens: dict = {}  # of a fetched or own block, of a partial sum
        for operation in operations:
            computes = [self.nodes[number].step for number in operation.computes]
            for _ in operation.fences:
                yield Fence()
            for number in operation.transfers:
                yield from self._emit(number, tokens)
            for step in computes:
                for value in step.inputs:
                    if (
                        type(value) is Get
                        and value.block.owner == self.trace.rank
                        and value.block.key not in tokens
                    ):
                        tokens[value.block.key] = yield Get(value.block)
            for number in operation.computes:
                yield from self._emit(number, tokens)
            yield OperationEnd()

    def _emit(self, number: int, tokens: dict) -> Steps:
        """The steps of a compute or transfer in the lowered program."""
        return self._EMITTERS[type(self.nodes[number].step)](self, self.nodes[number], tokens)

    def _read(self, node: Node, tokens: dict) -> Steps:
        block = node.step.block
        tokens[block.key] = yield type(node.step)(block)

    def _add_to_replica(self, node: Node, tokens: dict) -> Steps:
        yield ReplicaAdd((yield Get(node.step.inputs[0].block)), node.step.block)  # an own tile

    def _accumulate(self, node: Node, tokens: dict) -> Steps:
        sums = (self.nodes[other].sum for other in node.needs)
        sent = next(of_sum for of_sum in sums if of_sum is not None)
        yield Accumulate(tokens[sent], node.step.block)

    def _multiply(self, node: Node, tokens: dict) -> Steps:
        a = yield from _sliced(node.step.inputs[0], tokens)
        b = yield from _sliced(node.step.inputs[1], tokens)
        if node.sum is None:
            yield Gemm(a, b, into=node.step.block)
        else:
            tokens[node.sum] = yield Gemm(a, b, into=tokens.get(node.sum))

    def _zero(self, node: Node, tokens: dict) -> Steps:
        yield Zero(node.step.block)

    def _write(self, node: Node, tokens: dict) -> Steps:
        step = node.step
        yield type(step)(tokens[step.inputs[0].block.key], into=step.block)

    _EMITTERS = table_of_steps(
        "lowering",
        {
            (Get, ReplicaGet): _read,
            ReplicaAdd: _add_to_replica,
            Accumulate: _accumulate,
            Gemm: _multiply,
            Zero: _zero,
            (Copy, Add): _write,
            (Fence, Part): None,  # on their own
            # in no direct program that is lowered:
            (Pack, Put, *GROUP_STEPS, *SIGNAL_STEPS): None,
            (Scratch, FilledScratch, Join, OperationEnd): None,
        },
    )


def _whole(value: Step) -> Step:
    """The value that this one is a part of, or itself."""
    while type(value) is Part:
        value = value.inputs[0]
    return value


def _sliced(value: Step, tokens: dict) -> Steps:
    """The token of a block, or of a part of one, in the lowered program."""
    if type(value) is not Part:
        return tokens[value.block.key]
    whole = yield from _sliced(value.inputs[0], tokens)
    return (yield Part(whole, value.axis, value.start, value.stop))


class Frontier:
    """A graph during lowering: the nodes that are eligible now.

    Attributes
    ----------
    computes, transfers, fences : list of int
        Eligible nodes, in the order of the direct program.
    pending : int
        Nodes left.
    missing : list of int
        For each node, the number of unfinished nodes that it needs.
    """

    def __init__(self, graph: Graph):
        self.graph, self.pending = graph, len(graph.nodes)
        self.missing = [len(node.needs) for node in graph.nodes]
        self.done = bytearray(len(graph.nodes))
        self.lists = self.computes, self.transfers, self.fences = [], [], []
        for number, left in enumerate(self.missing):
            if not left:
                graph.kind_of(number, self.lists).append(number)

    def finish(self, operation: Operation) -> None:
        """Finish the nodes of an operation; nodes that waited for these alone become eligible."""
        for numbers, eligible in zip(operation, (self.transfers, self.computes, self.fences)):
            for number in numbers:
                del eligible[bisect_left(eligible, number)]
                self.done[number] = 1
                self.pending -= 1
        for numbers in operation:
            for number in numbers:
                for user in self.graph.users[number]:
                    self.missing[user] -= 1
                    if not self.missing[user]:
                        insort(self.graph.kind_of(user, self.lists), user)
