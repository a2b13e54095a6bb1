"""Record files: CSV, a header and one line a record (:class:`drbench.measure.record.Record`).

A row is written whole or not at all, so the file of a killed sweep can be read and resumed. What
spreadsheets make of a file is read, too: semicolons or tabs, decimal commas, UTF-16, empty rows.
"""

import codecs
import csv
import errno
import fcntl
import io
import os
import re
import stat
import warnings
from collections.abc import Container, Iterable
from contextlib import suppress
from os import PathLike

from .record import (
    CHECKED,
    HEADER,
    HEADERS,
    KINDS,
    SCHEMA_VERSION,
    Record,
    RecordError,
    from_older,
    trouble_of,
    unknown_version,
)

#: The form of a timestamp: 0 is a digit.
_TIMESTAMP = "0000-00-00T00:00:00+00:00"
#: Columns of numbers, in all versions of the schema.
_NUMBERS = {
    *(name for name, kind in KINDS.items() if kind.write is repr or kind.empty is list),
    *(name for name in HEADERS["12"] if "roof" in name),
}


class TornRowWarning(UserWarning):
    """The last line of a file has no newline and is no whole row: its writer was killed, and the
    row is ignored."""


def _lock(descriptor: int) -> None:
    """Lock out other writers, if the file system can (Lustre without ``-o flock`` cannot): a sweep
    has its folder to itself, and any row is one write at the end of the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP):
            raise


def append_csv(path: str | PathLike, *records: Record) -> None:
    """Append records to a CSV file, all of them or none; a new file gets the header first.

    The rows are one write on an ``O_APPEND`` descriptor under an exclusive lock, then
    ``fsync``: several launchers may share a file, and a kill between two rows loses neither. A torn
    row that a killed writer left is cut off first (with a :class:`TornRowWarning`), so that rows
    never join; a whole row gets the newline that it lacks.

    Raises
    ------
    RecordError
        If the file has another header or the form of a spreadsheet, or is a device or a pipe.
    OSError
        If the disk is full; the file is as before.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "runs.csv")
    >>> append_csv(path, Record(mode="measured", status="ok", m=64, best_s=0.5))
    >>> append_csv(path, Record(mode="measured", status="timeout", m=128, reason="60 s"))
    >>> [(record.m, record.status) for record in read_csv(path)]
    [(64, 'ok'), (128, 'timeout')]
    """
    lines = _lines(record.to_row() for record in records)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it may have no end
            raise RecordError(
                f"{path} is not a regular file: no rows can be appended. Name a file."
            )
        _lock(descriptor)
        size, newline = _whole_size(descriptor, path)
        data = newline + lines if size else _lines([HEADER]) + lines
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "only a part of the row fitted on the disk")
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)  # releases the lock


def format_records(*records: Record) -> str:
    """The text of a file of records."""
    return _lines([HEADER, *(record.to_row() for record in records)]).decode()


def read_csv(path: str | PathLike) -> list[Record]:
    """Read every record of a CSV file; a file without rows gives an empty list.

    A last line without a newline that is no whole row is left out with a :class:`TornRowWarning`:
    its writer was killed. Empty rows are left out, and further headers, of files that were joined.

    Raises
    ------
    RecordError
        If the header is not that of a known schema, or a row does not parse; the message gives file
        and line.
    """
    with open(path, "rb") as file:
        return parse_csv(file.read(), path)


def read_damaged_csv(path: str | PathLike) -> tuple[list[Record], dict[int, bytes]]:
    """Read a CSV file as :func:`read_csv` does, but skip rows that do not parse.

    Returns
    -------
    tuple of list of Record and dict of int to bytes
        The records, and the lines that do not parse, by number.

    Raises
    ------
    RecordError
        If the header is not the schema's, or no row is whole: it is not a file of records.
    """
    with open(path, "rb") as file:
        data = file.read()
    with suppress(RecordError):
        return parse_csv(data, path), {}
    header, *lines = data.splitlines(keepends=True)
    records, damaged = [], {}
    for number, line in enumerate(lines, 2):
        try:
            records += parse_csv(header + line, path)
        except RecordError:
            damaged[number] = line.rstrip(b"\n")
    if not records:
        parse_csv(data, path)  # raises the error
    return records, damaged


def is_other_form(path: str | PathLike) -> bool:
    """Whether a file has records of an older schema, or the form of a spreadsheet: such files are
    read but not appended to."""
    with open(path, "rb") as file:
        line = file.readline()
    return _header(line) != HEADER and not _lines([HEADER]).startswith(line)  # or torn, or empty


def parse_csv(data: bytes, path: str | PathLike) -> list[Record]:
    """Read every record of a CSV file's bytes as :func:`read_csv` does; the path is for messages.

    Examples
    --------
    >>> parse_csv(b"", "standard input")
    []
    """
    return [_record(row, number, path) for number, row in _rows(data, path)]


def parse_columns(data: bytes, path: str | PathLike) -> dict[str, list]:
    """Read a CSV file's bytes as :func:`parse_csv` does, but column by column: name -> values.

    Ten times faster than records, and as strict.

    Examples
    --------
    >>> record = Record(mode="measured", status="ok", best_s=0.1, m=64)
    >>> columns = parse_columns(_lines([HEADER, record.to_row(), record.to_row()]), "two.csv")
    >>> columns["m"], columns["reason"], columns["samples_s"]
    ([64, 64], [None, None], [[], []])
    """
    numbered = _rows(data, path)
    if not numbered:
        return {name: [] for name in HEADER}
    try:
        cells = zip(*(row for _, row in numbered), strict=True)
        columns = {
            name: kind.column(texts)
            for (name, kind), texts in zip(KINDS.items(), cells, strict=True)
        }
        if not any(map(trouble_of, *(columns[name] for name in CHECKED))):
            return columns
    except (ValueError, KeyError):
        pass
    records = [_record(row, number, path) for number, row in numbered]  # raises with the line
    return {name: [getattr(record, name) for record in records] for name in HEADER}


def _record(row: tuple[str, ...], number: int, path: str | PathLike) -> Record:
    try:
        return Record.from_row(row)
    except RecordError as error:
        raise RecordError(f"{path}, line {number}: {error}") from None


def read_table(
    data: bytes, path: str | PathLike, numbers: Container[str]
) -> tuple[list[tuple[int, tuple[str, ...]]], bool]:
    """The rows of a CSV file as drbench or a spreadsheet writes it, with the numbers of their
    lines, and whether the last line has no newline. Empty rows are left out.

    Commas, semicolons or tabs are between cells, in UTF-8, or UTF-16 with its mark. Where they are
    not commas and no number has a point, commas in the columns of ``numbers`` are decimal.

    Raises
    ------
    RecordError
        If it is damaged UTF-16.

    Examples
    --------
    >>> read_table(b"case;best_s\\r\\n;\\r\\nx,y;0,5", "a.csv", ["best_s"])
    ([(1, ('case', 'best_s')), (3, ('x,y', '0.5'))], True)
    """
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode(*(["utf-16"] if is_utf16 else ["utf-8-sig", "surrogateescape"]))
    except UnicodeDecodeError:
        raise RecordError(f"{path}: its UTF-16 is damaged. Save it as CSV UTF-8.") from None
    lines = re.split("\r\n?|\n", text)
    delimiter = max(",;\t", key=next(filter(None, lines), "").count)
    table = []
    for number, line in enumerate(lines, 1):
        row = _cells(line, delimiter)
        if any(row):
            table.append((number, row))
    if not table:
        return [], False
    header = table[0][1]
    width = max(number for number, cell in enumerate(header, 1) if cell)
    if width < len(header):  # columns without a name
        table = [(number, row if any(row[width:]) else row[:width]) for number, row in table]
    where = [place for place, name in enumerate(header) if name in numbers]
    texts = (row[place] for _, row in table[1:] for place in where if place < len(row))
    if delimiter != "," and not any("." in text for text in texts):
        decimal = lambda row: (
            cell.replace(",", ".") if place in where else cell for place, cell in enumerate(row)
        )
        table[1:] = [(number, tuple(decimal(row))) for number, row in table[1:]]
    return table, bool(lines[-1])


def read_cells(
    data: bytes, path: str | PathLike, numbers: Container[str]
) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The header of a table of :func:`read_table`, and its rows as cells by column.

    Raises
    ------
    RecordError
        If a row has more or fewer cells than the header.
    """
    (_, header), *rows = read_table(data, path, numbers)[0] or [(1, ())]
    for number, row in rows:
        if len(row) != len(header):
            raise RecordError(
                f"{path}, line {number}: {len(row)} cells under {len(header)} columns. Restore the "
                "row or delete it."
            )
    return header, [(number, dict(zip(header, row))) for number, row in rows]


