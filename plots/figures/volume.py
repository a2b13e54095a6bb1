"""Does time follow the bytes that are moved? One panel a shape, one line a stationary matrix or
algorithm: the median time of all its cases that move about as many bytes, with their quartiles.

The bytes are those that all ranks together moved, by any means (read in place, copied, accumulated,
by collectives, between replicas), gathered by powers of two. Cases that move none stand on a strip
of their own at the left, as zero has no place on a log axis. Up to 60 cases in a panel are
drawn one by one.
"""

from math import frexp, log, nan

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
    names,
    shape_text,
)
from plots.select.cases import cases as cases_text
from plots.select.records import Records
from plots.select.selection import shown, usable

_MOST_PANELS, _MOST_NAMES = 6, 12
_SINGLE = 60  # cases of a panel that are drawn one by one
_DODGE = 0.16  # of a power of two, between lines


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
        notes.append(
            f"not drawn: {cases_text(len(kept) - len(counted))} whose bytes were not recorded"
        )
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
    counted = counted.sort_values(["moved_bytes", "time_s", "name"])
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


def gathered(inside: DataFrame) -> DataFrame:
    """The cases of one name by the power of two of their bytes: medians of ``bytes`` and
    ``time_s``, quartiles ``low_s`` and ``high_s``, their number, and the case nearest the median.

    Noisy cases count only where there are no others.
    """
    power = inside.moved_bytes.map(lambda nbytes: frexp(nbytes)[1] if nbytes else -1)
    found = []
    for _, here in inside.groupby(power):
        sure = here[~here.hollow] if not here.hollow.all() else here
        low_s, middle_s, high_s = sure.time_s.quantile([0.25, 0.5, 0.75])
        nearest = (sure.time_s - middle_s).abs().idxmin()
        row = (sure.moved_bytes.median(), middle_s, low_s, high_s, len(sure), nearest)
        found.append((*row, bool(sure.hollow.all())))
    names = ["bytes", "time_s", "low_s", "high_s", "number", "case", "hollow"]
    return DataFrame(found, columns=names).sort_values("bytes")


def _chart(panel: Panel) -> Chart:
    (source, shape), inside = panel
    sizes = inside.moved_bytes[inside.moved_bytes > 0].tolist() or [1]
    low, high = min(sizes), max(sizes)
    moves, zero = inside.moved_bytes.any(), not inside.moved_bytes.all()
    span = max(high / low, 16.0)
    at_zero, edge = low / span**0.14, span**0.05
    length, unit = time_unit(inside.time_s.min())
    singly = len(inside) <= _SINGLE
    groups = sorted(inside.groupby("name"), reverse=True)
    marks, times = [], []
    for place, (name, here) in enumerate(groups):
        if singly:
            points = here.assign(bytes=here.moved_bytes, case=here.index, low_s=nan, high_s=nan)
            shift = 1.0
        else:
            points, shift = gathered(here), 2 ** (_DODGE * (place - (len(groups) - 1) / 2))
        for still, some in points.groupby(points.bytes == 0):
            x = [at_zero if still else float(nbytes) for nbytes in some.bytes]
            ends = (list((some[side] / length).astype(float)) for side in ("low_s", "high_s"))
            y, cases = list(some.time_s / length), list(some.case)
            kind = "points" if singly or still else "line"
            low_, high_ = ends
            marks.append(
                Marks(
                    kind,
                    name,
                    [place * shift for place in x],
                    y,
                    cases,
                    look(name),
                    hollow=list(some.hollow),
                    low=low_,
                    high=high_,
                )
            )
            times += [time for time in (*y, *low_, *high_) if time == time]
    limits = (at_zero if zero and moves else low) / edge, high * edge if moves else at_zero * 2
    if not singly:
        limits = limits[0] / 1.3, limits[1] * 1.3
    local = inside.local_s.quantile(interpolation="higher")
    if local > 0:
        times.append(local / length)
        marks.append(Marks("rule", "no communication (the roof)", limits, times[-1:] * 2))
    room = max(1.1, (max(times) / min(times)) ** 0.1)
    high_s = (min(times) / room, max(times) * room**0.5)
    y_title = f"time ({unit})" if singly else f"time ({unit}): median, quartiles"
    return Chart(
        shape_text(shape) + "  (m × n × k)",
        source.text + ("" if singly else f"; {cases_text(len(inside))}"),
        Axis(
            "bytes moved, all ranks together",
            limits,
            10,
            ({at_zero: "0"} if zero else {})
            | {each: bytes_text(each) for each in (_byte_ticks(low, high) if moves else ())},
        ),
        Axis(label(y_title), high_s, 10, log_ticks(*high_s, number)),
        marks,
        (at_zero * low) ** 0.5 if zero and moves else None,
    )


def make(records: Records, options: Options) -> Made:
    """Draw all panels, two in a row, under one legend."""
    found, notes = charts(records, options)
    drawn = [marks for chart in found for marks in chart.marks if marks.kind != "rule"]
    told = ["bytes: summed over all ranks, read in place included"]
    if any(marks.kind == "line" for marks in drawn):
        told.append(
            "a marker: the median of the cases whose bytes have the same power of two; upright: "
            "their quartiles"
        )
    lines = {marks.name for marks in drawn if marks.kind == "line"}
    page, axes = panels(
        found,
        [
            line_handle(name, look(name) if name in lines else look(name)._replace(dashes="None"))
            for name in sorted({marks.name for marks in drawn})
        ],
        [*told, *notes],
    )
    for each, chart in zip(axes, found, strict=True):
        draw_chart(each, chart, MARKER_PT - 0.5, color="#666666", linewidth=0.8, zorder=1)
        for marks in chart.marks:
            if marks.kind == "rule":
                place = {"xycoords": each.get_yaxis_transform(), "ha": "right", "va": "top"}
                note(each, marks.name, (1, marks.y[0]), (-2, -2), **place)
        each.grid(**GRID)
    return Made(page.picture, notes)


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
