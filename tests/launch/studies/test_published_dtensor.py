"""The gate of predictions: 16 published times of DTensor on 8 H100, constants unchanged."""

import statistics

import pytest

from launch.cases.machine_models import find_machine
from launch.studies.published_dtensor import points

MACHINE = find_machine("h100x8")


def test_the_published_times_of_dtensor_are_predicted_within_their_bar():
    errors = [abs(point.error) for point in points(MACHINE)]
    assert len(errors) == 16
    assert statistics.mean(errors) <= 0.025 and max(errors) <= 0.05


@pytest.mark.parametrize(
    "constant, factor", [("compute.sustained", 0.9), ("links.nvlink.bandwidth_bytes_per_s", 0.5)]
)
def test_another_machine_is_outside_of_it(constant, factor):
    errors = [abs(point.error) for point in points(MACHINE.vary(constant, factor))]
    assert statistics.mean(errors) > 0.025
