"""Rows measured one after the other are ranked where their no-communication bounds allow it: the
report, the figures and the last lines of a sweep report where they do not."""

from dataclasses import replace

import pytest
from made_up import made_up, of_universal

from plots.draw.description import describe_picture
from plots.registry import find
from plots.report.page import page
from plots.report.verdict import fastest_lines, verdict
from plots.select.cases import Options
from plots.select.records import frame

#: Time in ms and roof in GFLOP/s of three cases -> whether the first is the fastest for sure.
DRIFT = {
    "a steady machine": (((1.0, 50.0), (1.1, 50.5), (2.0, 49.0)), True),
    "a third slower meanwhile": (((1.0, 50.0), (1.3, 37.0), (2.0, 49.0)), False),
    "slower, but not by as much": (((1.0, 50.0), (1.3, 45.0), (2.0, 30.0)), True),
    "no roofs": (((1.0, None), (1.3, None), (2.0, None)), False),
}


def rows(times, **more):
    kinds = "row", "column", "block"
    return [
        of_universal(
            a=kind, b=kind, c=kind, median_s=1e-3 * time_ms, roof_gflops=roof, case=kind, **more
        )
        for kind, (time_ms, roof) in zip(kinds, times)
    ]


@pytest.mark.parametrize("what", DRIFT)
def test_the_fastest_case_is_decided_only_where_roofs_agree_better_than_its_lead(what):
    times, decided = DRIFT[what]
    found = rows(times)
    (first,) = verdict(frame(found)).fastest
    (line,) = fastest_lines(found)
    best, one = (find(name).make(found, Options()) for name in ("best", "algorithms"))
    moved = [replace(row, stationary=way) for way, row in zip("CBA", found)]
    several = find("algorithms").make(moved, Options())
    described = (
        first.doubt,
        page(found, [], "x"),
        line,
        describe_picture(best.picture),
        " ".join(several.notes),
    )
    assert ["not decided" in text for text in described] == [not decided] * 5
    assert "1 ms" in line
    # one bar an algorithm and data movement: these are one
    assert "not decided" not in " ".join(one.notes)


def test_rounds_simulations_and_noisy_cases_leave_nothing_undecided():
    times, _ = DRIFT["no roofs"]
    assert "not decided" not in fastest_lines(rows(times, mode="simulated"))[0]
    noisy = rows(times[:1]) + rows(times[1:], noisy=True)
    assert "not decided" not in fastest_lines(noisy)[0]
    assert fastest_lines([row for row in noisy if row.noisy]) == [
        "1 problem with noisy cases only: no fastest one"
    ]
    alternating = [made_up(m=8, n=8, k=8, case=f"1 | s | {x} | y", best_s=x) for x in (1, 2)]
    assert not verdict(frame(alternating)).fastest[0].doubt


def test_the_last_lines_of_a_sweep_are_one_a_problem():
    """One shape in two element types, and stored in two ways; a sweep of one case each has none."""
    times, _ = DRIFT["a steady machine"]
    known = rows(times) + rows(times, dtype="float64") + rows(times, transpose="a")
    lines = fastest_lines(known)
    assert len(lines) == 3 and all("fastest of MLP-1, m = 64" in line for line in lines)
    assert sum("float64" in line for line in lines) == sum("Aᵀ·B" in line for line in lines) == 1
    assert fastest_lines([of_universal(m=9), of_universal(m=8)]) == []
    many = [row for m in range(1, 20) for row in rows(times, m=m)]
    lines = fastest_lines(many)
    assert len(lines) == 9 and lines[-1].startswith("11 problems more: ")


def test_a_case_of_one_repeat_is_hollow_and_no_best_and_a_round_is_not():
    """Single times were once drawn solid, at 39 to 148 percent of the roof."""
    found = rows(((1.0, 50.0), (1.1, 50.0)), samples_s=[1e-3])
    assert list(frame(found).hollow) == [True, True] and verdict(frame(found)).fastest == []
    assert fastest_lines(found) == ["1 problem with noisy cases only: no fastest one"]
    described = " ".join(describe_picture(find("best").make(found, Options()).picture).split())
    assert "Hollow: 2 noisy cases (2 measured once), never ranked" in described
    interleaved = made_up(m=8, n=8, k=8, case="1 | s | x | y", samples_s=[1.0])
    assert not frame([interleaved]).hollow.any()


def test_a_figure_of_noisy_cases_alone_states_that_it_shows_no_result():
    known = {"n": 3072, "k": 768, "percent_of_roof": 90.0, "dtype": "float32", "case": "x"}
    noisy = [of_universal(m=m, noisy=True, **known) for m in (64, 128)]
    sure = of_universal(m=256, noisy=False, **known)
    for records, message in ((noisy, True), ([*noisy, sure], False)):
        described = describe_picture(find("mlp1").make(records, Options()).picture)
        assert ("every case noisy: no result" in described) == message
