"""Predicted and measured times: medians are compared and ranked, never best repeats."""

import pytest

from benchmarks.model.model import paired, summary, with_intervals
from drbench.measure.record import Record
from drbench.plots.select.records import frame


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
    rows = pairs.assign(value=pairs.time_s, predicted=pairs.predicted_s, low=None, unit="s", high=0)
    # column and row, column and block count, row and block do not; the second is predicted wrong
    count, order, mean, bias, ends, held = summary(rows)
    assert (count, order, held) == (3, "0.500 of 2", "")
    # 3 / 4 - 1, 3.1 / 2 - 1, 2.2 / 2 - 1
    assert (mean, bias, ends) == ("30.0 %", "+10.0 %", "−25 to +55 %")


def test_intervals_are_judged_by_the_residuals_of_the_other_half():
    forms = ("row", "column", "block")
    triples = [(a, b, c) for a in forms for b in forms for c in forms]
    measured = [row(*each, [1.0 + 0.001 * at]) for at, each in enumerate(triples)]
    predicted = [row(*each, [1.0], "simulated") for each in triples]
    rows = with_intervals(paired(frame(measured), frame(predicted)))
    half = (rows.high - rows.low) / 2
    assert len(rows) == 27 and 0.01 < half.median() < 0.05
    assert rows.value.between(rows.low, rows.high).mean() > 0.85
    measured[5] = row(*triples[5], [3.0])  # one program alone has a large error, which is reported
    worse = with_intervals(paired(frame(measured), frame(predicted)))
    inside = [each.value.between(each.low, each.high).mean() for each in (worse, rows)]
    assert ((worse.high - worse.low) / 2).median() > half.median() or inside[0] < inside[1]
