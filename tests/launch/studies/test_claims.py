"""Claims on made-up records: P11 is decided by the best lowering, and lowered rows are no part of
the figures."""

from dataclasses import replace
from itertools import product

import pytest
from made_up import made_up, of_universal

from launch.studies.slicing_claims import aligned, check_claims

NESTED, CUT = ("column", "column", "column"), ("tiles:100x300", "tiles:70x90", "block")


def case(schedule, best_s, m=1024, texts=NESTED, **more):
    known = {"mode": "simulated", "machine": "pvc12", "ranks": 12, "prefetch": 1}
    known |= {"schedule": schedule, "best_s": best_s, "percent_of_peak": 50 / best_s}
    return of_universal(m=m, **{**known, **dict(zip("abc", texts)), **more})


def p11(records):
    return next(verdict for verdict in check_claims(records) if verdict.claim == "P11")


MISALIGNED = [case("direct", 1.2, texts=CUT), case("exhaustive", 1.0, texts=CUT)]


@pytest.mark.parametrize("slow, holds", [(1, True), (2, False)])
def test_almost_always_is_nine_cases_of_ten_of_the_figures(slow, holds):
    rows = [
        case(schedule, seconds, m=64 * x, preset="column")
        for x in range(1, 11)
        for schedule, seconds in (
            ("direct", 1.1 if x <= slow else 1.02),
            ("greedy", 1.3),
            ("exhaustive", 1.0),
        )
    ]
    verdict = p11([*rows, *MISALIGNED])
    assert (
        verdict.holds is holds
        and f"of the figures: competitive with the best lowering in {100 - 10 * slow} % of 10 "
        "cases, at worst 1.10 times"
        in verdict.numbers
    )


def test_misaligned_tiles_have_to_gain_more_often():
    rows = [case("direct", 1.0, preset="column"), case("exhaustive", 1.0, preset="column")]
    assert p11([*rows, *MISALIGNED]).holds is True
    assert p11([*rows, replace(MISALIGNED[0], best_s=1.0), MISALIGNED[1]]).holds is False


def test_the_optimal_schedule_is_the_best_lowering_that_ran_and_refusals_are_counted():
    refused = replace(
        case("exhaustive", 1.0, preset="column"),
        status="unsupported",
        reason="too many choices",
        best_s=None,
    )
    verdict = p11(
        [
            case("direct", 1.2, preset="column"),
            case("cost", 1.0, preset="column"),
            refused,
            *MISALIGNED,
        ]
    )
    assert verdict.holds is False and "exhaustive was beyond its limit in 1" in verdict.numbers
    assert (
        "aligned: competitive with the best lowering in 0 % of 1 cases, at worst 1.20 times its "
        "time; misaligned" in verdict.numbers
    )
    assert p11([case("direct", 1.0), case("cost", 1.0)]).holds is None and p11([]).holds is None


def test_lowered_rows_are_no_points_of_the_figures():
    direct = [
        case("direct", 1.0, m=m, texts=texts, k=64, n=256)
        for m, texts in product((64, 128), [NESTED, ("row", "column", "column")])
    ]
    told = {verdict.claim: verdict.numbers for verdict in check_claims(direct)}
    assert {
        verdict.claim: verdict.numbers
        for verdict in check_claims(
            [
                *direct,
                *(replace(r, schedule="cost", best_s=0.1, percent_of_peak=99.0) for r in direct),
            ]
        )
    } == told


@pytest.mark.parametrize(
    "ranks, texts, nest",
    [
        (4, ("row", "row", "row"), True),
        (6, ("block", "block", "block"), False),
        (4, ("block", "block", "block"), True),
        (6, ("row", "column", "block"), True),
        (4, ("tiles:100x300", "row", "block"), False),
        (7, ("traditional",) * 3, True),
        (1, CUT, False),
        (4, ("tiles:9x9", "tiles:1000x14", "block"), False),
    ],
)
def test_aligned_tiles_nest(ranks, texts, nest):
    """1000 does not divide evenly: rounding is no misalignment."""
    assert aligned(made_up(m=1000, n=1003, k=998, ranks=ranks, **dict(zip("abc", texts)))) is nest


def test_a_figure_without_a_partitioning_leaves_its_claims_undecided():
    """P9 compares cases of Outer, and there are none."""
    found = check_claims([case("direct", 1.0, n=64, k=256, texts=("row",) * 3, preset="row")])
    assert {verdict.claim: verdict.holds for verdict in found}["P9"] is None
