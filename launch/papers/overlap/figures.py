"""The figures of FLUX and Triton-distributed (TD): GEMMs that overlap with their AllGather or
ReduceScatter, simulated, as bars beside published numbers."""

from functools import partial
from statistics import geometric_mean

from pandas import concat

from drbench.plots.draw.chart import Axis, Chart, Marks
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.page import GREY
from drbench.plots.draw.style import FillStyle, LineStyle
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.summaries import SUMMARIES
from drbench.texts import number, shape_text, time_text

from ..claims import ResultRows
from ..drawing import draw_page, group_bars, select_simulated, stack_bars
from .rows import SAME, read_tables
from .study import NODE

_MULTIPLICATIONS = {"ag": "AllGather + GEMM", "rs": "GEMM + ReduceScatter"}
_MACHINES = {
    "a100pcie": "A100 PCIe",
    "a100nvlink": "A100 NVLink",
    "h800": "H800",
    "mi308x": "MI308X",
}
#: FLUX's methods: the parts of a bar above the GEMM alone.
_METHODS = {
    "collective": FillStyle("no overlap (PyTorch)", "#E69F00", "////"),
    "chunks": FillStyle("chunks (Transformer Engine)", "#CC79A7", "xxxx"),
    "flux": FillStyle("FLUX", "#0072B2"),
}
_PARTS = {"gemm": FillStyle("GEMM alone", "#BBBBBB"), **_METHODS}
#: TD's bars: method and side of a comparison; the paper's are pale.
_SIDES = {
    "td ours": FillStyle("Triton-distributed, ours", "#009E73"),
    "td the paper": FillStyle("Triton-distributed, the paper", "#8CD3BE"),
    "flux ours": FillStyle("FLUX, ours", "#0072B2"),
    "flux the paper": FillStyle("FLUX, the paper", "#8CBEDC"),
}


def _stacks(studies: list[str], rows: ResultRows, options: Options) -> Made:
    """FLUX, Figures 4 and 11 to 15: one panel per machine and operation, one group of bars per m,
    with the overlap efficiency above."""
    every = select_simulated(rows, studies, method=[*_METHODS])
    total = every.seconds / every.gemm_s
    nodes = every.ranks.map({NODE: ""}).fillna(every.ranks.map(", {} GPUs".format))
    every = every.assign(
        group="m = " + every.m.astype(str) + nodes + "\n" + every.gemm_s.map(time_text),
        text=every.efficiency_percent.map("{:.0f}".format).where(every.method != "collective", ""),
        total=total,
        gemm=1.0,
        **{name: (total - 1).where(every.method == name, 0.0) for name in _METHODS},
    )
    published = rows.ranges.table
    published = published[published.study.isin(studies)]
    published = published[published.quantity == "efficiency_percent"]
    stated = published.method.map({"flux": "FLUX"}).fillna(published.method)
    stated = stated.where(published.ranks == NODE, published.ranks.map("{} GPUs".format))
    stated += published.low.map(" {:.0f}".format).replace(" nan", " up")
    stated += published.high.map(" to {:.0f}".format)
    charts = []
    for (machine, operation), panel in every.groupby(["machine", "product"], sort=False):
        bars, x = stack_bars(panel.set_index(["group", "method"]), _PARTS)
        above = LineStyle(GREY, "", "None", GREY)
        hidden = Marks("points", "hidden (%)", bars[0].x, list(panel.total), (), above)
        texts = ", ".join(stated[published.machine == machine])
        charts.append(
            Chart(
                f"{_MULTIPLICATIONS[operation]}, {_MACHINES[machine]}",
                f"the paper: {texts} %" * bool(texts),
                x,
                Axis("time ÷ GEMM alone", (0, 1.15 * every.total[every.machine == machine].max())),
                [hidden._replace(texts=list(panel.text)), *bars],
            )
        )
    notes = [
        "under m: the time of the GEMM alone; coloured: what a method adds to it (FLUX, Eq. 1), "
        "simulated",
        "above a bar: how much of that of no overlap the method hides, in % (overlap efficiency, "
        "Eq. 2); below 0 it is slower than no overlap; the paper: the range in its text, of both "
        "operations",
    ]
    case = ["study", "machine", "product", "m"]
    fastest = every.sort_values("total", kind="stable").drop_duplicates(case).method == "flux"
    ends = every.efficiency_percent[every.method == "flux"].agg(["min", "max"])
    finding = f"FLUX is the fastest in {fastest.sum()} of {len(fastest)} simulated cases; it hides "
    finding += "{:.0f} to {:.0f} % of communication".format(*ends)
    return draw_page(charts, _PARTS, notes, 1.25, 0.5, finding=finding)


def _speedups(rows: ResultRows, options: Options) -> Made:
    """TD, Figures 11 to 14, 17 and 18: speedups over no overlap, ours beside the paper's, one group
    of bars per shape."""
    select_simulated(rows, _TD)
    try:
        every = rows.paired(SAME, study=_TD)
        means = rows.ranges.where(study=_TD, quantity="speedup").set_index("study")["mean"]
    except KeyError as error:
        raise SelectionError(f"no {error.args[0]}: add results/published/overlap") from None
    charts, highs_in = [], []
    every = every.assign(shape=list(map(shape_text, every.m, every.n, every.k)))
    most = every[["speedup", "speedup_ours"]].max(axis=None)
    for study, both in every.groupby("study", sort=False):
        sides = {"ours": both.speedup_ours, "the paper": both.speedup}
        values = concat(
            [
                both.assign(side=both.method + f" {side}", value=value)
                for side, value in sides.items()
            ]
        ).pivot_table("value", "shape", "side", sort=False)
        bars, y = group_bars(values[[side for side in _SIDES if side in values]], _SIDES, True)
        own, first = both[both.method == "td"], both.iloc[0]
        charts.append(
            Chart(
                f"Figure {study[2:]}: {_MULTIPLICATIONS[first['product']]}, {first.ranks} "
                f"{_MACHINES[first.machine]}",
                "mean of Triton-distributed: ours "
                f"{geometric_mean(own.speedup_ours):.2f}, the paper {means[study]:.2f}",
                Axis("speedup over no overlap", (0, 1.03 * most)),
                y,
                [*bars, Marks("rule", "no overlap", [1, 1], y.limits)],
            )
        )
        highs_in.append(0.05 * abs(y.limits[0] - y.limits[1]))
    ratio = (every.speedup_ours / every.speedup)[every.method == "td"]
    finding = "Our speedups of Triton-distributed are {} to {} times the paper's, on average {}"
    finding = finding.format(*map(number, (ratio.min(), ratio.max(), geometric_mean(ratio))))
    notes = [
        "rows: m × n × k, of equal ones the mean; ours is simulated; other means are geometric"
    ]
    return draw_page(charts, _SIDES, notes, highs_in, 1.32, finding=finding)


_TD = "td11 td12 td13 td14 td17 td18".split()
FIGURES = tuple(
    Figure(name, SUMMARIES[name], make, read=read_tables)
    for name, make in {
        "overlap-flux": partial(_stacks, ["flux11", "flux12", "flux13"]),
        "overlap-flux-small": partial(_stacks, ["flux14", "flux15"]),
        "overlap-td": _speedups,
    }.items()
)
