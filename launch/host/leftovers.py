"""What ranks of ours leave that crashed or were killed, ended and removed. Other programs'
processes and files are left alone, those of other runs of MPI too.

Our processes carry a token in their environment, however far down and whoever adopted them. Files
of shared memory are ours if such a process was seen to hold them, or were written while ranks of
ours ran that crashed, and nobody holds them; MPICH's own are unlinked by the ranks as soon as all
have mapped them (``launch.ranks.run_case.world``).
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from drbench.common import SHARED_MEMORY

#: Environment variable that marks the processes of one start of ranks.
TOKEN = "DRBENCH_RANKS_OF"
#: What MPICH, UCX, Open MPI and our locks call their shared memory.
_SHARED = re.compile(
    r"mpich_shm_[0-9a-f]+_\d+|mpich_shar_tmp\w{6}|ucx_shm_posix_[0-9a-f]+|"
    r"(sm|vader)_segment\.[\w.-]+|osc_(rdma|sm|ucx)\.[\w.-]+|drbench-locks-\w+"
)


def remove_files(held: set[str], since: float = float("inf")) -> set[str]:
    """Remove those of these files of shared memory, and of what this user's processes wrote since
    then (s since the epoch), that are called as MPI or drbench call theirs, and that no living
    process has open or mapped; which those are."""
    ours = {path for path in held | _written(since) if _SHARED.fullmatch(os.path.basename(path))}
    removed = set()
    for path in ours - held_files() if ours else ():
        with suppress(OSError):  # gone already
            os.unlink(path)
            removed.add(path)
    return removed


# -- processes


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended and was only not waited for is none."""
    with suppress(OSError, IndexError):  # IndexError: read while it ended
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return stat.rpartition(")")[2].split()[0] not in "ZX"  # a name may hold anything
    return False


def new_token() -> str:
    """A token for processes that this process is about to start."""
    return os.urandom(16).hex()


def family(token: str) -> list[int]:
    """Processes that carry this token, those that have ended but were not waited for left out."""
    mark, found = f"{TOKEN}={token}".encode(), []
    for pid in _pids():
        with suppress(OSError):  # it has just ended, or is someone else's
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if mark in words and is_alive(pid):
                found.append(pid)
    return found


def end_family(token: str, patience_s: float = 0.0) -> set[str]:
    """Wait a little for the processes to end, then kill those left; the shared-memory files they
    held."""
    deadline, files = time.monotonic() + patience_s, set()
    while members := family(token):
        if time.monotonic() >= deadline:
            for pid in members:
                _signal(pid, signal.SIGSTOP)  # so that what they hold is not gone before it is seen
            files |= held_files(members)
            for pid in members:
                _signal(pid, signal.SIGKILL)
            while any(map(is_alive, members)):  # an end takes a moment, and holds files until then
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
    """What ranks leave that crash before MPI has begun, as where ``/dev/shm`` is full: nobody sees
    them hold it."""
    found = set()
    for entry in os.scandir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else ():
        with suppress(OSError):  # gone already
            seen = entry.stat(follow_symlinks=False)
            if seen.st_mtime >= since - 0.05 and seen.st_uid == os.geteuid():
                found.add(entry.path)
    return found


def held_files(pids=None) -> set[str]:
    """Files under /dev/shm that these processes (all there are, by default) have open or mapped."""
    start, found = f"{SHARED_MEMORY}/", set()
    for pid in _pids() if pids is None else pids:
        with suppress(OSError):  # it has just ended, or is someone else's
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                found.add(line[line.find("/") :])
            for handle in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):  # it has just been closed
                    found.add(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return {path for path in found if path.startswith(start) and not path.endswith("(deleted)")}
