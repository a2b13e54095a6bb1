"""Compare contenders on one problem: algorithms on the same tiles, or drbench and libraries. Who is
fastest is decided by :mod:`drbench.measure.decision`."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from drbench.clock import PHASES
from drbench.launch.cases.peaks import arithmetic
from drbench.launch.host.show import result_text
from drbench.launch.libraries import LIBRARIES, ON_DRBENCH
from drbench.measure.decision import MARKS, Decision, Run, answer, best_at, decide_compared
from drbench.measure.noise import doubts
from drbench.measure.record import Record, by_balance
from drbench.texts import (
    bytes_text,
    layouts_text,
    marked,
    plural,
    rate_text,
    shape_text,
    time_text,
)

from .tables import Column, Table, find_varying, layout, marks_of, name_of

#: Most cases named without a time.
_SHOWN = 6


class Contender(NamedTuple):
    """A case over all its rounds, and the decision on it; None if it is another problem."""

    record: Record
    decision: Decision | None

    @property
    def order(self) -> tuple:
        """The best first, then ranked ones by their ratio, then the others."""
        decision = self.decision
        ratio = decision.ratio.middle if decision and decision.ratio else inf
        return (
            not decision,
            decision and (not decision.ranked, not decision.best),
            ratio,
            self.record.time_s,
        )


#: A case over all its rounds, a Record or a row of a table of records, and its rows by round.
Entry = tuple[Record, Run]


def contest_tables(entries: Sequence[Entry], tiles: bool, compared: bool = True) -> list[Table]:
    """A table for each problem, or with ``tiles`` for each problem and layout: the best first,
    those that are not ranked last.

    Without ``compared`` the table has other columns and no sentences.
    """
    from drbench.plots.select.cases import form

    groups: dict[str, list[Entry]] = {}
    ok = [record for record, _ in entries if record.status == "ok"]
    own = lambda record: (
        *(getattr(record, name) for name in _PROBLEM),
        *(form(record), name_of(record, True), layout(record), record.transport),
    )
    everywhere = [] if compared else find_varying(ok, [*map(own, ok)])
    for first, run in entries:
        multiplication = " ".join(
            (shape_text(first.m, first.n, first.k), *filter(None, [form(first)]))
        )
        elements = arithmetic(str(first.dtype), first.compute)
        at = f"{multiplication}, {elements}, {plural(first.ranks, 'rank')}"
        where = layouts_text(layout(first))
        groups.setdefault(f"{at}: {where}" if tiles else at, []).append((first, run))
    tables, without = [], {}  # what failed and why -> on which problems
    for at, group in groups.items():
        records, runs = zip(*group)
        contenders = list(map(Contender, records, decide_compared(runs)))
        failed = [contender.record for contender in contenders if contender.record.status != "ok"]
        for failure in failed:
            why = f"{name_of(failure, tiles)}: {failure.status}: {failure.reason}"
            kind = "unsupported" if failure.status == "unsupported" else why
            without.setdefault(kind, []).append((at, why))
        timed = [contender for contender in contenders if contender.record.status == "ok"]
        if timed:
            timed.sort(key=lambda contender: contender.order)
            every = [contender.record for contender in timed]
            names = [name_of(record, tiles) for record in every]
            distinct = find_varying(every, names) if compared else everywhere
            rows = [_row(contender, tiles, distinct) for contender in timed]
            columns = list(_COLUMNS if compared else _LISTED)
            at_ = columns.index(_MOVED)
            columns[at_:at_] = [Column(name, f"!{name}") for name in distinct]
            said, lines = _verdict(timed, tiles)
            tables.append(Table(at, tuple(columns), rows, lines if compared else [], said))
    if without:
        counts = Counter(record.status for record, _ in entries if record.status != "ok")
        if not tables:
            total = ", ".join(f"{count} {status}" for status, count in counts.items())
            tables.append(Table(f"no case is ok: {total}", (), [], []))
        lines = [
            f"{on[0][0]}: {on[0][1]}" if len(on) == 1 else f"{len(on)} cases, such as {on[0][1]}"
            for on in without.values()
        ]
        if (left := len(lines) - _SHOWN) > 0:
            lines[_SHOWN:] = [f"{left} more reasons why cases are not ok: see the records"]
        tables[-1] = tables[-1]._replace(failures=lines)
    return tables


def scan_table(entries: Sequence[Entry]) -> Table:
    """One table of all problems: columns of what varies; what does not is the title."""
    tables = contest_tables(entries, False, False)
    columns = (*_SIZES, *(x for table in tables for x in table.columns), _RESULT)
    rows = [row for table in tables for row in table.rows]
    texts = {x: {x.cell(row) for row in rows} for x in (*_SIZES, *_LISTED[1:3], _LISTED[-1])}
    fixed = [x for x, cells in texts.items() if len(cells) == 1]
    title = ", ".join(f"{x.heading.strip('!~>')} {max(texts[x])}" for x in fixed if max(texts[x]))
    every = {x.key: x._replace(detail=False) for x in columns if x not in fixed}
    title = title or tables[0].title
    return tables[-1]._replace(title=title, columns=(*every.values(),), rows=rows, answer="")


def _row(entry: Contender, tiles: bool, distinct: Sequence[str]) -> dict:
    """A row of the table, with the columns that distinguish rows."""
    from drbench.plots.select.cases import form

    record, decision = entry
    percent = record.percent_of_gemm_only if not record.oversubscribed else None
    where, unmoved = layout(record), decision is None
    state = MARKS.get(decision.state, "") if decision else ""
    return {
        "contender": name_of(record, tiles),
        "median_s": record.time_s,
        **(decision or Decision("")).to_json_dict(),
        "to_the_best": decision and str(decision),
        "percent_of_gemm_only": percent,
        "gemm_only": None if percent is None else f"{percent:.1f} %{by_balance(record)}",
        "form": form(record) or None,
        **{name: getattr(record, name) for name in (*_PROBLEM, *distinct)},
        "result": result_text(record),
        "layout": layouts_text(where),
        "how": name_of(record, True),
        "gflops": record.gflops,
        "transport": record.transport,
        "moved_bytes": record.moved_bytes,
        "doubt": marks_of(record) + "0" * unmoved,
        "marks": marks_of(record) + "0" * unmoved + state,
        "in_doubt": ", ".join(["moves nothing"] * unmoved + doubts(record)) or None,
        **{f"{name}_s": getattr(record, f"phase_{name}_s") for name in PHASES},
        "blas": record.blas,
    }


_MOVED = Column("moved_bytes", ">moved", lambda row: bytes_text(row["moved_bytes"]), True)
_COLUMNS = (
    Column("contender", "!~"),
    Column(
        "median_s",
        ">!median",
        lambda row: marked(time_text(row["median_s"]), row["doubt"]),
    ),
    Column("to_the_best", ">!~to the best"),
    Column("gemm_only", ">GEMM-only"),
    _MOVED,
)
_LISTED = (
    Column("median_s", ">!time", lambda row: marked(time_text(row["median_s"]), row["marks"])),
    Column("how", "!~algorithm"),
    Column("layout", "!~layouts"),
    Column("gemm_only", ">GEMM-only"),
    Column("gflops", ">rate", lambda row: rate_text(row["gflops"])),
    _MOVED,
    Column("transport", "!transport", None, True),
)
#: What distinguishes problems.
_PROBLEM = "m n k dtype ranks machine".split()
_SIZES = tuple(Column(name, f">!{name}") for name in (*_PROBLEM, "form"))
_RESULT = Column("result", "!~result")


def _verdict(contenders: Sequence[Contender], tiles: bool) -> tuple[str, list[str]]:
    """The decision in words; with drbench and libraries also the best of the other side."""
    ranked = [contender for contender in contenders if contender.decision]
    decisions = [contender.decision for contender in ranked]
    said = answer(decisions, [name_of(contender.record, tiles) for contender in ranked], _SHOWN)
    best = best_at(decisions)
    if best is None or tiles:
        return said, []
    ours = lambda contender: contender.record.algorithm not in LIBRARIES
    first = ranked[best]
    rival = next(
        (
            contender
            for contender in ranked
            if contender.decision.ranked
            and ours(contender) != ours(first)
            and not {contender.record.algorithm, first.record.algorithm} & {*ON_DRBENCH}
        ),
        None,
    )
    if rival is None:
        return said, []
    whose = "drbench's" if ours(rival) else "the libraries'"
    who = name_of(rival.record, tiles)
    return said, [f"{whose} best, {who}, takes {rival.decision} times as long"]
