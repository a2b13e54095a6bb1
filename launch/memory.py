"""Is there room? Asked before anything is allocated, answered in one line that says how much is missing."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
from mpi4py import MPI

from drbench.errors import OutOfMemory
from drbench.problem import Problem
from drbench.roof import roof_sizes
from drbench.transports import Topology

__all__ = ["Need", "check_memory", "format_bytes", "shared_memory_free", "available_memory"]

_SHARED_MEMORY = "/dev/shm"


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


def shared_memory_free() -> int | None:
    """Bytes free under /dev/shm, where windows of one node live; None where there is no such place."""
    return shutil.disk_usage(_SHARED_MEMORY).free if os.path.isdir(_SHARED_MEMORY) else None


def available_memory() -> int:
    """Bytes this node can still give: what the kernel says, or what is left of the control group's limit."""
    available = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        text = limit.read_text().strip()
        if text != "max":
            available = min(available, int(text) - int(used.read_text()))
    except (OSError, ValueError):
        pass                                     # no control group with a limit
    return available


def check_memory(topology: Topology, need: Need, pool_limit: int | None = None) -> None:
    """Raise on every rank if some rank's pool, or some node's memory, is too small (collective).

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
                            f"shared memory, {_SHARED_MEMORY} has {format_bytes(shared)} free: {format_bytes(tiles - shared)} "
                            f"are missing. Enlarge {_SHARED_MEMORY}, or use more nodes or smaller matrices.")
        available = available_memory()
        if total > available:
            problems.append(f"the {node.size} ranks on {MPI.Get_processor_name()} need {format_bytes(total)} of memory, "
                            f"{format_bytes(available)} are available: {format_bytes(total - available)} are missing. "
                            "Use more nodes, smaller matrices or lower replication factors.")
    found = [problem for on_rank in comm.allgather(problems) for problem in on_rank]
    if found:
        raise OutOfMemory(found[0])


def format_bytes(count: int) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> format_bytes(0), format_bytes(1536), format_bytes(5 * 2**30)
    ('0 B', '1.5 KiB', '5 GiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.4g} {unit}"
        value /= 1024
