"""Figures 2 and 3: percent of peak against batch size for the layers of a GPT-like MLP.

One panel a layer and source, all on one axis, one line a partitioning, named at its end, with its
replication factors above the points. Lines that cannot be told apart are one with all names.
:mod:`drbench.plots.select.selection` chooses the case of a point.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from math import ceil, floor, nan
from statistics import median

from matplotlib.figure import Figure

from drbench.measure.decision import FASTEST, Decision, answer, best_at, decide, remedy
from drbench.plots.draw.chart import Axis, Chart, Spot, labelled_panels, polyline
from drbench.plots.draw.figure import Figure as Figure_
from drbench.plots.draw.figure import Made
from drbench.plots.draw.page import GRID, LINE_MARKER_PT
from drbench.plots.draw.style import STYLES
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.panels import select_panels
from drbench.plots.select.records import Records
from drbench.plots.select.rounds import counted
from drbench.plots.select.selection import Line, doubts, missing

_HIGH_IN, _MARGINS_IN = 3.4, (0.5, 1.2)
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
    points = [p for lines in drawn.values() for line in lines for p in line.points]
    limits, step = ends([end for p in points for end in (p.value, p.low, p.high) if end], axis)
    distance = LINE_MARKER_PT / (72 * _HIGH_IN) * (limits[1] - limits[0])
    alike = {name: group_lines(lines, distance) for name, lines in drawn.items()}
    described = [_chart(groups, limits, step) for groups in alike.values()]
    notes = _notes(chosen, drawn)
    if any(len(group) > 1 for groups in alike.values() for group in groups):
        notes.append(
            f"several names at a line: they differ by less than {distance:.1f} points at every "
            "batch size; drawn is the first"
        )
    if needs := remedy(*(decisions for *_, decisions in _largest([*drawn.values()]))):
        notes.append(f"undecided: {needs}")
    title = partial(finding, [*drawn.values()])
    page, every = labelled_panels(described, notes, _HIGH_IN, _MARGINS_IN, title, _GRID)
    for axes in every:
        if limits[0] < 100 < limits[1]:
            axes.axhline(100, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    return page.picture


def _largest(drawn: Sequence[Sequence[Line]]) -> list[tuple[list[Line], list, list[Decision]]]:
    """The lines of each panel that are of its own source, their points at the largest batch size,
    and the decision among these."""
    largest_of = []
    for lines in drawn:
        source = _own(lines).points[0].source
        points = [point for line in lines for point in line.points if point.source == source]
        largest = [point for point in points if point.m == max(point.m for point in points)]
        largest_of.append((lines, largest, decide([point.run for point in largest])))
    return largest_of


def finding(drawn: Sequence[Sequence[Line]], most: int = 3) -> str:
    """The decision at the largest batch size of each panel, with at most some names; of the fastest
    also its percentage. Of more than two panels how often each is the answer."""
    texts = {}
    for lines, largest, decisions in _largest(drawn):
        names = [point.line.removeprefix("UA - ") for point in largest]
        at, text = best_at(decisions), answer(decisions, names, most)
        if len(drawn) <= 2 and at is not None and decisions[at].state == FASTEST:
            text += f", {largest[at].value:.0f} % of {_WHAT[lines[0].quantity]}"
        texts[f"MLP-{largest[0].layer[-1]}, m = {largest[0].m}", largest[0].source] = text
    if len(drawn) > 2:
        return f"{counted(texts.values(), 'panel')}, at the largest batch size"
    several = len({source for _, source in texts}) > 1
    of = lambda problem, source: f"{problem}, {source.label}" if several else problem
    return "; ".join(f"{of(*key)}: {text}" for key, text in texts.items())


def group_lines(lines: Sequence[Line], distance: float) -> list[list[Line]]:
    """The lines in groups: each has one line and all others of its kind that are nowhere farther
    from it than this, the highest at the largest batch size first.

    Examples
    --------
    >>> from collections import namedtuple
    >>> point = namedtuple("Point", "m value hollow")
    >>> rates = {"UA - Row": (50.0, 60.0), "UA - Block": (50.1, 60.2), "UA - Column": (50.0, 70.0)}
    >>> lines = [
    ...     Line(name, "", "C", tuple(point(m, value, False) for m, value in enumerate(values)))
    ...     for name, values in rates.items()
    ... ]
    >>> [[line.name for line in group] for group in group_lines(lines, 0.5)]
    [['UA - Column'], ['UA - Block', 'UA - Row']]
    """
    groups: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: -line.points[-1].value):
        same = (group for group in groups if _is_near(line, group[0], distance))
        if (group := next(same, None)) is not None:
            group.append(line)
        else:
            groups.append([line])
    return groups


def _is_near(line: Line, other: Line, distance: float) -> bool:
    kind = lambda line: [bool(line.stationary), *((p.m, p.hollow) for p in line.points)]
    pairs = zip(line.points, other.points)
    return kind(line) == kind(other) and all(abs(a.value - b.value) <= distance for a, b in pairs)


def _chart(groups: Sequence[Sequence[Line]], limits: tuple[int, float], step: int) -> Chart:
    drawn = list(chain.from_iterable(groups))
    points = list(chain.from_iterable(line.points for line in drawn))
    batches = sorted({point.m for point in points})
    record = _own(drawn).points[0]
    facts = [f"{record.ranks} ranks", record.label, record.dtype, record.mode]
    if record.mode == "measured" and record.iters:
        facts.append(f"medians of {record.iters}{' or more' if record.budget_s else ''}")
    if all(point.hollow for point in points):
        facts.append("every case noisy")
    together = f"all {record.ranks} ranks together" if record.ranks else "all ranks together"
    of_gemm_only = drawn[0].quantity == "percent_of_gemm_only"
    y = Axis(
        f"percent of {_WHAT[drawn[0].quantity]} (%)" + f", {together}" * (not of_gemm_only),
        limits,
        ticks={at: str(at) for at in range(limits[0], int(limits[1]) + 1, step)},
    )
    lines = [
        polyline(
            _names(group),
            STYLES[group[0].name],
            batches,
            {
                point.m: _spot(point)._replace(text=text)
                for point, text in zip(group[0].points, _factors(group[0].points))
            },
        )
        for group in groups
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


def _names(group: Sequence[Line]) -> str:
    """The names of lines drawn as one, with each stationary matrix once.

    Examples
    --------
    >>> lines = [
    ...     Line("UA - Row", "", "C"),
    ...     Line("UA - Block", "", "B"),
    ...     Line("UA - Column", "", "C"),
    ... ]
    >>> _names(lines), _names([Line("DT - Row", "")])
    ('Row, Column (S-C), Block (S-B)', 'DT - Row')
    """
    names: dict[str, list[str]] = {}
    for line in group:
        names.setdefault(line.stationary, []).append(line.name.removeprefix("UA - "))
    texts = ((", ".join(of), stationary) for stationary, of in names.items())
    return ", ".join(
        f"{text} (S-{stationary})" if stationary else text for text, stationary in texts
    )


def _factors(points: Sequence) -> list[str]:
    """The replication factor of each point of a line where it differs from that before."""
    factors = ["1", *(point.factor for point in points)]
    return [own * (own != before) for before, own in pairwise(factors)]


def _spot(point) -> Spot:
    return Spot(point.value, point.Index, point.hollow, point.low or nan, point.high or nan)


def _predicted(points: Sequence) -> str:
    """The interval of a prediction, in points of the axis; empty if none is known."""
    known = [p for p in points if p.mode == "simulated" and p.median_low_s and p.median_high_s]
    if not known:
        return ""
    ends = (
        median(p.value * (p.time_s / getattr(p, end) - 1) for p in known)
        for end in ("median_high_s", "median_low_s")
    )
    text = "95 % interval of a prediction: {:+.0f} to {:+.0f} points".format(*ends)
    return text.replace("-", "−")


def ends(values: Sequence[float], axis: str = Options.axis) -> tuple[tuple[int, float], int]:
    """The ends of a percent axis, and the distance of its ticks: round numbers around the values,
    from 0 if they are near it, or the paper's 0 to 100.

    Examples
    --------
    >>> [ends(values, "fitted") for values in ([75.0, 88.4], [34.0, 85.6], [8.0, 110.0])]
    [((70, 90), 5), ((30, 90), 10), ((0, 120), 20)]
    >>> ends([75.0, 88.4])
    ((0, 100.0), 10)
    """
    low, high = min(values), max(values)
    if axis == "paper":  # measured noise can pass 100
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
    stationary = any(line.stationary for line in lines)
    texts = ["S-C, S-B: C or B is stationary, which means that it does not move"] * stationary
    factors = {point.factor for point in points} - {""}
    if factors - {"1"}:
        mixed = any("-" in factor for factor in factors)
        texts.append(
            "numbers at points: the replication factor from there on, before the first it is 1"
            + "; 4-1: of A and B 4, of C 1" * mixed
        )
    elif factors:
        texts.append("no replication: all factors are 1")
    if any(line.quantity == "percent_of_gemm_only" for line in lines):
        texts.append("GEMM-only speed: the same local GEMMs without communication, interleaved")
    if any(p.low for p in points):
        texts.append("vertical: 95 % interval of the median paired ratio")
    texts += filter(None, [_predicted(points)])
    texts += doubts(points)
    own_of = {name: [*_elsewhere(lines), *missing(chosen[name])] for name, lines in drawn.items()}
    first, *_ = own_of.values()
    shared = [text for text in first if all(text in own for own in own_of.values())]
    texts += shared
    for name, own in own_of.items():
        texts += [f"{name}: {text}" for text in own if text not in shared]
    return texts


def _elsewhere(drawn: Sequence[Line]) -> list[str]:
    own, names_of = _own(drawn).points[0], {}
    for line in drawn:
        record = line.points[0]
        if (record.mode, record.label) != (own.mode, own.label):
            names_of.setdefault(f"{record.mode}, {record.label}", []).append(line.name)
        elif record.algorithm == "dtensor_mm":
            names_of.setdefault("simulated, the fastest of DTensor's strategies", []).append(
                line.name
            )
    return [f"{', '.join(names)}: {origin}" for origin, names in names_of.items()]


def make(records: Records, options: Options, layer: str | None = None) -> Made:
    """Draw the layers next to each other, by default all layers of the records.

    Cases of different labels, numbers of ranks or modes (measured, simulated, published) get
    separate panels. Published numbers become the lines of baselines if they have the same label
    and problem.
    """
    panels = select_panels(records, layer, options.quantity)
    return Made(figure(panels, options.axis), not_drawn(panels))


FIGURES = tuple(
    Figure_.listed(name, partial(make, layer=layer), ("quantity", "axis", "height"))
    for name, layer in {"mlp": None, "mlp1": "mlp1", "mlp2": "mlp2"}.items()
)
