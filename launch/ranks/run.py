"""What every rank does for ``drbench run``."""

from __future__ import annotations

import json
import os
import sys
import warnings

import mpi4py

# ruff: noqa: E402
# A library under another MPI's launcher aborts in MPI_Init: look first.
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True

from drbench.errors import EXIT_CODES, MissingError, UsageError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise MissingError(
        f"no MPI library can be loaded ({' '.join(str(error).split())}). Install one with: pip "
        "install 'drbench[mpich]', "
        "or point MPI4PY_LIBMPI at your system's libmpi."
    ) from None

from drbench.measure.record import RecordError, append_csv, read_csv
from launch.cases.case import Case
from launch.host.mpi import STRANGERS, launched, mismatch_message, started_by_us

from .case import run_case

__all__ = ["run_here", "world"]


def run_here(values: dict, partitions_of, csv_path: str | None, as_json: bool) -> int:
    """Run one case on the ranks this process belongs to; the exit code, the same on every rank."""
    comm = world()
    case = Case(**values | partitions_of(values, comm.size))
    _agree(comm, lambda: csv_path and _check_csv(csv_path))
    if case.backend == "cupy":
        from drbench.device.gpu.cuda import require_gpu

        require_gpu()
    record = run_case(case, comm)
    _agree(comm, lambda: csv_path and append_csv(csv_path, record))
    if comm.rank == 0:
        if as_json:
            print(json.dumps(record.to_json_dict()), flush=True)
        else:
            from launch.host.show import show_record

            show_record(record)
    return EXIT_CODES[record.status]


def world() -> MPI.Comm:
    """All ranks, unless launcher and library belong to different MPIs.

    MPI is started with MPI_THREAD_MULTIPLE: below that MPICH's waits never yield the core, and a
    barrier of four ranks on two cores takes 10 ms instead of 20 us.
    """
    library, here = (
        " ".join(MPI.Get_library_version().split("\n")[0].split(",")[0].split()),
        launched(),
    )
    strangers = (
        here is not None and here.variable.startswith("OMPI_") and library.startswith("MPICH")
    )
    if not strangers and not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if strangers or (here is not None and here.size > 1 and MPI.COMM_WORLD.size == 1):
        raise MissingError(mismatch_message(here, library))
    if here is None and started_by_us() and MPI.COMM_WORLD.size == 1 and started_by_us() > 1:
        sys.exit(STRANGERS)  # nobody knows which of them is the first: who started them says it
    return MPI.COMM_WORLD


def _agree(comm: MPI.Comm, action) -> None:
    """Do something on rank 0; if it fails there every rank raises the same error."""
    message = None
    if comm.rank == 0:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                action()
            for warning in warned:
                sys.stderr.write(f"drbench: {warning.message}\n")
        except (OSError, RecordError) as error:
            message = (
                f"{type(error).__name__}: {error}" if isinstance(error, OSError) else str(error)
            )
    message = comm.bcast(message)
    if message is not None:
        raise UsageError(f"--csv: {message}")


def _check_csv(path: str) -> None:
    """The file can be appended to, and holds records if it holds anything."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"no folder {folder}; make it first")
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileExistsError(f"{path} is not a file that can be appended to; use another name")
    if os.path.exists(path) and os.path.getsize(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a torn last line; said when it is cut off
            read_csv(path)
