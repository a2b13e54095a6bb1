"""Descriptions of panels, and the functions that draw them.

Each mark has the numbers of its rows, which the report page shows.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import nan
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy import broadcast_to

from .description import named
from .page import (
    GREY,
    GRID,
    HOLLOW,
    MARKER_PT,
    PAGE_STYLE,
    TITLE_IN,
    FigurePage,
    Title,
    bar_edge,
    fit_text,
    line_keywords,
    marker_pt,
    page_in,
    width_in,
)
from .sheet import rows_of
from .style import FONT_PT, SMALL_PT, FillStyle, LineStyle

_LEAST_IN = 1.2  # of a panel, across
_BELOW_IN = 0.46  # a panel: its ticks and the title of its axis


class Axis(NamedTuple):
    """An axis: its title, its ends (the first may be the larger one), the base of its logarithm (0
    if linear) and its ticks, place -> text; without them the renderer chooses some."""

    title: str
    limits: tuple[float, float]
    base: int = 0
    ticks: dict[float, str] | None = None


class Marks(NamedTuple):
    """The marks of one name: a ``line`` with its markers, ``points``, a ``rule`` without cases, or
    ``bars`` that begin at ``base``.

    ``hollow`` marks are noisy; ``low`` and ``high`` are the ends of the interval of each mark, NaN
    where it is not known. Bars and intervals are vertical, or horizontal (``across``). ``texts`` of
    marks are written above them.
    """

    kind: str
    name: str
    x: Sequence[float]
    y: Sequence[float]
    cases: Sequence[int | None] = ()
    style: LineStyle | FillStyle | None = None
    base: Sequence[float] | None = None
    across: bool = False
    hollow: Sequence[bool] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    texts: Sequence[str] = ()


class Spot(NamedTuple):
    """A point of a line: its value, the number of its case, whether it is noisy, the ends of its
    interval, and the text above it."""

    value: float
    case: int | None = None
    hollow: bool = False
    low: float = nan
    high: float = nan
    text: str = ""


class Chart(NamedTuple):
    """A panel: its title, the source of its numbers, its axes and its marks."""

    title: str
    subtitle: str
    x: Axis
    y: Axis
    marks: Sequence[Marks]


#: Described panels, and notes on cases that are not in them.
Charts = tuple[list[Chart], list[str]]


def polyline(name: str, style: LineStyle, at: Sequence[float], spots: dict[float, Spot]) -> Marks:
    """A line through the spots at some places; it breaks at places without a spot, since nothing is
    interpolated."""
    spots_at = [spots.get(place, Spot(nan)) for place in at]
    value, case, hollow, low, high, texts = map(list, zip(*spots_at))
    return Marks("line", name, at, value, case, style, None, False, hollow, low, high, texts)


def draw_chart(axes: Axes, chart: Chart, size: float = MARKER_PT, **rule: Any) -> None:
    """Draw lines, points, rules and bars with their axes; the first mark is on top."""
    for marks in reversed(chart.marks):
        if marks.kind == "bars":
            draw_bars(axes, marks)
            continue
        style = line_keywords(marks.style) if marks.style else {}
        if marks.kind == "points":
            own = marker_pt(marks.style, size)
            style |= {"linestyle": "None", "markersize": own, "markeredgewidth": 0.4}
        if marks.kind == "rule":
            style = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 2} | rule
        style = {"zorder": 3, "clip_on": marks.kind == "rule", **style}
        if marks.kind != "rule":
            _draw_intervals(axes, marks)
        solid = [at for at in range(len(marks.x)) if not any(marks.hollow[at : at + 1])]
        (line,) = axes.plot(marks.x, marks.y, **style, markevery=solid)
        named(line, marks.name, marks.cases)
        if len(solid) < len(marks.x):
            places = zip(marks.x, marks.y, marks.hollow)
            x, y = zip(*((x, y) for x, y, hollow in places if hollow))
            style |= HOLLOW | {"markeredgecolor": marks.style.color, "linestyle": "None"}
            style["markersize"] = marker_pt(marks.style)
            named(axes.plot(x, y, **style)[0], marks.name)
    draw_axis(axes, "x", chart.x)
    draw_axis(axes, "y", chart.y)


def _draw_intervals(axes: Axes, marks: Marks) -> None:
    known = [at for at, (low, high) in enumerate(zip(marks.low, marks.high)) if low < high]
    if known:
        places = [(marks.y if marks.across else marks.x)[at] for at in known]
        ends = ([side[at] for at in known] for side in (marks.low, marks.high))
        draw = axes.hlines if marks.across else axes.vlines
        style = {"color": marks.style.color, "linewidth": 0.9, "zorder": 2.5}
        named(draw(places, *ends, **style), marks.name)


def draw_bars(axes: Axes, marks: Marks) -> None:
    """Draw bars of one name, vertical or horizontal."""
    style = {"color": marks.style.color, "hatch": marks.style.hatch, "linewidth": 0.4, "zorder": 2}
    style["edgecolor"] = bar_edge(marks.style.color)
    bars = (
        axes.barh(marks.y, marks.x, 0.72, marks.base, **style)
        if marks.across
        else axes.bar(marks.x, marks.y, 0.86, bottom=marks.base, **style)
    )
    named(bars, marks.name, marks.cases)
    color = marks.style.color
    edge = color if bar_edge(color) == "white" else bar_edge(color)
    for bar, hollow in zip(bars, marks.hollow):
        if hollow:  # a white bar keeps the edge that shows it
            bar.set(facecolor="white", edgecolor=edge, linewidth=0.8)


def draw_axis(axes: Axes, name: str, axis: Axis) -> None:
    """Give matplotlib's x or y axis the scale, ticks, ends and title of a description."""
    if axis.base:
        getattr(axes, f"set_{name}scale")("log", base=axis.base)
    if axis.ticks is not None:
        getattr(axes, f"set_{name}ticks")(list(axis.ticks), list(axis.ticks.values()))
        getattr(axes, f"{name}axis").set_minor_locator(NullLocator())
    axes.set(**{f"{name}lim": axis.limits, f"{name}label": axis.title})


