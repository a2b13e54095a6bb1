"""A result file takes rows whole or not at all, and reads back what was written."""

import codecs
import csv
import errno
import io
import multiprocessing
import os
import shutil
import warnings
from dataclasses import replace

import pytest
from made_up import made_up
from old_records import FILE, in_version

from drbench.measure.record import HEADER, Record, RecordError
from drbench.measure.record_file import (
    TornRowWarning,
    append_csv,
    is_other_form,
    parse_columns,
    read_csv,
    read_damaged_csv,
)
from drbench.plots.select.records import read_records


def case(m, **values):
    return made_up(m=m, **{"reason": 'a, "b"', **values})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.csv"


def test_the_header_is_written_once_and_rows_of_a_call_are_one_write(path, monkeypatch):
    written, write = [], os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or write(fd, data))
    append_csv(path, case(1))
    append_csv(path, case(2), case(3))
    assert [data.count(b"\n") for data in written] == [2, 2]
    assert path.read_text().count(",".join(HEADER)) == 1
    assert read_csv(path) == [case(1), case(2), case(3)]


def test_every_truncation_of_a_file_reads_as_its_whole_rows_and_accepts_another_row(path):
    time = "2026-11-29T08:48:29+00:00"
    rows = [case(1), case(2, timestamp=time)]
    append_csv(path, *rows)
    data = path.read_bytes()
    ends = [data.index(b"\n", data.index(b"\n") + 1), len(data) - 1]  # a newline may lack
    for size in [*range(0, len(data), 7), *range(ends[1] - 30, len(data) + 1), ends[0]]:
        path.write_bytes(data[:size])
        whole = [row for row, end in zip(rows, ends) if end <= size]
        if size == ends[1] - len(time):  # it has all cells but the last, which may be empty
            whole.append(replace(rows[1], timestamp=None))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornRowWarning)
            assert read_csv(path) == read_damaged_csv(path)[0] == whole
            append_csv(path, case(3))
            assert read_csv(path) == [*whole, case(3)]


def saved(rows, delimiter=",", point=".", newline="\n", encoding="utf-8"):
    """The bytes of a file that a spreadsheet saved."""
    text = io.StringIO()
    numbers = lambda row: [cell.replace(".", point) if "." in cell else cell for cell in row]
    csv.writer(text, delimiter=delimiter, lineterminator=newline).writerows(map(numbers, rows))
    return text.getvalue().encode(encoding)


def test_what_spreadsheets_make_of_a_file_is_read_and_not_appended_to(path):
    records = [
        case(1, median_s=0.625, samples_s=[0.5, 0.75]),
        case(2, label="µ", reason="=x", replicate_result=True),
    ]
    rows = [HEADER, *(record.to_row() for record in records)]
    padded = [[*row, "", ""] for row in rows]
    empty = [""] * len(HEADER)
    forms = {
        "semicolons": saved(rows, ";", ","),
        "semicolons and points": saved(rows, ";"),
        "tabs in UTF-16": saved(rows, "\t", ",", "\r\n", "utf-16"),
        "the other UTF-16": codecs.BOM_UTF16_BE + saved(rows, encoding="utf-16-be"),
        "carriage returns": saved(rows, newline="\r"),
        "columns without a name": saved(padded, encoding="utf-8-sig"),
    }
    for form, data in forms.items():
        for end in (0, 1):  # the last newline
            data = data[
                : len(data) - end * len("\n".encode("utf-16-le" if "16" in form else "utf-8"))
            ]
            path.write_bytes(data)
            assert read_csv(path) == read_damaged_csv(path)[0] == records, form
            columns = parse_columns(data, path)
            assert columns == {name: [getattr(x, name) for x in records] for name in HEADER}
            with pytest.raises(RecordError, match="Use another file name"):
                append_csv(path, case(3))
            assert path.read_bytes() == data and is_other_form(path)
    windows = saved([*rows, []], newline="\r\n", encoding="utf-8-sig")
    plain = {
        "Windows": windows.replace(b"true", b"TRUE"),
        "empty rows": saved([*rows[:2], empty, [], *rows[2:], empty]),
        "a second header": saved([*rows[:2], HEADER, *rows[2:]], encoding="utf-8-sig"),
        "a file of schema 12 in front": FILE.read_bytes() + saved(rows),
    }
    for form, data in plain.items():
        path.write_bytes(data)
        older = read_csv(FILE) if "12" in form else []
        assert read_csv(path) == [*older, *records], form


