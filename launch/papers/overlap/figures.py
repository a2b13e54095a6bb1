"""The figures of FLUX and Triton-distributed (TD): products that overlap with their AllGather or
ReduceScatter, simulated and compared with what is published."""

from functools import partial

from plots.draw.chart import Axis, Chart, Marks, Spot, polyline
from plots.draw.page import line_handle, log_ticks, number
from plots.draw.style import LineStyle
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options

from ..claims import Rows
from ..drawing import draw_page, drawn
from .rows import read_tables

_PRODUCTS = {
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
#: The looks of series, by their place in the legend.
_LOOKS = tuple(
    LineStyle(color, marker, "-")
    for color, marker in (
        ("#E69F00", "s"),
        ("#0072B2", "o"),
        ("#D55E00", "D"),
        ("#009E73", "^"),
        ("#CC79A7", "v"),
        ("#8C8C8C", "P"),
    )
)


def _looks(names) -> dict:
    return dict(zip(names, _LOOKS))


def _by_m(rows, least: float) -> tuple[list[int], Axis, Axis]:
    """All m, and axes of efficiencies by m, a place each."""
    ms = sorted(rows.m.unique())
    names = [f"{m // 1024}Ki" if m >= 1024 else str(m) for m in ms]
    x = Axis("m", (-0.3, len(ms) - 0.7), ticks=dict(enumerate(names)))
    return ms, x, Axis("efficiency (%)", (least - 5, 105))


def _spots(rows, ms: list[int], least: float) -> dict[int, Spot]:
    """Efficiencies by the place of m; what is less than ``least`` is drawn there."""
    values = rows.efficiency_percent.clip(lower=least)
    return {ms.index(m): Spot(value) for m, value in zip(rows.m, values)}


#: The figures of FLUX that have efficiencies; the least that is drawn: below it overlap only costs.
_FLUX, _LEAST = ["flux11", "flux12", "flux13", "flux14", "flux15"], -100


def _efficiencies(rows: Rows, options: Options) -> Made:
    """FLUX, Figures 4 and 11 to 15: the overlap efficiency by m, a line a method; what FLUX's text
    says of a figure is shaded."""
    every = drawn(rows, _FLUX, method=["chunks", "flux"])
    ms, x, y = _by_m(every, _LEAST)
    looks = _looks(every.groupby(["method", "ranks"]).groups)
    charts, bands = [], []
    for (machine, product), found in every.groupby(["machine", "product"], sort=False):
        spots = {name: _spots(of, ms, _LEAST) for name, of in found.groupby(["method", "ranks"])}
        marks = [
            polyline(" ".join(map(str, name)), looks[name], sorted(at), at)
            for name, at in spots.items()
        ]
        title = f"{_PRODUCTS[product]}, {_MACHINES[machine]}"
        charts.append(Chart(title, "n, k = {n}, {k}".format(**found.iloc[0]), x, y, marks))
        of = rows.ranges
        of = of[(of.machine == machine) & (of.quantity == "efficiency_percent") & of.low.notna()]
        bands.append([(each, _spots(found[found.study == each.study], ms, 0)) for each in
                      of.itertuples() if each.study in {*found.study}])  # fmt: skip
    handles = [
        line_handle(f"{_NAMES[method]}, {ranks} GPUs", look)
        for (method, ranks), look in looks.items()
    ]
    notes = [
        "efficiency: 1 - ECT / ECT of the collective (FLUX, Eq. 2), simulated",
        "shaded: the range that FLUX's text gives of a figure, of both operations together",
        f"below {_LEAST} % drawn at {_LEAST} %",
    ]
    made, every_axes = draw_page(charts, handles, notes, 1.3)
    for axes, inside in zip(every_axes, bands):
        for each, at in inside:
            ends = [min(at) - 0.2, max(at) + 0.2]
            color = looks[each.method, each.ranks].color
            low, high = max(each.low, _LEAST), max(each.high, _LEAST)
            band = axes.fill_between(ends, low, high, color=color, alpha=0.15, linewidth=0)
            named(band, f"{each.method}, {each.study}, the paper")
    return made


def _against(
    studies: list[str], column: str, title: str, per: float, rows: Rows, options: Options
) -> Made:
    """Our numbers over the paper's, by the paper's: a mark a row, a panel an operation."""
    ours = drawn(rows, studies)
    key = ["study", "machine", "ranks", "product", "m", "n", "k", "method"]
    key += ["variant"] * (column == "seconds")  # which experts
    paper = rows.table[rows.table["mode"] == "published"]
    both = paper.merge(ours, on=key, suffixes=("", "_ours"))
    both = both.assign(x=per * both[column], y=both[f"{column}_ours"] / both[column])
    looks = _looks(both.groupby(["method", "machine", "ranks"], sort=False).groups)
    ends = [(0.9 * both[side].min(), 1.1 * max(both[side].max(), 1.0)) for side in "xy"]
    x, y = (
        Axis(text, limits, 10, log_ticks(*limits, number))
        for text, limits in zip((title, "ours ÷ the paper's"), ends)
    )
    charts = []
    for product, found in both.groupby("product", sort=False):
        marks = [
            Marks("points", " ".join(map(str, name)), list(of.x), list(of.y), (), looks[name])
            for name, of in found.groupby(["method", "machine", "ranks"], sort=False)
        ]
        marks.append(Marks("rule", "as published", ends[0], [1, 1]))
        of = "Figures" if column == "speedup" else "Table"
        numbers = ", ".join(dict.fromkeys(s.strip("td-able") for s in found.study))
        charts.append(Chart(_PRODUCTS[product], f"{of} {numbers}", x, y, marks))
    handles = [
        line_handle(f"{_NAMES[method]}, {ranks} {_MACHINES[machine]}", look._replace(dashes="None"))
        for (method, machine, ranks), look in looks.items()
    ]
    made, _ = draw_page(charts, handles, ["ours: simulated"], 2.0)
    return made


#: Likewise, of headroom.
_LEAST_HEADROOM = 0


def _headroom(rows: Rows, options: Options) -> Made:
    """The best efficiency that overlap can have by m, and that of the fastest program, a colour a
    layer; what lies between is shaded. A column of panels an
    operation."""
    every = drawn(rows, "headroom")
    every = every.assign(layer=[f"{max(nk)} x {min(nk)}" for nk in zip(every.n, every.k)])
    ms, x, y = _by_m(every, _LEAST_HEADROOM)
    looks = _looks(every.layer.unique())
    ways = {"bound": ("best possible", (0, (3, 1.5)), ""), "best": ("fastest program", "-", "o")}
    styled = lambda layer, way: looks[layer]._replace(dashes=ways[way][1], marker=ways[way][2])
    charts, by = [], ["machine", "ranks", "product"]
    for (machine, ranks, product), found in every.groupby(by, sort=False):
        marks = []
        for (layer, way), of in found.groupby(["layer", "method"]):
            spots = _spots(of, ms, _LEAST_HEADROOM)
            marks.append(polyline(f"{way} {layer}", styled(layer, way), sorted(spots), spots))
        title = f"{ranks} {_MACHINES[machine]}"
        charts.append(Chart(title, _PRODUCTS[product], x, y, marks))
    handles = [
        line_handle(f"layer of {layer}: {ways[way][0]}", styled(layer, way))
        for layer in looks
        for way in ways
    ]
    notes = [
        "efficiency: 1 - ECT / ECT of the collective (FLUX, Eq. 2), simulated",
        "best possible: product, busiest link and sums overlap entirely; shaded: headroom",
        f"below {_LEAST_HEADROOM} % drawn at {_LEAST_HEADROOM} %",
    ]
    made, every_axes = draw_page(charts, handles, notes, 1.0)
    for axes, chart in zip(every_axes, charts):
        for best, bound in zip(chart.marks[::2], chart.marks[1::2]):
            color = bound.look.color
            axes.fill_between(bound.x, best.y, bound.y, color=color, alpha=0.15, linewidth=0)
    return made


_TD = ["td11", "td12", "td13", "td14", "td17", "td18"]
_TABLES = ["td-table4", "td-table5"]
FIGURES = tuple(
    Figure(f"overlap-{name}", summary, make, read=read_tables)
    for name, summary, make in (
        ("headroom", "the best overlap efficiency of a machine by shape, and ours", _headroom),
        (
            "flux",
            "FLUX, Figures 4 and 11 to 15: overlap efficiency by machine and m",
            _efficiencies,
        ),
        (
            "td",
            "Triton-distributed, Figures 11 to 14, 17, 18: speedups, ours over the paper's",
            partial(_against, _TD, "speedup", "speedup over no overlap, the paper's", 1.0),
        ),
        (
            "td-experts",
            "Triton-distributed, Tables 4 and 5: times with experts, ours over the paper's",
            partial(_against, _TABLES, "seconds", "time (ms), the paper's", 1e3),
        ),
    )
)
