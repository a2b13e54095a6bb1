"""The figures of FLUX and Triton-distributed (TD): products that overlap with their AllGather or
ReduceScatter, simulated beside what is published.

Drawn from the rows of ``python -m launch.papers``; those of mode ``published`` are stars, and
the ranges that FLUX's text gives of a figure as a whole are shaded.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from matplotlib.lines import Line2D

from plots.draw.chart import Axis, Chart, Marks, Spot, draw_axis, draw_bars, panels, polyline
from plots.draw.page import (
    GRID,
    MARKER_PT,
    line_handle,
    line_look,
    log_ticks,
    number,
    patch_handle,
)
from plots.draw.style import SMALL_PT, Fill, LineStyle
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError

from .rows import RANGES, ROWS, OverlapRange, OverlapRow

#: By method; the order of bars.
_METHODS = {
    "collective": Fill("nothing overlaps", "#8C8C8C"),
    "chunks": Fill("chunks (Transformer Engine)", "#E69F00", "////"),
    "flux": Fill("FLUX", "#0072B2"),
    "td": Fill("Triton-distributed", "#009E73"),
}
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
_LINES = (
    LineStyle("#0072B2", "o", "-"),
    LineStyle("#D55E00", "s", (0, (4, 1.6))),
)
_STAR = {"linestyle": "", "marker": "*", "markersize": MARKER_PT + 3, "color": "black"}
_STAR |= {"markeredgewidth": 0.5, "zorder": 5, "clip_on": False}


class _Source:
    """Rows and ranges of files, told apart by their headers."""

    def __init__(self, rows: Sequence[OverlapRow], ranges: Sequence[OverlapRange]):
        self.rows, self.ranges = list(rows), list(ranges)

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, study: str, mode: str = "simulated", **fields) -> list[OverlapRow]:
        """Rows of a study with these values.

        Raises
        ------
        SelectionError
            If there are no simulated ones.
        """
        found = [row for row in self.rows if row.study == study and row.mode == mode]
        if mode == "simulated" and not found:
            raise SelectionError(
                f"no rows of the study {study} in {len(self.rows)}. Make some with python -m "
                f"launch.papers DIR {study}."
            )
        return [
            row
            for row in found
            if all(getattr(row, name) == value for name, value in fields.items())
        ]

    def range(self, study: str, machine: str, quantity: str, method: str) -> OverlapRange | None:
        """What a text says of a figure, if it says something."""
        for each in self.ranges:
            if (each.study, each.machine, each.quantity) == (study, machine, quantity):
                if each.method == method:
                    return each
        return None


def read(paths: Sequence) -> _Source:
    """Read rows and ranges from CSV files and folders of them.

    Raises
    ------
    ValueError
        If a file holds neither.
    """
    rows: list[OverlapRow] = []
    ranges: list[OverlapRange] = []
    for path in map(Path, paths):
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        for file in files:
            with open(file, encoding="utf-8", errors="replace") as opened:
                header = tuple(opened.readline().rstrip("\r\n").split(","))
            if header == OverlapRange._fields:
                ranges += RANGES.read([file])
            else:
                rows += ROWS.read([file])
    return _Source(rows, ranges)


def _title(row: OverlapRow, product: bool = True) -> str:
    machine = _MACHINES.get(row.machine, row.machine)
    return f"{_PRODUCTS[row.product]}, {machine}" if product else machine


def _told(rows: Sequence[OverlapRow]) -> str:
    first = rows[0]
    shapes = {(row.n, row.k) for row in rows}
    told = f"n, k = {first.n}, {first.k}; " if len(shapes) == 1 else ""
    return f"{told}{first.ranks} GPUs, {first.mode}"


def _page(charts, handles, notes, high_in=1.7):
    page, every = panels(charts, handles, notes, high_in, 2, (0.56, 0.12))
    for axes in every:
        axes.grid(axis="y", **GRID)
    return page, every


def _names(axes, chart: Chart, size: float = SMALL_PT) -> None:
    axes.set_xticks(list(chart.x.ticks), list(chart.x.ticks.values()), size=size)
    axes.set_xlim(chart.x.limits)
    axes.set_xlabel(chart.x.title)
    axes.tick_params(axis="x", length=0)
    draw_axis(axes, "y", chart.y)


#: The figures of FLUX that have efficiencies; the least that is drawn: below it overlap only costs.
_FLUX, _LEAST = ("flux11", "flux12", "flux13", "flux14", "flux15"), -100


def _efficiencies(source: _Source, options: Options) -> Made:
    """FLUX, Figures 4 and 11 to 15: the overlap efficiency by m, a line a method; what FLUX's text
    says of a figure is shaded."""
    every = [row for study in _FLUX for row in source.of(study) if row.method in _LOOKS]
    groups: dict = {}
    for row in every:
        groups.setdefault((row.machine, row.product), []).append(row)
    ms = sorted({row.m for row in every})
    x = Axis("m", (-0.3, len(ms) - 0.7), ticks=dict(enumerate(map(str, ms))))
    y = Axis("efficiency (%)", (_LEAST - 5, 105))
    charts, names = [], dict.fromkeys((row.method, row.ranks) for row in every)
    for rows in groups.values():
        marks = []
        for method, ranks in names:
            spots = {
                ms.index(row.m): Spot(max(row.efficiency_percent, _LEAST))
                for row in rows
                if (row.method, row.ranks) == (method, ranks)
            }
            marks.append(polyline(f"{method} {ranks}", _look(method, ranks), sorted(spots), spots))
        charts.append(Chart(_title(rows[0]), f"n, k = {rows[0].n}, {rows[0].k}", x, y, marks))
    handles = [
        line_handle(f"{_METHODS[method].name}, {ranks} GPUs", _look(method, ranks))
        for method, ranks in names
    ]
    notes = [
        "efficiency: 1 - ECT / ECT of the collective (FLUX, Eq. 2), simulated",
        "shaded: the range that FLUX's text gives of a figure, of both operations together",
        f"below {_LEAST} % drawn at {_LEAST} %",
    ]
    page, axes_of = _page(charts, handles, notes, 1.3)
    for axes, chart, (machine, _) in zip(axes_of, charts, groups):
        for each in source.ranges:
            if each.machine != machine or each.quantity != "efficiency_percent":
                continue
            of = [row for row in every if (row.study, row.machine) == (each.study, machine)]
            at = sorted({ms.index(row.m) for row in of})
            if at and each.method in _LOOKS and each.low is not None:
                low, high = max(each.low, _LEAST), max(each.high, _LEAST)
                ends = [at[0] - 0.2, at[-1] + 0.2]
                color = _LOOKS[each.method].color
                band = axes.fill_between(ends, low, high, color=color, alpha=0.15, linewidth=0)
                named(band, f"{each.method}, {each.study}, the paper")
        _lines(axes, chart)
    return Made(page.picture, [])


#: Of lines of efficiency.
_LOOKS = {
    "chunks": LineStyle("#E69F00", "s", (0, (4, 1.6))),
    "flux": LineStyle("#0072B2", "o", "-"),
}


def _look(method: str, ranks: int) -> LineStyle:
    look = _LOOKS[method]
    return look if ranks <= 8 else look._replace(marker="D", color="#D55E00")


def _lines(axes, chart: Chart) -> None:
    for marks in chart.marks:
        (line,) = axes.plot(marks.x, marks.y, zorder=3, clip_on=False, **line_look(marks.look))
        named(line, marks.name)
    _names(axes, chart)


#: The figures of TD that have speedups.
_TD = ("td11", "td12", "td13", "td14", "td17", "td18")


def _speedups(source: _Source, options: Options) -> Made:
    """TD, Figures 11 to 14, 17 and 18: speedup over the collective, and the paper's as stars."""
    charts, drawn, key = [], [], lambda row: (row.m, row.n, row.k)
    every = [row.speedup for row in source.rows if row.study in _TD and row.speedup]
    y = Axis("speedup", (0, 1.12 * max(every, default=1)))
    for study in _TD:
        rows = source.of(study, method="td")
        stars = {
            method: {key(r): r.speedup for r in source.of(study, "published", method=method)}
            for method in ("td", "flux")
        }
        ticks = {at: "{}\n{}\n{}".format(*key(row)) for at, row in enumerate(rows)}
        x = Axis("m, n, k", (-0.6, len(rows) - 0.4), ticks=ticks)
        charts.append(Chart(_title(rows[0]), _told(rows), x, y, ()))
        drawn.append((rows, stars))
    handles = [patch_handle(_METHODS["td"]._replace(name="Triton-distributed, simulated"))]
    fills = {"td": ("Triton-distributed", "black"), "flux": ("FLUX", "white")}
    for name, fill in fills.values():
        look = _STAR | {"markerfacecolor": fill}
        handles.append(Line2D([], [], **look, label=f"{name}, the paper"))
    page, axes_of = panels(charts, handles, [], 1.4, 2, (0.56, 0.12), 0.66)
    for axes, chart, (rows, stars) in zip(axes_of, charts, drawn):
        axes.grid(axis="y", **GRID)
        values, look = [row.speedup for row in rows], _METHODS["td"]
        draw_bars(axes, Marks("bars", "td", range(len(rows)), values, look=look))
        axes.axhline(1, color="#555555", linewidth=0.8, zorder=3)
        for method, (_, fill) in fills.items():
            at = [(x, stars[method].get(key(row))) for x, row in enumerate(rows)]
            if at := [(x, y) for x, y in at if y is not None]:
                named(
                    axes.plot(*zip(*at), **_STAR | {"markerfacecolor": fill})[0],
                    f"{method}, published",
                )
        _names(axes, chart, SMALL_PT - 1.5)
    return Made(page.picture, [])


