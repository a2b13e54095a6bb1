"""A page of panels with a legend and small print under them, laid out in inches at its reading
size.

Its width is seven inches, as a printed page of text, unless :data:`PAGE_STYLE` has another one.
The same records give the same bytes.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache, partial
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from drbench.plots.select.cases import shorten

from .description import describe_picture, named
from .style import FONT_PT, RC, SMALL_PT, FillStyle, LineStyle
from .svg import svg_file

MARGIN_IN = 0.06
TITLE_IN = 0.44  # above a panel: its name and where its numbers come from
MARKER_PT, LINE_MARKER_PT = 4.6, 5.2
_THIN = {"*": 1.8, "P": 1.3, "X": 1.15}  # factors on the sizes of markers with thin arms
GREY = "#444444"
GRID = {"color": "#E5E5E5", "linewidth": 0.6}
_NOTE_IN, _LEGEND_ROW_IN, _HEAD_IN = 0.114, 0.145, 0.17
_NOTE_PER_IN, _HEAD_PER_IN = 16.3, 12.6  # characters
_HEADS = 2  # rows of a title
#: The marker of a noisy case.
HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 1.0, "markersize": MARKER_PT}
TEXT = ".txt"
#: Formats of figures, with the metadata of their files.
FORMATS: dict[str, dict] = {
    ".pdf": {"Creator": "drbench", "Producer": None, "CreationDate": None},
    ".png": {"Software": None},
    ".svg": {},  # light or dark by the reader's system
    TEXT: {},
}


#: The title of a figure, or a function that makes it with at most some names in each list.
Title = str | Callable[[int], str]


class PageStyle(NamedTuple):
    """The layout of pages: their width, a title instead of the finding (a blank: none), whether
    they have small print, the family of their font, and the height of panels instead of the
    figure's own."""

    width_in: float = 7.0
    title: str = ""
    notes: bool = True
    font: str = RC["font.family"]
    panel_in: float | None = None


PRINTED = PageStyle()
#: The look of the current figure; :meth:`drbench.plots.draw.figure.Figure.make` sets it.
PAGE_STYLE: ContextVar[PageStyle] = ContextVar("page_style", default=PRINTED)


def page_in() -> float:
    """The width of a page."""
    return PAGE_STYLE.get().width_in


def save(picture: Figure, out: str | os.PathLike, formats: Sequence[str]) -> tuple[Path, ...]:
    """Write the figure in each format, without dates and versions; ``.txt`` is a description."""
    base = Path(out)
    base = base.with_suffix("") if base.suffix in FORMATS else base
    paths = []
    with matplotlib.rc_context(RC):
        for suffix in formats:
            path = base.with_name(base.name + suffix)
            try:
                if suffix == TEXT:
                    path.write_text(describe_picture(picture), encoding="utf-8")
                elif suffix == ".svg":
                    path.write_text(svg_file(picture), encoding="utf-8")
                else:
                    picture.savefig(path, metadata=FORMATS[suffix], dpi=300)
            except OSError as error:  # for a full disk it has no file name
                raise OSError(error.errno, error.strerror, str(path)) from None
            paths.append(path)
    return tuple(paths)


