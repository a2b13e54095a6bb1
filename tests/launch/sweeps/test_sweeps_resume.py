"""Faults in a case or in the sweep itself: one row a case, the others unaffected, nothing left
behind."""

import json
import os
import signal
import sys
import time
from collections import Counter
from operator import attrgetter
from types import SimpleNamespace

import psutil
import pytest
from starting import run_process, wait_until, within

from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.supervisor import ATTEMPTS
from drbench.measure.record_file import read_csv

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(100)]

CASES = '[[cases]]\nm = 12\nn = 14\na = "row"\nb = "column"\nc = "row"\nstationary = "C"\n'
INTO = ["-p", 2, "--out", "out"]
#: Enough work to be interrupted.
LONG = CASES + 'k = 8\nseed = "0:399:+1"\n'


#: Variables that are kept as names, if at all.
SECRETS = {"NCCL_DEBUG_FILE": "/home/me/log", "MY_SECRET": "hidden", "HOME": "/home/me"}
#: Columns that are the same in whichever part a case runs.
KEYS = attrgetter(*"case status m n k a b c stationary seed environment".split())


@pytest.fixture
def swept(drbench, tmp_path, mpich):
    """``swept(file, *options, code=0)``: run a sweep into ``out``; its result and
    records."""

    def run(file, *options, code=0, **keywords):
        ended = drbench("sweep", file, *INTO, *options, **{"timeout": 90, **keywords})
        assert ended.returncode == code, f"exit {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert ended.left == ()
        assert not (tmp_path / "out" / "lock").exists()
        return ended, read_csv(tmp_path / "out" / "records.csv")

    return run


def test_each_fault_is_one_row_and_the_other_cases_run(swept, sweep_file, fault, tmp_path):
    """The case of k = 28 was given to ranks so often before that it is given up."""
    file = sweep_file(
        CASES + "k = [8, 21, 9, 22, 23, 10, 24, 25, 26, 27, 28, 11]\n"
        '\n[[cases]]\nm = "4Ki"\nn = "4Ki"\nk = 7\na = "row"\nb = "column"\nc = "row"\n'
        '\n[[cases]]\nm = 8\nn = 8\nk = 8\nalgorithm = "cannon"\n'
        '\n[[cases]]\nm = 8\nn = 8\nk = 8\nb = "block:3x3"\n'
        "\n[[cases]]\nm = 12\nn = 14\nk = 6\n"
    )
    jobs = plan_cases(SweepRequest(file, 2, "out")).jobs
    (name,) = [job.name for job in jobs if job.case.k == 28]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "journal.txt").write_text(f"{name}\n" * ATTEMPTS)
    limits = "--timeout", 5, "--mem-limit", "32MiB"
    ended, records = swept(file, *limits, env=fault("zoo"), code=6)
    assert " ".join(f"{record.k} {record.status}" for record in records) == (
        "8 ok 21 failed 9 ok 22 timeout 23 failed 10 ok 24 wrong 25 wrong 26 out_of_memory "
        "27 failed 28 failed 11 ok 7 out_of_memory 8 unsupported 8 failed 6 ok"
    )
    why = {record.k: record.reason for record in records[:13]}
    assert why[21] == "rank 1: RuntimeError: struck by the test"
    assert why[22] == "no result after 5 s; its ranks were killed"
    assert "SIGSEGV" in why[23] and "3 attempts" in why[23]
    assert "MemoryError" in why[26] and f"{ATTEMPTS} times" in why[28]
    assert "--mem-limit" in why[7] and "missing" in why[7]
    assert "square" in records[13].reason and "block:3x3" in records[14].reason
    going, _, tables = ended.stdout.partition("16/16 cases")
    assert going.count("struck by the test") == 3
    assert "cases are not ok: see the records" in tables
    assert "Traceback" not in ended.stdout + ended.stderr
    again, second = swept(file, *limits, code=6)
    # repr: an error may be NaN
    assert repr(second) == repr(records) and "16 done before" in again.stdout


