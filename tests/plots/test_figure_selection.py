"""Each figure shows the points of a slow implementation of its rule."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from figure_records import case, comparison, exhaustive, weak
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.measure.record import COUNTERS
from drbench.plots.figures import best, libraries, scaling
from drbench.plots.registry import find
from drbench.plots.select.cases import Options
from drbench.plots.select.records import frame, rows
from drbench.texts import layouts_text


@pytest.fixture(scope="module")
def records():
    found = [*exhaustive(ranks=2), *comparison(), *weak()]
    random.Random(8).shuffle(found)
    return found


def split(text):
    form, _, factor = text.partition("/c")
    return form, int(factor or 1)


def test_a_cell_of_the_best_is_the_fastest_case_of_its_factors_and_noisy_ones_come_last():
    records = exhaustive(ranks=2)
    records = [replace(r, noisy=n % 5 == 0 and r.status == "ok") for n, r in enumerate(records)]
    (((_, shape), cells),), _ = best.maps(records, Options())
    assert shape == (64, 768, 192)
    expected = {}
    for record in records:
        if record.status == "ok":
            (a, _), (b, _), (c, factor) = map(split, (record.a, record.b, record.c))
            row = layouts_text((a, b, c))
            expected.setdefault((row, record.stationary, factor), []).append(
                (record.noisy, record.time_s)
            )
    shown = {
        (cell.row, cell.stationary, cell.factor): (cell.hollow, cell.time_s) for cell in rows(cells)
    }
    assert shown == {key: min(found) for key, found in expected.items()}
    fastest = min(time for noisy, time in shown.values() if not noisy)
    for cell in rows(cells):
        assert cell.percent == pytest.approx(min(100, 100 * fastest / cell.time_s))


def test_every_case_that_moves_bytes_is_one_dot_at_its_sum(records):
    picture = find("volume").make(records, Options(shape=(64, 768, 192))).picture
    shown = Counter(
        (float(x), int(number))
        for axes in picture.axes
        for line in axes.lines
        for x, number in zip(line.get_xdata(), line.cases)
    )
    expected = Counter()
    for number, record in enumerate(records):
        counts = [getattr(record, name) or 0 for name in COUNTERS]
        if record.status == "ok" and (record.m, record.n, record.k) == (64, 768, 192):
            expected[float(sum(counts)), number] += sum(counts) > 0
    assert shown == +expected and sum(expected.values()) > 300


def measured(algorithm, time_s=1e-5, **values):
    """A case of the figure of libraries."""
    known = {"ranks": 2, "m": 64, "n": 64, "k": 64, "mode": "measured", "stationary": None}
    return case(algorithm=algorithm, median_s=time_s, **known | values)


def test_gemm_only_speed_is_drbench_s_own_and_no_limit_of_libraries_with_another_blas():
    roofs = {"universal": 100.0, "dtensor": 50.0, "dtensor+drbench": 60.0}
    records = [measured(name, gemm_only_gflops=roof) for name, roof in roofs.items()]
    for name, expected in (("algorithms", [[100.0, 100.0]]), ("libraries", [])):
        axes = find(name).make(records, Options()).picture.axes[0]
        rules = [line for line in axes.lines if line.described == "GEMM-only speed"]
        assert [list(rule.get_xdata()) for rule in rules] == expected


def test_a_library_without_a_number_of_nodes_is_compared_with_drbench_on_one_not_on_two():
    for nodes, panels in ((1, [["cosma", "universal"]]), (2, [["cosma"], ["universal"]])):
        records = measured("universal", nodes=nodes), measured("cosma")
        found, _, _ = libraries.choose(records, Options())
        assert sorted(sorted(dots.name) for _, _, dots in found) == panels


def interleaved(name, times_s, label="x", **values):
    """The rounds of a contender of the figure of libraries."""
    return [
        measured(name, s, case=f"{turn} | square | {name} | {label}", samples_s=[s], **values)
        for turn, s in enumerate(times_s, 1)
    ]


@pytest.mark.parametrize(
    "seconds, described",
    [
        ((2.0, 3.0), "drbench is ahead of the fastest other library on 1 of 1 shape"),
        ((3.0, 2.0), "drbench is behind the fastest other library on 1 of 1 shape"),
        ((None, 2.0), "Undecided on 1 of 1 shape"),
    ],
)
def test_the_finding_of_libraries_is_the_decision_on_interleaved_rounds(seconds, described):
    """On a machine that becomes slower, with a GEMM-only speed that varies by 2 %; drbench alone is
    noisy in the last."""
    ours, theirs = seconds
    slow = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    roofs = [100.0 / (1.02 if at % 2 else 1) for at in range(6)]
    noisy = [True] * 6 if ours is None else [False] * 6
    records = [
        replace(row, gemm_only_gflops=roof, noisy=bad)
        for row, roof, bad in zip(
            interleaved("universal", [(ours or 1.0) * s for s in slow]), roofs, noisy
        )
    ]
    records += interleaved("cosma", [theirs * s for s in slow])
    (title, notes) = libraries.finding(libraries.choose(records, Options())[0])
    assert title == described
    assert notes == (["undecided: a quiet machine would decide"] if ours is None else [])


def test_a_dot_of_libraries_is_the_best_setting_over_its_rounds():
    records = [
        *interleaved("universal", [5.0, 5.0, 5.0, 5.0, 3.0, 3.0, 3.0], "slow", mesh="1x2"),
        *interleaved("universal", [4.0] * 7, "good", mesh="2x1", percent_of_gemm_only=10.0),
        *interleaved("universal", [1.0] * 7, "still", a="R", get_bytes=0),
        *interleaved("heat", [7.0] * 7, mesh="1x2"),
        *interleaved("heat", [6.9], "once", mesh="2x2"),
        *interleaved("heat", [1.0] * 7, "noisy", mesh="3x1", noisy=True),
        *interleaved("dtensor", [2.0, 4.0] * 3, noisy=True),
    ]
    ((_, _, dots),), drawn, notes = libraries.choose(records, Options())
    assert drawn == ["dtensor", "universal", "heat"]
    work = 2 * 64**3 / 1e9
    shown = {dot.name: (dot.time_s, dot.hollow, dot.low, dot.high) for dot in rows(dots)}
    assert shown == {
        "universal": (4.0, False, work / 4, work / 4),
        "dtensor": (3.0, True, work / 4, work / 2),
        "heat": (7.0, False, work / 7, work / 7),
    }
    assert "hollow: 1 noisy case, never ranked" in notes
    assert "not drawn: 1 case moving nothing" in notes


def test_strong_lines_are_the_fastest_case_on_each_number_of_ranks(records):
    panels, _ = scaling.choose(scaling.STRONG, records, Options())
    assert {title for title, _, _ in panels} == {
        "m = 64, n = 768, k = 192",
        "m = 512, n = 512, k = 512",
    }
    for _, _, lines in panels:
        for point in rows(lines):
            if point.algorithm != "universal":
                known = ("algorithm", "m", "n", "k", "ranks")
                alike = lambda record: all(getattr(record, x) == getattr(point, x) for x in known)
                assert point.best_s == min(r.best_s for r in records if r.best_s and alike(r))


#: Sizes of a problem and its number of ranks.
SHAPES = [*itertools.product((8, 16, 32), (8, 16), (8, 24), (1, 2, 4))]
EVERY_SHAPE = frame([case(m=m, n=n, k=k, ranks=p, best_s=m / n) for m, n, k, p in SHAPES])


@settings(max_examples=15, deadline=None)
@given(chosen=st.lists(st.integers(0, len(SHAPES) - 1), max_size=12))
def test_a_weak_family_has_the_same_work_a_rank_and_one_shape_for_each_number_of_ranks(chosen):
    records = EVERY_SHAPE.iloc[chosen].reset_index(drop=True)
    shapes = [SHAPES[each] for each in chosen]
    possible = any(
        one[3] != other[3]
        and one[0] * one[1] * one[2] * other[3] == other[0] * other[1] * other[2] * one[3]
        for one, other in combinations(shapes, 2)
    )
    try:
        panels, _ = scaling.choose(scaling.WEAK, records, Options())
    except scaling.SelectionError:
        panels = []
    assert possible or not panels
    for _, _, lines in panels:
        every = rows(lines)
        assert len({r.m * r.n * r.k / r.ranks for r in every}) == 1
        assert len({(r.ranks, r.m, r.n, r.k) for r in every}) == len({r.ranks for r in every}) > 1


def test_a_growing_batch_is_one_family_and_its_efficiency_is_the_rate_kept():
    records = [case(m=64 * p, ranks=p, best_s=1.0 + 0.25 * (p > 1)) for p in (1, 2, 4)]
    (panel,), notes = scaling.choose(scaling.WEAK, [*records, case(m=7)], Options())
    title, _, lines = panel
    assert title == "m = 64 a rank, n = 256, k = 64"
    assert list(scaling.efficiency(lines)) == [100.0, 80.0, 80.0]
    assert notes == [
        "not drawn: 1 case whose work a rank is on one number of ranks only. Let m grow with -p."
    ]


def test_more_triples_than_fit_lose_the_slowest_and_are_counted():
    records = [
        case(a=f"tiles:{number}x8@2x2", percent_of_peak=float(number), best_s=1 / number)
        for number in range(1, 101)
    ]
    ((_, cells),), notes = best.maps(records, Options())
    assert sorted(cells.percent_of_peak) == list(map(float, range(61, 101)))
    assert notes == ["1024 × 256 × 64: not drawn: 60 slower partition triples"]


def test_two_contenders_of_one_setting_are_one_round_of_it():
    """``row`` and ``row S-C`` are one program where S-C is the choice."""
    ran = [
        ("universal", (1, 1, 2), ("row", "row S-C", "row")),
        ("heat", (1, 2), ("heat", "heat")),
    ]
    records = [
        measured(name, case=f"{turn} | square 64 | {label}")
        for name, turns, labels in ran
        for turn, label in zip(turns, labels)
    ]
    ((_, _, dots),), drawn, _ = libraries.choose(records, Options())
    assert [*map(len, dots.run)] == [2, 2] and {*drawn} == {"heat", "universal"}
