"""What dead runs leave, found and removed by whoever starts ranks next: processes, shared memory
and temporary files. Only of this user, and never what a living process has, or could still open.

Our processes carry a token in their environment, however far down and whoever adopted them. It
says which process started them: they are left over once that is dead.

A file is left over if all of this holds:

- It lies in ``/dev/shm`` or the folder for temporary files and is called as MPICH, UCX, Open MPI or
  drbench call theirs, is no link, and belongs to this user.
- In ``/dev/shm``: no process has it open or mapped, in two looks. Whoever makes such a file has it
  open or mapped until all have opened it who ever will, so one that nobody holds is of no use to
  anybody. (A process that was started by exec can be looked into by its user.)
- The description of the machine that Hydra writes for its ranks (``hydra_hwloc_xmlfile_…``): no
  Hydra of this user lives that was started before it was written. Nobody holds it open.
- A folder named after the process that made it (``ompi.PID``, ``drbench-NAME-PID-TICKS-…``): that
  process is dead, and nobody has anything in it open or mapped.
- In a container (a pid or user namespace of its own), where a file may be someone's who cannot be
  seen: it was held by, or made in the time of, ranks that we started; or it is ten minutes old, by
  when all that start together have opened it. Folders stay.
"""

import functools
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
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
_HYDRA_FILE = re.compile(r"hydra_hwloc_xmlfile_\w{6}")
_HYDRA = re.compile(r"hydra|mpiexec|mpirun")
_FOLDER = re.compile(r"ompi\.(?P<pid>\d+)|drbench-[\w.-]+-(?P<ours>\d+)-(?P<ticks>\d+)-\w+")
#: Where Hydra and Open MPI put theirs, whatever TMPDIR says.
_TEMPORARY = "/tmp"
#: By then all processes that were started together have opened what they share.
_STARTED_S = 600.0
#: Between the two looks; and what clocks may differ by.
_LOOK_S, _CLOCKS_S = 0.02, 10.0


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


def clear_up(ours: Collection[str] = (), since: float = float("inf")) -> Removed:
    """End processes whose starter is dead, and remove files that nobody uses any more.

    Parameters
    ----------
    ours : collection of str
        Paths that ranks of ours held, which have ended since.
    since : float
        When ranks of ours were started that have ended since (s since the epoch).
    """
    ended, files = 0, set(ours)
    for token in _tokens_of_the_dead():
        ended += len(family(token))
        files |= end_family(token)
    removed = Removed(ended)
    found = {path: seen for path, seen in _candidates() if _ours_or_old(path, seen, files, since)}
    for look in range(2):
        if found and look:
            time.sleep(_LOOK_S)
        in_use = _in_use(found) if found else set()
        found = {path: seen for path, seen in found.items() if os.path.basename(path) not in in_use}
    for path, seen in found.items():
        with suppress(OSError):  # gone already
            now = os.lstat(path)
            if (now.st_ino, now.st_ctime_ns) == (seen.st_ino, seen.st_ctime_ns):
                shutil.rmtree(path) if stat.S_ISDIR(now.st_mode) else os.unlink(path)
                size = removed.nbytes + 512 * now.st_blocks
                removed = removed._replace(files=removed.files + 1, nbytes=size)
    return removed


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


def folder_prefix(name: str) -> str:
    """What a temporary folder of this process is called, so that it is known when it is left."""
    return f"drbench-{name}-{os.getpid()}-{ticks_of()}-"


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


def held_files(pids=None) -> set[str]:
    """Files under /dev/shm that these processes (all there are, by default) have open or mapped."""
    start = f"{SHARED_MEMORY}/"
    return {path for path in _paths(pids) if path.startswith(start)}


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


def _paths(pids=None) -> Iterator[str]:
    """Paths of files that processes have open or mapped, but for those without a name."""
    for pid in _pids() if pids is None else pids:
        try:
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                if "/" in line and not line.endswith("(deleted)"):
                    yield line[line.index("/") :]
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                path = os.readlink(handle)
                if path.startswith("/") and not path.endswith("(deleted)"):
                    yield path
        except OSError:
            continue  # it has just ended, or is someone else's


def _in_use(found: Collection[str]) -> set[str]:
    """Which of these names a living process has open or mapped: by name alone, since the same file
    has another path in another mount namespace."""
    names = {os.path.basename(path) for path in found}
    return {name for path in set(_paths()) for name in path.split("/") if name in names}


def _candidates() -> Iterator[tuple[str, os.stat_result]]:
    """What is called as MPI or drbench call theirs, belongs to this user, and is not known to be in
    use by its name or its time."""
    for path, seen in _files_of_this_user(SHARED_MEMORY, _SHARED):
        if stat.S_ISREG(seen.st_mode):
            yield path, seen
    first = _first_hydra()
    for folder in {_TEMPORARY, tempfile.gettempdir()}:
        for path, seen in _files_of_this_user(folder, _HYDRA_FILE):
            if stat.S_ISREG(seen.st_mode) and first > _born_s(seen) + _CLOCKS_S:
                yield path, seen
        for path, seen in _files_of_this_user(folder, _FOLDER):
            if stat.S_ISDIR(seen.st_mode) and _maker_is_dead(os.path.basename(path), seen):
                yield path, seen


def _files_of_this_user(folder: str, name: re.Pattern) -> Iterator[tuple[str, os.stat_result]]:
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        if name.fullmatch(entry.name):
            with suppress(FileNotFoundError):
                seen = entry.stat(follow_symlinks=False)
                if seen.st_uid == os.geteuid():
                    yield entry.path, seen


def _ours_or_old(path: str, seen, ours: Collection[str], since: float) -> bool:
    """Whether it cannot be of processes that cannot be seen from here."""
    if _sees_all():
        return True
    age_s = time.time() - seen.st_mtime
    known = path in ours or seen.st_mtime >= since - 0.05
    return stat.S_ISREG(seen.st_mode) and (known or age_s > _STARTED_S)


@functools.cache
def _sees_all() -> bool:
    """Whether every process of this machine is seen: the first pid namespace, and the first user
    namespace, have these numbers in every Linux."""
    try:
        first = os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC
        return first and os.stat("/proc/self/ns/user").st_ino == 0xEFFFFFFD
    except OSError:
        return False


def _born_s(seen) -> float:
    """When a file was last written, in seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - seen.st_mtime)


def _first_hydra() -> float:
    """When the oldest Hydra of this user that lives was started, in seconds since boot; infinite
    if there is none."""
    first = float("inf")
    for pid in _pids():
        with suppress(OSError):  # it has just ended
            ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
            if ours and _HYDRA.match(Path(f"/proc/{pid}/comm").read_text()):
                first = min(first, _started_s(pid))
    return first


def _started_s(pid) -> float:
    """When a process was started, in seconds since boot; infinite if it has ended."""
    ticks = ticks_of(pid)
    return float("inf") if ticks is None else ticks / os.sysconf("SC_CLK_TCK")


def _maker_is_dead(name: str, seen) -> bool:
    """Whether the process that a folder is named after has ended. Its number may be another's now,
    which was started later."""
    found = _FOLDER.fullmatch(name)
    if found["ours"]:
        return str(ticks_of(found["ours"])) != found["ticks"]
    return _started_s(found["pid"]) > _born_s(seen) + _CLOCKS_S
