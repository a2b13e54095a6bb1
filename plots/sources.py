"""Records for figures: from result files, and from files of published numbers.

A file of published numbers has the columns ``figure, system, devices, peak_tflops_per_device, dtype,
layer, series, m, n, k, gflops, source``, one row a point.
"""

import csv
import os
from collections.abc import Iterable

from drbench.record import Record, read_csv

PUBLISHED_COLUMNS = "figure system devices peak_tflops_per_device dtype layer series m n k gflops source".split()


def read_published(path: str | os.PathLike) -> list[Record]:
    """Read published numbers as records of mode ``published``.

    The series is the ``algorithm``, the system and its devices are the ``machine`` (``h100x8``), the
    source is kept as the ``reason``; ``percent_of_peak`` is of all devices together.

    Raises
    ------
    ValueError
        If the columns are others, or a row does not parse; the message gives file and line.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
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


def load(paths: Iterable[str | os.PathLike]) -> list[Record]:
    """Read result files and files of published numbers, told apart by their headers, in order."""
    records: list[Record] = []
    for path in paths:
        with open(path, encoding="utf-8-sig") as file:
            published = file.readline().rstrip("\r\n").split(",") == PUBLISHED_COLUMNS
        records += read_published(path) if published else read_csv(path)
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
