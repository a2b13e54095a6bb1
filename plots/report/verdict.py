"""A summary of a folder of results: the number of cases by status, and for each problem what is
decided, its best case, the limit of that, and the command that runs it again."""

import os
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from pandas import DataFrame

from drbench.measure.decision import Decision, answer, best_at, remedy
from drbench.measure.record import OPTION_COLUMNS, by_balance, read_options
from plots.draw.numbers import number, time_text
from plots.draw.style import LIBRARIES, ON_DRBENCH, PHASES
from plots.select.cases import UNIVERSAL, by_name, cases, configuration, rising, shape_name
from plots.select.records import Records, frame, rows
from plots.select.rounds import PROBLEM, SETTING, decided, merged
from plots.select.selection import BY_TIME

_LEAST = 5  # percent of the time, of a phase that is shown
_MOST_PROBLEMS = 40
_MOST_LINES = 8


class Best(NamedTuple):
    """The decision on a problem in words, and the values of its best case, as texts; ``number`` is
    that of its row."""

    problem: str
    source: str
    answer: str
    time: str
    rate: str
    roof: str
    peak: str
    limit: str
    command: str
    number: int


class Verdict(NamedTuple):
    """``counts`` of cases by status, the ``best`` case of each problem, and notes on what is
    omitted or undecided."""

    counts: list[tuple[str, int]]
    best: list[Best]
    notes: list[str]


def verdict(found: DataFrame) -> Verdict:
    """Sum up a table of records.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> case = Record(
    ...     mode="measured",
    ...     status="ok",
    ...     algorithm="universal",
    ...     stationary="C",
    ...     m=64,
    ...     n=64,
    ...     k=64,
    ...     ranks=2,
    ...     best_s=1e-3,
    ...     phase_gemm_s=8e-4,
    ... )
    >>> found = verdict(frame([case]))
    >>> found.counts, found.best[0].limit
    ([('ok', 1)], 'gemm 80 %, unattributed 20 %')
    >>> found.best[0].command
    'drbench run -p 2 -m 64 -n 64 -k 64 --stationary C'
    """
    counts = [(status, count) for status, count in found.status.value_counts(sort=False).items()]
    doubtful = {"noisy": found.hollow.sum(), "more ranks than cores": _true(found.oversubscribed)}
    counts += [(name, int(count)) for name, count in doubtful.items()]
    every = merged(found)
    ok = every[(every.status == "ok") & (every[["m", "n", "k"]] > 0).fillna(False).all(axis=1)]
    ok = ok.sort_values(BY_TIME).drop_duplicates([*PROBLEM, *SETTING])
    problems = [
        (rows(inside), decided(inside))
        for _, inside in ok.groupby(PROBLEM, dropna=False, sort=False)
    ]
    problems.sort(key=lambda each: (*by_name(each[0][0].shape), rising(each[0][0].source)))
    ranked = [each for each in problems if best_at(each[1]) is not None]
    lost = [decisions for _, decisions in problems if best_at(decisions) is None]
    notes = []
    if (left := len(ranked) - _MOST_PROBLEMS) > 0:
        notes.append(f"{left} problems more: the table has them")
    if lost:
        notes.append(f"{cases(len(lost), 'problem')} without a ranked case: {remedy(*lost)}")
    if unsure := remedy(*(decisions for _, decisions in ranked)):
        notes.append(f"undecided: {unsure}")
    kept = [(name, count) for name, count in counts if count]
    return Verdict(kept, [_best(*each) for each in ranked[:_MOST_PROBLEMS]], notes)


def fastest_lines(records: Records, path: str | os.PathLike) -> list[str]:
    """The decision on each problem, a line each: the top of the report. Empty if no two cases are
    of one problem. ``path`` has the records."""
    table = merged(frame(records))
    found = verdict(table)
    if len(found.best) == len(table):
        return []
    lines = [f"{each.problem}, {each.source}: {each.answer}, {each.time}" for each in found.best]
    if (more := len(lines) - _MOST_LINES) > 0:
        again = f"drbench report {shlex.quote(os.fspath(path))}"
        lines[_MOST_LINES:] = [f"{more} problems more: {again} has the best of each"]
    return lines + found.notes


def _true(column) -> int:
    return int(column.fillna(False).sum())


def _best(every: list, decisions: list[Decision]) -> Best:
    """The decision on the cases of a problem, with the values of the best."""
    names = [": ".join(filter(None, (row.variant, configuration(row)))) for row in every]
    row = every[best_at(decisions)]
    percent = lambda value, other: other if value is None else f"{value:.0f} %"
    roof = percent(row.percent_of_gemm_only, "")
    rate = row.gflops or 2 * row.m * row.n * row.k / row.time_s / 1e9
    return Best(
        shape_name(row.shape),
        row.source.text,
        answer(decisions, names),
        time_text(row.time_s),
        f"{number(rate)} GFLOP/s",
        roof + by_balance(row) if roof else "not measured",
        percent(row.percent_of_peak, "not known"),
        limit(row),
        command(row),
        row.Index,
    )


def limit(row: Any) -> str:
    """The longest phases, as means over the ranks, and the share of the time outside all phases;
    empty without phases."""
    shares = {
        style.name: 100 * (getattr(row, name) or 0) / row.time_s for name, style in PHASES.items()
    }
    known = sum(shares.values())
    most = sorted(shares, key=shares.get, reverse=True)[:3]
    parts = [f"{name} {shares[name]:.0f} %" for name in most if shares[name] >= _LEAST]
    if known and known <= 100 - _LEAST:
        parts.append(f"unattributed {100 - known:.0f} %")
    return ", ".join(parts)


def command(row: Any) -> str:
    """The command that runs a case again; for published numbers their source."""
    if row.mode == "published":
        return row.reason or ""
    return shlex.join(_words(row))


def _words(row: Any) -> Iterator[str]:
    yield from ("drbench", "simulate" if row.mode == "simulated" else "run")
    yield from ("-p", str(row.ranks or 1))
    for name in "mnk":
        yield from (f"-{name}", str(getattr(row, name)))
    given = {} if row.algorithm in (UNIVERSAL, None) else {"algorithm": row.algorithm}
    given |= {name: getattr(row, name) for name in (*"abc", *_FLAGS)}
    theirs = row.algorithm in (*LIBRARIES, *ON_DRBENCH)
    if (row.algorithm or "").startswith("dtensor"):  # its mesh follows from the placements
        given["mesh"] = None
    given |= {
        "threads": row.threads if (row.threads or 1) > 1 else None,
        "dtype": row.dtype if row.dtype != "float32" else None,
        "transport": row.transport if "throttled" in (row.transport or "") else None,
        "machine": row.machine,
    }
    for name, value in given.items():
        if value is not None:
            yield from (f"--{name}", str(value))
    pairs = {name: getattr(row, name) for name in _PAIRS} | read_options(row.options)
    if row.schedule == "direct":  # the default
        del pairs["schedule"]
    if row.replicate_result:
        pairs["replicate_result"] = "true"
    for name, value in pairs.items():
        if value is not None and not (name == "dataflow" and theirs):  # theirs is a description
            yield from ("-o", f"{name}={value}")


_FLAGS = ("transpose", "alpha", "beta", "stationary", "mesh")
_PAIRS = [name for name in OPTION_COLUMNS if name not in ("options", *_FLAGS)]
_PAIRS += "experts topk routing".split()
