"""The artifact check: committed records pass; damaged or changed ones fail."""

import csv
import json
import os
import re
import shutil
from dataclasses import replace
from functools import partial

import click
import pytest
from command_line import COMMANDS

from drbench.launch.commands import artifact as command
from drbench.launch.commands.cli import main
from drbench.launch.host.files import ROOT
from drbench.launch.papers import artifact, ledger
from drbench.launch.papers.__main__ import write_claims, write_studies
from drbench.launch.papers.artifact import CheckSettings, check_artifact, program
from drbench.launch.papers.claims import Claim, Paper
from drbench.launch.papers.ledger import ROWS

KNOWN = "NOT REPRODUCED (documented)"


@pytest.fixture
def place(tmp_path):
    """The committed records as links, which ``rewrite`` replaces."""
    ignored = shutil.ignore_patterns("here")
    shutil.copytree(
        ROOT / "results", tmp_path / "results", ignore=ignored, copy_function=os.symlink
    )
    found = CheckSettings(tmp_path / "out", results=tmp_path / "results")
    found.out.mkdir()
    return found


def words(place, *only):
    return {check.name: check.verdict for check in check_artifact(replace(place, only=only))}


def check_command(line):
    line = re.sub(r"python plots/plot_(\w+)\.py", r"drbench plot \1", line)
    _, name, *words = line.partition(" < ")[0].split()
    command = COMMANDS[name]
    command.make_parser(click.Context(command)).parse_args(words)  # refuses unknown options


@pytest.mark.papers
def test_every_claim_has_its_documented_verdict_and_every_shown_command_exists(capsys, tmp_path):
    only = "R.rows,R.mlp1-h100x8,P,M,F,T,S"
    assert main(["artifact", "--only", only, "--json", "--out", str(tmp_path)]) == 0
    checks = json.loads(capsys.readouterr().out)
    found = {check["name"]: check["verdict"] for check in checks}
    assert {"PASS", KNOWN} == set(found.values())
    assert (found["P7"], found["R.claims"]) == (KNOWN, "PASS") and len(found) == 96 + 3
    for check in checks:
        assert check["expected"] and check["found"]
        check_command(check["command"])
        if check["tolerance"]:  # of a claim
            how = "measured" if check["name"][0] == "S" else ("simulated", "arithmetic")
            assert check["source"].startswith(how) and ", committed: " in check["source"]