#: Of the tables of experts: method -> what the legend calls it.
_EXPERTS = {"td": "Triton-distributed", "pytorch": "loop over experts (PyTorch)"}


def _tables(study: str, source: _Source, options: Options) -> Made:
    """TD, Tables 4 and 5: milliseconds of each row, simulated joined by a line within a layer, the
    paper's as stars; a panel a number of GPUs."""
    every = source.of(study)
    papers = source.of(study, "published")
    looks = {"td": LineStyle("#009E73", "o", "-"), "pytorch": LineStyle("#8C8C8C", "s", "-")}
    layer = lambda row: (row.n, row.k, row.variant)
    charts, stars = [], []
    seconds = [row.seconds for row in [*every, *papers]]
    top, least = 1e3 * max(seconds), 1e3 * min(seconds)
    y = Axis("time (ms)", (0.6 * least, 1.8 * top), 10, log_ticks(least, top, number))
    for ranks in sorted({row.ranks for row in every}):
        here = [row for row in every if row.ranks == ranks]
        keys = list(dict.fromkeys((*layer(row), row.m) for row in here))
        by_layer = len({key[:3] for key in keys}) < len(keys)
        layers = list(dict.fromkeys(key[:3] for key in keys))
        gap = 1 if by_layer else 0  # between layers
        at = {key: place + gap * layers.index(key[:3]) for place, key in enumerate(keys)}
        where = lambda row: at[(*layer(row), row.m)]
        marks = []
        for method, look in looks.items():
            for of in dict.fromkeys(layer(row) for row in here):
                mine = sorted((r for r in here if layer(r) == of and r.method == method), key=where)
                spots = {where(row): Spot(1e3 * row.seconds) for row in mine}
                marks.append(polyline(_EXPERTS[method], look, list(spots), spots))
        ends = (-0.7, max(at.values()) + 0.7)
        ms = {row.m for row in here}
        told = f"{ranks} GPUs, {'one node' if ranks <= 8 else 'two nodes'}"
        told += f", {here[0].m} tokens" if len(ms) == 1 else ""
        title = "tokens; experts; n x k" if by_layer else "experts; n x k"
        x = Axis(title, ends, ticks=_expert_ticks(at, by_layer))
        charts.append(Chart(_title(here[0]), told, x, y, marks))
        stars.append([
            (where(row), 1e3 * row.seconds, row.method)
            for row in papers if row.ranks == ranks and (*layer(row), row.m) in at
        ])  # fmt: skip
    handles = []
    for method, look in looks.items():
        handles.append(line_handle(f"{_EXPERTS[method]}, simulated", look))
        handles.append(
            Line2D([], [], **_STAR | {"color": look.color}, label=f"{_EXPERTS[method]}, the paper")
        )
    page, axes_of = panels(charts, handles, [], 2.0, 1, (0.56, 0.12), 0.72)
    for axes, chart, found in zip(axes_of, charts, stars):
        axes.grid(axis="y", **GRID)
        for marks in chart.marks:
            (line,) = axes.plot(marks.x, marks.y, zorder=3, clip_on=False, **line_look(marks.look))
            named(line, marks.name)
        for method, look in looks.items():
            spots = [(x, y) for x, y, each in found if each == method]
            if spots:
                (drawn,) = axes.plot(*zip(*spots), **_STAR | {"color": look.color})
                named(drawn, f"{_EXPERTS[method]}, published")
        _names(axes, chart, SMALL_PT - 0.5)
    return Made(page.picture, [])


