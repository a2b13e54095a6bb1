"""How far predictions are from what was measured or published, against the size of the work: a
panel a machine model, a mark a point, with its interval where there are few of them."""

from collections.abc import Iterable
from itertools import groupby
from math import log10, nan
from operator import attrgetter

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart, panels
from plots.draw.page import GRID, line_handle, number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError
from plots.select.ledger_rows import LedgerRow, read_rows

_HIGH_IN = 2.2
#: Above so many points of a panel the intervals would cover each other.
_MOST_INTERVALS = 40
_LOOKS = [
    LineStyle("#0072B2", "o", "-"),
    LineStyle("#E69F00", "s", "-"),
    LineStyle("#009E73", "D", "-"),
    LineStyle("#CC79A7", "v", "-"),
]
#: Distances of ticks, percent.
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def charts(rows: Iterable[LedgerRow], options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found = sorted(rows, key=attrgetter("machine", "group", "flops"))
    if not found:
        raise SelectionError("there is nothing to draw. Write a ledger with drbench ledger --save.")
    made, notes = [], ["above 0: predicted longer (of speedups and utilisations: larger)"]
    for machine, inside in groupby(found, attrgetter("machine")):
        made.append(_chart(machine, list(inside)))
        notes += made[-1].notes
    return made, notes


def _chart(machine: str, rows: list[LedgerRow]) -> Chart:
    known = [row for row in rows if row.low is not None]
    few = len(rows) <= _MOST_INTERVALS and bool(known)
    ends = [100 * (end / row.value - 1) for row in known for end in (row.low, row.high)]
    values = [100 * row.error for row in rows] + (ends if few else [])
    marks = []
    names = list(dict.fromkeys(row.group for row in rows))
    for group, look in zip(names, _cycled(len(names))):
        its = [row for row in rows if row.group == group]
        sides = [[nan] * len(its)] * 2
        if few:
            sides = [[_error(row, end) for row in its] for end in ("low", "high")]
        x, y = [row.flops for row in its], [100 * row.error for row in its]
        marks.append(
            Marks("points", group, x, y, [None] * len(x), look, low=sides[0], high=sides[1])
        )
    low, high = min(row.flops for row in rows), max(row.flops for row in rows)
    ticks = {10.0**at: f"1e{at}" for at in range(int(log10(low)) - 1, int(log10(high)) + 2)}
    limits = low / 1.6, high * 1.6
    judged = [row for row in known if not row.fitted]
    held = sum(row.held for row in judged)
    note = (
        f"{machine}: {held} of {len(judged)} held-out points in their intervals" if judged else ""
    )
    return Chart(
        machine,
        f"{len(rows)} points",
        Axis("FLOPs", limits, 10, {at: text for at, text in ticks.items() if _in(at, limits)}),
        Axis("error of the prediction (%)", *_percent(values)),
        [*marks, Marks("rule", "as it is", limits, [0, 0])],
        notes=(note,) if note else (),
    )


def _cycled(count: int) -> list[LineStyle]:
    return [_LOOKS[at % len(_LOOKS)] for at in range(count)]


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
    """Draw the panels, two in a row."""
    found, notes = charts(list(rows), options)
    looks = {marks.name: marks.look for chart in found for marks in chart.marks if marks.look}
    handles = [line_handle(name, look) for name, look in looks.items()]
    page, axes = panels(found, handles, notes, _HIGH_IN, min(2, len(found)))
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
