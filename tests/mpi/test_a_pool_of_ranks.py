"""Ranks that run one program after the other: each has the ranks alone, and an error in one is
reported for it and ends the pool."""

import psutil
import pytest
from pool import Pool
from starting import ROOT, marked, wait_until_empty

pytestmark = pytest.mark.mpi

PRINTS = "import sys\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
ONCE = PRINTS + "import harness\nharness.TIMES = getattr(harness, 'TIMES', 0) + 1\n"
ONCE += "print([sys.argv[1:], harness.TIMES, harness.SITUATION])\n"


@pytest.fixture
def start(mpiexec, tmp_path):
    """``start()``: two ranks; ``start.run(pool, text, ...)``: a program of that text on them."""
    pools = []

    def pool():
        environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'shared'}", "OPENBLAS_NUM_THREADS": "1"}
        pools.append(Pool(mpiexec, 2, environ, tmp_path / f"pool-{len(pools)}"))
        return pools[-1]

    def run(where, text, *words, situation="direct", timeout=30):
        (tmp_path / "program.py").write_text(text)
        return where.run([tmp_path / "program.py", *words], situation, timeout)

    pool.run = run
    yield pool
    for each in pools:
        each.kill()


def test_programs_run_one_after_the_other_and_their_outputs_are_separate(start):
    pool = start()
    for words, situation in ((("a", "b"), "direct"), (("c",), "rma")):
        ended = start.run(pool, ONCE, *words, situation=situation)
        line = f"{[list(words), 1, situation]}\n"
        assert (ended.returncode, ended.stdout, ended.stderr, ended.left) == (0, 2 * line, "", ())
    message = start.run(pool, PRINTS + "import os\nos.write(2, b'from a library')\nsys.exit(0)")
    assert (message.returncode, message.stderr) == (0, 2 * "from a library")
    ended = pool.close()
    assert (ended.returncode, ended.stderr, ended.left) == (0, "", ()) and not pool.alive


def test_ranks_between_programs_take_no_time_of_a_core(start):
    pool = start()
    start.run(pool, PRINTS)
    ranks = [psutil.Process(pid) for pid in marked(pool.mark)]
    used = lambda: sum(sum(each.cpu_times()[:2]) for each in ranks)
    before = used()
    for _ in range(3):
        psutil.cpu_percent(0.1)
    assert len(ranks) >= 3 and used() - before <= 0.02


@pytest.mark.parametrize(
    "text, code, described",
    [
        ("if rank: raise ValueError('struck')\nMPI.COMM_WORLD.Barrier()", 1, "ValueError: struck"),
        ("import os, signal\nif rank: os.kill(os.getpid(), signal.SIGKILL)", 1, ""),
        ("sys.exit('no' if rank else None)", 1, ""),
    ],
    ids=["raises", "killed", "exits"],
)
def test_a_program_that_fails_on_one_rank_fails_and_ends_the_pool(start, text, code, described):
    pool = start()
    ended = start.run(pool, PRINTS + text)
    assert ended.returncode == code and described in ended.stderr and ended.left == ()
    assert not pool.alive and wait_until_empty(lambda: marked(pool.mark), tries=20) == []
    assert pool.close().returncode == 0  # nothing is to be done


def test_a_program_without_an_end_is_killed(start, monkeypatch):
    monkeypatch.setattr("pool.more_time", lambda seconds: 0.1)
    pool = start()
    with pytest.raises(pytest.fail.Exception, match="no end in 0.5 s"):
        start.run(pool, PRINTS + "if rank:\n    import time\n    time.sleep(60)", timeout=0.5)
    assert not pool.alive and wait_until_empty(lambda: marked(pool.mark), tries=20) == []


def test_what_a_program_keeps_is_reported_as_is_the_output_of_mpi_at_its_end(start, mpi_library):
    """A thread, and a window that was not freed."""
    if not mpi_library[0].startswith("MPICH"):
        pytest.skip("only UCX, which MPICH uses, reports it")
    pool = start()
    kept = PRINTS + "import threading, time\n"
    kept += "threading.Thread(target=time.sleep, args=(9,), name='kept', daemon=True).start()\n"
    kept += "MPI.Win.Allocate(1 << 20, comm=MPI.COMM_WORLD).Lock_all()"
    described = start.run(pool, kept).stderr
    assert described.count("still held after the program: [") == described.count("'kept']") == 2
    ended = pool.close()
    assert "not returned" in ended.stdout
    with pytest.raises(ValueError):  # no JSON
        ended.json()