ROW = case(1, label="µ", iqr_s=0.5).to_row()
_ANOTHER = "another header: '.*' where schema 14 has '.*'"
_UNKNOWN = "schema_version 15 is unknown; this drbench reads 14"
_CORE = HEADER.index("core_share")
REFUSED = {
    saved([HEADER, ROW], encoding="cp1252"): "line 2: label must be a text in UTF-8",
    saved([HEADER, ROW], encoding="utf-16")[:-1]: "UTF-16 is damaged",
    saved([HEADER, ROW], ";").replace(b"0.5;", b"0,5;", 1): "'0,5'",
    saved([["case", "time"], ["x", "0.5"]], ";"): "Give a file of records",
    b"notes without a newline": "another header",
    b"\nrow\n": "another header",
    saved([HEADER[:-1]]): _ANOTHER,
    saved([[*HEADER, "extra"]]): _ANOTHER,
    saved([HEADER[::-1]]): _ANOTHER,
    saved([HEADER, ["15", *ROW[1:]]]): _UNKNOWN,
    saved([[*HEADER, "energy_j"], ["15", *ROW[1:], "9"]]): _UNKNOWN,
    saved([[*row[:_CORE], *row[_CORE + 1 :]] for row in (HEADER, ["11", *ROW[1:]])]): (
        "schema_version 11 is of an older drbench; this one reads 14"
    ),
    saved([HEADER, ROW, ["1", "measured", "too short"]]): "line 3: a row of schema 14",
    FILE.read_bytes().replace(b"12,measured,", b"12,measured", 1): "line 2: a row of schema 14 has",
    FILE.read_bytes().replace(b"roof", b"root"): "'root_gflops' where schema 12 has 'roof_gflops'",
}


@pytest.mark.parametrize("data", REFUSED, ids=REFUSED.values())
def test_a_file_of_no_records_is_refused_in_one_line_that_names_it_and_not_changed(path, data):
    path.write_bytes(data)
    calls = [read_csv, lambda path: read_records([path])]
    if not data.startswith(b",".join(name.encode() for name in HEADER) + b"\n"):
        calls.append(lambda path: append_csv(path, case(1)))
    for call in calls:
        with pytest.raises(
            RecordError, match=f"{path}.*{REFUSED[data] * (call in calls[:2])}"
        ) as refused:
            call(path)
        assert "\n" not in str(refused.value)
    assert path.read_bytes() == data


def test_a_partly_written_row_is_removed(path, monkeypatch):
    append_csv(path, case(1))
    before, write = path.read_bytes(), os.write

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    for failing, words in ((lambda fd, data: write(fd, data[:10]), "only a part"), (full, "space")):
        monkeypatch.setattr(os, "write", failing)
        with pytest.raises(OSError, match=words):
            append_csv(path, case(2))
        assert path.read_bytes() == before


def _append_many(path, first):
    for m in range(first, first + 20):
        append_csv(path, case(m + 1))


def test_writers_at_the_same_time_lose_no_row_and_write_one_header(path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, 100 * i)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = [m + 1 for i in range(3) for m in range(100 * i, 100 * i + 20)]
    assert sorted(record.m for record in read_csv(path)) == expected


def test_appending_nothing_leaves_a_header(path):
    append_csv(path)
    append_csv(path)
    assert path.read_text() == ",".join(HEADER) + "\n"


def test_a_file_of_schema_12_reads_as_its_records_in_this_one_and_is_not_appended_to(path):
    records = read_csv(FILE)
    assert in_version(records, "12") == FILE.read_bytes()
    assert [(row.mode, row.label, row.machine, row.status) for row in records] == [
        ("measured", "epyc-2core", None, "ok"),
        ("simulated", "pvc12", "pvc12", "ok"),
        ("published", "h100x8", None, "ok"),
        ("measured", "=mine", None, "failed"),
    ]
    low, percent, high = (
        getattr(records[0], f"percent_of_gemm_only{end}") for end in ("_low", "", "_high")
    )
    assert 0 < low < percent < high and records[0].gemm_only_gflops > records[0].gflops
    append_csv(path, *records)
    assert read_csv(path) == records
    assert parse_columns(path.read_bytes(), path) == parse_columns(FILE.read_bytes(), FILE)
    older = path.with_name("older.csv")
    shutil.copyfile(FILE, older)
    with pytest.raises(RecordError, match="another header: 'machine' where schema 14 has 'label'"):
        append_csv(older, case(1))
    assert older.read_bytes() == FILE.read_bytes()


def test_the_whole_rows_of_a_damaged_file_of_schema_12_are_read(path):
    path.write_bytes(FILE.read_bytes().replace(b"12,measured,", b"12,measured", 1))
    records, damaged = read_damaged_csv(path)
    assert records == read_csv(FILE)[1:] and list(damaged) == [2]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.EIO])
def test_rows_are_appended_where_the_file_system_has_no_locks(tmp_path, monkeypatch, number):
    """Lustre mounted without ``-o flock``. Any other failure to lock is reported."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("drbench.measure.record_file.fcntl.flock", refuse)
    path, rows = tmp_path / "r.csv", [made_up(m=m) for m in (64, 128)]
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)):
            append_csv(path, rows[0])
    else:
        for row in rows:
            append_csv(path, row)
        assert [record.m for record in read_csv(path)] == [64, 128]


@pytest.mark.timeout(20)
def test_a_device_or_a_pipe_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/full", "/dev/zero", tmp_path / "pipe"):
        with pytest.raises(RecordError, match="not a regular file: no rows can be appended"):
            append_csv(path, Record(mode="measured", status="ok", best_s=1.0))