def label_rows(axes: Axes, names: dict[float, str], wide_in: float) -> None:
    """Write the names of rows at their places left of a panel, shortened to the space."""
    short = [fit_text(name, FONT_PT - 1, wide_in) for name in names.values()]
    axes.set_yticks(list(names), [text for text, _ in short])
    for label, name, (_, size) in zip(axes.get_yticklabels(), names.values(), short):
        named(label, name).set_size(size)
    axes.tick_params(axis="y", length=0)


def label_lines(axes: Axes, chart: Chart, wide_in: float) -> None:
    """Write the names of each line right of the panel, joined with its end; names that would
    overlap are moved up or down."""
    high_pt = 72 * axes.get_position().height * axes.figure.get_size_inches()[1]
    row = 1.2 * FONT_PT / high_pt
    share = lambda *place: axes.transAxes.inverted().transform(axes.transData.transform(place))
    ends = []
    for marks in chart.marks:
        known = [place for place in zip(marks.x, marks.y) if place[1] == place[1]]
        if marks.kind == "line" and known:
            x, y = share(*known[-1])
            ends.append((y, x, marks.name, marks.style.text or marks.style.color))
    ordered = sorted(ends, reverse=True)
    texts = []
    for *_, name, _ in ordered:
        rows = rows_of(name, FONT_PT - 0.5, wide_in - 0.12, ", ")
        shown, sizes = zip(*(fit_text(row, FONT_PT - 0.5, wide_in - 0.12) for row in rows))
        texts.append((shown, min(sizes)))
    halves = [row * len(text) / 2 for text, _ in texts]
    at, above = [], 1 + row / 2
    for (place, *_), half in zip(ordered, halves):
        at.append(min(above - half, place))
        above = at[-1] - half
    below = -row / 2
    for number in reversed(range(len(at))):
        at[number] = max(at[number], below + halves[number])
        below = at[number] + halves[number]
    for place, (y, x, name, color), (text, size) in zip(at, ordered, texts):
        style = {"va": "center", "size": size, "color": color, "annotation_clip": False}
        style |= {"xycoords": "axes fraction", "textcoords": "offset points", "linespacing": 1.1}
        named(axes.annotate("\n".join(text), (1, place), (6, 0), **style), name)
        joint = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        style |= {"textcoords": "axes fraction", "arrowprops": joint}
        axes.annotate("", (x, y), (1, place), **style)


