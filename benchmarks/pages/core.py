"""Tables of results/core.md: rows of ``benchmarks/core.py`` and of sweeps."""

from collections.abc import Callable, Iterator
from math import inf, isfinite, nan
from typing import NamedTuple

from numpy import minimum
from pandas import DataFrame, concat

from drbench.launch.papers.measured import OVERLAPPED
from drbench.texts import time_text

from ..dtensor_rows import CALLS, call_us
from .records import HERE, core, records, rows
from .tables import table

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


def _cases(found: DataFrame, value, low=nan, high=nan, least=nan, most=nan) -> DataFrame:
    """Cases: name, value and its interval, the least and the most allowed (the effective bar), and
    whether the case is noisy."""
    noisy = found.noisy.astype(str) == "True" if "noisy" in found else False
    columns = {"value": value, "low": low, "high": high, "least": least, "most": most}
    return found[["case"]].assign(noisy=noisy, **columns)


def _of_roof(found: DataFrame) -> DataFrame:
    """Ratios to the roof. A case with uneven work cannot exceed its balance limit, so its effective
    bar is the bar times that limit."""
    share = lambda end: found[f"percent_of_gemm_only{end}"] / 100
    low, high = share("_low").fillna(share("_min")), share("_high").fillna(share("_max"))
    return _cases(found, share(""), low, high, found.bar * found.balance_limit.fillna(1))


def _of_times(found: DataFrame) -> DataFrame:
    """Ratios of times on slow networks, by the share of the transfers."""
    found = found.assign(
        case=found.case + found.transfers_over_compute.map(", transfers {:g}".format)
    )
    return _cases(found, found.ratio, found.low, found.high, found.bar_low, found.bar)


def _fused(section: str, at_roof: bool) -> DataFrame:
    """Each fused program with the better of the tried tiles: its ratio to the universal
    algorithm, or ``at_roof`` to the roof, with the lower of the two bars."""
    found = core(section)
    found = found[found.tile > 0].sort_values("of_universal").groupby("case", sort=False).tail(1)
    speed, low, high = found.of_universal, found.of_universal_low, found.of_universal_high
    if not at_roof:
        return _cases(found, speed, low, high, AS_UNIVERSAL)
    least = minimum(found.bar, AS_UNIVERSAL * found.ratio / speed)
    return _cases(found, found.ratio, found.low, found.high, least)


def _seconds(found: DataFrame) -> DataFrame:
    return _cases(found, found.median_s, found.least_s, found.most_s, most=found.bar_s)


def _calls() -> DataFrame:
    """Costs of calls of DTensor on drbench beyond others, in seconds."""
    found = rows(f"{HERE}/dtensor-p2/calls.csv")
    us = [(call, *call_us(found, call, beyond), bar) for call, beyond, bar in CALLS if bar]
    columns = DataFrame(us, columns=["case", "median_s", "least_s", "most_s", "bar_s"])
    return _seconds(columns.set_index("case").div(1e6).reset_index())


