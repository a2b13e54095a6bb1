"""The figures of a report as data for plotly.js: the panels of the printed figures, each mark with
the number of its row.

Plain dictionaries; plotly itself is not imported. Texts are escaped, as plotly reads a part of HTML
in them.
"""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Any

from pandas import DataFrame

from plots.draw.chart import Axis, Cells, Chart, Marks
from plots.registry import figures
from plots.select.cases import Options, SelectionError

_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "D": "diamond",
    "^": "triangle-up",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "p": "pentagon",
    "h": "hexagon",
    "<": "triangle-left",
    ">": "triangle-right",
    "d": "diamond-tall",
    "*": "star",
}
_HATCHES = {"": "", "////": "/", "xxxx": "x", "....": ".", "----": "-", "oo": "+"}

_RULE = {"color": "#666666", "width": 1, "dash": "dash"}

Spec = dict[str, Any]


def specs(records: DataFrame) -> tuple[list[Spec], list[str]]:
    """Build every figure the records allow: (figures, why the others are not there).

    A figure is ``{"name", "title", "notes", "data", "layout"}``; ``customdata`` of its traces are
    numbers of rows of ``records``.
    """
    made, lacking = [], []
    for figure in figures().values():
        if figure.charts:
            try:
                charts, notes = figure.charts(records, Options())
                made += [{"name": figure.name, **_spec(chart, notes)} for chart in charts]
            except SelectionError as error:
                lacking.append(f"{figure.name}: {error}")
    return made, lacking


def _spec(chart: Chart, notes: Sequence[str]) -> Spec:
    traces = [
        _cells(marks) if isinstance(marks, Cells) else _trace(marks)
        for marks in reversed(chart.marks)  # the first lies on top
    ]
    lying = bool(chart.marks) and chart.y.limits[0] > chart.y.limits[1]
    layout = {
        "xaxis": _axis(chart.x),
        "yaxis": _axis(chart.y),
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "hovermode": "closest",
        "barmode": "overlay",  # the bars know where they begin
        "legend": {"traceorder": "reversed"},
        "height": 160 + 22 * len(chart.y.ticks or ()) if lying else 420,
        "margin": {"l": 60, "r": 20, "t": 16, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13},
    }
    if chart.apart is not None:
        line = {"color": "#BBBBBB", "width": 1}
        across = {"yref": "paper", "y0": 0, "y1": 1, "line": line}
        layout["shapes"] = [{"type": "line", "x0": chart.apart, "x1": chart.apart, **across}]
    title = f"{chart.title}: {chart.told}"
    return {"title": title, "notes": [*chart.notes, *notes], "data": traces, "layout": layout}


def _axis(axis: Axis) -> dict:
    ticks = axis.ticks and {
        "tickvals": list(axis.ticks),
        "ticktext": [_text(text).replace("\n", " ") for text in axis.ticks.values()],
    }
    return {
        "title": {"text": _text(axis.title)},
        "type": "log" if axis.base else "linear",
        "range": [log10(end) if axis.base else end for end in axis.limits],
        "gridcolor": "#E5E5E5",
        "zeroline": False,
        "linecolor": "#444444",
        "automargin": True,
        "ticks": "outside",
        **(ticks or {}),
    }


def _text(text: str) -> str:
    """A text as plotly takes it: it reads tags and entities, and mathematics between dollars."""
    return escape(text, quote=False).replace("$", "&#36;")


def _trace(marks: Marks) -> dict:
    trace = {
        "name": _text(marks.name),
        "x": list(marks.x),
        "y": list(marks.y),
        "customdata": list(marks.cases),
        "type": "scatter",
        "hoverinfo": "none",
    }
    if marks.kind == "rule":
        return trace | {"mode": "lines", "hoverinfo": "skip", "line": _RULE}
    look = marks.look
    if marks.kind == "bars":
        return trace | {
            "type": "bar",
            "orientation": "h" if marks.across else "v",
            "base": marks.base or 0,
            "width": 0.72 if marks.across else 0.86,
            "marker": {
                "color": look.color,
                "pattern": {"shape": _HATCHES.get(look.hatch, "\\")},
                "line": {"color": "#777777", "width": 0.5},
            },
        }
    dash = "solid" if look.dashes == "-" else "dash"
    return trace | {
        "mode": "markers" if marks.kind == "points" else "lines+markers",
        "marker": {
            "symbol": _SYMBOLS[look.marker] + "-open",
            "color": look.color,
            "size": 7 if marks.kind == "points" else 9,
            "line": {"width": 1.5},
        },
        "line": {"color": look.color, "width": 1.8, "dash": dash},
    }


def _cells(cells: Cells) -> dict:
    return {
        "type": "heatmap",
        "hoverinfo": "none",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": cells.top,
        "z": cells.values,
        "xgap": 1,
        "ygap": 1,
        "customdata": cells.cases,
        "colorbar": {"title": {"text": "%"}},
    }
