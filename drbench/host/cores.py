"""The number of cores that this process may use: those it may run on, limited by the quota of its
control groups."""

import os
import socket
from collections.abc import Hashable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

_GROUPS, _MEMBER = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process and those it starts may use together, at least 1."""
    cores, quota = len(os.sched_getaffinity(0)), core_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


class CoreShare(NamedTuple):
    """The share of its machine that a process may use.

    Attributes
    ----------
    kernel : str
        The machine: the boot of its kernel. Host names do not identify it: containers differ.
    container : int
        Its pid namespace there: processes of one namespace have one quota.
    cores : frozenset of int
        Cores that it may run on.
    quota : float
        Time that its control groups allow, in cores.
    """

    kernel: str
    container: int
    cores: frozenset[int]
    quota: float

    @classmethod
    def of_this_process(cls) -> "CoreShare":
        """The share of the calling process."""
        quota, cores = core_quota(), frozenset(os.sched_getaffinity(0))
        return cls(*kernel_and_space(), cores, inf if quota is None else quota)


def kernel_and_space() -> tuple[str, int]:
    """The boot of this kernel, and the pid namespace: numbers of cores and of processes are unique
    within them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return socket.gethostname(), 0


def occupancies(places: Sequence[Hashable], shares: Sequence[CoreShare]) -> set[tuple[int, int]]:
    """For all places (ranks, cores): the ranks there, and the cores that they may use together, at
    least 1.

    Parameters
    ----------
    places : sequence of hashable
        Of each rank, its node or machine.
    shares : sequence of CoreShare
        The share of each rank there.

    Examples
    --------
    Two nodes that are containers on one machine of four cores, three ranks and one:

    >>> first, second = (CoreShare("boot", x, frozenset(range(4)), 2.5) for x in (1, 2))
    >>> sorted(occupancies(["a", "a", "a", "b"], [first, first, first, second]))
    [(1, 2), (3, 2)]
    >>> occupancies(["boot"] * 4, [first, first, first, second])
    {(4, 4)}
    """
    by_place: dict[Hashable, list[CoreShare]] = {}
    for place, share in zip(places, shares):
        by_place.setdefault(place, []).append(share)
    return {(len(group), _together(group)) for group in by_place.values()}


def _together(shares: Sequence[CoreShare]) -> int:
    """The cores of ranks of one place: each container has one quota, the least that is read."""
    quotas: dict[int, float] = {}
    for share in shares:
        quotas[share.container] = min(quotas.get(share.container, inf), share.quota)
    cores = len(frozenset().union(*(share.cores for share in shares)))
    return max(1, int(min(cores, sum(quotas.values()))))


def core_quota(groups: Path = _GROUPS, member: Path = _MEMBER) -> float | None:
    """Time that the control groups of this process allow, in cores; None without a limit.

    The limits of all groups above apply, too: the least counts. Containers show their own group as
    the root.

    Parameters
    ----------
    groups : Path
        Mount point of control groups: version 2, or the controllers of version 1.
    member : Path
        The groups of this process, a line ``number:controllers:/path`` each.
    """
    return min(filter(None, map(_of_group, control_groups("cpu", groups, member))), default=None)


def control_groups(
    controller: str, groups: Path = _GROUPS, member: Path = _MEMBER
) -> Iterator[Path]:
    """Yield the folders of this process's control groups of a controller, such as ``cpu``, and of
    all groups above; they may not exist. Parameters as of :func:`core_quota`."""
    try:
        lines = member.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [groups / controllers] if controllers else [groups, groups / "unified"]
        places = [Path(path.lstrip("/")), *Path(path.lstrip("/")).parents]
        yield from (mount / place for mount in mounts for place in places)


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
