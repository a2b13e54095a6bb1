"""The tables that a sweep ends with: pure functions of its records."""

from .contest import contest_tables
from .scaling import scaling_tables
from .tables import Table, csv_text
from .triples import triple_tables

__all__ = ["Table", "csv_text", "tables_of"]


def tables_of(view: str, runs: dict) -> list[Table]:
    """The tables of a view for the records of each case by round; none of a view that is a figure
    alone."""
    if view in ("algorithms", "libraries"):
        return contest_tables(list(runs.values()), tiles=view == "algorithms")
    made = {"scaling": scaling_tables, "triples": triple_tables}.get(view)
    return made(list(runs.values())) if made else []
