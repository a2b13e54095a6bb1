"""The answer of a folder of records: who is fastest, in one line; then one line a problem, or the
best rows of few problems."""

import os
import shlex
from collections.abc import Sequence
from typing import Any

from drbench.launch.host.show import FORM, Screen
from drbench.measure.decision import MARKS
from drbench.texts import marked, time_text

from .tables import FEW_ROWS, Column, Table, joined

#: Most problems of which rows are shown without being asked for.
_FEW_PROBLEMS = 2
_MOST_PROBLEMS = 8


def show_answer(
    verdict: Any,
    tables: Sequence[Table],
    out: Screen,
    path: str | os.PathLike,
    limit: int | None = None,
    verbose: bool = False,
) -> None:
    """Print the decision on all problems in one line, then one line on each, then the ``tables`` of
    their cases: of few problems, or with ``limit`` rows each, or with ``verbose``. ``found`` is a
    :class:`drbench.plots.report.verdict.Verdict`."""
    from drbench.plots.report.verdict import headline

    print_line, again = out.line, shlex.quote(str(path))
    if FORM.get() == "csv":
        return joined(tables)[0].show(out)
    timed = [table for table in tables if table.rows]
    rows = _by_table(timed) if len(timed) > len(verdict.best) else _by_problem(verdict)
    several = len(rows) > 1
    if answer := headline(verdict):
        print_line(answer)
    if several:
        shown = rows[: None if verbose else _MOST_PROBLEMS]
        legend = ["rivals: cases that may be as fast"] * any(row["others"] for row in shown)
        Table("", _PROBLEMS, shown, legend).show(out, path, len(shown))
        if left := len(rows) - len(shown):
            print_line(f"{left} problems more: drbench compare {again} -v")
    for line in verdict.notes:
        print_line(line)
    if len(tables) <= _FEW_PROBLEMS or limit is not None or verbose:
        for table in tables:
            shown_table = table if several else table._replace(answer="")
            shown_table.show(out, path, FEW_ROWS if limit is None else limit, verbose)
    else:
        for line in (line for table in tables for line in table.failures):
            print_line(line)
        print_line(f"The best cases of each problem: drbench compare {again} --limit {FEW_ROWS}")


def _by_problem(verdict: Any) -> list[dict]:
    """A row for each problem: its best case, and how many may be as fast."""
    several = len({row.source for row in verdict.best}) > 1
    return [
        {
            "problem": row.problem,
            "source": row.source if several else None,
            "fastest": row.leaders[0],
            "marks": MARKS.get(row.state, ""),
            "time": marked(row.time, MARKS.get(row.state)),
            "gemm_only": row.roof if row.roof.endswith("%") else None,
            "others": str(row.rivals) if row.rivals else None,
        }
        for row in verdict.best
    ]


def _by_table(tables: Sequence[Table]) -> list[dict]:
    """The same of tables that each have one layout."""
    rows = []
    for table in tables:
        first, *others = table.rows
        near = sum(row["state"] in MARKS for row in others)
        rows.append(
            {
                "problem": table.title.partition(": ")[2],
                "fastest": first["contender"],
                "marks": first["marks"],
                "time": marked(time_text(first["median_s"]), first["marks"]),
                "gemm_only": first["gemm_only"],
                "others": str(near) if near else None,
            }
        )
    return rows


_PROBLEMS = (
    Column("problem", "!problem"),
    Column("source", "!~on"),
    Column("fastest", "!~best"),
    Column("time", ">!time"),
    Column("gemm_only", ">GEMM-only"),
    Column("others", ">!rivals"),
)
