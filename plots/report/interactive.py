"""The figures of a report as data for plotly.js: the same selections as the printed ones, each mark
with the number of its record.

Plain dictionaries; plotly itself is not imported. Texts are escaped, as plotly reads a part of HTML
in them.
"""

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from drbench.measure.record import Record
from plots.draw.style import OTHER, PHASES, STYLES, UNKNOWN, LineStyle, style_of
from plots.figures import algorithms, best, peers, scaling, volume
from plots.select.cases import AXIS, Options, shape_text
from plots.select.panels import select_panels
from plots.select.selection import SelectionError, missing

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

Spec = dict[str, Any]


def specs(records: Sequence[Record]) -> tuple[list[Spec], list[str]]:
    """Build every figure the records allow: (figures, why the others are not there).

    A figure is ``{"name", "title", "notes", "data", "layout"}``; ``customdata`` of its traces are
    indices into ``records``.
    """
    number = {id(record): index for index, record in enumerate(records)}
    made, lacking = [], []
    for name, build in _BUILDERS.items():
        try:
            made += [{"name": name, **spec} for spec in build(records, number)]
        except SelectionError as error:
            lacking.append(f"{name}: {error}")
    return made, lacking


def _spec(title: str, notes: Sequence[str], data: list[dict], x: dict, y: dict, **layout) -> Spec:
    grid = {
        "gridcolor": "#E5E5E5",
        "zeroline": False,
        "linecolor": "#444444",
        "automargin": True,
        "ticks": "outside",
    }
    layout = {
        "xaxis": grid | x,
        "yaxis": grid | y,
        "plot_bgcolor": "white",
        "paper_bgcolor": "white",
        "hovermode": "closest",
        "height": 420,
        "margin": {"l": 60, "r": 20, "t": 16, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        **layout,
    }
    for axis in ("xaxis", "yaxis"):
        layout[axis]["title"] = {"text": _text(layout[axis].get("title", ""))}
    return {"title": title, "notes": list(notes), "data": data, "layout": layout}


def _text(text: str) -> str:
    """A text as plotly takes it: it reads tags and entities, and mathematics between dollars."""
    return escape(text, quote=False).replace("$", "&#36;")


def _marker(style: LineStyle, size: int = 9) -> dict:
    return {
        "symbol": _SYMBOLS[style.marker] + "-open",
        "color": style.color,
        "size": size,
        "line": {"width": 1.5},
    }


def _trace(name: str, x: Sequence, y: Sequence, numbers: Sequence, **more) -> dict:
    return {
        "name": _text(name),
        "x": list(x),
        "y": list(y),
        "customdata": list(numbers),
        "hoverinfo": "none",
        **more,
    }


def _line(name: str, style: LineStyle, x, y, numbers) -> dict:
    dash = "solid" if style.dashes == "-" else "dash"
    return _trace(
        name,
        x,
        y,
        numbers,
        type="scatter",
        mode="lines+markers",
        marker=_marker(style),
        line={"color": style.color, "width": 1.8, "dash": dash},
    )


def _mlp(records, number) -> list[Spec]:
    found = []
    for name, lines in select_panels(records).items():
        drawn = [line for line in lines if line.points]
        if not drawn:
            continue
        batches = sorted({point.batch for line in drawn for point in line.points})
        data = []
        for line in drawn:
            at = {point.batch: point for point in line.points}
            points = [at.get(batch) for batch in batches]
            data.append(
                _line(
                    line.legend,
                    STYLES[line.name],
                    batches,
                    [point and point.value for point in points],
                    [point and number[id(point.record)] for point in points],
                )
            )
        x = {
            "title": "batch size m",
            "type": "log",
            "tickvals": batches,
            "ticktext": list(map(str, batches)),
        }
        found.append(
            _spec(
                name,
                missing(lines),
                data,
                x,
                {"title": AXIS[drawn[0].quantity], "rangemode": "tozero"},
            )
        )
    return found


def _volume(records, number) -> list[Spec]:
    panels, notes = volume.scatters(records, Options())
    found = []
    for panel in panels:
        data = []
        for name, points in groupby(
            sorted(panel.points, key=lambda point: point[2]), key=lambda point: point[2]
        ):
            points = list(points)
            data.append(
                _trace(
                    name,
                    [point[0] for point in points],
                    [point[1] * 1e3 for point in points],
                    [number[id(point[3])] for point in points],
                    type="scatter",
                    mode="markers",
                    marker=_marker(volume.look(name), 7),
                )
            )
        shapes = []
        if panel.local_s:
            line = {"color": "#666666", "width": 1, "dash": "dash"}
            shapes = [
                {
                    "type": "line",
                    "xref": "paper",
                    "x0": 0,
                    "x1": 1,
                    "y0": panel.local_s * 1e3,
                    "y1": panel.local_s * 1e3,
                    "line": line,
                }
            ]
        told = ["dashed: the same work without communication"] * bool(shapes) + notes
        found.append(
            _spec(
                f"{shape_text(panel.shape)}: {panel.source.text}",
                told,
                data,
                {"title": "bytes moved, all ranks together", "exponentformat": "SI"},
                {"title": "best time (ms)", "type": "log"},
                shapes=shapes,
            )
        )
    return found


def _best(records, number) -> list[Spec]:
    chosen, field, notes = best.maps(records, Options())
    found = []
    for each in chosen:
        rows = [best.row_text(row) for row in each.rows]
        columns = [
            f"S-{stationary} {'-'.join(map(str, factors))}" for stationary, factors in each.columns
        ]
        cells = [[each.cells.get((row, column)) for column in each.columns] for row in each.rows]
        trace = {
            "type": "heatmap",
            "x": columns,
            "y": list(range(len(rows))),
            "hoverinfo": "none",
            "colorscale": "Cividis",
            "zmin": 0,
            "zmax": 100,
            "z": [[record and getattr(record, field) for record in row] for row in cells],
            "xgap": 1,
            "ygap": 1,
            "customdata": [[record and number[id(record)] for record in row] for row in cells],
            "colorbar": {"title": {"text": "%"}},
        }
        # rows by number: two elided texts may be the same
        y = {
            "title": "partitions A | B | C",
            "autorange": "reversed",
            "tickvals": list(range(len(rows))),
            "ticktext": list(map(_text, rows)),
        }
        what = "C's replication factor" if each.folded else "replication factors A-B-C"
        found.append(
            _spec(
                f"{shape_text(each.shape)}: {each.source.text}",
                [f"best: {best.best_text(each, field)}", *notes],
                [trace],
                {"title": f"stationary matrix and {what}", "type": "category"},
                y,
                height=160 + 18 * len(rows),
            )
        )
    return found


def _algorithms(records, number) -> list[Spec]:
    panels, notes = algorithms.panels(records, Options())
    found = []
    for panel in panels:
        texts = [algorithms.bar_text(bar) for bar in panel.bars]
        data = []
        for name, color, hatch in (*PHASES.values(), OTHER, UNKNOWN):
            with_part = [(row, bar) for row, bar in enumerate(panel.bars) if name in bar.parts]
            if with_part:
                marker = {
                    "color": color,
                    "pattern": {"shape": _HATCHES.get(hatch, "\\")},
                    "line": {"color": "#777777", "width": 0.5},
                }
                data.append(
                    _trace(
                        name,
                        [bar.parts[name] * 1e3 for _, bar in with_part],
                        [row for row, _ in with_part],
                        [number[id(bar.record)] for _, bar in with_part],
                        type="bar",
                        orientation="h",
                        marker=marker,
                    )
                )
        y = {
            "autorange": "reversed",
            "tickvals": list(range(len(texts))),
            "ticktext": list(map(_text, texts)),
        }
        found.append(
            _spec(
                f"{shape_text(panel.shape)}: {panel.source.text}",
                notes,
                data,
                {"title": "best time (ms)"},
                y,
                barmode="stack",
                height=140 + 26 * len(texts),
            )
        )
    return found


def _scaling(select: Callable, weak: bool) -> Callable:
    def build(records, number) -> list[Spec]:
        panels, notes = select(records, Options())
        found = []
        for panel in panels:
            start = scaling.reference(panel)
            ranks = sorted({record.ranks for line in panel.lines for record in line.records})

            def value(record, start=start):
                return scaling.efficiency(record, start) if weak else record.best_s * 1e3

            data = [
                _line(
                    line.name,
                    style_of(line.name),
                    [record.ranks for record in line.records],
                    list(map(value, line.records)),
                    [number[id(record)] for record in line.records],
                )
                for line in panel.lines
            ]
            ideal = [100.0 if weak else start.best_s * 1e3 * start.ranks / each for each in ranks]
            data.append(
                {
                    "name": "ideal",
                    "x": ranks,
                    "y": ideal,
                    "type": "scatter",
                    "mode": "lines",
                    "hoverinfo": "skip",
                    "line": {"color": "#444444", "width": 1, "dash": "dash"},
                }
            )
            y = (
                {"title": "rate a rank, percent of the ideal (%)", "rangemode": "tozero"}
                if weak
                else {"title": "best time (ms)", "type": "log"}
            )
            x = {
                "title": "ranks",
                "type": "log",
                "tickvals": ranks,
                "ticktext": list(map(str, ranks)),
            }
            found.append(_spec(f"{panel.title}: {panel.source.text}", notes, data, x, y))
        return found

    return build


def _peers(records, number) -> list[Spec]:
    panels, drawn, field, notes = peers.panels(records, Options())
    found = []
    for panel in panels:
        data = []
        for name in drawn:
            here = [
                (shape, panel.bars[shape, name])
                for shape in panel.shapes
                if (shape, name) in panel.bars
            ]
            if here:
                data.append(
                    _trace(
                        name,
                        [shape_text(shape) for shape, _ in here],
                        [bar.best for _, bar in here],
                        [number[id(bar.record)] for _, bar in here],
                        type="bar",
                        marker={"color": style_of(name).color},
                    )
                )
        x = {
            "title": "m × n × k",
            "type": "category",
            "categoryarray": [shape_text(shape) for shape in panel.shapes],
        }
        found.append(
            _spec(
                panel.source.text,
                ["the best case of each algorithm on each shape", *notes],
                data,
                x,
                {"title": AXIS[field]},
                barmode="group",
            )
        )
    return found


_BUILDERS = {
    "mlp": _mlp,
    "best": _best,
    "volume": _volume,
    "algorithms": _algorithms,
    "peers": _peers,
    "strong": _scaling(scaling.strong_panels, weak=False),
    "weak": _scaling(scaling.weak_panels, weak=True),
}
