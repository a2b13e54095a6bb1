"""The lines of Figures 2 and 3 are chosen by the paper's rules, in the paper's order."""

import random
import re
from dataclasses import replace
from math import inf

import pytest
from figure_records import FORMS, case, published

from drbench.measure.record import Record
from drbench.plots.select.cases import LEGEND, SelectionError
from drbench.plots.select.selection import missing, select


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
                        and record.transport != "throttled"
                        and record.schedule in (None, "direct")
                        and (
                            record.n == 4 * record.k
                            if layer == "mlp1"
                            else record.k == 4 * record.n
                        )
                        and tuple(text[1] for text in texts) == form
                        and (record.moved_bytes or 0) > (record.collective_bytes or 0)
                        and (record.stationary, record.m) == (movement, batch)
                        and factors[0] == factors[1] < record.ranks
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


def any_record(chance):
    """A record of few values, so that ties are common; some have another algorithm, transport or
    schedule, other layouts or sizes, or no count of their bytes."""
    often = lambda first, *others: first if chance.random() < 0.9 else chance.choice(others)
    forms = often(
        chance.choice(list(FORMS.values())[:3]), ("row", "row", None), ("row", "block:4x3", "row")
    )
    c = chance.choice([1, 2, 3])
    factors = often((c, c, c), (c, c, 1), (1, c, c))
    texts = [f and f"{f}/c{q}".replace("/c1", "") for f, q in zip(forms, factors)]
    n, k = often(chance.choice([(256, 64), (64, 256)]), (256, 65), (64, 64))
    time_s = chance.choice([1.0, 2.0, 3.0])
    ended = {"best_s": time_s / 2, "median_s": time_s, "noisy": chance.choice([None, False, True])}
    moved = chance.choice("get direct accumulate replica collective".split())
    return Record(
        mode="simulated",
        algorithm=often("universal", "summa"),
        transport=often(None, "throttled"),
        schedule=often(None, "direct", "greedy"),
        stationary=chance.choice("ABC"),
        percent_of_peak=chance.choice([10.0, 20.0, 30.0]),
        **dict(zip("abc", texts)),
        ranks=3,
        m=chance.choice([32, 64, 128]),
        n=n,
        k=k,
        **often({"status": "ok", **ended}, {"status": "failed", "reason": "x"}),
        **{"get_bytes": 0, f"{moved}_bytes": often(8, 0, None)},
    )


@pytest.mark.parametrize("layer", ["mlp1", "mlp2"])
def test_any_cases_in_any_order_are_selected_as_the_rules_read(layer):
    chance, every = random.Random(layer), 0
    for count in range(0, 120, 8):
        records = [any_record(chance) for _ in range(count)]
        expected = oracle(records, layer)
        lines = select(chance.sample(records, count), layer)
        assert drawn(lines) == expected
        assert [line.name for line in lines] == list(LEGEND)
        for line in lines:  # a baseline without a record has no reason
            assert not (line.points and line.why)
            assert line.points or line.why or not LEGEND[line.name]
        every += len(expected)
    assert every > 25


def test_measured_cases_are_drawn_in_percent_of_their_roof_or_as_asked_and_without_a_peak():
    """A roof was measured between the repeats, and drifts with them."""
    row = {"percent_of_gemm_only": 90.0}
    both = case(c="row", a="column", mode="measured", percent_of_peak=40.0, **row)
    roof = case(percent_of_peak=None, mode="measured", percent_of_gemm_only=80.0)
    for asked, drawn_at in (("auto", 90.0), ("gemm_only", 90.0), ("peak", 40.0)):
        (point,) = only(select([both], "mlp1", asked), "UA - Outer Prod.").points
        assert point.value == drawn_at
    lines = select([roof, both], "mlp1")
    values = [only(lines, name).points[0].value for name in ("UA - Row", "UA - Outer Prod.")]
    assert values == [80.0, 90.0]
    roof, both = (replace(each, mode="simulated") for each in (roof, both))
    lines = select([roof, both, *published(64)], "mlp1")
    assert only(lines, "UA - Row").points[0].value == 80.0
    assert only(lines, "DT - Row").why == "no percent_of_gemm_only in its records"


def test_libraries_are_lines_without_factors_where_their_problem_is_the_same():
    dtensor = only(select([case(), *published(64)], "mlp1"), "DT - Column")
    assert dtensor.legend == "DT - Column"
    assert {point.m: point.factor for point in dtensor.points} == dict.fromkeys(
        (1024, 2048, 4096, 8192), ""
    )
    assert only(select(published(64), "mlp1"), "DT - Row").points
    lines = select([case(), *published(12288)], "mlp1")
    left_out = "not drawn: DT - Row, DT - Column, COSMA-NCCL (no case with k = 64 in float32)"
    assert not only(lines, "DT - Row").points and left_out in missing(lines)


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


def test_simulated_dtensor_is_drawn_with_the_fastest_of_its_strategies():
    """The same algorithm run by drbench's ranks is not DTensor."""
    of_row = {"algorithm": "dtensor_mm", "stationary": None, "preset": "row"}
    simulated = [case(**of_row, percent_of_peak=value, case=str(value)) for value in (40.0, 45.0)]
    (point,) = only(select([case(), *simulated], "mlp1"), "DT - Row").points
    assert point.value == 45.0
    ours = case(mode="measured")
    ran = [replace(each, mode="measured") for each in simulated]
    assert only(select([ours, *ran], "mlp1"), "DT - Row").points == ()


@pytest.mark.parametrize(
    "name, value",
    [("label", "h100x8"), ("ranks", 8), ("dtype", "float64"), ("mode", "measured"), ("threads", 2)],
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
    for values, why in (
        ({"get_bytes": 0}, "eliminates communication"),
        ({**dict.fromkeys("ab", "row/c12"), "replica_bytes": 8}, "eliminates communication"),
        ({"get_bytes": None}, "bytes not recorded"),
        ({"transport": "throttled"}, "only throttled transports"),
    ):
        assert only(select([case(**values)], "mlp1"), "UA - Row").why == why
