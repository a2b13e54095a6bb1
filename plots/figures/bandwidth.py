"""Bus bandwidth against size: one panel a transport, one line a kind of transfer, and a copy in
memory as the upper limit.

Solid lines are one-sided, dashed ones collectives; vertical lines are the 95 % interval of
the median.
"""

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from math import log2

from drbench.plots.draw.chart import Axis, Chart, Charts, Spot, labelled_panels, polyline
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.numbers import log_ticks
from drbench.plots.draw.page import GREY
from drbench.plots.draw.style import LineStyle
from drbench.plots.select.bandwidth_rows import COPY, OPERATIONS, ROWS, BandwidthRow, bus_bandwidth
from drbench.plots.select.cases import Options, SelectionError, cases
from drbench.texts import bytes_text, number

_DASHED = (0, (4, 1.6))
STYLES = {
    "get": LineStyle("#0072B2", "o", "-"),
    "put": LineStyle("#009E73", "s", "-"),
    "accumulate": LineStyle("#D55E00", "^", "-"),
    "broadcast": LineStyle("#56B4E9", "D", _DASHED),
    "allgather": LineStyle("#CC79A7", "v", _DASHED),
    "reduce": LineStyle("#E69F00", "P", _DASHED),
    "reducescatter": LineStyle("#5B3A8C", "X", _DASHED),
    "shift": LineStyle("#7F7F00", "p", _DASHED),
    COPY: LineStyle(GREY, "", (0, (1, 1.2))),
}
_HIGH_IN, _MARGINS_IN = 3.0, (0.56, 0.85)


def _panels(rows: Iterable[BandwidthRow]) -> list[tuple[tuple, list[BandwidthRow]]]:
    """The rows of each machine, transport, backend, element type and number of ranks; of several of
    one kind and size the latest."""
    source = lambda row: (row.label, row.ranks, row.nodes, row.transport, row.backend, row.dtype)
    latest = {(source(row), row.operation, row.nbytes): row for row in rows if row.median_s}
    if not latest:
        raise SelectionError(
            "there is no bandwidth to draw. Measure some with drbench bandwidth --csv FILE."
        )
    ordered = sorted(latest.values(), key=lambda row: (source(row), row.nbytes))
    return [(key, list(inside)) for key, inside in groupby(ordered, source)]


def charts(rows: Iterable[BandwidthRow], options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    rows = list(rows)
    notes = sorted({f"not drawn: {row.operation}: {row.reason}" for row in rows if row.reason})
    drawn = _panels(rows)
    noise = sum(bool(row.noisy) for _, inside in drawn for row in inside)
    notes += [f"hollow: {cases(noise, 'noisy case')}, never ranked"] * bool(noise)
    return [_chart(*panel) for panel in drawn], notes


def _interval(row: BandwidthRow) -> list[float]:
    """The ends of the interval of the bus bandwidth."""
    ends = row.median_high_s, row.median_low_s
    return [bus_bandwidth(row.operation, row.nbytes, end_s, row.ranks)[1] for end_s in ends]


def _chart(source: tuple, rows: list[BandwidthRow]) -> Chart:
    label, ranks, nodes, transport, backend, dtype = source
    sizes, rates = sorted({row.nbytes for row in rows}), [row.bus_gbps for row in rows]
    headroom = max(1.3, (max(rates) / min(rates)) ** 0.05)
    limits = min(rates) / headroom, max(rates) * headroom
    step = max(1, -(-len(sizes) // 7))
    marks = []
    for name in (*OPERATIONS, COPY):
        its = {
            row.nbytes: Spot(row.bus_gbps, None, bool(row.noisy), *_interval(row))
            for row in rows
            if row.operation == name
        }
        if its:  # a divided matrix may be some bytes smaller
            marks.append(polyline(name, STYLES[name], sorted(its), its))
    return Chart(
        f"{transport}, {ranks} ranks",
        f"{label}, {nodes} node(s), {backend}, {dtype}",
        Axis(
            "size of a transfer",
            (sizes[0] / 1.3, sizes[-1] * 1.3),
            2,
            {size: bytes_text(size) for size in sizes[::step] if log2(size) % 1 == 0}
            or {size: bytes_text(size) for size in sizes[::step]},
        ),
        Axis("bus bandwidth (GB/s)", limits, 10, log_ticks(*limits)),
        marks,
    )


def finding(charts: list[Chart], most: int = 3) -> str:
    """The largest bandwidth of a transfer in each of some panels, compared with a copy in memory;
    noisy ones do not count."""
    several = len(charts) > 1
    texts = [f"{chart.title}: " * several + _largest(chart) for chart in charts]
    more = f"; {len(texts) - most} panels more" * (len(texts) > most)
    text = "; ".join(texts[:most]) + more
    return text[0].upper() + text[1:]


def _largest(chart: Chart) -> str:
    sure = {
        marks.name: [y for y, hollow in zip(marks.y, marks.hollow) if y == y and not hollow]
        for marks in chart.marks
    }
    most = {name: max(rates) for name, rates in sure.items() if rates}
    copy = most.pop(COPY, None)
    if not most:
        return "nothing is ranked"
    best = max(most, key=most.get)
    comparison = f", {number(100 * most[best] / copy)} % of a copy in memory" if copy else ""
    return f"{best} reaches {number(most[best])} GB/s{comparison}"


def make(rows: Iterable[BandwidthRow], options: Options) -> Made:
    """Draw the panels, two in a row."""
    described, notes = charts(rows, options)
    description = (
        "a rank's bytes over the median time of the slowest rank, all ranks at once; vertical: "
        "95 % interval of the median. Of allgather and reducescatter (p - 1) / p of their size "
        "crosses a rank's link. copy: inside a rank's own memory"
    )
    text = [description, *notes]
    page, _ = labelled_panels(described, text, _HIGH_IN, _MARGINS_IN, partial(finding, described))
    return Made(page.picture, notes)


FIGURES = (Figure.listed("bandwidth", make, ("height",), ROWS.read),)
