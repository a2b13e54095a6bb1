"""Shared code of the figures of papers: their rows, marks of tables, and pages of panels with a
grid."""

from collections.abc import Iterable, Mapping, Sequence

from pandas import DataFrame

from drbench.plots.draw.chart import (
    Axis,
    Chart,
    Marks,
    Spot,
    draw_chart,
    label_rows,
    panels,
    polyline,
)
from drbench.plots.draw.figure import Made
from drbench.plots.draw.page import GRID, line_handle, patch_handle
from drbench.plots.draw.style import FillStyle, LineStyle
from drbench.plots.select.cases import SelectionError

from .claims import ResultRows

#: The looks of a table's columns by their names.
Styles = Mapping[str, LineStyle]


def select_simulated(rows: ResultRows, study: str | list[str], **values) -> DataFrame:
    """The simulated rows of studies with these values.

    Raises
    ------
    SelectionError
        If there are none.
    """
    try:
        return rows.ours(study=study, **values)
    except KeyError:
        names = [study] if isinstance(study, str) else study
        raise SelectionError(
            f"no rows of {', '.join(names)} in {len(rows.table)} rows. Make some with python -m "
            f"drbench.launch.papers DIR {' '.join(names)}."
        ) from None


def log_axis(title: str, values: Iterable[int]) -> Axis:
    """A log axis with these values as ticks."""
    ticks = {
        value: f"{value // 1024}Ki" if value >= 1024 else str(value) for value in sorted(values)
    }
    ends = min(ticks) / 1.12, max(ticks) * 1.12
    return Axis(title, ends, 2, ticks)


def draw_lines(table: DataFrame, styles: Styles) -> list[Marks]:
    """One line per column, through its existing values."""
    columns = ((name, table[name].dropna()) for name in styles if name in table)
    return [polyline(name, styles[name], of.index, of.map(Spot)) for name, of in columns]


def draw_page(
    charts: Sequence[Chart],
    styles: Styles | Iterable[FillStyle],
    notes: Sequence[str],
    high_in: float,
    left_in: float = 0.56,
    finding: str = "",
) -> Made:
    """The figure of some charts, two per row, with the given heights, widths for the y axis or row
    names, and styles of the legend (of lines by their names, or of bars); the finding is the title.
    """
    if isinstance(styles, Mapping):
        handles = [line_handle(*item) for item in styles.items()]
    else:
        handles = list(map(patch_handle, styles))
    page, every = panels(charts, handles, notes, high_in, 2, (left_in, 0.12), finding=finding)
    for axes, chart in zip(every, charts):
        axes.grid(axis="y", **GRID)
        draw_chart(axes, chart)
        if not chart.y.title:
            label_rows(axes, list(chart.y.ticks.values()), left_in - 0.1)
    return Made(page.picture, [])
