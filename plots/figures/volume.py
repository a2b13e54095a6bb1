"""Time against moved bytes: a panel a shape, a dot a case, in the colour of the matrix that does
not move, or of the algorithm.

The bytes are those that all ranks together moved, by any means (read in place, copied, accumulated,
by collectives, between replicas).
"""

from pandas import DataFrame, Series

from drbench.plots.draw.chart import Axis, Chart, Marks, draw_chart, panels
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.numbers import log_ticks
from drbench.plots.draw.page import GRID, line_handle, note
from drbench.plots.draw.style import STATIONARY, LineStyle, style_of
from drbench.plots.select.cases import UNIVERSAL, Options, SelectionError, cases, names
from drbench.plots.select.records import Records, rows
from drbench.plots.select.selection import doubts, select_usable, shown
from drbench.texts import bytes_text, shape_text, time_unit

_MOST_PANELS, _MOST_NAMES = 6, 12


def line_style_of(name: str) -> LineStyle:
    """The style of a name: that of the matrix that does not move, or of the algorithm."""
    matrix = name.removeprefix(f"{UNIVERSAL} S-")
    return (STATIONARY.get(matrix) or style_of(name))._replace(dashes="None")


def local_s(table: DataFrame) -> Series:
    """The times of the same work without communication, in seconds."""
    sizes = table[["m", "n", "k"]].astype(float).prod(axis=1)
    return (2 * sizes / (table.gemm_only_gflops * 1e9)).where(
        table.gemm_only_gflops > 0, table.local_gemm_s
    )


def make(records: Records, options: Options) -> Made:
    """Draw the panels, two in a row, under one legend."""
    every, notes = select_usable(records, options)
    moving = every[(every.moved_bytes > 0).fillna(False)]
    if moving.empty:
        raise SelectionError(
            f"none of {len(every)} cases moves bytes that were recorded. Draw others."
        )
    if len(moving) < len(every):
        notes.append(f"not drawn: {cases(len(every) - len(moving))} that move no bytes")
    ours = (moving.algorithm == UNIVERSAL) & moving.stationary.notna()
    moving = moving.assign(name=moving.variant.where(ours, moving.series), local_s=local_s(moving))
    drawn = list(moving.name.value_counts().sort_index().sort_values(kind="stable").index[::-1])
    if lost := drawn[_MOST_NAMES:]:
        notes.append(f"not drawn: {names(sorted(lost))} (fewest cases)")
    drawn = sorted(drawn[:_MOST_NAMES])
    chosen, more = shown(moving[moving.name.isin(drawn)], _MOST_PANELS)
    notes += doubts(case for _, inside in chosen for case in rows(inside))
    charts = [_chart(*key, inside) for key, inside in chosen]
    handles = [line_handle(name, line_style_of(name)) for name in drawn]
    text = ["a dot: a case; bytes: summed over all ranks, read in place included"]
    text.append("dashed, GEMM-only speed: the same work without communication")
    page, axes = panels(charts, handles, [*text, *notes, *more])
    for panel, chart in zip(axes, charts, strict=True):
        draw_chart(panel, chart, 2.6)
        panel.grid(**GRID)
        for marks in chart.marks[-1:]:
            if marks.kind == "rule":
                place = {"xycoords": panel.get_yaxis_transform(), "ha": "right", "va": "bottom"}
                note(panel, "GEMM-only", (1, marks.y[0]), (-2, 1), **place)
    return Made(page.picture, notes + more)


def _chart(source, shape, inside: DataFrame) -> Chart:
    length, unit = time_unit(inside.time_s.min())
    marks = [
        Marks(
            "points", name, list(map(float, dots.moved_bytes)), list(dots.time_s / length),
            list(dots.index), line_style_of(name), hollow=list(dots.hollow),
        )
        for name, dots in inside.groupby("name")
    ]  # fmt: skip
    low, high = float(inside.moved_bytes.min()) / 1.5, float(inside.moved_bytes.max()) * 1.5
    times, gemm_only = [*inside.time_s / length], inside.local_s.median() / length
    if gemm_only > 0:
        times.append(gemm_only)
        marks.append(Marks("rule", "GEMM-only speed", (low, high), [gemm_only, gemm_only]))
    limits = min(times) / 1.15, max(times) * 1.15
    return Chart(
        shape_text(*shape),
        f"{source.text}; {cases(len(inside))}",
        Axis("bytes moved, all ranks together", (low, high), 2, _byte_ticks(low, high)),
        Axis(f"time ({unit})", limits, 10, log_ticks(*limits)),
        marks,
    )


def _byte_ticks(low: float, high: float) -> dict[float, str]:
    """Powers of two between two numbers of bytes, at most five."""
    powers = [2.0**power for power in range(64) if low <= 2.0**power <= high]
    return {place: bytes_text(place) for place in powers[:: max(1, -(-len(powers) // 5))]}


FIGURES = (Figure.listed("volume", make, ("moving_only", "shape", "height")),)
