"""Cases over dates or commits, a panel each, with their steps."""

from drbench.plots.draw.chart import panels
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.select.history import read_history, select_points
from drbench.plots.select.references import shorten_cases

_MOST, _UNITS = 6, {"gemm_only": "% of GEMM-only speed", "time": "seconds"}


def make(points, options):
    """Draw the first cases, two in a row."""
    cases = [*shorten_cases(points).groupby(["case", "label"], sort=False)]
    text = f"orange: the first run after a step; {min(len(cases), _MOST)} of {len(cases)} cases"
    page, every = panels([title for title, _ in cases[:_MOST]], (), [text])
    for axes, (_, rows) in zip(every, cases):
        rows = rows.reset_index()
        steps = rows[rows.step != ""]
        ticks = [0, *steps.index, len(rows) - 1]
        axes.plot(rows.value, "o-", color="#0072B2")
        axes.plot(steps.value, "o", color="#D55E00")
        days = rows.when.str[:10]
        axes.set_xticks(ticks, (rows.when if days.nunique() == 1 else days)[ticks])
        first, *_, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        axes.set_ylabel(_UNITS[rows.quantity[0]])
    return Made(page.picture, [])


FIGURES = (Figure.listed("history", make, read=lambda paths: select_points(read_history(paths))),)
