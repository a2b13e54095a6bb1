"""Figures 2 and 3: percent of peak against batch size for the layers of a GPT-like MLP.

One panel a layer and source, one line a partitioning; the table under it has the replication
factor of the case that each point shows. Which cases those are is decided in
:mod:`plots.select.selection`.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from math import ceil, floor, log

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.draw.chart import (
    Axis,
    Chart,
    Charts,
    Spot,
    draw_chart,
    panels,
    polyline,
    side_by_side,
)
from plots.draw.page import GREY, MARGIN_IN, Page, fitted, line_look, page_in, width_in
from plots.draw.style import FONT_PT, RC, SMALL_PT, STYLES
from plots.draw.telling import named
from plots.registry import Figure as Figure_
from plots.registry import Made
from plots.select.cases import Options, SelectionError
from plots.select.panels import select_panels
from plots.select.records import Records
from plots.select.selection import Line, doubts, missing

# two panels fill the 7 inches of a printed page
_HIGH_IN, _ROOM_IN, _XLABEL_IN = 2.3, (0.5, 0.1), 0.42
_ROW_IN, _NAME_IN, _LEAST_CELL_IN = 0.135, 0.42, 0.2  # of the table; where its names begin
_LEAST_SPAN = 20  # of the axis, in percent: what is less is noise


def said(panels: dict[str, list[Line]]) -> list[str]:
    """Say what is not drawn, each text with the panel it belongs to."""
    return [f"{name}: {text}" for name, lines in panels.items() for text in missing(lines)]


def _with_points(panels: dict[str, list[Line]]) -> dict[str, list[Line]]:
    return {
        name: lines for name, lines in panels.items() if any(line.points for line in lines)
    } or panels


def figure(chosen: dict[str, list[Line]], axis: str = Options.axis) -> Figure:
    """Build the figure from the selected lines of each panel, two panels in a row.

    Raises
    ------
    SelectionError
        If a panel has no line with a point.
    """
    for name, lines in chosen.items():
        if not any(line.points for line in lines):
            raise SelectionError(
                f"nothing to draw for {name}: {'; '.join(missing(lines))}. Run more cases."
            )
    with matplotlib.rc_context(RC):
        drawn = [[line for line in lines if line.points] for lines in chosen.values()]
        described = [_chart(lines, axis) for lines in drawn]
        tables_in = _ROW_IN * (2 + max(map(len, drawn)))
        below_in = _XLABEL_IN + tables_in
        notes = _notes(chosen, drawn)
        if any(marks.shift_pt for chart in described for marks in chart.marks):
            notes.append("side by side at a batch size: points that would cover one another")
        page, every = panels(described, (), notes, _HIGH_IN, 2, _ROOM_IN, below_in)
        for axes, chart, lines in zip(every, described, drawn, strict=True):
            draw_chart(axes, chart)
            axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
            if chart.y.limits[0] < 100 < chart.y.limits[1]:
                axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
            _table(page, axes, lines, page_in() / min(2, len(drawn)))
        return page.picture


def charts(records: Records, options: Options) -> Charts:
    """Describe the panels that have a line: (charts, notes)."""
    found = select_panels(records, quantity=options.quantity)
    drawn = [[line for line in lines if line.points] for lines in found.values()]
    return [_chart(lines, options.axis) for lines in drawn if lines], said(found)


def _chart(drawn: Sequence[Line], axis: str) -> Chart:
    points = list(chain.from_iterable(line.points for line in drawn))
    batches = sorted({point.m for point in points})
    record = _own(drawn).points[0]
    limits, step = ends([point.value for point in points], axis)
    facts = [f"{record.ranks} ranks", record.machine, record.dtype, record.mode]
    if record.mode == "measured" and record.iters:
        facts.append(f"medians of {record.iters}{' or more' if record.budget_s else ''}")
    if all(point.hollow for point in points):
        facts.append("every case noisy: no result")
    together = f"all {record.ranks} ranks together" if record.ranks else "all ranks together"
    roof = drawn[0].quantity == "percent_of_roof"
    y = Axis(
        "percent of the roof (%)" if roof else f"percent of peak (%), {together}",
        limits,
        ticks={at: str(at) for at in range(limits[0], int(limits[1]) + 1, step)},
    )
    lines = [
        polyline(
            each.legend,
            STYLES[each.name],
            batches,
            {point.m: _spot(point, roof) for point in each.points},
        )
        for each in drawn
    ]
    x = Axis(
        "batch size m (rows of A and C)",
        (batches[0] / 1.3, batches[-1] * 1.3),
        2,
        {batch: str(batch) for batch in batches},
    )
    wide_pt = 72 * (page_in() / 2 - sum(_ROOM_IN))
    closest = min((log(b / a) for a, b in pairwise(batches)), default=log(2))
    apart_pt = wide_pt * closest / log(x.limits[1] / x.limits[0])
    return Chart(
        f"MLP-{record.layer[-1]}:  n = {record.n}, k = {record.k}",
        ", ".join(fact for fact in facts if fact),
        x,
        y,
        side_by_side(lines, y, _HIGH_IN, apart_pt),
    )


def _spot(point, roof: bool) -> Spot:
    interval = point.percent_of_roof_low, point.percent_of_roof_high
    if not roof:  # of a prediction, whose interval is of its time
        ends = point.median_high_s, point.median_low_s
        known = point.mode == "simulated" and None not in ends
        interval = [point.value * point.time_s / end for end in ends] if known else (None, None)
    return Spot(point.value, point.Index, point.hollow, *interval if None not in interval else ())


def ends(values: Sequence[float], axis: str = Options.axis) -> tuple[tuple[int, float], int]:
    """The ends of a percent axis, and the distance of its ticks: round numbers around the values,
    from 0 where they come near it, or the paper's 0 to 100.

    Examples
    --------
    >>> ends([75.0, 88.4]), ends([34.0, 85.6]), ends([8.0, 110.0]), ends([75.0, 88.4], "paper")
    (((70, 90), 5), ((30, 90), 10), ((0, 120), 20), ((0, 100.0), 10))
    """
    low, high = min(values), max(values)
    if axis == "paper":  # measured noise and a low roof can pass 100
        return (0, max(100.0, high + 6.0)), 10 if high < 140 else 20
    low = 0.0 if low < 0.25 * high else low
    # the widest step that leaves at least four ticks
    span = max(high - low, _LEAST_SPAN)
    step = next(
        step for step in (1000, 500, 200, 100, 50, 20, 10, 5) if step * 4 <= span or step == 5
    )
    first = max(0, floor((low - 0.04 * span) / step) * step)
    last = ceil((high + 0.04 * span) / step) * step
    return (first, max(last, first + _LEAST_SPAN)), step


def _own(drawn: Sequence[Line]) -> Line:
    """The line whose records name the machine: a partitioning of ours, or a peer if there is
    none."""
    return next((line for line in drawn if line.stationary), drawn[0])


def _table(page: Page, axes: Axes, drawn: Sequence[Line], wide_in: float) -> None:
    """The legend of a panel, with the replication factor of every point."""
    box = axes.get_position()
    left_in = box.x0 * page_in() - _ROOM_IN[0] + MARGIN_IN
    top_in = (1 - box.y0) * page.height_in + _XLABEL_IN
    wide_in -= 2 * MARGIN_IN
    under = page.axes(left_in, top_in, wide_in, _ROW_IN * (1 + len(drawn)))
    under.set(xlim=(0, wide_in), ylim=(len(drawn) + 0.5, -0.5))
    under.axis("off")
    named(under, f"{_title(axes)}, replication factors by m")
    batches = [int(each) for each in axes.get_xticks()]
    names_in = _NAME_IN + max(width_in(line.legend, FONT_PT - 0.5) for line in drawn) + 0.1
    cell_in = (wide_in - names_in) / len(batches)
    at = [names_in + cell_in * (number + 0.5) for number in range(len(batches))]
    look = {"va": "center_baseline", "size": SMALL_PT + 0.5}
    factors = any(point.factor for line in drawn for point in line.points)
    apart = cell_in >= _LEAST_CELL_IN
    if factors:
        head = "replication factor at m =" if apart else "replication factors"
        named(under.text(_NAME_IN, 0, head, color=GREY, **look), "")
        for x, batch in zip(at, batches * apart):
            _cell(under, x, 0, str(batch), cell_in, color=GREY, **look)
    for row, line in enumerate(drawn, 1):
        found = {point.m: point.factor for point in line.points}
        cells = [found.get(batch, "") or "–" for batch in batches]
        style = STYLES[line.name]
        told = f"{line.legend}: {', '.join(cells)}" if factors else line.legend
        drawn_line = under.plot([0.02, 0.17, 0.32], [row] * 3, **line_look(style), markevery=[1])
        named(drawn_line[0], told)
        name = under.text(_NAME_IN, row, line.legend, **look | {"size": FONT_PT - 0.5})
        named(name, "")
        if factors and not apart:
            texts = dict.fromkeys(cell for cell in cells if cell != "–")
            x = (names_in + wide_in) / 2
            _cell(under, x, row, ", ".join(texts), wide_in - names_in, color=style.text, **look)
        for x, cell in zip(at, cells * (factors and apart)):
            _cell(under, x, row, cell, cell_in, color=style.text, **look)


def _title(axes: Axes) -> str:
    return axes.told.partition(":")[0]


def _cell(axes: Axes, x: float, row: int, text: str, wide_in: float, **look) -> None:
    text, size = fitted(text, look.pop("size"), wide_in - 0.03)
    named(axes.text(x, row, text, ha="center", size=size, **look), "")


def _notes(chosen: dict[str, list[Line]], drawn: Sequence[Sequence[Line]]) -> list[str]:
    """Say what the numbers mean, how sure they are, where lines of elsewhere come from, and what
    is not drawn: once what is so of all panels."""
    points = [point for lines in drawn for line in lines for point in line.points]
    mixed = any("-" in point.factor for point in points)
    texts = ["replication factor: of A, B and C" + (", or of A and B - of C" if mixed else "")]
    texts += ["S-C, S-B: Stationary C, Stationary B data movement"]
    texts = texts * any(line.stationary for lines in drawn for line in lines)
    if any(line.quantity == "percent_of_roof" for lines in drawn for line in lines):
        texts.append("roof: the same local work without communication, measured in turn")
    known = {p.mode for p in points if p.percent_of_roof_low is not None}
    if "measured" in known:
        texts.append("upright: 95 % interval of the median paired ratio")
    if "simulated" in known:
        texts.append("upright: 95 % interval of the prediction")
    marks = ("hollow", "oversubscribed", "stable", "once")
    texts += doubts(*([getattr(point, name) for point in points] for name in marks))
    own_of = [[*_elsewhere(lines), *missing(chosen[name])] for name, lines in zip(chosen, drawn)]
    shared = [text for text in own_of[0] if all(text in each for each in own_of)]
    texts += shared
    for name, each in zip(chosen, own_of):
        texts += [f"{name}: {text}" for text in each if text not in shared]
    return texts


def _elsewhere(drawn: Sequence[Line]) -> list[str]:
    own, found = _own(drawn).points[0], {}
    for line in drawn:
        record = line.points[0]
        if (record.mode, record.machine) != (own.mode, own.machine):
            found.setdefault(f"{record.mode}, {record.machine}", []).append(line.name)
    return [f"{', '.join(names)}: {origin}" for origin, names in found.items()]


def make(records: Records, options: Options, layers: Sequence[str] | None = None) -> Made:
    """Draw the layers side by side, by default those that the records hold.

    Cases of different machines, numbers of ranks or modes (measured, simulated, published) get
    panels of their own. Published numbers become the lines of the peers where they are of the same
    machine and problem.
    """
    found = select_panels(records, layers, options.quantity)
    # a layer without any line gets no panel, unless that leaves nothing: then figure() says why
    return Made(figure(_with_points(found), options.axis), said(found))


_TAKES = ("quantity", "axis")
FIGURES = (
    Figure_(
        "mlp",
        "Figures 2 and 3 of the paper, both layers: percent of peak or roof against batch size",
        make,
        _TAKES,
    ),
    Figure_(
        "mlp1",
        "the left plot of Figures 2 and 3: MLP-1, n = 4k",
        partial(make, layers=("mlp1",)),
        _TAKES,
    ),
    Figure_(
        "mlp2",
        "the right plot of Figures 2 and 3: MLP-2, k = 4n",
        partial(make, layers=("mlp2",)),
        _TAKES,
    ),
)
