"""Start processes of tests, wait for them and find what they leave: the command line and the
programs under mpiexec."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")
#: Variable that marks every process of a test, and its descendants.
MARK = "DRBENCH_TEST_RUN"
#: Variables of an earlier launcher, or of a user's experiments.
STRANGE = tuple(
    "PMI_ PMIX_ OMPI_COMM_ MV2_COMM_ PALS_ SLURM_ MPIR_CVAR_ UCX_ OPENBLAS_ OMP_ DRBENCH_".split()
)
#: Lets Open MPI start more ranks than cores, as root in a container, and without a warning
#: about InfiniBand; without effect on other MPIs.
_OPEN_MPI = """OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_osc=^ucx
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"""
#: Lets waiting ranks of MPICH sleep for a moment instead of polling (there are more ranks than
#: cores, and polling takes half of the time of a small run), and the threads of OpenBLAS at once.
_GENTLY = "MPIR_CVAR_ENABLE_HEAVY_YIELD=1 OPENBLAS_THREAD_TIMEOUT=4"
_ADDED = dict(word.split("=") for word in f"{_OPEN_MPI} {_GENTLY} COLUMNS=100".split())
#: Files that MPI makes in /dev/shm when it starts and unlinks when it ends in order; other runs of
#: this machine may be aborted at any time, so these prove nothing. They are not removed: a name may
#: belong to another run.
_START_UP = ("mpich_shm_", "sm_segment.")
#: Files of tests in /dev/shm have the mark of their run: other runs do not count them.
_OF_A_RUN = re.compile(r"drbench-(?:fake-gpu|test)-([0-9a-f]{12})")


_CORES = len(os.sched_getaffinity(0))
#: Least multiple of its limit after which a command counts as hanging: only failures wait for that,
#: and on a shared machine the command may not have had its cores.
PATIENCE = 4


def read_terminal(terminal):
    """Yield what programs write to a terminal, given by its other end, until they have closed it:
    a single read may return only the first of several lines."""
    while True:
        try:
            text = os.read(terminal, 4096)
        except OSError:  # closed, and nothing is left
            return
        if not text:
            return
        yield text


@dataclass(frozen=True)
class Ended:
    """The result of a command. ``left`` are the processes that outlived it (killed since) and the
    unused names in /dev/shm, ``codes`` the ranks' exit codes."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float = 0.0
    left: tuple = ()
    codes: tuple = ()

    def json(self):
        """The printed JSON, after a check that the process succeeded, left nothing, and printed
        nothing on stderr (MPICH prints pages when a window is not freed)."""
        assert (self.returncode, self.stderr, self.left) == (0, "", ()), (
            f"exit {self.returncode}, left {self.left}\n{self.stdout[-3000:]}\n"
            f"{self.stderr[-6000:]}"
        )
        return json.loads(self.stdout)

    def refusal(self, code=2):
        """The one line on stderr of a refusal, after a check that nothing else was printed."""
        assert self.returncode == code, f"exit {self.returncode}\n{self.stdout}\n{self.stderr}"
        assert self.stdout == ""
        assert (
            self.stderr.startswith("drbench: ")
            and self.stderr.count("\n") == 1
            and self.stderr.endswith("\n")
        ), self.stderr
        assert len(self.stderr) < 400, "a line that nobody reads"
        return self.stderr


