"""Communication volume against time: one panel a shape, one marker a case.

The bytes are those that all ranks together moved, by any means (read in place, copied, accumulated,
by collectives, between replicas). Cases that move none stand on a strip of their own at the left,
as zero has no place on a log axis.
"""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import matplotlib

from drbench.measure.record import Record
from plots.draw.page import (
    GREY,
    MARGIN_IN,
    MARKER_PT,
    PAGE_IN,
    TITLE_IN,
    Page,
    bytes_text,
    label,
    line_handle,
    log_axis,
    number,
    time_unit,
)
from plots.draw.style import FONT_PT, RC, SMALL_PT, STATIONARY, LineStyle, style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    Shape,
    Source,
    cases,
    communicated_bytes,
    groups,
    names,
    series,
    shape_of,
    shape_text,
    source_of,
    usable,
)
from plots.select.selection import UNIVERSAL, SelectionError

_MOST_PANELS, _MOST_NAMES = 6, 12
_HIGH_IN, _LEFT_IN, _BELOW_IN = 2.2, 0.56, 0.46


class Scatter(NamedTuple):
    """One panel: (bytes, best time in seconds, name, record) of every case, and the time without
    communication."""

    shape: Shape
    source: Source
    points: list[tuple[int, float, str, Record]]
    local_s: float | None


def name_of(record: Record) -> str:
    """What a marker stands for: the matrix that does not move, or the algorithm."""
    return (
        f"universal S-{record.stationary}"
        if record.algorithm == UNIVERSAL and record.stationary
        else series(record)
    )


def look(name: str) -> LineStyle:
    """The style of :func:`name_of`."""
    return (
        STATIONARY[name[-1]]
        if name in {f"universal S-{each}" for each in STATIONARY}
        else style_of(name)
    )


