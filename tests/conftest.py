"""What tests of commands and of ranks need of this machine. ``shared`` is on the path
(pyproject.toml): what its modules hold is imported by name."""

import sys

import pytest
from starting import find_mpi_library, find_mpiexec

collect_ignore = ["shared"]


#: Tests that start processes, which load the cores, or look at what others left on this machine.
TOGETHER = (
    "mpi/",
    "launch/ranks/",
    "launch/host/",
    "launch/sweeps/",
    "launch/commands/test_doctor",
)
#: And those of a folder that ask for one of these, or bear the mark ``mpi``.
STARTERS = {"process", "mpiexec"}


def _starts_processes(item) -> bool:
    path = item.nodeid.removeprefix("tests/")
    if path.startswith("launch/") and not path.startswith(TOGETHER):
        return item.get_closest_marker("mpi") is not None or not STARTERS.isdisjoint(
            item.fixturenames
        )
    return path.startswith((*TOGETHER, "test_install.py"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """With several workers (``make test``, ``--dist loadgroup``) one of them runs all tests that
    start processes; the files of the others are dealt to whoever is free."""
    for item in items:
        if hasattr(config, "workerinput") and _starts_processes(item):
            item.add_marker(pytest.mark.xdist_group("ranks"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "ranks" if nodeid.endswith("@ranks") else super()._split_scope(nodeid)

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
