"""The lines of Figures 2 and 3 are chosen by the paper's rules, in the paper's order."""

import re
from dataclasses import replace
from math import inf

import pytest
from figure_records import FORMS, case, published, sweep
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.measure.record import Record
from plots.registry import find
from plots.select.cases import LEGEND, Options, SelectionError, factor_text, split_factor
from plots.select.selection import missing, select


def oracle(records, layer):
    """The rules once more, slowly: every combination is searched in the whole list."""
    chosen = {}
    for name, form in FORMS.items():
        best = {}  # (movement, batch) -> (percent, factors)
        for movement in ("C", "B"):
            for batch in {record.m for record in records}:
                for record in records:
                    texts = [
                        re.fullmatch(r"([a-z0-9:]+?)(?:/c(\d+))?", t)
                        for t in (record.a, record.b, record.c)
                        if t
                    ]
                    factors = tuple(int(text[2] or 1) for text in texts)
                    if (
                        record.algorithm == "universal"
                        and record.status == "ok"
                        and (
                            record.n == 4 * record.k
                            if layer == "mlp1"
                            else record.k == 4 * record.n
                        )
                        and tuple(text[1] for text in texts) == form
                        and record.moved_bytes > (record.collective_bytes or 0)
                        and (record.stationary, record.m) == (movement, batch)
                        and factors[0] == factors[1]
                        and not (layer == "mlp1" and factors[1] != factors[2])
                    ):
                        # the fastest that is not noisy, whatever its percent
                        time_s = record.best_s if record.median_s is None else record.median_s
                        rank = (bool(record.noisy), time_s, factors)
                        if (movement, batch) not in best or rank < best[movement, batch][0]:
                            best[movement, batch] = (rank, record.percent_of_peak)
        if not best:
            continue
        largest = max(batch for _, batch in best)
        never = ((True, inf), 0.0)
        c, b = (best.get((movement, largest), never)[0][:2] for movement in "CB")
        movement = "C" if c <= b else "B"
        points = [
            (batch, best[movement, batch][1], best[movement, batch][0][2])
            for (where, batch) in sorted(best)
            if where == movement
        ]
        chosen[f"{name} (S-{movement})"] = [
            (batch, percent, str(f[0]) if f[0] == f[2] else f"{f[0]}-{f[2]}")
            for batch, percent, f in points
        ]
    return chosen


def drawn(lines):
    return {
        line.legend: [(point.m, point.value, point.factor) for point in line.points]
        for line in lines
        if line.points and line.stationary
    }


def only(lines, name):
    return next(line for line in lines if line.name == name)


def test_measured_cases_with_both_are_drawn_in_percent_of_their_roof_or_as_asked():
    """A roof was measured between the repeats, and drifts with them."""
    both = [
        replace(each, percent_of_peak=each.percent_of_gemm_only and each.percent_of_gemm_only / 2)
        for each in sweep(ranks=4, quantity="percent_of_gemm_only", mode="measured")
        if each.mode == "measured"
    ]
    for asked, field in (("auto", "gemm_only"), ("gemm_only", "gemm_only"), ("peak", "peak")):
        lines = [line for line in select(both, "mlp1", asked) if line.points]
        assert {line.quantity for line in lines} == {f"percent_of_{field}"} and lines
    heights = [
        max(point.value for line in select(both, "mlp1", asked) for point in line.points)
        for asked in ("gemm_only", "peak")
    ]
    assert heights[0] == pytest.approx(2 * heights[1])
    drawn = find("mlp1").make(both, Options(quantity="peak")).picture
    assert "percent of peak (%)" in drawn.axes[0].get_ylabel()


@st.composite
def small_sweeps(draw):
    def record(form, factors, stationary, m, time_s, percent, noisy, ok, moved, layer):
        texts = {
            x: f if q == 1 else f"{f}/c{q}" for x, f, q in zip("abc", form, factors, strict=True)
        }
        sizes = {"m": m, "n": 256, "k": 64} if layer == "mlp1" else {"m": m, "n": 64, "k": 256}
        times = {"best_s": time_s / 2, "median_s": time_s, "noisy": noisy}
        ending = {"status": "ok", **times} if ok else {"status": "failed", "reason": "x"}
        return Record(
            mode="simulated",
            algorithm="universal",
            stationary=stationary,
            percent_of_peak=percent,
            **{**texts, **sizes, **ending, "get_bytes": 0, moved: 8},
        )

    factor = st.sampled_from([1, 1, 2, 3])
    return draw(
        st.lists(
            st.builds(
                record,
                st.sampled_from(list(FORMS.values())[:3]),
                st.tuples(factor, factor, factor),
                st.sampled_from("ABC"),
                st.sampled_from([32, 64, 128]),
                st.sampled_from([1.0, 2.0, 3.0]),  # few values: ties are common
                st.sampled_from([10.0, 20.0, 30.0]),
                st.sampled_from([None, False, True]),
                st.sampled_from([True, True, True, False]),
                st.sampled_from(
                    [f"{way}_bytes" for way in "get direct accumulate replica collective".split()]
                ),
                st.sampled_from(["mlp1", "mlp2"]),
            ),
            max_size=40,
        )
    )


