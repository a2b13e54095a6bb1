"""The ledger: every number has its prediction, and one with an error above its limit is
found."""

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from made_up import of_universal
from pandas import DataFrame

from drbench.launch.models.intervals import PUBLISHED
from drbench.launch.papers import ledger
from drbench.launch.papers.claims import ResultRows, check_claims
from drbench.launch.papers.ledger import CLAIMS, GROUPS, ROWS, choose_half
from drbench.measure.record_file import append_csv, read_csv

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def committed():
    return DataFrame(ROWS.read([ROOT / "results/ledger.csv"]))


def test_no_group_of_measurements_is_left_out(committed):
    assert {*committed.group} == {*GROUPS}
    held_out = committed.group.str.contains("rma|throttled|mixed|network")
    assert committed.low[held_out].notna().all()


def test_intervals_of_models_without_measurements_are_the_errors_of_published_times(committed):
    of = committed[committed.group == "dtensor-h100"]
    assert list(of.value / of.predicted) == pytest.approx(PUBLISHED, abs=5e-4)


def holds(rows, group):
    (claim,) = (each for each in CLAIMS if each.name == f"A.{group}")
    (verdict,) = check_claims([claim], ResultRows(rows))
    return verdict.holds


@pytest.mark.parametrize(
    "change",
    [
        lambda of: of.assign(predicted=of.predicted * 1.06),
        lambda of: of.assign(high=of.low * 1.001),
        lambda of: of.assign(low=0.9 * of.predicted - 0.02 * of.value, high=1.2 * of.predicted),
    ],
    ids=["error", "held", "width"],
)
def test_each_way_to_become_worse_is_found(committed, change):
    rows = committed[committed.group == "epyc-rma"]
    assert holds(rows, "epyc-rma") and not holds(change(rows), "epyc-rma")


def test_disturbed_runs_count_for_shares_of_gemm_only_speed_alone(monkeypatch):
    one = of_universal(steps=5)
    rows = [
        replace(one, m=512),
        replace(one, m=256, noisy=True),
        replace(one, m=128, oversubscribed=True),
        replace(one, m=64, status="failed", reason="made up"),
        replace(one, m=32, steps=6),  # of another program
    ]
    monkeypatch.setattr(ledger, "read_csv", lambda path: rows)
    monkeypatch.setattr(ledger, "predict", lambda case, machine, ranks: one)
    found = lambda as_share: [each.m for each, *_ in ledger._runs("x.csv", None, as_share)]
    assert (found(False), found(True)) == ([512], [512, 256, 128])


def test_a_gpu_check_has_a_file_of_each_case_on_one_rank_or_one_of_all(monkeypatch, tmp_path):
    folder = tmp_path / "measured/h100-80gb"
    files = sorted((ROOT / "results/measured/h100-80gb").glob("one-rank-*.csv"))
    (folder / "one-rank").mkdir(parents=True)
    monkeypatch.setattr(ledger, "_RESULTS", tmp_path)
    records = [record for file in files for record in read_csv(file)]
    refused = replace(records[3], status="unsupported", reason="made up")  # of fp32
    append_csv(folder / "one-rank/records.csv", *records, refused)
    rows = list(ledger._one_rank())
    assert {row.source for row in rows} == {"measured/h100-80gb/one-rank/records.csv"}
    for file in files:
        shutil.copy(file, folder)
    both = list(ledger._one_rank())
    assert len(rows) == 3 and both[3:] == rows
    assert [row._replace(source="") for row in both[:3]] == [r._replace(source="") for r in rows]


def test_half_of_all_programs_are_held_out():
    assert 0.45 < fmean(choose_half(f"{at} x") for at in range(2000)) < 0.55
