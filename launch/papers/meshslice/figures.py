"""MeshSlice's figures: FLOP utilization of a transformer's FC layers by algorithm, chips, mesh and
slice count, and where communication goes.

One panel a model. Drawn from the rows of ``python -m launch.papers``; rows of mode
``published`` are marks without a line.
"""

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.lines import Line2D
from pandas import DataFrame

from plots.draw.chart import (
    Axis,
    Chart,
    Marks,
    Spot,
    draw_axis,
    draw_bars,
    draw_chart,
    panels,
    polyline,
)
from plots.draw.page import GRID, MARKER_PT, line_handle, line_look, note, patch_handle
from plots.draw.style import SMALL_PT, Fill, LineStyle, style_of
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError

from .rows import ALL, ROWS, LlmRow

#: In the order of the paper's legend.
_NAMES = {
    "meshslice": "MeshSlice",
    "wang": "Wang",
    "wang-free": "Wang, free loop count",
    "collective": "Collective",
    "cannon": "Cannon",
    "summa": "SUMMA",
    "tensor_parallel_1d": "1-D TP",
    "fsdp": "FSDP",
}
#: Parts of the communication time, from the bottom of a bar.
_PARTS = {
    "transfer_s": Fill("transfer", "#0072B2"),
    "sync_s": Fill("synchronisation", "#E69F00", "////"),
    "launch_s": Fill("launch", "#CC79A7", "xxxx"),
}
_PRODUCTS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}
_PERCENT = Axis("FLOP utilization (%)", (0, 100))


def chosen(
    rows: Sequence[LlmRow], study: str, keep: Callable[[DataFrame], object]
) -> dict[str, DataFrame]:
    """The rows of a study by model, in the order they come in.

    Raises
    ------
    SelectionError
        If there are none.
    """
    found = DataFrame(rows, columns=LlmRow._fields)
    found = found[(found.study == study) & keep(found)]
    if not (found["mode"] == "simulated").any():
        raise SelectionError(
            f"no rows of the study {study} in {len(rows)}. Make some with python -m launch.papers "
            f"DIR {study}."
        )
    return dict(list(found.groupby("model", sort=False)))


def _chart(model: str, rows: DataFrame, x: Axis, y: Axis, marks: Sequence = ()) -> Chart:
    ends = lambda values: (
        f"{values.min()}–{values.max()}" if values.nunique() > 1 else f"{values.min()}"
    )
    first = rows[rows["mode"] == "simulated"].iloc[0]
    told = (
        f"{ends(rows.chips)} chips, batch {ends(rows.batch)} × {rows.seq.iloc[0]}, "
        f"{first.machine}, {first['mode']}"
    )
    return Chart(model, told, x, y, marks)


def _page(charts: Sequence[Chart], handles: Sequence, notes: Sequence[str], columns: int = 2):
    page, every = panels(charts, handles, notes, 2.1, columns, (0.52, 0.12))
    for axes in every:
        axes.grid(axis="y", **GRID)
    return page, every


def _algorithms(models: dict[str, DataFrame]) -> list[str]:
    return sorted({name for rows in models.values() for name in rows.algorithm}, key=_order)


def _order(algorithm: str) -> tuple[int, str]:
    known = list(_NAMES)
    return (known.index(algorithm), "") if algorithm in known else (len(known), algorithm)


def _style(algorithm: str) -> LineStyle:
    return (
        style_of("wang")._replace(color="#E8A9CD", marker="^", dashes=(0, (1.2, 1.2)))
        if algorithm == "wang-free"
        else style_of(algorithm)
    )


def _name(algorithm: str) -> str:
    return _NAMES.get(algorithm, algorithm)


