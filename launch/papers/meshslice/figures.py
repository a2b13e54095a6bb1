"""MeshSlice's figures: FLOP utilization of a transformer's FC layers by algorithm, chips, mesh and
slice count, and the breakdown of communication. One panel per model."""

from collections.abc import Callable, Sequence
from functools import partial

from pandas import DataFrame, concat

from drbench.plots.draw.chart import Axis, Chart, Marks
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.style import FillStyle, LineStyle, style_of
from drbench.plots.select.cases import Options
from drbench.plots.summaries import SUMMARIES
from drbench.texts import number

from ..claims import ResultRows
from ..drawing import (
    Styles,
    draw_lines,
    draw_page,
    group_bars,
    log_axis,
    select_simulated,
    stack_bars,
)
from .rows import ALL, ROWS, is_tried

#: In the order of the paper's legend.
_NAMES = {
    "meshslice": "MeshSlice",
    "wang": "Wang",
    "collective": "Collective",
    "cannon": "Cannon",
    "summa": "SUMMA",
    "tensor_parallel_1d": "1-D TP",
    "fsdp": "FSDP",
}
_STYLES = {shown: style_of(name) for name, shown in _NAMES.items()}
_MODELS = {"gpt3": "GPT-3", "megatron-nlg": "Megatron-NLG"}
#: Looks of the paper's points, darker than the lines.
_PAPER = {
    "MeshSlice": LineStyle("#08306B", "*", "None"),
    "Wang": LineStyle("#7A0B51", "*", "None"),
}
#: Parts of the communication time, as bars are stacked.
_PARTS = {
    "transfer_s": FillStyle("transfer", "#0072B2"),
    "sync_s": FillStyle("synchronization", "#E69F00", "////"),
    "launch_s": FillStyle("launch", "#CC79A7", "\\\\\\\\"),
}
#: The studies of Figures 13 and 14, and the titles of their axes.
_TUNED = {"meshes": "mesh", "slices": "slice count on 32x8"}
#: The two results that they compare.
_ESTIMATES = {
    "utilization_percent": FillStyle("simulated", "#0072B2"),
    "estimated": FillStyle("by the autotuner's cost model", "#E69F00"),
}
_MULTIPLICATIONS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}
_PERCENT = Axis("FLOP utilization (%)", (0, 102))


def read(paths: Sequence) -> ResultRows:
    """Rows of CSV files and of folders of them, with the algorithms' names of the legend."""
    rows = DataFrame(ROWS.read(paths))
    return ResultRows(rows.replace({"algorithm": _NAMES, "model": _MODELS}))


def _panels(
    rows: DataFrame,
    panel: Callable,
    styles: Styles,
    notes: list[str],
    *margins_in: float,
    finding: str,
) -> Made:
    """A panel a model: ``panel(rows)`` returns its axes and marks."""
    charts = []
    for model, of_model in rows.groupby("model", sort=False):
        ours = of_model[of_model["mode"] == "simulated"]
        chips, batch = ("–".join(dict.fromkeys(map(str, (of.min(), of.max())))) for of in
                        (ours.chips, ours.batch))  # fmt: skip
        first = ours.iloc[0]
        text = f"{chips} chips, batch {batch} × {first.seq}, {first.machine}, simulated"
        charts.append(Chart(model, text, *panel(of_model)))
    return draw_page(charts, styles, notes, *margins_in, finding=finding)


def _shown(rows: DataFrame) -> Styles:
    """Styles of the algorithms in some rows."""
    there = {*rows.algorithm}
    return {name: style for name, style in _STYLES.items() if name in there}


def _find_best(rows: DataFrame, by: str | list[str]) -> DataFrame:
    """The row with the highest utilization of each model or GEMM."""
    return rows.loc[rows.groupby(by, sort=False).utilization_percent.idxmax()]


def _scaling(study: str, note: str, rows: ResultRows, options: Options) -> Made:
    """Figures 9 and 12; stars are the paper's numbers."""
    every = select_simulated(rows, study, product=ALL)
    paper = rows.table[(rows.table["mode"] == "published") & (rows.table.study == study)]
    # the first are on top
    styles = {f"{name}, the paper": _PAPER[name] for name in paper.algorithm} | _shown(every)
    paper = paper.assign(algorithm=paper.algorithm + ", the paper")
    x = log_axis("chips", every.chips)

    def panel(table: DataFrame) -> tuple:
        shares = table.pivot(index="chips", columns="algorithm", values="utilization_percent")
        return x, _PERCENT, draw_lines(shares, styles)

    chips = every.chips.max()
    best = _find_best(every[every.chips == chips], "model").itertuples()
    texts = (f"{row.algorithm} {row.utilization_percent:.1f} % ({row.model})" for row in best)
    finding = f"Best on {chips} chips: {', '.join(texts)}"
    return _panels(concat([every, paper]), panel, styles, [note], 2.1, finding=finding)


