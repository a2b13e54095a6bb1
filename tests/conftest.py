"""Fixtures for tests of commands and of ranks on this machine. ``shared`` is on the path
(pyproject.toml): its modules are imported by name."""

import json
import os
import random
import shutil
import signal
import sys
from collections import Counter

import pytest
from starting import PATIENCE, ROOT, find_mpi_library, find_mpiexec

collect_ignore = ["shared", "library/typed_program.py"]

# Processes of tests find their modules compiled, which halves the start of a rank; containers often
# disable it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Background processes of a shell without job control ignore Ctrl-C, and their children, which tests
# start and interrupt, inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders whose tests start processes, in this order: those that end processes or measure time run
#: before the other workers help.
PROCESSES = (
    *("tests/docs/", "tests/launch/host/", "tests/launch/ranks/", "tests/launch/sweeps/"),
    *("tests/mpi/", "tests/launch/commands/", "tests/launch/"),
)
#: Variable with what may be missing here: parts of the reasons of skips, with commas. If it is set,
#: as by .ci/run, a test that skips for another reason fails.
MAY_SKIP = "DRBENCH_TESTS_MAY_SKIP"


def pytest_configure(config):
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout: without pytest-timeout no test has a limit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Tests with a browser run apart. Treat a test as hanging after several times its limit on an
    idle machine."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("apart")
    for item in items if config.pluginmanager.hasplugin("timeout") else ():
        found = item.get_closest_marker("timeout")
        seconds = found.args[0] if found else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(PATIENCE * seconds), append=False)


def _judged(report):
    """A skip for a reason that is not allowed here is a failure."""
    if report.skipped and MAY_SKIP in os.environ and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2]
        allowed = filter(None, map(str.strip, os.environ[MAY_SKIP].lower().split(",")))
        if not any(each in reason.lower() for each in allowed):
            report.outcome, report.longrepr = "failed", f"{reason} ({MAY_SKIP} does not allow it)"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _judged((yield))


def pytest_terminal_summary(terminalreporter):
    """What was skipped, and why, at the end of every run."""
    skips = [each.longrepr[2] for each in terminalreporter.stats.get("skipped", ())]
    for reason, count in Counter(skips).most_common():
        terminalreporter.write_line(f"{count} {reason.replace('Skipped', 'skipped', 1)}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (``make test``) the first begins with the files that start processes,
    the others with those that start none; a worker that has finished helps."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _assign_work_unit(self, node):
            place = lambda file: next(
                (x for x, folder in enumerate(PROCESSES) if file.startswith(folder)), len(PROCESSES)
            )
            first = node is self.nodes[0]
            for file in sorted(self.workqueue, key=place, reverse=not first)[:1]:
                self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def dealt(request):
    """``dealt(cases, turn, every)``: one in ``every`` of the cases, different for each turn; all
    where the thorough tests run too (``make test-full``). A test that runs the same cases in
    several situations gives each its own turn. Cases are shuffled before they are dealt, so that
    properties that alternate among them, such as element types, are not all in one turn."""
    whole = "not thorough" not in request.config.getoption("markexpr")

    def deal(cases, turn, every):
        cases = list(cases)
        order = random.Random(len(cases)).sample(range(len(cases)), len(cases))
        mine = {case for x, case in enumerate(order) if x % every == turn % every}
        return [case for x, case in enumerate(cases) if whole or x in mine]

    return deal


@pytest.fixture(scope="session")
def fault(tmp_path_factory):
    """``fault(name)``: environment in which that fault occurs on the ranks; see ``faults.py``."""
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


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> str:
    """Path of the GPU's kernels compiled for the host."""
    from fake_cuda import compile_kernels

    if not shutil.which("g++"):
        pytest.skip("no g++ to compile the kernels for the host: apt-get install g++")
    return str(compile_kernels(tmp_path_factory.mktemp("kernels")))


@pytest.fixture(scope="session")
def fake_gpus(tmp_path_factory, kernels):
    """``fake_gpus(count, ...)``: environment in which plain ``drbench`` and its ranks find so many
    GPUs, with options of :func:`fake_cuda.shared_cupy`; see ``fake_node.py``."""
    folder = tmp_path_factory.mktemp("gpus")
    shutil.copy(ROOT / "tests" / "shared" / "fake_node.py", folder / "sitecustomize.py")
    path = os.pathsep.join(map(str, (folder, ROOT, ROOT / "tests" / "shared")))

    def gpus(count, **how):
        described = f"{count} {kernels} {json.dumps(how)}"
        return {"PYTHONPATH": path, "DRBENCH_TEST_GPUS": described}

    return gpus
