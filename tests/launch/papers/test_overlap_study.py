"""The studies of FLUX and Triton-distributed: the fastest of some methods, and the
numbers of multiprocessors of their kernels."""

import pytest

from drbench.errors import UsageError
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.papers.overlap.study import (
    DTYPE,
    Contender,
    Grid,
    fastest,
    methods,
    seconds_of,
    tiles,
)


def seconds(shape, algorithm, machine=None, **options):
    case = Case(*shape, algorithm=algorithm, dtype=DTYPE, options=options)
    return seconds_of(machine or find_machine("h800"), 8, case)


def test_a_fused_method_is_as_fast_as_its_fastest_tile_and_variant():
    machine, shape = find_machine("h800"), (1024, 2048, 1024)
    found = methods("td", "ag", shape, 8, "h800")
    best, _ = fastest(machine, 8, found)
    times = [seconds(shape, "ag_gemm", variant=variant, tile=128) for variant in ("pull", "push")]
    assert best == min(times) and len(found) == 2 and tiles(1024, 8) == [128]
    (row,) = Grid(["h800"], [("ag", shape)], [Contender("td")], constants=()).rows({})
    assert row.seconds == best and row.gemm_s == machine.compute.gemm_s(1024, 256, 1024, 2)


def test_the_units_of_a_kernel_are_those_that_its_tiles_are_dealt_to():
    machine, shape = find_machine("h800").with_value("side_units", 0), (4096, 8192, 65536)
    on = lambda **more: seconds(shape, "gemm_rs", machine, variant="write", tile=128, **more)
    assert on() == on(units=132) < on(units=66) < on(units=33)
    with pytest.raises(UsageError, match="-o units is about the one kernel"):
        on(units=66, kernel="parts")