def scatters(records: Sequence[Record], options: Options) -> tuple[list[Scatter], list[str]]:
    """Choose the panels: (panels, notes)."""
    kept, notes = usable(records, options)
    counted = [record for record in kept if communicated_bytes(record) is not None]
    if len(counted) < len(kept):
        notes.append(f"not drawn: {cases(len(kept) - len(counted))} whose bytes were not recorded")
    if not counted:
        raise SelectionError(
            f"none of {len(kept)} cases has its bytes recorded. Draw measured or simulated cases."
        )
    rank = groups(counted, name_of)
    drawn = set(sorted(rank, key=lambda name: (-len(rank[name]), name))[:_MOST_NAMES])
    if len(rank) > len(drawn):
        notes.append(
            f"not drawn: {names(sorted(set(rank) - drawn))} (fewest cases of {len(rank)} names)"
        )
    by_panel = groups(
        (r for r in counted if name_of(r) in drawn),
        lambda record: (source_of(record), shape_of(record)),
    )
    panels = []
    for (source, shape), inside in list(by_panel.items())[:_MOST_PANELS]:
        points = sorted(
            ((communicated_bytes(r), r.best_s, name_of(r), r) for r in inside),
            key=lambda point: point[:3],
        )
        local = sorted(local_s(r) for r in inside if local_s(r) is not None)
        panels.append(Scatter(shape, source, points, local[len(local) // 2] if local else None))
    left = list(by_panel)[_MOST_PANELS:]
    if left:
        notes.append(
            f"not drawn: {len(left)} shapes more "
            f"({names([shape_text(shape) for _, shape in left])}); --shape chooses one"
        )
    return panels, notes


def local_s(record: Record) -> float | None:
    """The time of the same work without communication, in seconds."""
    if record.roof_gflops:
        return 2 * record.m * record.n * record.k / (record.roof_gflops * 1e9)
    return record.local_gemm_s


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw all panels, two in a row, under one legend."""
    panels, notes = scatters(records, options)
    with matplotlib.rc_context(RC):
        found = sorted({point[2] for panel in panels for point in panel.points})
        handles = [line_handle(name, look(name)._replace(dashes="None")) for name in found]
        high_in = TITLE_IN + _HIGH_IN + _BELOW_IN
        columns = min(2, len(panels))
        wide_in = PAGE_IN / columns
        page = Page(
            -(-len(panels) // columns) * high_in,
            handles,
            ["bytes: summed over all ranks, read in place included", *notes],
        )
        for index, panel in enumerate(panels):
            left, top = index % columns * wide_in, index // columns * high_in
            page.title(
                left + MARGIN_IN,
                top,
                wide_in - 2 * MARGIN_IN,
                shape_text(panel.shape) + "  (m × n × k)",
                panel.source.text,
            )
            _panel(
                page.axes(left + _LEFT_IN, top + TITLE_IN, wide_in - _LEFT_IN - 0.12, _HIGH_IN),
                panel,
            )
    return Made(page.picture, notes)


def _panel(axes, panel: Scatter) -> None:
    sizes = [nbytes for nbytes, *_ in panel.points if nbytes > 0]
    low, high = (min(sizes), max(sizes)) if sizes else (1, 1)
    zero = any(nbytes == 0 for nbytes, *_ in panel.points)
    span = max(high / low, 16.0)
    at_zero = low / span**0.14
    length, unit = time_unit(min(time for _, time, *_ in panel.points))
    size = MARKER_PT - (0.9 if len(panel.points) < 400 else 2.0)
    for name in sorted({point[2] for point in panel.points}):
        style = look(name)
        inside = [point for point in panel.points if point[2] == name]
        axes.plot(
            [point[0] or at_zero for point in inside],
            [point[1] / length for point in inside],
            linestyle="None",
            marker=style.marker,
            markersize=size,
            markerfacecolor="white",
            markeredgecolor=style.color,
            markeredgewidth=0.8,
            zorder=3,
            clip_on=False,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    edge = span**0.05
    axes.set_xlim(
        (at_zero if zero and sizes else low) / edge, max(high, low) * edge if sizes else at_zero * 2
    )
    times = [time / length for _, time, *_ in panel.points] + (
        [panel.local_s / length] if panel.local_s else []
    )
    room = max(1.1, (max(times) / min(times)) ** 0.1)
    axes.set_ylim(min(times) / room, max(times) * room**0.5)
    ticks = ([at_zero] if zero else []) + _byte_ticks(low, high) * bool(sizes)
    log_axis(
        axes.xaxis,
        low,
        high,
        lambda value: "0" if zero and value == at_zero else bytes_text(value),
        ticks=ticks,
    )
    log_axis(axes.yaxis, *axes.get_ylim(), number)
    if zero and sizes:
        axes.axvline((at_zero * low) ** 0.5, color="#BBBBBB", linewidth=0.6)
    if panel.local_s:
        axes.axhline(
            panel.local_s / length, color="#666666", linewidth=0.8, linestyle=(0, (4, 2)), zorder=1
        )
        axes.annotate(
            "no communication (the roof)",
            (1, panel.local_s / length),
            (-2, -2),
            axes.get_yaxis_transform(),
            "offset points",
            ha="right",
            va="top",
            size=SMALL_PT,
            color=GREY,
        )
    axes.grid(color="#E5E5E5", linewidth=0.6)
    axes.set_xlabel("bytes moved, all ranks together")
    axes.set_ylabel(label(f"best time ({unit})"), size=FONT_PT)


def _byte_ticks(low: float, high: float) -> list[float]:
    """Powers of two in the range, evenly spaced in their exponents; the ends themselves if none
    lies between."""
    first, last = -(-log(low) // log(2)), log(high) // log(2)
    if last <= first:
        return [low] if low == high else [low, high] if high > 2 * low else [low]
    step = max(1, -(-(last - first) // 4))
    return [2.0 ** (first + step * number) for number in range(int((last - first) // step) + 1)]


FIGURES = (
    Figure(
        "volume",
        "communication volume against time, one panel a shape",
        make,
        ("moving_only", "shape"),
    ),
)
