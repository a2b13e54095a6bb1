"""Predicted beside measured times: what is compared and ranked are medians, never best repeats."""

from dataclasses import replace

import pytest

from benchmarks.model import at_full_pace, errors, held, merged, on_nodes, picks
from drbench.measure.record import Record
from launch.studies.accuracy import beside
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
    return beside(frame(measured), frame(predicted))


def test_errors_are_of_median_times(pairs):
    assert list(pairs.error) == pytest.approx([3 / 4 - 1, 3.1 / 2 - 1, 0.1])
    found = errors(pairs)
    # column and row, column and block count, row and block do not; the second is predicted wrong
    assert (found.pairs, found.most) == (2, pytest.approx(55)) and found.concordance == 0.5


def test_a_program_is_ranked_by_the_median_of_all_its_repeats(pairs):
    found = picks(pairs)
    assert (found.pick, found.column, found.programs) == (0, 100, 2)
    # column and block on two ranks are one program: 1, 1.5, 2, 4, 4, 4 beside 2, 2, 2
    assert (found.program_pick, found.program_column) == (0, pytest.approx(50))


def test_rounds_of_a_case_become_one_row_of_the_rounds_that_were_ok():
    rounds = [row("row", "row", "row", [t, 5.0], seed=n) for n, t in enumerate([1.0, 3.0])]
    lost = replace(rounds[0], status="failed", reason="x")
    (found,) = merged([*rounds, lost])
    assert (found.status, found.median_s, found.iters, found.seed) == ("ok", 4.0, 4, None)


def test_what_ran_while_the_machine_was_slow_does_not_count():
    full = [row("row", "row", "row", [1.0], local_gemm_s=1.0 + 0.01 * t) for t in range(5)]
    slow = row("row", "row", "row", [1.0], local_gemm_s=1.2)
    other = row("row", "row", "row", [7.0], m=8, local_gemm_s=9.0)  # there is nothing faster
    bare = row("row", "row", "row", [9.0])
    assert at_full_pace([slow, *full, other, bare]) == [*full, other, bare]


def test_intervals_are_judged_by_the_residuals_of_the_other_half():
    forms = ("row", "column", "block")
    triples = [(a, b, c) for a in forms for b in forms for c in forms]
    measured = [row(*each, [1.0 + 0.001 * at]) for at, each in enumerate(triples)]
    predicted = [row(*each, [1.0], "simulated") for each in triples]
    found = held(beside(frame(measured), frame(predicted)))
    assert found.cases == 27 and found.share > 85 and 1 < found.half < 5
    measured[5] = row(*triples[5], [3.0])  # one program alone is far off: that is seen
    worse = held(beside(frame(measured), frame(predicted)))
    assert worse.half > found.half or worse.share < found.share


def test_virtual_nodes_hold_neighbours():
    assert on_nodes(1) == {}
    assert on_nodes(2) == {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
