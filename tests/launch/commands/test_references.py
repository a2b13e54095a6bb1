"""References: bounds that are made from a sweep, and cases outside of them."""

import csv
import json
import os
import random

import pytest
from made_up import made_up, of_universal

from drbench.measure.record import RecordError
from drbench.measure.record_file import append_csv
from drbench.plots.select.records import frame
from drbench.plots.select.references import (
    FILES,
    add_references,
    judge_references,
    read_references,
)

SQUARE = "sweep square --simulate --machine h100x8 -p 2 -o preset=row -o replication=1".split()
SQUARE += "-o m=64 -o n=64 -o k=64 --out".split()


def run(m=64, time=1.0, percent=None, spread=0.0, **more):
    """A case that takes some time and reaches some percent, with intervals of this half width."""
    ends = {}
    for name, value in (("median{}_s", time), ("percent_of_gemm_only{}", percent)):
        if value:
            low, high = value * (1 - spread), value * (1 + spread)
            ends |= {name.format(x): y for x, y in (("", value), ("_low", low), ("_high", high))}
    return of_universal(m=m, best_s=time, samples_s=[time] * 6, **ends, **more)


def outcomes(path, *records):
    judged = judge_references(read_references(path, {row.label for row in records}), frame(records))
    return dict(
        zip(judged.case.str.extract(r"\bm=(\d+)", expand=False).astype(int), judged.outcome)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("quantity, tolerance", [(None, 0.0), ("gemm_only", 0.05), ("time", 2.0)])
def test_a_sweep_is_inside_its_own_bounds_and_one_beyond_the_tolerance_is_not(
    tmp_path, quantity, tolerance
):
    chance = random.Random(tolerance)
    values = [10 ** chance.uniform(-7, 5) for _ in range(20)]
    rows = lambda factor: [run(m, x * factor, x / factor) for m, x in enumerate(values, 1)]
    assert add_references(tmp_path / "x.csv", frame(rows(1)), quantity, tolerance) == 20
    for factor, outcome in (
        (1, "inside"),
        (0.5, "inside"),
        ((1 + tolerance) * 0.9999, "inside"),
        ((1 + tolerance) * 1.0001, "outside"),
    ):
        assert {*outcomes(tmp_path / "x.csv", *rows(factor)).values()} == {outcome}


def test_each_outcome_by_hand(tmp_path):
    path = tmp_path / "bounds.csv"
    cases = {
        # value, half of its interval, lower, upper
        1: (100.0, 0.0, 90.0, None),
        2: (89.0, 0.0, 90.0, None),
        3: (89.0, 0.02, 90.0, None),
        4: (111.0, 0.0, 90.0, 110.0),
        5: (111.0, 0.02, None, 110.0),
        6: (111.0, 0.005, None, 110.0),
        7: (100.0, 0.5, 101.0, 102.0),
    }
    add_references(path, frame([run(m, percent=50) for m in (*cases, 8, 9)]), None, 0)
    references = [
        x._replace(lower=cases[m][2], upper=cases[m][3]) if m in cases else x
        for m, x in enumerate(FILES.read([path]), 1)
    ]
    FILES.write(path, [*references, references[0]._replace(quantity="percent")])
    rows = [run(m, percent=value, spread=spread) for m, (value, spread, *_) in cases.items()]
    more = [run(8, 1.0), run(10), made_up(label="here", m=11, status="failed")]
    more.append(made_up(label="here", m=12, status="unsupported"))
    assert outcomes(path, *rows[1:], *more) == {
        1: "missing",
        2: "outside",
        3: "noise",
        4: "outside",
        5: "noise",
        6: "outside",
        7: "noise",
        8: "missing",
        9: "missing",
        10: "new",
        11: "failing",
        12: "new",
    }
    assert outcomes(path, run(2, percent=80, noisy=True))[2] == "noise"
    predicted = lambda percent: run(1, percent=percent, spread=0.5, mode="simulated")
    add_references(path, frame([predicted(90)]), None, 0)
    assert outcomes(path, predicted(80)) == {1: "outside"}


def test_a_case_that_failed_is_that_of_the_reference_that_agrees_with_what_is_known_of_it(tmp_path):
    """It does not know what drbench would have chosen."""
    path = tmp_path / "bounds.csv"
    add_references(path, frame([run(8, threads=1), run(9, threads=1), run(9, threads=2)]), None, 0)
    asked = {"label": "here", "algorithm": "universal", "n": 256, "k": 64, "status": "timeout"}
    late = [made_up(m=m, transport="auto", **asked) for m in (8, 9)]
    judged = judge_references(read_references(path, {"here"}), frame(late))
    outcomes = sorted(zip(judged.case.str.extract(r"\bm=(\d+)")[0].fillna("?"), judged.outcome))
    assert outcomes.count(("8", "failing")) == 1 and ("8", "missing") not in outcomes
    assert [x for _, x in outcomes].count("missing") == 2  # either could be that of m=9


@pytest.mark.thorough
def test_other_labels_stay_and_bad_rows_give_none(tmp_path):
    path = tmp_path / "bounds.csv"
    add = lambda *rows: add_references(path, frame(rows), None, 0.1)
    known = lambda: [(x.label, x.quantity, x.lower, x.upper) for x in FILES.read([path])]
    assert add(run(1, label="a"), run(2, label="b", percent=55)) == 2
    assert known() == [("a", "time", None, 1.1), ("b", "gemm_only", 50.0, None)]
    assert add(run(3, 2.0, label="a"), run(4, noisy=True), made_up(status="wrong")) == 1
    assert known() == [("b", "gemm_only", 50.0, None), ("a", "time", None, 2.2)]
    assert add(run(3, noisy=True, label="a")) == 0 and len(known()) == 2


@pytest.fixture
def bounds(run_cli, tmp_path):
    append_csv(tmp_path / "old.csv", run(64, percent=90), run(128, percent=80))
    ended = run_cli("compare", tmp_path / "old.csv", "--as-reference", tmp_path / "bounds.csv")
    assert ended.returncode == 0 and "2 of 2 rows" in ended.stdout
    return tmp_path / "bounds.csv"


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordError, match="is no file"):
        add_references(tmp_path / "pipe", frame([run()]), None, 0.1)
    assert (tmp_path / "pipe").is_fifo()


