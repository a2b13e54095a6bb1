"""Figures 2 and 3: percent of peak against batch size for the layers of a GPT-like MLP.

One panel a layer and source, one line a partitioning, white-filled markers, and above each point
the replication factor of the case it shows. Which cases those are is decided in
:mod:`plots.select.selection`.
"""

from collections.abc import Sequence
from functools import partial

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import Normal, Stroke

from plots.draw.chart import Axis, Chart, Charts, draw_chart, polyline
from plots.draw.labels import Anchor, Box, place
from plots.draw.page import GREY, MARKER_PT, legend, line_handle, plain, small_print
from plots.draw.style import FACTOR_PT, FONT_PT, RC, SMALL_PT, STYLES
from plots.draw.telling import named
from plots.registry import Figure as Figure_
from plots.registry import Made
from plots.select.cases import Options, SelectionError
from plots.select.panels import select_panels
from plots.select.records import Records
from plots.select.selection import Line, missing

_FONT = FontProperties(family="DejaVu Sans", size=FACTOR_PT)
# two panels fill the 7 inches of a printed page, one fits a column: drawn at the size it is read at
_PANEL_IN = (2.96, 2.75)  # the axes of one panel
_LEFT_IN, _RIGHT_IN, _TOP_IN, _XLABEL_IN = 0.46, 0.08, 0.40, 0.42
_MARGIN_IN = 0.06
_TITLE_CHARACTERS = 50  # of the line under the title, across one panel
_COLUMNS = 2  # panels in a row
_LEGEND_COLUMNS, _LEGEND_ROW_IN = 2, 0.134
_NOTE_IN, _NOTE_CHARACTERS = 0.105, 70


def said(panels: dict[str, list[Line]]) -> list[str]:
    """Say what is not drawn, each text with the panel it belongs to."""
    return [f"{name}: {text}" for name, lines in panels.items() for text in missing(lines)]


def _with_points(panels: dict[str, list[Line]]) -> dict[str, list[Line]]:
    return {
        name: lines for name, lines in panels.items() if any(line.points for line in lines)
    } or panels