class FigurePage:
    """An empty page with space for ``body_in`` inches of panels, under its finding and above its
    legend and small print.

    Parameters
    ----------
    body_in : float
        Height of everything above the legend.
    handles : sequence of artists
        Entries of the legend, by their labels.
    notes : sequence of str
        The small print, a sentence each.
    finding : str or callable
        The title: the figure's result in a sentence; a function makes it with at most some names.
    scale : float
        Size of title, legend and small print, in that of other figures.
    """

    def __init__(
        self,
        body_in: float,
        handles: Sequence[Artist] = (),
        notes: Sequence[str] = (),
        finding: Title = "",
        scale: float = 1.0,
    ):
        page_style, wide_in = PAGE_STYLE.get(), page_in()
        notes = notes if page_style.notes else ()
        per_in = wide_in / scale
        rows = [row for text in notes for row in small_print(text, int(_NOTE_PER_IN * per_in))]
        heads = title_rows(page_style.title or finding, int(_HEAD_PER_IN * per_in))
        note_in, legend_row_in, head_in = scale * _NOTE_IN, scale * _LEGEND_ROW_IN, scale * _HEAD_IN
        self._head_in = len(heads) * head_in + 0.08 * bool(heads)
        body_in += self._head_in
        size = scale * (FONT_PT - 0.5)
        widest = max((width_in(handle.get_label(), size) for handle in handles), default=0)
        columns = max(1, int((wide_in - 2 * MARGIN_IN) / (widest + 0.48 * scale)))
        columns = min(columns, 5, max(1, len(handles)))
        legend_in = ceil(len(handles) / columns) * legend_row_in + 0.06 if handles else 0.0
        self.height_in = body_in + legend_in + len(rows) * note_in + 2 * MARGIN_IN
        self.picture = Figure(figsize=(wide_in, self.height_in))
        FigureCanvasAgg(self.picture)  # a renderer, to measure text with
        if handles:
            self.picture.legend(
                handles=list(handles),
                loc="upper left",
                bbox_to_anchor=self._at(MARGIN_IN, body_in - self._head_in),
                ncols=columns,
                frameon=False,
                borderaxespad=0,
                borderpad=0,
                handlelength=2.6,
                columnspacing=1.0,
                labelspacing=0.4,
                fontsize=size,
            )
        body_in -= self._head_in
        for number, head in enumerate(heads):
            text = self.text(
                MARGIN_IN, 0.04 + number * head_in - self._head_in, head, scale * (FONT_PT + 1.5),
                weight="bold", color="black",
            )  # fmt: skip
            named(text, "" if number else " ".join(heads))
        for number, (row, whole) in enumerate(rows):
            top_in = body_in + legend_in + number * note_in
            named(self.text(MARGIN_IN, top_in, row, scale * SMALL_PT), whole)

    def _at(self, left_in: float, top_in: float) -> tuple[float, float]:
        return left_in / page_in(), 1 - (top_in + self._head_in) / self.height_in

    def axes(self, left_in: float, top_in: float, wide_in: float, high_in: float) -> Axes:
        """Axes by the inches of their upper left corner from that of the page, without a frame at
        the top and right, under their marks."""
        x, y = self._at(left_in, top_in + high_in)
        axes = self.picture.add_axes((x, y, wide_in / page_in(), high_in / self.height_in))
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        return axes

    def panel(
        self,
        chart: tuple[str, str],
        left_in: float,
        top_in: float,
        wide_in: float,
        high_in: float,
        margins_in: tuple[float, float],
    ) -> Axes:
        """Axes under a title and subtitle, in a column of some width that leaves space left and
        right of the axes."""
        self.title(left_in + MARGIN_IN, top_in, wide_in - 2 * MARGIN_IN, *chart)
        before_in, after_in = margins_in
        wide_in = wide_in - before_in - after_in
        axes = self.axes(left_in + before_in, top_in + TITLE_IN, wide_in, high_in)
        return named(axes, "\n".join(chart))

    def text(self, left_in: float, top_in: float, text: str, size: float, **style) -> Text:
        """Text by the inches of its upper left corner."""
        at = self._at(left_in, top_in)
        return self.picture.text(*at, text, size=size, va="top", **{"color": GREY, **style})

    def title(
        self, left_in: float, top_in: float, wide_in: float, name: str, subtitle: str
    ) -> None:
        """The two lines above a panel; long ones shrink, then lose their middle."""
        bold = {"weight": "bold", "color": "black"}
        for down_in, text, size, style in (
            (0.06, name, FONT_PT + 1, bold),
            (0.21, subtitle, FONT_PT, {}),
        ):
            text, size = fit_text(text, size, wide_in, bool(style))
            # named in the panel below
            named(self.text(left_in, top_in + down_in, text, size, **style), "")


def note(axes: Axes, text: str, at: tuple, offset: tuple, **style) -> None:
    """Small grey text some points away from a place."""
    style = {"textcoords": "offset points", "size": SMALL_PT, "color": GREY, **style}
    axes.annotate(text, at, offset, **style)


def title_rows(title: Title, characters: int) -> list[str]:
    """The rows of a title, at most two: with fewer names if three are too long.

    Examples
    --------
    >>> from drbench.plots.select.cases import names
    >>> title_rows(lambda most: f"tied: {names(['universal', 'summa', 'cannon'], most)}", 15)
    ['tied: universal', 'and 2 more']
    """
    makes = [partial(title, most) for most in (3, 2, 1)] if callable(title) else [lambda: title]
    for make in makes:
        text = make_drawable(make())
        if len(rows := wrap(text, characters)) <= _HEADS:
            return rows
    return wrap(text, characters, max_lines=_HEADS, placeholder=" …")


