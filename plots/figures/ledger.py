"""How far predictions are from what was measured or published, against the size of the work: a
panel a group, a mark a point, with its interval where there are few of them."""

from collections.abc import Iterable
from itertools import groupby, pairwise
from math import inf, log10, nan
from operator import attrgetter

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart, panels
from plots.draw.page import GRID, number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError
from plots.select.ledger_rows import LedgerRow, read_rows

_HIGH_IN = 2.2
#: Above so many points of a panel the intervals would cover each other.
_MOST_INTERVALS = 40
_LOOK = LineStyle("#0072B2", "o", "-")
#: Points of one size are dealt over that share of the way to the next, and so many decades at most.
_SHARE, _DECADES = 0.7, 0.3
#: Distances of ticks, percent.
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def charts(rows: Iterable[LedgerRow], options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found = sorted(rows, key=attrgetter("machine", "group", "flops"))
    if not found:
        raise SelectionError("there is nothing to draw. Give it results/ledger.csv.")
    made = [
        _chart(group, machine, list(inside))
        for (machine, group), inside in groupby(found, attrgetter("machine", "group"))
    ]
    return made, [
        "above 0: predicted longer (of speedups and utilisations: larger)",
        "points of one size stand side by side, the lowest first",
        "held: measured in the interval, of those that no interval was made of",
    ]


def _chart(group: str, machine: str, rows: list[LedgerRow]) -> Chart:
    known = [row for row in rows if row.low is not None]
    few = len(rows) <= _MOST_INTERVALS and bool(known)
    ends = [100 * (end / row.value - 1) for row in known for end in (row.low, row.high)]
    values = [100 * row.error for row in rows] + (ends if few else [])
    rows = sorted(rows, key=attrgetter("flops", "error"))
    sides = [[nan] * len(rows)] * 2
    if few:
        sides = [[_error(row, end) for row in rows] for end in ("low", "high")]
    x = side_by_side([row.flops for row in rows])
    y = [100 * row.error for row in rows]
    marks = Marks("points", group, x, y, [None] * len(x), _LOOK, low=sides[0], high=sides[1])
    limits = min(x) / 1.3, max(x) * 1.3
    powers = range(int(log10(limits[0])) - 1, int(log10(limits[1])) + 2)
    ticks = {10.0**at: f"1e{at}" for at in powers if _in(10.0**at, limits)}
    if not ticks:
        ticks = {row.flops: f"{row.flops:.2g}" for row in (rows[0], rows[-1])}
    judged = [row for row in known if not row.fitted]
    held = sum(row.held for row in judged)
    return Chart(
        group,
        f"{machine}, {len(rows)} points" + (f", {held} of {len(judged)} held" if judged else ""),
        Axis("FLOPs", limits, 10, ticks),
        Axis("error of the prediction (%)", *_percent(values)),
        [marks, Marks("rule", "as it is", limits, [0, 0])],
    )


def side_by_side(sizes: list[float]) -> list[float]:
    """Where points of these sizes, in order, stand on a logarithmic axis: those of one size beside
    each other, around it.

    Examples
    --------
    >>> [round(log10(x), 3) for x in side_by_side([10.0, 1000.0, 1000.0, 1000.0])]
    [1.0, 2.85, 3.0, 3.15]
    >>> [round(log10(x), 3) for x in side_by_side([10.0, 10.0, 12.0])]
    [0.972, 1.028, 1.079]
    """
    known = sorted({*sizes})
    apart = min((log10(high / low) for low, high in pairwise(known)), default=inf)
    width, found = min(_DECADES, _SHARE * apart), []
    for size, same in groupby(sizes):
        count = len(list(same))
        places = [at / (count - 1) - 0.5 if count > 1 else 0.0 for at in range(count)]
        found += [size * 10 ** (width * place) for place in places]
    return found


def _error(row: LedgerRow, end: str) -> float:
    value = getattr(row, end)
    return nan if value is None else 100 * (value / row.value - 1)


def _in(at: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= at <= limits[1]


def _percent(values: list[float]) -> tuple[tuple[float, float], int, dict[float, str]]:
    """Ends, base and ticks of an axis of percent around 0.

    Examples
    --------
    >>> _percent([-4.0, 9.0])
    ((-5, 10), 0, {-5: '-5', 0: '0', 5: '5', 10: '10'})
    """
    low, high = min(0.0, *values), max(0.0, *values)
    step = next((step for step in _STEPS if high - low <= 5 * step), _STEPS[-1])
    ends = step * int(low // step), step * -int(-high // step)
    ends = ends if ends[0] < ends[1] else (-step, step)
    return ends, 0, {at: number(at) for at in range(ends[0], ends[1] + 1, step)}


def make(rows: Iterable[LedgerRow], options: Options) -> Made:
    """Draw the panels, three in a row."""
    found, notes = charts(list(rows), options)
    page, axes = panels(found, [], notes, _HIGH_IN, min(3, len(found)))
    for each, chart in zip(axes, found):
        draw_chart(each, chart, 3.0)
        each.grid(**GRID)
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "ledger",
        "error of every prediction against the size of its problem",
        make,
        read=read_rows,
    ),
)
