"""How far predictions are from what was measured or published: a row a group, a mark a point, and
their median."""

from collections.abc import Iterable

from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Marks
from plots.draw.page import number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError

from ..drawing import draw_page
from .rows import ROWS, LedgerRow

#: What is further off is drawn at the edge, percent.
_MOST = 60
_ROW_IN = 0.3
_POINT, _MEDIAN = LineStyle("#8CB8D8", "o", "-"), LineStyle("#D55E00", "D", "-")


def make(rows: Iterable[LedgerRow], options: Options) -> Made:
    """Draw the strips: the groups in their order from above, the points of each in a band by the
    golden ratio, so that equal ones lie apart."""
    every = DataFrame(rows)
    if every.empty:
        raise SelectionError("there is nothing to draw. Give it results/ledger.csv.")
    every = every.assign(error=100 * (every.predicted / every.value - 1))
    groups = every.groupby("group", sort=False)
    places, medians = groups.ngroup(), groups.error.median()
    inside = lambda errors: list(errors.clip(-_MOST, _MOST))
    names = [f"{name}: {len(of)}, median {of.error.median():+.1f} %" for name, of in groups]
    y = Axis("", (len(names) - 0.4, -0.6), ticks=dict(enumerate(names)))
    ticks = {at: number(at) for at in range(-_MOST, _MOST + 1, 20)}
    apart = places + 0.5 * (groups.cumcount() * 0.618 % 1 - 0.5)
    chart = Chart(
        "Error of predictions by group",
        f"{len(every)} numbers, measured or published",
        Axis("prediction above the number (%)", (-_MOST - 2, _MOST + 2), ticks=ticks),
        y,
        [
            Marks("points", "median", inside(medians), range(len(names)), (), _MEDIAN),
            Marks("points", "points", inside(every.error), list(apart), (), _POINT),
            Marks("rule", "as it is", [0, 0], y.limits),
        ],
    )
    notes = [
        "a point a number, the median as a diamond; of speedups and shares above 0 is larger",
        f"further off than {_MOST} % is drawn at the edge",
    ]
    return draw_page([chart], {}, notes, _ROW_IN * len(names), 2.9, 1)


FIGURES = (Figure("ledger", "error of every prediction, by group", make, read=ROWS.read),)
