"""CSV files whose rows are a named tuple with types: written whole, read back as they were."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args


def write_rows(path: str | os.PathLike, kind: type, rows: Iterable) -> None:
    """Write a file anew, whole or not at all; numbers with six digits."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind._fields)
    for row in rows:
        writer.writerow(
            "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
            for value in row
        )
    part = Path(f"{os.fspath(path)}.part")
    part.write_text(text.getvalue())
    part.replace(path)


def read_rows(paths: Sequence[str | os.PathLike], kind: type, what: str, command: str) -> list:
    """Read the rows of files, and of all CSV files of folders.

    Parameters
    ----------
    kind : named tuple
        What a row is; numbers may be empty where it says so. Columns with a default were added
        later, and a file may lack them.
    what, command : str
        What the rows are, and what writes them, for errors.

    Raises
    ------
    ValueError
        If a file has other columns, or a cell does not parse.
    """
    rows = []
    for path in map(Path, paths):
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path} holds no CSV file. Write some with {command}.")
        for file in files:
            rows += _read(file, kind, what, command)
    return rows


def _read(path: Path, kind: type, what: str, command: str) -> list:
    kinds = {name: (*get_args(each), each)[0] for name, each in kind.__annotations__.items()}
    kinds = {name: _truth if each is bool else each for name, each in kinds.items()}
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        known = tuple(reader.fieldnames or ())
        if known not in (kind._fields, kind._fields[: -len(kind._field_defaults) or None]):
            got = ", ".join(reader.fieldnames or ()) or "none"
            raise ValueError(f"{path} holds no {what}: its columns are {got}. Use {command}.")
        rows = []
        for cells in reader:
            try:
                values = {
                    name: None if cells[name] == "" and each is not str else each(cells[name])
                    for name, each in kinds.items()
                    if name in known
                }
                rows.append(kind(**values))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {reader.line_num}: {error}. Write the file anew with {command}."
                ) from None
    return rows


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"
