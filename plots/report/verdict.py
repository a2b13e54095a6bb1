"""A summary of a folder of results: the number of cases by status, and for each problem the fastest
reliable case, its limit, and the command that runs it again."""

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from pandas import DataFrame

from drbench.measure.record import OPTION_COLUMNS, by_balance, read_options
from plots.draw.numbers import number, time_text
from plots.draw.style import LIBRARIES, ON_DRBENCH, PHASES
from plots.select.cases import (
    UNIVERSAL,
    Source,
    by_name,
    cases,
    configuration,
    rising,
    shape_name,
)
from plots.select.records import Records, frame, rows
from plots.select.selection import FASTEST, SETTING, moves_nothing, not_decided

_LEAST = 5  # percent of the time, of a phase that is shown
_MOST_PROBLEMS = 40
_MOST_LINES = 8
#: Columns that define a problem: cases that differ in them are not comparable.
_PROBLEM = [
    "source",
    "shape",
    "compute",
    "transpose",
    "alpha",
    "beta",
    "experts",
    "topk",
    "routing",
]


class Fastest(NamedTuple):
    """The fastest case of a problem, as texts; ``number`` is that of its row. ``doubt`` is the
    reason if it is not decided."""

    problem: str
    source: str
    case: str
    time: str
    rate: str
    roof: str
    peak: str
    limit: str
    command: str
    number: int
    doubt: str = ""


class Verdict(NamedTuple):
    """``counts`` of cases by status, the ``fastest`` case of each problem, and notes on omitted
    problems."""

    counts: list[tuple[str, int]]
    fastest: list[Fastest]
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
    >>> found.counts, found.fastest[0].limit
    ([('ok', 1)], 'gemm 80 %, unattributed 20 %')
    >>> found.fastest[0].command
    'drbench run -p 2 -m 64 -n 64 -k 64 --stationary C'
    """
    counts = [(status, count) for status, count in found.status.value_counts(sort=False).items()]
    doubtful = {"noisy": found.hollow.sum(), "more ranks than cores": _true(found.oversubscribed)}
    counts += [(name, int(count)) for name, count in doubtful.items()]
    ok = found[(found.status == "ok") & (found[["m", "n", "k"]] > 0).fillna(False).all(axis=1)]
    ok = ok.assign(source=ok.source.map(Source.on_known_nodes))
    still = moves_nothing(ok)
    moving = (~still).groupby([ok[name] for name in _PROBLEM], dropna=False).transform("any")
    notes, best = [], ok[~ok.hollow & ~(still & moving)]
    lost = len(ok.drop_duplicates(_PROBLEM)) - len(best.drop_duplicates(_PROBLEM))
    if lost:
        notes.append(f"{cases(lost, 'problem')} with noisy cases only: no fastest one")
    inside: dict[tuple, list] = {}
    ordered = best.sort_values([*FASTEST, "algorithm"])
    for row in rows(ordered.drop_duplicates([*SETTING, *_PROBLEM])):
        inside.setdefault(tuple(getattr(row, name) for name in _PROBLEM), []).append(row)
    order = lambda found: (*by_name(found[0].shape), rising(found[0].source))
    fastest = [
        _fastest(row)._replace(doubt=not_decided(row, others))
        for row, *others in sorted(inside.values(), key=order)
    ]
    if len(fastest) > _MOST_PROBLEMS:
        notes.append(f"{len(fastest) - _MOST_PROBLEMS} problems more: the table has them")
    kept = [(name, count) for name, count in counts if count]
    return Verdict(kept, fastest[:_MOST_PROBLEMS], notes)


def fastest_lines(records: Records) -> list[str]:
    """The fastest case of each problem, a line each, and whether that is decided: the top of the
    report. Empty if no two cases are of one problem."""
    found = verdict(frame(records))
    if len(found.fastest) == len(records):
        return []
    lines = [
        f"fastest of {each.problem}, {each.source}: {each.case}, {each.time}"
        + f"; {each.doubt}" * bool(each.doubt)
        for each in found.fastest
    ]
    if (more := len(lines) - _MOST_LINES) > 0:
        lines[_MOST_LINES:] = [f"{more} problems more: drbench report has the fastest of each"]
    return lines + found.notes


def _true(column) -> int:
    return int(column.fillna(False).sum())


def _fastest(row: Any) -> Fastest:
    percent = lambda value, other: other if value is None else f"{value:.0f} %"
    roof = percent(row.percent_of_roof, "")
    rate = row.gflops or 2 * row.m * row.n * row.k / row.time_s / 1e9
    return Fastest(
        shape_name(row.shape),
        row.source.text,
        ": ".join(filter(None, (row.variant, configuration(row)))),
        time_text(row.time_s),
        f"{number(rate)} GFLOP/s",
        "more ranks than cores"
        if row.oversubscribed
        else roof + by_balance(row)
        if roof
        else "not measured",
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
        "machine": row.machine if row.mode == "simulated" else None,
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
