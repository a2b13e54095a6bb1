"""A summary of a folder of results: the number of cases by status, and for each problem what is
decided, its best case, the limit of that, and the command that runs it again."""

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pandas import DataFrame

from drbench.measure.decision import (
    FASTEST,
    SLOWER,
    TIED,
    UNDECIDED,
    Decision,
    answer,
    best_at,
    leaders,
    remedy,
)
from drbench.measure.record import OPTION_COLUMNS, by_balance, read_options
from drbench.plots.draw.style import LIBRARIES, ON_DRBENCH, PHASES
from drbench.plots.select.cases import UNIVERSAL, by_name, case_name, cases, names, rising
from drbench.plots.select.records import rows
from drbench.plots.select.rounds import PROBLEM, SETTING, decided, merged
from drbench.plots.select.selection import BY_TIME
from drbench.texts import rate_text, shape_text, time_text

_LEAST = 5  # percent of the time, of a phase that is shown
_MOST_PROBLEMS = 40
#: How the decisions on some problems are counted.
_ON = {FASTEST: "one fastest case on", TIED: "ties on", UNDECIDED: "undecided on"}


class Best(NamedTuple):
    """The decision on a problem: its state, the names of those that may be the fastest, the number
    of others among them, the answer in words; and the values of its best case, as texts: ``others``
    tells about the next one, and ``number`` is that of its row."""

    problem: str
    source: str
    state: str
    leaders: list[str]
    rivals: int
    answer: str
    time: str
    others: str
    rate: str
    roof: str
    peak: str
    limit: str
    command: str
    number: int


class Verdict(NamedTuple):
    """``counts`` of cases by status, the ``best`` case of each problem, notes on what is left out,
    what would decide the problems that are undecided, and whether all cases are ``predicted``."""

    counts: list[tuple[str, int]]
    best: list[Best]
    notes: list[str]
    needs: str = ""
    predicted: bool = False


def verdict(table: DataFrame) -> Verdict:
    """Sum up a table of records.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from drbench.plots.select.records import frame
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
    >>> summary = verdict(frame([case]))
    >>> summary.counts, summary.best[0].limit
    ([('ok', 1)], 'gemm 80 %, unattributed 20 %')
    >>> summary.best[0].command
    'drbench run -p 2 -m 64 -n 64 -k 64 --stationary C'
    """
    counts = [(status, count) for status, count in table.status.value_counts(sort=False).items()]
    doubtful = {"noisy": table.hollow, "more ranks than cores": table.oversubscribed.fillna(False)}
    counts += [(name, int(flags.sum())) for name, flags in doubtful.items()]
    every = merged(table)
    ok = every[(every.status == "ok") & (every[["m", "n", "k"]] > 0).fillna(False).all(axis=1)]
    ok = ok.sort_values(BY_TIME).drop_duplicates([*PROBLEM, *SETTING])
    problems = [
        (rows(inside), decided(inside))
        for _, inside in ok.groupby(PROBLEM, dropna=False, sort=False)
    ]
    problems.sort(key=lambda problem: (*by_name(problem[0][0].shape), rising(problem[0][0].source)))
    ranked = [problem for problem in problems if best_at(problem[1]) is not None]
    lost = [decisions for _, decisions in problems if best_at(decisions) is None]
    notes = []
    if (left := len(ranked) - _MOST_PROBLEMS) > 0:
        notes.append(f"{left} problems more: the table has them")
    if lost and ranked:
        notes.append(f"{cases(len(lost), 'problem')} without a ranked case: {remedy(*lost)}")
    known = [(name, count) for name, count in counts if count]
    best = [_best(*problem) for problem in ranked[:_MOST_PROBLEMS]]
    asked = [decisions for _, decisions in ranked] or lost
    return Verdict(known, best, notes, remedy(*asked), bool((table["mode"] == "simulated").all()))


def headline(summary: Verdict) -> str:
    """Who is fastest, in one sentence with its doubt; of several problems the case that leads on
    most of them. Empty if no case is ok.

    Examples
    --------
    >>> names, answer = ["S-C row"], "S-C row is fastest"
    >>> best = Best("8 × 8 × 8", "", "fastest", names, 0, answer, "2 ms", *[""] * 6, 0)
    >>> tied = best._replace(state="tied", leaders=["S-B row", "S-C row"], rivals=1)
    >>> headline(Verdict([], [best], []))
    'S-C row is fastest: 2 ms.'
    >>> headline(Verdict([], [best, tied], []))
    'One fastest case on 1, ties on 1 of 2 problems; most often among the fastest: S-C row, on 2.'
    >>> headline(Verdict([], [tied, tied], [], predicted=True))
    'Predicted: ties on 2 of 2 problems; most often among the fastest: S-B row, S-C row, on 2.'
    """
    if not summary.best:
        counts = dict(summary.counts)
        ok = f"{cases(counts.get('ok', 0), 'result')} correct, but no time can be used"
        return f"{ok}{f' ({summary.needs})' if summary.needs else ''}." if counts.get("ok") else ""
    needs = f" ({summary.needs})" if summary.needs else ""
    if len(summary.best) == 1:
        (best,) = summary.best
        share = f", {best.roof} of GEMM-only speed" if best.roof.endswith("%") else ""
        answer = f"{best.answer[0].upper()}{best.answer[1:]}"
        return _predicted(summary, f"{answer}: {best.time}{share}{best.others}{needs}.")
    states = Counter(best.state for best in summary.best)
    leads = Counter(name for best in summary.best for name in best.leaders)
    fastest = Counter(best.leaders[0] for best in summary.best if best.state == FASTEST)
    often = max(leads, key=lambda name: (leads[name], fastest[name]))
    alike = [
        name for name in leads if (leads[name], fastest[name]) == (leads[often], fastest[often])
    ]
    said = ", ".join(f"{text} {states[state]}" for state, text in _ON.items() if states[state])
    return _predicted(
        summary,
        f"{said[0].upper()}{said[1:]} of {cases(len(summary.best), 'problem')}{needs}; most often "
        f"among the fastest: {names(alike, 3)}, on {leads[often]}.",
    )


def _predicted(summary: Verdict, text: str) -> str:
    return f"Predicted: {text[0].lower()}{text[1:]}" if summary.predicted else text


def _best(every: list, decisions: list[Decision]) -> Best:
    """The decision on the cases of a problem, with the values of the best."""
    named = [case_name(row).replace(",", "") for row in every]  # they are in lists
    row = every[best_at(decisions)]
    first = leaders(decisions)
    slower = sorted(
        (decision.ratio.middle, str(decision.ratio))
        for decision in decisions
        if decision.ranked and decision.state == SLOWER and decision.ratio
    )
    percent = lambda value, other: other if value is None else f"{value:.0f} %"
    roof = percent(row.percent_of_gemm_only, "")
    rate = row.gflops or 2 * row.m * row.n * row.k / row.time_s / 1e9
    return Best(
        shape_text(*row.shape),
        row.source.text,
        decisions[first[0]].state,
        list(dict.fromkeys(named[at] for at in first)),
        len(first) - 1,
        answer(decisions, named),
        time_text(row.time_s),
        f"; the next takes {slower[0][1]} times as long" if slower else "",
        rate_text(rate),
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
