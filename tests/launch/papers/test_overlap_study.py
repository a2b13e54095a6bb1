"""The studies of FLUX and Triton-distributed: the fastest of some methods, what none can be faster
than, and how many multiprocessors do what."""

import pytest

from drbench.errors import UsageError
from launch.cases.machine_models import find_machine
from launch.papers.overlap import needed_bytes_per_s
from launch.papers.overlap.study import (
    Contender,
    Grid,
    Method,
    fastest,
    least,
    methods,
    seconds_of,
    tiles,
)


def test_sums_need_what_the_text_works_out():
    """9 B in the time that 7 B over NVLink take longer than B over the card (TD, 3.5)."""
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(9 / (7 / 170e9 - 1 / 45e9))
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(470e9, rel=0.02)


def seconds(shape, algorithm, machine=None, **options):
    method = Method("", "", algorithm, options)
    return seconds_of(machine or find_machine("h800"), 8, shape, method)


def test_a_fused_method_is_as_fast_as_its_fastest_tile_and_variant():
    machine, shape = find_machine("h800"), (1024, 2048, 1024)
    found = methods("td", "ag", 8, 1024, "h800")
    best, _ = fastest(machine, 8, shape, found)
    times = [seconds(shape, "ag_gemm", variant=variant, tile=128) for variant in ("pull", "push")]
    assert best == min(times) and len(found) == 2 and tiles(1024, 8) == [128]
    (row,) = Grid(["h800"], [("ag", shape)], [Contender("td")], constants=()).rows({})
    assert row.seconds == best and row.gemm_s == machine.compute.gemm_s(1024, 256, 1024, 2)


def test_the_best_possible_is_below_every_program_however_the_workers_are_split():
    shape, machine = (2048, 4096, 11008), find_machine("h800")
    every, found = machine.compute.units, methods("td", "rs", 8, 2048, "h800")
    best = least(machine, "rs", 8, shape, found)

    def with_sums_on(units):
        rest = [each._replace(options=each.options | {"units": every - units}) for each in found]
        return fastest(machine.with_value("side_units", units), 8, shape, rest)[0]

    times = [fastest(machine, 8, shape, found)[0], *map(with_sums_on, (2, 8, 32, 64))]
    assert best.decides == "links" and best.seconds <= min(times) * (1 + 1e-9) <= 1.6 * best.seconds


def test_the_units_of_a_kernel_are_those_that_its_tiles_are_dealt_to():
    machine, shape = find_machine("h800").with_value("side_units", 0), (4096, 8192, 65536)
    on = lambda **more: seconds(shape, "gemm_rs", machine, variant="write", tile=128, **more)
    assert on() == on(units=132) < on(units=66) < on(units=33)
    with pytest.raises(UsageError, match="-o units is about the one kernel"):
        on(units=66, kernel="parts")
