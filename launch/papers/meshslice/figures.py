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
_FREE = _NAMES["wang-free"]
_STYLES = {shown: style_of(name) for name, shown in _NAMES.items()}
_STYLES[_FREE] = LineStyle("#E8A9CD", "^", (0, (1.2, 1.2)))
#: Parts of the communication time, as bars are stacked.
_PARTS = {
    "transfer_s": FillStyle("transfer", "#0072B2"),
    "sync_s": FillStyle("synchronization", "#E69F00", "////"),
    "launch_s": FillStyle("launch", "#CC79A7", "\\\\\\\\"),
}
_FAR = 4  # times the median
_MULTIPLICATIONS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}
_PERCENT = Axis("FLOP utilization (%)", (0, 102))


def read(paths: Sequence) -> ResultRows:
    """Rows of CSV files and of folders of them, with the algorithms' names of the legend."""
    rows = DataFrame(ROWS.read(paths))
    return ResultRows(rows.assign(algorithm=rows.algorithm.map(_NAMES)))


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


def _best_of_models(rows: DataFrame, column: str, unit: str) -> str:
    """The best algorithm of each model with its number."""
    rows = rows.sort_values(column, ascending=False, kind="stable")
    best = rows.drop_duplicates("model").sort_values("model")
    return ", ".join(
        f"{row.model} {row.algorithm} {number(getattr(row, column))}{unit}"
        for row in best.itertuples()
    )


def _shown(rows: DataFrame, **changed) -> Styles:
    """Styles of the algorithms in some rows, with changed attributes."""
    there = {*rows.algorithm}
    return {name: style._replace(**changed) for name, style in _STYLES.items() if name in there}


def _scaling(study: str, note: str, rows: ResultRows, options: Options) -> Made:
    """Figures 9 and 12; stars are the paper's numbers."""
    every = select_simulated(rows, study, product=ALL)
    paper = rows.table[(rows.table["mode"] == "published") & (rows.table.study == study)]
    starred = _shown(paper, marker="*", dashes="None").items()
    styles = _shown(every) | {f"{name}, the paper": style for name, style in starred}
    paper = paper.assign(algorithm=paper.algorithm + ", the paper")
    x = log_axis("chips", every.chips)

    def panel(table: DataFrame) -> tuple:
        shares = table.pivot(index="chips", columns="algorithm", values="utilization_percent")
        # the first marks are on top: those of the paper
        marks = draw_lines(shares, styles)
        return x, _PERCENT, sorted(marks, key=lambda mark: mark.style.marker != "*")

    most = every[every.chips == every.chips.max()]
    finding = f"Highest utilization on {most.chips.iloc[0]} chips: "
    finding += _best_of_models(most, "utilization_percent", " %")
    return _panels(concat([every, paper]), panel, styles, [note], 2.1, finding=finding)


def _most_chips(rows: ResultRows) -> DataFrame:
    """The rows of weak scaling on the most chips."""
    table = select_simulated(rows, "weak")
    return table[table.chips == table.chips.max()]


def _breakdown(rows: ResultRows, options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of local
    GEMMs, in its parts. One far beyond all others would make these unreadable: its number is in the
    small print."""
    table = _most_chips(rows)
    table = table[(table["product"] == ALL) & (table.algorithm != _FREE)]
    parts = table[[*_PARTS]].div(table.compute_s, axis=0)
    table = table.assign(**parts, share=parts.sum(axis=1)).sort_values(["model", "share"])
    limit = 1.05 * table[table.share < _FAR * table.share.median()].share.max()
    far = table[table.share > limit]

    def panel(of_model: DataFrame) -> tuple:
        near = of_model[of_model.share <= limit]
        names = near.algorithm + "  " + near.share.map(number)
        bars, y = stack_bars(near.set_axis(names), _PARTS, across=True)
        marks = [Marks("rule", "as long as the GEMMs", [1, 1], y.limits), *bars]
        return Axis("communication ÷ GEMMs, in time", (0, limit)), y, marks

    notes = [
        "communication of a chip's busiest link, overlapped or not; only what is left of the "
        "dashed line can be hidden behind the GEMMs"
    ]
    texts = [f"{row.algorithm} {number(row.share)} ({row.model})" for row in far.itertuples()]
    notes += [f"not drawn, since it is far beyond the axis: {', '.join(texts)}"] * bool(texts)
    less = (table.share < 1).groupby(table.algorithm, sort=False).all()
    hidden = " and ".join(less.index[less]) or "no algorithm"
    finding = f"On {table.chips.iloc[0]} chips {hidden} could hide all communication, because it "
    finding += "takes less time than the GEMMs"
    return _panels(table, panel, _PARTS, notes, 1.2, 1.15, finding=finding)


def _shapes(rows: ResultRows, options: Options) -> Made:
    """Figure 11: the distinct GEMM shapes of each model."""
    every = _most_chips(rows)
    every = every[(every["product"] != ALL) & (every.algorithm != _FREE)]
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
    shapes = every.sort_values("utilization_percent", ascending=False, kind="stable")
    best = shapes.drop_duplicates(["model", "m", "n", "k"]).algorithm.value_counts()
    finding = f"{best.index[0]} has the best utilization on {best.iloc[0]} of {best.sum()} shapes"
    return _panels(every, panel, fills, notes, 1.6, finding=finding)


_BEST = (
    "every algorithm at its own best mesh; Cannon needs a square one; Wang has as many loop "
    "iterations as MeshSlice has slices, or as many as are best (free loop count)"
)
FIGURES = tuple(
    Figure(name, SUMMARIES[name], make, read=read)
    for name, make in {
        "llm-weak": partial(_scaling, "weak", _BEST),
        "llm-strong": partial(_scaling, "strong", f"{_BEST}; FSDP's batch would have to grow"),
        "llm-breakdown": _breakdown,
        "llm-shapes": _shapes,
    }.items()
)
