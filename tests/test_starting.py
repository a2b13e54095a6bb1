"""The harness of commands and ranks can fail: what a command leaves is found, and is gone."""

import sys
import uuid
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from starting import (
    ROOT,
    SHARED_MEMORY,
    clean_environ,
    run_process,
    shared_memory_names,
    wait_until_empty,
)

ORPHAN = """
import subprocess, time
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(subprocess.Popen(["sleep", "60"], **quiet).pid, flush=True)
"""


@pytest.fixture
def impatient(monkeypatch):
    """Shorten the additional time for slow machines: commands here never end."""
    monkeypatch.setattr("starting.more_time", lambda seconds: 0.1)


def alive(pids):
    """Those that still run; a container's first process may not reap the dead."""
    states = {each.pid: each.info["status"] for each in psutil.process_iter(["status"])}
    return [pid for pid in pids if states.get(pid, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE]


def test_a_process_that_outlives_its_command_is_reported_and_killed(tmp_path):
    ended = run_process([sys.executable, "-c", ORPHAN], tmp_path)
    assert ended.returncode == 0 and ended.left == (int(ended.stdout),)
    assert wait_until_empty(lambda: alive(ended.left), tries=50) == []
    with pytest.raises(AssertionError):
        ended.json()


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="no /dev/shm")
def test_a_file_left_in_shared_memory_is_reported(tmp_path):
    names = []

    def also_another(process):
        path = SHARED_MEMORY / f"drbench-test-{uuid.uuid4().hex}"
        path.touch()
        names.append(path.name)

    leave = f'exec touch "{SHARED_MEMORY}/drbench-test-$DRBENCH_TEST_RUN"'
    try:
        (left,) = run_process(["sh", "-c", leave], tmp_path, during=also_another).left
        names.append(left)
        assert left.startswith("drbench-test-") and names[0] in shared_memory_names() - {left}
    finally:
        for name in names:
            (SHARED_MEMORY / name).unlink(missing_ok=True)


#: Allocates memory of a fake GPU, and prints its name.
FAKE = (
    "import sys, time; sys.path.insert(0, sys.argv[1])\nfrom fake_cuda import SharedRuntime\n"
    "SharedRuntime().malloc(4096); print('taken', flush=True)\n"
)


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="no /dev/shm")
def test_memory_of_a_fake_gpu_is_reported_if_it_is_left_and_removed_whoever_was_killed(
    tmp_path, impatient
):
    start = lambda more, **how: run_process(
        [sys.executable, "-c", FAKE + more, ROOT / "tests/shared"], tmp_path, **how
    )
    ended = start("import os; os.kill(os.getpid(), 9)")
    (name,) = ended.left
    assert ended.stdout and name.startswith("drbench-fake-gpu-")
    names = []

    def remember(process):
        process.stdout.readline()
        names.extend(each for each in shared_memory_names() if f"-{process.pid}-" in each)

    with pytest.raises(pytest.fail.Exception, match="no end in 0.5 s"):
        start("time.sleep(60)", timeout=0.5, during=remember)
    assert len(names) == 1 and not {name, *names} & shared_memory_names()


def test_a_command_without_an_end_fails_the_test_and_is_killed_with_all_it_started(
    tmp_path, impatient
):
    pids = []

    def remember(process):
        pids.extend([process.pid, int(process.stdout.readline())])

    command = [sys.executable, "-c", f"{ORPHAN}time.sleep(60)"]
    with pytest.raises(pytest.fail.Exception, match="no end in 0.5 s"):
        run_process(command, tmp_path, timeout=0.5, during=remember)
    assert len(pids) == 2 and wait_until_empty(lambda: alive(pids), tries=50) == []


def test_launchers_and_experiments_leave_no_trace_in_the_environment(monkeypatch):
    strange = {"PMI_RANK": "1", "SLURM_PROCID": "0", "DRBENCH_MACHINE": "x", "OMP_NUM_THREADS": "3"}
    for name, value in strange.items():
        monkeypatch.setenv(name, value)
    assert not strange.keys() & clean_environ().keys()
    assert clean_environ(OMP_NUM_THREADS="2")["OMP_NUM_THREADS"] == "2"


def test_the_first_worker_begins_with_processes_and_who_has_finished_helps(pytestconfig):
    """Of several workers of pytest-xdist (``tests/conftest.py``)."""
    pytest.importorskip("xdist")
    config = SimpleNamespace(getvalue=lambda name: ["2*popen"])
    dealer = pytestconfig.hook.pytest_xdist_make_scheduler(config=config, log=None)
    files = ["plan/test_a", "launch/models/test_llm", "mpi/test_b", "launch/ranks/test_c"]
    tests = [f"tests/{file}.py::test" for file in files]
    for test in tests:
        dealer.workqueue[test.partition("::")[0]] = {test: False}
    sent = [], []
    for each in sent:
        node = Mock(send_runtest_some=each.extend)
        dealer.add_node(node)
        dealer.registered_collections[node] = tests
    first, second = dealer.nodes
    for node in (first, second, second, second):
        dealer._assign_work_unit(node)
    assert sent == ([3], [0, 1, 2])
