"""A sweep on the ranks that a launcher has started gives the rows of one that starts its own."""

import signal
import sys
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import psutil
import pytest
from starting import wait_until

from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.cases.case import Case
from drbench.launch.sweeps.rounds import Job
from drbench.launch.sweeps.sweep import jobs_on
from drbench.measure.record_file import read_csv

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(150)]

CASES = '[[cases]]\nn = 14\na = "row"\nb = "column"\nc = "row"\nstationary = "C"\nm = 12\n'
OUT = "--out", "out"
#: Columns that are the same, whoever started the ranks.
KEYS = attrgetter(*"case status m n k ranks a b c stationary seed algorithm".split())


@pytest.fixture
def given(under_mpiexec, tmp_path, mpich):
    """``given(ranks, file, *options)``: a sweep into ``out`` under mpiexec, and its records."""

    def run(ranks, file, *options, **keywords):
        ended = under_mpiexec(ranks, "sweep", file, *OUT, *options, **{"timeout": 60, **keywords})
        assert not (tmp_path / "out" / "lock").exists() or ended.returncode
        path = tmp_path / "out" / "records.csv"
        return ended, read_csv(path) if path.exists() else []

    return run


def test_the_rows_are_those_of_a_sweep_that_starts_its_ranks(
    given, drbench, run_cli, sweep_file, tmp_path, monkeypatch
):
    file = sweep_file(
        CASES.replace("m = 12", "m = [12, 13]\nk = [8, 9]")
        + '[[cases]]\nm = 8\nn = 8\nk = 8\nalgorithm = "cannon"\n'
    )
    Path(file).write_text(f"ranks = [1, 2]\n{Path(file).read_text()}")
    ended, _ = given(2, file)
    assert ended.codes == (0, 0) and ended.stdout.count("records: ") == 1
    assert "left for another launch: 5 cases on 1 rank\n" in ended.stdout
    assert "5/5 cases" in ended.stdout
    alone, records = given(1, file)
    assert "5 cases on 2 ranks" in alone.stdout
    every = drbench("sweep", file, "--out", "other", timeout=60)
    assert every.returncode == 0, every.stderr
    order = lambda rows: sorted(map(KEYS, rows), key=str)
    assert order(records) == order(read_csv(tmp_path / "other" / "records.csv"))
    monkeypatch.chdir(tmp_path)
    assert "10 done before" in run_cli("sweep", file, *OUT).stdout  # so nothing is started


def test_a_case_that_ends_the_job_has_its_row_after_the_same_command(given, sweep_file, fault):
    """Each fault as in a sweep that starts its ranks again; exit codes are those of the faults."""
    file = sweep_file(CASES + "k = [8, 21, 9, 22, 23, 10, 24, 25, 26, 11]\n")
    codes, records = [], []
    while len(records) < 10 and len(codes) < 6:
        ended, records = given(2, file, "--timeout", 5, "--mem-limit", "32MiB", env=fault("zoo"))
        codes.append(ended.returncode)
    assert " ".join(f"{record.k} {record.status}" for record in records) == (
        "8 ok 21 failed 9 ok 22 timeout 23 failed 10 ok 24 wrong 25 wrong 26 out_of_memory 11 ok"
    )
    by_system = codes.pop(2)
    names = "failed", "timeout", "out_of_memory", "out_of_memory"
    assert by_system and codes == [EXIT_CODES[name] for name in names] and ended.codes == (6, 6)
    why = {record.k: record.reason for record in records}
    assert why[21] == "rank 1: RuntimeError: struck by the test"
    assert why[22] == "no result after 5 s; its ranks were killed"


def test_an_interrupted_case_runs_again(given, sweep_file, tmp_path):
    """A sweep is interrupted twice, and then resumed."""
    file = sweep_file(CASES + 'k = 8\nseed = "0:199:+1"\n')
    path, records = tmp_path / "out" / "records.csv", []
    for number in (signal.SIGINT, signal.SIGTERM):
        before, least = records, len(records) + 5  # the signal may meet the fsync of the next

        def interrupt(process, least=least, number=number):
            some = lambda: path.exists() and path.read_bytes().count(b"\n") > least + 1
            wait_until(some, 30, process)
            for rank in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # the first rank ends the others
                    if "python" in rank.name():
                        rank.send_signal(number)

        ended, records = given(2, file, during=interrupt)
        assert ended.returncode == 130 and "Traceback" not in ended.stderr
        assert least <= len(records) < 200 and records[: len(before)] == before
    _, more = given(2, file, "--max-cases", 3)
    assert more[:-3] == records and {record.status for record in more} == {"ok"}


def test_records_stream_and_the_scripts_of_the_artifact_run_on_given_ranks(
    process, mpiexec, tmp_path, mpich
):
    script = Path(__file__).parents[3] / "launch" / "launch_experiments_mlp1.py"
    options = "--scale 1/3072 -o iters=1 -o budget=0 --max-cases 2 -o threads=1".split()
    ended = process(mpiexec, "-n", 2, sys.executable, script, *options)
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "mlp1.txt").write_text(ended.stdout)
    found = read_csv(tmp_path / "mlp1.txt")
    assert [(row.m, row.n, row.k, row.ranks) for row in found] == [(1, 16, 4, 2)] * 2
    assert "48 cases on 2 ranks" in ended.stderr
    (folder,) = (tmp_path / "results" / "measured" / "here").iterdir()
    assert folder.name.startswith("mlp1-") and "-scale1of3072-" in folder.name
    assert read_csv(folder / "records.csv") == found


def test_what_cannot_run_is_refused_once_on_every_rank(given, sweep_file):
    file = sweep_file(CASES + "k = 8\n")
    for options, words in {
        "-p 3": "-p 3",
        "-o ranks=1,3": "1 case on 1 rank, 1 case on 3 ranks",
    }.items():
        ended, _ = given(2, file, *options.split())
        assert ended.codes == (2, 2) and words in ended.refusal()
    ended, _ = given(2, file, "--dry-run")
    assert ended.codes == (0, 0) and ended.stdout.count("1 case on 2 ranks") == 1


def test_each_launch_runs_cases_of_its_number_of_ranks_and_of_one_library():
    jobs = [
        Job(f"{name} {ranks}", ranks, Case(8, 8, 8, algorithm=name))
        for name in "universal scalapack cosma dtensor cannon scalapack".split()
        for ranks in (2, 4)
    ]
    mine, left = jobs_on(4, jobs)
    assert [job.name for job in mine] == ["universal 4", "cannon 4"]
    assert left == "6 cases on 2 ranks, 2 cases of scalapack, 1 case of cosma, 1 case of dtensor"
    mine, _ = jobs_on(2, jobs[1:])  # the first of 2 ranks is of ScaLAPACK
    assert [job.name for job in mine] == ["scalapack 2"] * 2
    with pytest.raises(UsageError, match="no case can run on the 3 ranks"):
        jobs_on(3, jobs)
    with pytest.raises(UsageError, match="1 case of cosma"):
        jobs_on(4, jobs[5:6])  # a program of its own
