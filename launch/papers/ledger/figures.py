"""How far predictions are from what was measured or published: a row a group, a mark a point, and
their median."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from statistics import median

from plots.draw.chart import Axis, Chart, Marks, draw_chart, panels
from plots.draw.page import GRID, number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError

from .rows import ROWS, LedgerRow

#: What is further off is drawn at the edge, percent.
_MOST = 60
_ROW_IN = 0.3
_POINT, _MEDIAN = LineStyle("#8CB8D8", "o", "-"), LineStyle("#D55E00", "D", "-")


def chart_of(rows: Iterable[LedgerRow]) -> Chart:
    """Describe the strips: the groups in their order from above, the points of each in a band by
    the golden ratio, so that equal ones lie apart."""
    groups = [(name, list(of)) for name, of in groupby(rows, attrgetter("group"))]
    if not groups:
        raise SelectionError("there is nothing to draw. Give it results/ledger.csv.")
    inside = lambda error: max(-_MOST, min(_MOST, error))
    x, y, middles, names = [], [], [], {}
    for at, (name, of) in enumerate(reversed(groups)):
        errors = [100 * row.error for row in of]
        x += map(inside, errors)
        y += [at + 0.5 * (place * 0.618 % 1 - 0.5) for place in range(len(of))]
        middles.append(inside(median(errors)))
        judged = [row.held for row in of if row.held is not None and not row.fitted]
        held = f", {100 * sum(judged) / len(judged):.0f} % held" if judged else ""
        names[at] = f"{name}: {len(of)}, median {median(errors):+.1f} %{held}"
    rows_at = list(names)
    ticks = {at: number(at) for at in range(-_MOST, _MOST + 1, 20)}
    limits = (-0.6, len(names) - 0.4)
    return Chart(
        "Error of predictions by group",
        f"{len(x)} numbers, measured or published",
        Axis("prediction above the number (%)", (-_MOST - 2, _MOST + 2), ticks=ticks),
        Axis("", limits, ticks=names),
        [
            Marks("points", "median", middles, rows_at, [None] * len(rows_at), _MEDIAN),
            Marks("points", "points", x, y, [None] * len(x), _POINT),
            Marks("rule", "as it is", [0, 0], limits),
        ],
    )


def make(rows: Iterable[LedgerRow], options: Options) -> Made:
    """Draw the strips."""
    chart = chart_of(rows)
    notes = [
        "a point a number, the median as a diamond; of speedups and shares above 0 is larger",
        "held: in the interval of the prediction, of those that no interval was made of",
        f"further off than {_MOST} % is drawn at the edge",
    ]
    high_in = _ROW_IN * len(chart.y.ticks)
    page, (axes,) = panels([chart], [], notes, high_in, 1, (2.9, 0.12))
    draw_chart(axes, chart, 3.0)
    axes.grid(axis="x", **GRID)
    return Made(page.picture, notes)


FIGURES = (Figure("ledger", "error of every prediction, by group", make, read=ROWS.read),)
