"""How many cores this process may use: those it may run on, and no more than its control groups
give it time on."""

import os
from pathlib import Path

_GROUPS, _MEMBER = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process and those it starts may use together, at least 1."""
    return within_quota(len(os.sched_getaffinity(0)))


def within_quota(cores: int) -> int:
    """So many cores, or as many as the control groups' quota of processor time makes whole."""
    quota = core_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def core_quota(groups: Path = _GROUPS, member: Path = _MEMBER) -> float | None:
    """Cores' worth of time that the control groups of this process allow; None without a limit.

    A group obeys those above it: the least of all counts. Containers show their own group as the
    root.

    Parameters
    ----------
    groups : Path
        Where control groups are mounted: version 2, or the controllers of version 1.
    member : Path
        The groups of this process, a line ``number:controllers:/path`` each.
    """
    found = []
    try:
        lines = member.read_text().split()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = [groups / controllers] if controllers else [groups, groups / "unified"]
        places = [Path(path.lstrip("/")), *Path(path.lstrip("/")).parents]
        found += [_of_group(mount / place) for mount in mounts for place in places]
    return min(filter(None, found), default=None)


def _of_group(group: Path) -> float | None:
    """The quota of one group, in cores."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = (
                (group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no such group, or "max"
    return cores if cores > 0 else None
