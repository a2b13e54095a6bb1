"""Faults in a case or in the sweep itself: one row a case, the others unaffected, nothing left
behind."""

import json
import os
import signal
import sys
import time
from collections import Counter
from functools import partial
from operator import attrgetter
from pathlib import Path

import psutil
import pytest
from starting import wait_until, within

from drbench.measure.record_file import read_csv
from launch.sweeps.plan import SweepRequest, plan_cases
from launch.sweeps.supervisor import ATTEMPTS

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(100)]

CASES = '[[cases]]\nm = 12\nn = 14\na = "row"\nb = "column"\nc = "row"\nstationary = "C"\n'
INTO = ["-p", 2, "--out", "out"]
#: Enough work to be interrupted.
LONG = CASES + "k = 8\nseed = { start = 0, stop = 400, step = 1 }\n"


#: Columns that are the same however often a sweep was killed.
KEYS = attrgetter(*"case status m n k a b c stationary seed environment".split())


def keys(path):
    return [KEYS(record) for record in read_csv(path)]


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


def test_each_fault_is_one_row_and_the_other_cases_run(swept, sweep_file, fault):
    file = sweep_file(
        CASES.replace("m = 12", "") + "k = [8, 21, 9, 22, 23, 10, 24, 25, 26, 27, 11]\nm = 12\n"
        '\n[[cases]]\nm = "4Ki"\nn = "4Ki"\nk = 7\na = "row"\nb = "column"\nc = "row"\n'
        '\n[[cases]]\nm = 8\nn = 8\nk = 8\nalgorithm = "cannon"\n'
        '\n[[cases]]\nm = 8\nn = 8\nk = 8\nb = "block:3x3"\n'
        "\n[[cases]]\nm = 12\nn = 14\nk = 6\n"
    )
    ended, records = swept(
        file, "--timeout", 2, "--mem-limit", "32MiB", env=fault("zoo"), code=6, timeout=90
    )
    assert [f"{record.k} {record.status}" for record in records] == (
        "8 ok, 21 failed, 9 ok, 22 timeout, 23 failed, 10 ok, 24 wrong, 25 wrong, "
        "26 out_of_memory, 27 failed, 11 ok, 7 out_of_memory, 8 unsupported, 8 failed, 6 ok"
    ).split(", ")
    why = {record.k: record.reason for record in records[:12]}
    assert why[21] == "rank 1: RuntimeError: struck by the test"
    assert why[22] == "no result after 2 s; its ranks were killed"
    assert "SIGSEGV" in why[23] and "3 attempts" in why[23]
    assert "MemoryError" in why[26]
    assert "--mem-limit" in why[7] and "missing" in why[7]
    assert "square" in records[12].reason and "block:3x3" in records[13].reason
    going, _, tables = ended.stdout.partition("15/15 cases")
    assert going.count("struck by the test") == 3
    assert "that are not ok: see the records" in tables
    assert "Traceback" not in ended.stdout + ended.stderr
    again, second = swept(file, "--timeout", 2, "--mem-limit", "32MiB", code=6)
    # repr: an error may be NaN
    assert repr(second) == repr(records) and "15 done before" in again.stdout


def test_a_case_that_repeatedly_crashed_the_sweep_or_the_machine_is_given_up(
    swept, sweep_file, tmp_path
):
    file = sweep_file(CASES + "k = [8, 9]\n")
    jobs = plan_cases(SweepRequest(file, 2, "out")).jobs
    (name,) = [job.name for job in jobs if job.case.k == 8]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "journal.txt").write_text(f"{name}\n" * ATTEMPTS)
    _, records = swept(file, code=5)
    assert [(record.k, record.status) for record in records] == [(8, "failed"), (9, "ok")]
    assert f"{ATTEMPTS} times" in records[0].reason


