"""A record does not change by CSV or JSON, and refuses values that violate the schema."""

import csv
import io
import json
import math
from dataclasses import fields, replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up as ok
from old_records import in_version

from drbench.measure.record import HEADER, MODES, STATUSES, Record, RecordError
from drbench.measure.record_file import parse_columns, parse_csv

TEXTS = st.text(max_size=20) | st.sampled_from(["=1", "+x", "-x", "@x", "'=x", "''", 'a,b;"c'])
SIGNED = ("alpha", "beta", "error", "effective_communication_s", "overlap_efficiency")
EXTENTS = ("m", "n", "k", "ranks", "threads", "nodes")
TINY, MOST = 1e-100, 1e100


def values_of(column):
    """The values that a column may have."""
    tiny = TINY if column.name == "median_s" else 0
    numbers = st.floats(tiny, MOST)
    if column.name in SIGNED:
        numbers = st.floats(allow_nan=False, allow_infinity=False)
    return {
        str | None: st.none() | TEXTS,
        int | None: st.none() | st.integers(column.name in EXTENTS, 2**63 - 1),
        float | None: st.none() | numbers,
        bool | None: st.none() | st.booleans(),
        list[float]: st.lists(st.floats(TINY, MOST), max_size=12),
    }[column.type]


COLUMNS = st.fixed_dictionaries({column.name: values_of(column) for column in fields(Record)})


@st.composite
def records(draw):
    values = draw(COLUMNS)
    values |= {
        "schema_version": 14,
        "mode": draw(st.sampled_from(MODES)),
        "status": draw(st.sampled_from(STATUSES)),
    }
    values["reason"] = draw(
        st.sampled_from(
            ["=cmd()", "out of memory: 3 of 4 ranks", '-1 \N{GREEK SMALL LETTER ALPHA}, "x"']
        )
    )
    values["best_s"] = draw(st.floats(1e-9, 1e9))
    return Record(**values)


@settings(max_examples=50)
@given(records())
def test_a_record_equals_the_one_read_from_its_csv_line_and_from_its_json(record):
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(record.to_row())
    assert line.getvalue().count("\n") == 1
    assert Record.from_row(next(csv.reader([line.getvalue()]))) == record
    known = {name: getattr(record, name) for name in HEADER if name != "samples_s"}
    infinite = [name for name in known if known[name] in (math.inf, -math.inf)]
    record = Record(**known | dict.fromkeys(infinite))
    text = json.dumps(record.to_json_dict(), allow_nan=False)
    assert Record(**json.loads(text)) == record


@pytest.mark.parametrize("version", ["12", "13"])
@settings(max_examples=30)
@given(found=st.lists(records(), max_size=3))
def test_any_records_read_from_a_file_of_an_older_schema_are_the_same(version, found):
    found = [replace(record, slowest_rank=None, slowest_rank_s=None) for record in found]
    if version == "12":  # the machine model was the label of a prediction
        models = [record.label if record.mode == "simulated" else None for record in found]
        found = [replace(record, machine=model) for record, model in zip(found, models)]
    data = in_version(found, version)
    assert parse_csv(data, "old.csv") == found
    columns = parse_columns(data, "old.csv")
    assert columns == {name: [getattr(record, name) for record in found] for name in HEADER}


@given(st.text(max_size=30))
def test_no_text_cell_starts_like_a_formula_or_breaks_the_line(text):
    cell = ok(reason=text).to_row()[HEADER.index("reason")]
    assert not cell.startswith(("=", "+", "-", "@", "\t"))
    assert "\n" not in cell and "\r" not in cell


@pytest.mark.parametrize(
    "name, value, cell",
    [
        ("error", -1.5, "-1.5"),
        ("samples_s", [0.1, 1 / 3], "0.1;0.3333333333333333"),
        ("reason", "first\nsecond\r\nthird", "first second third"),
        ("reason", "no file \udcff", "no file \\udcff"),
        ("reason", "red \x1b[31m\x00\ttext\x9b", "red  [31m text "),
    ],
)
def test_numbers_are_whole_and_a_text_is_one_line_that_utf8_can_hold(name, value, cell):
    assert ok(**{name: value}).to_row()[HEADER.index(name)] == cell


