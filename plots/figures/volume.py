"""Communication volume against time: one panel a shape, one marker a case.

The bytes are those that all ranks together moved, by any means (read in place, copied, accumulated,
by collectives, between replicas). Cases that move none stand on a strip of their own at the left,
as zero has no place on a log axis.
"""

from math import log

from pandas import DataFrame, Series

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart, panels
from plots.draw.page import (
    GRID,
    MARKER_PT,
    bytes_text,
    label,
    line_handle,
    log_ticks,
    note,
    number,
    time_unit,
)
from plots.draw.style import STATIONARY, LineStyle, style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    UNIVERSAL,
    Options,
    SelectionError,
    Shape,
    Source,
    cases,
    names,
    shape_text,
)
from plots.select.records import Records
from plots.select.selection import shown, usable

_MOST_PANELS, _MOST_NAMES = 6, 12


#: Source and shape of a panel, and its cases with their ``name`` and ``local_s``.
Panel = tuple[tuple[Source, Shape], DataFrame]


def look(name: str) -> LineStyle:
    """The style of a name: that of the matrix that does not move, or of the algorithm."""
    return (
        STATIONARY[name[-1]]
        if name in {f"universal S-{each}" for each in STATIONARY}
        else style_of(name)
    )


def scatters(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """Choose the panels: (panels, notes)."""
    kept, notes = usable(records, options)
    counted = kept[kept.moved_bytes.notna()]
    if len(counted) < len(kept):
        notes.append(f"not drawn: {cases(len(kept) - len(counted))} whose bytes were not recorded")
    if counted.empty:
        raise SelectionError(
            f"none of {len(kept)} cases has its bytes recorded. Draw measured or simulated cases."
        )
    moving = (counted.algorithm == UNIVERSAL) & counted.stationary.notna()
    counted = counted.assign(
        name=counted.variant.where(moving, counted.series), local_s=local_s(counted)
    )
    count = counted.name.value_counts().to_dict()
    drawn = sorted(count, key=lambda name: (-count[name], name))[:_MOST_NAMES]
    if len(count) > len(drawn):
        notes.append(
            f"not drawn: {names(sorted(set(count) - set(drawn)))} (fewest cases of {len(count)} "
            "names)"
        )
    counted = counted.sort_values(["moved_bytes", "best_s", "name"])
    found, more = shown(counted[counted.name.isin(drawn)], _MOST_PANELS)
    return found, notes + more


def local_s(found: DataFrame) -> Series:
    """The times of the same work without communication, in seconds."""
    sizes = found[["m", "n", "k"]].astype(float).prod(axis=1)
    return (2 * sizes / (found.roof_gflops * 1e9)).where(found.roof_gflops > 0, found.local_gemm_s)


def charts(records: Records, options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found, notes = scatters(records, options)
    return list(map(_chart, found)), notes


def _chart(panel: Panel) -> Chart:
    (source, shape), inside = panel
    sizes = inside.moved_bytes[inside.moved_bytes > 0].tolist() or [1]
    low, high = min(sizes), max(sizes)
    moves, zero = inside.moved_bytes.any(), not inside.moved_bytes.all()
    span = max(high / low, 16.0)
    at_zero, edge = low / span**0.14, span**0.05
    length, unit = time_unit(inside.best_s.min())
    marks = [
        Marks(
            "points",
            name,
            [nbytes or at_zero for nbytes in here.moved_bytes.tolist()],
            list(here.best_s / length),
            list(here.index),
            look(name),
        )
        for name, here in sorted(inside.groupby("name"), reverse=True)
    ]
    limits = (at_zero if zero and moves else low) / edge, high * edge if moves else at_zero * 2
    times, local = list(inside.best_s / length), inside.local_s.quantile(interpolation="higher")
    if local > 0:
        times.append(local / length)
        marks.append(Marks("rule", "no communication (the roof)", limits, times[-1:] * 2))
    room = max(1.1, (max(times) / min(times)) ** 0.1)
    high_s = (min(times) / room, max(times) * room**0.5)
    return Chart(
        shape_text(shape) + "  (m × n × k)",
        source.text,
        Axis(
            "bytes moved, all ranks together",
            limits,
            10,
            ({at_zero: "0"} if zero else {})
            | {each: bytes_text(each) for each in (_byte_ticks(low, high) if moves else ())},
        ),
        Axis(label(f"best time ({unit})"), high_s, 10, log_ticks(*high_s, number)),
        marks,
        (at_zero * low) ** 0.5 if zero and moves else None,
    )


def make(records: Records, options: Options) -> Made:
    """Draw all panels, two in a row, under one legend."""
    found, notes = charts(records, options)
    every = sorted({m.name for chart in found for m in chart.marks if m.kind == "points"})
    page, axes = panels(
        found,
        [line_handle(name, look(name)._replace(dashes="None")) for name in every],
        ["bytes: summed over all ranks, read in place included", *notes],
    )
    for each, chart in zip(axes, found, strict=True):
        _panel(each, chart)
    return Made(page.picture, notes)


def _panel(axes, chart: Chart) -> None:
    points = sum(len(marks.x) for marks in chart.marks if marks.kind == "points")
    draw_chart(
        axes,
        chart,
        MARKER_PT - (0.9 if points < 400 else 2.0),
        color="#666666",
        linewidth=0.8,
        zorder=1,
    )
    for marks in chart.marks:
        if marks.kind == "rule":
            note(
                axes,
                marks.name,
                (1, marks.y[0]),
                (-2, -2),
                xycoords=axes.get_yaxis_transform(),
                ha="right",
                va="top",
            )
    axes.grid(**GRID)


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
        charts=charts,
    ),
)
