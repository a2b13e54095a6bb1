"""What the simulator needs to know of steps that a whole communicator takes part in.

A group step's ``group`` names the communicator: it is the same (equal, hashable) object on all ranks and its ``members`` are
global ranks in ring order. One :class:`GroupCost` a type of step says how it moves; :data:`GROUP_COSTS` is the table.

==========  ==============================================================================================
kind        seconds on P ranks
==========  ==============================================================================================
ring        ``launch + (P - 1) · (sync + shard / bandwidth)``; ends for all when all have come
pipeline    ``launch + (P + packets - 2) · (sync + shard / packets / bandwidth)``; likewise
shift       ``launch + sync + shard / bandwidth`` for each pair of neighbours, when both have come
==========  ==============================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from .errors import UsageError
from .machine import Machine
from .steps import Step

__all__ = ["GROUP_COSTS", "GroupCost", "group_seconds"]


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
        ``shard(step, rank)`` -> elements: of the largest block that goes round a ring, of the whole that is broadcast or
        reduced, or of what this rank sends in a shift.
    moved : callable
        ``moved(step, rank)`` -> elements counted as this rank's ``collective_bytes``.
    by : callable
        ``by(step)`` -> how far a shift goes along the ring.
    """

    kind: str
    operation: str
    shard: Callable[[Step, int], int]
    moved: Callable[[Step, int], int]
    by: Callable[[Step], int] = lambda step: 1


#: By type of step.
GROUP_COSTS: dict[type, GroupCost] = {}


def group_seconds(cost: GroupCost, machine: Machine, members: tuple, nbytes: float, bandwidth_bytes_per_s: float) -> float:
    """Seconds a group step takes on free links.

    Examples
    --------
    >>> from drbench.gemm_model import Compute
    >>> from drbench.machine import Collective
    >>> toy = Machine("toy", Compute(1e12), collectives={"allgather": Collective(launch_s=1.0, sync_s=0.5)})
    >>> gather = GroupCost("ring", "allgather", None, None)
    >>> group_seconds(gather, toy, (0, 1, 2, 3), 100, 100.0)
    5.5
    """
    found = machine.collectives.get(cost.operation)
    launch, sync, own = (found.launch_s, found.sync_s, found.bandwidth_bytes_per_s) if found else (0.0, 0.0, None)
    bandwidth, ranks = own or bandwidth_bytes_per_s, len(members)
    if cost.kind == "shift":
        return launch + sync + nbytes / bandwidth
    if cost.kind == "ring":
        return launch + (ranks - 1) * (sync + nbytes / bandwidth)
    if cost.kind == "pipeline":
        return launch + (ranks + machine.packets - 2) * (sync + nbytes / machine.packets / bandwidth)
    raise UsageError(f"a group step must be a ring, pipeline or shift, got {cost.kind!r}.")
