"""Ours and the peers on the same work: best and median percent of the roof, per shape and
algorithm.

The bar is the best case of an algorithm on a shape, the line across it the median over all its
cases there (over partitionings, mesh shapes, replication factors), the whisker the range of the
best case's paired ratios.
"""

from collections.abc import Sequence

from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart
from plots.draw.page import GRID, MARGIN_IN, PAGE_IN, TITLE_IN, Page, note, patch_handle
from plots.draw.style import SMALL_PT, Fill, style_of
from plots.registry import Figure, Made
from plots.select.cases import AXIS, Options, Source, elided, names, shape_text
from plots.select.records import Records, rows
from plots.select.selection import groups, usable, with_quantity

_MOST_NAMES, _MOST_PANELS = 12, 8
_BARS_A_ROW = 64
_HATCHES = (
    "",
    "////",
    "....",
    "xxxx",
    "\\\\\\\\",
    "----",
    "oo",
    "||||",
    "++++",
    "ooo",
    "//..",
    "xx..",
)
_PANEL_IN, _LEFT_IN, _BELOW_IN = 1.7, 0.5, 0.42


#: A source, and its bars in the order of shapes and names: the best case of each algorithm on each
#: shape, with the ``median`` and the ``number`` of all its cases there.
Panel = tuple[Source, DataFrame]


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str], str, list[str]]:
    """Choose the bars: (panels, algorithms, field drawn, notes)."""
    kept, notes = usable(records, options)
    kept, field, more = with_quantity(kept, options)
    notes += more
    kept = kept.assign(name=kept.algorithm.fillna("unnamed"))
    best = kept.groupby("name")[field].max()
    # ours first, then the best
    drawn = sorted(best.index, key=lambda name: (name != "universal", -best[name], name))
    if len(drawn) > _MOST_NAMES:
        notes.append(f"not drawn: {names(drawn[_MOST_NAMES:])} (below those drawn)")
        drawn = drawn[:_MOST_NAMES]
    by = ["source", "shape", "name"]
    each = kept.groupby(by)[field]
    kept = kept.assign(median=each.transform("median"), number=each.transform("size"))
    kept = kept[kept.name.isin(drawn)].sort_values([field, "best_s"], ascending=[False, True])
    found = groups(kept.drop_duplicates(by).sort_values(["shape", "name"]), "source")
    if len(found) > _MOST_PANELS:
        notes.append(f"not drawn: {names([source.text for source, _ in found[_MOST_PANELS:]])}")
        found = found[:_MOST_PANELS]
    return found, drawn, field, notes + absent(found, drawn)


def absent(found: Sequence[Panel], drawn: Sequence[str]) -> list[str]:
    """Say which bar is not there, a line for each algorithm."""
    said = []
    for source, bars in found:
        for name in drawn:
            shapes = bars["shape"].unique()
            has = set(bars["shape"][bars.name == name])
            lost = [shape_text(shape) for shape in shapes if shape not in has]
            if lost:
                where = f"at {names(lost)}" if has else "at all"
                said.append(f"{source.text}: no case of {name} {where}")
    return said


def charts(records: Records, options: Options) -> Charts:
    """Describe each source in as many rows of bars as they need: (charts, notes)."""
    *found, notes = panels(records, options)
    return [chart for chart, _ in _rows(*found)], notes


def _rows(
    found: Sequence[Panel], drawn: Sequence[str], field: str
) -> list[tuple[Chart, DataFrame]]:
    """A row of bars: its description, and its cases with their places ``x``."""
    step = len(drawn) + 1
    a_row = max(1, _BARS_A_ROW // step)
    top = max(100.0, *(bars[field].max() for _, bars in found))
    wide = max(8, *(min(a_row, bars["shape"].nunique()) * step for _, bars in found))
    made = []
    for source, bars in found:
        every = list(bars["shape"].unique())
        for first in range(0, len(every), a_row):
            shapes = every[first : first + a_row]
            here = bars[bars["shape"].isin(shapes)]
            groups = here["shape"].map(shapes.index)
            here = here.assign(x=groups * step + here.name.map(drawn.index))
            marks = [
                Marks("bars", name, list(its.x), list(its[field]), list(its.index), look)
                for name, hatch in zip(drawn, _HATCHES)
                for its, look in [
                    (here[here.name == name], Fill(name, style_of(name).color, hatch))
                ]
            ]
            ticks = {
                at * step + (len(drawn) - 1) / 2: f"{m} ×\n{n} × {k}"
                for at, (m, n, k) in enumerate(shapes)
            }
            chart = Chart(
                elided(source.machine or "unnamed machine", 80),
                source.text,
                Axis("", (-1, wide - 1), ticks=ticks),
                Axis(AXIS[field].replace("the no-communication ", ""), (0, top * 1.1)),
                marks,
            )
            made.append((chart, here))
    return made


def make(records: Records, options: Options) -> Made:
    """Draw the bars of each source, in as many rows as they need."""
    found, drawn, field, notes = panels(records, options)
    made = _rows(found, drawn, field)
    handles = [patch_handle(marks.look) for marks in made[0][0].marks]
    told = (
        "bar: best case; line across it: median over the cases (their number above); "
        "whisker: range of the best case's paired ratios"
    )
    if any(len(here) < len(chart.marks) * len(chart.x.ticks) for chart, here in made):
        told += "; ×: no case"
    high_in = TITLE_IN + _PANEL_IN + _BELOW_IN
    page = Page(len(made) * high_in, handles, [told, *notes])
    for number, (chart, here) in enumerate(made):
        room_in = _LEFT_IN, MARGIN_IN
        axes = page.panel(chart[:2], 0, number * high_in, PAGE_IN, _PANEL_IN, room_in)
        _bars(axes, chart, here, field)
    return Made(page.picture, notes)


def _bars(axes, chart: Chart, here: DataFrame, field: str) -> None:
    draw_chart(axes, chart)
    step, shapes = len(chart.marks) + 1, len(chart.x.ticks)
    for x in {*range(shapes * step)} - {*range(step - 1, shapes * step, step)} - {*here.x}:
        axes.text(x, 1, "×", size=SMALL_PT, color="#777777", ha="center", va="bottom")
    for bar in rows(here):
        x, best = bar.x, getattr(bar, field)
        for color, width, above in (("white", 2.4, 3), ("black", 1.0, 4)):
            axes.plot(
                [x - 0.43, x + 0.43],
                [bar.median] * 2,
                color=color,
                linewidth=width,
                zorder=above,
                solid_capstyle="butt",
            )
        ends = [bar.percent_of_roof_min, bar.percent_of_roof_max]
        if field == "percent_of_roof" and None not in ends:
            axes.plot([x, x], ends, color="black", linewidth=0.6, zorder=4)
        else:
            ends = []
        if bar.number > 1:
            note(
                axes,
                str(bar.number),
                (x, max([best, *ends])),
                (0, 1.5),
                size=4.5,
                ha="center",
                annotation_clip=False,
            )
    axes.tick_params(axis="x", length=0, labelsize=SMALL_PT + (0.5 if shapes <= 5 else -0.5))
    axes.grid(axis="y", **GRID)
    axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)


FIGURES = (
    Figure(
        "peers",
        "best and median percent of roof, per shape and algorithm or peer",
        make,
        ("moving_only", "quantity", "shape"),
        charts=charts,
    ),
)
