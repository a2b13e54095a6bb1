"""MeshSlice's figures: FLOP utilization of a transformer's FC layers by algorithm, chips, mesh and
slice count, and the breakdown of communication. One panel per model."""

from collections.abc import Callable, Sequence
from functools import partial

from pandas import DataFrame, concat

from drbench.texts import number
from plots.draw.chart import Axis, Chart, Marks
from plots.draw.numbers import log_ticks
from plots.draw.style import LineStyle, style_of
from plots.registry import Figure, Made
from plots.select.cases import Options
from plots.summaries import SUMMARIES

from ..claims import Rows
from ..drawing import Styles, dots, draw_page, drawn, lines, steps
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
_STYLES = {shown: style_of(name) for name, shown in _NAMES.items()}
_STYLES["Wang, free loop count"] = LineStyle("#E8A9CD", "^", (0, (1.2, 1.2)))
#: Parts of the communication time.
_PARTS = {
    "transfer_s": "transfer",
    "sync_s": "synchronisation",
    "launch_s": "launch",
    "total_s": "all three",
}
_PART_STYLES = {
    name: LineStyle(color, marker, "None")
    for name, color, marker in zip(
        _PARTS.values(), ("#0072B2", "#E69F00", "#CC79A7", "#333333"), "os^D"
    )
}
_MULTIPLICATIONS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}
_PERCENT = Axis("FLOP utilization (%)", (0, 102))


def read(paths: Sequence) -> Rows:
    """Rows of CSV files and of folders of them, with the algorithms' names of the legend."""
    rows = DataFrame(ROWS.read(paths))
    return Rows(rows.assign(algorithm=rows.algorithm.map(_NAMES)))


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
    for model, found in rows.groupby("model", sort=False):
        ours = found[found["mode"] == "simulated"]
        chips, batch = ("–".join(dict.fromkeys(map(str, (of.min(), of.max())))) for of in
                        (ours.chips, ours.batch))  # fmt: skip
        first = ours.iloc[0]
        text = f"{chips} chips, batch {batch} × {first.seq}, {first.machine}, simulated"
        charts.append(Chart(model, text, *panel(found)))
    return draw_page(charts, styles, notes, *margins_in, finding=finding)


def _best_of_models(rows: DataFrame, column: str, unit: str, least: bool = False) -> str:
    """The best algorithm of each model with its number."""
    rows = rows.sort_values(column, ascending=least, kind="stable")
    best = rows.drop_duplicates("model").sort_values("model")
    return ", ".join(
        f"{each.model} {each.algorithm} {number(getattr(each, column))}{unit}"
        for each in best.itertuples()
    )


def _shown(rows: DataFrame, **changed) -> Styles:
    """Styles of the algorithms in some rows, with changed attributes."""
    there = {*rows.algorithm}
    return {name: style._replace(**changed) for name, style in _STYLES.items() if name in there}


def _scaling(study: str, note: str, rows: Rows, options: Options) -> Made:
    """Figures 9 and 12; stars are the paper's numbers."""
    every = drawn(rows, study, product=ALL)
    paper = rows.table[(rows.table["mode"] == "published") & (rows.table.study == study)]
    starred = _shown(paper, marker="*", dashes="None").items()
    styles = _shown(every) | {f"{name}, the paper": style for name, style in starred}
    paper = paper.assign(algorithm=paper.algorithm + ", the paper")
    x = steps("chips", every.chips)

    def panel(found: DataFrame) -> tuple:
        shares = found.pivot(index="chips", columns="algorithm", values="utilization_percent")
        return x, _PERCENT, lines(shares, styles)

    most = every[every.chips == every.chips.max()]
    finding = f"Highest utilization on {most.chips.iloc[0]} chips: "
    finding += _best_of_models(most, "utilization_percent", " %")
    return _panels(concat([every, paper]), panel, styles, [note], 2.1, finding=finding)


def _most_chips(rows: Rows) -> DataFrame:
    """The rows of weak scaling on the most chips."""
    found = drawn(rows, "weak")
    return found[found.chips == found.chips.max()]


