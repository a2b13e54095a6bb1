"""MeshSlice's figures: FLOP utilization of a transformer's FC layers by algorithm, chips, mesh and
slice count, and where communication goes. One panel a model."""

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.lines import Line2D
from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Marks, Spot, polyline
from plots.draw.page import MARKER_PT, line_handle, log_ticks, number
from plots.draw.style import LineStyle, style_of
from plots.registry import Figure, Made
from plots.select.cases import Options

from ..claims import Rows
from ..drawing import dots, draw_page, drawn
from .rows import ALL, ROWS

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
_STYLES = {name: style_of(name) for name in _NAMES} | {
    "wang-free": LineStyle("#E8A9CD", "^", (0, (1.2, 1.2)))
}
#: Parts of the communication time.
_PARTS = {
    "transfer_s": ("transfer", LineStyle("#0072B2", "o", "None")),
    "sync_s": ("synchronisation", LineStyle("#E69F00", "s", "None")),
    "launch_s": ("launch", LineStyle("#CC79A7", "^", "None")),
    "total_s": ("all three", LineStyle("#333333", "D", "None")),
}
_PRODUCTS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}
_PERCENT = Axis("FLOP utilization (%)", (0, 100))


def read(paths: Sequence) -> Rows:
    """Rows of CSV files and of folders of them."""
    return Rows(DataFrame(ROWS.read(paths)))


def _chart(model: str, rows: DataFrame, x: Axis, y: Axis, marks: Sequence) -> Chart:
    ends = lambda values: "–".join(dict.fromkeys((str(values.min()), str(values.max()))))
    first = rows.iloc[0]
    told = f"{ends(rows.chips)} chips, batch {ends(rows.batch)} × {first.seq}, {first.machine}"
    return Chart(model, f"{told}, simulated", x, y, marks)


def _lines(rows: DataFrame) -> dict[str, DataFrame]:
    """Rows by algorithm, as the paper's legend has them."""
    return {name: rows[rows.algorithm == name] for name in _NAMES if name in {*rows.algorithm}}


def _scaling(study: str, note: str, rows: Rows, options: Options) -> Made:
    """Figures 9 and 12; stars are the paper's numbers."""
    every = drawn(rows, study, product=ALL)
    chips = sorted(every.chips.unique())
    ends = chips[0] / 1.12, chips[-1] * 1.12
    x = Axis("chips", ends, 2, {each: str(each) for each in chips})
    models, charts = dict(list(every.groupby("model", sort=False))), []
    for model, found in models.items():
        marks = []
        for name, of in _lines(found).items():
            at = {place: Spot(share) for place, share in zip(of.chips, of.utilization_percent)}
            marks.append(polyline(name, _STYLES[name], sorted(at), at))
        charts.append(_chart(model, found, x, _PERCENT, marks))
    star = {"linestyle": "", "marker": "*", "markersize": MARKER_PT + 2, "color": "black"}
    handles = [line_handle(_NAMES[name], _STYLES[name]) for name in _lines(every)]
    paper = rows.table[(rows.table["mode"] == "published") & (rows.table.study == study)]
    if len(paper):
        handles.append(Line2D([], [], **star, label="the paper: MeshSlice, Wang"))
    made, every_axes = draw_page(charts, handles, [note], 2.1)
    for axes, model in zip(every_axes, models):
        for row in paper[paper.model == model].itertuples():
            look = star | {"markerfacecolor": _STYLES[row.algorithm].color, "zorder": 4}
            axes.plot([row.chips], [row.utilization_percent], **look, clip_on=False)
    return made


def _by_model(rows: Rows, keep: Callable) -> dict[str, DataFrame]:
    """The rows of weak scaling on the most chips, by model."""
    found = drawn(rows, "weak")
    found = found[(found.chips == found.chips.max()) & keep(found)]
    return dict(list(found.groupby("model", sort=False)))


