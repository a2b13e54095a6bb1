"""The gate of predictions: 16 published times of DTensor on 8 H100, constants unchanged."""

import statistics

import pytest

from launch.cases.machine_models import find_machine
from launch.models.intervals import PUBLISHED
from launch.papers.published_dtensor import cases, points

MACHINE = find_machine("h100x8")


def test_the_published_times_of_dtensor_are_predicted_within_their_bar():
    errors = [abs(point.error) for point in points(MACHINE)]
    assert len(errors) == 16
    assert statistics.mean(errors) <= 0.025 and max(errors) <= 0.05


def test_the_best_published_time_is_the_one_that_products_are_calibrated_on():
    best = max(cases(), key=lambda each: each[2].m * each[2].n * each[2].k / each[3])
    (point,) = [p for p in points(MACHINE) if p[:3] == (*best[:2], best[2].m)]
    assert abs(point.error) < 0.001


def test_intervals_of_models_that_measured_nothing_rest_on_these_errors():
    assert [1 / (1 + point.error) for point in points(MACHINE)] == pytest.approx(
        PUBLISHED, abs=5e-4
    )


@pytest.mark.parametrize(
    "constant, factor", [("compute.sustained", 0.9), ("links.nvlink.bandwidth_bytes_per_s", 0.5)]
)
def test_another_machine_is_outside_of_it(constant, factor):
    errors = [abs(point.error) for point in points(MACHINE.vary(constant, factor))]
    assert statistics.mean(errors) > 0.025