def _bars() -> Iterator[Bar]:
    """Every bar of the core, in the order of the page."""
    cube, mlp, rma = (core("one_node", table=each) for each in ("cube", "mlp", "rma"))
    misaligned, level = (cube.case.str.contains(each) for each in ("misaligned", "level"))
    by_b = cube.case.str.contains("S-B")
    where = "tiles read in place"
    uneven = rma.case.str.contains("misaligned")
    for section, what, found in (
        ("one_node", f"4096³, {where}, aligned, Stationary C", cube[~misaligned & ~by_b]),
        ("one_node", f"4096³, {where}, aligned, Stationary B", cube[~misaligned & by_b]),
        ("one_node", f"4096³, {where}, misaligned", cube[misaligned & ~level]),
        ("one_node", f"4096³, {where}, misaligned, `work=level`", cube[level]),
        ("one_node", f"MLP layers, m = 1024, {where}", mlp),
        ("layers", f"MLP layers, m = 256, {where}", core("layers", m=256)),
        ("layers", f"MLP layers, m = 4096, {where}", core("layers", m=4096)),
        ("one_node", "4096³, MPI RMA, aligned", rma[~uneven]),
        ("one_node", "4096³, MPI RMA, misaligned", rma[uneven]),
        ("remote", "4096³, every rank remote, TCP", core("remote", progress="poll")),
    ):
        yield Bar(section, what, "GEMM-only", _of_roof(found))
    mixed = core("mixed")
    found = _cases(mixed, mixed.ratio, mixed.low, mixed.high, mixed.bar)
    yield Bar("mixed", "four ranks on two virtual nodes", "one node", found)
    overlap = core("overlap", prefetch=1).rename(columns={"time_over_max": "ratio"})
    overlap = overlap.assign(low=nan, high=nan, bar_low=nan, bar=OVERLAPPED)
    adds = overlap.case.str.contains("S-B")
    sums, fused = core("sums"), concat([core("gather"), core("reduce")], ignore_index=True)
    for section, what, over, found in (
        ("overlap", "Stationary C", "larger", overlap[~adds]),
        ("overlap", "Stationary B, `sums=accumulate`", "larger", overlap[adds]),
        ("sums", "Stationary B, `sums=push`", "larger", sums[sums.bar > 0]),
        ("gather, reduce", "fused overlap", "larger", fused[fused.against == "larger"]),
        ("gather, reduce", "`collective`", "sum", fused[fused.against == "sum"]),
        ("gather", "`ag_gemm`", "pull", fused[fused.against == "pull"]),
    ):
        yield Bar(section, f"throttled, {what}", over, _of_times(found))
    for section, text, over in (
        ("signals", f"4096³, {where}, fused overlap", "`universal`"),
        ("signals_remote", "4096³, every rank remote, TCP, fused overlap", "GEMM-only"),
    ):
        yield Bar(section, text, over, _fused(section, over == "GEMM-only"))
    cost, planning = core("signals", case="Push and Await"), core("planning")
    slowest = planning.assign(median_s=planning.most_s, least_s=nan, most_s=nan)
    for section, what, found in (
        ("signals", "core time of a Push and its Await", _cases(cost, cost.cost_s, most=cost.bar)),
        ("executor", "core time of a step, local GEMM 8 × 8 × 8", _seconds(core("executor"))),
        ("planning", "a rank of p = 4096: slowest of nine plans", _seconds(slowest)),
        ("dtensor", "own cost of DTensor's calls, 16 × 16", _calls()),
    ):
        yield Bar(section, what, "", found, time_text)


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


def _margins(bar: Bar) -> DataFrame:
    """The cases of a bar that are not noisy, with their margins: 1 at the bar, less below it."""
    found = bar.found[~bar.found.noisy]
    above, below = (found.value / found.least).fillna(inf), (found.most / found.value).fillna(inf)
    return found.assign(margin=minimum(above, below))


def _cases_met(bar: Bar) -> tuple[int, int]:
    """How many cases of a bar meet it, of how many that are not noisy."""
    quiet = _margins(bar)
    return (quiet.margin >= 1).sum(), len(quiet)


def _line(bar: Bar) -> tuple:
    """A bar with its worst case, and how many of its cases meet it."""
    quiet, (met, known) = _margins(bar), _cases_met(bar)
    worst = quiet.loc[quiet.margin.idxmin()]
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


def algorithms() -> str:
    """Percent of the roof of the algorithms on two ranks, by dataflow and mesh."""
    found = records(f"{HERE}/algorithms-p2")
    found = found[found.algorithm.isin(_MOVES) & ~found.a.isin(["row", "column"])]
    flow = found.dataflow.fillna(found.stationary.map(_DATAFLOW))
    columns = flow + " " + found.c.str.removeprefix("block:").str.replace("x", "×")
    cells = {
        (row.algorithm, column): f"{row.percent_of_gemm_only:.0f} "
        f"({row.percent_of_gemm_only_min:.0f}–{row.percent_of_gemm_only_max:.0f})"
        for row, column in zip(found.itertuples(), columns)
    }
    order = sorted(columns.unique(), key=lambda name: ("OLR".index(name[0]), name))
    return table(
        ["percent of GEMM-only speed (range)", *order],
        [(name, *(cells.get((name, column), "") for column in order)) for name in _MOVES],
    )
