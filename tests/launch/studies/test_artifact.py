"""The artifact check: what is committed passes; what is damaged or flipped fails."""

import csv
import json
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from launch.commands.cli import main
from launch.host.files import ROOT
from launch.studies import artifact, measured_claims, slicing_claims
from launch.studies.artifact import Place, accept, check_artifact
from launch.studies.overlap import claims as overlap_claims
from launch.studies.verdicts import Claim, Verdict

RECORDS = ("R.files", "R.rows", "R.mlp1-h100x8", "P", "M", "S")


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
    accept_sums(place)
    return place


@pytest.fixture(autouse=True, scope="module")
def predicted_once():
    """Predictions of the same rows on the same machine are made once for all tests."""
    known, predict = {}, measured_claims.with_predictions

    def with_predictions(measured, machine):
        key = measured.to_csv(), repr(machine)
        if key not in known:
            known[key] = predict(measured, machine)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_claims, "with_predictions", with_predictions)
        yield


def words(place, *only):
    return {check.name: check.verdict for check in check_artifact(replace(place, only=only))}


def test_what_is_committed_passes_or_is_known_and_nothing_is_skipped():
    found = words(Place(ROOT / "nowhere"), *RECORDS)
    assert {"PASS", "KNOWN"} == set(found.values()), [n for n, v in found.items() if v == "FAIL"]
    assert {"P7", "P10", "M2"} <= {name for name, verdict in found.items() if verdict == "KNOWN"}
    assert {*slicing_claims.CLAIMS, "M1", "S1"} <= found.keys()


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
    found = words(place, "R.files", "R.mlp1-h100x8", "P")
    assert [found[name] for name in ("R.files", "R.mlp1-h100x8", "P5", "P6")] == ["FAIL"] * 4
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
def test_a_measured_record_that_makes_no_sense_fails_even_with_new_sums(few, change):
    path = sorted(few.results.glob("measured/*/mlp1-h*/records.csv"))[0]
    assert words(few, "R.files", "R.rows") == {"R.files": "PASS", "R.rows": "PASS"}
    rewrite(path, lambda rows: rows[3].update(change))
    accept_sums(few)
    assert words(few, "R.files", "R.rows") == {"R.files": "PASS", "R.rows": "FAIL"}


def accept_sums(place):
    lines = (f"{digest}  {name}\n" for name, digest in artifact._sums(place.results).items())
    (place.results / artifact.SUMS).write_text("".join(lines))


def test_a_file_that_is_missing_or_new_fails(few):
    (few.results / "published/h100.csv").rename(few.results / "published/h200.csv")
    (check,) = check_artifact(replace(few, only=("R.files",)))
    assert check.verdict == "FAIL"
    assert check.measured == "differ: published/h100.csv, published/h200.csv"


@pytest.mark.parametrize(
    "claim, name, column, text",
    [
        ("S4", "performance/one_node.csv", "percent_of_roof", "60"),
        ("S9", "performance/remote.csv", "percent_of_roof", "79.9"),
        ("S10", "performance/overlap.csv", "time_over_max", "1.11"),
        ("S11", "performance/planning.csv", "most_s", "0.4"),
        ("S12", "peers-p2/records.csv", "median_s", "0.001"),
        ("S2", "model/throttled/measured.csv", "median_s", "0.001"),
        ("S1", "model/rma/measured.csv", "median_s", "0.001"),
    ],
)
def test_a_measurement_that_misses_its_bar_fails(place, claim, name, column, text):
    def every_second(rows):
        for row in rows[::2]:
            row[column] = text

    rewrite(place.results / "measured/epyc-2core" / name, every_second)
    assert words(place, claim) == {claim: "FAIL"}


@pytest.mark.parametrize("claim", ["P1", "P7"])
def test_a_claim_that_flips_fails_whichever_way(place, monkeypatch, claim):
    usual = slicing_claims.CLAIMS[claim]

    def flipped(figures):
        holds, ours = usual.check(figures)
        return not holds, ours

    monkeypatch.setitem(slicing_claims.CLAIMS, claim, replace(usual, check=flipped))
    found = words(place, "P")
    assert found.pop(claim) == "FAIL" and set(found.values()) <= {"PASS", "KNOWN"}


@pytest.mark.parametrize(
    "column, text", [("verdict", "PASS"), ("ours", "mean % of peak: Column 70.0")]
)
def test_a_committed_verdict_that_is_not_what_records_say_fails(place, column, text):
    rewrite(place.results / "claims.csv", lambda rows: claim_of(rows, "P7").update({column: text}))
    assert words(place, "P7") == {"P7": "FAIL"}


def claim_of(rows, name):
    return next(row for row in rows if row["claim"] == name)


def test_a_claim_without_records_or_without_a_check_fails(place):
    def two_more(rows):
        rows[0]["claim"] = "P99"

    rewrite(place.results / "claims.csv", two_more)
    (place.results / "simulated/mlp1-pvc12.csv").unlink()
    found = words(place, "P")
    assert [found[name] for name in ("P1", "P2", "P99")] == ["FAIL"] * 3 and found["P6"] == "PASS"


