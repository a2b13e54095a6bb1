"""The tables that a sweep ends with: pure functions of its records, printed, or as JSON or CSV."""

import csv
import io
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as Printed

from launch.host.show import table


class Column(NamedTuple):
    """A column: the key of its values in the rows, its heading (``>``: to the right), and the text
    of a row in it."""

    key: str
    heading: str
    text: Callable[[dict], str]


class Table(NamedTuple):
    """A table of values. ``lines`` are sentences under it; a row has more keys than there are
    columns."""

    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]
    lines: list[str] = []

    def printed(self, console: Console) -> Printed:
        """The table for a terminal: without columns in which no row has a value, nor the last ones
        where it is too narrow for them."""
        kept = [
            each for each in self.columns if any(row.get(each.key) is not None for row in self.rows)
        ]
        wide = console.options.update(width=1000)
        while True:
            cells = [
                [each.text(row) if row.get(each.key) is not None else "" for each in kept]
                for row in self.rows
            ]
            made = table("|".join(each.heading for each in kept), cells, self.title)
            if len(kept) < 3 or console.measure(made, options=wide).maximum <= console.width:
                return made
            kept.pop()

    def to_json_dict(self) -> dict:
        """Title, rows and sentences."""
        return {"title": self.title, "rows": self.rows, "lines": self.lines}


def csv_text(tables: list[Table]) -> str:
    """All rows as CSV, with the title of their table.

    Examples
    --------
    >>> print(csv_text([Table("one", (), [{"a": 1}]), Table("two", (), [{"b": None}])]), end="")
    table,a,b
    one,1,
    two,,
    """
    keys = dict.fromkeys(key for each in tables for row in each.rows for key in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["table", *keys], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"table": each.title} | row for each in tables for row in each.rows)
    return text.getvalue()


def tables_of(view: str, runs: dict) -> list[Table]:
    """The tables of a view for the records of each case by round; none of a view that is a figure
    alone."""
    from .contest import contest_tables
    from .scaling import scaling_tables
    from .triples import triple_tables

    if view in ("algorithms", "libraries"):
        return contest_tables(list(runs.values()), tiles=view == "algorithms")
    made = {"scaling": scaling_tables, "triples": triple_tables}.get(view)
    return made(list(runs.values())) if made else []
