"""The studies of FLUX and Triton-distributed: the fastest of some methods, what none can be faster
than, and how many multiprocessors do what."""

import pytest

from drbench.errors import UsageError
from launch.cases.machine_models import find_machine
from launch.papers.overlap import needed_bytes_per_s
from launch.papers.overlap.study import Benches, td, tiles


def test_sums_need_what_the_text_works_out():
    """9 B in the time that 7 B over NVLink take longer than B over the card (TD, 3.5)."""
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(9 / (7 / 170e9 - 1 / 45e9))
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(470e9, rel=0.02)


def test_a_fused_method_is_as_fast_as_its_fastest_tile_and_variant():
    bench = Benches({}).of("h800")
    shape = (1024, 2048, 1024)
    methods = td("ag", 8, "h800")
    found = bench.fastest(8, shape, methods)
    every = [
        bench.seconds(8, shape, each.algorithm, **each.options, tile=tile)
        for each in methods
        for tile in tiles(1024, 8)
    ]
    assert found.seconds == min(every) and len(every) == 2
    assert bench.row("ag", 8, shape, found).gemm_s == bench.machine.compute.gemm_s(
        1024, 256, 1024, 2
    )


def test_the_best_possible_is_below_every_program_and_its_split_hides_the_sums():
    """On H800 the workers that the split gives the sums do as well as the best of a search."""
    shape, every = (2048, 4096, 11008), find_machine("h800").compute.units
    methods = td("rs", 8, "h800")
    usual = Benches({}).of("h800")
    best = usual.headroom("rs", 8, shape, methods)
    assert best.seconds <= usual.fastest(8, shape, methods).seconds * (1 + 1e-9)
    assert 1 <= best.least_units < every

    def with_sums_on(units):
        rest = [each._replace(options=each.options | {"units": every - units}) for each in methods]
        return Benches({}).of("h800", side_units=units).fastest(8, shape, rest).seconds

    solved = with_sums_on(best.least_units)
    assert solved <= 1.1 * min(map(with_sums_on, (2, 4, 8, 16, 32, 64)))


def test_the_units_of_a_kernel_are_those_that_its_tiles_are_dealt_to():
    bench, shape = Benches({}).of("h800", side_units=0), (4096, 8192, 65536)
    seconds = lambda **more: bench.seconds(8, shape, "gemm_rs", variant="write", tile=128, **more)
    assert seconds() == seconds(units=132) < seconds(units=66) < seconds(units=33)
    with pytest.raises(UsageError, match="-o units is about the one kernel"):
        seconds(units=66, kernel="parts")
