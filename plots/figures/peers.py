"""Ours and the peers on the same work: best and median percent of the roof, per shape and
algorithm.

The bar is the best case of an algorithm on a shape, the line across it the median over all its
cases there (over partitionings, mesh shapes, replication factors), the whisker the range of the
best case's paired ratios.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import matplotlib

from drbench.measure.record import Record
from plots.draw.page import GREY, MARGIN_IN, PAGE_IN, TITLE_IN, Page, patch_handle
from plots.draw.style import RC, SMALL_PT, style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    AXIS,
    Options,
    Shape,
    Source,
    elided,
    finite,
    groups,
    names,
    shape_of,
    shape_text,
    source_of,
    usable,
    with_quantity,
)

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
    record: Record
    count: int


class Panel(NamedTuple):
    """The bars of one source: (shape, algorithm) -> bar, in the order of shapes and names."""

    source: Source
    shapes: list[Shape]
    bars: dict[tuple[Shape, str], Bar]


def panels(
    records: Sequence[Record], options: Options
) -> tuple[list[Panel], list[str], str, list[str]]:
    """Choose the bars: (panels, algorithms, field drawn, notes)."""
    kept, notes = usable(records, options)
    kept, field, more = with_quantity(kept, options)
    notes += more
    count = groups(kept, lambda record: record.algorithm or "unnamed")
    best = {
        name: max(getattr(record, field) for record in inside) for name, inside in count.items()
    }
    # ours first, then the best
    drawn = sorted(count, key=lambda name: (name != "universal", -best[name], name))
    if len(drawn) > _MOST_NAMES:
        notes.append(f"not drawn: {names(drawn[_MOST_NAMES:])} (below those drawn)")
        drawn = drawn[:_MOST_NAMES]
    found = []
    for source, inside in groups(
        (r for r in kept if (r.algorithm or "unnamed") in drawn), source_of
    ).items():
        bars = {}
        for (shape, name), here in groups(
            inside, lambda r: (shape_of(r), r.algorithm or "unnamed")
        ).items():
            top = max(here, key=lambda record: (getattr(record, field), -record.best_s))
            bars[shape, name] = Bar(
                getattr(top, field), median(getattr(r, field) for r in here), top, len(here)
            )
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


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw the bars of each source, in as many rows as they need."""
    found, drawn, field, notes = panels(records, options)
    with matplotlib.rc_context(RC):
        a_row = max(1, _BARS_A_ROW // (len(drawn) + 1))
        rows = [
            (panel, panel.shapes[at : at + a_row])
            for panel in found
            for at in range(0, len(panel.shapes), a_row)
        ]
        handles = [
            patch_handle(name, style_of(name).color, _HATCHES[index])
            for index, name in enumerate(drawn)
        ]
        told = (
            "bar: best case; line across it: median over the cases (their number above); "
            "whisker: range of the best case's paired ratios"
        )
        if any(
            (shape, name) not in panel.bars
            for panel, shapes in rows
            for shape in shapes
            for name in drawn
        ):
            told += "; ×: no case"
        top = max([100.0] + [bar.best for panel in found for bar in panel.bars.values()])
        high_in = TITLE_IN + _PANEL_IN + _BELOW_IN
        page = Page(len(rows) * high_in, handles, [told, *notes])
        for number, (panel, shapes) in enumerate(rows):
            page.title(
                MARGIN_IN,
                number * high_in,
                PAGE_IN - 2 * MARGIN_IN,
                elided(panel.source.machine or "unnamed machine", 80),
                panel.source.text,
            )
            axes = page.axes(
                _LEFT_IN, number * high_in + TITLE_IN, PAGE_IN - _LEFT_IN - MARGIN_IN, _PANEL_IN
            )
            _bars(
                axes,
                panel,
                shapes,
                drawn,
                field,
                (max(len(each) for _, each in rows) * (len(drawn) + 1), top),
            )
    return Made(page.picture, notes)


def _bars(
    axes,
    panel: Panel,
    shapes: Sequence[Shape],
    drawn: Sequence[str],
    field: str,
    limits: tuple[int, float],
) -> None:
    step = len(drawn) + 1
    for group, shape in enumerate(shapes):
        for place, name in enumerate(drawn):
            x = group * step + place
            bar = panel.bars.get((shape, name))
            if bar is None:
                axes.text(x, 1, "×", size=SMALL_PT, color="#777777", ha="center", va="bottom")
                continue
            color = style_of(name).color
            axes.bar(
                x,
                bar.best,
                0.86,
                color=color,
                hatch=_HATCHES[place],
                edgecolor="white",
                linewidth=0.4,
                zorder=2,
            )
            axes.plot(
                [x - 0.43, x + 0.43],
                [bar.median] * 2,
                color="white",
                linewidth=2.4,
                zorder=3,
                solid_capstyle="butt",
            )
            axes.plot(
                [x - 0.43, x + 0.43],
                [bar.median] * 2,
                color="black",
                linewidth=1.0,
                zorder=4,
                solid_capstyle="butt",
            )
            ends = [bar.record.percent_of_roof_min, bar.record.percent_of_roof_max]
            if field == "percent_of_roof" and all(map(finite, ends)):
                axes.plot([x, x], ends, color="black", linewidth=0.6, zorder=4)
            else:
                ends = [bar.best]
            highest = max(bar.best, *ends)
            if bar.count > 1:
                axes.annotate(
                    str(bar.count),
                    (x, highest),
                    (0, 1.5),
                    "data",
                    "offset points",
                    size=4.5,
                    color=GREY,
                    ha="center",
                    annotation_clip=False,
                )
    middle = (len(drawn) - 1) / 2
    size = SMALL_PT + 0.5 if len(shapes) <= 5 else SMALL_PT - 0.5
    axes.set_xticks(
        [group * step + middle for group in range(len(shapes))],
        ["\n".join(_two(shape)) for shape in shapes],
        size=size,
    )
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-1, max(limits[0], 8) - 1)
    axes.set_ylim(0, limits[1] * 1.1)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.set_ylabel(AXIS[field].replace("the no-communication ", ""))


def _two(shape: Shape) -> tuple[str, str]:
    return f"{shape[0]} ×", f"{shape[1]} × {shape[2]}"


FIGURES = (
    Figure(
        "peers",
        "best and median percent of roof, per shape and algorithm or peer",
        make,
        ("moving_only", "quantity", "shape"),
    ),
)