def _most_chips(rows: ResultRows) -> DataFrame:
    """The rows of weak scaling on the most chips."""
    table = select_simulated(rows, "weak")
    return table[table.chips == table.chips.max()]


def _breakdown(rows: ResultRows, options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of local
    GEMMs, in its parts."""
    table = _most_chips(rows)
    table = table[table["product"] == ALL]
    parts = table[[*_PARTS]].div(table.compute_s, axis=0)
    table = table.assign(**parts, share=parts.sum(axis=1)).sort_values(["model", "share"])
    most = table.share.max()

    def panel(of_model: DataFrame) -> tuple:
        names = of_model.algorithm + "  " + of_model.share.map(number)
        bars, y = stack_bars(of_model.set_axis(names), _PARTS, across=True)
        marks = [Marks("rule", "as long as the GEMMs", [1, 1], y.limits), *bars]
        return Axis("communication ÷ GEMMs, in time", (0, 1.05 * most)), y, marks

    notes = [
        "communication of a chip's busiest link, overlapped or not; only what is left of the "
        "dashed line can be hidden behind the GEMMs"
    ]
    ours = table[table.algorithm == "MeshSlice"]
    finding = (
        f"MeshSlice communicates for {' and '.join(ours.share.map(number))} times as long as it "
        f"multiplies, and can hide most of it; others for up to {number(most)} times as long"
    )
    return _panels(table, panel, _PARTS, notes, 1.2, 1.15, finding=finding)


def _estimates(rows: ResultRows, options: Options) -> Made:
    """Figures 13 and 14: utilization by mesh and by slice count, simulated and estimated."""
    table = select_simulated(rows, [*_TUNED])
    table = table[table.mesh.map(is_tried)]
    table = table.assign(
        estimated=table.utilization_percent * table.seconds / table.estimated_s,
        at=table.mesh.where(table.study == "meshes", table.slices.str.split("-").str[0]),
    )
    charts = []
    for (study, model), of in table.groupby(["study", "model"], sort=False):
        bars, x = group_bars(of.set_index("at")[[*_ESTIMATES]], _ESTIMATES)
        x, first = x._replace(title=_TUNED[study]), of.iloc[0]
        text = f"MeshSlice on {first.chips} chips, {first.machine}"
        charts.append(Chart(model, text, x, _PERCENT, bars))
    meshes = table[(table.study == "meshes") & (table.model == "GPT-3")].set_index("mesh")
    seconds = meshes.seconds
    finding = (
        f"The mesh decides: GPT-3 is {seconds.max() / seconds.min():.1f} times as fast on "
        f"{seconds.idxmin()} as on {seconds.idxmax()} (2.4 times in the paper); the cost model "
        f"chooses {meshes.estimated_s.idxmin()}"
    )
    notes = ["the meshes that the authors' autotuner tries, of at least four rows and columns"]
    return draw_page(charts, _ESTIMATES, notes, 1.3, finding=finding)


def _shapes(rows: ResultRows, options: Options) -> Made:
    """Figure 11: the distinct GEMM shapes of each model."""
    every = _most_chips(rows)
    every = every[every["product"] != ALL]
    every = every.drop_duplicates(["model", "m", "n", "k", "algorithm"])
    every = every.assign(name=every.layer + "\n" + every["product"].map(_MULTIPLICATIONS))
    fills = {name: FillStyle(name, style.color) for name, style in _shown(every).items()}

    def panel(table: DataFrame) -> tuple:
        shares = table.pivot(index="name", columns="algorithm", values="utilization_percent")
        marks, axis = group_bars(shares.loc[table.name.unique(), [*fills]], fills)
        return axis, _PERCENT, marks

    notes = [
        "one group for each GEMM shape, named after the first GEMM that has it; each algorithm on "
        "its best mesh for the whole model"
    ]
    best = _find_best(every, ["model", "m", "n", "k"]).algorithm.value_counts()
    finding = f"{best.index[0]} has the best utilization on {best.iloc[0]} of {best.sum()} shapes"
    return _panels(every, panel, fills, notes, 1.6, finding=finding)


_BEST = (
    "every algorithm at its own best mesh; Cannon needs a square one; Wang has as many loop "
    "iterations as MeshSlice has slices"
)
FIGURES = tuple(
    Figure(name, SUMMARIES[name], make, read=read)
    for name, make in {
        "llm-weak": partial(_scaling, "weak", _BEST),
        "llm-strong": partial(_scaling, "strong", f"{_BEST}; FSDP's batch would have to grow"),
        "llm-breakdown": _breakdown,
        "llm-shapes": _shapes,
        "llm-model": _estimates,
    }.items()
)