def clean_environ(**more) -> dict:
    """This environment without traces of launchers and of experiments; the checkout under test
    comes first."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(STRANGE)}
    return environ | _ADDED | {"PYTHONPATH": str(ROOT)} | more


def run_process(command, folder, env=None, timeout=30, during=None) -> Ended:
    """Run a command to its end; ``during(process)`` is called meanwhile. When this returns, its
    processes have ended and the memory of its fake GPUs is removed. Its limit is that of an idle
    machine (see :func:`slowness`)."""
    mark, before = uuid.uuid4().hex, shared_memory_names()
    start = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command],
        env=clean_environ(**(env or {}), **{MARK: mark}),
        cwd=folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        if during is not None:
            during(process)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            stdout, stderr = process.communicate(timeout=more_time(timeout))
    except BaseException as error:  # too late, pytest-timeout, Ctrl-C
        kill(marked(mark))
        stdout, stderr = process.communicate()
        _remove_fake_memory(mark)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        pytest.fail(
            f"no end in {timeout} s; killed: {' '.join(map(str, command))}\n{stdout[-3000:]}\n"
            f"{stderr[-6000:]}",
            pytrace=False,
        )
    seconds = time.monotonic() - start
    alive = wait_until_empty(lambda: marked(mark), tries=10)
    kill(alive)
    left = (*alive, *sorted(left_behind(before, mark)))
    _remove_fake_memory(mark)
    return Ended(process.returncode, stdout, stderr, seconds, left)


def slowness() -> float:
    """How many times longer a process takes than on an idle machine: the larger of this process's
    share of a core now, and of the processes per core in the last minute, when the judged process
    ran."""
    began, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.05:
        pass
    now, before = (time.perf_counter() - began) / 0.05, os.getloadavg()[0] / _CORES
    return max(1.0, now, before)


def more_time(seconds: float) -> float:
    """Seconds to wait in addition for a result that is late on a shared machine."""
    return seconds * (max(PATIENCE, slowness()) - 1)


def within(seconds: float, limit_s: float) -> bool:
    """Whether a time is below its limit, which is that of an idle machine, scaled by the load."""
    return seconds < limit_s or seconds < limit_s * slowness()


def wait_until(ready, seconds: float, process=None, why=lambda: "") -> None:
    """Wait until ``ready()`` holds. Fails after so many seconds of an idle machine, with the
    additional time of a shared one, or once ``process`` has ended; ``why()`` is the message."""
    start = time.monotonic()
    while not ready():
        spent = time.monotonic() - start
        late = spent > seconds and spent > seconds + more_time(seconds)
        ended = process is not None and process.poll() is not None
        assert not late and (not ended or ready()), why()
        time.sleep(0.02)


def wait_until_empty(what, tries=4):
    """The answer of ``what()`` once it is empty, or after ``tries`` tenths of a second."""
    left, pause = tries / 10, 0.005
    while (found := what()) and left > 0:
        time.sleep(pause)
        left, pause = left - pause, min(2 * pause, 0.1)
    return found


def marked(mark: str) -> list[int]:
    """Processes that were started, directly or not, with this mark in their environment."""
    found, want = [], f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                want in (path / "environ").read_bytes()
                and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                found.append(int(path.name))
        except OSError:
            continue  # ended meanwhile, or of another user
    return found


def kill(pids) -> None:
    """Kill processes of this run."""
    for pid in pids:
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            pass  # it ended by itself meanwhile


def _remove_fake_memory(mark: str) -> None:
    """Remove the memory of the fake GPUs (``fake_cuda.SharedRuntime``) of processes with this
    mark: killed processes leave it."""
    for path in SHARED_MEMORY.glob(f"drbench-fake-gpu-{mark[:12]}-*"):
        path.unlink(missing_ok=True)


def shared_memory_names() -> set[str]:
    """Names in /dev/shm, without those that MPI makes at its start; none without /dev/shm."""
    names = os.listdir(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else ()
    return {name for name in names if not name.startswith(_START_UP)}


def abandoned(before: set[str], mark: str) -> set[str]:
    """Names in /dev/shm that are new since ``before``, that no living process has mapped or open,
    and that have the mark of no other run: other runs may be active, or be ended by their tests
    just now."""
    others = lambda name: (of := _OF_A_RUN.match(name)) and not mark.startswith(of[1])
    names = {name for name in shared_memory_names() - before if not others(name)}
    held = set()
    for process in Path("/proc").glob("[0-9]*") if names else ():
        try:
            text = (process / "maps").read_text()
            text += "\n".join(os.readlink(handle) for handle in (process / "fd").iterdir())
        except OSError:
            continue  # ended meanwhile, or of another user
        held |= {name for name in names if f"{SHARED_MEMORY}/{name}" in text}
    return (names - held) & shared_memory_names()


def left_behind(before: set[str], mark: str) -> set[str]:
    """Names that stay :func:`abandoned` for a while once all processes of a run have ended. Those
    with its mark are returned at once, others after a wait."""
    others = lambda: {name for name in abandoned(before, mark) if not _OF_A_RUN.match(name)}
    return {name for name in abandoned(before, mark) if _OF_A_RUN.match(name)} | wait_until_empty(
        others, tries=20
    )


def find_mpiexec() -> str | None:
    """Path of the launcher that belongs to this Python's MPI."""
    adjacent = Path(sys.executable).with_name("mpiexec")
    return str(adjacent) if adjacent.exists() else shutil.which("mpiexec")


def find_mpi_library() -> tuple[str, str]:
    """(version text, path) of the MPI library that mpi4py loads."""
    ask = (
        "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI\n"
        "print(MPI.Get_library_version().split('\\n')[0])\n"
        "print(next(line.split()[-1] for line in open('/proc/self/maps') if '/libmpi' in line))"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask],
        text=True,
        capture_output=True,
        check=True,
        timeout=300,
        env=clean_environ(),
    )
    version, path = done.stdout.splitlines()
    return version, path