@pytest.mark.papers
def test_claims_that_are_written_anew_are_those_that_are_committed(tmp_path):
    write_claims(tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_text() == (ROOT / "results/claims.csv").read_text()


@pytest.mark.papers
def test_rows_of_a_study_are_written_to_the_given_folder(tmp_path):
    write_studies(tmp_path, ["slice4x4"])
    (made,) = (path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv"))
    assert (ROOT / "results" / made).read_text() == (tmp_path / made).read_text()


def rewrite(path, change):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    rows = change(rows) or rows
    path.unlink()
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("column", ["best_s", "get_bytes"])
def test_a_simulated_record_that_was_changed_fails(place, column):
    path, name = place.results / "simulated/mlp1-h100x8.csv", "R.mlp1-h100x8"
    rewrite(path, lambda rows: [row for row in rows if row["preset"] == "column"][:3])
    assert words(place, name) == {name: "PASS"}
    rewrite(path, lambda rows: rows[1].update({column: "1" + rows[1][column]}))
    assert words(place, name) == {name: "FAIL"}


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
def test_a_measured_record_that_makes_no_sense_fails(place, change):
    for path in place.results.glob("measured/*/*"):  # the files of one sweep are enough
        if path.is_dir() and not path.name.startswith("mlp1-h"):
            shutil.rmtree(path)
    path = sorted(place.results.glob("measured/*/mlp1-h*/records.csv"))[0]
    assert words(place, "R.rows") == {"R.rows": "PASS"}
    rewrite(path, lambda rows: rows[3].update(change))
    assert words(place, "R.rows") == {"R.rows": "FAIL"}


@pytest.mark.parametrize(
    "claim, name, column, text",
    [
        ("S10", "performance/overlap.csv", "ratio", "1.11"),
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


def test_a_prediction_that_became_worse_fails(place, monkeypatch):
    """DTensor's published times are predicted 6 % longer; and committed predictions differ from
    those of today."""
    path, group = place.results / "ledger.csv", "dtensor-h100"
    monkeypatch.setattr(ledger, "GROUPS", {group: ledger.GROUPS[group]})  # one is like another
    rows = [row for row in ROWS.read([path]) if row.group == group]
    path.unlink()
    for longer, word in (1.0, "PASS"), (1.06, "FAIL"):
        ROWS.write(path, [row._replace(predicted=longer * row.predicted) for row in rows])
        found = words(place, f"A.{group}", "R.ledger")
        assert found == dict.fromkeys(["R.ledger", f"A.{group}", "R.claims"], word)


#: Claims about one number: with 3 one holds, and why the other does not is documented.
CLAIMS = [
    Claim("Z1", "it is three", lambda it: (it > 2, f"it {it}"), "3", "it > 2"),
    Claim("Z2", "it is four", lambda it: (it > 3, f"it {it}"), "4", "it > 3", see="page.md#z2"),
]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """``own(it=3, **committed)``: records of one number and the committed verdicts of the claims
    about it, of Z1 and Z2 by default."""

    def make(it=3, claims=CLAIMS, **committed):
        paper = Paper("a paper of one's own", claims, lambda folder: it)
        monkeypatch.setattr(artifact, "papers", lambda: {"own": paper})
        found = CheckSettings(tmp_path / "out", results=tmp_path / "results")
        found.results.mkdir()
        rows = {"Z1": "PASS,it 3", "Z2": "KNOWN,it 3"} | committed
        text = "".join(f"{name},{row}\n" for name, row in rows.items())
        (found.results / "claims.csv").write_text(f"claim,verdict,ours\n{text}")
        monkeypatch.setattr(command, "CheckSettings", partial(CheckSettings, results=found.results))
        return found

    return make


@pytest.mark.parametrize(
    "row, word", [("KNOWN,it 3", "PASS"), ("PASS,it 3", "FAIL"), ("KNOWN,it 5", "FAIL")]
)
def test_verdicts_are_compared_with_the_committed_ones_alone_or_together(own, row, word):
    place = own(Z2=row)
    assert words(place, "Z2") == {"Z2": "KNOWN", "R.claims": word}
    assert words(place, "Z") == {"Z1": "PASS", "Z2": "KNOWN", "R.claims": word}
    assert words(place, "R.claims") == {"R.claims": word}


def test_a_claim_that_holds_contrary_to_the_documentation_fails(own):
    assert words(own(it=4), "Z2")["Z2"] == "FAIL"


def test_a_claim_that_proves_little_says_why_and_is_counted_apart(own, capsys, tmp_path):
    little = replace(CLAIMS[0], little="the limit is wide")
    own(claims=[little, replace(CLAIMS[1], why="it is three")])
    assert main(["artifact", "--only", "Z", "--out", str(tmp_path / "out")]) == 0
    described = capsys.readouterr().out
    assert "little    the limit is wide\n" in described
    assert "why       it is three page.md#z2\n" in described
    assert (
        "claims, prove little  1 PASS" in described and "claims, simulated     0 PASS" in described
    )


def test_a_claim_without_records_or_without_a_check_fails(own):
    lost = Claim("Z3", "its row is missing", lambda it: {}[it])
    place = own(claims=[CLAIMS[0], lost], Z99="PASS,it 3")
    *found, committed = check_artifact(replace(place, only=("Z",)))
    assert [(check.name, check.verdict) for check in found] == [("Z1", "PASS"), ("Z3", "FAIL")]
    assert committed.verdict == "FAIL" and "there is no Z99" in committed.found


def test_the_command_prints_the_expected_result_and_exits_with_1_for_a_fail(capsys, own, tmp_path):
    own()
    out = ["--out", str(tmp_path / "out")]
    assert main(["artifact", "--only", "Z1,Z2", "--quick", *out]) == 0
    described, progress = capsys.readouterr()
    assert progress.startswith("Every claim")
    assert described.startswith("PASS  Z1 ") and f"\n{KNOWN} Z2 " in described
    assert f"2 PASS, 0 FAIL, 1 {KNOWN}" in described
    assert "drbench artifact --only Z1" in described and "page.md#z2" in described
    assert main(["artifact", "--only", "Z2", "--json", *out]) == 0
    check, _ = json.loads(capsys.readouterr().out)
    assert check["verdict"] == KNOWN
    for nothing in ("Q", "claim:Z1", "Z1.doctor"):
        assert main(["artifact", "--only", nothing, *out]) == 2
        assert nothing in capsys.readouterr().err


def test_a_claim_that_fails_is_in_the_table_and_decides_the_exit_code(capsys, own, tmp_path):
    own(it=2)
    table = tmp_path / "checks.csv"
    words = ["artifact", "--only", "Z1", "--json", "--csv", str(table), "--out", str(tmp_path)]
    assert main(words) == 1
    (check, _), read = json.loads(capsys.readouterr().out), csv.DictReader(table.open())
    assert check["verdict"] == next(read)["verdict"] == "FAIL" and check["found"] == "it 2"


@pytest.mark.parametrize(
    "only, found",
    [
        ("step1", "step1.doctor step1.auto step1.rma"),
        ("step4", "step4.mlp1 step4.mlp2"),
        ("step1.doctor,Z", "step1.doctor Z1 Z2"),
        ("step1.doctor,Z2", "step1.doctor Z2"),
    ],
)
def test_a_name_selects_a_step_or_a_claim(own, monkeypatch, only, found):
    monkeypatch.setattr(CheckSettings, "run", lambda self, line: check_command(line) or 0)
    names = [name for name in words(own(), *only.split(",")) if name != "R.claims"]
    assert names == found.split()


def test_without_committed_records_it_names_the_way_to_install_a_clone(tmp_path):
    with pytest.raises(artifact.MissingError, match="--editable"):
        words(CheckSettings(tmp_path, results=tmp_path / "results"))


@pytest.mark.mpi
def test_the_first_step_runs_cases_and_fails_where_they_do(tmp_path, monkeypatch, fault):
    for name, value in fault("in a hurry").items():
        monkeypatch.setenv(name, value)
    place = CheckSettings(tmp_path)
    assert words(place, "step1.rma") == {"step1.rma": "PASS"}
    broken = [
        program("step1.auto", "it breaks", "drbench run -p 2 -m 0"),
        program("X.gpu", "", "", "no GPU"),
    ]
    found = [each.check(place) for each in broken]
    assert [each.verdict for each in found] == ["FAIL", "SKIP"]
    assert [each.found for each in found] == ["exit code 2", "no GPU"]