def test_a_sweep_in_parts_is_the_sweep(swept, sweep_file, tmp_path):
    file = sweep_file(CASES + "k = [8, 9, 10, 11]\n")
    swept = partial(swept, file, "--simulate", "--machine", "pvc12")
    first, records = swept("--max-cases", 1)
    assert len(records) == 1 and "left: 3 cases" in first.stdout
    _, records = swept()
    assert [record.k for record in records] == [8, 9, 10, 11]
    _, second = swept("--fresh", "--part", "2/2")
    assert [*map(KEYS, second)] == [*map(KEYS, records[1::2])]
    ended, both = swept("--part", "1/2", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert "launch.sweeps" in ended.stderr and "pandas" not in ended.stderr  # nothing to compare
    assert [*map(KEYS, both)] == [*map(KEYS, records[1::2] + records[::2])]
    assert read_csv(tmp_path / "out" / "previous-1" / "records.csv") == records


def test_rows_refer_to_an_environment_without_paths_and_secrets(swept, sweep_file, tmp_path):
    environ = {"NCCL_DEBUG_FILE": "/home/me/log", "MY_SECRET": "hidden", "HOME": "/home/me"}
    _, records = swept(sweep_file(CASES + "k = 8\n"), env=environ)
    (name,) = {record.environment for record in records}
    out = tmp_path / "out"
    texts = [
        path.read_text() for path in (out / f"environments/{name}.json", out / "environment.json")
    ]
    for secret in ("hidden", str(tmp_path), "/home", os.path.dirname(sys.executable)):
        assert secret not in "".join(texts)
    found, latest = map(json.loads, texts)
    assert found["variables"]["NCCL_DEBUG_FILE"] == "…/log"
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert {rank["host"] for rank in found["ranks"]} <= {*found["hosts"]}
    assert found["mpi"]["library"] and found["blas"]["kernel"] and found["packages"]["numpy"]
    assert latest["command"][:2] == ["drbench", "sweep"]


def when_some_are_done(folder, act, count=5):
    """``during``: act once so many cases have their row."""

    def during(process):
        path = folder / "out" / "records.csv"
        wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") > count, 30, process)
        act(process)

    return during


def test_a_killed_supervisor_loses_nothing_and_its_ranks_end(drbench, swept, sweep_file, tmp_path):
    file = sweep_file(LONG)
    ended = drbench(
        "sweep",
        file,
        *INTO,
        during=when_some_are_done(tmp_path, lambda process: process.kill()),
    )
    assert ended.returncode == -signal.SIGKILL and ended.left == ()
    done = keys(tmp_path / "out" / "records.csv")
    assert (tmp_path / "out" / "lock").exists() and len(done) >= 5
    _, records = swept(file, "--max-cases", 3)
    assert [*map(KEYS, records[:-3])] == done


def test_ctrl_c_ends_within_a_second_and_prints_how_to_resume(drbench, sweep_file, tmp_path):
    took = []

    def interrupt(process):
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        took.append(time.monotonic() - start)

    ended = drbench(
        "sweep",
        sweep_file(LONG),
        *INTO,
        "--mem-limit",
        "1GiB",
        during=when_some_are_done(tmp_path, interrupt),
    )
    assert ended.returncode == 130 and within(*took, 1) and ended.left == ()
    assert (
        "Resume: drbench sweep " in ended.stdout
        and "--mem-limit=1073741824" in ended.stdout
        and "cases, " in ended.stdout
    )
    assert "Traceback" not in ended.stderr


def when_it_hangs(folder, act):
    """``during``: act once a case hangs (``faults.hang``)."""

    def during(process):
        wait_until((folder / "hanging").exists, 30, process)
        act(process)

    return during


def test_a_second_sweep_into_the_folder_is_refused(drbench, sweep_file, tmp_path, process, fault):
    file, second = sweep_file(CASES + "k = [8, 22]\n"), []

    def start_another(first):
        second.append(process(sys.executable, "-m", "drbench", "sweep", file, *INTO))
        first.send_signal(signal.SIGINT)

    during = when_it_hangs(tmp_path, start_another)
    drbench("sweep", file, *INTO, env=fault("zoo"), during=during)
    assert "in use by process" in second[0].refusal()


@pytest.mark.parametrize("who", ["mpiexec", "rank"])
def test_ranks_that_someone_else_kills_run_their_case_again(
    swept, sweep_file, tmp_path, fault, who
):
    def kill(process):
        with_word = lambda children, word: [
            child for child in children if word in " ".join(child.cmdline())
        ]
        (launcher,) = with_word(psutil.Process(process.pid).children(), "mpiexec")
        ranks = with_word(launcher.children(recursive=True), "drbench serve")
        (launcher if who == "mpiexec" else ranks[-1]).kill()

    file = sweep_file(CASES + "k = [8, 9, 22, 10]\n")
    during = when_it_hangs(tmp_path, kill)
    ended, records = swept(file, env=fault("hang once at k = 22"), during=during)
    assert [(record.k, record.status) for record in records] == [(k, "ok") for k in (8, 9, 22, 10)]
    assert "runs again on new ranks" in ended.stdout


def test_rounds_resume_in_the_middle_and_an_error_in_one_costs_one_case(
    drbench, swept, sweep_file, tmp_path, fault
):
    text = CASES + "k = 39\ngemm_only = true\nchunk = [39, 13, 7]\n"
    file, path = sweep_file(text, rounds='"known"'), tmp_path / "out" / "rounds" / "records.csv"

    def kill(process):
        wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") > 5, 30, process)
        process.kill()

    drbench("sweep", file, *INTO, during=kill)
    before = read_csv(path)
    assert len(before) >= 5
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


def test_records_stream_to_standard_output(drbench, sweep_file, tmp_path):
    file = sweep_file(CASES + "k = [8, 9, 10]\n")
    drbench("sweep", file, *INTO, "--max-cases", 1)
    ended = drbench("sweep", file, *INTO, "--stream")
    assert ended.returncode == 0 and "3 cases on 2 ranks" in ended.stderr
    (tmp_path / "stream.txt").write_text(ended.stdout)
    streamed = read_csv(tmp_path / "stream.txt")
    assert streamed == read_csv(tmp_path / "out" / "records.csv") and len(streamed) == 3


def test_the_artifact_s_script_is_the_sweep(process, tmp_path):
    script = Path(__file__).parents[3] / "launch" / "launch_experiments_mlp1.py"
    ended = process(
        sys.executable,
        script,
        *"--scale 1/3072 -p 2 -o iters=1 -o budget=0 --max-cases 2 -o threads=1".split(),
    )
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "mlp1.txt").write_text(ended.stdout)
    assert [(record.m, record.n, record.k) for record in read_csv(tmp_path / "mlp1.txt")] == [
        (1, 16, 4)
    ] * 2
    (folder,) = (tmp_path / "results" / "measured" / "here").iterdir()
    assert (
        folder.name.startswith("mlp1-")
        and "-scale1of3072-" in folder.name
        and (folder / "records.csv").exists()
    )


