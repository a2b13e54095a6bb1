"""Shared code of the figures of papers: their rows, lines and bars of tables, and pages of panels
with a grid."""

from collections.abc import Iterable, Mapping, Sequence

from pandas import DataFrame, concat

from drbench.plots.draw.chart import (
    Axis,
    Chart,
    Marks,
    Spot,
    draw_chart,
    label_points,
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
Styles = Mapping[str, LineStyle | FillStyle]


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


def stack_bars(
    table: DataFrame, fills: Mapping[str, FillStyle], across: bool = False
) -> tuple[list[Marks], Axis]:
    """A bar for each row of a table, vertical or ``across`` from the top: a stack of the columns
    that have a fill, in the order of these; and the axis with the names of the rows.

    In an index of two levels the first is a group of bars, and the second a bar's place in it; the
    names are those of the groups.

    Examples
    --------
    >>> table = DataFrame({"GEMM": [3, 3], "wait": [2, 1]}, index=[["512", "512"], ["TE", "FLUX"]])
    >>> fills = {name: FillStyle(name, "#0072B2") for name in table}
    >>> marks, axis = stack_bars(table, fills)
    >>> [(of.name, of.x, of.y, of.base) for of in marks]
    [('GEMM', [0, 1], [3, 3], [0, 0]), ('wait', [0, 1], [2, 1], [3, 3])]
    >>> axis.limits, axis.ticks
    ((-1.0, 2.0), {0.5: '512'})
    """
    group, names = table.index.get_level_values(0).factorize()
    bar, bars = table.index.get_level_values(-1).factorize()
    wide = len(bars) if table.index.nlevels > 1 else 1
    step = wide + (wide > 1)  # a gap between groups
    parts = table[[name for name in fills if name in table]].fillna(0)
    parts, base, marks = parts.set_axis(step * group + bar % wide), parts.cumsum(axis=1) - parts, []
    for name, part in parts.items():
        there = list(part != 0)
        x, y, start = (list(of[there]) for of in (parts.index, part, base[name]))
        ends = (y, x) if across else (x, y)
        marks.append(Marks("bars", fills[name].name, *ends, (), fills[name], start, across))
    ticks = {step * at + (wide - 1) / 2: str(name) for at, name in enumerate(names)}
    limits = min(ticks) - step / 2, max(ticks) + step / 2
    return marks, Axis("", limits[::-1] if across else limits, ticks=ticks)


def group_bars(
    table: DataFrame, fills: Mapping[str, FillStyle], across: bool = False
) -> tuple[list[Marks], Axis]:
    """As :func:`stack_bars`, but the columns of a row are bars side by side, in their order.

    Examples
    --------
    >>> table = DataFrame({"TE": [3, 4], "FLUX": [2, 1]}, index=["512", "1024"])
    >>> marks, axis = group_bars(table, {name: FillStyle(name, "#0072B2") for name in table})
    >>> [(of.name, of.x, of.y) for of in marks], axis.ticks
    ([('TE', [0, 3], [3.0, 4.0]), ('FLUX', [1, 4], [2.0, 1.0])], {0.5: '512', 3.5: '1024'})
    """
    return stack_bars(concat({name: table[[name]] for name in table}).swaplevel(), fills, across)


def draw_page(
    charts: Sequence[Chart],
    styles: Styles,
    notes: Sequence[str],
    high_in: float | Sequence[float],
    left_in: float = 0.56,
    finding: str = "",
) -> Made:
    """The figure of some charts, two per row, with the given heights (one, or one each), widths for
    the y axis or row names, and looks of lines and bars in the legend; the finding is the title."""
    handles = [
        patch_handle(style) if isinstance(style, FillStyle) else line_handle(name, style)
        for name, style in styles.items()
    ]
    page, every = panels(charts, handles, notes, high_in, 2, (left_in, 0.12), finding=finding)
    for axes, chart in zip(every, charts):
        axes.grid(axis="y" if chart.y.title else "x", **GRID)
        draw_chart(axes, chart)
        label_points(axes, chart)
        if not chart.y.title:
            label_rows(axes, chart.y.ticks, left_in - 0.1)
    return Made(page.picture, [])
