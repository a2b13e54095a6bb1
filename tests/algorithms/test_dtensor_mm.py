"""DTensor's torch.mm as a program: the strategy and the copies of DTensor."""

import itertools

import pytest
from traced import of_algorithm, resolved_as

from drbench.errors import UnsupportedError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict
from drbench.launch.models.run_description import Regions
from drbench.program.steps import Copy

BY = "row", "column"


def strategy_of(*problem, **options):
    return resolved_as("dtensor_mm", *problem, **options)[2]["strategy"]


@pytest.mark.parametrize("a, b, c", list(itertools.product(BY, repeat=3)))
def test_the_strategy_that_moves_the_fewest_bytes_of_a_and_b_is_chosen(a, b, c):
    """Counted by hand: gathering a matrix moves p times the bytes of resharding it."""
    p, sizes = 4, {"m": 64, "n": 256, "k": 128}
    for scale in ({}, {"m": 4096}, {"n": 4096}, {"k": 4096}):
        m, n, k = (sizes | scale).values()
        partial = m * k / p * (a != "column") + k * n / p * (b != "row")
        gathered = {
            "row": m * k / p * (a != "row") + k * n,
            "column": m * k + k * n / p * (b != "column"),
        }[c]
        taken = strategy_of(m, n, k, p, a, b, c)
        assert taken == ("partial" if partial < gathered else f"{c}s"), (m, n, k)


M, N, K, P = 16, 24, 32, 4


@pytest.mark.parametrize(
    "layouts, strategy, copied",
    [
        ("row row row", "rows", []),  # B is gathered along rows
        ("row column row", "rows", [K * N]),
        ("column column row", "rows", [M * K // P, K * N]),
        ("column column column", "columns", [M * K]),
        ("row row column", "columns", [K * N // P]),
        ("row row row", "partial", [M * K // P]),
        ("column row column", "partial", [M * N]),
        ("row column column", "partial", [M * K // P, K * N // P, M * N]),
    ],
)
def test_contiguous_data_is_copied_where_pytorch_copies_it(layouts, strategy, copied):
    """All of a matrix gathered along columns, a rank's part of a resharded one, and all of a sum
    scattered along columns; nothing on a single rank."""
    for p, expected in ((P, copied), (1, [])):
        for trace in of_algorithm("dtensor_mm", M, N, K, p, *layouts.split(), strategy=strategy):
            copies = [step.elements() for step in trace.steps if type(step) is Copy]
            assert copies == expected


def test_a_copy_takes_the_time_of_its_memory_traffic():
    """All of A read and written once at 3.35 TB/s, in a launch."""
    case = Case(1024, 49152, 12288, *["column"] * 3, algorithm="dtensor_mm")
    machine = find_machine("h100x8")
    record = predict(case, machine, 8)
    launch_s = machine.compute.launch_s
    assert record.phase_accumulate_s == pytest.approx(launch_s + 2 * 1024 * 12288 * 4 / 3.35e12)


def test_a_copied_block_is_described_as_its_source():
    """A page of the run shows all of A in the copy that is multiplied."""
    traces = of_algorithm("dtensor_mm", M, N, K, P, *["column"] * 3, strategy="columns")
    copy = next(step for step in traces[1].steps if type(step) is Copy)
    region = Regions(traces).of(1, copy)
    assert (region.matrix, region.shape) == ("A", (M, K))


@pytest.mark.parametrize("m, taken", [(1024, "columns"), (4096, "columns"), (8192, "partial")])
def test_columns_of_mlp1_are_resharded_from_a_batch_of_8192_on(m, taken):
    """Where the published line of DTensor dips: all of A is more than the part of B that moves."""
    assert strategy_of(m, 49152, 12288, 8, "column", "column", "column") == taken


def test_other_layouts_and_strategies_are_refused_in_one_line():
    with pytest.raises(UnsupportedError, match=r"by row or by column on all ranks.*got B as block"):
        strategy_of(8, 8, 8, 4, "row", "block", "row")
    with pytest.raises(UnsupportedError, match=r"by row or by column .*got A as row/c2"):
        strategy_of(8, 8, 8, 4, "row/c2", "row", "row")
    with pytest.raises(UnsupportedError, match="columns leaves C by columns; got C by rows"):
        strategy_of(8, 8, 8, 4, "row", "row", "row", strategy="columns")
