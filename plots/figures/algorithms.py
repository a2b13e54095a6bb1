"""Algorithms side by side: the fastest case of each, its time broken down into phases.

A bar is the median time. Its phases are means over the ranks in the repeat nearest to it; what no
phase accounts for is "other". Cases without phases are whole bars.
"""

from math import inf
from typing import Any

from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_axes, draw_bars
from plots.draw.chart import panels as draw_panels
from plots.draw.page import GRID, note, number, patch_handle, time_unit, width_in
from plots.draw.style import OTHER, PHASES, SMALL_PT, UNKNOWN
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options, Shape, Source, configuration, elided, names, shape_text
from plots.select.records import Records, rows
from plots.select.selection import FASTEST, NOT_STABLE, not_decided, shown, usable

from .volume import local_s

_MOST_PANELS, _MOST_BARS = 4, 16
_BAR_IN, _RIGHT_IN = 0.17, 1.06
#: Roofs of a panel that differ more than this have no line for all: each case has its own.
_ONE_ROOF = 1.1
_LOOKS = (*PHASES.values(), OTHER, UNKNOWN)

#: Source and shape of a panel, and its bars: the best case of each algorithm and data movement,
#: fastest first.
Panel = tuple[tuple[Source, Shape], DataFrame]


def parts(found: DataFrame) -> DataFrame:
    """Divide the times of cases, in seconds: a column a part, in the order they are stacked,
    empty where a case has no such part.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> known = {"best_s": 1.0, "median_s": 1.25, "phase_gemm_s": 0.75, "phase_fence_s": 0.125}
    >>> case = Record(mode="measured", status="ok", **known)
    >>> other = Record(mode="published", status="ok", best_s=1.0)
    >>> [row.dropna().to_dict() for _, row in parts(frame([case, other])).iterrows()]
    [{'gemm': 0.75, 'fence': 0.125, 'other': 0.375}, {'not broken down': 1.0}]
    """
    phases = found[list(PHASES)].set_axis([look.name for look in PHASES.values()], axis=1)
    phases = phases.where((phases > 0) & (phases < inf))
    known, rest = phases.notna().any(axis=1), found.time_s - phases.sum(axis=1)
    return phases.assign(
        **{
            OTHER.name: rest.where(known & (rest > 0)),
            UNKNOWN.name: found.time_s.mask(known),
        }
    )


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """Choose the bars: (panels, notes)."""
    kept, notes = usable(records, options)
    chosen, more = shown(kept, _MOST_PANELS)
    found, over = [], set()
    for (source, shape), inside in chosen:
        best = inside.drop_duplicates("variant").sort_values([*FASTEST, "variant"])
        bars = best[:_MOST_BARS]
        found.append(((source, shape), bars))
        over.update(bars.variant[bars[list(PHASES)].sum(axis=1) > bars.time_s * 1.001])
        first, *others = rows(bars[~bars.hollow]) or [None]
        if doubt := first and not_decided(first, others):
            notes.append(f"{shape_text(shape)}: {bar_text(first)}: {doubt}")
        if len(best) > _MOST_BARS:
            notes.append(
                f"{shape_text(shape)}: not drawn: {names(list(best.variant[_MOST_BARS:]))} (slower "
                "than those drawn)"
            )
        absent = sorted(set(kept.variant) - set(best.variant))
        if absent:
            notes.append(f"{shape_text(shape)}, {source.text}: no case of {names(absent)}")
    notes += more
    if over:
        notes.append(
            f"phases that overlap are longer together than the median repeat: {names(sorted(over))}"
        )
    return found, notes


def bar_text(case: Any) -> str:
    """How a bar is labelled: name and configuration."""
    return elided(": ".join(filter(None, (case.variant, configuration(case)))), 52)


