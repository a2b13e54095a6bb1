"""Where windows live, and how much room is there. No MPI."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

__all__ = ["SHARED_MEMORY", "available_memory", "shared_memory_free"]

SHARED_MEMORY = "/dev/shm"


def shared_memory_free() -> int | None:
    """Bytes free under /dev/shm, where windows of one node live; None where there is no such
    place."""
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
