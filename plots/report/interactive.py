"""The figures of a report as data for plotly.js: the panels of the printed figures, each mark with
the number of its row.

Plain dictionaries; plotly itself is not imported. Texts are escaped, as plotly reads a part of HTML
in them.
"""

from html import escape
from math import log10
from typing import Any

from pandas import DataFrame

from plots.draw.chart import Axis, Cells, Chart, Marks
from plots.draw.style import Fill
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

    A figure is ``{"name", "title", "notes", "panels"}``, a panel ``{"number", "title", "told",
    "notes", "spec"}``: its number on the page, and plotly's ``data`` and ``layout``. ``customdata``
    of traces are numbers of rows of ``records``.
    """
    made, lacking, count = [], [], 0
    for figure in figures().values():
        if not figure.charts:
            continue
        try:
            charts, notes = figure.charts(records, Options())
        except SelectionError as error:
            lacking.append(f"{figure.name}: {error}")
            continue
        panels = [
            {
                "number": count + place,
                "title": chart.title,
                "told": chart.told,
                "notes": chart.notes,
                "spec": _spec(chart),
            }
            for place, chart in enumerate(charts)
        ]
        count += len(panels)
        title = figure.summary[:1].upper() + figure.summary[1:]
        made.append({"name": figure.name, "title": title, "notes": notes, "panels": panels})
    return made, lacking


def _spec(chart: Chart) -> Spec:
    traces = []
    for marks in reversed(chart.marks):  # the first lies on top
        traces += _cells(marks) if isinstance(marks, Cells) else [_trace(marks)]
    lying = bool(chart.marks) and chart.y.limits[0] > chart.y.limits[1]
    names = {trace.get("name") for trace in traces if trace.get("name")}
    _once(traces)
    layout = {
        "xaxis": _axis(chart.x),
        "yaxis": _axis(chart.y),
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "hovermode": "closest",
        "barmode": "overlay",  # the bars know where they begin
        # under the axes, where a phone has room for it
        "legend": {
            "traceorder": "reversed",
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
        },
        "height": (180 + 22 * len(chart.y.ticks or ()) if lying else 400) + 12 * len(names),
        "margin": {"l": 60, "r": 16, "t": 12, "b": 70 + 12 * len(names)},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1a1a1a"},
        "shapes": [],
    }
    if chart.apart is not None:
        line = {"color": "#BBBBBB", "width": 1}
        across = {"yref": "paper", "y0": 0, "y1": 1, "line": line}
        layout["shapes"].append({"type": "line", "x0": chart.apart, "x1": chart.apart, **across})
    for marks in chart.marks:
        if isinstance(marks, Cells) and marks.frame:
            y, x = marks.frame
            ends = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
            line = {"color": "#D55E00", "width": 3}
            layout["shapes"].append({"type": "rect", "line": line, **ends})
    return {"data": traces, "layout": layout}


def _once(traces: list[dict]) -> None:
    """Name what several traces share once in the legend, and let it hide all of them."""
    known = set()
    for trace in reversed(traces):
        if "name" in trace:
            trace |= {"legendgroup": trace["name"], "showlegend": trace["name"] not in known}
            known.add(trace["name"])


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
        filled = [not hollow for hollow in marks.hollow] or [True] * len(marks.x)
        return trace | {
            "type": "bar",
            "orientation": "h" if marks.across else "v",
            "base": marks.base or 0,
            "width": 0.72 if marks.across else 0.86,
            "marker": {
                "color": look.color
                if all(filled)
                else [look.color if each else "white" for each in filled],
                "pattern": {"shape": _HATCHES.get(look.hatch, "\\"), "fgcolor": _pattern(look)},
                "line": {
                    "color": ["#777777" if each else look.color for each in filled],
                    "width": 0.6,
                },
            },
        }
    dash = "solid" if look.dashes == "-" else "dash"
    side, values = ("x", trace["x"]) if marks.across else ("y", trace["y"])
    if any(low < high for low, high in zip(marks.low, marks.high)):
        trace[f"error_{side}"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - value for high, value in zip(marks.high, values)],
            "arrayminus": [value - low for low, value in zip(marks.low, values)],
            "thickness": 1.2,
            "width": 0,
        }
    hollow = marks.hollow or [False] * len(marks.x)
    return trace | {
        "mode": "markers" if marks.kind == "points" else "lines+markers",
        "marker": {
            "symbol": [_SYMBOLS[look.marker] + "-open" * bool(each) for each in hollow],
            "color": look.color,
            "size": 7 if marks.kind == "points" else 9,
            "line": {"width": 1.5},
        },
        "line": {"color": look.color, "width": 1.8, "dash": dash},
    }


def _pattern(look: Fill) -> str:
    return "#777777" if look.color == "#FFFFFF" else "white"


def _cells(cells: Cells) -> list[dict]:
    heat = {
        "type": "heatmap",
        "hoverinfo": "none",
        "colorscale": "Cividis",
        "zmin": 0,
        "zmax": 100,
        "z": cells.values,
        "xgap": 1,
        "ygap": 1,
        "customdata": cells.cases,
        "colorbar": {"title": {"text": _text(cells.unit), "side": "right"}, "thickness": 12},
    }
    if not cells.hollow:
        return [heat]
    y, x = map(list, zip(*sorted(cells.hollow)))
    hole = {"symbol": "square", "color": "white", "size": 6}
    noisy = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": hole, "name": "noisy"}
    return [heat, noisy | {"hoverinfo": "skip", "customdata": []}]
