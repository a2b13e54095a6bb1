"""CSV files whose rows are a named tuple with types: written whole, read back as they were."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from drbench.measure.record import RecordError
from drbench.measure.record_file import read_cells


class RowFiles(NamedTuple):
    """Files of one kind of rows.

    Attributes
    ----------
    kind : named tuple
        The type of a row; numbers may be empty where it allows None. Columns with a default were
        added later, and a file may lack them.
    what, command : str
        The name of the rows, and the command that writes them, for errors.
    """

    kind: Any
    what: str
    command: str

    def write(self, path: str | os.PathLike, rows: Iterable) -> None:
        """Write a file, whole or not at all; numbers with six digits."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.kind._fields)
        for row in rows:
            writer.writerow(
                "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
                for value in row
            )
        part = Path(f"{os.fspath(path)}.part")
        part.write_text(text.getvalue(), "utf-8")
        part.replace(path)

    def read(self, paths: Sequence[str | os.PathLike]) -> list:
        """Read the rows of files, and of all CSV files of folders.

        Raises
        ------
        RecordError
            If a file has other columns, or a cell does not parse.
        """
        rows: list = []
        for path in map(Path, paths):
            files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
            if not files:
                raise RecordError(f"{path} holds no CSV file. Write some with {self.command}.")
            for file in files:
                rows += self._read(file)
        return rows

    def _read(self, path: Path) -> Iterator:
        kinds = {
            name: (*get_args(kind), kind)[0] for name, kind in self.kind.__annotations__.items()
        }
        kinds = {name: _flag if kind is bool else kind for name, kind in kinds.items()}
        columns, added = self.kind._fields, len(self.kind._field_defaults)
        decimal = [name for name, kind in kinds.items() if kind is float]
        known, rows = read_cells(path.read_bytes(), path, decimal)
        if known not in (columns, columns[: -added or None]):
            raise RecordError(
                f"{path} holds no {self.what}: its columns are {', '.join(known) or 'none'}. Use "
                f"{self.command}."
            )
        for number, cells in rows:
            try:
                yield self.kind(
                    **{
                        name: None if cell == "" and kinds[name] is not str else kinds[name](cell)
                        for name, cell in cells.items()
                    }
                )
            except ValueError as error:
                raise RecordError(
                    f"{path}, line {number}: {error}. Write the file anew with {self.command}."
                ) from None


def _flag(text: str) -> bool:
    if text.title() not in ("True", "False"):  # printed tables have true and false
        raise ValueError(f"{text!r} is neither True nor False")
    return text.title() == "True"
