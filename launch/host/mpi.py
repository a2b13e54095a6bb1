"""Start ranks, and find out how this process was started. Never imports mpi4py.MPI."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import TextIO

from drbench.errors import EXIT_CODES, CaseFailed, DrbenchError, MissingError, OutOfMemory
from drbench.host.launcher import (
    OURS,
    SHARED_MEMORY,
    Launched,
    launched,
    mismatch_message,
    shared_memory_free,
    started_by_us,
)

from .processes import running
from .python import PYTHON

#: Exit code of such ranks if each sees only itself.
STRANGERS = 77
#: Text of a launcher and its ranks.
_PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
_PIPES |= {"errors": "backslashreplace"}
#: Seconds for the last output of a launcher that has ended.
_PASSED_ON_S = 2.0


def find_mpiexec() -> str:
    """The mpiexec of this Python's MPI: the one installed next to it, else the one on PATH.

    Raises
    ------
    MissingError
    """
    chosen = os.environ.get("MPI4PY_LIBMPI")
    if not chosen:  # a chosen library has its launcher on PATH
        sibling = Path(sys.executable).parent / "mpiexec"
        if sibling.exists():
            return str(sibling)
    names = ["mpiexec", "mpirun"]
    if "libmpich" in os.path.realpath(chosen or ""):  # Debian's mpiexec may be Open MPI's
        names.insert(0, "mpiexec.mpich")
    path = next(filter(None, map(shutil.which, names)), None)
    if path:
        return path
    if chosen:
        raise MissingError(
            f"no mpiexec on PATH belongs to MPI4PY_LIBMPI={chosen}. Put that MPI's on "
            "PATH; or unset MPI4PY_LIBMPI and pip install '.[mpich]' from a checkout."
        )
    raise MissingError(
        "no mpiexec next to this Python nor on PATH. Install one (from a checkout: pip install "
        "'.[mpich]'), or load your system's MPI."
    )


def mpiexec_command(ranks: int) -> list[str]:
    """The launcher and its arguments, without the program."""
    mpiexec = find_mpiexec()
    command = [mpiexec, "-n", str(ranks)]
    version = subprocess.run(
        [mpiexec, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stdout
    if any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE")):
        command += ["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        if not os.path.isdir(
            "/sys/class/infiniband"
        ):  # without its devices the UCX windows fail over and print pages
            command += ["--mca", "osc", "^ucx"]
    return command


def run_ranks(ranks: int, arguments: list[str], timeout: float | None = None, environ=None) -> int:
    """Run ``python -m drbench arguments`` on ``ranks`` ranks, and return their common exit code.

    Raises
    ------
    CaseTimeout
        If the ranks did not end within ``timeout`` seconds; they have been killed.
    """
    command = [*mpiexec_command(ranks), *PYTHON, "-m", "drbench", *arguments]
    environ = dict(os.environ if environ is None else environ)
    environ[OURS] = str(ranks)
    if sys.stdout.isatty():
        environ.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    lost: list[DrbenchError] = []
    with running(f"the {ranks} ranks", command, environ, **_PIPES) as process:
        copies = [
            Thread(target=_copy, args=(*pipe, lost), daemon=True)
            for pipe in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        ]
        for copy in copies:
            copy.start()
        code = process.wait(timeout)
        for copy in copies:
            copy.join(_PASSED_ON_S)
    if lost:
        raise lost[0]
    if code == STRANGERS:
        raise MissingError(mismatch_message(Launched(ranks, 0, f"{command[0]} -n"), "of mpi4py"))
    if code not in EXIT_CODES.values():
        free, text = shared_memory_free(), f"the launcher ended with {code}: a rank crashed or was"
        if free is not None and free < ranks << 22:
            raise OutOfMemory(
                f"{text} killed, and {SHARED_MEMORY} has only {free >> 10} KiB free. Enlarge it "
                "(containers: --shm-size=8g), or remove what fills it."
            )
        raise CaseFailed(f"{text} killed. See its output above.")
    return code


def _copy(lines: Iterable[str], stream: TextIO, lost: list) -> None:
    """Copy output of a launcher; where that cannot be written, ranks still write their files."""
    for line in lines:
        try:
            stream.write(line)
            stream.flush()
        except DrbenchError as error:
            lost.append(error)


def is_rank() -> bool:
    """Whether this process is one of several ranks, or was started by a launcher."""
    return bool(launched() or started_by_us())
