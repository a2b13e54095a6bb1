"""What tests of commands and of ranks need of this machine. ``shared`` is on the path
(pyproject.toml): what its modules hold is imported by name."""

import sys

import pytest
from starting import find_mpi_library, find_mpiexec

collect_ignore = ["shared"]


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
