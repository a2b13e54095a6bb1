"""What was chosen: how long each contender takes, a bar with its interval, and of a chain the
layouts of the chosen one, an operation a line: what it takes and makes, each matrix cut as it is
laid out, how, and what moves."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import nan, sqrt
from operator import attrgetter
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from plots.draw.chart import BELOW_IN, Axis, Chart, Charts, Marks, draw_chart, label_rows
from plots.draw.page import (
    GREY,
    GRID,
    TITLE_IN,
    Page,
    bytes_text,
    fitted,
    number,
    page_in,
    time_unit,
)
from plots.draw.style import LineStyle
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError
from plots.select.typed_rows import Rows

#: What a row says: how long something takes, or how it is laid out: one operation of the chosen, or
#: all of a contender.
KINDS = ("time", "step", "layout")


class ChoiceRow(NamedTuple):
    """A contender, or an operation of the chosen one, which is the first.

    Attributes
    ----------
    title : str
        What was asked: rows of one title are one choice.
    ranks : int
    kind : str
        Of :data:`KINDS`.
    name : str
        Who, or the operation.
    time_s, low_s, high_s : float or None
        Of a contender: predicted, and the ends of its interval.
    measured_s : float or None
        The median of a run, if there was one.
    layouts : str
        ``NAME LAYOUT`` of matrices, with semicolons between; of an operation that which it makes
        last.
    how : str
    moved_bytes : int or None
        From rank to rank, all ranks together.
    """

    title: str
    ranks: int
    kind: str
    name: str
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    measured_s: float | None = None
    layouts: str = ""
    how: str = ""
    moved_bytes: int | None = None


#: The files of such rows.
ROWS = Rows(ChoiceRow, "choices", "plots.figures.choice")

_BAR_IN, _LINE_IN, _ROOM_IN = 0.26, 0.36, (2.1, 0.6)
#: Most bars and lines of one choice.
_MOST_BARS, _MOST_LINES = 16, 24
_CHOSEN, _OTHERS = LineStyle("#0072B2", "o", "-"), LineStyle("#777777", "o", "-")
_TIMES = [ChoiceRow._fields.index(name) for name in ("time_s", "low_s", "high_s", "measured_s")]
_RUN = LineStyle("#D55E00", "D", "-")
#: Shades of neighbouring ranks' parts; of a copy, which every rank has, and of a pending sum.
_SHADES, _WHOLE, _PENDING = ("#0072B2", "#9CCBEA"), "#009E73", "#E69F00"
#: Where a line of the second panel has its parts, in inches: the operation, what it takes and
#: makes, each a glyph and a text, what moves, and how.
_AT_IN = (0.0, 1.58, 2.55, 3.74, 4.77, 5.66)
_GLYPH_IN, _MOST_PARTS = 0.24, 8


def charts(rows: Iterable[ChoiceRow], options: Options) -> Charts:
    """Describe the bars: (charts, notes)."""
    made, notes = [], []
    for title, inside in groupby(sorted(rows, key=attrgetter("title")), attrgetter("title")):
        bars = [row for row in inside if row.kind == "time" and row.time_s]
        if not bars:
            continue
        notes += _left_out(bars, _MOST_BARS, "contenders", title)
        made.append(_bars(title, bars[:_MOST_BARS]))
    if not made:
        raise SelectionError(
            "there is nothing to draw. Choose something with drbench chain --machine FILE."
        )
    return made, notes


def _left_out(rows: Sequence, most: int, what: str, title: str) -> list[str]:
    return [f"{title}: {len(rows) - most} more {what}"] if len(rows) > most else []


def _bars(title: str, rows: list[ChoiceRow]) -> Chart:
    told = lambda value: nan if value is None else value / unit
    ends = [row[at] for row in rows for at in _TIMES if row[at] is not None]
    unit, name = time_unit(max(ends))
    low, high = min(ends) / unit, max(ends) / unit
    room = 0.06 * (high - low) or 0.06 * high
    low = 0.0 if low < 0.4 * high else low - room
    marks = []
    for place, row in enumerate(rows):
        look = _OTHERS if place else _CHOSEN
        if row.measured_s:
            marks.append(Marks("points", "measured", [told(row.measured_s)], [place], look=_RUN))
        ends_of = {"low": [told(row.low_s)], "high": [told(row.high_s)]}
        called = "others" if place else "chosen"
        marks.append(
            Marks("points", called, [told(row.time_s)], [place], (), look, across=True, **ends_of)
        )
    known = any(row.low_s is not None for row in rows)
    return Chart(
        title,
        "predicted time" + "; line: where 95 of 100 runs are expected" * known,
        Axis(f"time ({name})", (low, high + room)),
        Axis("", (len(rows) - 0.4, -0.6), 0, dict(enumerate(row.name for row in rows))),
        marks,
    )


def finding(rows: Sequence[ChoiceRow]) -> str:
    """Whether the first contender is told apart from the others of its choice."""
    first, *others = [row for row in rows if row.kind == "time" and row.time_s]
    if not others:
        return ""
    first_high = first.high_s or first.time_s
    near = sum((row.low_s or row.time_s) <= first_high for row in others)
    if near:
        return f"The model does not tell {first.name} from {near} of {len(others)} others"
    times = number(others[0].time_s / first.time_s)
    return f"{first.name} is the fastest: the next takes {times} × its time"


def make(rows: Iterable[ChoiceRow], options: Options) -> Made:
    """Draw the bars of each choice, and under them the layouts of the chosen one."""
    rows = list(rows)
    found, notes = charts(rows, options)
    steps = {chart.title: [] for chart in found}
    for row in rows:
        if row.kind != "time" and row.title in steps:
            steps[row.title].append(row)
    highs = []
    for chart in found:
        lines = min(len(steps[chart.title]), _MOST_LINES)
        bars_in = _BAR_IN * len(chart.y.ticks) + 0.1
        highs.append((bars_in, _LINE_IN * lines + (TITLE_IN if lines else 0)))
        notes += _left_out(steps[chart.title], _MOST_LINES, "operations", chart.title)
    body_in = sum(bars_in + lines_in + TITLE_IN + BELOW_IN for bars_in, lines_in in highs)
    told = finding([row for row in rows if row.title == found[0].title])
    page, top_in = Page(body_in, notes=notes, finding=told), 0.0
    for chart, (bars_in, lines_in) in zip(found, highs):
        axes = page.panel(chart[:2], 0, top_in, page_in(), bars_in, _ROOM_IN)
        draw_chart(axes, chart, 3.5)
        axes.grid(**GRID)
        _say_times(axes, chart)
        top_in += TITLE_IN + bars_in + BELOW_IN
        lines = steps[chart.title][:_MOST_LINES]
        if lines:
            whose = "layouts of the chosen" if lines[0].kind == "step" else "their layouts"
            about = whose, "blue: each rank its part; green: all have a copy"
            high_in = lines_in - TITLE_IN
            axes = page.panel(about, 0, top_in, page_in(), high_in, (0.08, 0.08))
            _draw_steps(axes, lines, page_in() - 0.16, high_in)
            top_in += lines_in
    return Made(page.picture, notes)


def _say_times(axes: Axes, chart: Chart) -> None:
    """Who each dot is, and its time, right of the panel."""
    label_rows(axes, list(chart.y.ticks.values()), _ROOM_IN[0] - 0.2)
    times = [(marks.x[0], marks.y[0]) for marks in chart.marks if marks.name != "measured"]
    for x, y in times:
        axes.annotate(
            number(x), (1, y), (4, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", size=7,
        )  # fmt: skip


def _draw_steps(axes: Axes, rows: list[ChoiceRow], wide_in: float, high_in: float) -> None:
    axes.set(xlim=(0, wide_in), ylim=(high_in, 0))
    axes.axis("off")
    for at, row in enumerate(rows):
        middle = (at + 0.5) * _LINE_IN
        cells = [(_AT_IN[0], row.name, _AT_IN[1])]
        *taken, made = [each.split(" ", 1) for each in row.layouts.split("; ")]
        for place, each in zip(_AT_IN[1:3], taken):
            cells.append(_matrix(axes, each, row.ranks, place, middle))
        axes.annotate(
            "", (_AT_IN[3] - 0.04, middle), (_AT_IN[3] - 0.2, middle),
            arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 0.8},
        )  # fmt: skip
        cells.append(_matrix(axes, made, row.ranks, _AT_IN[3], middle))
        moves = f"{bytes_text(row.moved_bytes)} move" if row.moved_bytes else "nothing moves"
        cells += [(_AT_IN[4], moves, _AT_IN[5]), (_AT_IN[5], row.how, wide_in)]
        for number_, (x, text, until) in enumerate(cells):
            look = {"weight": "bold"} if not number_ else {}
            short, size = fitted(text, 7, until - x - 0.06, not number_)
            named(axes.text(x, middle, short, size=size, va="center", **look), text)


def _matrix(axes: Axes, matrix: list[str], ranks: int, x: float, y: float):
    """Draw a matrix as it is laid out; where its text goes: (place, text, until)."""
    name, layout = matrix
    boxes, colors = parts(layout, ranks)
    top = y - _GLYPH_IN / 2
    corners = [
        [
            (x + _GLYPH_IN * across, top + _GLYPH_IN * down)
            for across, down in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
        ]
        for x0, y0, x1, y1 in boxes
    ]
    glyph = PolyCollection(corners, facecolors=colors, edgecolors="white", linewidths=0.3)
    axes.add_collection(named(glyph, f"{name} {layout}"), autolim=False)
    return x + _GLYPH_IN + 0.05, f"{name} {layout}", x + 0.96


def parts(layout: str, ranks: int) -> tuple[list[tuple[float, float, float, float]], list[str]]:
    """How a matrix is cut, drawn in a square: corners of its parts from the upper left one, and
    their colours; of many ranks the first few.

    Examples
    --------
    >>> parts("row", 2)
    ([(0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)], ['#0072B2', '#9CCBEA'])
    >>> parts("R", 8), parts("column/c4", 8) == parts("column", 2)
    (([(0.0, 0.0, 1.0, 1.0)], ['#009E73']), True)
    >>> [box[:2] for box in parts("block:1x2", 2)[0]]
    [(0.0, 0.0), (0.5, 0.0)]
    """
    text, _, replicas = layout.partition("/c")
    count = min(ranks // int(replicas or 1), _MOST_PARTS)
    kind, grid = text.partition(":")[0], re.search(r":(\d+)x(\d+)", text)
    if kind in ("R", "P") or count == 1:
        return [(0.0, 0.0, 1.0, 1.0)], [_PENDING if kind == "P" else _WHOLE]
    down = {"row": count, "S(0)": count, "column": 1, "S(1)": 1}.get(kind)
    if down is None and grid and int(grid[1]) * int(grid[2]) == count:
        down = int(grid[1])
    if down is None:
        down = max(
            each for each in range(1, count + 1) if count % each == 0 and each <= sqrt(count)
        )
    across = count // down
    cells = [(i, j) for i in range(down) for j in range(across)]
    boxes = [(j / across, i / down, (j + 1) / across, (i + 1) / down) for i, j in cells]
    return boxes, [_SHADES[(i + j) % 2] for i, j in cells]


FIGURES = (
    Figure(
        "choice",
        "time of what was chosen and of what it was chosen from, and the layouts of a chain",
        make,
        read=ROWS.read,
    ),
)
