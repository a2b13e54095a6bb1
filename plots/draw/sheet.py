"""A page that is the same picture at any width: its sizes are for seven inches and grow with it."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from .description import named
from .page import FigurePage, fit_text, page_in, width_in

INK = "#1a1a1a"
WIDTH_IN = 7.0
_ROW_IN = 0.0165  # of text of one point


class Sheet:
    """An empty sheet with space for ``high_in`` inches of drawings.

    Parameters
    ----------
    high_in : float
    handles, notes, finding
        As :class:`drbench.plots.draw.page.FigurePage` takes them.
    scale : float
        Size of title, legend and small print, in that of other figures.
    """

    def __init__(
        self,
        high_in: float,
        handles: Sequence[Artist] = (),
        notes: Sequence[str] = (),
        finding: str = "",
        scale: float = 1.0,
    ):
        self.unit_in = page_in() / WIDTH_IN
        self._page = FigurePage(
            self.unit_in * high_in, handles, notes, finding, scale * self.unit_in
        )
        self.picture = self._page.picture

    def axes(self, name: str, left: float, top: float, wide: float, high: float) -> Axes:
        """Axes without an axis, by their upper left corner; their unit is an inch, downwards."""
        axes = self._page.axes(*(self.unit_in * value for value in (left, top, wide, high)))
        axes.set(xlim=(0, wide), ylim=(high, 0))
        axes.set_axis_off()
        return named(axes, name)

    def text(self, points: float, bold: bool = False, **style) -> dict:
        """The style of a text of some size."""
        weight = "bold" if bold else "normal"
        return {"size": points * self.unit_in, "color": INK, "weight": weight, **style}

    def write(
        self, left: float, top: float, text: str, points: float, wide: float, bold: bool = False
    ) -> None:
        """A text in one row, smaller where it is longer than ``wide`` inches."""
        text = text.replace("\N{NO-BREAK SPACE}", " ")
        shown, size = fit_text(text, points * self.unit_in, wide * self.unit_in, bold)
        style = self.text(points, bold) | {"size": size}
        drawn = self._page.text(
            left * self.unit_in, top * self.unit_in, shown, style.pop("size"), **style
        )
        named(drawn, text)

    def write_rows(self, left: float, top: float, text: str, points: float, wide: float) -> float:
        """A text in rows of ``wide`` inches; where it ends."""
        for row in rows_of(text, points, wide):
            self.write(left, top, row, points, 2 * wide)
            top += row_in(points)
        return top


def rows_of(text: str, points: float, wide: float, ends: str = " ") -> list[str]:
    """The rows of a text of some size that is ``wide`` inches wide, cut after ``ends`` only.

    Examples
    --------
    >>> rows_of("multiplies own A · own B", 10.0, 1.5)
    ['multiplies own A ·', 'own B']
    >>> rows_of("Inner Prod., Row (S-C)", 10.0, 1.0, ", ")
    ['Inner Prod.,', 'Row (S-C)']
    """
    row, *words = text.split(ends)
    rows = [row]
    for word in words:
        longer = f"{rows[-1]}{ends}{word}"
        if width_in(longer, points) <= wide:
            rows[-1] = longer
        else:
            rows[-1] += ends.rstrip()
            rows.append(word)
    return rows


def row_in(points: float) -> float:
    """The height of a row of text."""
    return _ROW_IN * points
