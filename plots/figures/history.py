"""Cases over dates or commits, a panel each, with their steps."""

from drbench.plots.draw.chart import panels
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.select.cases import SelectionError
from drbench.plots.select.history import read_history, select_points
from drbench.plots.select.references import short_cases

_MOST = 6


def make(points, options):
    """Draw the first cases, two in a row."""
    cases = [*points.groupby(["label", "case"], sort=False)]
    if not cases:
        raise SelectionError("no case is ok and not noisy. Give folders of sweeps.")
    text = f"vertical: 95 % interval of the median; orange: after a step; {len(cases[:_MOST])} of {len(cases)} cases"
    names = short_cases(points.case)
    titles = [(names[case], label) for (label, case), _ in cases[:_MOST]]
    page, every = panels(titles, (), [text])
    for axes, (_, rows) in zip(every, cases):
        rows = rows.reset_index()
        axes.plot(rows.value, "o-", color="#0072B2")
        axes.vlines(rows.index, rows.low, rows.high, color="#0072B2")
        steps = rows[rows.ratio.notna()]
        axes.plot(steps.value, "o", color="#D55E00")
        ticks = [0, *steps.index, len(rows) - 1]
        axes.set_xticks(ticks, rows.when[ticks].str[:10])
        axes.set_ylabel(rows.quantity[0])
    return Made(page.picture, [])


FIGURES = (Figure.listed("history", make, read=lambda paths: select_points(read_history(paths))),)
