"""The memory that is available on this node."""

import mmap
from pathlib import Path

import psutil

#: Pages of a window in addition to each rank's tiles: its last page, and those of MPI and our
#: locks. (MPICH 5 used one page per window of two ranks.)
_EXTRA_PAGES = 4
#: Windows of a case: A, B and C, and the inboxes of the program and of its baseline.
_WINDOWS = 5


def windows_bytes(shared: list[int]) -> int:
    """Shared memory of one case, from the bytes of tiles and inboxes of the ranks on a node,
    including MPI's own. Rather too much than too little: too little would end in a SIGBUS, not in
    an error.

    Examples
    --------
    >>> windows_bytes([4096, 4096]) // mmap.PAGESIZE
    42
    """
    pages = [-(-each // mmap.PAGESIZE) + _WINDOWS * _EXTRA_PAGES for each in shared]
    return sum(pages) * mmap.PAGESIZE


def available_memory(root: Path = Path("/")) -> int:
    """Available bytes on this node: as reported by the kernel, or the rest of the limit of our
    control group or one above it, counting its reclaimable page cache as free."""
    return min([psutil.virtual_memory().available, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> list[int]:
    """The rest of the limit of each of our control groups, version 1 or 2; none without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if kinds
            else ("memory.max", "memory.current", "inactive_file")
        )
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == top.parent:
                break
            left += _left_in(folder, *names)
    return left


def _left_in(folder: Path, limit: str, usage: str, cache: str) -> list[int]:
    try:
        most = int((folder / limit).read_text())  # "max" is no limit
        used = int((folder / usage).read_text())
        counted = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return [max(0, most - used + int(counted.get(cache, 0)))]
    except (OSError, ValueError):
        return []