def label_points(axes: Axes, chart: Chart) -> None:
    """Write the texts of lines and points above them, or below where that is nearer, without
    covering another of their marks or texts."""
    if not any(text for marks in chart.marks for text in marks.texts):
        return
    points = 72 / axes.figure.dpi
    at = lambda x, y: points * axes.transData.transform((x, y))
    places = [
        (*at(x, y), (x, y), text, marks.style.text or marks.style.color)
        for marks in chart.marks
        if marks.kind in ("line", "points")
        for x, y, text in zip(marks.x, marks.y, marks.texts or [""] * len(marks.x))
        if y == y
    ]
    taken = [(x - 3, x + 3, y - 3, y + 3) for x, y, *_ in places]
    for x, y, place, text, color in sorted(places, key=lambda place: -place[1]):
        if not text:
            continue
        rows = text.splitlines()
        half = 36 * max(width_in(row, SMALL_PT) for row in rows)
        tall = 1.1 * SMALL_PT * len(rows)
        downs = [down for gap in range(4, 32, 2) for down in (gap, -gap - tall)]
        boxes = [(x - half, x + half, y + down, y + down + tall) for down in downs]
        free = (box for box in boxes if not any(_overlap(box, other) for other in taken))
        taken.append(next(free, boxes[0]))
        style = {"ha": "center", "va": "bottom", "size": SMALL_PT, "color": color}
        style |= {"textcoords": "offset points", "linespacing": 1.1, "annotation_clip": False}
        axes.annotate(text, place, (0, taken[-1][2] - y), **style)


def _overlap(box: tuple, other: tuple) -> bool:
    """Whether two boxes of left, right, bottom and top overlap.

    Examples
    --------
    >>> _overlap((0, 2, 0, 2), (1, 3, 1, 3)), _overlap((0, 2, 0, 2), (2, 3, 0, 2))
    (True, False)
    """
    return box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]


def labelled_panels(
    charts: Sequence[Chart],
    notes: Sequence[str],
    high_in: float,
    margins_in: tuple[float, float],
    finding: Title,
    grid: dict[str, Any] = GRID,
) -> tuple[FigurePage, list[Axes]]:
    """A page of drawn charts, two in a row, without a legend: a line has its name at its end."""
    page, every = panels(charts, (), notes, high_in, 2, margins_in, finding=finding)
    for axes, chart in zip(every, charts, strict=True):
        draw_chart(axes, chart)
        axes.grid(**grid)
        label_lines(axes, chart, margins_in[1])
        label_points(axes, chart)
    return page, every


def panels(
    charts: Sequence[Chart | tuple[str, str]],
    handles: Sequence,
    notes: Sequence[str],
    high_in: float | Sequence[float] = 2.2,
    columns: int = 2,
    margins_in: tuple[float, float] = (0.56, 0.12),
    finding: Title = "",
    left_in: float = 0.0,
) -> tuple[FigurePage, list[Axes]]:
    """A page with titled axes for each chart, some in a row right of ``left_in``: all of one
    height, or each of its own."""
    columns = min(
        columns, len(charts), max(1, int((page_in() - left_in) / (sum(margins_in) + _LEAST_IN)))
    )
    high_in = PAGE_STYLE.get().panel_in or high_in
    wide_in, highs_in = (page_in() - left_in) / columns, broadcast_to(high_in, len(charts))
    rows = [highs_in[at : at + columns] for at in range(0, len(charts), columns)]
    tops_in = list(accumulate((TITLE_IN + max(row) + _BELOW_IN for row in rows), initial=0))
    page, every = FigurePage(tops_in[-1], handles, notes, finding), []
    for index, (chart, high_in) in enumerate(zip(charts, highs_in)):
        row, column = divmod(index, columns)
        every.append(
            page.panel(
                chart[:2], left_in + column * wide_in, tops_in[row], wide_in, high_in, margins_in
            )
        )
    return page, every
