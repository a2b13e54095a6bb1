"""Predicted and measured times: medians are compared and ranked, never best repeats."""

import pytest

from benchmarks.model.model import at_calibrated_speed, errors, held, paired, picks
from drbench.measure.record import Record
from plots.select.records import frame


def row(a, b, c, samples, mode="measured", **values):
    """A case of 64 cubed on two ranks; the median of its samples is the middle one."""
    made = {"best_s": min(samples), "median_s": sorted(samples)[len(samples) // 2]}
    known = {"m": 64, "n": 64, "k": 64, "a": a, "b": b, "c": c, "stationary": "C", "ranks": 2}
    made |= {"samples_s": samples, "transport": "rma"}
    return Record(mode=mode, status="ok", **known | made | values)


@pytest.fixture
def pairs():
    """By its best repeat column is the fastest; by its median row is."""
    measured = [
        row("column", "column", "column", [1.0, 4.0, 4.0]),
        row("block", "column", "column", [1.5, 2.0, 4.0]),
        row("row", "row", "row", [2.0, 2.0, 2.0]),
    ]
    predicted = [
        row("column", "column", "column", [3.0], "simulated"),
        row("block", "column", "column", [3.1], "simulated"),
        row("row", "row", "row", [2.2], "simulated"),
    ]
    return paired(frame(measured), frame(predicted))


def test_errors_are_of_median_times(pairs):
    assert list(pairs.error) == pytest.approx([3 / 4 - 1, 3.1 / 2 - 1, 0.1])
    found = errors(pairs)
    # column and row, column and block count, row and block do not; the second is predicted wrong
    assert (found.pairs, found.most) == (2, pytest.approx(55)) and found.concordance == 0.5


def test_a_program_is_ranked_by_the_median_of_all_its_repeats(pairs):
    found = picks(pairs)
    assert found.programs == 2
    # column and block on two ranks are one program: 1, 1.5, 2, 4, 4, 4 and 2, 2, 2
    assert (found.pick, found.column) == (0, pytest.approx(50))


def test_shares_of_the_roof_are_compared_at_the_speed_of_the_calibration():
    ran = lambda c, time, share: row("row", "row", c, [time], percent_of_roof=share)
    text = lambda c: row("row", "row", c, [5.0], "simulated", local_gemm_s=2.0)
    measured = frame(
        [
            ran("row", 4.0, 50.0),
            ran("column", 16.0, 25.0),  # its own roof took twice as long
            row("row", "row", "block", [9.0]),  # no roof
            ran("block-cyclic", 4.0, 50.0),  # not predicted
        ]
    )
    predicted = frame([text("row"), text("column"), text("block")])
    pairs = paired(at_calibrated_speed(measured, predicted), predicted)
    assert dict(zip(pairs.c, pairs.time_s)) == {"row": 4.0, "column": 8.0}
    assert list(pairs.error) == pytest.approx([0.25, -0.375])


def test_intervals_are_judged_by_the_residuals_of_the_other_half():
    forms = ("row", "column", "block")
    triples = [(a, b, c) for a in forms for b in forms for c in forms]
    measured = [row(*each, [1.0 + 0.001 * at]) for at, each in enumerate(triples)]
    predicted = [row(*each, [1.0], "simulated") for each in triples]
    found = held(paired(frame(measured), frame(predicted)))
    assert found.cases == 27 and found.share > 85 and 1 < found.half < 5
    measured[5] = row(*triples[5], [3.0])  # one program alone has a large error, which is reported
    worse = held(paired(frame(measured), frame(predicted)))
    assert worse.half > found.half or worse.share < found.share
