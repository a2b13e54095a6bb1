"""End the processes and remove the files of our ranks that crashed or were killed. Those of other
programs, and of other MPI runs, are not touched.

Our processes and their descendants have a token in their environment. Files of shared memory are
ours if such a process was seen using them, or if they were written while our ranks ran and crashed,
and no process uses them; ranks unlink MPICH's own files as soon as all have mapped them
(``drbench.launch.ranks.run_case.world``).
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drbench.host.launcher import SHARED_MEMORY

#: Environment variable that marks the processes of one start of ranks.
TOKEN = "DRBENCH_RANKS_OF"
#: Names of the shared memory of MPICH, UCX, Open MPI and our locks.
_SHARED = re.compile(
    r"mpich_shm_[0-9a-f]+_\d+|mpich_shar_tmp\w{6}|ucx_shm_posix_[0-9a-f]+|"
    r"(sm|vader)_segment\.[\w.-]+|osc_(rdma|sm|ucx)\.[\w.-]+|drbench-locks-\w+"
)


def remove_files(used: set[str], since: float = float("inf")) -> set[str]:
    """Remove files of shared memory with names of MPI or drbench that no living process has open or
    mapped, from ``used`` and from those that this user wrote since ``since`` (s since the epoch);
    return the removed ones."""
    ours = {path for path in used | _written(since) if _SHARED.fullmatch(os.path.basename(path))}
    removed = set()
    for path in ours - list_used_files() if ours else ():
        with suppress(OSError):  # gone already
            os.unlink(path)
            removed.add(path)
    return removed


# -- processes


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with suppress(OSError, IndexError):  # IndexError: read while it ended
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return stat.rpartition(")")[2].split()[0] not in "ZX"  # a name may contain anything
    return False


def new_token() -> str:
    """A new token for processes that this process starts."""
    return os.urandom(16).hex()


def family(token: str) -> list[int]:
    """Running processes with this token, without zombies."""
    mark, pids = f"{TOKEN}={token}".encode(), []
    for pid in _pids():
        with suppress(OSError):  # it has just ended, or belongs to another user
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if mark in words and is_alive(pid):
                pids.append(pid)
    return pids


def end_family(token: str, patience_s: float = 0.0) -> set[str]:
    """Wait a little for the processes to end, then kill the others; return the shared-memory files
    that they used."""
    deadline, files = time.monotonic() + patience_s, set()
    while members := family(token):
        if time.monotonic() >= deadline:
            for pid in members:
                _signal(pid, signal.SIGSTOP)  # so that their files do not change meanwhile
            files |= list_used_files(members)
            for pid in members:
                _signal(pid, signal.SIGKILL)
            while any(map(is_alive, members)):  # files are in use until the end
                time.sleep(0.005)
        time.sleep(0.01)
    return files


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself meanwhile
        os.kill(pid, number)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


# -- files


def _written(since: float) -> set[str]:
    """Files of ranks that crash before MPI has started, as when ``/dev/shm`` is full: no process
    was seen using them."""
    paths = set()
    for entry in os.scandir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else ():
        with suppress(OSError):  # gone already
            seen = entry.stat(follow_symlinks=False)
            if seen.st_mtime >= since - 0.05 and seen.st_uid == os.geteuid():
                paths.add(entry.path)
    return paths


def mapped_files(pid: int | str = "self") -> set[str]:
    """Files that a process has mapped; the names of deleted ones end with ``(deleted)``."""
    lines = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines()
    return {line[line.index("/") :] for line in lines if "/" in line}


def list_used_files(pids=None) -> set[str]:
    """Files under /dev/shm that these processes (by default all) have open or mapped."""
    start, paths = f"{SHARED_MEMORY}/", set()
    for pid in _pids() if pids is None else pids:
        with suppress(OSError):  # it has just ended, or belongs to another user
            paths |= mapped_files(pid)
            for handle in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):  # it has just been closed
                    paths.add(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return {path for path in paths if path.startswith(start) and not path.endswith("(deleted)")}
