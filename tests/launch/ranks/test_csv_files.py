"""``--csv``: a row for every case, whatever its status, in a file of nothing else."""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from old_records import FILE

from drbench.launch.host.files import check_output
from drbench.measure.record import HEADER
from drbench.measure.record_file import read_csv

pytestmark = pytest.mark.mpi

RUN = "run -p 2 -m 12 -n 14 -k 16 --iters 1 --budget 0 --threads 1".split()


def test_every_ending_is_a_row_under_one_header(drbench, mpich, tmp_path):
    """In a file that is empty at first; before the last run a kill tears a row, which is replaced,
    not joined, with a warning of one line, not Python's with source code."""
    path = tmp_path / "with a space.csv"
    path.touch()
    printed = []
    for code, options, env in (
        (0, "--label mine", {}),
        (3, "--transport direct", {"MPIR_CVAR_NUM_CLIQUES": "2"}),
        (6, "-o get=copy --preset column -o pool=0", {}),
    ):
        torn = code == 6
        with open(path, "a") as file:
            file.write("1,measured,here,univ" * torn)
        ended = drbench(*RUN, *options.split(), "--csv", path, "--json", env=env)
        assert (ended.returncode, ended.stderr.count("\n")) == (code, torn), ended.stderr
        printed.append(json.loads(ended.stdout))
    found = read_csv(path)
    assert path.read_text().splitlines()[0] == ",".join(HEADER)
    assert path.read_text().count("schema_version") == 1
    assert [record.to_json_dict() for record in found] == printed
    assert (found[0].label, found[0].machine, found[0].m) == ("mine", None, 12)
    assert [record.status for record in found] == ["ok", "unsupported", "out_of_memory"]
    assert [bool(record.reason) for record in found] == [False, True, True]
    assert [record.samples_s == [] for record in found] == [False, True, True]


#: Text of a file -> what the refusal names.
REFUSED = {
    "m,n,k\n1,2,3\n": "header",
    "notes of mine": "header",
    "\n": "header",
    "schema_version\n": "header",
    "schema_version,colour\n99,red\n": "99",
    FILE.read_text(): "header of an older schema",
}


@pytest.mark.parametrize("content, named", REFUSED.items(), ids=range(len(REFUSED)))
def test_a_file_with_another_header_is_refused_before_the_run(
    run_cli, monkeypatch, tmp_path, content, named
):
    path = tmp_path / "mine.csv"
    path.write_text(content)
    monkeypatch.setattr("drbench.launch.commands.run.run_ranks", None)
    line = run_cli(*RUN, "--csv", path).refusal()
    assert "--csv" in line and "mine.csv" in line and named in line
    assert path.read_text() == content


def test_every_rank_refuses_a_file_with_another_header_in_one_line(under_mpiexec, mpich, tmp_path):
    """Without Python's own warning of a torn last line."""
    (tmp_path / "mine.csv").write_text("notes of mine")
    ended = under_mpiexec(2, *"run -m 12 -n 14 -k 16 --csv mine.csv".split())
    assert "mine.csv" in ended.refusal() and ended.codes == (2, 2)
    assert (tmp_path / "mine.csv").read_text() == "notes of mine"


def test_a_pipe_is_refused_before_the_run(drbench, mpich, fault, tmp_path):
    """Otherwise the error would be found only after the run, and the result lost."""
    os.mkfifo(tmp_path / "pipe")
    line = drbench(
        *RUN, "--csv", "pipe", env=fault("exception"), timeout=10
    ).refusal()  # the fault shows that a GEMM was computed
    assert "--csv" in line and "pipe" in line


def test_checking_a_file_never_creates_or_removes_it(tmp_path):
    """A run that only checks must not remove the rows that another run just began to write."""
    paths = [tmp_path / f"{run}.csv" for run in range(300)]
    written = threading.Event()

    def ask():
        while not written.is_set():
            check_output("--csv", str(paths[0]))

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(ask) for _ in range(2)]
        try:
            for path in list(paths)[:-1]:
                assert not path.exists()
                path.write_text("rows")
                time.sleep(0.0005)
                assert path.read_text() == "rows"
                paths.pop(0)
        finally:
            written.set()
        for other in others:
            other.result()


def test_runs_at_the_same_time_share_a_file(process, tmp_path):
    run = " ".join(map(str, RUN))
    ended = process(
        "sh",
        "-c",
        "for i in 1 2; do $0 -m drbench " + run + " --csv both.csv --json & done; wait",
        sys.executable,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [record.status for record in read_csv(tmp_path / "both.csv")] == ["ok"] * 2
