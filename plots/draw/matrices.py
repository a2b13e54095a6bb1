"""Matrices as squares with their tiles, in the colours of the page of ``drbench explain``: the tint
and the number of a tile are those of the rank that stores it."""

from collections.abc import Iterable, Sequence
from colorsys import hls_to_rgb
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from drbench.plots.select.runs import Json, tiles

from .sheet import INK, Sheet
from .style import FillStyle

#: Kind of step -> word and colour.
DOES = {
    "multiply": FillStyle("multiplies", "#0072b2"),
    "fetch": FillStyle("fetches", "#e69f00"),
    "send": FillStyle("sends", "#cc79a7"),
    "add": FillStyle("adds", "#009e73"),
    "collective": FillStyle("with its group", "#d55e00"),
    "copy": FillStyle("copies", "#6b6b6b"),
    "wait": FillStyle("waits", "#b5b5b5"),
}
_LEAST_PT = 4.0
LINE = "#c8c8c8"

Ranges = Sequence[Sequence[int]]


def tint(rank: int) -> str:
    """The colour of the tiles of a rank, never one like the blue of GEMMs.

    Examples
    --------
    >>> tint(0), tint(1)
    ('#f3e7ed', '#e2edd9')
    """
    return to_hex(
        hls_to_rgb((330 + rank * 123.6 % 200) % 360 / 360, 0.93 - 0.04 * (rank % 3), 0.35)
    )


class Square(NamedTuple):
    """A matrix, and where it is drawn: its upper left corner and its side in the axes' units."""

    matrix: Json
    left: float = 0.0
    top: float = 0.0
    side: float = 1.0

    def boxes(self, rows: Ranges, cols: Ranges) -> Iterable[tuple[float, float, float, float]]:
        """Left, top, width and height of each block of these ranges."""
        down, across = (self.side / extent for extent in self.matrix["shape"])
        for top, low in rows:
            for start, stop in cols:
                corner = self.left + start * across, self.top + top * down
                yield *corner, (stop - start) * across, (low - top) * down

    def middle(self, rows: Ranges, cols: Ranges) -> tuple[float, float]:
        """The middle of what some ranges cover."""
        (left, top, wide, high), *_ = self.boxes(
            [(rows[0][0], rows[-1][1])], [(cols[0][0], cols[-1][1])]
        )
        return left + wide / 2, top + high / 2


def draw_tiles(
    sheet: Sheet,
    axes: Axes,
    square: Square,
    size: float,
    unit: float = 1.0,
    replica: int | None = None,
    rank: int | None = None,
) -> None:
    """Draw the tiles with the numbers of their owners.

    Parameters
    ----------
    sheet : Sheet
    axes : matplotlib axes
    square : Square
    size : float
        Points of the numbers, where the tiles have space for them.
    unit : float
        Inches of a unit of the axes.
    replica : int, optional
        The replica that is drawn. Default: all, their owners next to each other.
    rank : int, optional
        The rank whose tiles are framed; numbers are then in a corner, as marks cross the middle.
    """
    for tile in tiles(square.matrix):
        (box,) = square.boxes([tile.rows], [tile.cols])
        left, top, wide, high = box
        owners = tile.owners if replica is None else tile.owners[replica : replica + 1]
        own = rank in owners
        _draw_box(axes, box, facecolor=tint(owners[0]), edgecolor=LINE, linewidth=0.6)
        if own:
            _draw_box(axes, box, fill=False, edgecolor=INK, linewidth=1.6, zorder=3)
        text = ", ".join(map(str, owners))
        fits = min(size, 72 * unit * high * 0.8, 72 * unit * wide * 1.3 / len(text))
        if fits >= _LEAST_PT:
            place, at = (0.5, 0.5), {"ha": "center", "va": "center"}
            if rank is not None:
                place, at = (0.03 / unit / wide, 0.03 / unit / high), {"ha": "left", "va": "top"}
            style = sheet.text(fits, own, zorder=4, **at)
            axes.text(left + place[0] * wide, top + place[1] * high, text, **style)


def mark(axes: Axes, squares: dict[str, Square], case: Json, region: int, does: str) -> None:
    """Mark a region of a run as ``read`` by a GEMM, as ``waiting`` for one after it was fetched, or
    by what a step does to it."""
    name, _, rows, cols = case["regions"][region]
    color = DOES[{"read": "multiply", "waiting": "fetch"}.get(does, does)].color
    for box in squares[name].boxes(rows, cols):
        if does != "waiting":
            hatch = "" if does in ("read", "multiply") else "////"
            alpha = 0.28 if does == "read" else 0.62
            _draw_box(
                axes, box, facecolor=color, edgecolor="white", linewidth=0, hatch=hatch, alpha=alpha
            )
        dashes = (0, (1, 1.2)) if does == "waiting" else "-"
        _draw_box(axes, box, fill=False, edgecolor=color, linewidth=1.2, linestyle=dashes)


def _draw_box(axes: Axes, box: tuple, **style) -> None:
    left, top, wide, high = box
    axes.add_patch(Rectangle((left, top), wide, high, **{"zorder": 2, **style}))
