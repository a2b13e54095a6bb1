"""Whether MPI reads device memory: its own answer is found, and used only after a test."""

import subprocess
import sys

import pytest
from starting import clean_environ

from launch.ranks import gpu_awareness

ASK = "from launch.ranks.gpu_awareness import mpi_reports; print(*mpi_reports())"


@pytest.mark.mpi
def test_mpi_is_asked_although_its_library_is_loaded_for_mpi4py_alone():
    """An MPI of PyPI is built without CUDA, and reports it."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        text=True,
        env=clean_environ(),
        timeout=300,
    )
    assert done.stdout == "False MPIX_Query_cuda_support returns no\n", done.stderr


@pytest.mark.parametrize(
    "program, described",
    [
        ("", (True, "in a self-test")),
        ("import os; os.abort()", (False, "ended with -6")),
        ("raise SystemExit('wrong bytes')", (False, "ended with 1 (wrong bytes)")),
    ],
)
def test_an_mpi_that_reports_cuda_support_is_tried_in_a_process_that_may_crash(program, described):
    able, why = gpu_awareness.try_it([sys.executable, "-c", program])
    assert (able, described[1] in why) == (described[0], True), why
