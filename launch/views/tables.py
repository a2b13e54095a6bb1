"""Tables of values, printed or as JSON or CSV, and the names of contenders in them."""

import json
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from drbench.algorithms import algorithms
from drbench.launch.cases.command_line import describe
from drbench.launch.host.files import write_table
from drbench.launch.host.show import FORM, Screen, table
from drbench.measure.noise import DOUBTS
from drbench.measure.record import IDENTITY, REQUEST, WHERE, Record
from drbench.texts import worth

#: Rows of a table, unless a command is given another number.
FEW_ROWS = 5
#: Columns that distinguish cases but are in no name of a contender.
_UNNAMED = ("threads", "dtype", "get", "progress", "prefetch", *WHERE)


class Column(NamedTuple):
    """A column: the key of its values in the rows, its heading with its marks
    (:func:`drbench.launch.host.show.table`), a function that formats a row's value, and whether it
    is shown with ``-v`` only."""

    key: str
    heading: str
    text: Callable[[dict], str] | None = None
    detail: bool = False

    def cell(self, row: dict) -> str:
        """The text of a row's value; empty if it has none."""
        value = row.get(self.key)
        return "" if value is None else self.text(row) if self.text else str(value)


class Table(NamedTuple):
    """A table of values, with its answer in words. ``lines`` are sentences under it, ``failures``
    those on cases that are in no row; a row has more keys than there are columns."""

    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]
    lines: list[str] = []
    answer: str = ""
    failures: list[str] = []

    def show(
        self,
        out: Screen,
        path: str | os.PathLike = "DIR",
        limit: int = FEW_ROWS,
        verbose: bool = False,
    ) -> None:
        """Print the table, its first rows (all with ``verbose``), what their marks mean and the
        sentences, without columns in which no row has a value. ``path`` has the records."""
        print_line = out.line
        rows = self.rows if verbose or FORM.get() else self.rows[:limit]
        columns = [
            column
            for column in self.columns
            if verbose >= column.detail and any(map(column.cell, rows))
        ]
        cells = [[column.cell(row) for column in columns] for row in rows]
        if heading := ": ".join(filter(None, (self.title, self.answer))):
            print_line(Text(heading, "bold"))
        if rows:
            heads = "|".join(column.heading for column in columns)
            out.print(table(heads, cells, self.rows), soft_wrap=False)
        if left := len(self.rows) - len(rows):
            again = f"drbench compare {shlex.quote(os.fspath(path))} --limit {len(self.rows)}"
            print_line(f"{left} more: {again}")
        used = "".join(worth(row.get("marks") or "") for row in rows)
        needs = next((row["needs"] for row in rows if row.get("needs")), "")
        if known := [f"{mark} {text}" for mark, text in LEGEND.items() if mark in used]:
            print_line("; ".join(known) + f" ({needs} would decide)" * bool(needs and "?" in used))
        for line in (*self.lines, *self.failures):
            print_line(line)

    def to_json_dict(self) -> dict:
        """Title, rows and sentences, the answer first."""
        lines = [*filter(None, [self.answer]), *self.lines, *self.failures]
        return {"title": self.title, "rows": self.rows, "lines": lines}


#: What the marks of rows mean.
LEGEND = {mark: f"{'' if value else 'not '}{name}: {what}" for name, value, mark, what in DOUBTS}
LEGEND |= {"0": "moves nothing: another problem", "=": "tied", "?": "undecided"}


def marks_of(record: Record) -> str:
    """The marks of the reasons to doubt a record.

    Examples
    --------
    >>> marks_of(Record(mode="measured", status="ok", best_s=1.0, noisy=True, stable=False))
    '~±'
    """
    return "".join(mark for name, value, mark, _ in DOUBTS if getattr(record, name) is value)


def find_varying(records: Sequence[Any], names: Sequence = ()) -> list[str]:
    """The columns of :data:`IDENTITY` that distinguish records: those in which records of one name
    differ, and some that no name has. Without names: all with several known values.

    Examples
    --------
    >>> row = dict(mode="measured", status="ok", best_s=1.0)
    >>> runs = [Record(**row, threads=1, chunk=2, mpi="a"), Record(**row, threads=2, mpi="b")]
    >>> find_varying(runs), find_varying(runs, ["summa", "cannon"])
    (['chunk', 'threads', 'mpi'], ['threads'])
    """
    names = names or [""] * len(records)

    def varies(name: str) -> bool:
        values = ((who, getattr(record, name)) for who, record in zip(names, records))
        pairs = {pair for pair in values if pair[1] is not None or name in REQUEST}
        several = name in _UNNAMED and len({value for _, value in pairs} - {None}) > 1
        return several or len(pairs) > len({who for who, _ in pairs})

    return list(filter(varies, IDENTITY))


def rows_of(tables: list[Table]) -> list[dict]:
    """All rows, with the title of their table.

    Examples
    --------
    >>> rows_of([Table("one", (), [{"a": 1}]), Table("two", (), [{"b": None}])])
    [{'table': 'one', 'a': 1}, {'table': 'two', 'b': None}]
    """
    return [{"table": contents.title} | row for contents in tables for row in contents.rows]


def joined(tables: list[Table]) -> list[Table]:
    """Tables, as CSV one with the rows of all, and all that is in no row."""
    if FORM.get() != "csv":
        return tables
    failures = [line for contents in tables for line in contents.failures]
    return [Table("", (), rows_of(tables), failures=failures)]


def write_tables(tables: list[Table], name: str, as_json: bool, csv_path: str | None) -> None:
    """Print tables as JSON, and write all their rows to a file of CSV, if that is asked for."""
    if as_json:
        print(json.dumps({"name": name, "tables": [table.to_json_dict() for table in tables]}))
    if csv_path:
        write_table(csv_path, rows_of(tables))


def layout(record: Record) -> tuple:
    """The layouts of A, B and C."""
    return tuple(text or "?" for text in (record.a, record.b, record.c))


def name_of(record: Record, tiles: bool) -> str:
    """The name of a contender; with ``tiles`` without its layout.

    Examples
    --------
    >>> row = dict(mode="measured", status="ok", best_s=1.0, stationary="C", preset="row")
    >>> name_of(Record(algorithm="universal", **row), False)
    'universal S-C row'
    >>> name_of(Record(algorithm="scalapack", mesh="1x2", **row), False)
    'scalapack 1x2'
    """
    from drbench.plots.select.cases import configuration

    if record.algorithm not in algorithms():
        return f"{record.algorithm} {configuration(record)}".strip()
    if tiles or record.algorithm != "universal":
        return describe(record) if record.status == "ok" or record.dataflow else record.algorithm
    texts = [record.preset] if record.preset else list(dict.fromkeys(layout(record)))
    return " ".join(["universal"] + [f"S-{record.stationary}"] * bool(record.stationary) + texts)
