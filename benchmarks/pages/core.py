"""Tables of results/core.md: rows of ``benchmarks/core.py`` and of sweeps."""

from collections.abc import Callable, Iterator
from math import inf, isfinite, nan
from typing import NamedTuple

from numpy import minimum
from pandas import DataFrame, concat

from drbench.texts import time_text

from ..dtensor_rows import CALLS, call_us
from .records import HERE, core, records, rows
from .tables import block, table

#: With a look-ahead of one the most time of a case over the larger of its compute and transfers.
OVERLAPPED = 1.10
#: The least speed of fused programs over the universal algorithm in the same rounds.
AS_UNIVERSAL = 0.97


class Bar(NamedTuple):
    """A bar and its cases.

    Attributes
    ----------
    section : str
        The section of ``benchmarks/core.py``, or the benchmark, that measures them.
    what : str
        The cases in words.
    over : str
        The divisor of their time or speed, if any.
    found : DataFrame
        A row a case, with the columns of :func:`_cases`.
    describe : callable
        The text of a value.
    """

    section: str
    what: str
    over: str
    found: DataFrame
    describe: Callable[[float], str] = "{:.2f}".format


def _cases(found: DataFrame, value, low=nan, high=nan, least=nan, most=nan, case=None) -> DataFrame:
    """Cases: name, value and its interval, the least and the most allowed (the effective bar), and
    whether the case is noisy."""
    columns = {"value": value, "low": low, "high": high, "least": least, "most": most}
    noisy = found.reindex(columns=["noisy"]).noisy.astype(str) == "True"
    named = {"case": found.case if case is None else case}
    return DataFrame({**named, **columns, "noisy": noisy}).reset_index(drop=True)


def _of_roof(found: DataFrame) -> DataFrame:
    """Ratios to the roof. A case with uneven work cannot exceed its balance limit, so its effective
    bar is the bar times that limit."""
    low, high = found.percent_of_gemm_only_low, found.percent_of_gemm_only_high
    low, high = (
        low.fillna(found.percent_of_gemm_only_min),
        high.fillna(found.percent_of_gemm_only_max),
    )
    effective = found.bar * found.balance_limit.fillna(1)
    return _cases(found, found.percent_of_gemm_only / 100, low / 100, high / 100, least=effective)


def _of_times(found: DataFrame) -> DataFrame:
    """Ratios of times on slow networks, by the share of the transfers."""
    named = found.case + found.transfers_over_compute.map(", transfers {:g}".format)
    return _cases(found, found.ratio, found.low, found.high, found.bar_low, found.bar, named)


def _overlapped(found: DataFrame) -> DataFrame:
    """Times with a look-ahead of one over the larger of compute and transfers."""
    found = found[found.prefetch == 1].assign(bar_low=nan, bar=OVERLAPPED, low=nan, high=nan)
    return _of_times(found.rename(columns={"time_over_max": "ratio"}))


def _fused(section: str, at_roof: bool) -> DataFrame:
    """Each fused program with the better of the tried tiles: its ratio to the universal
    algorithm, or ``at_roof`` to the roof, with the lower of the two bars."""
    found = core(section)
    found = found[found.tile > 0].sort_values("of_universal").groupby("case", sort=False).tail(1)
    if not at_roof:
        return _cases(
            found,
            found.of_universal,
            found.of_universal_low,
            found.of_universal_high,
            least=AS_UNIVERSAL,
        )
    least = minimum(found.bar, AS_UNIVERSAL * found.ratio / found.of_universal)
    return _cases(found, found.ratio, found.low, found.high, least=least)


def _seconds(found: DataFrame) -> DataFrame:
    return _cases(found, found.median_s, found.least_s, found.most_s, most=found.bar_s)


def _calls() -> DataFrame:
    """Costs of calls of DTensor on drbench beyond others, in seconds."""
    found = rows(f"{HERE}/dtensor-p2/calls.csv")
    made = [
        {"case": call, "bar": bar, **dict(zip(("us", "low", "high"), call_us(found, call, beyond)))}
        for call, beyond, bar in CALLS
        if bar
    ]
    us = DataFrame(made)
    return _cases(us, us.us / 1e6, us.low / 1e6, us.high / 1e6, most=us.bar / 1e6)


