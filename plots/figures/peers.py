"""Ours and other libraries on the same work: the rate of each, a panel a shape, a row an algorithm
or library.

The dot is the fastest setting of an algorithm on a shape, by the median time of its rounds; the
line through it the interval of that median, or of rows that do not have one the range of their
repeats. A setting that moves nothing is another problem, and one that was run in fewer rounds than
the others was not interleaved with them: both compete with nobody.
"""

from collections.abc import Sequence
from math import nan

from pandas import DataFrame, Series, concat

from plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows, panels
from plots.draw.page import GRID, MARKER_PT, note, number, page_in, time_unit, width_in
from plots.draw.style import FONT_PT, ON_DRBENCH, PEERS, SMALL_PT, style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    Source,
    by_name,
    cases,
    elided,
    names,
    shape_name,
    shape_text,
)
from plots.select.records import Records, rows
from plots.select.selection import FASTEST, SETTING, not_shown, usable

_MOST_NAMES, _MOST_SHAPES, _COLUMNS, _ROW_IN = 32, 24, 4, 0.135
_NEAR = 1.02  # times as fast: less is a tie

#: Source and shape of a panel, and the fastest setting of each algorithm: its case, with ``rate``,
#: ``low`` and ``high`` in GFLOP/s.
Panel = tuple[Source, tuple, DataFrame]


def choose(records: Records, options: Options) -> tuple[list[Panel], list[str], list[str]]:
    """Choose the dots: (panels, algorithms from the fastest to the slowest, notes)."""
    kept, notes = usable(records, options)
    source = kept.source.map(Source.on_known_nodes)
    kept = kept.assign(name=kept.algorithm.fillna("unnamed"), source=source)
    still = (kept.moved_bytes == 0).fillna(False) & (kept.ranks > 1).fillna(False)
    if still.any() and not still.all():
        notes.append(f"not drawn: {cases(still.sum())} moving nothing")
        kept = kept[~still]
    setting = [kept[each] for each in ("source", "shape", "name", *SETTING)]
    rounds = _turns(kept).groupby(setting, dropna=False).transform("nunique")
    fewer = rounds < rounds.groupby([kept.source, kept["shape"]]).transform("max")
    if fewer.any():
        notes.append(
            f"not drawn: {cases(fewer.sum())} of settings that were run in fewer rounds than the "
            "others, so not interleaved with them"
        )
        kept = kept[~fewer]
    by = ["source", "shape", "name"]
    best = settings(kept).sort_values([*by[1:], *FASTEST], kind="stable").drop_duplicates(by)
    share = best.rate / best.groupby(["source", "shape"]).rate.transform("max")
    order = share.groupby(best.name).median().sort_values(ascending=False, kind="stable").index
    drawn = list(order[:_MOST_NAMES])
    if lost := list(order[_MOST_NAMES:]):
        notes.append(f"not drawn: {names(lost)}: at most {_MOST_NAMES} names")
    best = best[best.name.isin(drawn)]
    found = [(*key, each) for key, each in best.groupby(["source", "shape"], sort=False)]
    found.sort(key=lambda panel: (panel[0].text, by_name(panel[1])))
    lost = [shape_text(shape) for _, shape, _ in found[_MOST_SHAPES:]]
    return found[:_MOST_SHAPES], drawn, notes + not_shown(lost, "shapes")


def _turns(kept: DataFrame) -> Series:
    """The round of each case, which the names of cases in rounds begin with; any other case is one
    of its own. Two contenders may be one setting, as a stationary matrix that is named and is the
    one that would be chosen: both are of one round."""
    number = kept.case.astype("string").str.extract(r"^(\d+) \| ", expand=False)
    return number.fillna(Series(kept.index.astype(str), kept.index))


def settings(kept: DataFrame) -> DataFrame:
    """Merge the rounds of a setting: the case nearest the median time of those that are not noisy,
    with that time and the ends of all their intervals."""
    spread = [(min(each), max(each)) if each else (nan, nan) for each in kept.samples_s]
    low, high = zip(*spread)
    kept = kept.assign(
        low_s=kept.median_low_s.fillna(Series(low, kept.index, float)),
        high_s=kept.median_high_s.fillna(Series(high, kept.index, float)),
    )
    number = kept.groupby(["source", "shape", "name", *SETTING], dropna=False, sort=False).ngroup()
    sure = kept[~kept.hollow | kept.hollow.groupby(number).transform("all")]
    number = number[sure.index]
    middle_s = sure.time_s.groupby(number).median()
    case = (sure.time_s - number.map(middle_s)).abs().groupby(number).idxmin()
    found = kept.loc[case].assign(time_s=middle_s.to_numpy())
    work = found[["m", "n", "k"]].astype(float).prod(axis=1) * 2 / 1e9
    low_s = sure.low_s.groupby(number).min().to_numpy()
    high_s = sure.high_s.groupby(number).max().to_numpy()
    return found.assign(rate=work / found.time_s, low=work / high_s, high=work / low_s)


