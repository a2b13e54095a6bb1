"""Algorithms and libraries on the same work: the rate of each, a panel a shape, a row an algorithm
or library (``libraries``), or an algorithm with its data movement (``algorithms``), which of one
shape has the phases that take its time too.

The dot is the fastest setting of an algorithm on a shape, by the median time of its rounds; the
line through it the interval of that median, or without one the range of the repeats. A setting that
moves nothing is another problem, and one with fewer rounds was not interleaved with the others:
both are left out.
"""

from collections.abc import Sequence
from functools import partial
from math import nan

from pandas import DataFrame, Series, concat

from plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows, panels
from plots.draw.numbers import number, time_unit
from plots.draw.page import GRID, MARKER_PT, note, page_in, patch_handle, width_in
from plots.draw.style import FONT_PT, LIBRARIES, ON_DRBENCH, OTHER, PHASES, SMALL_PT, style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    Source,
    by_name,
    cases,
    configuration,
    elided,
    names,
    shape_name,
    shape_text,
)
from plots.select.records import Records, rows
from plots.select.selection import (
    FASTEST,
    SETTING,
    moves_nothing,
    not_decided,
    not_shown,
    usable,
)

_MOST_NAMES, _MOST_SHAPES, _COLUMNS, _ROW_IN = 32, 24, 4, 0.135
_TIE = 1.02  # times as fast: less is a tie
_WITHIN = 1.05  # times that of the fastest: near it

#: Source and shape of a panel, and the fastest setting of each algorithm: its case, with ``rate``,
#: ``low`` and ``high`` in GFLOP/s.
Panel = tuple[Source, tuple, DataFrame]


def choose(
    records: Records, options: Options, by: str = "algorithm"
) -> tuple[list[Panel], list[str], list[str]]:
    """Choose the dots of each algorithm or variant: (panels, names from the fastest to the slowest,
    notes)."""
    kept, notes = usable(records, options)
    source = kept.source.map(Source.on_known_nodes)
    kept = kept.assign(name=kept[by].fillna("unnamed"), source=source)
    still = moves_nothing(kept)
    if still.any() and not still.all():
        notes.append(f"not drawn: {cases(still.sum())} moving nothing")
        kept = kept[~still]
    setting = [kept[each] for each in ("source", "shape", "name", *SETTING)]
    rounds = _rounds_of(kept).groupby(setting, dropna=False).transform("nunique")
    fewer = rounds < rounds.groupby([kept.source, kept["shape"]]).transform("max")
    if fewer.any():
        notes.append(
            f"not drawn: {cases(fewer.sum())} of settings that were run in fewer rounds than the "
            "others, so not interleaved with them"
        )
        kept = kept[~fewer]
    each = ["source", "shape", "name"]
    best = settings(kept).sort_values([*each[1:], *FASTEST], kind="stable").drop_duplicates(each)
    on = best.groupby(best.name)["shape"].transform("nunique")
    rare = sorted(set(best.name[2 * on < best["shape"].nunique()]))
    if rare and by == "algorithm":
        notes.append(f"not drawn: {names(rare)}: on less than half of the shapes")
        best = best[~best.name.isin(rare)]
    share = best.rate / best.groupby(["source", "shape"]).rate.transform("max")
    order = share.groupby(best.name).median().sort_values(ascending=False, kind="stable").index
    drawn = list(order[:_MOST_NAMES])
    if lost := list(order[_MOST_NAMES:]):
        notes.append(f"not drawn: {names(lost)}: at most {_MOST_NAMES} names")
    best = best[best.name.isin(drawn)]
    found = [(*key, each) for key, each in best.groupby(["source", "shape"], sort=False)]
    found.sort(key=lambda panel: (panel[0].text, by_name(panel[1])))
    lost = [shape_text(shape) for _, shape, _ in found[_MOST_SHAPES:]]
    for _, shape, dots in found[:_MOST_SHAPES]:
        first, *others = rows(dots[~dots.hollow].sort_values("time_s")) or [None]
        if doubt := first and not_decided(first, others):
            notes.append(f"{shape_text(shape)}: {first.name}: {doubt}")
    return found[:_MOST_SHAPES], drawn, notes + not_shown(lost, "shapes")


