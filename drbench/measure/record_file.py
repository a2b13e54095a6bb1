"""Record files: CSV, a header and one line a record (:class:`drbench.measure.record.Record`).

A row is written whole or not at all, so the file of a killed sweep can be read and resumed.
"""

import csv
import errno
import fcntl
import io
import os
import stat
import warnings
from collections.abc import Iterable
from contextlib import suppress

from .record import (
    CHECKED,
    HEADER,
    HEADERS,
    KINDS,
    SCHEMA_VERSION,
    Record,
    RecordError,
    from_12,
    trouble_of,
    unknown_version,
)


class TornRowWarning(UserWarning):
    """The last line of a file has no newline: its writer was killed, and the row is ignored."""


def _lock(descriptor: int) -> None:
    """Lock out other writers, if the file system can (Lustre without ``-o flock`` cannot): a sweep
    has its folder to itself, and any row is one write at the end of the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP):
            raise


def append_csv(path: str | os.PathLike, *records: Record) -> None:
    """Append records to a CSV file, all of them or none; a new file gets the header first.

    The rows are one write on an ``O_APPEND`` descriptor under an exclusive lock, then
    ``fsync``: several launchers may share a file, and a kill between two rows loses neither. A torn
    row that a killed writer left is cut off first (with a :class:`TornRowWarning`), so that rows
    never join.

    Raises
    ------
    RecordError
        If the file has another header, or is a device or a pipe.
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
        size = _whole_size(descriptor, path)
        data = lines if size else _lines([HEADER]) + lines
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(
                    f"{path}: only a part of the row fitted on the disk, and was removed. Free "
                    "some space."
                )
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)  # releases the lock


def read_csv(path: str | os.PathLike) -> list[Record]:
    """Read every record of a CSV file; a file without rows gives an empty list.

    A last line without a newline is a row whose writer was killed: it is left out with a
    :class:`TornRowWarning`, even if its cells happen to parse.

    Raises
    ------
    RecordError
        If the header is not that of a known schema, or a row does not parse; the message gives file
        and line.
    """
    with open(path, "rb") as file:
        return parse_csv(file.read(), path)


def read_damaged_csv(path: str | os.PathLike) -> tuple[list[Record], dict[int, bytes]]:
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
    header, *lines = data.split(b"\n")
    records, damaged = [], {}
    for number, line in enumerate(lines[:-1], 2):
        try:
            records += parse_csv(header + b"\n" + line + b"\n", path)
        except RecordError:
            damaged[number] = line
    if not records:
        parse_csv(data, path)  # raises the error
    return records, damaged


def is_older(path: str | os.PathLike) -> bool:
    """Whether a file has records of an older schema, which are read but not appended to."""
    with open(path, "rb") as file:
        return _cells(file.readline().rstrip()) in [*HEADERS.values()][:-1]


def parse_csv(data: bytes, path: str | os.PathLike) -> list[Record]:
    """Read every record of a CSV file's bytes as :func:`read_csv` does; the path is for messages.

    Examples
    --------
    >>> parse_csv(b"", "standard input")
    []
    """
    return [_record(row, number, path) for number, row in _rows(data, path)]


def parse_columns(data: bytes, path: str | os.PathLike) -> dict[str, list]:
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


def _record(row: tuple[str, ...], number: int, path: str | os.PathLike) -> Record:
    try:
        return Record.from_row(row)
    except RecordError as error:
        raise RecordError(f"{path}, line {number}: {error}") from None


def _rows(data: bytes, path: str | os.PathLike) -> list[tuple[int, tuple[str, ...]]]:
    """The rows of a file with the numbers of their lines, in cells of this schema's header."""
    *whole, torn = data.split(b"\n")
    if torn:
        warnings.warn(
            f"{path}: the last line has no newline and is left out", TornRowWarning, stacklevel=4
        )
    if not whole:
        if not _lines([HEADER]).startswith(torn):
            raise _other_header(path, _cells(torn))
        return []
    header, *rows = [_cells(line) for line in whole]
    if header not in HEADERS.values():
        # another schema has other columns; its version is clearer than the column that differs
        found = dict(zip(header, rows[0])).get("schema_version") if rows else None
        if found not in (None, *HEADERS):
            raise RecordError(f"{path}: {unknown_version(found)}")
        raise _other_header(path, header, found or str(SCHEMA_VERSION))
    if header != HEADER:
        rows = [from_12(row) for row in rows]
    return [(number, row) for number, row in enumerate(rows, start=2) if row]  # not blank lines


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")


def _cells(line: bytes) -> tuple[str, ...]:
    """Split one line, tolerating what spreadsheets add: a byte-order mark and carriage returns."""
    text = line.decode("utf-8-sig", "replace").rstrip("\r")
    try:
        return tuple(next(csv.reader([text]), ()))
    except csv.Error:
        return (text,)  # not a line of a CSV file; reading its cells raises the error


def _whole_size(descriptor: int, path: str | os.PathLike) -> int:
    """Check the header and cut a torn last line off; give the bytes that remain. Needs the lock."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        data = file.read()
    whole, newline, torn = data.rpartition(b"\n")
    size = len(whole) + len(newline)
    if newline:
        header = _cells(data[: data.index(b"\n")])
        if header != HEADER:
            raise _other_header(path, header)
    elif not _lines([HEADER]).startswith(
        torn
    ):  # not a header that was cut short: someone else's file
        raise _other_header(path, _cells(torn))
    if torn:
        warnings.warn(
            f"{path}: the last line has no newline and is cut off", TornRowWarning, stacklevel=3
        )
        os.ftruncate(descriptor, size)
    return size


def _other_header(
    path: str | os.PathLike, header: tuple[str, ...], version: str = str(SCHEMA_VERSION)
) -> RecordError:
    pairs = zip((*header, "no column"), (*HEADERS[version], "no column"), strict=False)
    got, expected = next((pair for pair in pairs if pair[0] != pair[1]), ("no column", "no column"))
    got = got if len(got) < 40 and got.isprintable() else f"{got[:20]}…"
    return RecordError(
        f"{path} has another header: {got!r} where schema {version} has {expected!r}. Use "
        "another file name."
    )
