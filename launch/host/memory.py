"""Is there room? Asked before anything is allocated, answered in one line that says how much is
missing. No MPI: whoever starts ranks asks too."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from drbench.common import SHARED_MEMORY
from drbench.errors import OutOfMemory
from drbench.program.problem import Problem

from .units import format_bytes


@dataclass(frozen=True)
class Need:
    """Bytes one rank is going to hold: its tiles (in windows), its arena, and what the roof and the
    baseline need of their own."""

    tiles: int
    arena: int
    roof: int

    @classmethod
    def of(
        cls, problem: Problem, rank: int, arena_bytes: int, roof: bool, arenas_bytes: int = 0
    ) -> Need:
        """What a case needs on one rank; ``arenas_bytes`` is its arena and that of the baseline."""
        tiles = sum(
            operand.partition.local_size(rank) * problem.itemsizes[operand.name]
            for operand in problem.operands
        )
        local = (
            sum(
                size * width
                for size, width in zip(problem.roof_sizes(), problem.itemsizes.values())
            )
            if roof
            else 0
        )
        return cls(tiles, arena_bytes, local + max(0, arenas_bytes - arena_bytes))

    @property
    def total(self) -> int:
        return self.tiles + self.arena + self.roof


def check_memory(
    topology,
    need: Need,
    pool_limit: int | None = None,
    node_limit: int | None = None,
    device_free: int | None = None,
) -> None:
    """Raise on every rank if some rank's pool, some node's memory, or a limit set for each node, is
    too small (collective).

    ``device_free`` is what this rank may still allocate on its device, which then holds everything
    instead of the node.

    Raises
    ------
    OutOfMemory
        With what is needed, what there is, and how much is missing.
    """
    comm, first = topology.comm, topology.node.rank == 0
    shared, available = (shared_memory_free(), available_memory()) if first else (None, None)
    # one message; every rank then finds the same
    found = comm.allgather((need, platform.node(), shared, available))
    rank = max(range(comm.size), key=lambda r: (found[r][0].arena, -r))
    arena = found[rank][0].arena
    if pool_limit is not None and arena > pool_limit:
        raise OutOfMemory(
            f"the plan needs a pool of {format_bytes(arena)} on rank {rank}, --pool allows "
            f"{format_bytes(pool_limit)}: {format_bytes(arena - pool_limit)} are missing. "
            "Use a larger --pool, a lower --prefetch or smaller tiles."
        )
    if device_free is not None:
        _check_devices(comm.allgather((need.total, device_free)), node_limit)
        return
    for lowest in sorted(set(topology.node_of)):
        needs = [found[r][0] for r in range(comm.size) if topology.node_of[r] == lowest]
        _check_node(needs, *found[lowest][1:], node_limit)


def _check_devices(found: list[tuple[int, int]], limit: int | None) -> None:
    """Raise if some rank needs more device memory than it may have."""
    for rank, (need, free) in enumerate(found):
        room = free if limit is None else min(free, limit)
        if need > room:
            raise OutOfMemory(
                f"rank {rank} needs {format_bytes(need)} of device memory, {format_bytes(room)} "
                f"are free for it: {format_bytes(need - room)} are "
                "missing. Use more devices, smaller matrices or lower replication factors."
            )


def _check_node(
    needs: list[Need], host: str, shared: int | None, available: int, node_limit: int | None
) -> None:
    """Raise if the ranks of one node need more than it has, or may give."""
    tiles, total, ranks = (
        sum(need.tiles for need in needs),
        sum(need.total for need in needs),
        len(needs),
    )
    if ranks > 1 and shared is not None and tiles > shared:
        raise OutOfMemory(
            f"the tiles of the {ranks} ranks on {host} need {format_bytes(tiles)} of shared "
            f"memory, {SHARED_MEMORY} has "
            f"{format_bytes(shared)} free: {format_bytes(tiles - shared)} are missing. Enlarge "
            f"{SHARED_MEMORY}, or use "
            "more nodes or smaller matrices."
        )
    for limit, about in ((node_limit, "--mem-limit allows {}"), (available, "{} are available")):
        if limit is not None and total > limit:
            raise OutOfMemory(
                f"the {ranks} ranks on {host} need {format_bytes(total)} of memory, "
                f"{about.format(format_bytes(limit))}: "
                f"{format_bytes(total - limit)} are missing. Use more nodes, smaller matrices or "
                "lower replication factors."
            )


def shared_memory_free() -> int | None:
    """Bytes free under /dev/shm; None where there is no such place."""
    return shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else None


def available_memory() -> int:
    """Bytes this node can still give: what the kernel says, or what is left of the control group's
    limit."""
    available = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        text = limit.read_text().strip()
        if text != "max":
            available = min(available, int(text) - int(used.read_text()))
    except (OSError, ValueError):
        pass  # no control group with a limit
    return available
