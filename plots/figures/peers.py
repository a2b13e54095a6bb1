"""Ours and the peers on the same work: best and median percent of the roof, per shape and
algorithm.

The bar is the best case of an algorithm on a shape, the line across it the median over all its
cases there (over partitionings, mesh shapes, replication factors), the whisker the range of the
best case's paired ratios.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart
from plots.draw.page import GRID, MARGIN_IN, PAGE_IN, TITLE_IN, Page, note, patch_handle
from plots.draw.style import SMALL_PT, Fill, style_of
from plots.registry import Figure, Made
from plots.select.cases import AXIS, Options, Shape, Source, elided, names, rising, shape_text
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


class Bar(NamedTuple):
    """The cases of one algorithm on one shape."""

    best: float
    median: float
    record: Any
    count: int


class Panel(NamedTuple):
    """The bars of one source: (shape, algorithm) -> bar, in the order of shapes and names."""

    source: Source
    shapes: list[Shape]
    bars: dict[tuple[Shape, str], Bar]


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
    found = []
    for source, inside in groups(kept[kept.name.isin(drawn)], "source"):
        each = inside.groupby(["shape", "name"])[field]
        ranked = inside.assign(median=each.transform("median"), number=each.transform("size"))
        ranked = ranked.sort_values([field, "best_s"], ascending=[False, True], kind="stable")
        top = rows(ranked.drop_duplicates(["shape", "name"]))
        bars = {
            (case.shape, case.name): Bar(getattr(case, field), case.median, case, case.number)
            for case in sorted(top, key=lambda case: rising((case.shape, case.name)))
        }
        found.append(Panel(source, list(dict.fromkeys(shape for shape, _ in bars)), bars))
    if len(found) > _MOST_PANELS:
        notes.append(f"not drawn: {names([panel.source.text for panel in found[_MOST_PANELS:]])}")
        found = found[:_MOST_PANELS]
    return found, drawn, field, notes + absent(found, drawn)


def absent(found: Sequence[Panel], drawn: Sequence[str]) -> list[str]:
    """Say which bar is not there, a line for each algorithm."""
    said = []
    for panel in found:
        for name in drawn:
            lost = [shape_text(shape) for shape in panel.shapes if (shape, name) not in panel.bars]
            if lost:
                where = "at all" if len(lost) == len(panel.shapes) else f"at {names(lost)}"
                said.append(f"{panel.source.text}: no case of {name} {where}")
    return said


def charts(records: Records, options: Options) -> Charts:
    """Describe each source in as many rows of bars as they need: (charts, notes)."""
    *found, notes = panels(records, options)
    return [chart for chart, *_ in _rows(*found)], notes


def _rows(
    found: Sequence[Panel], drawn: Sequence[str], field: str
) -> list[tuple[Chart, Panel, list[Shape]]]:
    """A row of bars: its description, its panel, and the shapes in it."""
    a_row, step = max(1, _BARS_A_ROW // (len(drawn) + 1)), len(drawn) + 1
    parts = [
        (panel, panel.shapes[at : at + a_row])
        for panel in found
        for at in range(0, len(panel.shapes), a_row)
    ]
    top = max([100.0] + [bar.best for panel in found for bar in panel.bars.values()])
    wide = max(max(len(shapes) for _, shapes in parts) * step, 8)
    made = []
    for panel, shapes in parts:
        marks = []
        for place, name in enumerate(drawn):
            here = [at for at, shape in enumerate(shapes) if (shape, name) in panel.bars]
            bars = [panel.bars[shapes[at], name] for at in here]
            marks.append(
                Marks(
                    "bars",
                    name,
                    [at * step + place for at in here],
                    [bar.best for bar in bars],
                    [bar.record.Index for bar in bars],
                    Fill(name, style_of(name).color, _HATCHES[place]),
                )
            )
        ticks = {
            at * step + (len(drawn) - 1) / 2: f"{m} ×\n{n} × {k}"
            for at, (m, n, k) in enumerate(shapes)
        }
        chart = Chart(
            elided(panel.source.machine or "unnamed machine", 80),
            panel.source.text,
            Axis("", (-1, wide - 1), ticks=ticks),
            Axis(AXIS[field].replace("the no-communication ", ""), (0, top * 1.1)),
            marks,
        )
        made.append((chart, panel, shapes))
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
    if any(len(marks.x) < len(shapes) for chart, _, shapes in made for marks in chart.marks):
        told += "; ×: no case"
    high_in = TITLE_IN + _PANEL_IN + _BELOW_IN
    page = Page(len(made) * high_in, handles, [told, *notes])
    for number, (chart, panel, shapes) in enumerate(made):
        room_in = _LEFT_IN, MARGIN_IN
        axes = page.panel(chart[:2], 0, number * high_in, PAGE_IN, _PANEL_IN, room_in)
        _bars(axes, chart, panel, shapes, field)
    return Made(page.picture, notes)


def _bars(axes, chart: Chart, panel: Panel, shapes: Sequence[Shape], field: str) -> None:
    step = len(chart.marks) + 1
    draw_chart(axes, chart)
    for group, shape in enumerate(shapes):
        for place, marks in enumerate(chart.marks):
            x = group * step + place
            bar = panel.bars.get((shape, marks.name))
            if bar is None:
                axes.text(x, 1, "×", size=SMALL_PT, color="#777777", ha="center", va="bottom")
                continue
            for color, width, above in (("white", 2.4, 3), ("black", 1.0, 4)):
                axes.plot(
                    [x - 0.43, x + 0.43],
                    [bar.median] * 2,
                    color=color,
                    linewidth=width,
                    zorder=above,
                    solid_capstyle="butt",
                )
            ends = [bar.record.percent_of_roof_min, bar.record.percent_of_roof_max]
            if field == "percent_of_roof" and None not in ends:
                axes.plot([x, x], ends, color="black", linewidth=0.6, zorder=4)
            else:
                ends = [bar.best]
            if bar.count > 1:
                note(
                    axes,
                    str(bar.count),
                    (x, max(bar.best, *ends)),
                    (0, 1.5),
                    size=4.5,
                    ha="center",
                    annotation_clip=False,
                )
    axes.tick_params(
        axis="x", length=0, labelsize=SMALL_PT + 0.5 if len(shapes) <= 5 else SMALL_PT - 0.5
    )
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
