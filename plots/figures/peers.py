"""Ours and the peers on the same work: the rate of each, a panel a shape, a row an algorithm or
library.

The dot is the fastest setting of an algorithm on a shape, by the median time of its rounds; the
line through it the interval of that median, or of rows that do not have one the range of their
repeats. A setting that moves nothing is another problem, and one that was run in fewer rounds than
the others was not run in turn with them: both compete with nobody.
"""

from collections.abc import Sequence
from math import nan

from pandas import DataFrame, Series

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart
from plots.draw.page import (
    GRID,
    MARGIN_IN,
    MARKER_PT,
    TITLE_IN,
    Page,
    fitted,
    note,
    page_in,
    width_in,
)
from plots.draw.style import FONT_PT, ON_DRBENCH, PEERS, SMALL_PT, style_of
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import (
    UNIVERSAL,
    Options,
    Source,
    by_name,
    cases,
    elided,
    names,
    shape_name,
    shape_text,
)
from plots.select.records import Records
from plots.select.selection import FASTEST, SETTING, groups, usable

_MOST_NAMES, _MOST_PANELS, _MOST_SHAPES, _COLUMNS = 32, 6, 16, 4
_ROW_IN, _HEAD_IN, _BELOW_IN, _GAP_IN = 0.135, 0.36, 0.26, 0.22
_SETTING = ["source", "shape", "name", *SETTING]

#: A source, and the fastest setting of each algorithm on each shape: its case, with ``rate``,
#: ``low`` and ``high`` in GFLOP/s and the ``number`` of settings it was the fastest of.
Panel = tuple[Source, DataFrame]


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str], list[str]]:
    """Choose the dots: (panels, algorithms, notes)."""
    kept, notes = usable(records, options)
    source = kept.source.map(Source.on_known_nodes)
    kept = kept.assign(name=kept.algorithm.fillna("unnamed"), source=source)
    still = (kept.moved_bytes == 0).fillna(False) & (kept.ranks > 1).fillna(False)
    if still.any() and not still.all():
        notes.append(f"not drawn: {cases(still.sum())} moving nothing")
        kept = kept[~still]
    order = lambda name: (name != UNIVERSAL, name in PEERS, name in ON_DRBENCH, name)
    drawn = sorted(kept.name.unique(), key=order)
    if len(drawn) > _MOST_NAMES:
        notes.append(f"not drawn: {names(drawn[_MOST_NAMES:])}: at most {_MOST_NAMES} names")
        drawn = drawn[:_MOST_NAMES]
    kept = kept[kept.name.isin(drawn)]
    rounds = _turns(kept).groupby([kept[each] for each in _SETTING], dropna=False)
    rounds = rounds.transform("nunique")
    fewer = rounds < rounds.groupby([kept.source, kept["shape"]]).transform("max")
    if fewer.any():
        notes.append(
            f"not drawn: {cases(fewer.sum())} of settings that were run in fewer rounds than the "
            "others, so not in turn with them"
        )
        kept = kept[~fewer]
        drawn = [name for name in drawn if name in set(kept.name)]
    found = groups(settings(kept), "source")
    if len(found) > _MOST_PANELS:
        notes.append(f"not drawn: {names([source.text for source, _ in found[_MOST_PANELS:]])}")
        found = found[:_MOST_PANELS]
    chosen = []
    for source, every in found:
        shapes = sorted(every["shape"].unique(), key=by_name)
        if len(shapes) > _MOST_SHAPES:
            lost = names([shape_text(shape) for shape in shapes[_MOST_SHAPES:]])
            notes.append(f"{source.text}: not drawn: {lost}; --shape chooses one")
        by = ["shape", "name"]
        number = every.groupby(by).time_s.transform("size")
        best = every.assign(number=number).sort_values([*by, *FASTEST]).drop_duplicates(by)
        chosen.append((source, best[best["shape"].isin(shapes[:_MOST_SHAPES])]))
    return chosen, drawn, notes + absent(chosen, drawn)


