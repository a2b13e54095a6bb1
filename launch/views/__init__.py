"""The tables at the end of a sweep: pure functions of its records."""

from collections.abc import Iterable

from drbench.measure.record import Record
from launch.sweeps.rounds import pooled

from .contest import contest_tables
from .scaling import scaling_tables
from .tables import Table, rows_of

__all__ = ["Table", "listed", "rows_of", "tables_of"]


def tables_of(view: str, runs: dict) -> list[Table]:
    """The tables of a view for the records of each case by round; for a view without tables, or no
    view, the cases of each problem."""
    found = list(runs.values())
    if view == "scaling":
        return scaling_tables(found)
    if view in ("algorithms", "libraries"):
        return contest_tables(found, view == "algorithms")
    return listed(pooled(run.values()) for run in found if run)


def listed(records: Iterable[Record]) -> list[Table]:
    """The cases of each problem, one per record: the fastest first, noisy ones last."""
    return contest_tables([{0: record} for record in records], False, compared=False)
