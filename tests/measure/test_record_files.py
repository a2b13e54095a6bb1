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
from old_records import FILE, in_12

from drbench.measure.record import HEADER, Record, RecordError
from drbench.measure.record_file import (
    TornRowWarning,
    append_csv,
    is_other_form,
    parse_columns,
    read_csv,
    read_damaged_csv,
)
from plots.select.records import read_records


def case(m, **values):
    return made_up(m=m, **{"reason": 'a, "b"', **values})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.csv"


def test_the_header_is_written_once(path):
    append_csv(path, case(1))
    append_csv(path, case(2), case(3))
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(HEADER) and [len(row) for row in rows] == [len(HEADER)] * 4
    assert read_csv(path) == [case(1), case(2), case(3)]


def test_a_row_is_one_write(path, monkeypatch):
    written = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or write(fd, data))
    append_csv(path, case(1))
    append_csv(path, case(2), case(3))
    assert [data.count(b"\n") for data in written] == [2, 2]


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
    records = [case(1, median_s=0.625, samples_s=[0.5, 0.75]), case(2, label="µ")]
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
    plain = {
        "empty rows": saved([*rows[:2], empty, [], *rows[2:], empty]),
        "a second header": saved([*rows[:2], HEADER, *rows[2:]], encoding="utf-8-sig"),
        "a file of schema 12 in front": FILE.read_bytes() + saved(rows),
    }
    for form, data in plain.items():
        path.write_bytes(data)
        older = read_csv(FILE) if "12" in form else []
        assert read_csv(path) == [*older, *records], form


@pytest.mark.parametrize(
    "data, words",
    [
        (
            saved([HEADER, case(1, label="µ").to_row()], encoding="cp1252"),
            "line 2: label must be a text in UTF-8",
        ),
        (saved([HEADER, case(1).to_row()], encoding="utf-16")[:-1], "UTF-16 is damaged"),
        (saved([HEADER, case(1, iqr_s=0.5).to_row()], ";").replace(b"0.5;", b"0,5;", 1), "'0,5'"),
        (saved([["case", "time"], ["x", "0.5"]], ";"), "Give a file of records"),
    ],
)
def test_a_file_that_is_ambiguous_or_damaged_is_refused_for_reading_in_one_line(path, data, words):
    path.write_bytes(data)
    with pytest.raises(RecordError, match=words) as refused:
        read_csv(path)
    assert "\n" not in str(refused.value) and "another file name" not in str(refused.value)


def test_a_partly_written_row_is_removed(path, monkeypatch):
    append_csv(path, case(1))
    before = path.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(OSError, match="only a part"):
        append_csv(path, case(2))
    assert path.read_bytes() == before

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
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


@pytest.mark.parametrize("text", ["name,gflops\nx,1\n", "notes without a newline", "\nrow\n"])
def test_a_file_without_records_is_neither_appended_to_nor_changed(path, text):
    path.write_text(text)
    with pytest.raises(RecordError, match="another header") as caught:
        append_csv(path, case(1))
    assert "\n" not in str(caught.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "change", [lambda names: names[:-1], lambda names: [*names, "extra"], lambda names: names[::-1]]
)
def test_another_header_is_refused_on_reading_and_names_the_column(path, change):
    path.write_text(",".join(change(list(HEADER))) + "\n")
    with pytest.raises(RecordError, match="another header: '.*' where schema 13 has '.*'"):
        read_csv(path)


def test_an_unknown_schema_version_is_refused_whether_or_not_the_columns_changed(path):
    row = case(1).to_row()
    row[0] = "14"
    for header, cells in [(HEADER, row), ((*HEADER, "energy_j"), [*row, "9"])]:
        with open(path, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, cells])
        with pytest.raises(
            RecordError, match="schema_version 14 is unknown; this drbench reads 13"
        ):
            read_csv(path)


def test_a_row_that_does_not_parse_is_named_by_file_and_line(path):
    append_csv(path, case(1))
    with open(path, "a") as file:
        file.write("1,measured,too short\n")
    with pytest.raises(RecordError, match=r"runs\.csv, line 3: a row of schema 13"):
        read_csv(path)


def test_a_file_that_a_spreadsheet_saved_reads_the_same(path):
    append_csv(path, case(1, reason="=x"), case(2, replicate_result=True))
    data = path.read_bytes().replace(b"\n", b"\r\n").replace(b"true", b"TRUE")
    path.write_bytes(b"\xef\xbb\xbf" + data + b"\r\n")
    assert read_csv(path) == [case(1, reason="=x"), case(2, replicate_result=True)]


def test_an_empty_file_has_no_records_and_accepts_the_first(path):
    path.touch()
    assert read_csv(path) == []
    append_csv(path, case(1))
    assert read_csv(path) == [case(1)]


def test_appending_nothing_leaves_a_header(path):
    append_csv(path)
    append_csv(path)
    assert path.read_text() == ",".join(HEADER) + "\n"


def test_a_file_of_an_older_drbench_is_refused_in_one_line_and_not_appended_to(path):
    names = [name for name in HEADER if name != "core_share"]
    cells = dict(zip(HEADER, case(1).to_row())) | {"schema_version": "11"}
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([names, [cells[x] for x in names]])
    before = path.read_bytes()
    for read in (read_csv, lambda path: read_records([path])):
        with pytest.raises(RecordError) as caught:
            read(path)
        described = f"{path}: schema_version 11 is of an older drbench; this one reads 13."
        assert str(caught.value).startswith(described) and "\n" not in str(caught.value)
    with pytest.raises(RecordError, match="another header"):
        append_csv(path, case(2))
    assert path.read_bytes() == before


def test_a_file_of_schema_12_reads_as_its_records_in_this_one_and_is_not_appended_to(path):
    records = read_csv(FILE)
    assert in_12(records) == FILE.read_bytes()
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
    with pytest.raises(RecordError, match="another header: 'machine' where schema 13 has 'label'"):
        append_csv(older, case(1))
    assert older.read_bytes() == FILE.read_bytes()


def test_a_damaged_file_of_schema_12_is_refused_and_its_whole_rows_are_read(path):
    path.write_bytes(FILE.read_bytes().replace(b"12,measured,", b"12,measured", 1))
    with pytest.raises(RecordError, match="line 2: a row of schema 13 has"):
        read_csv(path)
    records, damaged = read_damaged_csv(path)
    assert records == read_csv(FILE)[1:] and list(damaged) == [2]
    path.write_bytes(FILE.read_bytes().replace(b"roof", b"root"))
    with pytest.raises(RecordError, match="'root_gflops' where schema 12 has 'roof_gflops'"):
        read_csv(path)


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
