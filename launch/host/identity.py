"""Which process is which: numbers of processes mean something in one pid namespace of one boot of
one kernel, and are given anew when a process has ended."""

import functools
import os
import socket
from pathlib import Path


@functools.cache
def this_system() -> str:
    """Where the numbers of processes mean what they mean here: this boot of this kernel, and its
    pid namespace. Names of hosts say neither: they change, and containers share them.

    Examples
    --------
    >>> len(this_system().split())
    2
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def started_at(stat: str) -> int | None:
    """When the process of a ``/proc/PID/stat`` was started, in clock ticks since boot (field 22);
    None if it has ended and was only not waited for. No step of any clock changes it.

    Examples
    --------
    >>> started_at(
    ...     "7 (a) Z 1 (b) S 1 7 7 0 -1 4194304 99 0 0 0 1 0 0 0 20 0 1 0 2360788 3133440 411"
    ... )
    2360788
    >>> started_at("7 (sh) Z 1 7 7 0 -1 4194304 99 0 0 0 1 0 0 0 20 0 1 0 2360788 0 0") is None
    True
    """
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if state in "ZX" else int(fields[18])


def ticks_of(pid: int | str = "self") -> int | None:
    """When a process of this system was started; None if there is none, or it has ended."""
    try:
        return started_at(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (OSError, IndexError):  # IndexError: read while it ended
        return None