def _turns(kept: DataFrame) -> Series:
    """The round of each case, which the names of cases in rounds begin with; any other case is one
    of its own. Two contenders may be one setting, as a stationary matrix that is named and is the
    one that would be chosen: both are of one round."""
    number = kept.case.astype("string").str.extract(r"^(\d+) \| ", expand=False)
    return number.fillna(Series(kept.index.astype(str), kept.index))


def settings(kept: DataFrame) -> DataFrame:
    """Merge the rounds of a setting: the case nearest the median time of those that are not noisy,
    with that time and the ends of all their intervals."""
    ends = DataFrame({"low_s": kept.median_low_s, "high_s": kept.median_high_s})
    spread = kept.samples_s.map(
        lambda samples: (min(samples), max(samples)) if samples else (nan,) * 2
    )
    ends["low_s"] = ends.low_s.fillna(Series([low for low, _ in spread], kept.index, float))
    ends["high_s"] = ends.high_s.fillna(Series([high for _, high in spread], kept.index, float))
    kept = kept.join(ends)
    number = kept.groupby(_SETTING, dropna=False, sort=False).ngroup()
    sure = kept[~kept.hollow | kept.hollow.groupby(number).transform("all")]
    number = number[sure.index]
    middle_s = sure.time_s.groupby(number).median()
    case = (sure.time_s - number.map(middle_s)).abs().groupby(number).idxmin()
    found = kept.loc[case].assign(time_s=middle_s.to_numpy())
    work = found[["m", "n", "k"]].astype(float).prod(axis=1) * 2 / 1e9
    low_s = sure.low_s.groupby(number).min().to_numpy()
    high_s = sure.high_s.groupby(number).max().to_numpy()
    return found.assign(rate=work / found.time_s, low=work / high_s, high=work / low_s)


def absent(found: Sequence[Panel], drawn: Sequence[str]) -> list[str]:
    """Say which dot is not there, a line for each algorithm."""
    said = []
    for source, dots in found:
        shapes = sorted(dots["shape"].unique(), key=by_name)
        for name in drawn:
            has = set(dots["shape"][dots.name == name])
            lost = [shape_name(shape) for shape in shapes if shape not in has]
            if lost:
                where = f"at {names(lost)}" if has else "at all"
                said.append(f"{source.text}: no case of {name} {where}")
    return said


def charts(records: Records, options: Options) -> Charts:
    """Describe a panel for each shape and source: (charts, notes)."""
    found, drawn, notes = panels(records, options)
    return [chart for panel in found for chart in _charts(panel, drawn)], notes


def _charts(panel: Panel, drawn: Sequence[str]) -> list[Chart]:
    source, dots = panel
    here = [name for name in drawn if (dots.name == name).any()]
    ends = dots[["rate", "low", "high"]]
    low, high = ends.min().min(), max(ends.max().max(), dots.roof_gflops[_ours(dots)].max())
    low = 0.0 if low < 0.3 * high or low == high else low - 0.08 * (high - low)
    x = Axis("GFLOP/s, all ranks together", (low, high + 0.08 * (high - low)))
    y = Axis(
        "", (len(here) - 0.5, -0.5), ticks={at: elided(name, 30) for at, name in enumerate(here)}
    )
    made = []
    for shape in sorted(dots["shape"].unique(), key=by_name):
        inside = dots[dots["shape"] == shape]
        marks = [
            Marks(
                "points",
                name,
                list(each.rate),
                [here.index(name)] * len(each),
                list(each.index),
                style_of(name),
                across=True,
                hollow=list(each.hollow),
                low=list(each.low),
                high=list(each.high),
            )
            for name in here
            for each in [inside[inside.name == name]]
            if len(each)
        ]
        roof = inside.roof_gflops[_ours(inside)].median()
        if roof > 0:
            marks.append(Marks("rule", "drbench's roof", [roof, roof], y.limits))
        told = f"{shape_text(shape)}, {source.text}"
        made.append(Chart(shape_name(shape), told, x, y, marks))
    return made