def shares(found: DataFrame) -> DataFrame:
    """Percent of the time of each case that its phases take, a column a phase in the order they
    are stacked; empty where a case has no phases.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> known = {"best_s": 1.0, "median_s": 1.25, "phase_gemm_s": 0.75, "phase_fence_s": 0.125}
    >>> case = Record(mode="measured", status="ok", **known)
    >>> other = Record(mode="published", status="ok", best_s=1.0)
    >>> [row.dropna().to_dict() for _, row in shares(frame([case, other])).iterrows()]
    [{'gemm': 60.0, 'fence': 10.0, 'unattributed': 30.0}, {}]
    """
    phases = found[list(PHASES)].set_axis([style.name for style in PHASES.values()], axis=1)
    own_s = found.median_s.fillna(found.best_s)
    phases = phases.where(phases > 0).div(own_s, axis=0) * 100
    rest = 100 - phases.sum(axis=1)
    return phases.assign(**{OTHER.name: rest.where(phases.notna().any(axis=1) & (rest > 0))})


def _rounds_of(kept: DataFrame) -> Series:
    """The round of each case, with which names of cases in rounds begin; any other case is its own
    round. Two contenders of a round may be one setting, such as a named stationary matrix that is
    also the default."""
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
    """The numbers of shapes on which drbench is ahead of every other library, level, or behind;
    without another library the fastest on the first shape, and the number of others near it."""
    ahead = {"ahead of": 0, "level with": 0, "behind": 0}
    for _, _, dots in found:
        ours, theirs = (dots.rate[_ours(dots) == each].max() for each in (True, False))
        if ours > 0 and theirs > 0:
            ratio = ours / theirs
            ahead[
                "ahead of" if ratio > _TIE else "behind" if ratio < 1 / _TIE else "level with"
            ] += 1
    if count := sum(ahead.values()):
        subtitle = ", ".join(
            f"{where} the fastest other library on {each}" for where, each in ahead.items() if each
        )
        return f"drbench is {subtitle} of {cases(count, 'shape')}"
    _, _, dots = found[0]
    sure = dots[~dots.hollow].sort_values("time_s")
    if sure.empty:
        return "Every case is noisy: none is the fastest"
    close = (sure.time_s <= _WITHIN * sure.time_s.iloc[0]).sum() - 1
    others = cases(len(dots) - 1, "other")
    return f"{sure.name.iloc[0]} is fastest; {close} of {others} within 5 %"


def _ours(found: DataFrame) -> Series:
    """Rows whose roof is of drbench's own BLAS."""
    return ~found.algorithm.isin([*LIBRARIES, *ON_DRBENCH])


def _chart(panel: Panel, here: Sequence[str], limits: tuple[float, float]) -> Chart:
    source, shape, dots = panel
    roof = dots.roof_gflops[_ours(dots)].median()
    y = Axis(
        "", (len(here) - 0.5, -0.5), ticks={at: elided(each, 30) for at, each in enumerate(here)}
    )
    marks = [
        Marks(
            "points", case.name, [case.rate], [here.index(case.name)], [case.Index],
            style_of(case.algorithm or ""), across=True, hollow=[case.hollow],
            low=[case.low or nan], high=[case.high or nan],
        )
        for case in rows(dots)
    ]  # fmt: skip
    if roof > 0:
        marks.append(Marks("rule", "drbench's roof", [roof, roof], y.limits))
    x = Axis("GFLOP/s, all ranks together", limits)
    return Chart(shape_name(shape), shape_text(shape), x, y, marks)