def test_none_is_an_empty_cell_and_a_json_null_and_no_samples_are_an_empty_list():
    record = ok()
    row = dict(zip(HEADER, record.to_row(), strict=True))
    assert {name for name, cell in row.items() if cell} == {
        "schema_version",
        "mode",
        "status",
        "best_s",
    }
    assert record.to_json_dict()["machine"] is None
    assert record.samples_s == record.to_json_dict()["samples_s"] == []
    assert ok(samples_s=None) == record == ok(reason="", machine="")


def test_json_has_null_for_values_it_cannot_express():
    assert ok(error=math.nan).to_json_dict()["error"] is None


def test_numpy_scalars_become_plain_numbers():
    record = ok(
        m=numpy.int64(3),
        gflops=numpy.float32(0.5),
        samples_s=numpy.array([0.25, 0.5]),
        replicate_result=numpy.bool_(True),
    )
    assert [type(value) for value in (record.m, record.gflops, record.replicate_result)] == [
        int,
        float,
        bool,
    ]
    assert Record.from_row(record.to_row()) == record


def test_a_text_too_long_for_a_csv_reader_is_cut():
    record = ok(reason="x" * 200_000)
    assert Record.from_row(record.to_row()) == record and len(record.reason) == 10_000


@pytest.mark.parametrize(
    "values, words",
    [
        ({"status": "fine"}, "status must be one of ok, unsupported"),
        ({"mode": "guessed"}, "mode must be one of"),
        ({"best_s": math.nan}, "needs best_s > 0; got none"),
        ({"best_s": 0.0}, "best_s must be a number from 1e-100 to 1e"),
        ({"best_s": math.inf}, "needs best_s > 0"),
        ({"schema_version": 15}, "schema_version 15 is unknown"),
        ({"m": True}, "m must be an integer"),
        ({"gflops": "fast"}, "gflops must be a number from 0 to 1e+100; got 'fast'"),
        ({"machine": 7}, "machine must be a text"),
        ({"replicate_result": 1}, "replicate_result must be true or false"),
        ({"ranks": 0}, "ranks must be an integer from 1 to 9.22337e+18; got 0"),
        ({"disturbed": -1}, "disturbed must be an integer from 0 to 9.22337e+18; got -1"),
        ({"samples_s": [0.1, None]}, "samples_s must be at most 5000 numbers"),
        ({"samples_s": "12"}, "samples_s must be at most 5000 numbers"),
        ({"samples_s": [0.1] * 5001}, "samples_s must be at most 5000 numbers"),
    ],
)
def test_a_value_outside_the_schema_is_refused_in_one_line(values, words):
    with pytest.raises(RecordError) as caught:
        ok(**values)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ok"])
def test_every_status_but_ok_needs_a_reason(status):
    with pytest.raises(RecordError, match="needs a reason"):
        Record(mode="measured", status=status)
    assert Record(mode="measured", status=status, reason="because").best_s is None
    with pytest.raises(RecordError, match="needs a reason"):
        replace(ok(), status=status)


@pytest.mark.parametrize(
    "name, cell",
    [
        *((name, cell) for name in EXTENTS for cell in ("0", "-5", "1.5", str(2**63))),
        *((name, cell) for name in ("gflops", "iqr_s", "cpu_s") for cell in ("-1", "nan", "-inf")),
        *(("samples_s", cell) for cell in ("0.1;nan", "inf", "-1;1", "0")),
        *(("median_s", cell) for cell in ("0", "-1", "1e400", "1e101", "1e-101")),
        ("m", "many"),
        ("best_s", "0,5"),
        ("replicate_result", "yes"),
        ("samples_s", "0.1;;0.2"),
    ],
)
def test_a_cell_that_does_not_parse_is_refused_by_name(name, cell):
    row = ok().to_row()
    row[HEADER.index(name)] = cell
    with pytest.raises(RecordError, match=f"{name} must be"):
        Record.from_row(row)
