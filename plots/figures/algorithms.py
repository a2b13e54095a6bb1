"""Algorithms side by side: the best case of each, its time broken down into phases.

A phase is the mean over the ranks; what no phase accounts for is "other". Cases without phases are
whole bars.
"""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib

from drbench.measure.record import Record
from plots.draw.page import (
    GREY,
    MARGIN_IN,
    PAGE_IN,
    TITLE_IN,
    Page,
    bar_edge,
    number,
    patch_handle,
    time_unit,
    width_in,
)
from plots.draw.style import OTHER, PHASES, RC, SMALL_PT, UNKNOWN
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    Shape,
    Source,
    configuration,
    elided,
    fastest,
    finite,
    groups,
    names,
    shape_of,
    shape_text,
    source_of,
    usable,
    variant,
)

from .volume import local_s

_MOST_PANELS, _MOST_BARS = 4, 16
_BAR_IN, _BELOW_IN, _RIGHT_IN = 0.17, 0.46, 0.86


class Bar(NamedTuple):
    """The best case of one algorithm and data movement: its parts in seconds, in the order they are
    stacked."""

    name: str
    record: Record
    parts: dict[str, float]


class Panel(NamedTuple):
    """The bars of one shape, fastest first."""

    shape: Shape
    source: Source
    bars: list[Bar]


def parts(record: Record) -> dict[str, float]:
    """Divide the best time of a case: {name of the part: seconds}.

    Examples
    --------
    >>> case = Record(
    ...     mode="measured", status="ok", best_s=1.0, phase_gemm_s=0.75, phase_fence_s=0.125
    ... )
    >>> parts(case)
    {'gemm': 0.75, 'fence': 0.125, 'other': 0.125}
    >>> parts(Record(mode="published", status="ok", best_s=1.0))
    {'not broken down': 1.0}
    """
    phases = {
        PHASES[name][0]: getattr(record, name)
        for name in PHASES
        if finite(getattr(record, name)) and getattr(record, name) > 0
    }
    if not phases:
        return {UNKNOWN[0]: record.best_s}
    rest = record.best_s - sum(phases.values())
    return phases | ({OTHER[0]: rest} if rest > 0 else {})


def panels(records: Sequence[Record], options: Options) -> tuple[list[Panel], list[str]]:
    """Choose the bars: (panels, notes)."""
    kept, notes = usable(records, options)
    by_panel = groups(kept, lambda record: (source_of(record), shape_of(record)))
    every = {variant(record) for record in kept}
    found = []
    for (source, shape), inside in list(by_panel.items())[:_MOST_PANELS]:
        best = sorted(
            (fastest(of_one) for of_one in groups(inside, variant).values()),
            key=lambda record: (record.best_s, variant(record)),
        )
        found.append(
            Panel(
                shape,
                source,
                [Bar(variant(record), record, parts(record)) for record in best[:_MOST_BARS]],
            )
        )
        if len(best) > _MOST_BARS:
            notes.append(
                f"{shape_text(shape)}: not drawn: "
                f"{names([variant(record) for record in best[_MOST_BARS:]])} (slower than those "
                "drawn)"
            )
        absent = sorted(every - {variant(record) for record in best})
        if absent:
            notes.append(f"{shape_text(shape)}, {source.text}: no case of {names(absent)}")
    left = list(by_panel)[_MOST_PANELS:]
    if left:
        notes.append(
            f"not drawn: {len(left)} shapes more "
            f"({names([shape_text(shape) for _, shape in left])}); --shape chooses one"
        )
    over = [
        bar.name
        for panel in found
        for bar in panel.bars
        if sum(bar.parts.values()) > bar.record.best_s * 1.001
    ]
    if over:
        notes.append(
            "phases that overlap are longer together than the best repeat: "
            f"{names(sorted(set(over)))}"
        )
    return found, notes


def bar_text(bar: Bar) -> str:
    """How a bar is labelled: name and configuration."""
    told = configuration(bar.record)
    return elided(f"{bar.name}: {told}" if told else bar.name, 52)


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw a panel a shape, one above the other."""
    found, notes = panels(records, options)
    with matplotlib.rc_context(RC):
        used = {part for panel in found for bar in panel.bars for part in bar.parts}
        looks = {name: (color, hatch) for name, color, hatch in (*PHASES.values(), OTHER, UNKNOWN)}
        handles = [patch_handle(name, *looks[name]) for name in looks if name in used]
        left_in = (
            max(width_in(bar_text(bar), SMALL_PT + 0.5) for panel in found for bar in panel.bars)
            + 0.16
        )
        heights = [TITLE_IN + len(panel.bars) * _BAR_IN + _BELOW_IN for panel in found]
        told = [
            "the best case of each algorithm and data movement; phases are means over the ranks"
        ]
        if any(local_s(bar.record) for panel in found for bar in panel.bars):
            told.append("dashed: the same work without communication (the roof)")
        page = Page(sum(heights), handles, [*told, *notes])
        at = 0.0
        for panel, high in zip(found, heights, strict=True):
            page.title(
                MARGIN_IN,
                at,
                PAGE_IN - 2 * MARGIN_IN,
                shape_text(panel.shape) + "  (m × n × k)",
                panel.source.text,
            )
            axes = page.axes(
                left_in, at + TITLE_IN, PAGE_IN - left_in - _RIGHT_IN, len(panel.bars) * _BAR_IN
            )
            _bars(axes, panel, looks)
            at += high
    return Made(page.picture, notes)


def _bars(axes, panel: Panel, looks: dict) -> None:
    length, unit = time_unit(min(bar.record.best_s for bar in panel.bars))
    for row, bar in enumerate(panel.bars):
        start = 0.0
        for name in looks:
            if name in bar.parts:
                color, hatch = looks[name]
                axes.barh(
                    row,
                    bar.parts[name] / length,
                    0.72,
                    start,
                    color=color,
                    hatch=hatch,
                    edgecolor=bar_edge(color),
                    linewidth=0.4,
                    zorder=2,
                )
                start += bar.parts[name] / length
        percent = (
            f" ({bar.record.percent_of_roof:.0f} % roof)"
            if finite(bar.record.percent_of_roof)
            else ""
        )
        axes.annotate(
            f"{number(bar.record.best_s / length)} {unit}{percent}",
            (start, row),
            (3, 0),
            "data",
            "offset points",
            va="center",
            size=SMALL_PT,
            color=GREY,
            annotation_clip=False,
        )
    times = sorted(time for bar in panel.bars if (time := local_s(bar.record)) is not None)
    if times:
        axes.axvline(
            times[len(times) // 2] / length,
            color="black",
            linewidth=0.8,
            linestyle=(0, (4, 2)),
            zorder=4,
        )
    axes.set_yticks(
        range(len(panel.bars)), [bar_text(bar) for bar in panel.bars], size=SMALL_PT + 0.5
    )
    axes.set_ylim(len(panel.bars) - 0.5, -0.5)
    axes.set_xlim(
        0, max([sum(bar.parts.values()) for bar in panel.bars] + times[:1]) / length * 1.02
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_xlabel(f"best time ({unit})")


FIGURES = (
    Figure(
        "algorithms",
        "algorithm comparison: the best case of each, broken down into phases",
        make,
        ("moving_only", "shape"),
    ),
)
