"""What the figures of papers share: their rows, and pages of panels with a grid."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from plots.draw.chart import Axis, Chart, Marks, draw_chart, panels
from plots.draw.page import GRID
from plots.draw.style import LineStyle
from plots.registry import Made
from plots.select.cases import SelectionError

from .claims import Rows


def drawn(rows: Rows, study: str | list[str], **values):
    """The simulated rows of studies with these values.

    Raises
    ------
    SelectionError
        If there are none.
    """
    try:
        return rows.where(study=study, mode="simulated", **values)
    except KeyError:
        names = [study] if isinstance(study, str) else study
        raise SelectionError(
            f"no rows of {', '.join(names)} in {len(rows.table)} rows. Make some with python -m "
            f"launch.papers DIR {' '.join(names)}."
        ) from None


def dots(
    x: Axis, names: Sequence[str], series: dict[str, tuple[Sequence, LineStyle]]
) -> tuple[Axis, Axis, list[Marks]]:
    """Axes and marks of rows with these names: a dot a row and series."""
    y = Axis("", (len(names) - 0.5, -0.5), ticks=dict(enumerate(names)))
    places = list(range(len(names)))
    marks = [
        Marks("points", name, list(values), places, (), look)
        for name, (values, look) in series.items()
    ]
    return x, y, marks


def draw_page(
    charts: Sequence[Chart],
    handles: Sequence,
    notes: Sequence[str],
    high_in: float,
    left_in: float = 0.56,
) -> tuple[Made, list[Axes]]:
    """The figure of some charts, two in a row, each with so much room for its y axis; and the axes
    of each for what else is drawn on it."""
    page, every = panels(charts, handles, notes, high_in, 2, (left_in, 0.12))
    for axes, chart in zip(every, charts):
        axes.grid(axis="y", **GRID)
        draw_chart(axes, chart)
    return Made(page.picture, []), every
