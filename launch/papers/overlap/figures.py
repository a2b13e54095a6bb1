"""The figures of FLUX and Triton-distributed (TD): GEMMs that overlap with their AllGather or
ReduceScatter, simulated and compared with published numbers."""

from functools import partial

from drbench.plots.draw.chart import Axis, Chart, Marks
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.numbers import log_ticks
from drbench.plots.draw.style import LineStyle
from drbench.plots.select.cases import Options
from drbench.plots.summaries import SUMMARIES
from drbench.texts import number

from ..claims import ResultRows
from ..drawing import draw_lines, draw_page, log_axis, select_simulated
from .rows import SAME, read_tables

_MULTIPLICATIONS = {
    "ag": "AllGather + GEMM",
    "rs": "GEMM + ReduceScatter",
    "ag_moe": "AllGather + experts",
    "moe_rs": "experts + ReduceScatter",
}
_MACHINES = {
    "a100pcie": "A100 PCIe",
    "a100nvlink": "A100 NVLink",
    "h800": "H800",
    "mi308x": "MI308X",
}
_NAMES = {
    "chunks": "chunks (Transformer Engine)",
    "flux": "FLUX",
    "td": "Triton-distributed",
    "pytorch": "loop over experts (PyTorch)",
}
_COLORS = ("#E69F00", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C8C8C")
#: The styles of series, in the order of the legend.
_STYLES = tuple(map(LineStyle, _COLORS, "soD^vP", "------"))
#: The figures of FLUX with efficiencies; the smallest that is drawn.
_FLUX, _LEAST = ["flux11", "flux12", "flux13", "flux14", "flux15"], -100


def _efficiencies(rows: ResultRows, options: Options) -> Made:
    """FLUX, Figures 4 and 11 to 15: the overlap efficiency by m, one panel per machine and
    operation, one line per method; a vertical line is the range in FLUX's text, with its mean."""
    every = select_simulated(rows, _FLUX, method=["chunks", "flux"]).sort_values(
        "method", kind="stable"
    )
    series = lambda of: of.method.map(_NAMES) + of.ranks.map(", {} GPUs".format)
    shown = every.efficiency_percent.clip(lower=_LEAST)
    every = every.assign(series=series(every), shown=shown)
    published = rows.ranges.table
    published = published[published.study.isin(_FLUX) & published.low.notna()]
    published = published[published.quantity == "efficiency_percent"]
    offset = published.method.map({"flux": 1.1, "chunks": 0.9})
    published = published.assign(
        series=series(published), at=(published.least_m * published.most_m) ** 0.5 * offset
    )
    styles = dict(zip(every.series.unique(), _STYLES))
    x, y, charts = log_axis("m", every.m), Axis("efficiency (%)", (_LEAST - 5, 105)), []
    for (machine, operation), panel in every.groupby(["machine", "product"], sort=False):
        marks = draw_lines(panel.pivot(index="m", columns="series", values="shown"), styles)
        for text in published[published.machine == machine].itertuples():
            ends = {"low": [max(text.low, _LEAST)], "high": [max(text.high, _LEAST)]}
            name = f"{text.series}, the paper"
            marks.append(
                Marks("points", name, [text.at], [text.mean], (), styles[text.series], **ends)
            )
        title, first = f"{_MULTIPLICATIONS[operation]}, {_MACHINES[machine]}", panel.iloc[0]
        charts.append(Chart(title, f"n, k = {first.n}, {first.k}", x, y, marks))
    notes = [
        "efficiency: 1 - ECT / ECT of the collective (FLUX, Eq. 2), simulated",
        "vertical: the range in FLUX's text for a figure, of both operations together, and "
        "its mean",
        f"below {_LEAST} % drawn at {_LEAST} %",
    ]
    case = ["study", "machine", "ranks", "product", "m", "n", "k"]
    by_method = every.pivot_table("efficiency_percent", case, "method").dropna()
    ahead = (by_method.flux > by_method.chunks).sum()
    finding = f"FLUX overlaps better than chunks in {ahead} of {len(by_method)} simulated cases"
    return draw_page(charts, styles, notes, 1.3, finding=finding)


def _against(
    studies: list[str], column: str, title: str, per: float, rows: ResultRows, options: Options
) -> Made:
    """Our numbers over the paper's, by the paper's: one mark per row, one panel per operation."""
    select_simulated(rows, studies)
    both = rows.paired(SAME, study=studies)
    series = both.method.map(_NAMES) + both.ranks.map(", {} ".format) + both.machine.map(_MACHINES)
    both = both.assign(x=per * both[column], y=both[f"{column}_ours"] / both[column], series=series)
    styles = {name: style._replace(dashes="None") for name, style in zip(series.unique(), _STYLES)}
    ends = [(0.9 * both[side].min(), 1.1 * max(both[side].max(), 1.0)) for side in "xy"]
    x, y = (
        Axis(text, limits, 10, log_ticks(*limits))
        for text, limits in zip((title, "ours ÷ the paper's"), ends)
    )
    charts = []
    for operation, panel in both.groupby("product", sort=False):
        marks = [
            Marks("points", name, list(of.x), list(of.y), (), styles[name])
            for name, of in panel.groupby("series", sort=False)
        ]
        marks.append(Marks("rule", "as published", x.limits, [1, 1]))
        charts.append(
            Chart(_MULTIPLICATIONS[operation], ", ".join(panel.study.unique()), x, y, marks)
        )
    ratio = both.y.quantile([0.5, 0.25, 0.75]).map(number)
    finding = "Our {} over the paper's: median {}, half of them {} to {}"
    finding = finding.format({"speedup": "speedups", "seconds": "times"}[column], *ratio)
    return draw_page(charts, styles, ["ours: simulated"], 2.0, finding=finding)


_TD = "td11 td12 td13 td14 td17 td18".split()
_TABLES = ["td-table4", "td-table5"]
FIGURES = tuple(
    Figure(name, SUMMARIES[name], make, read=read_tables)
    for name, make in {
        "overlap-flux": _efficiencies,
        "overlap-td": partial(
            _against, _TD, "speedup", "speedup over no overlap, the paper's", 1.0
        ),
        "overlap-td-experts": partial(_against, _TABLES, "seconds", "time (ms), the paper's", 1e3),
    }.items()
)
