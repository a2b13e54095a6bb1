"""Tables of results/core.md: rows of ``benchmarks/core.py`` and of sweeps."""

from collections.abc import Callable, Iterator
from math import inf, isfinite, nan
from pathlib import Path
from typing import NamedTuple

from numpy import minimum
from pandas import DataFrame, concat

from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.papers.measured import OVERLAPPED
from drbench.texts import time_text

from ..dtensor_rows import call_costs
from .records import HERE, core, records, rows
from .tables import table

_FILE = read_toml(Path(__file__).with_name("bars.toml"))
#: Limits that its expressions name: the least speed of fused programs over the universal algorithm
#: in the same rounds, and the most time of overlapped ones.
_LIMITS = {"AS_UNIVERSAL": 0.97, "OVERLAPPED": OVERLAPPED}


class BarRows(NamedTuple):
    """A bar of bars.toml, and its cases: a row a case, with the columns of :func:`_cases`."""

    section: str
    what: str
    over: str
    cases: DataFrame


def _cases(table: DataFrame, kind: str) -> DataFrame:
    """Cases: name, value and its interval, the least and the most allowed (the effective bar), as
    a kind of bars.toml has them, and whether the case is noisy. Of a program with several tiles
    the best is the case."""
    if "of_universal" in table:
        table = table.sort_values("of_universal").groupby("case", sort=False).tail(1)
    names = table.case
    if "transfers_over_compute" in table:
        names = names + table.transfers_over_compute.map(", transfers {:g}".format)
    noisy = table.noisy.astype(str) == "True" if "noisy" in table else False
    columns = dict.fromkeys(("value", "low", "high", "least", "most"), nan)
    for name, text in _FILE["kinds"][kind].items():
        columns[name] = table.eval(text, local_dict=_LIMITS)
    return DataFrame({"case": names, "noisy": noisy} | columns)


def _bars() -> Iterator[BarRows]:
    """Every bar of the core, in the order of the page."""
    for bar in _FILE["bars"]:
        if bar["section"] == "dtensor":
            table = call_costs(rows(f"{HERE}/dtensor-p2/calls.csv")).dropna(subset="bar")
        else:
            table = concat(map(core, bar["section"].split(", ")), ignore_index=True)
        cases = _cases(table.query(bar.get("rows", "case > ''")), bar["kind"])
        yield BarRows(bar["section"], bar["what"], bar["over"], cases)


def core_bars() -> str:
    """The bars of whole multiplications that all cases meet, with the worst cases; the last line
    counts all bars."""
    bars = list(_bars())
    counts = [_cases_met(bar) for bar in bars]
    lines = [
        _line(bar)[1:]
        for bar, (met, known) in zip(bars, counts)
        if bar.over in ("GEMM-only", "one node") and met == known
    ]
    met, known = map(sum, zip(*counts))
    lines.append((f"all {len(bars)} kinds of bars", "", "", "", f"{met} of {known}"))
    return table(["what ran", "worst case", "measured", "target", "met"], lines)


def missed_bars() -> str:
    """The bars that some case misses, each with its worst case."""
    lines = [_line(bar) for bar in _bars() if len({*_cases_met(bar)}) > 1]
    return table(["benchmark", "what ran", "worst case", "measured", "target", "met"], lines)


def _margins(bar: BarRows) -> DataFrame:
    """The cases of a bar that are not noisy, with their margins: 1 at the bar, less below it."""
    quiet = bar.cases[~bar.cases.noisy]
    above, below = (quiet.value / quiet.least).fillna(inf), (quiet.most / quiet.value).fillna(inf)
    return quiet.assign(margin=minimum(above, below))


def _cases_met(bar: BarRows) -> tuple[int, int]:
    """How many cases of a bar meet it, of how many that are not noisy."""
    quiet = _margins(bar)
    return (quiet.margin >= 1).sum(), len(quiet)


def _line(bar: BarRows) -> tuple:
    """A bar with its worst case, and how many of its cases meet it."""
    quiet, (met, known) = _margins(bar), _cases_met(bar)
    worst = quiet.loc[quiet.margin.idxmin()]
    noisy = f", {len(bar.cases) - known} noisy" if known < len(bar.cases) else ""
    case = worst.case.removeprefix("universal, ")
    cells = _describe_bar(worst, "{:.2f}".format if bar.over else time_text)
    return f"`{bar.section}`", bar.what, case, *cells, f"{met} of {known}{noisy}"


def _describe_bar(case, describe: Callable[[float], str]) -> tuple[str, str]:
    """The value of a case with its interval, and its bar. Where they differ and look alike, both
    have as many digits as it takes.

    Examples
    --------
    >>> columns = ("value", "low", "high", "least", "most")
    >>> case = DataFrame([(0.92958, 0.921, nan, 0.93, nan)], columns=columns).iloc[0]
    >>> _describe_bar(case, "{:.2f}".format)
    ('0.9296', '≥ 0.9300')
    """
    value, bars = describe(case.value), {}
    for sign, bar in (("≥", case.least), ("≤", case.most)):
        if isfinite(bar):
            bars[sign] = describe(bar)
            if bars[sign] == value and (case.value < bar) == (sign == "≥"):
                value, bars[sign] = f"{case.value:.4f}", f"{bar:.4f}"
    if isfinite(case.low) and isfinite(case.high):
        value += f" ({describe(case.low)}–{describe(case.high)})"
    if len(bars) == 2:
        return value, "–".join(bars.values())
    return value, " ".join(*bars.items())


_DATAFLOW = {"C": "OS", "A": "LS", "B": "RS"}
_MOVES = ("universal", "wang", "collective", "summa", "meshslice")


def algorithms() -> str:
    """Percent of GEMM-only speed of the algorithms on two ranks, by dataflow and mesh."""
    cases = records(f"{HERE}/algorithms-p2")
    cases = cases[cases.algorithm.isin(_MOVES) & ~cases.a.isin(["row", "column"])]
    flow = cases.dataflow.fillna(cases.stationary.map(_DATAFLOW))
    columns = flow + " " + cases.c.str.removeprefix("block:").str.replace("x", "×")
    cells = {
        (row.algorithm, column): f"{row.percent_of_gemm_only:.0f} "
        f"({row.percent_of_gemm_only_min:.0f}–{row.percent_of_gemm_only_max:.0f})"
        for row, column in zip(cases.itertuples(), columns)
    }
    order = sorted(columns.unique(), key=lambda name: ("OLR".index(name[0]), name))
    return table(
        ["percent of GEMM-only speed (range)", *order],
        [(name, *(cells.get((name, column), "") for column in order)) for name in _MOVES],
    )