def figure(panels: dict[str, list[Line]]) -> Figure:
    """Build the figure from the selected lines of each panel, two panels in a row.

    Raises
    ------
    SelectionError
        If a panel has no line with a point.
    """
    notes = {name: missing(lines) for name, lines in panels.items()}
    for name, lines in panels.items():
        if not any(line.points for line in lines):
            raise SelectionError(
                f"nothing to draw for {name}: {'; '.join(notes[name])}. Run more cases."
            )
    with matplotlib.rc_context(RC):
        names = list(panels)
        rows = [names[at : at + _COLUMNS] for at in range(0, len(names), _COLUMNS)]
        small = {name: _small_print(lines, notes[name]) for name, lines in panels.items()}
        legends_in, belows_in = [], []
        for row in rows:
            lines = max(
                -(-sum(bool(line.points) for line in panels[name]) // _LEGEND_COLUMNS)
                for name in row
            )
            legends_in.append(lines * _LEGEND_ROW_IN + 0.08)
            belows_in.append(
                _XLABEL_IN
                + legends_in[-1]
                + max(len(small[name]) for name in row) * _NOTE_IN
                + _MARGIN_IN
            )
        column_in = _LEFT_IN + _PANEL_IN[0] + _RIGHT_IN
        width = column_in * min(len(names), _COLUMNS)
        height = sum(_TOP_IN + _PANEL_IN[1] + below_in for below_in in belows_in)
        picture = Figure(figsize=(width, height))
        FigureCanvasAgg(picture)  # a renderer, to measure text with
        bottom = height
        for row, legend_in, below_in in zip(rows, legends_in, belows_in, strict=True):
            bottom -= _TOP_IN + _PANEL_IN[1] + below_in
            for index, name in enumerate(row):
                left = index * column_in
                box = (
                    (left + _LEFT_IN) / width,
                    (bottom + below_in) / height,
                    _PANEL_IN[0] / width,
                    _PANEL_IN[1] / height,
                )
                _panel(picture.add_axes(box), panels[name])
                left, top = (left + _MARGIN_IN) / width, bottom + below_in - _XLABEL_IN
                handles = [
                    line_handle(line.legend, STYLES[line.name])
                    for line in panels[name]
                    if line.points
                ]
                legend(picture, handles, (left, top / height), _LEGEND_COLUMNS, 0.35)
                for number, (text, whole) in enumerate(small[name]):
                    y = (top - legend_in - number * _NOTE_IN) / height
                    named(picture.text(left, y, text, size=SMALL_PT, color=GREY, va="top"), whole)
        return picture


def charts(records: Records, options: Options) -> Charts:
    """Describe the panels that have a line: (charts, notes)."""
    panels = select_panels(records, quantity=options.quantity)
    return [_chart(lines) for lines in panels.values() if any(line.points for line in lines)], said(
        panels
    )


def _chart(lines: Sequence[Line]) -> Chart:
    drawn = [each for each in lines if each.points]
    batches = sorted({point.m for each in drawn for point in each.points})
    highest = max(point.value for each in drawn for point in each.points)
    record, step = _own(drawn).points[0], 10 if highest < 140 else 20
    # measured noise and a low roof can pass 100; the room above holds the labels of the highest
    # points
    top = max(100.0, highest + 6.0)
    facts = [f"{record.ranks} ranks", record.machine, record.dtype, record.mode]
    if record.mode == "measured" and record.iters:
        facts.append(f"best of {record.iters}")
    together = f"all {record.ranks} ranks together" if record.ranks else "all ranks together"
    return Chart(
        f"MLP-{record.layer[-1]}:  n = {record.n}, k = {record.k}",
        ", ".join(fact for fact in facts if fact),
        Axis(
            "batch size m (rows of A and C)",
            (batches[0] / 1.3, batches[-1] * 1.3),
            2,
            {batch: str(batch) for batch in batches},
        ),
        Axis(
            f"percent of peak (%), {together}"
            if drawn[0].quantity == "percent_of_peak"
            else f"percent of the no-communication roof, {record.mode} (%)",
            (0, top),
            ticks={at: str(at) for at in range(0, int(top) + 1, step)},
        ),
        [
            polyline(
                each.legend,
                STYLES[each.name],
                batches,
                {point.m: (point.value, point.Index) for point in each.points},
            )
            for each in drawn
        ],
    )


def _panel(axes: Axes, lines: Sequence[Line]) -> None:
    chart, drawn = _chart(lines), [each for each in lines if each.points]
    named(axes, "\n".join(chart[:2]))
    draw_chart(axes, chart)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    plain(axes)
    if chart.y.limits[1] > 100:
        axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    at = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(chart.title, (0, 1), (0, 15), **at, size=FONT_PT + 1, weight="bold")
    # a long machine name stays on its panel
    size = FONT_PT * min(1.0, _TITLE_CHARACTERS / len(chart.told))
    axes.annotate(chart.told, (0, 1), (0, 6), **at, size=size, color=GREY)
    _factors(axes, drawn)


def _own(drawn: Sequence[Line]) -> Line:
    """The line whose records name the machine: a partitioning of ours, or a peer if there is
    none."""
    return next((line for line in drawn if line.stationary), drawn[0])


def _factors(axes: Axes, drawn: Sequence[Line]) -> None:
    """Print the replication factors next to the points, clear of each other."""
    picture = axes.figure
    renderer = picture.canvas.get_renderer()
    to_pt = 72 / picture.dpi
    frame = axes.get_window_extent(renderer)
    bounds = Box(frame.x0 * to_pt, frame.y0 * to_pt, frame.x1 * to_pt, frame.y1 * to_pt + 4)
    labelled, anchors, obstacles, segments = [], [], [], []
    for line in drawn:
        xy = [axes.transData.transform((point.m, point.value)) * to_pt for point in line.points]
        segments += [(*start, *stop) for start, stop in zip(xy, xy[1:], strict=False)]
        for point, (x, y) in zip(line.points, xy, strict=True):
            if point.factor:
                width, height, _ = renderer.get_text_width_height_descent(
                    point.factor, _FONT, False
                )
                anchors.append(Anchor(x, y, width * to_pt + 0.6, height * to_pt + 0.6))
                labelled.append((line, point))
            else:
                obstacles.append((x, y))
    places = place(anchors, bounds, MARKER_PT / 2 + 0.5, obstacles, segments)
    for (line, point), anchor, box in zip(labelled, anchors, places, strict=True):
        offset = ((box.left + box.right) / 2 - anchor.x, (box.bottom + box.top) / 2 - anchor.y)
        axes.annotate(
            point.factor,
            (point.m, point.value),
            offset,
            textcoords="offset points",
            ha="center",
            va="center_baseline",
            size=FACTOR_PT,
            color=STYLES[line.name].text,
            zorder=5,
            annotation_clip=False,
            path_effects=[Stroke(linewidth=1.6, foreground="white"), Normal()],
        )


def _small_print(lines: Sequence[Line], notes: Sequence[str]) -> list[tuple[str, str]]:
    """Say what the numbers mean, where lines of elsewhere come from, and what is not drawn; in
    rows."""
    drawn = [line for line in lines if line.points]
    texts = []
    if any(line.stationary for line in drawn):
        mixed = any("-" in point.factor for line in drawn for point in line.points)
        texts.append(
            "Numbers: replication factor" + (", or A,B factor-C factor." if mixed else ".")
        )
        texts.append("S-C, S-B: Stationary C, Stationary B data movement.")
    own = _own(drawn).points[0]
    elsewhere: dict[str, list[str]] = {}
    for line in drawn:
        record = line.points[0]
        if (record.mode, record.machine) != (own.mode, own.machine):
            elsewhere.setdefault(f"{record.mode}, {record.machine}", []).append(line.name)
    texts += [f"{', '.join(names)}: {origin}." for origin, names in elsewhere.items()]
    return [row for text in [*texts, *notes] for row in small_print(text, _NOTE_CHARACTERS)]


def make(records: Records, options: Options, layers: Sequence[str] | None = None) -> Made:
    """Draw the layers side by side, by default those that the records hold.

    Cases of different machines, numbers of ranks or modes (measured, simulated, published) get
    panels of their own. Published numbers become the lines of the peers where they are of the same
    problem.
    """
    panels = select_panels(records, layers, options.quantity)
    # a layer without any line gets no panel, unless that leaves nothing: then figure() says why
    return Made(figure(_with_points(panels)), said(panels))


FIGURES = (
    Figure_(
        "mlp",
        "Figures 2 and 3 of the paper, both layers: percent of peak or roof against batch size",
        make,
        ("quantity",),
        charts=charts,
    ),
    Figure_(
        "mlp1",
        "the left plot of Figures 2 and 3: MLP-1, n = 4k",
        partial(make, layers=("mlp1",)),
        ("quantity",),
    ),
    Figure_(
        "mlp2",
        "the right plot of Figures 2 and 3: MLP-2, k = 4n",
        partial(make, layers=("mlp2",)),
        ("quantity",),
    ),
)
