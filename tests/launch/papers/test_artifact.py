"""The artifact check: committed records pass; damaged or changed ones fail."""

import csv
import json
import shutil
from dataclasses import replace

import click
import pytest
from command_line import COMMANDS

from launch.commands.cli import main
from launch.host.files import ROOT
from launch.papers import artifact, ledger, slicing
from launch.papers.__main__ import write_claims, write_studies
from launch.papers.artifact import Place, check_artifact, program
from launch.papers.ledger import ROWS

RECORDS = ("R.rows", "R.mlp1-h100x8", "P", "M", "F", "T", "S")


@pytest.fixture
def place(tmp_path):
    """A copy of the committed records."""
    shutil.copytree(
        ROOT / "results", tmp_path / "results", ignore=shutil.ignore_patterns("here", "*.pdf")
    )
    found = Place(tmp_path / "out", results=tmp_path / "results")
    found.out.mkdir()
    return found


@pytest.fixture
def few(place):
    """The same with the measured records of one sweep alone: each file is checked by itself."""
    for path in sorted(place.results.glob("measured/*/*")):
        if path.is_dir() and not path.name.startswith("mlp1-h"):
            shutil.rmtree(path)
    return place


def words(place, *only):
    return {check.name: check.verdict for check in check_artifact(replace(place, only=only))}


def check_command(line):
    _, name, *words = line.split()
    command = COMMANDS[name]
    command.make_parser(click.Context(command)).parse_args(words)  # refuses unknown options


def test_committed_records_pass_or_are_known_failures_and_every_shown_command_exists():
    checks = list(check_artifact(Place(ROOT / "nowhere", only=RECORDS)))
    found = {check.name: check.verdict for check in checks}
    assert {"PASS", "KNOWN"} == set(found.values()), [n for n, v in found.items() if v == "FAIL"]
    assert (found["P7"], found["R.claims"]) == ("KNOWN", "PASS") and len(found) == 79 + 3
    assert words(Place(ROOT / "nowhere"), "R.claims") == {"R.claims": "PASS"}
    for check in checks:
        assert check.expected and check.found
        check_command(check.command)
        if check.tolerance:  # of a claim
            how = "measured" if check.name[0] == "S" else ("simulated", "arithmetic")
            assert check.source.startswith(how) and ", committed: " in check.source


def rewrite(path, change):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def test_a_simulated_record_that_was_changed_fails_and_so_do_its_claims(place):
    def slower(rows):
        for row in rows:
            if row["preset"] == "column":
                row["best_s"] = row["median_s"] = str(2 * float(row["best_s"]))
                row["percent_of_peak"] = str(float(row["percent_of_peak"]) / 2)

    rewrite(place.results / "simulated/mlp1-h100x8.csv", slower)
    found = words(place, "R.mlp1-h100x8", "P")
    assert [found[name] for name in ("R.mlp1-h100x8", "P6", "R.claims")] == ["FAIL"] * 3
    assert found["P1"] == "PASS"  # of the other machine


