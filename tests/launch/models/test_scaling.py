"""Scaling: every round against the same round of the fewest ranks, each number of ranks in turn,
nothing run twice, and what is predicted by the same command."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median

import pytest

from drbench.errors import UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.cases.sweep_values import ranks_list
from launch.models.predict import predict
from launch.models.scaling import (
    doubling,
    fitting,
    grown,
    points,
    rounds_of,
)
from launch.sweeps.rounds import pooled

CALIBRATED = Path(__file__).parents[3] / "results/measured/spr-2core/model/rma/here.toml"


def made(ranks, seconds, m=8, status="ok", **more):
    reason = None if status == "ok" else "why"
    return Record(
        mode="measured",
        status=status,
        reason=reason,
        best_s=min(seconds, default=None),
        median_s=median(seconds) if seconds else None,
        samples_s=list(seconds),
        gflops=2 * m * 8 * 8 / median(seconds) / 1e9 if seconds else None,
        m=m,
        n=8,
        k=8,
        ranks=ranks,
        **more,
    )


def test_each_round_is_compared_with_the_same_round_of_the_fewest_ranks():
    """A machine that halves its speed in the second round changes nothing."""
    runs = {1: [made(1, [8.0]), made(1, [16.0])], 4: [made(4, [2.5]), made(4, [5.0])]}
    one, four = points(runs)
    assert one.speedup == (1, 1, 1) and one.efficiency == (100, 100, 100)
    assert four.speedup == (3.2, 3.2, 3.2) and four.efficiency == (80, 80, 80)


def test_weak_scaling_is_by_rate():
    runs = {2: [made(2, [1.0], m=16)], 6: [made(6, [1.25], m=48)]}
    _, six = points(runs)
    assert six.efficiency[0] == pytest.approx(80) and six.speedup[0] == pytest.approx(2.4)


def test_what_failed_is_a_point_without_a_speed_and_none_is_measured_against_it():
    runs = {1: [made(1, [], status="timeout")], 2: [made(2, [4.0])], 4: [made(4, [2.0])]}
    one, two, four = points(runs)
    assert one.speedup is None and one.record.status == "timeout"
    assert (two.speedup[0], four.speedup[0], four.efficiency[0]) == (1, 2, 100)


def test_rounds_are_pooled_and_one_that_is_not_ok_is_not_hidden():
    rounds = [made(2, [3.0, 1.0], noisy=False), made(2, [2.0, 9.0], noisy=False)]
    found = pooled(rounds)
    assert sorted(found.samples_s) == [1.0, 2.0, 3.0, 9.0] and found.median_s == 2.5
    assert (
        found.best_s == 1.0
        and found.gflops == pytest.approx(2 * 8**3 / 2.5 / 1e9)
        and found.noisy is True
    )
    bad = made(2, [], status="wrong")
    assert pooled([*rounds, bad]).status == "wrong"


def test_every_number_of_ranks_has_its_turn_in_every_round():
    cases = {ranks: Case(8, 8, 8) for ranks in (1, 2, 4)}
    turns = rounds_of(cases, 3)
    assert [sorted(ranks for _, ranks, _ in turn) for turn in turns] == [[1, 2, 4]] * 3
    assert [turn[0][1] for turn in turns] == [1, 4, 2]
    names = [name for turn in turns for name, _, _ in turn]
    assert len(set(names)) == 9


def test_more_ranks_keep_the_names_of_what_is_there():
    few, many = ({r: Case(8, 8, 8) for r in counts} for counts in ((1, 2), (1, 2, 4)))
    names = lambda cases: {name for turn in rounds_of(cases, 2) for name, _, _ in turn}
    assert names(few) < names(many)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 64, 100])
def test_doubling_ends_at_the_most(most):
    found = doubling(most)
    assert found[0] == 1 and found[-1] == most and list(found) == sorted(set(found))
    assert all(2 * a == b for a, b in zip(found[:-1], found[1:-1]))


def test_work_a_rank_is_the_same_when_an_extent_grows():
    for grow in "mnk":
        shares = set()
        for ranks in (1, 2, 5):
            case = grown(Case(6, 7, 9), ranks, grow)
            shares.add(Fraction(case.m * case.n * case.k, ranks))
        assert shares == {6 * 7 * 9}
    assert grown(Case(6, 7, 9), 5, None) == Case(6, 7, 9)


def test_what_does_not_fit_some_ranks_is_said_and_the_rest_runs():
    base = lambda ranks: Case(8, 8, 8, "row/c2", "row", "row")
    kept, refused = fitting(base, (1, 2, 3, 4), None)
    assert list(kept) == [2, 4] and len(refused) == 2
    assert all(line.startswith("not on ") for line in refused)
    with pytest.raises(UnsupportedError, match="fewer than two"):
        fitting(base, (1, 2, 3), None)
    with pytest.raises(UsageError, match="^--a: unknown partition"):
        fitting(lambda ranks: Case(8, 8, 8, "colum"), (1, 2), None)


@pytest.mark.parametrize("text", ["1", "1,x", "0,1", "", "2,2", "1,-2"])
def test_a_list_of_ranks_is_two_numbers_or_more(text):
    with pytest.raises(UsageError):
        ranks_list(text)


SIZES = ["-m", 256, "-n", 512, "-k", 128]


def test_predicted_scaling_is_what_predicting_each_says(say, tmp_path):
    words = ["scaling", *SIZES, "--preset", "column", "--machine", "pvc12", "--simulate"]
    ended = say(*words, "-p", 12, "--weak", "--out", tmp_path, "--json")
    told = json.loads(ended.stdout)["points"]
    assert [point["ranks"] for point in told] == [1, 2, 4, 8, 12]
    machine = find_machine("pvc12")
    for point in told:
        ranks = point["ranks"]
        case = Case(256 * ranks, 512, 128, "column", "column", "column")
        assert point["record"]["best_s"] == predict(case, machine, ranks).best_s
        shown = point["efficiency_percent"]
        first = told[0]["record"]["best_s"]
        assert shown["middle"] == pytest.approx(100 * first / point["record"]["best_s"])
    rows = read_csv(tmp_path / "scaling.csv")
    assert [row.ranks for row in rows] == [1, 2, 4, 8, 12]
    assert (tmp_path / "weak.pdf").exists() and (tmp_path / "weak.png").exists()
    said = say(*words, "--out", tmp_path, "--ranks-list", "2,4", "--figure", tmp_path / "s.txt")
    assert (tmp_path / "s.txt").exists() and "are against 2 ranks." in said.stdout


@pytest.mark.parametrize(
    "more, says",
    [
        (["--simulate"], "--simulate needs a machine model"),
        (["--grow", "n"], "--grow belongs to --weak"),
        (["--ranks-list", "1,2", "-p", "2"], "Leave one of them out"),
        (["--ranks-list", "1"], "two numbers of ranks"),
        (["--figure", "x.gif"], ".gif"),
        (["--figure", "/no/such/x.pdf"], "no folder"),
        (["--a", "colum"], "unknown partition"),
        (["--simulate", "--machine", "h100x8", "--ranks-list", "8,16"], "8 devices"),
        (["--simulate", "--machine", str(CALIBRATED)], "Give -p"),
        (["-p", "2000"], "add --yes"),
        (["--threads", "9999", "-p", "2"], "--threads 9999"),
        (["-m", "64Ki", "-n", "64Ki", "-k", "64Ki", "--ranks-list", "1,2"], "Add --yes"),
        (["--preset", "row/c3", "-p", "2"], "fewer than two"),
    ],
)
def test_what_makes_no_sense_is_one_line_before_anything_is_run(say, monkeypatch, more, says):
    monkeypatch.setattr("launch.models.scaling.run_cases", lambda *_: pytest.fail("it was run"))
    code = 3 if says == "fewer than two" else 2
    assert says in say("scaling", *SIZES, *more).refusal(code)


def test_a_simulated_rate_says_which_peak_it_is_a_percentage_of():
    found = predict(Case(256, 512, 128, "column", "column", "column"), find_machine("pvc12"), 4)
    assert found.percent_of_peak == pytest.approx(100 * found.gflops / found.peak_gflops)
    assert found.peak_source == "machine model pvc12"
    own = predict(Case(256, 512, 128, "row", "row", "row"), find_machine(str(CALIBRATED)), 2)
    assert own.percent_of_peak is None and own.peak_gflops is None and own.peak_source is None


@pytest.mark.mpi
def test_scaling_is_measured_verified_and_goes_on(drbench, tmp_path):
    words = ["scaling", *SIZES, "--preset", "row", "--rounds", 2, "--iters", 2, "--budget", 0]
    words += ["--machine", CALIBRATED, "--out", tmp_path / "s"]
    first = drbench(*words, "--ranks-list", "1,2", timeout=100)
    assert first.returncode == 0 and "speed-up" in first.stdout and "predicted" in first.stdout
    rows = read_csv(tmp_path / "s" / "records.csv")
    assert sorted(row.ranks for row in rows) == [1, 1, 2, 2]
    assert {(row.status, row.error, row.threads) for row in rows} == {("ok", 0, 1)}
    again = drbench(*words, "--ranks-list", "1,2,3", "--json", timeout=100)
    assert "4 of 6 runs are there already" in again.stderr
    told = json.loads(again.stdout)["points"]
    assert [point["ranks"] for point in told] == [1, 2, 3]
    after = read_csv(tmp_path / "s" / "records.csv")
    assert [row for row in after if row.ranks < 3] == rows
    for point in told:
        times = [row.time_s for row in after if row.ranks == point["ranks"]]
        base = [row.time_s for row in after if row.ranks == 1]
        ratios = [one / time for one, time in zip(base, times)]
        assert point["speedup"]["low"] == pytest.approx(min(ratios))
        assert point["speedup"]["high"] == pytest.approx(max(ratios))
        assert point["predicted_s"] > 0 and point["predicted_low_s"] is None
    assert (tmp_path / "s" / "strong.pdf").exists()


def test_more_ranks_than_cores_are_marked():
    found = points({1: [made(1, [1.0])], 4: [made(4, [1.0], oversubscribed=True)]})
    assert pooled([found[1].record, replace(found[1].record)]).oversubscribed is True
