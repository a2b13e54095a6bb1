"""The ranks of a sweep end with their supervisor, even if only the end of their input shows it."""

import json
import subprocess
import sys
import time

import pytest
from starting import clean_environ, marked, wait_until

from drbench.launch.host.protocol import ANSWER, parse

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


@pytest.fixture
def ranks(mpiexec, tmp_path):
    """Two ranks that wait for cases, and their mark. No guard, and no signal of the kernel."""
    mark = f"worker-{time.monotonic_ns()}"
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3"}
    process = subprocess.Popen(
        [mpiexec, "-n", "2", sys.executable, "-m", "drbench", "serve"],
        env=clean_environ(DRBENCH_RANKS="2", DRBENCH_TEST_RUN=mark, **step),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    answer = {}
    while "ready" not in answer:
        assert process.poll() is None
        answer = parse(process.stdout.readline(), ANSWER) or {}
    assert answer["slurm"] == "77.3"  # the step that scancel ends
    yield process, mark
    process.kill()
    process.wait()
    process.stdout.close()


def test_they_end_when_their_input_ends(ranks):
    process, mark = ranks
    assert len(marked(mark)) >= 3
    process.stdin.close()
    wait_until(lambda: not marked(mark), 10, why=lambda: "they would wait for ever")
    assert process.wait() != 0


def test_ranks_end_in_good_order_on_request(ranks):
    process, _ = ranks
    process.stdin.write(json.dumps({"end": True}) + "\n")
    process.stdin.close()
    assert process.wait(60) == 0