def _rows(data: bytes, path: str | PathLike) -> list[tuple[int, tuple[str, ...]]]:
    """The rows of a file with the numbers of their lines, in cells of this schema's header."""
    table, is_open = read_table(data, path, _NUMBERS)
    if not table:
        return []
    known = [*HEADERS.values()]
    (_, header), *rows = table
    if header not in known:
        if is_open and not rows and _lines([HEADER]).startswith(data):
            _warn(path, "left out")
            return []
        # another schema has other columns; its version is clearer than the column that differs
        version = dict(zip(header, rows[0][1])).get("schema_version") if rows else None
        if version not in (None, *HEADERS):
            raise RecordError(f"{path}: {unknown_version(version)}")
        raise _other_header(path, header, version or str(SCHEMA_VERSION))
    rows = [(number, from_older(row)) for number, row in rows if row not in known]
    if is_open and rows and not _is_whole(rows[-1][1]):
        _warn(path, "left out")
        rows.pop()
    return rows


def _is_whole(row: tuple[str, ...]) -> bool:
    """Whether a row without a newline has all its cells: if it ends in a part of a timestamp, its
    writer was killed."""
    shape = re.sub("[0-9]", "0", row[-1])
    try:
        Record.from_row(row)
    except RecordError:
        return False
    return shape in ("", _TIMESTAMP) or not _TIMESTAMP.startswith(shape)