def _expert_ticks(at: dict[tuple, float], by_layer: bool) -> dict[float, str]:
    """What stands under the rows of a table: the layer, or tokens, and in the middle of those of a
    layer what it is.

    Examples
    --------
    >>> row = (1408, 2048, "60 experts, top 4")
    >>> _expert_ticks({(*row, 2048): 0}, False)
    {0: '60 experts\\ntop 4\\n1408 x 2048'}
    >>> _expert_ticks({(*row, 2048): 0, (*row, 4096): 1}, True)
    {0: '2048', 1: '4096', 0.5: '\\n60 experts, top 4\\n1408 x 2048'}
    """
    layers: dict[tuple, list[float]] = {}
    for (*layer, _), place in at.items():
        layers.setdefault(tuple(layer), []).append(place)
    found = {place: str(m) if by_layer else "" for (*_, m), place in at.items()}
    for (n, k, variant), places in layers.items():
        middle = sum(places) / len(places) if by_layer else places[0]
        told = variant if by_layer else variant.replace(", ", "\n")
        lines = [found.get(middle, "")] * by_layer + [told, f"{n} x {k}"]
        found[middle] = "\n".join(lines)
    return found


#: Likewise, of headroom.
_LEAST_HEADROOM = -25


def _headroom(source: _Source, options: Options) -> Made:
    """The best efficiency that overlap can have by m, and that of the fastest program, a colour a
    layer; what lies between is shaded."""
    groups: dict = {}
    for row in source.of("headroom"):
        groups.setdefault((row.machine, row.ranks, row.product), []).append(row)
    layers = list(dict.fromkeys(frozenset((r.n, r.k)) for rows in groups.values() for r in rows))
    charts, drawn = [], []
    for (_, ranks, _), rows in groups.items():
        ms = sorted({row.m for row in rows})
        marks = []
        for at, layer in enumerate(layers):
            for method, dashes in (("bound", (0, (3, 1.5))), ("best", "-")):
                look = _LINES[at]._replace(dashes=dashes, marker="" if method == "bound" else "o")
                spots = {
                    ms.index(row.m): Spot(max(row.efficiency_percent, _LEAST_HEADROOM))
                    for row in rows
                    if row.method == method and frozenset((row.n, row.k)) == layer
                }
                marks.append(polyline(f"{method} {at}", look, range(len(ms)), spots))
        x = Axis("m", (-0.2, len(ms) - 0.8), ticks=dict(enumerate(map(str, ms))))
        y = Axis("efficiency (%)", (_LEAST_HEADROOM - 3, 105))
        charts.append(Chart(_title(rows[0]), f"{ranks} GPUs, simulated", x, y, marks))
        drawn.append(marks)
    handles = []
    for at, layer in enumerate(layers):
        wide, deep = sorted(layer, reverse=True)
        told = f"layer of {wide} x {deep}"
        solid, dashed = (_LINES[at]._replace(dashes=each) for each in ("-", (0, (3, 1.5))))
        handles.append(line_handle(f"{told}: best possible", dashed._replace(marker="")))
        handles.append(line_handle(f"{told}: fastest program", solid._replace(marker="o")))
    notes = [
        "efficiency: 1 - ECT / ECT of the collective (FLUX, Eq. 2)",
        "best possible: product, busiest link and sums overlap entirely; shaded: headroom",
        f"below {_LEAST_HEADROOM} % drawn at {_LEAST_HEADROOM} %",
    ]
    page, every = _page(charts, handles, notes, 1.15)
    for axes, chart, marks in zip(every, charts, drawn):
        for bound, found in zip(marks[::2], marks[1::2]):
            color = bound.look.color
            axes.fill_between(bound.x, found.y, bound.y, color=color, alpha=0.15, linewidth=0)
        _lines(axes, chart)
    return Made(page.picture, [])


FIGURES = tuple(
    Figure(f"overlap-{name}", summary, make, read=read)
    for name, summary, make in (
        ("headroom", "the best overlap efficiency of a machine by shape, and ours", _headroom),
        (
            "flux",
            "FLUX, Figures 4 and 11 to 15: overlap efficiency by machine and m",
            _efficiencies,
        ),
        (
            "td",
            "Triton-distributed, Figures 11 to 14, 17, 18: speedup over no overlap",
            _speedups,
        ),
        *(
            (
                f"td-table{number}",
                f"Triton-distributed, Table {number}: time of {told}, 8 and 16 H800",
                partial(_tables, f"td-table{number}"),
            )
            for number, told in ((4, "AllGather + experts"), (5, "experts + ReduceScatter"))
        ),
    )
)