def _ours(found: DataFrame) -> Series:
    """Rows whose roof is of drbench's own BLAS."""
    return ~found.name.isin([*PEERS, *ON_DRBENCH])


def make(records: Records, options: Options) -> Made:
    """Draw the shapes of each source beside each other, with the same rows."""
    found, drawn, notes = panels(records, options)
    blocks = [(source, _charts((source, dots), drawn)) for source, dots in found]
    labels = [text for _, every in blocks for chart in every for text in chart.y.ticks.values()]
    left_in = 0.12 + max(width_in(text, FONT_PT - 0.5) for text in labels)
    highs_in = []
    for _, every in blocks:
        lines = -(-len(every) // _COLUMNS)
        rows_in = len(every[0].y.ticks) * _ROW_IN
        highs_in.append(TITLE_IN + lines * (_HEAD_IN + rows_in + _BELOW_IN) + 0.12)
    told = [
        "dot: the fastest setting by its median time; line: the interval of the median, or the "
        "range of the repeats; dashed: drbench's roof; above the thin line drbench, below it other "
        "libraries"
    ]
    page, top_in = Page(sum(highs_in), (), [*told, *notes]), 0.0
    for (source, every), high_in in zip(blocks, highs_in):
        machine = elided(source.machine or "unnamed machine", 80)
        page.title(MARGIN_IN, top_in, page_in() - 2 * MARGIN_IN, machine, source.text)
        columns = min(_COLUMNS, len(every))
        wide_in = (page_in() - left_in - MARGIN_IN) / columns
        rows_in = len(every[0].y.ticks) * _ROW_IN
        for number, chart in enumerate(every):
            line, column = divmod(number, columns)
            x_in = left_in + column * wide_in
            y_in = top_in + TITLE_IN + line * (_HEAD_IN + rows_in + _BELOW_IN)
            _head(page, chart, x_in, y_in, wide_in - _GAP_IN)
            axes = page.axes(x_in, y_in + _HEAD_IN, wide_in - _GAP_IN, rows_in)
            _dots(named(axes, f"{chart.title}\n{chart.told}"), chart, column == 0)
            below = number + columns >= len(every)
            axes.set_xlabel(chart.x.title if below and column == 0 else "", ha="left", x=0)
        top_in += high_in
    return Made(page.picture, notes)


def _head(page: Page, chart: Chart, x_in: float, y_in: float, wide_in: float) -> None:
    shape = chart.told.partition(",")[0]
    look = {"weight": "bold", "color": "black"}
    for at_in, text, bold in (
        (0.04, chart.title, look),
        (0.18, shape * (shape != chart.title), {}),
    ):
        text, size = fitted(text, FONT_PT - 0.5 * (not bold), wide_in, bool(bold))
        named(page.text(x_in, y_in + at_in, text, size, **bold), "")


def _dots(axes, chart: Chart, labelled: bool) -> None:
    draw_chart(axes, chart, MARKER_PT + 0.8, color="#666666", linewidth=0.8, zorder=1)
    there = {y for marks in chart.marks if marks.kind == "points" for y in marks.y}
    for y in sorted({*chart.y.ticks} - there):
        note(axes, "no case", (0, y), (3, 0), xycoords=axes.get_yaxis_transform(), va="center")
    ours = sum(name not in PEERS for name in chart.y.ticks.values())
    if 0 < ours < len(chart.y.ticks):
        named(
            axes.axhline(ours - 0.5, color="#999999", linewidth=0.6), "drbench above, peers below"
        )
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="y", length=0, labelleft=labelled)
    axes.tick_params(axis="x", labelsize=SMALL_PT)
    axes.grid(**GRID)


FIGURES = (
    Figure(
        "peers",
        "rate of each algorithm and peer with its interval, a panel a shape",
        make,
        ("moving_only", "shape"),
    ),
)