def _scaling(study: str, told: str, rows: Sequence[LlmRow], options: Options) -> Made:
    models = chosen(rows, study, lambda found: found["product"] == ALL)
    names, charts = _algorithms(models), []
    for model, found in models.items():
        chips, marks = sorted(found.chips.unique().tolist()), []
        for name in names:
            here = found[(found.algorithm == name) & (found["mode"] == "simulated")]
            at = {
                chips: Spot(percent) for chips, percent in zip(here.chips, here.utilization_percent)
            }
            marks.append(polyline(name, _style(name), sorted(at), at))
        x = Axis(
            "chips", (chips[0] / 1.12, chips[-1] * 1.12), 2, {each: str(each) for each in chips}
        )
        charts.append(_chart(model, found, x, _PERCENT, marks))
    star = {"linestyle": "", "marker": "*", "markersize": MARKER_PT + 2, "color": "black"}
    handles = [line_handle(_name(name), _style(name)) for name in names]
    if any((found["mode"] == "published").any() for found in models.values()):
        handles.append(Line2D([], [], **star, label="the paper: MeshSlice, Wang"))
    page, every = _page(charts, handles, [told])
    for axes, chart, found in zip(every, charts, models.values()):
        draw_chart(axes, chart)
        for row in found[found["mode"] == "published"].itertuples():
            axes.plot(
                [row.chips],
                [row.utilization_percent],
                **star,
                markerfacecolor=_style(row.algorithm).color,
                markeredgewidth=0.6,
                zorder=4,
                clip_on=False,
            )
    return Made(page.picture, [])


def _largest(rows: Sequence[LlmRow], keep: Callable[[DataFrame], object]) -> dict[str, DataFrame]:
    """The simulated rows of weak scaling on the most chips, by model."""
    most = max((row.chips for row in rows if row.study == "weak"), default=0)
    simulated = lambda found: (found.chips == most) & (found["mode"] == "simulated")
    return chosen(rows, "weak", lambda found: simulated(found) & keep(found))