FAKE_SRUN = """#!{python}
import os, sys
ranks = next(word.partition("=")[2] for word in sys.argv if word.startswith("--ntasks="))
program = sys.argv[next(i for i, word in enumerate(sys.argv) if i and not word.startswith("-")):]
os.environ.update(SLURM_JOB_ID="77", SLURM_STEP_ID="3")
os.execv({mpiexec!r}, [{mpiexec!r}, "-n", ranks, *program])
"""


def test_srun_is_started_with_its_arguments_and_stopped_by_scancel(
    swept, sweep_file, fault, mpiexec, tmp_path
):
    for name, text in (
        ("srun", FAKE_SRUN.format(python=sys.executable, mpiexec=mpiexec)),
        (
            "scancel",
            f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'cancelled')!r}, 'w').write(' "
            "'.join(sys.argv[1:]))\n",
        ),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environ = {**fault("zoo"), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    _, records = swept(
        sweep_file(CASES + "k = [8, 22, 9]\n"),
        "--launcher",
        "srun",
        "--timeout",
        2,
        env=environ,
        code=4,
    )
    assert [record.status for record in records] == ["ok", "timeout", "ok"]
    assert (tmp_path / "cancelled").read_text() == "--signal=KILL 77.3"


def test_a_missing_launcher_is_reported(drbench, sweep_file):
    ended = drbench("sweep", sweep_file(CASES + "k = 8\n"), *INTO, "--launcher", "aprun")
    assert ended.returncode == 3 and "aprun" in ended.stderr and ended.stderr.count("\n") == 1


def test_ranks_that_cannot_start_end_the_sweep_without_a_row(drbench, sweep_file, fault, tmp_path):
    ended = drbench(
        "sweep",
        sweep_file(CASES + "k = 8\n"),
        *INTO,
        env=fault("import"),
        timeout=60,
    )
    assert ended.returncode in (3, 5) and "cannot be started" in ended.stderr and ended.left == ()
    assert not (tmp_path / "out" / "records.csv").exists()
