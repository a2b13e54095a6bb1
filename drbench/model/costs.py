"""What the simulator needs to know of the steps of a process row or column: how each moves, and
what is copied before and after.

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

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drbench.errors import UsageError
from drbench.plan.memory import gathers_in_place
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.program.steps import Step

from .machine import Machine

__all__ = ["GROUP_COSTS", "GroupCost", "group_parts", "group_seconds", "packed", "ring_way"]


@dataclass(frozen=True)
class GroupCost:
    """How one type of group step moves.

    Attributes
    ----------
    kind : str
        ``"ring"``, ``"pipeline"`` or ``"shift"``.
    operation : str
        Name in the machine's ``collectives``.
    shard : callable
        ``shard(step)`` -> elements: of the largest block that goes round a ring, of the whole that
        is broadcast or reduced, or of what this rank sends in a shift.
    """

    kind: str
    operation: str
    shard: Callable[[Step], int]


def _largest(step) -> int:
    return max(piece.size for piece in step.pieces)


def _sent(step) -> int:
    rows, cols = step.inputs[0].shape
    return rows * cols


def _whole(step) -> int:
    return step.piece.size


#: By type of step.
GROUP_COSTS: dict[type, GroupCost] = {
    AllGather: GroupCost("ring", "allgather", _largest),
    ReduceScatter: GroupCost("ring", "reducescatter", _largest),
    Broadcast: GroupCost("pipeline", "broadcast", _whole),
    Reduce: GroupCost("pipeline", "reduce", _whole),
    Shift: GroupCost("shift", "shift", _sent),
}


def group_parts(
    cost: GroupCost,
    machine: Machine,
    ranks: int,
    nbytes: float,
    bandwidth_bytes_per_s: float,
    group: str = "row",
) -> tuple[float, float, float]:
    """Seconds of launching, of synchronising and of transferring that a group step takes on free
    links; ``group`` is the name of its group.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Collective
    >>> toy = Machine(
    ...     "toy", Compute(1e12), collectives={"allgather": Collective(launch_s=1.0, sync_s=0.5)}
    ... )
    >>> group_parts(GROUP_COSTS[AllGather], toy, 4, 100, 100.0)
    (1.0, 1.5, 3.0)
    """
    found = machine.collectives.get(cost.operation)
    launch, sync, own, ways = (
        (found.launch_s, found.sync_s, found.bandwidth_bytes_per_s, 1 + found.both_ways)
        if found
        else (0.0, 0.0, None, 1)
    )
    if found and group == "column":
        own = found.column_bandwidth_bytes_per_s or own
    bandwidth = ways * (own or bandwidth_bytes_per_s)
    if cost.kind == "shift":
        return launch, sync, nbytes / bandwidth
    if cost.kind == "ring":
        return launch, (ranks - 1) * sync, (ranks - 1) * (nbytes / bandwidth)
    if cost.kind == "pipeline":
        stages = ranks + machine.packets - 2
        return launch, stages * sync, stages * (nbytes / machine.packets / bandwidth)
    raise UsageError(f"a group step must be a ring, pipeline or shift, got {cost.kind!r}.")


def group_seconds(
    cost: GroupCost,
    machine: Machine,
    ranks: int,
    nbytes: float,
    bandwidth_bytes_per_s: float,
    group: str = "row",
) -> float:
    """Seconds a group step takes on free links.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> from drbench.model.machine import Collective
    >>> toy = Machine(
    ...     "toy", Compute(1e12), collectives={"allgather": Collective(launch_s=1.0, sync_s=0.5)}
    ... )
    >>> group_seconds(GROUP_COSTS[AllGather], toy, 4, 100, 100.0)
    5.5
    """
    launch, sync, transfer = group_parts(cost, machine, ranks, nbytes, bandwidth_bytes_per_s, group)
    return launch + (sync + transfer)


def packed(step: Step, always: bool) -> tuple[int, int]:
    """Elements this rank copies before it takes part in a group step, and after.

    Parameters
    ----------
    step : Step
    always : bool
        A gather copies the own piece also where it lies in the tile without gaps, as the executor
        does; else it is read from there.

    Examples
    --------
    Every other two columns of an own tile are packed before a gather, and a whole tile is not:

    >>> from drbench.program.blocks import Block, Group, Piece
    >>> tile, row = Block("A", 0, 0, (0, 0), 0, 8, 0, 8, 0, 8), Group("row", (0, 1), 0)
    >>> [
    ...     packed(AllGather([piece, piece], row, axis=1), False)
    ...     for piece in (Piece(tile, cols=((0, 2), (4, 6))), Piece(tile))
    ... ]
    [(32, 0), (0, 0)]
    """
    kind, alone = type(step), len(step.group) == 1
    if kind is AllGather:
        own = step.pieces[step.group.position]
        return (
            0
            if gathers_in_place(step)
            else own.size
            if alone or always or not own.contiguous
            else 0
        ), 0
    if kind is Broadcast:
        return (
            step.piece.size
            if step.root == step.group.position and not alone and not step.piece.contiguous
            else 0
        ), 0
    if kind is Shift:
        return (_sent(step) if step.by % len(step.group) == 0 else 0), 0
    own = step.pieces[step.group.position] if kind is ReduceScatter else step.piece
    mine = kind is ReduceScatter or step.root == step.group.position
    return 0, own.size if mine and (alone or not own.contiguous) else 0


def ring_way(step: Step) -> tuple[str, int, int]:
    """The direction of the ring, the neighbours passed one after another, and the elements that
    cross a link: a throttle's view of a group step.

    Examples
    --------
    >>> from drbench.program.blocks import Block, Group
    >>> pieces = [Block("A", x, 0, (0, x), 0, 4, 4 * x, 4 * x + 4, 0, 4) for x in range(3)]
    >>> ring_way(AllGather(pieces, Group("row", (0, 1, 2), 0), axis=1))
    ('row+', 2, 32)
    """
    kind, size = type(step), len(step.group)
    if kind is Shift:
        ahead = step.by % size
        hops = min(ahead, size - ahead)
        return (
            f"{step.group.name}{'+' if hops == ahead else '-'}",
            hops,
            hops * max(_sent(step), step.shape[0] * step.shape[1]),
        )
    name = f"{step.group.name}+"
    if kind in (Broadcast, Reduce):
        return name, size - 1, step.piece.size
    return (
        name,
        size - 1,
        sum(piece.size for piece in step.pieces) - step.pieces[step.group.position].size,
    )
