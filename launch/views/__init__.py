"""The tables that a sweep ends with: pure functions of its records."""

from .contest import contest_tables
from .scaling import scaling_tables
from .tables import Table, rows_of

__all__ = ["Table", "rows_of", "tables_of"]


def tables_of(view: str, runs: dict) -> list[Table]:
    """The tables of a view for the records of each case by round; none of a view that is a figure
    alone."""
    found = list(runs.values())
    if view == "scaling":
        return scaling_tables(found)
    tiles = view == "algorithms"
    return contest_tables(found, tiles) if tiles or view == "libraries" else []
