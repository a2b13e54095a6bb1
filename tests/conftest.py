"""What tests of commands and of ranks need of this machine. ``shared`` is on the path
(pyproject.toml): what its modules hold is imported by name."""

import os
import sys

import pytest
from starting import find_mpi_library, find_mpiexec

collect_ignore = ["shared"]

# What tests start finds its modules compiled, which is half of a rank's start; containers often
# forbid it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: Folders of tests that start processes, which load the cores and look at what others left behind.
TOGETHER = ("tests/mpi/", "tests/launch/", "tests/test_install.py")
#: Files among them that start none.
APART = (
    *("tests/launch/studies/test_claims", "tests/launch/studies/test_compare_rules"),
    *("tests/launch/studies/test_llm_study", "tests/launch/studies/test_meshslice_claims"),
    *("tests/launch/studies/test_peer_tables", "tests/launch/studies/test_verdicts"),
    *("tests/launch/models/test_llm", "tests/launch/models/test_tune"),
    *("tests/launch/commands/test_help", "tests/launch/commands/test_option_values"),
    *("tests/launch/commands/test_results", "tests/launch/sweeps/test_expansion"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (``make test``) one of them runs all tests that start processes; the
    files of the others are dealt to whoever is free."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            ranks = nodeid.startswith(TOGETHER) and not nodeid.startswith(APART)
            return "ranks" if ranks else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def mpiexec() -> str:
    """Path of the launcher that belongs to this Python's MPI."""
    found = find_mpiexec()
    if found is None:
        pytest.skip(
            f"no mpiexec, neither beside {sys.executable} nor on PATH: install drbench[mpich], "
            "or load an MPI"
        )
    return found


@pytest.fixture(scope="session")
def mpi_library() -> tuple[str, str]:
    """(version text, path) of the MPI library that mpi4py loads."""
    return find_mpi_library()
