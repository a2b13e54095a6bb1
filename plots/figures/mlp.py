"""Figures 2 and 3: percent of peak against batch size for the layers of a GPT-like MLP.

One panel a layer and source, all on one axis, one line a partitioning, named at its end.
:mod:`plots.select.selection` chooses the case of a point; the small print has its replication
factors where one is not 1.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import ceil, floor

from matplotlib.figure import Figure

from drbench.measure.decision import FASTEST, answer, best_at, decide, remedy
from plots.draw.chart import Axis, Chart, Spot, labelled_panels, polyline
from plots.draw.page import GRID
from plots.draw.style import STYLES
from plots.registry import Figure as Figure_
from plots.registry import Made
from plots.select.cases import Options, SelectionError
from plots.select.panels import select_panels
from plots.select.records import Records
from plots.select.selection import Line, doubts, missing
from plots.summaries import SUMMARIES

_HIGH_IN, _MARGINS_IN = 2.3, (0.5, 1.1)
_GRID = GRID | {"axis": "y", "color": "#DDDDDD"}
#: The lines of each panel.
Panels = dict[str, list[Line]]
_LEAST_SPAN = 20  # of the axis, in percent: smaller differences are noise
_WHAT = {"percent_of_gemm_only": "GEMM-only speed", "percent_of_peak": "peak"}


def not_drawn(panels: Panels) -> list[str]:
    """Return notes on omitted lines, each with its panel."""
    return [f"{name}: {text}" for name, lines in panels.items() for text in missing(lines)]


def figure(chosen: Panels, axis: str = Options.axis) -> Figure:
    """Build the figure from the selected lines of each panel, two panels in a row; a panel needs a
    line with a point.

    Raises
    ------
    SelectionError
        If no panel has one.
    """
    drawn = {name: [line for line in lines if line.points] for name, lines in chosen.items()}
    drawn = {name: lines for name, lines in drawn.items() if lines}
    if not drawn:
        raise SelectionError(f"nothing to draw for {'; '.join(not_drawn(chosen))}. Run more cases.")
    limits, step = ends([end for lines in drawn.values() for end in _reach(lines)], axis)
    described = [_chart(lines, limits, step) for lines in drawn.values()]
    title, needs = finding([*drawn.values()])
    notes = _notes(chosen, drawn) + [f"undecided: {needs}"] * bool(needs)
    page, every = labelled_panels(described, notes, _HIGH_IN, _MARGINS_IN, title, _GRID)
    for axes in every:
        if limits[0] < 100 < limits[1]:
            axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    return page.picture


def finding(drawn: Sequence[Sequence[Line]]) -> tuple[str, str]:
    """The decision at the largest batch size of each panel of the first source, among the lines of
    that source; of the fastest also its percentage. Then what would decide the others."""
    source, texts, every = _own(drawn[0]).points[0].source, [], []
    for lines in drawn:
        points = [point for line in lines for point in line.points if point.source == source]
        largest = [point for point in points if point.m == max(point.m for point in points)]
        if largest:
            decisions = decide([point.run for point in largest])
            names = [point.line.removeprefix("UA - ") for point in largest]
            at, text = best_at(decisions), answer(decisions, names)
            if at is not None and decisions[at].state == FASTEST:
                text += f", {largest[at].value:.0f} % of {_WHAT[lines[0].quantity]}"
            texts.append(f"MLP-{largest[0].layer[-1]}, m = {largest[0].m}: {text}")
            every.append(decisions)
    return "; ".join(texts), remedy(*every)


def _reach(lines: Sequence[Line]) -> list[float]:
    """The values of a panel, and the ends of their intervals."""
    spots = [
        _spot(point, line.quantity == "percent_of_gemm_only")
        for line in lines
        for point in line.points
    ]
    return [end for spot in spots for end in (spot.value, spot.low, spot.high) if end == end]


def _chart(drawn: Sequence[Line], limits: tuple[int, float], step: int) -> Chart:
    points = list(chain.from_iterable(line.points for line in drawn))
    batches = sorted({point.m for point in points})
    record = _own(drawn).points[0]
    facts = [f"{record.ranks} ranks", record.label, record.dtype, record.mode]
    if record.mode == "measured" and record.iters:
        facts.append(f"medians of {record.iters}{' or more' if record.budget_s else ''}")
    if all(point.hollow for point in points):
        facts.append("every case noisy: no result")
    together = f"all {record.ranks} ranks together" if record.ranks else "all ranks together"
    roof = drawn[0].quantity == "percent_of_gemm_only"
    y = Axis(
        f"percent of {_WHAT[drawn[0].quantity]} (%)" + f", {together}" * (not roof),
        limits,
        ticks={at: str(at) for at in range(limits[0], int(limits[1]) + 1, step)},
    )
    lines = [
        polyline(
            each.legend.removeprefix("UA - "),
            STYLES[each.name],
            batches,
            {point.m: _spot(point, roof) for point in each.points},
        )
        for each in drawn
    ]
    x = Axis(
        "batch size m (rows of A and C)",
        (batches[0] / 1.3, batches[-1] * 1.3),
        2,
        {batch: str(batch) for batch in batches},
    )
    return Chart(
        f"MLP-{record.layer[-1]}:  n = {record.n}, k = {record.k}",
        ", ".join(fact for fact in facts if fact),
        x,
        y,
        lines,
    )


def _spot(point, roof: bool) -> Spot:
    interval = point.percent_of_gemm_only_low, point.percent_of_gemm_only_high
    if not roof:  # of a prediction, whose interval is of its time
        ends = point.median_high_s, point.median_low_s
        known = point.mode == "simulated" and None not in ends
        interval = [point.value * point.time_s / end for end in ends] if known else (None, None)
    return Spot(point.value, point.Index, point.hollow, *interval if None not in interval else ())


def ends(values: Sequence[float], axis: str = Options.axis) -> tuple[tuple[int, float], int]:
    """The ends of a percent axis, and the distance of its ticks: round numbers around the values,
    from 0 if they are near it, or the paper's 0 to 100.

    Examples
    --------
    >>> ends([75.0, 88.4]), ends([34.0, 85.6]), ends([8.0, 110.0]), ends([75.0, 88.4], "paper")
    (((70, 90), 5), ((30, 90), 10), ((0, 120), 20), ((0, 100.0), 10))
    """
    low, high = min(values), max(values)
    if axis == "paper":  # measured noise and a low roof can pass 100
        steps = 10, 20, 50, 100, 500, 1000, 10000
        return (0, max(100.0, high + 6.0)), next((s for s in steps if high < 14 * s), steps[-1])
    low = 0.0 if low < 0.25 * high else low
    # the widest step that leaves at least four ticks
    span = max(high - low, _LEAST_SPAN)
    step = next(
        step for step in (1000, 500, 200, 100, 50, 20, 10, 5) if step * 4 <= span or step == 5
    )
    first = max(0, floor((low - 0.04 * span) / step) * step)
    last = ceil((high + 0.04 * span) / step) * step
    return (first, max(last, first + _LEAST_SPAN)), step


def _own(drawn: Sequence[Line]) -> Line:
    """The line whose records give the label: a partitioning of ours, else a baseline."""
    return next((line for line in drawn if line.stationary), drawn[0])


def _notes(chosen: Panels, drawn: Panels) -> list[str]:
    """Return notes on the meaning of the numbers, their intervals, lines of other sources, and
    omitted lines; notes of all panels once."""
    lines = list(chain.from_iterable(drawn.values()))
    points = [point for line in lines for point in line.points]
    still = any(line.stationary for line in lines)
    texts = ["S-C, S-B: Stationary C, Stationary B data movement"] * still
    factors = [
        f"{line.legend.removeprefix('UA - ')} {', '.join(point.factor for point in line.points)}"
        for line in lines
        if any(point.factor not in ("", "1") for point in line.points)
    ]
    if factors:
        texts.append(
            "replication factors (of A and B - C where they differ) by rising batch size: "
            + "; ".join(factors)
        )
    if any(line.quantity == "percent_of_gemm_only" for line in lines):
        texts.append("GEMM-only speed: the same local GEMMs without communication, interleaved")
    known = {p.mode for p in points if p.percent_of_gemm_only_low is not None}
    if "measured" in known:
        texts.append("vertical: 95 % interval of the median paired ratio")
    if "simulated" in known:
        texts.append("vertical: 95 % interval of the prediction")
    marks = ("hollow", "oversubscribed", "stable", "once")
    texts += doubts(*([getattr(point, name) for point in points] for name in marks))
    own_of = {name: [*_elsewhere(each), *missing(chosen[name])] for name, each in drawn.items()}
    first, *_ = own_of.values()
    shared = [text for text in first if all(text in each for each in own_of.values())]
    texts += shared
    for name, each in own_of.items():
        texts += [f"{name}: {text}" for text in each if text not in shared]
    return texts


def _elsewhere(drawn: Sequence[Line]) -> list[str]:
    own, found = _own(drawn).points[0], {}
    for line in drawn:
        record = line.points[0]
        if (record.mode, record.label) != (own.mode, own.label):
            found.setdefault(f"{record.mode}, {record.label}", []).append(line.name)
    return [f"{', '.join(names)}: {origin}" for origin, names in found.items()]


def make(records: Records, options: Options, layer: str | None = None) -> Made:
    """Draw the layers next to each other, by default all layers of the records.

    Cases of different labels, numbers of ranks or modes (measured, simulated, published) get
    separate panels. Published numbers become the lines of baselines if they have the same label
    and problem.
    """
    found = select_panels(records, layer, options.quantity)
    return Made(figure(found, options.axis), not_drawn(found))


_TAKES = ("quantity", "axis")
FIGURES = (
    Figure_(
        "mlp",
        SUMMARIES["mlp"],
        make,
        _TAKES,
    ),
    Figure_(
        "mlp1",
        SUMMARIES["mlp1"],
        partial(make, layer="mlp1"),
        _TAKES,
    ),
    Figure_(
        "mlp2",
        SUMMARIES["mlp2"],
        partial(make, layer="mlp2"),
        _TAKES,
    ),
)
