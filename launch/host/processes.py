"""Starting and ending what runs the ranks, and clearing up what is left: processes, and files under
/dev/shm. Only ever our own.

Our processes carry a token in their environment, however far down and whoever adopted them. A
shared-memory file is ours if one of them has it open or mapped when we end it. MPI names such files
only until all ranks have opened them, so a rank that someone else kills leaves at most those of
that moment; for these a file is taken for ours if it has the name, the owner and a time of birth
while our ranks ran, and *no* process at all has it open or mapped.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from drbench.common import SHARED_MEMORY
from drbench.errors import CaseTimeout

#: Environment variable that marks the processes of one start of ranks.
TOKEN = "DRBENCH_RANKS_OF"
#: What MPICH, UCX, Open MPI and our locks call their files until all ranks have opened them.
_PREFIXES = (
    "mpich_shm_",
    "mpich_shar_tmp",
    "ucx_shm_posix_",
    "sm_segment.",
    "vader_segment.",
    "drbench-locks-",
)
#: What variables begin with by which launchers tell a process that it is one of many.
_LAUNCHERS = ("PMI", "OMPI_", "SLURM_", "HYDRA", "MPI_", "MPIEXEC_", "PALS_", "FLUX_")
#: How long abandoned files are waited for: their last holder may be just ending.
_PATIENCE_S = 1.0
#: How long a program that was asked to end may take.
GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1


class Started:
    """A program, such as a launcher, and all that it starts in turn. It ends when this process
    ends, however that comes (Linux).

    Parameters
    ----------
    command : list of str
    environ : mapping
    announce : callable
        Called with the token of the processes and the time, before there are any: whoever comes
        after a crash must know of them.
    **pipes
        As for :class:`subprocess.Popen`; standard input is empty otherwise.
    """

    def __init__(
        self, command, environ, announce: Callable[[str, float], None] = lambda *_: None, **pipes
    ):
        self.token, self.since, parent = uuid.uuid4().hex, time.time(), os.getpid()
        announce(self.token, self.since)
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env={**environ, TOKEN: self.token},
            start_new_session=True,
            preexec_fn=lambda: _end_with(parent),
            **{"stdin": subprocess.DEVNULL, **pipes},
        )

    def stop(self, grace_s: float, at_once: bool = False) -> None:
        """End all of it, asked first unless ``at_once`` (for those that are certain to be on this
        host), and remove what it leaves."""
        code = self.process.poll()
        killed_here, orderly = at_once and code is None, code == 0
        files = set() if orderly else held_files(family(self.token))
        if killed_here:  # stopped before they are killed, so that nothing of theirs is overlooked
            files |= end_family(self.token)
        for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, None)):
            if self.process.poll() is None:
                with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                    os.killpg(self.process.pid, number)
                    self.process.wait(seconds)
        remove_files(files | end_family(self.token, patience_s=min(grace_s, 0.5)))
        if not orderly:
            remove_abandoned(self.since, time.time(), 0.1 if killed_here else _PATIENCE_S)


@contextmanager
def interruptible() -> Iterator[None]:
    """Whoever ends this process means what it has started: SIGTERM and SIGHUP interrupt it, as
    Ctrl-C does; but not a hangup that it was told to ignore (nohup)."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def running(who: str, command, environ=os.environ, **pipes) -> Iterator[subprocess.Popen]:
    """A program that is waited for in the block, and ended with all it started if that is left
    early.

    Raises
    ------
    CaseTimeout
        If waiting for it took longer than it may.
    """
    with interruptible():
        started = Started(command, environ, **pipes)
        try:
            yield started.process
        except BaseException as error:
            started.stop(GRACE_S)
            if isinstance(error, subprocess.TimeoutExpired):
                raise CaseTimeout(
                    f"{who} did not end within {error.timeout:g} s, and had to be killed. Use a "
                    "larger --timeout, or a smaller problem."
                ) from None
            raise


def run_alone(command: list[str], seconds: float) -> subprocess.CompletedProcess | None:
    """Run a program from a rank as no rank, whatever crashes there; None if it did not end in
    time."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
    environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        return subprocess.run(command, env=environ, timeout=seconds, **pipes)
    except subprocess.TimeoutExpired:
        return None


def _end_with(parent: int) -> None:
    """In a program, before it becomes one: end when its parent ends, however that comes (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before that was said
        os._exit(1)


def family(token: str) -> list[int]:
    """Processes that carry this token, those that have ended but were not waited for left out."""
    found, want = [], f"{TOKEN}={token}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    ours = want in file.read().split(b"\0")
                if ours and psutil.Process(int(entry.name)).status() != psutil.STATUS_ZOMBIE:
                    found.append(int(entry.name))
            except (OSError, psutil.Error):
                continue  # it has just ended, or is someone else's
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
            while any(map(_open, members)):  # an end takes a moment, and holds files until then
                time.sleep(0.005)
        time.sleep(0.01)
    return files


def _open(pid: int) -> bool:
    """Whether a process still may have files open."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself meanwhile
        os.kill(pid, number)


def held_files(pids=None) -> set[str]:
    """Files under /dev/shm that these processes (all there are, by default) have open or mapped."""
    found, start = set(), f"{SHARED_MEMORY}/"
    for pid in psutil.pids() if pids is None else pids:
        try:
            paths = [
                line.split(None, 5)[-1].strip()
                for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                if start in line
            ]
            paths += [os.readlink(handle) for handle in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue  # it has just ended, or is someone else's
        found |= {
            path for path in paths if path.startswith(start) and not path.endswith("(deleted)")
        }
    return found


def remove_files(paths) -> None:
    """Remove files that were seen in the hands of our processes, once those have ended and nobody
    else holds them."""
    ours = {path for path in paths if os.path.basename(path).startswith(_PREFIXES)}
    for path in ours - held_files() if ours else ():
        _unlink(path)


def remove_abandoned(since: float, until: float, patience_s: float = _PATIENCE_S) -> None:
    """Remove files of MPI that were born while our ranks ran and that no process holds.

    Parameters
    ----------
    since, until : float
        When mpiexec was started, and when its last rank ended or later (s since the epoch).
    """
    deadline = time.monotonic() + patience_s
    while True:
        found = _born(since, until)
        held = held_files() if found else set()
        for path in found - held:
            _unlink(path)
        if not found & held or time.monotonic() >= deadline:
            return
        time.sleep(0.03)  # held by a rank that is just ending, or by someone else's run


def _born(since: float, until: float) -> set[str]:
    """Files of MPI, or our locks, of this user and time."""
    found = set()
    for entry in os.scandir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else ():
        if entry.name.startswith(_PREFIXES):
            try:
                stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.st_uid == os.getuid() and since - 0.05 <= stat.st_mtime <= until + 0.05:
                found.add(entry.path)
    return found


def _unlink(path: str) -> None:
    with suppress(OSError):  # gone already
        os.unlink(path)