@settings(max_examples=60, deadline=None)
@given(small_sweeps(), st.sampled_from(["mlp1", "mlp2"]), st.randoms())
def test_any_set_of_cases_in_any_order_is_selected_as_the_rules_read(records, layer, chance):
    expected = oracle(records, layer)
    chance.shuffle(records)
    lines = select(records, layer)
    assert drawn(lines) == expected
    assert [line.name for line in lines] == list(LEGEND)
    for line in lines:  # a baseline without a record has no reason
        assert not (line.points and line.why) and (line.points or line.why or not LEGEND[line.name])


@pytest.mark.parametrize(
    "values, why",
    [
        ({"get_bytes": 0}, "moves no bytes"),
        ({"get_bytes": None}, "bytes not recorded"),
        ({"transport": "throttled"}, "only throttled transports"),
    ],
)
def test_a_case_without_evidence_is_left_out_however_fast(values, why):
    fast = case(percent_of_peak=99.0, **values)
    line = only(select([fast, case(percent_of_peak=10.0)], "mlp1"), "UA - Row")
    assert [point.value for point in line.points] == [10.0]
    assert only(select([fast], "mlp1"), "UA - Row").why == why


def test_a_mixed_factor_is_printed_as_ab_dash_c():
    assert factor_text(case(a="row/c2", b="row/c2")) == "2-1"
    assert factor_text(case(a="row/c2", b="row/c2", c="row/c2")) == "2"
    assert split_factor("block:3x2:col/c12") == ("block:3x2:col", 12)


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "summa"},
        {"b": "column"},
        {"c": "block:4x3"},
        {"k": 65},
        {"n": 64},
        {"b": None},
    ],
)
def test_cases_of_other_algorithms_partitionings_and_problems_are_no_line(values):
    assert not any(line.points for line in select([case(**values)], "mlp1"))


def test_the_roof_is_drawn_when_any_case_has_no_peak():
    roof = case(percent_of_peak=None, percent_of_gemm_only=80.0)
    both = case(c="row", a="column", percent_of_peak=40.0, percent_of_gemm_only=90.0)
    lines = select([roof, both, *published(64)], "mlp1")
    assert only(lines, "UA - Row").points[0].value == 80.0
    assert only(lines, "UA - Outer Prod.").points[0].value == 90.0
    assert only(lines, "DT - Row").why == "no percent_of_gemm_only in its records"


def test_libraries_of_the_same_problem_are_lines_without_factors():
    lines = select([case(), *published(64)], "mlp1")
    dtensor = only(lines, "DT - Column")
    assert dtensor.legend == "DT - Column"
    assert [(point.m, point.factor) for point in dtensor.points] == [
        (m, "") for m in (1024, 2048, 4096, 8192)
    ]
    assert only(select(published(64), "mlp1"), "DT - Row").points


def test_measured_cases_of_dtensor_by_rows_and_by_columns_are_its_lines():
    measured = [
        case(algorithm="dtensor", stationary=None, a=a, b=b, c=a, percent_of_gemm_only=value)
        for a, b, value in (
            ("row", "row", 50.0),
            ("column", "column", 60.0),
            ("row", "column", 70.0),
            ("row/c2", "row/c2", 80.0),
        )
    ]
    lines = select([case(percent_of_gemm_only=90.0), *measured], "mlp1")
    assert {
        name: [measured[point.Index - 1] for point in only(lines, name).points]
        for name in ("DT - Row", "DT - Column")
    } == {"DT - Row": measured[:1], "DT - Column": measured[1:2]}


def test_libraries_of_another_problem_are_left_out_and_listed():
    lines = select([case(), *published(12288)], "mlp1")
    assert not only(lines, "DT - Row").points
    assert (
        "not drawn: DT - Row, DT - Column, COSMA-NCCL (no case with k = 64 in float32)"
        in missing(lines)
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("label", "h100x8"),
        ("ranks", 8),
        ("dtype", "float64"),
        ("mode", "measured"),
        ("threads", 2),
    ],
)
def test_cases_that_one_figure_cannot_compare_are_refused(name, value):
    with pytest.raises(SelectionError, match=f"compares cases of one {name}; got .*{value}"):
        select([case(), case(**{name: value})], "mlp1")


def test_what_is_not_drawn_is_listed_with_its_reason():
    failed = [case(a="column", status=each) for each in ("timeout", "timeout", "failed")]
    ok = case(m=64), case(m=32), case(m=32, b="column", c="column")
    lines = select([*ok, *failed], "mlp1")
    described = missing(lines)
    assert "not drawn: UA - Outer Prod. (no case is ok: 2 timeout, 1 failed)" in described
    assert "UA - Inner Prod. (S-C) has no case at batch 64" in described
    names = {line.name for line in lines if not line.points and LEGEND[line.name]}
    assert all(any(name in text for text in described) for name in names)