def _warn(path: str | PathLike, what: str) -> None:
    text = f"{path}: the last line has no newline, is no whole row and is {what}"
    warnings.warn(text, TornRowWarning, stacklevel=4)


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")


def _cells(line: str, delimiter: str = ",") -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader([line.removeprefix("\ufeff")], delimiter=delimiter), ()))
    except csv.Error:
        return (line,)  # not a line of a CSV file; reading its cells raises the error


def _header(line: bytes) -> tuple[str, ...]:
    """The cells of a header to which rows can be appended, perhaps with what editors add: a
    byte-order mark, a carriage return."""
    return _cells(line.decode("utf-8", "replace").rstrip("\r\n"))


def _whole_size(descriptor: int, path: str | PathLike) -> tuple[int, bytes]:
    """Check the header and cut a torn last line off; give the bytes that remain, and the newline
    that they lack. Needs the lock."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        data = file.read()
    first, newline, _ = data.partition(b"\n")
    is_torn_header = not newline and _lines([HEADER]).startswith(first)
    if _header(first) != HEADER and not is_torn_header:
        raise _other_header(path, _header(first), remedy="Use another file name.")
    whole, newline, last = data.rpartition(b"\n")
    if not last:
        return len(data), b""
    row = _header(last)
    if row == HEADER or newline and _is_whole(row):
        return len(data), b"\n"
    _warn(path, "cut off")
    size = len(whole) + len(newline)
    os.ftruncate(descriptor, size)
    return size, b""


def _other_header(
    path: str | PathLike,
    header: tuple[str, ...],
    version: str = str(SCHEMA_VERSION),
    remedy: str = "Give a file of records, as drbench run --csv or sweep writes it.",
) -> RecordError:
    pairs = zip((*header, "no column"), (*HEADERS[version], "no column"), strict=False)
    got, expected = next((pair for pair in pairs if pair[0] != pair[1]), ("no column", "no column"))
    got = got if len(got) < 40 and got.isprintable() else f"{got[:20]}…"
    return RecordError(
        f"{path} has another header: {got!r} where schema {version} has {expected!r}. {remedy}"
    )
