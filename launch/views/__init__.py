"""The tables at the end of a sweep: pure functions of its records."""

from collections.abc import Iterable
from typing import Any

from drbench.launch.sweeps.rounds import pool_records

from .contest import contest_tables, scan_table
from .scaling import scaling_tables
from .tables import Table, joined, write_tables


def tables_of(view: str, runs: dict) -> list[Table]:
    """The tables of a view for the records of each case by round; for a view without tables, or no
    view, the cases of each problem."""
    if view == "scaling":
        return scaling_tables(list(runs.values()))
    entries = [(pool_records(run.values()), run) for run in runs.values() if run]
    if view == "scan":
        return [scan_table(entries)]
    is_contest = view in ("algorithms", "libraries")
    return contest_tables(entries, view == "algorithms", is_contest)


def list_cases(rows: Iterable[Any]) -> list[Table]:
    """The cases of each problem, one per row of a table of records: the best first, those that are
    not ranked last."""
    return contest_tables([(row, row.run) for row in rows], False, compared=False)