def charts(records: Records, options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found, notes = panels(records, options)
    return list(map(_chart, found)), notes


def _chart(panel: Panel) -> Chart:
    (source, shape), bars = panel
    length, unit = time_unit(bars.time_s.min())
    stacks = parts(bars).reset_index(drop=True)
    bases = stacks.cumsum(axis=1).sub(stacks) / length
    marks = []
    for look in _LOOKS:
        has = stacks[look.name].dropna()
        if len(has):
            cases, base = list(bars.index[has.index]), list(bases[look.name][has.index])
            x, y = list(has / length), list(has.index)
            hollow = list(bars.hollow.iloc[has.index])
            marks.append(Marks("bars", look.name, x, y, cases, look, base, True, hollow))
    times = local_s(bars).dropna()[: 0 if _roofs_differ(bars) else None]
    times = list(times.quantile([0, 0.5], interpolation="higher") / length) if len(times) else []
    ends = -0.5, len(bars) - 0.5
    if times:
        marks.append(Marks("rule", "the roof", times[1:] * 2, ends))
    top = max([*stacks.sum(axis=1) / length, *times[:1]])
    return Chart(
        shape_text(shape) + "  (m × n × k)",
        source.text,
        Axis(f"time ({unit})", (0, top * 1.02)),
        Axis("", ends[::-1], ticks=dict(enumerate(map(bar_text, rows(bars))))),
        marks,
    )


def _roofs_differ(bars: DataFrame) -> bool:
    times = local_s(bars).dropna()
    return bool(len(times)) and times.max() > _ONE_ROOF * times.min()


def make(records: Records, options: Options) -> Made:
    """Draw a panel a shape, one above the other."""
    found, notes = panels(records, options)
    described = list(map(_chart, found))
    used = {marks.name for chart in described for marks in chart.marks}
    handles = [patch_handle(look) for look in _LOOKS if look.name in used]
    texts = [text for chart in described for text in chart.y.ticks.values()]
    room_in = max(width_in(text, SMALL_PT + 0.5) for text in texts) + 0.16, _RIGHT_IN
    told = [
        "the fastest case of each algorithm and data movement; phases are means over the ranks "
        "in the median repeat"
    ]
    if any(marks.kind == "rule" for chart in described for marks in chart.marks):
        told.append("dashed, the roof: the same work without communication")
    if any((bars.stable == False).any() for _, bars in found):  # noqa: E712
        told.append(f"≈: {NOT_STABLE}")
    apart = [shape_text(shape) for (_, shape), bars in found if _roofs_differ(bars)]
    if apart:
        told.append(
            f"{names(apart)}: no one roof: those next to the cases differ by over "
            f"{100 * (_ONE_ROOF - 1):.0f} %"
        )
    highs_in = [len(bars) * _BAR_IN for _, bars in found]
    page, every = draw_panels(described, handles, [*told, *notes], highs_in, 1, room_in)
    for axes, (_, bars), chart in zip(every, found, described):
        _bars(axes, bars, chart)
    return Made(page.picture, notes)


def _bars(axes, bars: DataFrame, chart: Chart) -> None:
    length, unit = time_unit(bars.time_s.min())
    for marks in chart.marks:
        if marks.kind == "rule":
            line = {"color": "black", "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 4}
            named(axes.axvline(marks.x[0], **line), marks.name)
            continue
        draw_bars(axes, marks)
    for row, case in enumerate(rows(bars)):
        roof = case.percent_of_roof
        told = "" if roof is None or case.oversubscribed else f" ({roof:.0f} % roof)"
        told = " (noisy)" if case.hollow else told
        # right of the axes: what is drawn on them does not run through it
        at = {"xycoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
        about = "≈ " if case.stable is False else ""
        note(axes, f"{about}{number(case.time_s / length)} {unit}{told}", (1, row), (4, 0), **at)
    draw_axes(axes, chart)
    axes.tick_params(axis="y", length=0, labelsize=SMALL_PT + 0.5)
    axes.grid(axis="x", **GRID)


FIGURES = (
    Figure(
        "algorithms",
        "algorithm comparison: the fastest case of each, broken down into phases",
        make,
        ("moving_only", "shape"),
    ),
)
