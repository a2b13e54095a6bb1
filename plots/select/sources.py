"""Records for figures: from result files, from folders of a sweep, from standard input, and from
files of published numbers.

A file of published numbers has the columns ``figure, system, devices, peak_tflops_per_device,
dtype, layer, series, m, n, k, gflops, source``, one row a point.
"""

import csv
import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from drbench.measure.record import Record, parse_csv

PUBLISHED_COLUMNS = [
    "figure",
    "system",
    "devices",
    "peak_tflops_per_device",
    "dtype",
    "layer",
    "series",
    "m",
    "n",
    "k",
    "gflops",
    "source",
]
STDIN = "-"
_RECORDS = "records.csv"  # of a sweep's folder


def read_published(path: str | os.PathLike) -> list[Record]:
    """Read published numbers as records of mode ``published``.

    The series is the ``algorithm``, the system and its devices are the ``machine`` (``h100x8``),
    the source is kept as the ``reason``; ``percent_of_peak`` is of all devices together.

    Raises
    ------
    ValueError
        If the columns are others, or a row does not parse; the message gives file and line.
    """
    return _parse_published(Path(path).read_bytes(), path)


def load(paths: Iterable[str | os.PathLike]) -> list[Record]:
    """Read result files and files of published numbers, told apart by their headers, in order.

    A folder stands for its ``records.csv``, or without one for all its CSV files; ``-`` is standard
    input.

    Raises
    ------
    ValueError
        If a file is neither (:class:`drbench.measure.record.RecordError` is one), or a folder holds
        no CSV file.
    """
    records: list[Record] = []
    for path in paths:
        if os.fspath(path) == STDIN:
            records += _parse(sys.stdin.buffer.read(), "standard input")
        else:
            for file in csv_files(path):
                records += _parse(file.read_bytes(), file)
    return records


def csv_files(path: str | os.PathLike) -> list[Path]:
    """The CSV files that a path stands for: itself, or those of a folder."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = [path / _RECORDS] if (path / _RECORDS).is_file() else sorted(path.glob("*.csv"))
    if not found:
        raise ValueError(
            f"{path} holds no CSV file. Give it the --out folder of a sweep, or a file."
        )
    return found


def _parse(data: bytes, path: str | os.PathLike) -> list[Record]:
    header = (
        data.removeprefix(b"\xef\xbb\xbf")
        .split(b"\n", 1)[0]
        .rstrip(b"\r")
        .decode("utf-8", "replace")
    )
    return (
        _parse_published(data, path)
        if header.split(",") == PUBLISHED_COLUMNS
        else parse_csv(data, path)
    )


def _parse_published(data: bytes, path: str | os.PathLike) -> list[Record]:
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace"), newline=""))
    if list(rows.fieldnames or ()) != PUBLISHED_COLUMNS:
        got = ", ".join(rows.fieldnames or ()) or "none"
        raise ValueError(
            f"{path} is no file of published numbers: its columns are {got}. "
            f"Use the columns {', '.join(PUBLISHED_COLUMNS)}."
        )
    records = []
    for row in rows:
        try:
            records.append(_published(row))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}. Correct the row.") from None
    return records


def _published(row: dict[str, str]) -> Record:
    m, n, k, devices = (int(row[name]) for name in ("m", "n", "k", "devices"))
    gflops = float(row["gflops"])
    peak_gflops = float(row["peak_tflops_per_device"]) * 1e3 * devices
    return Record(
        mode="published",
        machine=f"{row['system']}x{devices}",
        algorithm=row["series"],
        m=m,
        n=n,
        k=k,
        dtype=row["dtype"],
        ranks=devices,
        status="ok",
        reason=row["source"],
        best_s=2 * m * n * k / (gflops * 1e9),
        gflops=gflops,
        percent_of_peak=100 * gflops / peak_gflops,
    )
