"""drbench simulate, calibrate and check-claims from the command line."""

import json
from pathlib import Path

import pytest

from drbench.record import read_csv

ROOT = Path(__file__).parents[2]
ONE = "simulate -m 1024 -n 4096 -k 1024 --machine pvc12 --preset column --stationary C".split()


def test_one_problem_is_one_record(say):
    record = say(*ONE, "--json").json()
    assert (record["mode"], record["machine"], record["ranks"], record["get_bytes"]) == ("simulated", "pvc12", 12, 11 * 1024 * 1024 * 4)
    assert 0 < record["percent_of_peak"] < 100


def test_a_changed_constant_changes_the_time(say):
    slow, fast = (say(*ONE, "--json", "--set", f"links.xe.bandwidth_bytes_per_s={rate}").json()["best_s"] for rate in ("1e9", "1e12"))
    assert slow > 2 * fast


def test_a_sweep_goes_on_where_it_stopped_and_says_what_it_left_out(say, tmp_path):
    cases = [{"m": 64, "n": 64, "k": 64, "a": "row", "b": "row", "c": c} for c in ("row", "column", "block")]
    path = tmp_path / "some.json"
    for count in (2, 3):
        path.write_text(json.dumps(cases[:count]))
        done = say("simulate", str(path), "--machine", "pvc12", "--out", str(tmp_path))
        assert done.returncode == 0
    assert "3 cases (3 ok), 1 of them new" in done.stdout and len(read_csv(tmp_path / "some-pvc12.csv")) == 3
    other = say("simulate", str(path), "--machine", "pvc12", "--out", str(tmp_path), "--set", "fence_s=1e-3")
    assert "another version of the model" in other.refusal()


@pytest.mark.parametrize("arguments, says", [
    (["simulate"], "-m is missing"),
    (["simulate", "mlp1"], "needs --out"),
    (["simulate", "mlp1", "--out", "x", "-m", "8"], "belong to one problem"),
    ([*ONE, "--out", "x"], "belongs to sweeps"),
    ([*ONE, "--set", "links.xe.speed=1"], "no constant 'speed'"),
    ([*ONE, "-p", "13"], "has 12 devices"),
    (["calibrate", "--out", "/no/such/folder/x.toml"], "no folder"),
])  # fmt: skip
def test_what_makes_no_sense_is_one_line_and_exit_2(say, arguments, says):
    assert says in say(*arguments).refusal()


def test_claims_are_checked_on_the_committed_rows(say):
    found = {verdict["claim"]: verdict["holds"] for verdict in say("check-claims", str(ROOT / "results/simulated"), "--json").json()}
    assert list(found) == "P1 P2 P2a P3 P4 P5 P6 P7 P8 P9 P10 P11 P12".split()
    assert found["P1"] and found["P11"] is None


def test_claims_without_records_are_undecided_and_say_so(say, tmp_path):
    say(*ONE, "--csv", str(tmp_path / "one.csv"))
    done = say("check-claims", str(tmp_path))
    assert done.returncode == 0 and done.stdout.count("undecided") == 14 and "records missing" in done.stdout


@pytest.mark.mpi
def test_a_calibrated_machine_predicts_and_other_sections_stay(drbench, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[launch]\nranks = 2\n\n[model]\nname = \"earlier\"\n\n[model.compute]\npeak_flops = 1.0\n")
    assert drbench("calibrate", "-p", "2", "--out", str(path), timeout=100).returncode == 0
    text = path.read_text()
    assert text.startswith("[launch]\nranks = 2\n") and "earlier" not in text
    record = drbench("simulate", "-m", "512", "-n", "512", "-k", "512", "-p", "2", "--machine", str(path), "--transport", "rma", "--json").json()
    assert record["best_s"] > 0 and record["percent_of_peak"] is None