def test_numbers_are_the_same_within_a_percent_or_a_last_digit():
    known = {"verdict": "KNOWN", "ours": "Column 83.0, Inner 81.7; 3 of 4"}
    for numbers, verdict in (
        ("Column 83.4, Inner 81.7; 3 of 4", "KNOWN"),
        ("Column 84.0, Inner 81.7; 3 of 4", "FAIL"),
        ("Inner 83.0, Column 81.7; 3 of 4", "FAIL"),
    ):
        found = artifact.held(Verdict("P7", "", False, numbers, "page.md#p7"), known, "")
        assert found.verdict == verdict


def test_accepting_makes_all_of_it_pass_again(place):
    rewrite(place.results / "claims.csv", lambda rows: rows.pop())
    found = words(place, "R.files", "S12")
    assert found == {"R.files": "FAIL", "S12": "FAIL"}
    accept(place.results)
    assert "FAIL" not in words(place, "R.files", "P", "M", "S").values()


def test_the_command_says_what_was_expected_and_exits_with_1_for_a_fail(
    capsys, monkeypatch, tmp_path
):
    out = ["--out", str(tmp_path)]
    assert main(["artifact", "--only", "P1,P7", "--quick", *out]) == 0
    said = capsys.readouterr().out
    assert (
        said.startswith("PASS  P1 ")
        and "KNOWN P7 " in said
        and "1 PASS, 0 FAIL, 1 NOT REPRODUCED (documented)" in said
    )
    assert "drbench paper check-claims results/simulated" in said and "reproduction.md#why" in said
    monkeypatch.setitem(slicing_claims.CLAIMS, "P1", Claim("it", lambda figures: (False, "no")))
    table = tmp_path / "checks.csv"
    assert main(["artifact", "--only", "P1", "--json", "--csv", str(table), *out]) == 1
    (check,) = json.loads(capsys.readouterr().out)
    assert check["verdict"] == "FAIL" and check["measured"] == "FAIL: no"
    with open(table, newline="") as file:
        assert next(csv.DictReader(file))["verdict"] == "FAIL"
    for nothing in ("Q", "claim:R", "claim:T1.doctor"):
        assert main(["artifact", "--only", nothing, *out]) == 2
        assert nothing in capsys.readouterr().err


@pytest.mark.parametrize(
    "only, found",
    [
        ("T1", "T1.doctor T1.auto T1.rma"),
        ("claim:T1", "T1"),
        ("T5", "T5"),
        (
            "T1.doctor,claim:F,claim:T2",
            "T1.doctor F1 F2 F3 F4 F5 F6 F7 F9 F10 F11 F12 F13 T2",
        ),
        ("claim:T", " ".join([*overlap_claims.CLAIMS][[*overlap_claims.CLAIMS].index("T1") :])),
    ],
)
def test_a_step_and_a_claim_of_one_name_are_told_apart(tmp_path, monkeypatch, only, found):
    done = subprocess.CompletedProcess([], 0, "{}", "")
    monkeypatch.setattr(Place, "run", lambda self, *words, **files: done)
    assert list(words(Place(tmp_path), *only.split(","))) == found.split()


def test_all_claims_are_asked_for_at_once_and_a_letter_of_both_is_the_steps(tmp_path, monkeypatch):
    asked = []
    named = {
        (lambda place, name=step.__name__: asked.append((name, place.only)) or ()): names
        for step, names in artifact.STEPS.items()
        if step is not artifact.claims
    }
    noted = lambda place: asked.append(("claims", place.only)) or ()
    monkeypatch.setattr(artifact, "claims", noted)
    monkeypatch.setattr(artifact, "STEPS", named | {noted: ("P", "M", "S", "F", "T")})
    for only in ("T", "claim:", "S"):
        words(Place(tmp_path), only)
    steps = ["setup", "launching", "experiments"]
    assert asked == [*((name, ("T",)) for name in steps), ("claims", ("",)), ("claims", ("S",))]


def test_without_committed_records_it_says_where_to_go(tmp_path):
    with pytest.raises(artifact.MissingError, match="Clone the repository"):
        words(Place(tmp_path, results=tmp_path / "results"))


def test_a_step_that_breaks_is_a_fail_and_the_next_are_checked(few):
    (few.results / "simulated/tpuv4-llm/weak.csv").write_text("nonsense\n")
    found = words(few, "R.rows", "M")
    assert found["R.rows"] == "PASS" and "FAIL" in found.values()


@pytest.mark.mpi
def test_the_first_step_runs_cases_and_fails_where_they_do(tmp_path, monkeypatch, fault):
    for name, value in fault("in a hurry").items():
        monkeypatch.setenv(name, value)
    place = Place(tmp_path)
    assert words(place, "T1.") == dict.fromkeys(["T1.doctor", "T1.auto", "T1.rma"], "PASS")
    broken = subprocess.CompletedProcess([], 5, "", "drbench: it broke\n")
    monkeypatch.setattr(Place, "run", lambda self, *words, **files: broken)
    assert set(words(place, "T1.").values()) == {"FAIL"}


def test_what_is_made_lies_where_the_command_was_given(tmp_path, monkeypatch):
    """Programs run in the checkout, wherever that is."""
    given = []

    def done(self, *words, **files):
        given.extend(words)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(Place, "run", done)
    monkeypatch.chdir(tmp_path)
    words(Place(Path("art")), "T2")
    places = [Path(word) for before, word in pairwise(given) if before == "--out"]
    assert places and all(place.is_relative_to(tmp_path / "art") for place in places)
