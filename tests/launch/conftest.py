"""Start the command line the three ways a user does: in one process, under mpiexec, and (fast) by a
call to ``main``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from launch.commands.cli import main

ROOT = Path(__file__).parents[2]
#: Marks every process that a test started, however far down, so that none is overlooked.
_MARK = "DRBENCH_TEST_RUN"
#: What an earlier launcher, or a user's experiments, may have left in the environment.
_STRANGE = (
    "PMI_",
    "PMIX_",
    "OMPI_COMM_",
    "MV2_COMM_",
    "PALS_",
    "SLURM_",
    "MPIR_CVAR_",
    "UCX_",
    "OPENBLAS_",
    "OMP_",
    "DRBENCH_",
)
#: Lets Open MPI start more ranks than cores, and as root in a container; nothing to others.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
#: Runs a command and leaves its exit code in a file named after the rank.
_NOTE_CODE = (
    '"$@"; code=$?; echo $code > "$DRBENCH_TEST_CODES/${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; exit '
    "$code"
)


@dataclass(frozen=True)
class Ended:
    """How a command ended. ``left`` are the processes that outlived it (killed since), ``codes``
    the ranks' exit codes."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float = 0.0
    left: tuple = ()
    codes: tuple = ()

    def json(self):
        """What it printed as JSON, once it is sure that all went well and nothing was said on
        stderr."""
        assert (self.returncode, self.stderr) == (0, ""), (
            f"exit {self.returncode}\n{self.stdout}\n{self.stderr}"
        )
        return json.loads(self.stdout)

    def refusal(self, code=2):
        """The one line on stderr with which it refused, once it is sure that this is all it
        said."""
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
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_STRANGE)}
    return environ | _OPEN_MPI | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | more


def run_process(command, folder, env=None, timeout=30, during=None) -> Ended:
    """Run a command to its end; ``during(process)`` is called meanwhile. Nothing of it is alive
    when this returns."""
    mark = uuid.uuid4().hex
    environ = clean_environ(**(env or {}), **{_MARK: mark})
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        env=environ,
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
        stdout, stderr = process.communicate(timeout=timeout)
    except BaseException as error:
        _kill(marked(mark))
        stdout, stderr = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        pytest.fail(
            f"no end in {timeout} s; killed: {' '.join(map(str, command))}\n{stdout[-2000:]}\n"
            f"{stderr[-4000:]}",
            pytrace=False,
        )
    seconds = time.monotonic() - start
    left = _still_alive(mark)
    _kill(left)
    return Ended(process.returncode, stdout, stderr, seconds, tuple(left))


def marked(mark: str) -> list[int]:
    """Processes that were started, directly or not, with this mark in their environment."""
    found, want = [], f"{_MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (
                want in (path / "environ").read_bytes()
                and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            ):
                found.append(int(path.name))
        except OSError:
            continue  # ended meanwhile, or not ours
    return found


def _still_alive(mark: str) -> list[int]:
    """The same once those that are just ending have had a second for it."""
    for _ in range(10):
        if not marked(mark):
            return []
        time.sleep(0.1)
    return marked(mark)


def _kill(pids) -> None:
    for pid in pids:
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            pass  # it ended by itself meanwhile


@pytest.fixture(scope="session")
def mpiexec() -> str:
    """Path of the launcher that belongs to this Python's MPI."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip(
            f"no mpiexec, neither beside {sys.executable} nor on PATH: install drbench[mpich], "
            "or load an MPI"
        )
    return found


@pytest.fixture(scope="session")
def library() -> tuple[str, str]:
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
        timeout=30,
        env=clean_environ(),
    )
    version, path = done.stdout.splitlines()
    return version, path


@pytest.fixture
def mpich(library):
    """Skips the test where the library is not MPICH: others add words of their own to stderr, and
    have other switches."""
    if not library[0].startswith("MPICH"):
        pytest.skip(f"needs MPICH; this is {library[0]}")


@pytest.fixture(scope="session")
def environ():
    """``environ(NAME=value, ...)``: this environment without traces of launchers and of
    experiments."""
    return clean_environ


@pytest.fixture
def process(tmp_path):
    """``process(*command, env=, timeout=, during=)``: any command, in an empty folder."""
    return lambda *command, **keywords: run_process(
        [str(word) for word in command], tmp_path, **keywords
    )


@pytest.fixture
def drbench(process):
    """``drbench(*arguments, env=, timeout=, during=)``: the command line as a process of its
    own."""
    return lambda *arguments, **keywords: process(
        sys.executable, "-m", "drbench", *arguments, **keywords
    )


@pytest.fixture
def under_mpiexec(process, tmp_path, mpiexec):
    """``under_mpiexec(n, *arguments, env=, ...)``: the command on n ranks, with each rank's exit
    code."""

    def start(n, *arguments, env=None, **keywords) -> Ended:
        codes = tmp_path / f"codes-{uuid.uuid4().hex}"
        codes.mkdir()
        ended = process(
            mpiexec,
            "-n",
            n,
            "sh",
            "-c",
            _NOTE_CODE,
            "sh",
            sys.executable,
            "-m",
            "drbench",
            *arguments,
            env={"DRBENCH_TEST_CODES": str(codes), **(env or {})},
            **keywords,
        )
        found = {int(path.name): int(path.read_text()) for path in codes.iterdir()}
        return replace(ended, codes=tuple(found.get(rank) for rank in range(n)))

    return start


@pytest.fixture
def say(capsys, monkeypatch):
    """``say(*arguments)``: the command line called in this process. Only for what does not start
    MPI here."""
    for name in list(os.environ):
        if name.startswith(_STRANGE):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments) -> Ended:
        capsys.readouterr()
        arguments = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["drbench", *arguments])
        code = main(arguments)
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def fault(tmp_path_factory):
    """``fault(name)``: environment in which that goes wrong on the ranks; see ``faults.py``."""
    folder = tmp_path_factory.mktemp("faults")
    shutil.copy(ROOT / "tests" / "shared" / "faults.py", folder / "sitecustomize.py")
    return lambda name: {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "DRBENCH_TEST_FAULT": name}
