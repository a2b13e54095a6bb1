"""Start a program that runs ranks, and end it with all its processes, however this process ends."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from drbench.errors import CaseTimeout
from drbench.host.launcher import in_slurm_step

from .leftovers import TOKEN, end_family, family, list_used_files, new_token, remove_files
from .python import PYTHON, importable

#: Prefixes of the variables by which launchers identify ranks.
_LAUNCHERS = ("PMI", "OMPI_", "SLURM_", "HYDRA", "MPI_", "MPIEXEC_", "PALS_", "FLUX_")
#: Seconds that a program has to end after the signal.
GRACE_S = 5.0
#: Seconds that a test in a separate process may take.
_ALONE_S = 60
#: Hydra, Intel MPI, Open MPI 4 and 5: ranks on this host, without asking Slurm.
_HERE = {
    "HYDRA_LAUNCHER": "fork",
    "HYDRA_RMK": "user",
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
    "I_MPI_HYDRA_RMK": "user",
    "OMPI_MCA_ras": "^slurm",
    "OMPI_MCA_plm": "isolated",
    "PRTE_MCA_ras": "^slurm",
    "PRTE_MCA_plm": "ssh",
}
_PR_SET_PDEATHSIG = 1


class Started:
    """A program, such as a launcher, and all processes that it starts. It ends when this process
    ends for any reason (Linux): the kernel signals the program, and a guard
    (:mod:`drbench.launch.host.guard`) ends the rest a little later.

    Parameters
    ----------
    command : list of str
    environ : mapping
    **pipes
        As for :class:`subprocess.Popen`; standard input is empty otherwise.
    """

    def __init__(self, command, environ, **pipes):
        self.token, self._since, parent = new_token(), time.time(), os.getpid()
        self._guard = _guard(self.token, self._since)
        try:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env={**on_this_host(environ), **importable(environ), TOKEN: self.token},
                start_new_session=True,
                preexec_fn=lambda: _end_with(parent),
                **{"stdin": subprocess.DEVNULL, **pipes},
            )
        except OSError:  # there is no such program
            _dismiss(self._guard)
            raise

    def stop(self, grace_s: float, at_once: bool = False) -> None:
        """End all processes, with a signal first unless ``at_once`` (for processes known to be on
        this host), and remove their leftovers. May be called again after an interruption."""
        code = self.process.poll()
        orderly = code == 0
        files = set() if orderly else list_used_files(family(self.token))
        if at_once and code is None:
            # stopped before they are killed, so that none of their files is missed
            files |= end_family(self.token)
        for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, None)):
            if self.process.poll() is None:
                with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                    os.killpg(self.process.pid, number)
                    self.process.wait(seconds)
        files |= end_family(self.token, patience_s=min(grace_s, 0.5))
        if not orderly:
            remove_files(files, self._since)
        _dismiss(self._guard)


def on_this_host(environ) -> dict[str, str]:
    """Variables that make mpiexec start ranks on this host in a Slurm job. Otherwise it would
    request a step from Slurm, which waits for ever inside another step. Empty in an allocation of
    several nodes outside a step: there mpiexec may start ranks on all of them.

    Examples
    --------
    >>> on_this_host({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"})["HYDRA_LAUNCHER"]
    'fork'
    >>> on_this_host({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}), on_this_host({})
    ({}, {})
    """
    if "SLURM_JOB_ID" not in environ:
        return {}
    if not in_slurm_step(environ) and environ.get("SLURM_JOB_NUM_NODES", "1") != "1":
        return {}
    return _HERE


def _guard(token: str, since: float) -> subprocess.Popen:
    """Start the guard process, which may outlive this one by a moment: see
    :mod:`drbench.launch.host.guard`."""
    program = os.path.join(os.path.dirname(__file__), "guard.py")
    environ = {name: value for name, value in os.environ.items() if name != TOKEN}
    return subprocess.Popen(
        [sys.executable, "-IS", program, token, str(since)],
        env=environ,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _dismiss(guard: subprocess.Popen) -> None:
    """End the guard: nothing is left to guard."""
    with suppress(OSError):  # someone has killed it
        guard.communicate(b".")


class _Interrupt:
    """A signal handler: the first signal interrupts, like Ctrl-C. Later ones have no effect, so
    that the started processes can be ended."""

    def __init__(self):
        self._happened = False

    def __call__(self, number, frame) -> None:
        if not self._happened:
            self._happened = True
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """A context in which Ctrl-C, SIGTERM and SIGHUP interrupt this process once, so that it ends
    its started processes; ignored signals (nohup) remain ignored."""
    handler, before = _Interrupt(), {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        known = signal.getsignal(number)
        if known is not signal.SIG_IGN and not isinstance(known, _Interrupt):
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


#: Variables of resource managers and MPICH with the hosts for ranks.
_HOSTS = (
    "PBS_NODEFILE LSB_HOSTS LSB_MCPU_HOSTS LSB_DJOB_HOSTFILE PE_HOSTFILE COBALT_NODEFILE "
    "OAR_NODEFILE HYDRA_HOST_FILE"
).split()


@contextmanager
def running(who: str, command, environ=os.environ, **pipes) -> Iterator[subprocess.Popen]:
    """A context with a running program, which is ended with all its processes if the context is
    left early; its leftovers are removed.

    Raises
    ------
    CaseTimeout
        If it did not end within the time limit.
    """
    with interruptible():
        started = Started(command, environ, **pipes)
        try:
            yield started.process
        except subprocess.TimeoutExpired as error:
            raise CaseTimeout(
                f"{who} did not end within {error.timeout:g} s, and had to be killed. Use a "
                "larger --timeout, or a smaller problem."
            ) from None
        finally:
            # on a signal a launcher would print a page of messages
            started.stop(GRACE_S, at_once=_stays_here(environ))


def _stays_here(environ) -> bool:
    """Whether processes started here certainly run on this host: no resource manager has given this
    process other hosts that a launcher would find.

    Examples
    --------
    >>> _stays_here({}), _stays_here({"PBS_NODEFILE": "/x"}), _stays_here({"SLURM_JOB_ID": "7"})
    (True, False, True)
    """
    if any(name in environ for name in _HOSTS):
        return False
    return "SLURM_JOB_ID" not in environ or bool(on_this_host(environ))


def run_alone(*words: str) -> tuple[str, str]:
    """Run Python with these arguments from a rank, in a process that is not a rank and may crash;
    return its output, and why it failed (empty if it did not)."""
    environ = {
        name: value
        for name, value in importable(os.environ).items()
        if not name.startswith(_LAUNCHERS)
    }
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        done = subprocess.run([*PYTHON, *words], env=environ, timeout=_ALONE_S, **pipes)
    except subprocess.TimeoutExpired:
        return "", f"did not end within {_ALONE_S} s"
    failure = f"ended with {done.returncode} ({last_line(done.stderr)})"
    return done.stdout, failure if done.returncode else ""


def last_line(text: str) -> str:
    """The last line of an output, cut where it is long."""
    return (text.strip().splitlines() or ["nothing"])[-1][:200]


def _end_with(parent: int) -> None:
    """Called in the new process: end when the parent ends for any reason (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)