def _breakdown(rows: Rows, options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of the
    products."""
    charts, parts = [], [*_PARTS][:-1]
    for model, found in _by_model(rows, lambda found: found["product"] == ALL).items():
        found = found.assign(total_s=found[parts].sum(axis=1)).sort_values("total_s")
        shares = found[[*_PARTS]].div(found.compute_s, axis=0)
        shares = shares.where(shares > 0)
        ends = 0.8 * shares.min(axis=None), 1.25 * shares.max(axis=None)
        x = Axis("communication ÷ computation", ends, 10, log_ticks(*ends, number))
        series = {name: (shares[part], look) for part, (name, look) in _PARTS.items()}
        names = [_NAMES[each] for each in found.algorithm]
        charts.append(_chart(model, found, *dots(x, names, series)))
    notes = ["communication of a chip's busiest link, overlapped or not"]
    return draw_page(charts, [line_handle(*part) for part in _PARTS.values()], notes, 1.6, 1.25)[0]


def _shapes(rows: Rows, options: Options) -> Made:
    """Figure 11: the distinct products of each model."""
    charts, models = [], _by_model(rows, lambda found: found["product"] != ALL)
    x = _PERCENT._replace(limits=(0, 102))
    for model, found in models.items():
        by = ["layer", "product"]
        shown = found.drop_duplicates(["m", "n", "k"])[by]
        shares = found.pivot(index=by, columns="algorithm", values="utilization_percent")
        shares = shares.loc[list(shown.itertuples(index=False, name=None))]
        names = [f"{layer} {_PRODUCTS[product]}" for layer, product in shares.index]
        series = {name: (shares[name], _STYLES[name]) for name in _lines(found)}
        charts.append(_chart(model, found, *dots(x, names, series)))
    looks = [name for name in _NAMES if any(name in {*of.algorithm} for of in models.values())]
    handles = [line_handle(_NAMES[name], _STYLES[name]._replace(dashes="None")) for name in looks]
    notes = [
        "one row a product of different m × n × k, named after the first that has it; each "
        "algorithm on its best mesh for the whole model"
    ]
    return draw_page(charts, handles, notes, 1.6, 0.8)[0]


#: Of Figures 13 and 14: column of what is tried, and what it is called.
_TRIED = {
    "meshes": ("mesh", "Figure 13: mesh, rows × columns"),
    "slices": ("slices", "Figure 14: slices S of each layer, on 32 × 8"),
}


def _modelled(rows: Rows, options: Options) -> Made:
    """Figures 13 and 14: by how much the cost model differs from the simulation."""
    every = drawn(rows, [*_TRIED], product=ALL)
    every = every[every.estimated_s.notna()]
    every = every.assign(more=100 * (every.estimated_s / every.seconds - 1))
    ends = min(0, every.more.min()) - 0.3, max(0, every.more.max()) + 0.3
    y = Axis("cost model over simulation (%)", ends)
    charts, look = [], style_of("meshslice")
    for study, (column, title) in _TRIED.items():
        for model, found in every[every.study == study].groupby("model", sort=False):
            names = [text.partition("-")[0] for text in found[column]]
            best = [names[list(times).index(min(times))] for times in
                    (found.seconds, found.estimated_s)]  # fmt: skip
            x = Axis(title, (-0.4, len(names) - 0.6), ticks=dict(enumerate(names)))
            spots = dict(enumerate(map(Spot, found.more)))
            marks = [
                polyline("cost model", look, sorted(spots), spots),
                Marks("rule", "simulated", x.limits, [0, 0]),
            ]
            told = "fastest: {} simulated, {} by the cost model".format(*best)
            charts.append(Chart(model, told, x, y, marks))
    notes = ["MeshSlice; on each mesh with the slice counts that the cost model chooses there"]
    return draw_page(charts, [], notes, 1.5)[0]


_BEST = "every algorithm at its own best mesh; Cannon needs a square one"
FIGURES = tuple(
    Figure(f"llm-{name}", summary, make, read=read)
    for name, summary, make in (
        (
            "weak",
            "MeshSlice, Figure 9: utilization of a transformer's FC layers as chips and batch grow",
            partial(_scaling, "weak", _BEST),
        ),
        (
            "strong",
            "MeshSlice, Figure 12: the same at one batch",
            partial(_scaling, "strong", f"{_BEST}; FSDP's batch would have to grow"),
        ),
        (
            "breakdown",
            "MeshSlice, Figure 10: launch, synchronisation and transfer over computation",
            _breakdown,
        ),
        ("shapes", "MeshSlice, Figure 11: utilization by product", _shapes),
        (
            "model",
            "MeshSlice, Figures 13 and 14: cost model and simulation by mesh and slice count",
            _modelled,
        ),
    )
)