def finding(found: Sequence[Panel]) -> str:
    """On how many shapes drbench is ahead of every other library, level, or behind."""
    ahead = {"ahead of": 0, "level with": 0, "behind": 0}
    for _, _, dots in found:
        ours, theirs = (dots.rate[_ours(dots) == each].max() for each in (True, False))
        if ours > 0 and theirs > 0:
            ratio = ours / theirs
            ahead[
                "ahead of" if ratio > _NEAR else "behind" if ratio < 1 / _NEAR else "level with"
            ] += 1
    count = sum(ahead.values())
    if not count:
        return ""
    told = ", ".join(
        f"{where} the fastest other library on {each}" for where, each in ahead.items() if each
    )
    return f"drbench is {told} of {count} shapes"


def _ours(found: DataFrame) -> Series:
    """Rows whose roof is of drbench's own BLAS."""
    return ~found.name.isin([*PEERS, *ON_DRBENCH])


def _chart(panel: Panel, here: Sequence[str], limits: tuple[float, float]) -> Chart:
    source, shape, dots = panel
    roof = dots.roof_gflops[_ours(dots)].median()
    y = Axis(
        "", (len(here) - 0.5, -0.5), ticks={at: elided(each, 30) for at, each in enumerate(here)}
    )
    marks = [
        Marks(
            "points", case.name, [case.rate], [here.index(case.name)], [case.Index],
            style_of(case.name), across=True, hollow=[case.hollow], low=[case.low or nan],
            high=[case.high or nan],
        )
        for case in rows(dots)
    ]  # fmt: skip
    if roof > 0:
        marks.append(Marks("rule", "drbench's roof", [roof, roof], y.limits))
    x = Axis("GFLOP/s, all ranks together", limits)
    return Chart(shape_name(shape), f"{shape_text(shape)}, {source.text}", x, y, marks)


def make(records: Records, options: Options) -> Made:
    """Draw the shapes of each source next to each other, with the same rows."""
    found, drawn, notes = choose(records, options)
    here = [name for name in drawn if any((dots.name == name).any() for _, _, dots in found)]
    left_in = 0.14 + min(1.6, max(width_in(elided(name, 30), FONT_PT - 0.5) for name in here))
    columns = max(1, min(_COLUMNS, len(found), int((page_in() - left_in) / 1.48)))
    every = concat([dots for _, _, dots in found])
    ends = every[["rate", "low", "high"]]
    low, high = ends.min().min(), max(ends.max().max(), every.roof_gflops[_ours(every)].max())
    low = 0.0 if low < 0.5 * high or low == high else low - 0.08 * (high - low)
    charts = [_chart(panel, here, (low, high + 0.3 * (high - low))) for panel in found]
    told = [
        "dot: the fastest setting by its median time, which stands next to it; line: the interval "
        "of the median, or the range of the repeats; dashed: drbench's roof"
    ]
    if used := [name for name in here if name in PEERS]:
        told.append(f"libraries with a BLAS of their own: {names(used)}")
    page, axes = panels(
        charts, (), [*told, *notes], len(here) * _ROW_IN, columns, (0.08, 0.2),
        finding=finding(found), left_in=left_in,
    )  # fmt: skip
    for at, (each, chart, (_, _, dots)) in enumerate(zip(axes, charts, found)):
        draw_chart(each, chart, MARKER_PT + 0.8, color="#666666", linewidth=0.8, zorder=1)
        length, unit = time_unit(dots.time_s.min())
        for case in rows(dots):
            end = max(filter(None, (case.rate, case.high)))
            text = f"{number(case.time_s / length)} {unit}"
            note(each, text, (end, here.index(case.name)), (4, 0), va="center", size=SMALL_PT - 0.5)
        each.locator_params(axis="x", nbins=3)
        label_rows(each, here, left_in - 0.14)
        each.tick_params(axis="y", labelleft=at % columns == 0)
        each.tick_params(axis="x", labelsize=SMALL_PT)
        each.set_xlabel(chart.x.title if at == 0 else "", size=SMALL_PT, ha="left", x=0)
        each.grid(**GRID)
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "peers",
        "rate of each algorithm and library with its interval, a panel a shape",
        make,
        ("moving_only", "shape"),
    ),
)
