"""Options with several values: ``run``, ``simulate`` and ``sweep`` without a file make one table of
the same cases as one command for each."""

import csv
import itertools
import json
import os
import shlex

import pytest
from made_up import made_up, of_universal

from drbench.errors import UsageError
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.host.python import PYTHON
from drbench.launch.views.contest import scan_table
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


def test_a_scan_has_the_element_type_of_the_machine(run_cli, tmp_path):
    for words in (["simulate", "--json"], ["sweep", "--simulate", "--stream", "--out", tmp_path]):
        ended = run_cli(*words, *"-m 64,128 -p 2 --machine mi300x".split())
        assert ended.returncode == 0 and "bfloat16" in ended.stdout, ended.stderr
        assert "float32" not in ended.stdout.replace("bfloat16:float32", "")


def test_rows_of_a_case_that_is_alone_in_its_problem_have_what_varies():
    """The other case of the second problem has failed."""
    runs = [of_universal(m=m, threads=threads) for m, threads in ((8, 1), (8, 2), (9, 1))]
    late = made_up(m=9, threads=2, status="timeout")
    table = scan_table([(run, {1: run}) for run in (*runs, late)])
    assert sorted((row["m"], row["threads"]) for row in table.rows) == [(8, 1), (8, 2), (9, 1)]


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
        "-m 8,-4": "drbench: -m: must be a whole number of at least 1",
        "-m ,": "at least 1",
        "-m 8,٣": "at least 1",
        "-m 1:1000:+1 -n 1:1000:+1 -k 8": "1000000 cases",
        "-m 8 --threads 1,x": "drbench: --threads: must be",
        "-m 8 --preset row,rwo": "drbench: -o preset: unknown preset 'rwo'",
        "-m 8 --algorithm summa,suma": "drbench: -o algorithm: no algorithm 'suma'",
        "-m 8,16 -o chnk=4": "chnk",
        "-m 8,16 --timeline x.json": "--timeline",
        "-m 8,16 --csv no/x.csv": "no/x.csv",
        "-m 8,16 --brief --format md": "--brief",
        "-m 8,16 --format xml": "--format",
        "-m 8,16 -p 1,2": "--ranks",
        "-m 8,16 -o pool=1Mi,2Mi": "-o pool: records do not tell cases apart",
    }.items(),
)
@pytest.mark.parametrize(
    "command", [f"simulate {HERE}", pytest.param("run -p 2", marks=pytest.mark.thorough)]
)
def test_wrong_values_are_refused_before_any_work(run_cli, command, words, named, tmp_path):
    ended = run_cli(*command.split(), *words.split())
    assert ended.returncode == 2 and named in ended.stderr and ended.stdout == ""
    assert os.listdir(tmp_path) == []


def test_threads_of_a_model_of_gpus_are_refused_in_scans_too(run_cli, tmp_path):
    for command in ("simulate", "sweep --simulate"):
        ended = run_cli(*command.split(), HERE, "-m", "8,16", "--threads", 2)
        assert ended.returncode == 2 and "--threads applies to machines" in ended.stderr


def test_a_machine_that_gives_a_scan_nothing_is_refused_and_one_that_plans_is_used(
    run_cli, monkeypatch, tmp_path
):
    text = '[model]\nname = "box"\nbase = "h100x8.toml"\n[peak.float32]\n'
    (tmp_path / "box.toml").write_text(f'{text}core_gflops = 90.0\nsource = "made up"\n')
    asked = []
    monkeypatch.setattr("drbench.launch.commands.sweep.scan", lambda *x, **how: asked.append(how))
    words = "run -p 2 -m 8,16 --machine".split()
    ended = run_cli(*words, "h100x8")
    assert ended.returncode == 2 and "neither its times nor its peak" in ended.stderr
    assert run_cli(*words, tmp_path / "box.toml").returncode == 0
    assert run_cli(*words, f"{tmp_path}/box.toml,fence_s=2e-6").returncode == 0
    assert (
        run_cli(*words, "h100x8", "--algorithm", "dtensor", "-o", "device=cpu,cuda").returncode == 0
    )
    assert run_cli(*words, "h100x8,fence_s=2e-6", "-o", "schedule=cost,direct").returncode == 0
    assert [how["peak"] for how in asked] == [f"{tmp_path}/box.toml"] * 2 + ["h100x8", None]
    keys = [("m", "8"), ("schedule", "cost,direct"), ("machine", '["h100x8,fence_s=2e-6"]')]
    cases = load_sweep("scan", 2, overrides=keys).cases
    assert [case.machine for case in cases] == ["h100x8,fence_s=2e-6", None]
    for machines, named in (("h100x8,lumic", "planned by h100x8"), ("box", "-o machine: no mach")):
        with pytest.raises(UsageError, match=named):
            load_sweep("scan", 2, overrides=[("m", "8"), ("machine", machines)])


@pytest.mark.mpi
@pytest.mark.thorough
def test_records_of_a_scan_are_kept_where_its_table_cannot_be_printed(process, tmp_path, fault):
    words = [*PYTHON, "-m", "drbench", *"run -p 2 -m 8,16 --budget 0 --csv rows.csv".split()]
    text = f"exec {shlex.join(words)} > /dev/full"
    ended = process("sh", "-c", text, env=fault("in a hurry"))
    assert ended.returncode == 5
    assert [row.m for row in read_csv(tmp_path / "rows.csv")] == [8, 16]


@pytest.mark.mpi
@pytest.mark.thorough
def test_a_run_of_several_values_verifies_each_and_keeps_nothing(drbench, tmp_path, fault):
    words = "run -p 2 -m 24,40 --algorithm cannon,universal --threads 1,2 --budget 0 --iters 1"
    ended = drbench(*words.split(), "--csv", "rows.csv", "--format", "csv", env=fault("in a hurry"))
    assert ended.returncode == 3, ended.stderr  # cannon needs a square number of ranks
    rows = list(csv.DictReader(ended.stdout.splitlines()))
    (tmp_path / "printed.csv").write_text(ended.stdout)
    assert len(read_csv(tmp_path / "printed.csv")) == len(rows)
    (tmp_path / "printed.csv").unlink()
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