def _breakdown(rows: Rows, options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of local
    GEMMs."""
    found = _most_chips(rows)
    found = found[found["product"] == ALL]
    total = found[["transfer_s", "sync_s", "launch_s"]].sum(axis=1)
    found = found.assign(total_s=total).sort_values("total_s")

    def panel(found: DataFrame) -> tuple:
        shares = found[[*_PARTS]].div(found.compute_s, axis=0).rename(columns=_PARTS)
        shares = shares.where(shares > 0).set_index(found.algorithm)
        ends = 0.8 * shares.min(axis=None), 1.25 * shares.max(axis=None)
        x = Axis("communication ÷ computation", ends, 10, log_ticks(*ends, number))
        return dots(x, shares, _PART_STYLES)

    notes = ["communication of a chip's busiest link, overlapped or not"]
    share = found.assign(share=found.total_s / found.compute_s)
    finding = f"Least communication ÷ GEMMs: {_best_of_models(share, 'share', '', True)}"
    return _panels(found, panel, _PART_STYLES, notes, 1.6, 1.25, finding=finding)


def _shapes(rows: Rows, options: Options) -> Made:
    """Figure 11: the distinct GEMM shapes of each model."""
    every = _most_chips(rows)
    every = every[every["product"] != ALL]
    every = every.assign(name=every.layer + " " + every["product"].map(_MULTIPLICATIONS))
    styles = _shown(every, dashes="None")

    def panel(found: DataFrame) -> tuple:
        shown = found.name[~found.duplicated(["m", "n", "k"])]
        shares = found.pivot(index="name", columns="algorithm", values="utilization_percent")
        return dots(_PERCENT, shares.loc[shown], styles)

    notes = [
        "one row a GEMM shape m × n × k, named after the first GEMM that has it; each algorithm on "
        "its best mesh for the whole model"
    ]
    one = every.drop_duplicates(["model", "m", "n", "k", "algorithm"])
    shapes = one.sort_values("utilization_percent", ascending=False, kind="stable")
    best = shapes.drop_duplicates(["model", "m", "n", "k"]).algorithm.value_counts()
    finding = f"{best.index[0]} has the best utilization on {best.iloc[0]} of {best.sum()} shapes"
    return _panels(every, panel, styles, notes, 1.6, 0.8, finding=finding)


#: For Figures 13 and 14: the varied column, and its label.
_TRIED = {
    "meshes": ("mesh", "Figure 13: mesh, rows × columns"),
    "slices": ("slices", "Figure 14: slices S of each layer, on 32 × 8"),
}


def _modelled(rows: Rows, options: Options) -> Made:
    """Figures 13 and 14: by how much the cost model differs from the simulation."""
    every, charts, right = drawn(rows, [*_TRIED], product=ALL), [], 0
    every = every.assign(more=100 * (every.estimated_s / every.seconds - 1))
    y = Axis("cost model over simulation (%)", (every.more.min() - 0.3, every.more.max() + 0.3))
    styles = {"cost model": style_of("meshslice")}
    for (study, model), found in every.groupby(["study", "model"], sort=False):
        column, title = _TRIED[study]
        found = found.set_index(found[column].str.partition("-")[0])
        x = Axis(title, (-0.4, len(found) - 0.6), ticks=dict(enumerate(found.index)))
        of = DataFrame({"cost model": found.more.to_numpy()})
        marks = [*lines(of, styles), Marks("rule", "simulated", x.limits, [0, 0])]
        best = found.seconds.idxmin(), found.estimated_s.idxmin()
        right += best[0] == best[1]
        text = "fastest: {} simulated, {} by the cost model".format(*best)
        charts.append(Chart(model, text, x, y, marks))
    notes = ["MeshSlice; on each mesh with the slice counts that the cost model chooses there"]
    finding = f"The cost model finds the fastest simulated choice in {right} of {len(charts)} cases"
    return draw_page(charts, {}, notes, 1.5, finding=finding)


_BEST = "every algorithm at its own best mesh; Cannon needs a square one"
FIGURES = tuple(
    Figure(name, SUMMARIES[name], make, read=read)
    for name, make in {
        "llm-weak": partial(_scaling, "weak", _BEST),
        "llm-strong": partial(_scaling, "strong", f"{_BEST}; FSDP's batch would have to grow"),
        "llm-breakdown": _breakdown,
        "llm-shapes": _shapes,
        "llm-model": _modelled,
    }.items()
)
