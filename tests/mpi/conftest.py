"""Run a program of ``programs/`` under the real mpiexec, in one of the situations every transport
must survive.

======  =============================================================  =============================
direct  nothing is set: one node                                       every peer is read in place
rma     the cases ask for ``transport="rma"``                          RMA through shared memory
mixed   ``MPIR_CVAR_NUM_CLIQUES=2``: two "nodes", ranks dealt in turn  in place and RMA in one run
nodes   as mixed, but ranks numbered node by node, as on a cluster     replicas that lie on one node
remote  ``MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self``: a node for each      RMA over TCP
        rank
======  =============================================================  =============================
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

collect_ignore = ["programs"]  # they start MPI when they are imported

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
SHARED_MEMORY = Path("/dev/shm")

#: What a situation adds to the environment; what is not empty only MPICH understands.
SITUATIONS = {
    "direct": {},
    "rma": {},
    "mixed": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "nodes": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "remote": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
}
#: What MPI makes in /dev/shm when it starts and unlinks when it ends in order; other runs of this
#: machine may be aborted at any time, so that nothing can be concluded from these. Nothing is
#: removed: a name may belong to someone else's run.
_START_UP = ("mpich_shm_", "sm_segment.")
#: Lets Open MPI start more ranks than cores, as root in a container, and without InfiniBand.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_osc": "^ucx",  # complains on stderr where there is no InfiniBand
}


@dataclass(frozen=True)
class Ended:
    """How a run under mpiexec ended, and what it left in /dev/shm, but for :data:`_START_UP`."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    left: set


class MpiRun:
    """Runs programs under mpiexec; see :meth:`__call__`."""

    def __init__(self, mpiexec: str, library: str, folder: Path):
        self._mpiexec, self._library, self._folder, self._files = mpiexec, library, folder, 0

    def __call__(self, n, script, *args, situation="direct", timeout=90):
        """What ``script`` answers (JSON on stdout) on ``n`` ranks.

        Fails the test if it does not end with 0 in time, writes anything to stderr (MPICH does, by
        the page, when a window is not freed), or leaves something in /dev/shm. An argument that is
        not a text goes through a JSON file.
        """
        ended = self.process(n, script, *args, situation=situation, timeout=timeout)
        assert ended.returncode == 0, (
            f"{script} on {n} ranks, {situation}: exit {ended.returncode}\n{ended.stderr[-6000:]}"
        )
        assert ended.stderr == "", (
            f"{script} on {n} ranks, {situation}: stderr is not empty\n{ended.stderr[-6000:]}"
        )
        assert ended.left == set()
        return json.loads(ended.stdout)

    def process(self, n, script, *args, situation="direct", timeout=90) -> Ended:
        """The run as it ended, well or not. Every process of it is gone when this returns."""
        if SITUATIONS[situation] and not self._library.startswith("MPICH"):
            pytest.skip(
                f"only MPICH can pretend to be several nodes; this is {self._library.split(',')[0]}"
            )
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MPIR_CVAR_", "UCX_"))
        }
        environment |= {
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}",
            "DRBENCH_TEST_SITUATION": situation,
        }
        environment |= SITUATIONS[situation] | (
            {} if self._library.startswith("MPICH") else _OPEN_MPI
        )
        command = [
            self._mpiexec,
            "-n",
            str(n),
            sys.executable,
            "-m",
            "mpi4py",
            str(PROGRAMS / script),
        ]
        command += [arg if isinstance(arg, str) else self._json_file(arg) for arg in args]
        before, start = _shared_memory_files(), time.monotonic()
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=self._folder,
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException as error:  # too late, pytest-timeout, Ctrl-C
            _kill_tree(process.pid)
            stdout, stderr = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            pytest.fail(
                f"{script} {' '.join(command[7:])} on {n} ranks, {situation}: no end in "
                f"{timeout} s; killed.\n"
                f"{stdout[-3000:]}\n{stderr[-6000:]}",
                pytrace=False,
            )
        seconds = time.monotonic() - start
        left = _abandoned(before)
        return Ended(
            process.returncode,
            stdout,
            stderr,
            seconds,
            {name for name in left if not name.startswith(_START_UP)},
        )

    def cases(self, n, cases, *options, situation="direct", timeout=90) -> list[dict]:
        """What ``programs/run_cases.py`` says of each case; in the situation rma they ask for that
        transport."""
        return self.cases_and_naps(n, cases, *options, situation=situation, timeout=timeout)[0]

    def cases_and_naps(
        self, n, cases, *options, situation="direct", timeout=90
    ) -> tuple[list[dict], dict]:
        """The same, and how often ranks slept before what (``--delays``)."""
        if situation == "rma":
            cases = [{"transport": "rma", **case} for case in cases]
        out = self(n, "run_cases.py", cases, *options, situation=situation, timeout=timeout)
        assert len(out["answers"]) == len(cases)
        return out["answers"], out["naps"]

    def _json_file(self, value) -> str:
        self._files += 1
        path = self._folder / f"{self._files}.json"
        path.write_text(json.dumps(value))
        return str(path)


def _kill_tree(pid: int) -> None:
    """Kill mpiexec and all below it: Hydra gives its proxies and every rank a process group of
    their own."""
    root = psutil.Process(pid)
    below = root.children(recursive=True)
    for process in [root, *below]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass  # it ended by itself meanwhile
    psutil.wait_procs(below, timeout=5)


def _shared_memory_files() -> set[str]:
    """Names in /dev/shm, none where there is no such place."""
    return set(os.listdir(SHARED_MEMORY)) if SHARED_MEMORY.is_dir() else set()


def _abandoned(before: set[str]) -> set[str]:
    """Names in /dev/shm that are new since ``before`` and that no living process holds: other runs
    may be going on."""
    left = set()
    for _ in range(4):
        left = _shared_memory_files() - before
        left -= _held(left)
        if not left:
            break
        time.sleep(0.1)  # made by someone else a moment ago, and not yet mapped
    return left


def _held(names: set[str]) -> set[str]:
    """Those of the names in /dev/shm that some process has mapped or open."""
    held = set()
    for process in Path("/proc").glob("[0-9]*") if names else ():
        try:
            text = (process / "maps").read_text()
            text += "\n".join(os.readlink(handle) for handle in (process / "fd").iterdir())
        except OSError:
            continue  # ended meanwhile, or not ours
        held |= {name for name in names if f"{SHARED_MEMORY}/{name}" in text}
    return held


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory) -> MpiRun:
    """``mpirun(n, script, *args, situation=...)``: the JSON that a program answers under
    mpiexec."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip(
            f"no mpiexec, neither beside {sys.executable} nor on PATH: install drbench[mpich], "
            "or load an MPI"
        )
    ask = (
        "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
        "print(MPI.Get_library_version())"
    )
    library = subprocess.run(
        [sys.executable, "-c", ask], text=True, capture_output=True, check=True, timeout=30
    ).stdout
    return MpiRun(mpiexec, library, tmp_path_factory.mktemp("mpi"))