def _bars() -> Iterator[Bar]:
    """Every bar of the core, in the order of the page."""
    cube, mlp, rma = (core("one_node", table=each) for each in ("cube", "mlp", "rma"))
    misaligned, level = (cube.case.str.contains(each) for each in ("misaligned", "level"))
    by_b = cube.case.str.contains("S-B")
    where = "tiles read in place"
    for what, chosen in (
        ("aligned, Stationary C", ~misaligned & ~by_b),
        ("aligned, Stationary B", ~misaligned & by_b),
        ("misaligned", misaligned & ~level),
        ("misaligned, `work=level`", level),
    ):
        yield Bar("one_node", f"4096³, {where}, {what}", "GEMM-only", _of_roof(cube[chosen]))
    yield Bar("one_node", f"MLP layers, m = 1024, {where}", "GEMM-only", _of_roof(mlp))
    for m in (256, 4096):
        found = _of_roof(core("layers", m=m))
        yield Bar("layers", f"MLP layers, m = {m}, {where}", "GEMM-only", found)
    uneven = rma.case.str.contains("misaligned")
    for what, chosen in (("aligned", ~uneven), ("misaligned", uneven)):
        yield Bar("one_node", f"4096³, MPI RMA, {what}", "GEMM-only", _of_roof(rma[chosen]))
    remote = core("remote", progress="poll")
    yield Bar("remote", "4096³, every rank remote, TCP", "GEMM-only", _of_roof(remote))
    mixed = core("mixed")
    found = _cases(mixed, mixed.ratio, mixed.low, mixed.high, least=mixed.bar)
    yield Bar("mixed", "four ranks on two virtual nodes", "one node", found)
    overlap = core("overlap")
    adds = overlap.case.str.contains("S-B")
    for what, chosen in (("Stationary C", ~adds), ("Stationary B, `sums=accumulate`", adds)):
        yield Bar("overlap", f"throttled, {what}", "larger", _overlapped(overlap[chosen]))
    sums, fused = core("sums"), concat([core("gather"), core("reduce")])
    pushed = sums[sums.bar > 0]
    yield Bar("sums", "throttled, Stationary B, `sums=push`", "larger", _of_times(pushed))
    chosen = fused[fused.against == "larger"]
    yield Bar("gather, reduce", "throttled, fused overlap", "larger", _of_times(chosen))
    chosen = fused[fused.against == "sum"]
    yield Bar("gather, reduce", "throttled, `collective`", "sum", _of_times(chosen))
    chosen = fused[fused.against == "pull"]
    yield Bar("gather", "throttled, `ag_gemm`", "pull", _of_times(chosen))
    for section, text, over in (
        ("signals", f"4096³, {where}, fused overlap", "`universal`"),
        ("signals_remote", "4096³, every rank remote, TCP, fused overlap", "GEMM-only"),
    ):
        yield Bar(section, text, over, _fused(section, over == "GEMM-only"))
    cost = core("signals", case="Push and Await")
    found = _cases(cost, cost.cost_s, most=cost.bar)
    yield Bar("signals", "core time of a Push and its Await", "", found, time_text)
    text, found = "core time of a step, local GEMM 8 × 8 × 8", _seconds(core("executor"))
    yield Bar("executor", text, "", found, time_text)
    planning = core("planning")
    found = _seconds(planning.assign(median_s=planning.most_s, least_s=nan, most_s=nan))
    yield Bar("planning", "a rank of p = 4096: slowest of nine plans", "", found, time_text)
    yield Bar("dtensor", "own cost of DTensor's calls, 16 × 16", "", _calls(), time_text)


@block
def core_bars() -> str:
    """The bars of whole multiplications that all cases meet, with the worst cases; the last line
    counts all bars."""
    every = list(_bars())
    cases = [_cases_met(bar) for bar in every]
    of_speed = [bar for bar in every if bar.over in ("GEMM-only", "one node")]
    lines = [_line(bar)[1:] for bar in of_speed if len({*_cases_met(bar)}) == 1]
    met, known = sum(met for met, _ in cases), sum(known for _, known in cases)
    lines.append((f"all {len(every)} kinds of bars", "", "", "", f"{met} of {known}"))
    return table(["what ran", "worst case", "measured", "target", "met"], lines)


@block
def missed_bars() -> str:
    """The bars that some case misses, each with its worst case."""
    lines = [_line(bar) for bar in _bars() if len({*_cases_met(bar)}) > 1]
    return table(["benchmark", "what ran", "worst case", "measured", "target", "met"], lines)


def _margins(bar: Bar) -> DataFrame:
    """The cases of a bar that are not noisy, with their margins: 1 at the bar, less below it."""
    found = bar.found.assign(margin=(bar.found.value / bar.found.least).fillna(inf))
    found.margin = minimum(found.margin, (bar.found.most / bar.found.value).fillna(inf))
    return found[~found.noisy]


def _cases_met(bar: Bar) -> tuple[int, int]:
    """How many cases of a bar meet it, of how many that are not noisy."""
    quiet = _margins(bar)
    return (quiet.margin >= 1).sum(), len(quiet)


def _line(bar: Bar) -> tuple:
    """A bar with its worst case, and how many of its cases meet it."""
    quiet = _margins(bar)
    worst = quiet.loc[quiet.margin.idxmin()]
    met, known = _cases_met(bar)
    noisy = f", {len(bar.found) - known} noisy" if known < len(bar.found) else ""
    case = worst.case.removeprefix("universal, ")
    cells = _describe_bar(worst, bar.describe)
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


@block
def algorithms() -> str:
    """Percent of the roof of the algorithms on two ranks, by dataflow and mesh."""
    found = records(f"{HERE}/algorithms-p2")
    found = found[found.algorithm.isin(_MOVES) & ~found.a.isin(["row", "column"])]
    flow = found.dataflow.fillna(found.stationary.map(_DATAFLOW))
    mesh = found.c.str.removeprefix("block:").str.replace("x", "×")
    columns = flow + " " + mesh
    cells = {
        (row.algorithm, column): f"{row.percent_of_gemm_only:.0f} "
        f"({row.percent_of_gemm_only_min:.0f}–{row.percent_of_gemm_only_max:.0f})"
        for row, column in zip(found.itertuples(), columns)
    }
    names = sorted(columns.unique())
    order = sorted(names, key=lambda name: (["OS", "LS", "RS"].index(name[:2]), name))
    return table(
        ["percent of GEMM-only speed (range)", *order],
        [(name, *(cells.get((name, column), "") for column in order)) for name in _MOVES],
    )
