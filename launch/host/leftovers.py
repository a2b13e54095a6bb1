"""What dead runs of drbench leave, ended and removed by whoever starts ranks next. Other programs'
processes and files are left alone, those of other runs of MPI too.

Our processes carry a token in their environment, however far down and whoever adopted them. It
says which process started them: they are left over once that is dead. Files of shared memory are
ours if such a process was seen to hold them, or were written while ranks of ours ran that crashed,
and nobody holds them; MPICH's own are unlinked by the ranks as soon as all
have mapped them (``launch.ranks.run_case.world``).
"""

import functools
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from drbench.common import SHARED_MEMORY
from drbench.host.cores import kernel_and_space

#: Environment variable that marks the processes of one start of ranks, and says who started them.
TOKEN = "DRBENCH_RANKS_OF"
#: What MPICH, UCX, Open MPI and our locks call their shared memory.
_SHARED = re.compile(
    r"mpich_shm_[0-9a-f]+_\d+|mpich_shar_tmp\w{6}|ucx_shm_posix_[0-9a-f]+|"
    r"(sm|vader)_segment\.[\w.-]+|osc_(rdma|sm|ucx)\.[\w.-]+|drbench-locks-\w+"
)


class Removed(NamedTuple):
    """What was found and removed.

    Examples
    --------
    >>> str(Removed(processes=4, files=2, nbytes=3 << 20)), str(Removed(files=1, nbytes=10))
    ('4 processes and 2 files (3.0 MiB)', '1 file (0.0 MiB)')
    """

    processes: int = 0
    files: int = 0
    nbytes: int = 0

    def __str__(self) -> str:
        kinds = ((self.processes, "process", "es"), (self.files, "file", "s"))
        words = [f"{n} {name}{'' if n == 1 else more}" for n, name, more in kinds if n]
        return " and ".join(words) + (f" ({self.nbytes / 2**20:.1f} MiB)" if self.files else "")


def clear_up() -> Removed:
    """End processes whose starter is dead, and remove the shared memory that they held."""
    ended, held = 0, set()
    for token in _tokens_of_the_dead():
        ended += len(family(token))
        held |= end_family(token)
    return remove_files(held)._replace(processes=ended)


def remove_files(held: set[str], since: float = float("inf")) -> Removed:
    """Remove those of these files of shared memory, and of what this user's processes wrote since
    then (s since the epoch), that are called as MPI or drbench call theirs, and that no living
    process has open or mapped."""
    ours = {path for path in held | _written(since) if _SHARED.fullmatch(os.path.basename(path))}
    files, nbytes = 0, 0
    for path in ours - held_files() if ours else ():
        with suppress(OSError):  # gone already
            size = 512 * os.lstat(path).st_blocks
            os.unlink(path)
            files, nbytes = files + 1, nbytes + size
    return Removed(0, files, nbytes)


# -- which process is which: numbers mean something in one pid namespace of one boot of one kernel


@functools.cache
def this_system() -> str:
    """Where the numbers of processes mean what they mean here: this boot of this kernel, and its
    pid namespace. Names of hosts say neither: they change, and containers share them.

    Examples
    --------
    >>> len(this_system().split())
    2
    """
    return " ".join(map(str, kernel_and_space()))


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


# -- processes


def new_token() -> str:
    """A token for processes that this process is about to start."""
    return f"{os.urandom(16).hex()} {os.getpid()} {ticks_of()} {this_system()}"


def family(token: str) -> list[int]:
    """Processes that carry this token, those that have ended but were not waited for left out."""
    return [pid for pid, found in _marked() if found == token]


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
            while any(map(ticks_of, members)):  # an end takes a moment, and holds files until then
                time.sleep(0.005)
        time.sleep(0.01)
    return files


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself meanwhile
        os.kill(pid, number)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _marked() -> Iterator[tuple[int, str]]:
    """Living processes with a token."""
    mark = f"{TOKEN}=".encode()
    for pid in _pids():
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended, or is someone else's
        for word in words:
            if word.startswith(mark) and ticks_of(pid) is not None:
                yield pid, word[len(mark) :].decode("utf-8", "replace")


def _tokens_of_the_dead() -> set[str]:
    """Tokens of living processes whose starter, seen from here, is dead."""
    dead = set()
    for _, token in _marked():
        _, pid, ticks, *system = [*token.split(" "), "", ""]
        here = " ".join(system).strip() == this_system()
        if here and pid.isdigit() and str(ticks_of(pid)) != ticks:
            dead.add(token)
    return dead


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
