"""What tests of commands and of ranks need of this machine. ``shared`` is on the path
(pyproject.toml): what its modules hold is imported by name."""

import os
import random
import shutil
import signal
import sys

import pytest
from starting import PATIENCE, ROOT, find_mpi_library, find_mpiexec

collect_ignore = ["shared"]

# What tests start finds its modules compiled, which is half of a rank's start; containers often
# forbid it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control makes what it starts in the background deaf to Ctrl-C, and that is
# inherited by whatever tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders of tests that start processes, which load the cores and look at what others left behind.
PROCESSES = ("tests/mpi/", "tests/launch/", "tests/docs/test_first_hour", "tests/test_install.py")
#: Files among them that start none, or hardly any.
APART = (
    *("tests/launch/papers/", "tests/launch/studies/", "tests/launch/models/test_tune"),
    "tests/launch/commands/test_help",
    *("tests/launch/commands/test_option_values", "tests/launch/commands/test_results"),
    "tests/launch/sweeps/test_expansion",
)
#: Those that end processes, or look at the clock, come before the other workers help.
EARLY = (
    *("tests/launch/host/", "tests/launch/ranks/", "tests/launch/sweeps/", "tests/docs/"),
    *("tests/mpi/test_a_", "tests/mpi/test_slow_and_late", "tests/mpi/test_nothing_is_left"),
    "tests/launch/commands/test_bandwidth",
)
#: Long ones come next, so that all workers end together.
LONG = (
    *("tests/mpi/test_mesh_algorithms", "tests/mpi/test_library", "tests/mpi/test_runs_are_exact"),
    *("tests/mpi/test_moe", "tests/mpi/test_overlap", "tests/mpi/test_device"),
    *("tests/mpi/test_fake_gpus", "tests/mpi/test_any_multiplication_runs"),
    *("tests/mpi/test_transposed", "tests/mpi/test_signalled", "tests/mpi/test_no_update"),
)


def pytest_collection_modifyitems(config, items):
    """A test hangs that takes several times what it may take on a machine of its own."""
    for item in items:
        found = item.get_closest_marker("timeout")
        seconds = found.args[0] if found else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(PATIENCE * seconds), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (``make test``) the first begins with the files that start processes,
    the others with those that start none; who has finished helps."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _assign_work_unit(self, node):
            starts = lambda file: file.startswith(PROCESSES) and not file.startswith(APART)
            mine = [file for file in self.workqueue if starts(file) == (node is self.nodes[0])]
            turn = lambda file: (not file.startswith(EARLY), not file.startswith(LONG))
            for file in sorted(mine or self.workqueue, key=turn)[:1]:
                self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def dealt(request):
    """``dealt(cases, turn, every)``: of many cases those that are this turn's, one in ``every``;
    all of them where the thorough tests run too (``make test-full``). Whoever runs the same cases
    in several situations gives each its turn. They are shuffled before they are dealt, or what
    alternates among them, such as element types, would all be one turn's."""
    whole = "not thorough" not in request.config.getoption("markexpr")

    def deal(cases, turn, every):
        cases = list(cases)
        order = random.Random(len(cases)).sample(range(len(cases)), len(cases))
        mine = {case for x, case in enumerate(order) if x % every == turn % every}
        return [case for x, case in enumerate(cases) if whole or x in mine]

    return deal


@pytest.fixture(scope="session")
def fault(tmp_path_factory):
    """``fault(name)``: environment in which that goes wrong on the ranks; see ``faults.py``."""
    folder = tmp_path_factory.mktemp("faults")
    shutil.copy(ROOT / "tests" / "shared" / "faults.py", folder / "sitecustomize.py")
    return lambda name: {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "DRBENCH_TEST_FAULT": name}


@pytest.fixture(scope="session")
def mpiexec() -> str:
    """Path of the launcher that belongs to this Python's MPI."""
    found = find_mpiexec()
    if found is None:
        pytest.skip(
            f"no mpiexec, neither next to {sys.executable} nor on PATH: pip install '.[mpich]', "
            "or load an MPI"
        )
    return found


@pytest.fixture(scope="session")
def mpi_library() -> tuple[str, str]:
    """(version text, path) of the MPI library that mpi4py loads."""
    return find_mpi_library()