def test_compare_exits_1_with_the_cases_that_are_outside(run_cli, tmp_path, bounds):
    def check(*rows, allow=()):
        (tmp_path / "new.csv").unlink(missing_ok=True)
        append_csv(tmp_path / "new.csv", *rows)
        return run_cli("compare", tmp_path / "new.csv", "--expect", bounds, *allow)

    slower = [run(64, percent=90), run(128, percent=70)]
    ended = check(*slower)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("1 inside, 1 outside of 2 cases.")
    assert ended.stdout.endswith("failed: 1 outside\n") and "m=64" not in ended.stdout
    ended = check(run(64, percent=90), run(256, 0.5))  # without a quantity: its time
    assert (ended.returncode, ended.stderr) == (1, "") and "500 ms" in ended.stdout
    rows = json.loads(check(*slower, allow=["--csv", tmp_path / "x.csv", "--json"]).stdout)
    assert [(row["outcome"], row["value"], row["upper"]) for row in rows] == [
        ("outside", 70.0, None),
        ("inside", 90.0, None),
    ]
    assert [row["lower"] for row in csv.DictReader((tmp_path / "x.csv").open())] == [
        "76.1905",
        "85.7143",
    ]
    noisy = [run(m, percent=10, noisy=True) for m in (64, 128)]
    for rows, word in ((slower[:1], "missing"), (noisy, "noisy")):
        ended = check(*rows)
        assert ended.returncode == 1 and f"(--allow {word})" in ended.stdout.splitlines()[-1]
        assert check(*rows, allow=["--allow", word]).returncode == 0
    new = check(run(64, percent=90), run(128, percent=80), run(32, percent=50))
    assert new.returncode == 0 and "1 new" in new.stdout
    bad = of_universal(m=128, status="failed")
    assert "failed: 1 failing" in check(run(64, percent=90), bad).stdout


@pytest.mark.thorough
def test_a_label_without_references_is_refused_before_the_sweep(run_cli, tmp_path, bounds):
    append_csv(tmp_path / "there.csv", run(label="there"))
    ended = run_cli("compare", tmp_path / "there.csv", "--expect", bounds)
    assert "here" in ended.refusal() and "there" in ended.refusal()
    assert "h100x8" in run_cli(*SQUARE, tmp_path / "x", "--expect", bounds).refusal()
    assert not (tmp_path / "x").exists()


def test_a_sweep_exits_1_outside_its_references(run_cli, tmp_path):
    out, path = tmp_path / "out", tmp_path / "bounds.csv"
    assert run_cli(*SQUARE, out).returncode == 0
    assert run_cli("compare", out, "--as-reference", path, "--quantity", "time").returncode == 0
    ended = run_cli(*SQUARE, out, "--expect", path)
    assert ended.returncode == 0 and "3 inside of 3 cases." in ended.stdout
    first, *others = FILES.read([path])
    FILES.write(path, [first._replace(upper=first.upper / 2), *others])
    ended = run_cli(*SQUARE, out, "--expect", path, "--json")
    assert ended.returncode == 1 and "failed: 1 outside" in ended.stderr
    assert len(json.loads(ended.stdout)["tables"]) == 1
    ended = run_cli(*SQUARE, out, "--expect", path, "--format", "csv")
    rows = [*csv.DictReader(ended.stdout.splitlines())]
    assert ended.returncode == 1 and len(rows) == 3 and all(row["median_s"] for row in rows)
    ended = run_cli("compare", out, "--expect", path, "--format", "csv")
    rows = [*csv.DictReader(ended.stdout.splitlines())]
    assert sorted(row["outcome"] for row in rows) == ["inside", "inside", "outside"]


@pytest.mark.mpi
@pytest.mark.thorough
def test_every_rank_of_a_launch_exits_1(under_mpiexec, tmp_path, mpich):
    words = "sweep square -o preset=row -o replication=1 -o m=64 -o n=64 -o k=64".split()
    words += "-o budget=0 -o iters=1 --out out".split()
    ended = under_mpiexec(2, *words, timeout=60)
    assert ended.codes == (0, 0), ended.stderr
    lines = "label,quantity,lower,upper,case\nhere,time,,1,case\n"
    (tmp_path / "bounds.csv").write_text(lines)
    ended = under_mpiexec(2, *words, "--expect", "bounds.csv", timeout=60)
    assert ended.codes == (1, 1) and ended.stdout.count("failed: 1 missing") == 1
