"""Bus bandwidth against size: one panel a transport, one line a kind of transfer, the copy in
memory as what nothing passes by much.

Solid lines are one-sided, dashed ones collectives; upright lines are the 95 % interval of
the median.
"""

from collections.abc import Iterable
from itertools import groupby
from math import log2
from statistics import median
from typing import NamedTuple

from plots.draw.chart import (
    Axis,
    Chart,
    Charts,
    Spot,
    draw_chart,
    label_lines,
    panels,
    polyline,
)
from plots.draw.page import GREY, GRID, bytes_text, log_ticks, number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError
from plots.select.selection import doubts
from plots.select.typed_rows import Rows

#: What is measured, by the names that machine models have.
OPERATIONS = (
    "get",
    "put",
    "accumulate",
    "broadcast",
    "allgather",
    "reduce",
    "reducescatter",
    "shift",
)
#: Collectives of which each rank has a share already, or keeps one: (p - 1) / p of their size
#: crosses its link.
DIVIDED = ("allgather", "reducescatter")
#: The roof: a copy inside a rank's own memory, through the same executor. STREAM counts twice as
#: much, the bytes that are read and those that are written.
COPY = "copy"


class BandwidthRow(NamedTuple):
    """One kind of transfer at one size, all ranks at once; GB are 1e9 bytes.

    Attributes
    ----------
    operation : str
        A name of :data:`OPERATIONS`, or :data:`COPY`.
    nbytes : int
        Of one transfer; of allgather and reducescatter the whole of what is divided.
    transfers : int
        Of one repeat, whose time is divided by it.
    median_s, median_low_s, median_high_s : float or None
        Of one transfer, the slowest rank; 95 % interval of the median. None if there are none.
    algorithm_gbps, bus_gbps : float or None
        See :func:`bus_bandwidth`.
    reason : str
        Why there are none.
    noisy : bool or None
        Whether nothing can be concluded: the ranks lacked their cores, or the samples spread by
        more than a fifth. None in rows of before it was told.
    core_share : float or None
        The share of its core that the rank with the least of it had, median of the samples.
    """

    label: str
    transport: str
    backend: str
    dtype: str
    ranks: int
    nodes: int
    operation: str
    nbytes: int
    transfers: int
    samples: int
    median_s: float | None
    median_low_s: float | None
    median_high_s: float | None
    algorithm_gbps: float | None
    bus_gbps: float | None
    mpi: str
    reason: str
    noisy: bool | None = None
    core_share: float | None = None


