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
    """Bytes one rank is going to hold: its tiles (in windows), its arena, and the roof's own operands."""

    tiles: int
    arena: int
    roof: int

    @classmethod
    def of(cls, problem: Problem, rank: int, arena_bytes: int, roof: bool) -> "Need":
        """What a case needs on one rank."""
        tiles = sum(operand.partition.local_size(rank) for operand in problem.operands) * problem.itemsize
        return cls(tiles, arena_bytes, sum(roof_sizes(problem)) * problem.itemsize if roof else 0)

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
    comm, node = topology.comm, topology.node
    rank, arena = max((value, -r) for r, value in enumerate(comm.allgather(need.arena)))[::-1]
    if pool_limit is not None and arena > pool_limit:
        raise OutOfMemory(f"the plan needs a pool of {format_bytes(arena)} on rank {-rank}, --pool allows "
                          f"{format_bytes(pool_limit)}: {format_bytes(arena - pool_limit)} are missing. "
                          "Use a larger --pool, a lower --prefetch or smaller tiles.")
    problems = []
    tiles, total = node.allreduce(need.tiles), node.allreduce(need.total)
    if node.rank == 0:
        shared = shared_memory_free() if node.size > 1 else None
        if shared is not None and tiles > shared:
            problems.append(f"the tiles of the {node.size} ranks on {MPI.Get_processor_name()} need {format_bytes(tiles)} of "
                            f"shared memory, {SHARED_MEMORY} has {format_bytes(shared)} free: {format_bytes(tiles - shared)} "
                            f"are missing. Enlarge {SHARED_MEMORY}, or use more nodes or smaller matrices.")
        if node_limit is not None and total > node_limit:
            problems.append(f"the {node.size} ranks on {MPI.Get_processor_name()} need {format_bytes(total)} of memory, --mem-limit allows "
                            f"{format_bytes(node_limit)}: {format_bytes(total - node_limit)} are missing.")
        available = available_memory()
        if total > available:
            problems.append(f"the {node.size} ranks on {MPI.Get_processor_name()} need {format_bytes(total)} of memory, "
                            f"{format_bytes(available)} are available: {format_bytes(total - available)} are missing. "
                            "Use more nodes, smaller matrices or lower replication factors.")
    found = [problem for on_rank in comm.allgather(problems) for problem in on_rank]
    if found:
        raise OutOfMemory(found[0])

