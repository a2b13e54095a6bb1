"""Options with several values: ``run``, ``simulate`` and ``sweep`` without a file make one table of
the same cases as one command for each."""

import csv
import itertools
import json
import os

import pytest

from drbench.measure.record_file import read_csv

HERE = "--machine=h100x8"
#: What differs between a case alone and in a table of several.
APART = {"timestamp", "environment", "peak_rss_bytes", "pool_bytes", "plan_s"}


def rows_of(ended):
    """The JSON on standard output; progress is on standard error."""
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_scan_predicts_each_case_as_alone(run_cli, tmp_path):
    presets = "row", "column"
    scanned = "simulate", HERE, "-m", "64:128:*2", "--preset", ",".join(presets)
    together = rows_of(run_cli(*scanned, "--csv", tmp_path / "rows.csv", "--json"))
    alone = [
        run_cli("simulate", HERE, "-m", m, "--preset", x, "--json").json()
        for m, x in itertools.product((64, 128), presets)
    ]
    grid = {(row["m"], row["n"], row["k"], row["preset"]) for row in together}
    assert len(together) == 4 and grid == {(r["m"], r["m"], r["m"], r["preset"]) for r in alone}
    by_case = {(row["m"], row["preset"]): row for row in together}
    for row in alone:
        same = by_case[row["m"], row["preset"]]
        assert {x: row[x] for x in row.keys() - APART} == {x: same[x] for x in row.keys() - APART}
    assert [row.best_s for row in read_csv(tmp_path / "rows.csv")] == [
        r["best_s"] for r in together
    ]
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_forms_and_transports_that_vary_are_columns_however_narrow(run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = "-m 64,128 --alpha 1,2 --transport".split()
    ended = run_cli("simulate", HERE, *words, '["auto", "throttled:1,5"]')
    lines = [line.split() for line in ended.stdout.splitlines()]
    (head,) = [line for line in lines if "m" in line and "result" in line]
    assert {"form", "transport"} <= {*head}


def test_keys_that_vary_are_columns_and_others_the_title(run_cli):
    ended = run_cli(
        "simulate", HERE, *"-m 64,128 -n 96 -k 96 -o chunk=16,32 --stationary B".split()
    )
    title, _, head, *lines = ended.stdout.splitlines()
    assert {"m", "chunk", "time", "rate", "result"} <= {*head.split()}
    assert "n 96, k 96" in title and "k" not in head.split() and "ranks 8" in title
    at = head.split().index("m")
    rows = [line.split() for line in lines[1:] if line]
    assert sorted(row[at] for row in rows if row[-1] == "predicted") == ["128"] * 2 + ["64"] * 2


@pytest.mark.thorough
def test_a_sweep_without_a_file_has_the_same_cases(run_cli, tmp_path):
    words = HERE, "-m", "64:192:+64", "--algorithm", "summa,universal", "--mesh", "2x4,4x2"
    alone = rows_of(run_cli("simulate", *words, "--json"))
    ended = run_cli("sweep", "--simulate", *words, "--out", tmp_path / "out")
    assert ended.returncode == 0
    key = lambda row: (row.m, row.algorithm, row.mesh, row.best_s)
    kept = sorted(map(key, read_csv(tmp_path / "out" / "records.csv")), key=str)
    found = [(r["m"], r["algorithm"], r["mesh"], r["best_s"]) for r in alone]
    assert kept == sorted(found, key=str) and len(kept) == 9  # universal has no mesh
    with_file = run_cli(
        "sweep", "square", "--simulate", HERE, "-m", 64, "--preset", "row", "--json"
    )
    rows = [row for table in rows_of(with_file)["tables"] for row in table["rows"]]
    assert {row["m"] for row in rows} == {64} and len(rows) > 3


@pytest.mark.parametrize(
    "words, named",
    {
        "-m 512:8192:*1": "at least 2",
        "-m 512:1:*2": "1 to 100000 values",
        "-m a:b:c": "FIRST:LAST",
        "-m 1:1000000000:+1": "1 to 100000 values",
        "-m 8,-4": "at least 1",
        "-m ,": "at least 1",
        "-m 8,٣": "at least 1",
        "-m 1:1000:+1 -n 1:1000:+1 -k 8": "1000000 cases",
        "-m 8 --threads 1,x": "threads",
        "-m 8 --preset row,rwo": "row",
        "-m 8,16 -o chnk=4": "chnk",
        "-m 8,16 --timeline x.json": "--timeline",
        "-m 8,16 --csv no/x.csv": "no/x.csv",
        "-m 8,16 --brief --format md": "--brief",
        "-m 8,16 --format xml": "--format",
        "-m 8,16 -p 1,2": "--ranks",
    }.items(),
)
@pytest.mark.parametrize(
    "command", [f"simulate {HERE}", pytest.param("run -p 2", marks=pytest.mark.thorough)]
)
def test_wrong_values_are_refused_before_any_work(run_cli, command, words, named, tmp_path):
    ended = run_cli(*command.split(), *words.split())
    assert ended.returncode == 2 and named in ended.stderr and ended.stdout == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.mpi
@pytest.mark.thorough
def test_a_run_of_several_values_verifies_each_and_keeps_nothing(drbench, tmp_path, fault):
    words = "run -p 2 -m 24,40 --algorithm cannon,universal --threads 1,2 --budget 0 --iters 1"
    ended = drbench(*words.split(), "--csv", "rows.csv", "--format", "csv", env=fault("in a hurry"))
    assert ended.returncode == 3, ended.stderr  # cannon needs a square number of ranks
    rows = list(csv.DictReader(ended.stdout.splitlines()))
    found = {(row["m"], row["threads"], row["algorithm"], row["status"]) for row in rows}
    outcomes = [("cannon", "unsupported"), ("universal", "ok")]
    grid = itertools.product(("24", "40"), "12", outcomes)
    assert found == {(m, t, *outcome) for m, t, outcome in grid} and len(rows) == len(found)
    records = read_csv(tmp_path / "rows.csv")
    assert [row.status for row in records].count("ok") == 4 and len(records) == 8
    assert os.listdir(tmp_path) == ["rows.csv"]


@pytest.mark.mpi
@pytest.mark.thorough
def test_ranks_of_a_launcher_run_several_values(under_mpiexec, tmp_path, fault):
    words = "run -m 16:64:*2 --budget 0 --iters 1 --json".split()
    ended = under_mpiexec(2, *words, env=fault("in a hurry"))
    assert ended.codes == (0, 0), ended.stderr
    rows = json.loads(ended.stdout)
    assert [(row["m"], row["ranks"], row["error"]) for row in rows] == [
        (m, 2, 0) for m in (16, 32, 64)
    ]
    assert [x for x in os.listdir(tmp_path) if not x.startswith("codes-")] == []
