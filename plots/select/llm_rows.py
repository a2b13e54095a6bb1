"""Rows of the studies of a transformer's FC layers, which their figures are drawn from: one CSV
file a study.

A row is an algorithm on all twelve products of a block (``layer`` and ``product`` are ``all``) or
on one of them; times are of one block, forward and backward. ``drbench paper llm-study``
writes them.
"""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

ALL = "all"


class LlmRow(NamedTuple):
    """One algorithm, one model, one number of chips.

    Attributes
    ----------
    study : str
        ``weak``, ``strong``, ``meshes``, ``slices``, ``dataflows``, ``slice4x4`` or
        ``sensitivity``.
    variant : str
        What sets rows of a study apart that are otherwise alike: a changed constant, or which
        dataflows.
    slices : str
        MeshSlice's S by layer, as ``6-4-8-8``; of one product its own.
    seconds : float or None
        Simulated; None of published rows.
    estimated_s : float or None
        By the autotuner's cost model.
    utilization_percent : float
        FLOPs over seconds, chips and peak.
    compute_s, launch_s, sync_s, transfer_s : float or None
        Of products alone, and of the busiest link alone, overlapped or not.
    """

    study: str
    mode: str
    machine: str
    model: str
    chips: int
    batch: int
    seq: int
    algorithm: str
    mesh: str
    variant: str
    layer: str
    product: str
    m: int | None
    n: int | None
    k: int | None
    dataflow: str
    slices: str
    seconds: float | None
    estimated_s: float | None
    utilization_percent: float
    compute_s: float | None
    launch_s: float | None
    sync_s: float | None
    transfer_s: float | None


COLUMNS = LlmRow._fields
#: What a cell is; the numbers may be empty.
_KINDS = {name: (*get_args(kind), kind)[0] for name, kind in LlmRow.__annotations__.items()}


def write_rows(path: str | os.PathLike, rows: Iterable[LlmRow]) -> None:
    """Write a file anew, whole or not at all."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
            for value in row
        )
    part = Path(f"{os.fspath(path)}.part")
    part.write_text(text.getvalue())
    part.replace(path)


def read_rows(paths: Sequence[str | os.PathLike]) -> list[LlmRow]:
    """Read the rows of files, and of all CSV files of folders.

    Raises
    ------
    ValueError
        If a file has other columns, or a cell does not parse.
    """
    rows = []
    for path in map(Path, paths):
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise ValueError(
                f"{path} holds no CSV file. Write some with drbench paper llm-study --out {path}."
            )
        for file in files:
            rows += _read(file)
    return rows


def _read(path: Path) -> list[LlmRow]:
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            got = ", ".join(reader.fieldnames or ()) or "none"
            raise ValueError(
                f"{path} holds no rows of an LLM study: its columns are {got}. Write it with "
                "drbench paper llm-study."
            )
        rows = []
        for cells in reader:
            try:
                rows.append(
                    LlmRow(
                        **{
                            name: None
                            if cells[name] == "" and kind is not str
                            else kind(cells[name])
                            for name, kind in _KINDS.items()
                        }
                    )
                )
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {reader.line_num}: {error}. Write the file anew with drbench "
                    "llm-study."
                ) from None
    return rows
