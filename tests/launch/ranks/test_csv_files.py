"""``--csv``: a row for every case, whatever its status, in a file of nothing else."""

import csv
import json
import os
import shutil
import sys
import threading
import time

import pytest
from made_up import made_up
from old_records import FILE

from drbench.errors import UsageError
from drbench.measure.record import HEADER
from drbench.measure.record_file import append_csv, read_csv
from launch.host.files import check_output

pytestmark = pytest.mark.mpi

RUN = "run -p 2 -m 12 -n 14 -k 16 --iters 1 --budget 0 --threads 1".split()


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_every_ending_is_a_row_under_one_header(drbench, mpich, tmp_path):
    path = tmp_path / "with a space.csv"
    endings = [
        (0, "ok", [], {}),
        (6, "out_of_memory", "-o get=copy --preset column -o pool=0".split(), {}),
        (3, "unsupported", ["--transport", "direct"], {"MPIR_CVAR_NUM_CLIQUES": "2"}),
    ]
    printed = []
    for code, _, options, env in endings:
        ended = drbench(*RUN, *options, "--csv", path, "--json", env=env)
        assert (ended.returncode, ended.stderr) == (code, "")
        printed.append(json.loads(ended.stdout))
    assert path.read_text().count("schema_version") == 1
    assert [row["status"] for row in rows(path)] == [status for _, status, _, _ in endings]
    assert [row["m"] for row in rows(path)] == ["12"] * 3
    assert [bool(row["reason"]) for row in rows(path)] == [False, True, True]
    assert [record.to_json_dict() for record in read_csv(path)] == printed
    assert [record.samples_s == [] for record in read_csv(path)] == [False, True, True]


def test_a_wrong_result_is_a_row(drbench, fault, tmp_path):
    ended = drbench(*RUN, "--csv", "out.csv", env=fault("wrong"))
    assert ended.returncode == 1
    (row,) = rows(tmp_path / "out.csv")
    assert row["status"] == "wrong" and "rows of C" in row["reason"]


def test_an_empty_file_gets_the_header(drbench, tmp_path):
    path = tmp_path / "out.csv"
    path.touch()
    drbench(*RUN, "--csv", path, "--label", "mine", "--json").json()
    (row,) = rows(path)
    assert tuple(row) == HEADER and (row["label"], row["machine"]) == ("mine", "")


@pytest.mark.parametrize(
    "content",
    ["m,n,k\n1,2,3\n", "notes of mine", "\n", "schema_version\n"],
    ids=["columns", "text", "blank", "prefix"],
)
def test_a_file_with_another_header_is_not_changed(under_mpiexec, mpich, tmp_path, content):
    """In one line, without Python's own warning of a torn last line."""
    path = tmp_path / "mine.csv"
    path.write_text(content)
    ended = under_mpiexec(2, *"run -m 12 -n 14 -k 16 --csv".split(), path)
    line = ended.refusal()
    assert "--csv" in line and "mine.csv" in line and "header" in line
    assert ended.codes == (2, 2)
    assert path.read_text() == content


def test_a_file_of_an_older_schema_is_refused_before_the_run(drbench, mpich, fault, tmp_path):
    shutil.copyfile(FILE, tmp_path / "old.csv")
    line = drbench(*RUN, "--csv", "old.csv", env=fault("exception"), timeout=10).refusal()
    assert "header of an older schema" in line and "Use another file name" in line
    assert (tmp_path / "old.csv").read_bytes() == FILE.read_bytes()


def test_a_later_schema_is_refused(drbench, mpich, tmp_path):
    path = tmp_path / "later.csv"
    path.write_text("schema_version,colour\n99,red\n")
    line = drbench(*RUN, "--csv", path).refusal()
    assert "99" in line
    assert path.read_text() == "schema_version,colour\n99,red\n"


def test_a_pipe_is_refused_before_the_run(drbench, mpich, fault, tmp_path):
    """Otherwise the error would be found only after the run, and the result lost."""
    os.mkfifo(tmp_path / "pipe")
    line = drbench(
        *RUN, "--csv", "pipe", env=fault("exception"), timeout=10
    ).refusal()  # the fault shows that a GEMM was computed
    assert "--csv" in line and "pipe" in line


def test_a_row_that_a_kill_tore_is_replaced_not_joined(drbench, mpich, tmp_path):
    """The warning is one line of drbench's, not Python's with source code."""
    path = tmp_path / "torn.csv"
    append_csv(path, made_up(status="failed", reason="first"))
    with open(path, "a") as file:
        file.write("1,measured,here,univ")
    ended = drbench(*RUN, "--csv", path)
    assert ended.returncode == 0
    assert [record.status for record in read_csv(path)] == ["failed", "ok"]
    assert ended.stderr.count("\n") <= 1, ended.stderr


def test_checking_a_file_never_creates_or_removes_it(tmp_path):
    """A run that only checks must not remove the rows that another run just began to write."""
    paths = [tmp_path / f"{run}.csv" for run in range(300)]
    written, wrong = threading.Event(), []

    def ask():
        while not written.is_set():
            try:
                check_output("--csv", str(paths[0]))
            except UsageError as error:
                wrong.append(error)

    others = [threading.Thread(target=ask) for _ in range(2)]
    for other in others:
        other.start()
    try:
        while len(paths) > 1:
            path = paths[0]
            assert not path.exists()
            path.write_text("rows")
            time.sleep(0.0005)
            assert path.read_text() == "rows"
            paths.pop(0)
    finally:
        written.set()
        for other in others:
            other.join()
    assert not wrong


def test_runs_at_the_same_time_share_a_file(process, tmp_path):
    run = " ".join(map(str, RUN))
    ended = process(
        "sh",
        "-c",
        "for i in 1 2 3; do $0 -m drbench " + run + " --csv both.csv --json & done; wait",
        sys.executable,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [record.status for record in read_csv(tmp_path / "both.csv")] == ["ok"] * 3