@cache
def _glyphs(family: str) -> frozenset[int]:
    """The characters that both fonts of a family have."""
    fonts = (FontProperties(family=family, weight=weight) for weight in ("normal", "bold"))
    glyphs = (get_font(findfont(font)).get_charmap() for font in fonts)
    return frozenset(set.intersection(*map(set, glyphs)))


def make_drawable(text: str, most: int = 400) -> str:
    """A text of at most some characters, without those that the font would draw as boxes.

    Examples
    --------
    >>> make_drawable("A·Bᵀ, 日本"), make_drawable("abcdefgh", 5)
    ('A·Bᵀ, ��', 'ab…gh')
    """
    text = shorten(text, most)
    return "".join(
        character
        if ord(character) in _glyphs(PAGE_STYLE.get().font)
        else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def small_print(note: str, characters: int) -> list[tuple[str, str]]:
    """The rows of a note as a sentence, each with its description: the first has the whole note.

    Examples
    --------
    >>> small_print("not drawn: 2 cases", 12)
    [('Not drawn: 2', 'Not drawn: 2 cases.'), ('   cases.', '')]
    """
    note = make_drawable(note, 4000)
    # what begins with a symbol or a name, as in "m = 64 a rank" and "mlp1: ...", keeps it
    keeps = "=" in note[:5] or any(character.isdigit() for character in note.partition(" ")[0])
    text = note if keeps else note[:1].upper() + note[1:]
    text = text.removesuffix(".") + "."
    first, *rest = wrap(text, characters, subsequent_indent="   ")
    return [(first, text), *((row, "") for row in rest)]


@cache
def _renderer():
    return FigureCanvasAgg(Figure(dpi=72)).get_renderer()


def width_in(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in inches."""
    return _width_in(text, size, bold, PAGE_STYLE.get().font)


@cache
def _width_in(text: str, size: float, bold: bool, family: str) -> float:
    font = FontProperties(family=family, size=size, weight="bold" if bold else "normal")
    return 1.03 * _renderer().get_text_width_height_descent(text, font, False)[0] / 72


def fit_text(text: str, size: float, wide_in: float, bold: bool = False) -> tuple[str, float]:
    """Fit a text into a width: smaller, and at the smallest readable size shorter; returns text and
    size."""
    text = make_drawable(text)
    wide = width_in(text, size, bold)
    if wide <= wide_in:
        return text, size
    smaller = max(min(SMALL_PT, size), size * wide_in / wide)
    width = lambda most: width_in(shorten(text, most), smaller, bold)
    most = 3 + bisect_right(range(4, len(text) + 1), wide_in, key=width)
    return shorten(text, max(most, 4)), smaller


def line_handle(name: str, style: LineStyle) -> Line2D:
    """The legend's entry of a line."""
    return Line2D([], [], label=label(name), **line_keywords(style))


def patch_handle(fill: FillStyle) -> Patch:
    """The legend's entry of a bar."""
    return Patch(
        facecolor=fill.color,
        edgecolor=bar_edge(fill.color),
        hatch=fill.hatch,
        linewidth=0.5,
        label=label(fill.name),
    )


def bar_edge(color: str) -> str:
    """The colour of a bar's edge and hatch."""
    return "#777777" if color == "#FFFFFF" else "white"


def line_keywords(style: LineStyle) -> dict:
    """matplotlib's arguments for a line of this style: filled markers with a white edge."""
    return {
        "color": style.color,
        "linestyle": style.dashes,
        "linewidth": 1.1,
        "marker": style.marker,
        "markersize": marker_pt(style, LINE_MARKER_PT),
        "markerfacecolor": style.color,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def marker_pt(style: LineStyle | None, size: float = MARKER_PT) -> float:
    """The size of a marker that looks as large as others."""
    return size * (_THIN.get(style.marker, 1) if style else 1)


def label(name: str) -> str:
    """A name for a legend: matplotlib hides names that begin with an underscore."""
    name = make_drawable(name, 60) or "unnamed"
    return f" {name}" if name.startswith("_") else name
