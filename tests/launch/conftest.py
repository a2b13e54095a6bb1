"""Start the command line in the three ways of users: in one process, under mpiexec, and (fast) by a
call to ``main``."""

import json
import os
import sys
import uuid
from dataclasses import replace

import pytest
from starting import ROOT, STRANGE, Ended, clean_environ, run_process

from drbench.launch.commands.cli import main

#: Runs a command and writes its exit code to a file named after the rank.
_NOTE_CODE = (
    '"$@"; code=$?; echo $code > "$DRBENCH_TEST_CODES/${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"; '
    # by the same signal: of 120 ranks that crashed inside an orderly shell, Hydra overlooked three
    "[ $code -gt 130 ] && kill -$((code - 128)) $$; exit $code"
)


@pytest.fixture(scope="session")
def mpich(mpi_library):
    """Skips the test where the library is not MPICH: others add their own text to stderr, and
    have other options."""
    if not mpi_library[0].startswith("MPICH"):
        pytest.skip(f"needs MPICH; this is {mpi_library[0]}")


@pytest.fixture(scope="session")
def environ():
    """``environ(NAME=value, ...)``: this environment without traces of launchers and of
    experiments."""
    return clean_environ


@pytest.fixture
def process(tmp_path):
    """``process(*command, env=, timeout=, during=)``: any command, in an empty folder."""
    return lambda *command, **keywords: run_process(command, tmp_path, **keywords)


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


@pytest.fixture(scope="module")
def lines_on_ranks(mpiexec, tmp_path_factory):
    """``lines_on_ranks(n, lines, folder)``: results of many command lines, a dict by name, on n
    ranks that start once. For results that depend only on the line."""
    fresh = tmp_path_factory.mktemp("lines")

    def start(n, lines: dict, folder=fresh) -> dict[str, Ended]:
        path = folder / f"{uuid.uuid4().hex}.json"
        path.write_text(json.dumps([[str(word) for word in words] for words in lines.values()]))
        program = ROOT / "tests" / "shared" / "many_lines.py"
        command = [mpiexec, "-n", n, sys.executable, program, path]
        answers = run_process(command, folder, timeout=60).json()
        return {name: Ended(*each) for name, each in zip(lines, answers, strict=True)}

    return start


@pytest.fixture
def files_of_a_user(tmp_path):
    """The folder of ``process``, with files that have the names of modules; they print IMPORTED and
    raise if they are imported."""
    text = 'import os\nos.write(2, b"IMPORTED")\nraise SystemExit("a file of the user")\n'
    for name in ("drbench", "partitions", "algorithms", "launch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    modules = "plots", "click", "numpy", "statistics", "rich", "mpi4py", "threadpoolctl", "signal"
    for name in modules:
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def run_cli(capsys, monkeypatch):
    """``run_cli(*arguments)``: the command line called in this process. Only for commands that do
    not start MPI here."""
    for name in list(os.environ):
        if name.startswith(STRANGE):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments) -> Ended:
        capsys.readouterr()
        arguments = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["drbench", *arguments])
        code = main(arguments)
        return Ended(code, *capsys.readouterr())

    return call
