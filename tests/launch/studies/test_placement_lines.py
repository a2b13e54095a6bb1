"""DTensor beside DTensor on drbench, from records made up with known ratios."""

import pytest
from made_up import made_up

from launch.cases.case import Case
from launch.studies.peers.bench import Shape
from launch.studies.peers.placements import (
    OURS,
    STOCK,
    placement_lines,
    placement_rows,
    product_cases,
)


def row(turn, algorithm, seconds, cpu_s=None, c="S(0)", **more):
    known = {"m": 8, "n": 8, "k": 8, "a": "S(0)", "b": "S(0)", "c": c, "cpu_s": cpu_s}
    known |= {"best_s": seconds, "median_s": seconds, "samples_s": [seconds] if seconds else []}
    return made_up(algorithm=algorithm, case=f"{turn} | {algorithm} {c}", **known | more)


def test_each_product_of_each_shape_is_run_by_both():
    shapes = [Shape("square 8", 8, 8, 8), Shape("mlp1 m=4", 4, 16, 8)]
    groups = product_cases(Case(1, 1, 1, transpose="b"), shapes)
    assert len(groups) == 8
    for stock, ours in groups:
        assert (stock.algorithm, ours.algorithm) == (STOCK, OURS) and stock.transpose == "b"
        assert (stock.m, stock.a, stock.b, stock.c) == (ours.m, ours.a, ours.b, ours.c)
    assert {(group[0].m, group[0].n, group[0].k) for group in groups} == {(8, 8, 8), (4, 16, 8)}


def test_ratios_are_of_the_same_round_on_a_machine_that_drifts():
    """Twice as slow in every other round; stock takes 1.2 times as long, and 1.5 the CPU time."""
    made = []
    for turn in range(1, 7):
        slow = 1 + turn % 2
        made += [row(turn, STOCK, 1.2 * slow, 3.0 * slow), row(turn, OURS, slow, 2.0 * slow)]
    made.append(row(7, STOCK, 50.0, 50.0))  # a round that the other has not yet
    (line,) = placement_lines(made)
    assert tuple(line.time) == pytest.approx((1.2,) * 3) and line.rounds == 6
    assert tuple(line.cpu) == pytest.approx((1.5,) * 3)
    header, (cells,) = placement_rows([line])
    assert dict(zip(header, cells))["stock / drbench"] == "1.20 (1.20-1.20)"
    assert dict(zip(header, cells))["A · B to C"] == "S(0) · S(0) to S(0)"


def test_a_product_that_failed_has_no_ratio_and_says_why():
    made = [row(1, STOCK, 1.0, 1.0), row(1, OURS, None, status="failed", reason="no room")]
    (line,) = placement_lines(made)
    assert line.time is None and line.cpu is None
    assert "failed: no room" in placement_rows([line])[1][0]


def test_products_are_told_apart_by_their_placements():
    made = [row(1, who, 1.0, 1.0, c=c) for c in ("S(0)", "S(1)") for who in (STOCK, OURS)]
    assert [line.placements[2] for line in placement_lines(made)] == ["S(0)", "S(1)"]


def test_percent_of_the_roof_is_that_of_the_round_that_has_one_and_not_of_shared_cores():
    shared = {"percent_of_roof": 96.0, "percent_of_roof_low": 95.0, "percent_of_roof_high": 97.0}
    made = [row(1, STOCK, 1.2, 1.0), row(1, OURS, 1.0, 1.0, **shared), row(2, OURS, 1.0, 1.0)]
    made.append(row(2, STOCK, 1.2, 1.0))
    assert "96.0 % (95-97)" in placement_rows(placement_lines(made))[1][0]
    crowded = [row(1, STOCK, 1.0), row(1, OURS, 1.0, oversubscribed=True, **shared)]
    assert not any("%" in cell for cell in placement_rows(placement_lines(crowded))[1][0])