def breakdown(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of the
    products."""
    models = {
        model: found.sort_values("algorithm", key=lambda names: names.map(_order))
        for model, found in _largest(rows, lambda found: found["product"] == ALL).items()
    }
    notes = [
        "communication of a chip's busiest link, overlapped or not, relative to the time of its "
        "products; a bar with two white strokes is cut, the number above it is its whole"
    ]
    charts, shares = [], []
    for model, found in models.items():
        shares.append(found[list(_PARTS)].div(found.compute_s, axis=0))
        ticks = [_name(name).replace(" ", "\n", 2) for name in found.algorithm]
        x = Axis("", (0, len(ticks)), ticks=dict(enumerate(ticks)))
        top = min(shares[-1].sum(axis=1).max(), 6.0) * 1.12
        charts.append(_chart(model, found, x, Axis("communication over computation", (0, top))))
    page, every = _page(charts, list(map(patch_handle, _PARTS.values())), notes)
    for axes, chart, share, found in zip(every, charts, shares, models.values()):
        found_names = list(found.algorithm)
        (_, top), totals = chart.y.limits, share.sum(axis=1)
        below = share.cumsum(axis=1) - share
        for x, row in enumerate(share.index):
            for part, look in _PARTS.items():
                at = below.at[row, part]
                axes.bar(
                    x,
                    min(share.at[row, part], max(top - at, 0)),
                    0.7,
                    bottom=at,
                    color=look.color,
                    hatch=look.hatch,
                    edgecolor="white",
                    linewidth=0.4,
                    zorder=2,
                )
            if totals[row] > top:
                for under in (0.90, 0.93):  # two strokes: the bar is cut
                    cut = [under * top, (under + 0.03) * top]
                    strokes = axes.plot([x - 0.42, x + 0.42], cut, color="white", linewidth=1.6)
                    named(strokes[0], f"{_name(found_names[x])} is cut")
            note(
                axes,
                f"{totals[row]:.2f}" + " ↑" * bool(totals[row] > top),
                (x, min(totals[row], top)),
                (0, 1.5),
                ha="center",
                bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none"},
                zorder=4,
            )
        axes.axhline(1, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=3)
        _names(axes, chart, SMALL_PT - 1)
        axes.tick_params(axis="x", length=0)
    return Made(page.picture, [])


def _names(axes, chart: Chart, size: float) -> None:
    """Draw the axes, with names along the first as wide as matplotlib finds good."""
    axes.set_xticks(list(chart.x.ticks), list(chart.x.ticks.values()), size=size)
    axes.set_xlabel(chart.x.title)
    draw_axis(axes, "y", chart.y)


def shapes(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 11: the distinct products of each model."""
    models = _largest(rows, lambda found: found["product"] != ALL)
    names = _algorithms(models)
    notes = [
        "one group a product of different m × n × k, named after the first that has it; each "
        "algorithm on its best mesh for the whole model"
    ]
    step, charts = len(names) + 1, []
    groups = {model: rows.drop_duplicates(["m", "n", "k"]) for model, rows in models.items()}
    for model, found in groups.items():
        ticks = {
            at * step + (len(names) - 1) / 2: f"{row.layer} {_PRODUCTS[row.product]}\n"
            f"{row.m:.0f} ×\n{row.n:.0f} × {row.k:.0f}"
            for at, row in enumerate(found.itertuples())
        }
        x = Axis("", (0, 1), ticks=ticks)
        charts.append(_chart(model, models[model], x, _PERCENT))
    looks = [Fill(_name(name), _style(name).color) for name in names]
    page, every = _page(charts, list(map(patch_handle, looks)), notes, 1)
    for axes, chart, found in zip(every, charts, models.values()):
        by = ["layer", "product"]
        shown = groups[chart.title][by].assign(group=range(len(chart.x.ticks)))
        bars = found.drop_duplicates([*by, "algorithm"]).merge(shown, on=by)
        for place, (name, look) in enumerate(zip(names, looks)):
            here = bars[bars.algorithm == name]
            at, percent = here.group * step + place, here.utilization_percent
            draw_bars(axes, Marks("bars", name, at, percent, look=look))
        _names(axes, chart, SMALL_PT - 0.5)
        axes.tick_params(axis="x", length=0)
    return Made(page.picture, [])


def _modelled(
    study: str,
    tick: Callable[[object], str],
    name: str,
    note: str,
    rows: Sequence[LlmRow],
    options: Options,
) -> Made:
    models = chosen(
        rows, study, lambda found: (found["product"] == ALL) & found.estimated_s.notna()
    )
    looks = {"simulated": style_of("meshslice"), "cost model": style_of("collective")}
    charts = []
    for model, found in models.items():
        simulated = found.utilization_percent
        lines = [simulated * found.seconds / found.estimated_s, simulated]
        marks = [
            polyline(told, looks[told], range(len(found)), dict(enumerate(map(Spot, ys))))
            for told, ys in zip(reversed(looks), lines)
        ]
        x = Axis(name, (0, 1), ticks=dict(enumerate(map(tick, found.itertuples()))))
        charts.append(_chart(model, found, x, _PERCENT, marks))
    page, every = _page(charts, [line_handle(*look) for look in looks.items()], [note])
    for axes, chart in zip(every, charts):
        for marks in reversed(chart.marks):
            axes.plot(marks.x, marks.y, zorder=3, clip_on=False, **line_look(marks.look))
        _names(axes, chart, SMALL_PT)
    return Made(page.picture, [])


FIGURES = tuple(
    Figure(f"llm-{name}", summary, make, read=ROWS.read)
    for name, summary, make in (
        (
            "weak",
            "MeshSlice, Figure 9: utilization of a transformer's FC layers as chips and batch grow",
            # each algorithm at its own best mesh, the batch half the chips
            partial(
                _scaling,
                "weak",
                "every algorithm at its own best mesh; Cannon needs a square one",
            ),
        ),
        (
            "strong",
            "MeshSlice, Figure 12: the same at one batch",
            partial(
                _scaling,
                "strong",
                "every algorithm at its own best mesh; Cannon needs a square one; FSDP's batch "
                "would have to grow",
            ),
        ),
        (
            "breakdown",
            "MeshSlice, Figure 10: launch, synchronisation and transfer over computation",
            breakdown,
        ),
        ("shapes", "MeshSlice, Figure 11: utilization by product", shapes),
        (
            "meshes",
            "MeshSlice, Figure 13: cost model and simulation by mesh",
            partial(
                _modelled,
                "meshes",
                lambda row: row.mesh,
                "mesh, rows × columns",
                "MeshSlice; on each mesh with the slice counts the cost model chooses there",
            ),
        ),
        (
            "slices",
            "MeshSlice, Figure 14: cost model and simulation by slice count",
            partial(
                _modelled,
                "slices",
                lambda row: row.slices.split("-")[0],
                "slices S",
                "MeshSlice on 32 × 8, the same slice count in all layers",
            ),
        ),
    )
)