def _phases(chart: Chart, dots: DataFrame, here: Sequence[str]) -> list[Chart]:
    """The phases of the cases of a panel that are not noisy, in rows next to its own; no chart if
    none has any."""
    parts = shares(dots[~dots.hollow])
    parts = parts.set_axis([here.index(name) for name in dots.name[~dots.hollow]])
    base = parts.cumsum(axis=1).sub(parts)
    marks = [
        Marks(
            "bars", style.name, list(has), list(has.index), (), style,
            list(base[style.name][has.index]), across=True,
        )
        for style in (*PHASES.values(), OTHER)
        for has in [parts[style.name].dropna()]
        if len(has)
    ]  # fmt: skip
    x = Axis("percent of the time", (0, max(100.0, parts.sum(axis=1).max())))
    subtitle = "means over the ranks in the median repeat"
    return [Chart("what takes the time", subtitle, x, chart.y, marks)] if marks else []


def make(by: str, records: Records, options: Options) -> Made:
    """Draw the shapes of each source next to each other, with the same rows."""
    found, drawn, notes = choose(records, options, by)
    here = [name for name in drawn if any((dots.name == name).any() for _, _, dots in found)]
    labels = dict(zip(here, here))
    if by == "variant" and len(found) == 1:
        for case in rows(found[0][2]):
            labels[case.name] = ": ".join(filter(None, (case.name, configuration(case))))
    wide_in = max(width_in(elided(name, 48), FONT_PT - 0.5) for name in labels.values())
    left_in = 0.14 + min(0.3 * page_in(), wide_in)
    every = concat([dots for _, _, dots in found])
    ends = every[["rate", "low", "high"]]
    low, high = ends.min().min(), max(ends.max().max(), every.roof_gflops[_ours(every)].max())
    low = 0.0 if low < 0.5 * high or low == high else low - 0.08 * (high - low)
    charts = [_chart(panel, here, (low, high + 0.3 * (high - low))) for panel in found]
    phases = _phases(charts[0], found[0][2], here) if by == "variant" and len(found) == 1 else []
    columns = max(1, min(_COLUMNS, len(found + phases), int((page_in() - left_in) / 1.48)))
    sources = list(dict.fromkeys(source.text for source, _, _ in found))
    if len(sources) > 1:
        charts = [
            chart._replace(subtitle=f"{source.text}, {chart.subtitle}")
            for chart, (source, _, _) in zip(charts, found)
        ]
    subtitle = [
        f"{names(sources)}. Dot: the fastest setting by its median time, with that time; "
        "line: the interval of the median, or the range of the repeats; dashed: drbench's roof"
    ]
    if used := sorted({*every.algorithm} & {*LIBRARIES}):
        subtitle.append(f"libraries with a BLAS of their own: {names(used)}")
    styles = [marks.style for chart in phases for marks in chart.marks]
    page, axes = panels(
        charts + phases, list(map(patch_handle, styles)), [*subtitle, *notes], len(here) * _ROW_IN,
        columns, (0.08, 0.2), finding=finding(found), left_in=left_in,
    )  # fmt: skip
    for at, (each, chart) in enumerate(zip(axes, charts + phases)):
        draw_chart(each, chart, MARKER_PT + 0.8, color="#666666", linewidth=0.8, zorder=1)
        label_rows(each, list(labels.values()), left_in - 0.14)
        each.tick_params(axis="y", labelleft=at % columns == 0)
        each.tick_params(axis="x", labelsize=SMALL_PT)
        each.locator_params(axis="x", nbins=3)
        titled = at == 0 or chart in phases
        each.set_xlabel(chart.x.title if titled else "", size=SMALL_PT, ha="left", x=0)
    for each, (_, _, dots) in zip(axes, found):
        length, unit = time_unit(dots.time_s.min())
        for case in rows(dots):
            end = max(filter(None, (case.rate, case.high)))
            text = f"{number(case.time_s / length)} {unit}"
            style = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none"}
            at = end, here.index(case.name)
            note(each, text, at, (4, 0), va="center", size=SMALL_PT - 0.5, bbox=style)
        each.grid(**GRID)
    return Made(page.picture, notes)


FIGURES = tuple(
    Figure(name, summary, partial(make, by), ("moving_only", "shape"))
    for name, by, summary in (
        (
            "algorithms",
            "variant",
            "rate of each algorithm and data movement with its interval; of one shape its phases",
        ),
        (
            "libraries",
            "algorithm",
            "rate of each algorithm and library with its interval, one panel for each shape",
        ),
    )
)