@pytest.mark.parametrize(
    "change",
    [
        {"error": "1.0"},
        {"status": "wrong", "reason": "C is wrong"},
        {"median_s": "1e-9"},
        {"m": "many"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_measured_record_that_makes_no_sense_fails(few, change):
    path = sorted(few.results.glob("measured/*/mlp1-h*/records.csv"))[0]
    assert words(few, "R.rows") == {"R.rows": "PASS"}
    rewrite(path, lambda rows: rows[3].update(change))
    assert words(few, "R.rows") == {"R.rows": "FAIL"}


@pytest.mark.parametrize(
    "claim, name, column, text",
    [
        ("S10", "performance/overlap.csv", "time_over_max", "1.11"),
        ("S11", "performance/planning.csv", "most_s", "0.4"),
        ("S12", "peers-p2/records.csv", "median_s", "0.001"),
        ("S1", "../../ledger.csv", "value", "0.001"),
    ],
)
def test_a_measurement_that_misses_its_limit_fails(place, claim, name, column, text):
    def every_second(rows):
        for row in rows[::2]:
            row[column] = text

    rewrite(place.results / "measured/epyc-2core" / name, every_second)
    assert "FAIL" in words(place, claim).values()


@pytest.mark.parametrize(
    "column, text", [("verdict", "PASS"), ("ours", "mean % of peak: Column 70.0")]
)
def test_a_committed_verdict_that_differs_from_the_records_fails(place, column, text):
    rewrite(
        place.results / "claims.csv",
        lambda rows: [row.update({column: text}) for row in rows if row["claim"] == "P7"],
    )
    assert words(place, "P7") == {"P7": "KNOWN", "R.claims": "FAIL"}


def test_a_claim_without_records_or_without_a_check_fails(place):
    rewrite(place.results / "claims.csv", lambda rows: rows[0].update(claim="P99"))
    (place.results / "simulated/mlp1-pvc12.csv").unlink()
    *found, committed = check_artifact(replace(place, only=("P",)))
    found = {check.name: check.verdict for check in found}
    assert (found["P1"], found["P6"]) == ("FAIL", "PASS")
    assert committed.verdict == "FAIL" and "there is no P99" in committed.found


def test_a_prediction_that_became_worse_fails(place, monkeypatch):
    """DTensor's published times are predicted 3 % longer; and committed predictions differ from
    those of today."""
    path, group = place.results / "ledger.csv", "dtensor-h100"
    monkeypatch.setattr(ledger, "GROUPS", {group: ledger.GROUPS[group]})  # one is like another
    rows = [row for row in ROWS.read([path]) if row.group == group]
    for longer, word in (1.0, "PASS"), (1.03, "FAIL"):
        ROWS.write(path, [row._replace(predicted=longer * row.predicted) for row in rows])
        found = words(place, f"A.{group}", "R.ledger")
        assert found == dict.fromkeys(["R.ledger", f"A.{group}", "R.claims"], word)


def test_claims_that_are_written_anew_are_those_that_are_committed(tmp_path):
    write_claims(tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_text() == (ROOT / "results/claims.csv").read_text()


def test_rows_of_a_study_are_written_to_the_given_folder(tmp_path):
    write_studies(tmp_path, ["slice4x4"])
    (made,) = (path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv"))
    assert (ROOT / "results" / made).read_text() == (tmp_path / made).read_text()


def test_the_command_prints_the_expected_result_and_exits_with_1_for_a_fail(
    capsys, monkeypatch, tmp_path
):
    out = ["--out", str(tmp_path)]
    assert main(["artifact", "--only", "P1,P7", "--quick", *out]) == 0
    described, progress = capsys.readouterr()
    assert progress.startswith("Every claim")
    assert (
        described.startswith("PASS  P1 ")
        and "\nNOT REPRODUCED (documented) P7 " in described
        and "2 PASS, 0 FAIL, 1 NOT REPRODUCED (documented)" in described
    )
    assert "drbench artifact --only P1" in described and "slicing.md#p4-p7-p9" in described
    assert main(["artifact", "--only", "P7", "--json", *out]) == 0
    check, _ = json.loads(capsys.readouterr().out)
    assert check["verdict"] == "NOT REPRODUCED (documented)"
    other = replace(slicing.CLAIMS[0], check=lambda *of: (False, "no"))
    monkeypatch.setattr(slicing, "PAPER", replace(slicing.PAPER, claims=[other]))
    table = tmp_path / "checks.csv"
    assert main(["artifact", "--only", "P1", "--json", "--csv", str(table), *out]) == 1
    check, _ = json.loads(capsys.readouterr().out)
    assert check["verdict"] == "FAIL" and check["found"] == "no"
    with open(table, newline="") as file:
        assert next(csv.DictReader(file))["verdict"] == "FAIL"
    for nothing in ("Q", "claim:T1", "T1.doctor"):
        assert main(["artifact", "--only", nothing, *out]) == 2
        assert nothing in capsys.readouterr().err


@pytest.mark.parametrize(
    "only, found",
    [
        ("step1", "step1.doctor step1.auto step1.rma"),
        (
            "step1.doctor,F,T2",
            "step1.doctor F1 F2 F3 F4 F5 F6 F7 F9 F10 F11 F12 F13 F14 F15 F16 T2",
        ),
    ],
)
def test_a_name_selects_a_step_or_a_claim(tmp_path, monkeypatch, only, found):
    monkeypatch.setattr(Place, "run", lambda self, line: check_command(line) or 0)
    names = [name for name in words(Place(tmp_path), *only.split(",")) if name != "R.claims"]
    assert names == found.split()


def test_without_committed_records_it_names_the_repository_to_clone(tmp_path):
    with pytest.raises(artifact.MissingError, match="Clone the repository"):
        words(Place(tmp_path, results=tmp_path / "results"))


@pytest.mark.mpi
def test_the_first_step_runs_cases_and_fails_where_they_do(tmp_path, monkeypatch, fault):
    for name, value in fault("in a hurry").items():
        monkeypatch.setenv(name, value)
    place = Place(tmp_path)
    assert words(place, "step1.rma") == {"step1.rma": "PASS"}
    broken = [
        program("step1.auto", "it breaks", "drbench run -p 2 -m 0"),
        program("X.gpu", "", "", "no GPU"),
    ]
    found = [each.check(place) for each in broken]
    assert [each.verdict for each in found] == ["FAIL", "SKIP"]
    assert [each.found for each in found] == ["exit code 2", "no GPU"]
