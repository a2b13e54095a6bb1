"""Is there room? Asked before anything is allocated, answered in one line that says how much is missing."""

from __future__ import annotations

from dataclasses import dataclass

from mpi4py import MPI

from drbench.errors import OutOfMemory
from drbench.problem import Problem
from drbench.roof import roof_sizes
from drbench.transports import Topology

from .memory_places import SHARED_MEMORY, available_memory, shared_memory_free
from .units import format_bytes

__all__ = ["Need", "check_memory"]


@dataclass(frozen=True)
class Need:
    """Bytes one rank is going to hold: its tiles (in windows), its arena, and what the roof and the baseline need of their own."""

    tiles: int
    arena: int
    roof: int

    @classmethod
    def of(cls, problem: Problem, rank: int, arena_bytes: int, roof: bool, arenas_bytes: int = 0) -> "Need":
        """What a case needs on one rank; ``arenas_bytes`` is its arena and that of the baseline."""
        tiles = sum(operand.partition.local_size(rank) for operand in problem.operands) * problem.itemsize
        return cls(tiles, arena_bytes, (sum(roof_sizes(problem)) * problem.itemsize if roof else 0) + max(0, arenas_bytes - arena_bytes))

    @property
    def total(self) -> int:
        return self.tiles + self.arena + self.roof


def check_memory(topology: Topology, need: Need, pool_limit: int | None = None, node_limit: int | None = None) -> None:
    """Raise on every rank if some rank's pool, some node's memory, or a limit set for each node, is too small (collective).

    Raises
    ------
    OutOfMemory
        With what is needed, what there is, and how much is missing.
    """
    comm, first = topology.comm, topology.node.rank == 0
    shared, available = (shared_memory_free(), available_memory()) if first else (None, None)
    found = comm.allgather((need, MPI.Get_processor_name(), shared, available))    # one message; every rank then finds the same
    rank = max(range(comm.size), key=lambda r: (found[r][0].arena, -r))
    arena = found[rank][0].arena
    if pool_limit is not None and arena > pool_limit:
        raise OutOfMemory(f"the plan needs a pool of {format_bytes(arena)} on rank {rank}, --pool allows "
                          f"{format_bytes(pool_limit)}: {format_bytes(arena - pool_limit)} are missing. "
                          "Use a larger --pool, a lower --prefetch or smaller tiles.")
    for lowest in sorted(set(topology.node_of)):
        needs = [found[r][0] for r in range(comm.size) if topology.node_of[r] == lowest]
        _check_node(needs, *found[lowest][1:], node_limit)


def _check_node(needs: list[Need], host: str, shared: int | None, available: int, node_limit: int | None) -> None:
    """Raise if the ranks of one node need more than it has, or may give."""
    tiles, total, ranks = sum(need.tiles for need in needs), sum(need.total for need in needs), len(needs)
    if ranks > 1 and shared is not None and tiles > shared:
        raise OutOfMemory(f"the tiles of the {ranks} ranks on {host} need {format_bytes(tiles)} of shared memory, {SHARED_MEMORY} has "
                          f"{format_bytes(shared)} free: {format_bytes(tiles - shared)} are missing. Enlarge {SHARED_MEMORY}, or use "
                          "more nodes or smaller matrices.")
    for limit, about in ((node_limit, "--mem-limit allows {}"), (available, "{} are available")):
        if limit is not None and total > limit:
            raise OutOfMemory(f"the {ranks} ranks on {host} need {format_bytes(total)} of memory, {about.format(format_bytes(limit))}: "
                              f"{format_bytes(total - limit)} are missing. Use more nodes, smaller matrices or lower replication factors.")
