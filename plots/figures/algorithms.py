"""Algorithms side by side: the best case of each, its time broken down into phases.

A phase is the mean over the ranks; what no phase accounts for is "other". Cases without phases are
whole bars.
"""

from typing import Any, NamedTuple

import matplotlib
from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_axes, draw_bars
from plots.draw.page import (
    GRID,
    PAGE_IN,
    TITLE_IN,
    Page,
    note,
    number,
    patch_handle,
    time_unit,
    width_in,
)
from plots.draw.style import OTHER, PHASES, RC, SMALL_PT, UNKNOWN
from plots.registry import Figure, Made
from plots.select.cases import Options, Shape, Source, configuration, elided, names, shape_text
from plots.select.records import Records, rows
from plots.select.selection import shown, usable

from .volume import local_s

_MOST_PANELS, _MOST_BARS = 4, 16
_BAR_IN, _BELOW_IN, _RIGHT_IN = 0.17, 0.46, 0.86
_LOOKS = {look.name: look for look in (*PHASES.values(), OTHER, UNKNOWN)}


class Bar(NamedTuple):
    """The best case of one algorithm and data movement: its parts in seconds, in the order they are
    stacked."""

    name: str
    record: Any
    parts: dict[str, float]


class Panel(NamedTuple):
    """The bars of one shape, fastest first."""

    shape: Shape
    source: Source
    bars: list[Bar]

    @property
    def unit(self) -> tuple[float, str]:
        """The unit of its times: length in seconds, and name."""
        return time_unit(min(bar.record.best_s for bar in self.bars))


def parts(record: Any) -> dict[str, float]:
    """Divide the best time of a case: {name of the part: seconds}.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> case = Record(
    ...     mode="measured", status="ok", best_s=1.0, phase_gemm_s=0.75, phase_fence_s=0.125
    ... )
    >>> parts(case)
    {'gemm': 0.75, 'fence': 0.125, 'other': 0.125}
    >>> parts(Record(mode="published", status="ok", best_s=1.0))
    {'not broken down': 1.0}
    """
    phases = {
        look.name: seconds
        for column, look in PHASES.items()
        if 0 < (seconds := getattr(record, column) or 0) < float("inf")
    }
    if not phases:
        return {UNKNOWN.name: record.best_s}
    rest = record.best_s - sum(phases.values())
    return phases | ({OTHER.name: rest} if rest > 0 else {})


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """Choose the bars: (panels, notes)."""
    kept, notes = usable(records, options)
    chosen, more = shown(kept, _MOST_PANELS)
    found = []
    for (source, shape), inside in chosen:
        best = inside.drop_duplicates("variant").sort_values(["best_s", "variant"])
        bars = [Bar(case.variant, case, parts(case)) for case in rows(best[:_MOST_BARS])]
        found.append(Panel(shape, source, bars))
        if len(best) > _MOST_BARS:
            notes.append(
                f"{shape_text(shape)}: not drawn: {names(list(best.variant[_MOST_BARS:]))} (slower "
                "than those drawn)"
            )
        absent = sorted(set(kept.variant) - set(best.variant))
        if absent:
            notes.append(f"{shape_text(shape)}, {source.text}: no case of {names(absent)}")
    notes += more
    over = {
        bar.name
        for panel in found
        for bar in panel.bars
        if sum(bar.parts.values()) > bar.record.best_s * 1.001
    }
    if over:
        notes.append(
            f"phases that overlap are longer together than the best repeat: {names(sorted(over))}"
        )
    return found, notes


def bar_text(bar: Bar) -> str:
    """How a bar is labelled: name and configuration."""
    told = configuration(bar.record)
    return elided(f"{bar.name}: {told}" if told else bar.name, 52)


def charts(records: Records, options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found, notes = panels(records, options)
    return list(map(_chart, found)), notes


def _chart(panel: Panel) -> Chart:
    length, unit = panel.unit
    stacks = DataFrame([bar.parts for bar in panel.bars]).reindex(columns=list(_LOOKS))
    bases = stacks.cumsum(axis=1).sub(stacks) / length
    marks = []
    for name, look in _LOOKS.items():
        has = stacks[name].dropna()
        if len(has):
            cases = [panel.bars[row].record.Index for row in has.index]
            base = list(bases[name][has.index])
            marks.append(
                Marks("bars", name, list(has / length), list(has.index), cases, look, base, True)
            )
    times = local_s(DataFrame([bar.record for bar in panel.bars]).infer_objects()).dropna()
    times = list(times.quantile([0, 0.5], interpolation="higher") / length) if len(times) else []
    ends = -0.5, len(panel.bars) - 0.5
    if times:
        marks.append(Marks("rule", "the same work without communication", times[1:] * 2, ends))
    top = max([*stacks.sum(axis=1) / length, *times[:1]])
    return Chart(
        shape_text(panel.shape) + "  (m × n × k)",
        panel.source.text,
        Axis(f"best time ({unit})", (0, top * 1.02)),
        Axis("", ends[::-1], ticks=dict(enumerate(map(bar_text, panel.bars)))),
        marks,
    )


def make(records: Records, options: Options) -> Made:
    """Draw a panel a shape, one above the other."""
    found, notes = panels(records, options)
    described = list(map(_chart, found))
    with matplotlib.rc_context(RC):
        used = {marks.name for chart in described for marks in chart.marks}
        handles = [patch_handle(look) for name, look in _LOOKS.items() if name in used]
        texts = [text for chart in described for text in chart.y.ticks.values()]
        left_in = max(width_in(text, SMALL_PT + 0.5) for text in texts) + 0.16
        heights = [TITLE_IN + len(panel.bars) * _BAR_IN + _BELOW_IN for panel in found]
        told = [
            "the best case of each algorithm and data movement; phases are means over the ranks"
        ]
        if any(marks.kind == "rule" for chart in described for marks in chart.marks):
            told.append("dashed: the same work without communication (the roof)")
        page, at = Page(sum(heights), handles, [*told, *notes]), 0.0
        for panel, chart, high in zip(found, described, heights, strict=True):
            high_in, room_in = len(panel.bars) * _BAR_IN, (left_in, _RIGHT_IN)
            axes = page.panel(chart[:2], 0, at, PAGE_IN, high_in, room_in)
            _bars(axes, panel, chart)
            at += high
    return Made(page.picture, notes)


def _bars(axes, panel: Panel, chart: Chart) -> None:
    length, unit = panel.unit
    for marks in chart.marks:
        if marks.kind == "rule":
            axes.axvline(marks.x[0], color="black", linewidth=0.8, linestyle=(0, (4, 2)), zorder=4)
            continue
        draw_bars(axes, marks)
    for row, bar in enumerate(panel.bars):
        roof = bar.record.percent_of_roof
        percent = "" if roof is None else f" ({roof:.0f} % roof)"
        note(
            axes,
            f"{number(bar.record.best_s / length)} {unit}{percent}",
            (sum(bar.parts.values()) / length, row),
            (3, 0),
            va="center",
            annotation_clip=False,
        )
    draw_axes(axes, chart)
    axes.tick_params(axis="y", length=0, labelsize=SMALL_PT + 0.5)
    axes.grid(axis="x", **GRID)


FIGURES = (
    Figure(
        "algorithms",
        "algorithm comparison: the best case of each, broken down into phases",
        make,
        ("moving_only", "shape"),
        charts=charts,
    ),
)
