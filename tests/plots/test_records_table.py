"""The table of records has the values of the records, typed, and is read fast."""

import time
from dataclasses import replace

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up as case
from starting import within

from drbench.measure.record import COUNTERS, HEADER, RecordError
from drbench.measure.record_file import TornRowWarning, append_csv, parse_columns, parse_csv
from drbench.plots.select.records import frame, read_records, rows

CASES = [
    case(
        label="=here", a="row/c2", m=64, n=256, k=64, samples_s=[0.5, 0.75], replicate_result=True
    ),
    case(mode="simulated", get_bytes=0, collective_bytes=2**40, percent_of_gemm_only=float("nan")),
    case(status="timeout", reason='60 s, "all" of them', best_s=None, ranks=4),
]


def plain(row):
    return {name: getattr(row, name) for name in HEADER}


@pytest.fixture
def path(tmp_path):
    append_csv(tmp_path / "runs.csv", *CASES)
    return tmp_path / "runs.csv"


def test_a_row_is_its_record(path):
    nan_is_empty = replace(CASES[1], percent_of_gemm_only=None)
    assert list(map(plain, rows(read_records([path])))) == [
        plain(record) for record in (CASES[0], nan_is_empty, CASES[2])
    ]
    pandas.testing.assert_frame_equal(read_records([path]).assign(sweep=0), frame(CASES))


def test_ten_thousand_rows_are_read_in_under_a_second(tmp_path):
    append_csv(path := tmp_path / "sweep.csv", replace(CASES[0], samples_s=[0.5, 0.75] * 5))
    header, row = path.read_text().splitlines()
    many = [row.replace(",64,", f",{m},", 1) for m in range(1, 10_001)]
    path.write_text("\n".join([header, *many, ""]))

    def seconds():
        start = time.process_time()
        assert read_records([path]).m.max() == 10_000
        return time.process_time() - start

    assert any(within(seconds(), 1.0) for _ in range(3))


def test_columns_have_types_and_statuses_an_order(path):
    found = read_records([path, path])
    assert list(found.index) == list(range(6))
    kinds = {name: str(found[name].dtype) for name in HEADER}
    assert (kinds["m"], kinds["best_s"], kinds["replicate_result"]) == (
        "Int64",
        "float64",
        "boolean",
    )
    assert (kinds["label"], kinds["samples_s"], kinds["mode"]) == ("str", "object", "category")
    assert found.status.max() == "timeout"
    assert found.groupby("mode", observed=True).size().to_dict() == {"measured": 4, "simulated": 2}


def test_the_time_of_a_case_is_its_median_or_the_one_time_it_has():
    found = frame([case(best_s=1.0, median_s=1.5), case(mode="simulated", best_s=2.0), CASES[2]])
    assert found.time_s.tolist()[:2] == [1.5, 2.0] and found.time_s.isna().tolist()[2]
    assert [record.time_s for record in (case(median_s=1.5), case(), CASES[2])] == [1.5, 0.5, None]


counts = st.tuples(*[st.none() | st.integers(0, 2**50)] * len(COUNTERS))


@settings(max_examples=20, deadline=None)
@given(st.lists(counts, min_size=1))
def test_moved_bytes_are_those_of_every_kind_and_unknown_if_none_was_counted(counts):
    records = [case(**dict(zip(COUNTERS, each))) for each in counts]
    known = [[count for count in each if count is not None] for each in counts]
    expected = [sum(each) if each else None for each in known]
    assert [row.moved_bytes for row in rows(frame(records))] == expected
    assert [record.moved_bytes for record in records] == expected


def test_a_torn_row_is_left_out_with_a_warning(path):
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.warns(TornRowWarning, match="the last line has no newline, is no whole row and is"):
        assert len(read_records([path])) == 2


cells = st.sampled_from(["", "1", "-1", "1.5", "inf", "true", "ok", "x", "'=y", "1;2", "measured"])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(HEADER) - 1), cells, st.booleans())
def test_the_table_refuses_the_same_values_as_records_with_the_same_message(column, cell, short):
    good = CASES[0].to_row()
    changed = good[:column] + [cell] + good[column + 1 :]
    data = "".join(
        ",".join(f'"{each}"' for each in row) + "\n"
        for row in (HEADER, good, changed[: len(good) - short])
    ).encode()
    try:
        expected = [plain(record) for record in parse_csv(data, "x.csv")]
    except RecordError as error:
        with pytest.raises(RecordError) as caught:
            parse_columns(data, "x.csv")
        assert str(caught.value) == str(error) and "x.csv, line 3: " in str(error)
    else:
        columns = parse_columns(data, "x.csv")
        assert [dict(zip(columns, row)) for row in zip(*columns.values())] == expected