def test_a_sweep_in_parts_is_the_sweep(run_cli, swept, sweep_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = sweep_file(CASES + "k = [8, 9, 10, 11]\n")
    simulate, path = ("--simulate", "--machine", "pvc12"), tmp_path / "out" / "records.csv"

    def rows(*options):
        ended = run_cli("sweep", file, *INTO, *simulate, *options)
        assert ended.returncode == 0, ended.stderr
        return ended, read_csv(path)

    first, records = rows("--max-cases", 1)
    assert len(records) == 1 and "left: 3 cases" in first.stdout
    _, records = rows()
    assert [record.k for record in records] == [8, 9, 10, 11]
    _, second = rows("--fresh", "--part", "2/2")
    assert [*map(KEYS, second)] == [*map(KEYS, records[1::2])]
    ended, both = swept(file, *simulate, "--part", "1/2", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert (
        "drbench.launch.sweeps" in ended.stderr and "pandas" not in ended.stderr
    )  # nothing to compare
    assert [*map(KEYS, both)] == [*map(KEYS, records[1::2] + records[::2])]
    assert read_csv(tmp_path / "out" / "previous-1" / "records.csv") == records


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def story(mpiexec, mpich, write_sweep, tmp_path_factory):
    """One sweep of 400 cases in three processes: the first is killed; the second is interrupted by
    Ctrl-C after a third process wanted its folder; the last runs three more cases and streams the
    records. ``ends``: the result of each with its records and whether the lock was left."""
    found = SimpleNamespace(folder=tmp_path_factory.mktemp("story"), ends=[])
    path = found.folder / "out" / "records.csv"
    (found.folder / "mine.py").write_text("")
    words = [sys.executable, "-m", "drbench", "--plugin", "mine.py", "sweep"]
    words += [write_sweep(found.folder, LONG), *INTO, "-o", "warmup=0"]

    def interrupt(process):
        process.send_signal(signal.SIGSTOP)  # otherwise it might end meanwhile
        found.refused = run_process(words, found.folder)
        process.send_signal(signal.SIGCONT)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        found.soon = within(time.monotonic() - start, 1)

    def after_some_cases(act):
        before = count_lines(path)

        def during(process):
            wait_until(lambda: count_lines(path) > before + 5, 30, process)
            act(process)

        return during

    for options, act in (
        ([], lambda process: process.kill()),
        (["--mem-limit", "1GiB"], interrupt),
        (["--max-cases", 3, "--stream"], None),
    ):
        during = act and after_some_cases(act)
        ended = run_process([*words, *options], found.folder, SECRETS, timeout=60, during=during)
        found.ends.append((ended, read_csv(path), (found.folder / "out" / "lock").exists()))
    return found


def test_a_killed_supervisor_loses_nothing_and_its_ranks_end(story):
    (ended, done, locked), (_, more, _), _ = story.ends
    assert ended.returncode == -signal.SIGKILL and ended.left == ()
    assert locked and len(done) >= 5
    assert more[: len(done)] == done and [row.seed for row in more] == [*range(len(more))]
    assert {row.status for row in more} == {"ok"}


def test_a_second_sweep_into_the_folder_is_refused(story):
    assert "in use by process" in story.refused.refusal()


def test_ctrl_c_ends_within_a_second_and_prints_how_to_resume(story):
    (_, before, _), (ended, done, locked), (_, more, _) = story.ends
    assert ended.returncode == 130 and story.soon and ended.left == ()
    assert len(done) >= len(before) + 5 and not locked
    how = ended.stdout.partition("Resume: drbench --plugin=mine.py sweep ")[2]
    assert "--mem-limit=1073741824" in how and "-o warmup=0" in how
    assert "cases, " in ended.stdout
    assert "Traceback" not in ended.stderr
    assert more[:-3] == done


def test_records_stream_to_standard_output(story):
    ended, done, locked = story.ends[-1]
    assert (ended.returncode, ended.left, locked) == (0, (), False)
    assert " cases on 2 ranks" in ended.stderr
    (story.folder / "stream.txt").write_text(ended.stdout)
    assert read_csv(story.folder / "stream.txt") == done and len({row.case for row in done}) > 10


def test_rows_refer_to_an_environment_without_paths_and_secrets(story):
    (name,) = {row.environment for row in story.ends[-1][1][-3:]}  # of the last process
    out = story.folder / "out"
    texts = [
        path.read_text() for path in (out / f"environments/{name}.json", out / "environment.json")
    ]
    for secret in ("hidden", str(story.folder), "/home", os.path.dirname(sys.executable)):
        assert secret not in "".join(texts)
    found, latest = map(json.loads, texts)
    assert found["variables"]["NCCL_DEBUG_FILE"] == "…/log"
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert {rank["host"] for rank in found["ranks"]} <= {*found["hosts"]}
    assert found["mpi"]["library"] and found["blas"]["kernel"] and found["packages"]["numpy"]
    assert latest["command"][:4] == ["drbench", "--plugin", "mine.py", "sweep"]


def test_ranks_that_someone_else_kills_run_their_case_again(swept, sweep_file, tmp_path, fault):
    """A case hangs, and once more on its new ranks."""

    def kill(process):
        with_word = lambda children, word: [
            child for child in children if word in " ".join(child.cmdline())
        ]
        for who in ("rank", "mpiexec"):
            wait_until((tmp_path / "hanging").exists, 30, process)
            (launcher,) = with_word(psutil.Process(process.pid).children(), "mpiexec")
            ranks = with_word(launcher.children(recursive=True), "drbench serve")
            if who == "rank":
                (tmp_path / "hanging").unlink()  # so that it hangs again
            (launcher if who == "mpiexec" else ranks[-1]).kill()

    file = sweep_file(CASES + "k = [8, 9, 22, 10]\n")
    ended, records = swept(file, env=fault("hang once at k = 22"), during=kill)
    assert [(record.k, record.status) for record in records] == [(k, "ok") for k in (8, 9, 22, 10)]
    assert ended.stdout.count("runs again on new ranks") == 2


def test_rounds_resume_in_the_middle_and_an_error_in_one_costs_one_case(
    drbench, swept, sweep_file, tmp_path, fault
):
    text = CASES + "k = 39\ngemm_only = true\nchunk = [39, 13, 7]\n"
    file, path = sweep_file(text, rounds='"known"'), tmp_path / "out" / "rounds" / "records.csv"

    def kill(process):
        wait_until((tmp_path / "hanging").exists, 30, process)
        process.kill()

    drbench("sweep", file, *INTO, env=fault("hang in the third turn"), during=kill)
    before = read_csv(path)
    assert len(before) >= 3
    ended, records = swept(file, env=fault("exception in the third turn"), code=5)
    rows = read_csv(path)
    assert rows[: len(before)] == before and len({row.case for row in rows}) == len(rows)
    turns = Counter((row.case.rpartition(" | ")[2], row.status) for row in rows)
    first, bad, last = (record.case for record in records)
    assert turns[bad, "failed"] == 1 and turns[bad, "ok"] < 6
    assert turns[first, "ok"] == turns[last, "ok"] == 6
    assert [record.status for record in records] == ["ok", "failed", "ok"]
    assert all(row.gemm_only_gflops for row in rows if row.status == "ok")
    _, again = swept(file, "--retry")  # the case that failed is compared in new rounds
    assert [record.status for record in again] == ["ok"] * 3
    rounds = {row.case.partition(" ")[0] for row in read_csv(path) if row.case.endswith(bad)}
    assert len(rounds) >= 6 and max(map(int, rounds)) > 6


def test_a_missing_launcher_is_reported(drbench, sweep_file):
    ended = drbench("sweep", sweep_file(CASES + "k = 8\n"), *INTO, "--launcher", "aprun")
    assert "aprun" in ended.stderr and (ended.returncode, ended.stderr.count("\n")) == (3, 1)


def test_ranks_that_cannot_start_end_the_sweep_without_a_row(drbench, sweep_file, fault, tmp_path):
    file = sweep_file(CASES + "k = 8\n")
    ended = drbench("sweep", file, *INTO, env=fault("import"), timeout=60)
    assert ended.returncode in (3, 5) and "cannot be started" in ended.stderr and ended.left == ()
    assert not (tmp_path / "out" / "records.csv").exists()
