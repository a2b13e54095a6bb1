"""The comparison's order, names and tables, from records made up with known ratios."""

import pytest
from made_up import made_up

from drbench.launch.studies.libraries import compare_contenders


def row(turn, who, label, seconds, roof=None, shape="s", blas="ob", **more):
    """A record of 2·10⁹ FLOPs: at one second 2 GFLOP/s."""
    known = (
        {
            "gemm_only_gflops": roof,
            "percent_of_gemm_only": 100 * 2 / seconds / roof,
            "percent_of_gemm_only_min": 1.0,
            "percent_of_gemm_only_max": 99.0,
        }
        if roof
        else {}
    )
    return made_up(
        m=1000,
        n=1000,
        k=1000,
        case=f"{turn} | {shape} | {who} | {label}",
        best_s=seconds,
        median_s=seconds,
        samples_s=[seconds] * 2,
        gflops=2 / seconds,
        blas=blas,
        threads=1,
        **known | more,
    )


def refused(who, label, shape="s"):
    return made_up(
        status="unsupported",
        reason="it refuses: four ranks only",
        case=f"1 | {shape} | {who} | {label}",
    )


def best_settings(records):
    return {(line.who, line.label) for line in compare_contenders(records) if line.best}


RECORDS = [
    row(1, "drbench", "row", 1.0, roof=4, direct_bytes=8),
    row(2, "drbench", "row", 2.0, roof=2, direct_bytes=8),
    row(1, "drbench", "column", 0.5, roof=4, direct_bytes=8),
    row(2, "drbench", "column", 1.0, roof=2, direct_bytes=8),
    row(1, "dtensor", "row", 2.0, roof=1, blas="mkl", collective_bytes=8),
    row(2, "dtensor", "row", 4.0, roof=1, blas="mkl", collective_bytes=8),
    row(1, "dtensor", "megatron", 0.1, roof=1, blas="mkl", collective_bytes=0),
    row(1, "cosma", "its own choice", 1.0),
    refused("pylops", "summa"),
]


def test_the_time_of_a_contender_is_the_median_over_its_rounds_and_none_if_it_was_refused():
    by_name = {(line.who, line.label): line for line in compare_contenders(RECORDS)}
    assert by_name["drbench", "row"].median_s == 1.5
    assert by_name["pylops", "summa"].median_s is None


def test_times_are_compared_round_by_round_with_the_best_default_and_setting_of_a_library():
    """The machine is half as fast in every other round. Settings that move nothing, or were run in
    fewer rounds than others, are never the best."""
    made = []
    for turn, factor in enumerate([1.0, 2.0] * 3, 1):
        made += [
            row(turn, "drbench", "row", 0.8 * factor * (1 + turn / 100), roof=4),
            row(turn, "cosma", "its own choice", 1.5 * factor),
            row(turn, "cosma", "pk2", 0.5 * factor),
            row(turn, "dtensor", "row", 1.0 * factor),
            row(turn, "dtensor", "megatron", 0.1 * factor, collective_bytes=0),
        ]
    made += [row(1, "cosma", "pm2", 0.1), row(1, "drbench", "column", 0.1, roof=4)]
    by_name = {(line.who, line.label): line for line in compare_contenders(made)}
    ours = by_name["drbench", "row"]
    assert tuple(ours.ratio) == pytest.approx((0.8 * 1.035, 0.8 * 1.01, 0.8 * 1.06))
    assert tuple(ours.best_ratio) == pytest.approx((1.6 * 1.035, 1.6 * 1.01, 1.6 * 1.06))
    assert (ours.reference, ours.best_reference) == ("dtensor row", "cosma pk2")
    assert by_name["cosma", "its own choice"].ratio.middle == 1.5
    assert (ours.rounds, by_name["cosma", "pm2"].rounds) == (6, 1)
    assert ("cosma", "pk2") in best_settings(made)
    few = next(line for line in compare_contenders(made[:25]) if line.who == "drbench")
    assert few.ratio.low is None and few.ratio.middle == pytest.approx(0.8 * 1.03)


def test_the_best_is_the_fastest_not_the_highest_ratio_and_never_a_noisy_row():
    made = [
        row(1, "drbench", "row", 0.6, roof=1, noisy=False),  # 333 % of a disturbed roof
        row(1, "drbench", "column", 0.5, roof=100, noisy=False),
        row(1, "drbench", "block", 0.1, roof=100, noisy=True),
        row(1, "heat", "row · row", 0.2, noisy=True),
        row(1, "heat", "row · column", 0.9, noisy=False),
    ]
    assert best_settings(made) == {("drbench", "column"), ("heat", "row · column")}
    assert best_settings(made[2:4]) == {("drbench", "block"), ("heat", "row · row")}


def test_a_library_under_which_drbench_multiplies_is_no_competitor():
    """It is shown, but is neither the reference library nor ahead of drbench."""
    made = [row(1, "drbench", name, 1.0, roof=4) for name in ("row", "column", "inner")]
    made += [row(1, "dtensor", "row", 2.0), row(1, "dtensor+drbench", "row", 0.5)]
    found = compare_contenders(made)
    assert {line.reference for line in found} == {"dtensor row"}


def test_a_setting_that_moves_nothing_is_never_the_best():
    assert best_settings(RECORDS) == {
        ("drbench", "column"),
        ("dtensor", "row"),
        ("cosma", "its own choice"),
    }


def test_rounds_of_the_sweep_are_compared_by_library_and_setting():
    """As ``drbench sweep libraries`` writes them."""
    sizes = {"m": 8, "n": 8, "k": 8, "status": "ok", "mode": "measured"}
    of = lambda turn, time, **more: made_up(
        **sizes, case=f"{turn} | {len(more):016x}", best_s=time, median_s=time, **more
    )
    records = [
        record
        for turn in (1, 2)
        for record in (
            of(turn, 1.0 * turn, algorithm="universal", preset="block", a="block", b="block"),
            of(turn, 3.0 * turn, algorithm="heat", a="row", b="column", c="column"),
            of(turn, 2.0 * turn, algorithm="scalapack", mesh="1x2", block=64),
            of(turn, 4.0 * turn, algorithm="cosma"),
        )
    ]
    lines = {line.who: line for line in compare_contenders(records)}
    labels = {who: line.label for who, line in lines.items()}
    assert labels == {
        "drbench": "block",
        "heat": "inner",
        "scalapack": "1x2, block 64",
        "cosma": "its own choice",
    }
    assert {line.rounds for line in lines.values()} == {2}
    assert lines["drbench"].ratio.middle == 0.5 and lines["drbench"].reference == (
        "scalapack 1x2, block 64"
    )


def test_other_records_in_the_file_are_ignored():
    assert compare_contenders([made_up(case="0f3a"), made_up()]) == []
