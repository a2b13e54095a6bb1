"""The limit of prediction errors: 16 published times of DTensor on 8 H100, constants unchanged."""

import statistics

import pytest

from launch.cases.machine_models import find_machine
from launch.host.files import ROOT
from launch.models.intervals import PUBLISHED
from launch.models.predict import predict
from launch.papers.ledger import dtensor_cases

MACHINE = find_machine("h100x8")
CASES = list(dtensor_cases(ROOT / "results/published/h100.csv"))


def errors(machine):
    return [predict(case, machine, 8).best_s / seconds - 1 for _, case, seconds in CASES]


def test_the_published_times_of_dtensor_are_predicted_within_their_limit():
    sizes = list(map(abs, errors(MACHINE)))
    assert len(sizes) == 16 and statistics.mean(sizes) <= 0.025 and max(sizes) <= 0.05


def test_gemms_are_calibrated_on_the_best_published_time():
    rates = [case.m * case.n * case.k / seconds for _, case, seconds in CASES]
    assert abs(errors(MACHINE)[rates.index(max(rates))]) < 0.001


def test_intervals_of_models_without_measurements_use_these_errors():
    assert [1 / (1 + error) for error in errors(MACHINE)] == pytest.approx(PUBLISHED, abs=5e-4)


@pytest.mark.parametrize(
    "constant, factor", [("compute.sustained", 0.9), ("links.nvlink.bandwidth_bytes_per_s", 0.5)]
)
def test_another_machine_is_outside_of_it(constant, factor):
    assert statistics.mean(map(abs, errors(MACHINE.vary(constant, factor)))) > 0.025