def bus_bandwidth(operation: str, nbytes: int, seconds: float, ranks: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s.

    The first is bytes over time. The second is what crosses a rank's link, whatever the number p of
    ranks, and so can be held against the hardware: (p - 1) / p of it for :data:`DIVIDED`, all of it
    for the others.

    Notes
    -----
    Collectives as nccl-tests count them (broadcast, reduce, sendrecv: 1; allgather, reduce-scatter:
    (n - 1) / n), https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; get, put and
    accumulate as osu_get_bw, osu_put_bw and osu_acc_latency of the OSU Micro-Benchmarks count
    bytes: once.

    Examples
    --------
    >>> bus_bandwidth("allgather", 10**9, 0.5, 4), bus_bandwidth("get", 10**9, 0.5, 4)
    ((2.0, 1.5), (2.0, 2.0))
    """
    rate = nbytes / seconds / 1e9
    return rate, rate * (ranks - 1) / ranks if operation in DIVIDED else rate


def row_of(measured: dict, **about) -> BandwidthRow:
    """A row of what the ranks measured: ``operation``, ``nbytes``, ``times``, ``samples_s`` and the
    ``interval`` of their median, ``noisy`` and ``core_share``, or the ``reason`` why there are
    none."""
    samples = measured.get("samples_s", [])
    row = BandwidthRow(
        operation=measured["operation"],
        nbytes=measured["nbytes"],
        transfers=measured["times"],
        samples=len(samples),
        **dict.fromkeys(BandwidthRow._fields[10:15]),
        reason=measured.get("reason", ""),
        **about,
    )
    if not samples:
        return row
    middle, (low, high) = median(samples), measured["interval"]
    algorithm, bus = bus_bandwidth(row.operation, row.nbytes, middle, row.ranks)
    return row._replace(
        median_s=middle,
        median_low_s=low,
        median_high_s=high,
        algorithm_gbps=algorithm,
        bus_gbps=bus,
        noisy=measured["noisy"],
        core_share=measured["core_share"],
    )


#: The files of such rows.
ROWS = Rows(BandwidthRow, "bandwidths", "drbench bandwidth --csv FILE")

_DASHED = (0, (4, 1.6))
LOOKS = {
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
_HIGH_IN, _ROOM_IN = 3.0, (0.56, 0.85)


def _panels(rows: Iterable[BandwidthRow]) -> list[tuple[tuple, list[BandwidthRow]]]:
    """The rows of each machine, transport, backend, element type and number of ranks; of several of
    one kind and size the latest."""
    source = lambda row: (row.label, row.ranks, row.nodes, row.transport, row.backend, row.dtype)
    latest = {(source(row), row.operation, row.nbytes): row for row in rows if row.median_s}
    if not latest:
        raise SelectionError(
            "there is no bandwidth to draw. Measure some with drbench bandwidth --csv FILE."
        )
    found = sorted(latest.values(), key=lambda row: (source(row), row.nbytes))
    return [(key, list(inside)) for key, inside in groupby(found, source)]


def charts(rows: Iterable[BandwidthRow], options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    rows = list(rows)
    notes = sorted({f"not drawn: {row.operation}: {row.reason}" for row in rows if row.reason})
    drawn = _panels(rows)
    notes += doubts([row.noisy for _, inside in drawn for row in inside], [])
    return [_chart(*panel) for panel in drawn], notes


def _interval(row: BandwidthRow) -> list[float]:
    """The ends of the interval of the bus bandwidth."""
    ends = row.median_high_s, row.median_low_s
    return [bus_bandwidth(row.operation, row.nbytes, each, row.ranks)[1] for each in ends]


def _chart(source: tuple, rows: list[BandwidthRow]) -> Chart:
    label, ranks, nodes, transport, backend, dtype = source
    sizes, rates = sorted({row.nbytes for row in rows}), [row.bus_gbps for row in rows]
    room = max(1.3, (max(rates) / min(rates)) ** 0.05)
    limits = min(rates) / room, max(rates) * room
    step = max(1, -(-len(sizes) // 7))
    marks = []
    for name in (*OPERATIONS, COPY):
        its = {
            row.nbytes: Spot(row.bus_gbps, None, bool(row.noisy), *_interval(row))
            for row in rows
            if row.operation == name
        }
        if its:  # what is divided may be some bytes smaller
            marks.append(polyline(name, LOOKS[name], sorted(its), its))
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
        Axis("bus bandwidth (GB/s)", limits, 10, log_ticks(*limits, number)),
        marks,
    )


def finding(charts: list[Chart]) -> str:
    """What the fastest transfer of the first panel reaches, next to a copy in memory."""
    most = {marks.name: max(y for y in marks.y if y == y) for marks in charts[0].marks}
    copy = most.pop(COPY, None)
    if not most:
        return ""
    best = max(most, key=most.get)
    beside = f", {number(100 * most[best] / copy)} % of a copy in memory" if copy else ""
    return f"{best} reaches {number(most[best])} GB/s{beside}"


def make(rows: Iterable[BandwidthRow], options: Options) -> Made:
    """Draw the panels, two in a row."""
    found, notes = charts(rows, options)
    about = (
        "a rank's bytes over the median time of the slowest rank, all ranks at once; upright: 95 % "
        "interval of the median. Of allgather and reducescatter (p - 1) / p of their size crosses "
        "a rank's link. copy: inside a rank's own memory"
    )
    page, axes = panels(found, (), [about, *notes], _HIGH_IN, 2, _ROOM_IN, finding=finding(found))
    for each, chart in zip(axes, found):
        draw_chart(each, chart)
        each.grid(**GRID)
        label_lines(each, chart, _ROOM_IN[1])
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "bandwidth",
        "bandwidth of get, put, accumulate and collectives against size, beside a copy in memory",
        make,
        read=ROWS.read,
    ),
)
