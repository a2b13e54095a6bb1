"""The memory that is available on this node."""

import mmap
import resource
from itertools import chain
from pathlib import Path

import psutil

from drbench.host.cores import control_groups

#: Pages of a window in addition to each rank's tiles: its last page, and those of MPI and our
#: locks. (MPICH 5 used one page per window of two ranks.)
_EXTRA_PAGES = 4
#: Windows of a case: A, B and C, and the inboxes of the program and of its baseline.
_WINDOWS = 5
#: Files of a control group with its limit and its usage, and the name of its page cache in
#: ``memory.stat``: in version 2, in version 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def windows_bytes(shared: list[int]) -> int:
    """Shared memory of one case, from the bytes of tiles and inboxes of the ranks on a node,
    including MPI's own. Rather too much than too little: too little would end in a SIGBUS, not in
    an error.

    Examples
    --------
    >>> windows_bytes([4096, 4096]) // mmap.PAGESIZE
    42
    """
    pages = [-(-nbytes // mmap.PAGESIZE) + _WINDOWS * _EXTRA_PAGES for nbytes in shared]
    return sum(pages) * mmap.PAGESIZE


def available_memory(root: Path = Path("/")) -> int:
    """Available bytes on this node: as reported by the kernel, or the rest of the limit of our
    control group or one above it, counting its reclaimable page cache as free."""
    groups = control_groups("memory", root / "sys/fs/cgroup", root / "proc/self/cgroup")
    left = (_left_in(group, *names) for group in groups for names in _FILES)
    return min([psutil.virtual_memory().available, *chain.from_iterable(left)])


def left_to_process() -> dict[str, int]:
    """Bytes that this process may map in addition by the limits of its shell: with "-v" in all,
    with "-d" of its own; without those that are not limited."""
    used = psutil.Process().memory_info()
    limits = {"-v": (resource.RLIMIT_AS, used.vms), "-d": (resource.RLIMIT_DATA, used.data)}
    return {
        flag: max(0, most - now)
        for flag, (limit, now) in limits.items()
        if (most := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY
    }


def _left_in(group: Path, limit: str, usage: str, cache: str) -> list[int]:
    """The rest of the limit of a control group; empty without such a group or a limit."""
    try:
        most = int((group / limit).read_text())  # "max" is no limit
        used = int((group / usage).read_text())
        counted = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return [max(0, most - used + int(counted.get(cache, 0)))]
    except (OSError, ValueError):
        return []
