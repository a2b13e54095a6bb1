"""A figure as SVG inside a page, with the positions of its marks."""

import io
import itertools
import re
from collections.abc import Iterator
from html import escape, unescape

import matplotlib
from matplotlib.collections import QuadMesh
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy import isfinite

from .description import describe_picture
from .style import RC

#: Dark colours: the hues stay, black and white are exchanged.
DARK = "<style>@media (prefers-color-scheme: dark) {svg {filter: invert(.9) hue-rotate(180deg)}}"
DARK += "</style>"
_XML = '<?xml version="1.0" encoding="utf-8"?>\n'
_DESCRIBED = re.compile("<desc>(.*?)</desc>", re.S)
_HEAD = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>\s*|<style.*?</style>\s*", re.S)
_QUOTED, _DECIMALS = re.compile(r'"[^"<>]*"'), re.compile(r"(\d\.\d\d)\d+")
_NUMBERED = re.compile(r' id="[a-z0-9]+_[0-9]+"')


def svg_text(picture: Figure) -> str:
    """The figure as a small ``svg`` element: without metadata, style sheet and numbered ids,
    numbers with two decimals."""
    text = io.StringIO()
    with matplotlib.rc_context(RC):
        picture.savefig(text, format="svg", metadata={"Date": None})
    svg = _NUMBERED.sub("", _HEAD.sub("", text.getvalue()))
    return _QUOTED.sub(lambda value: _DECIMALS.sub(r"\1", value[0]), svg)


def svg_file(picture: Figure) -> str:
    """The figure as a file of its own, light or dark by the reader's system, with its description
    for readers who do not see it."""
    head, end, rest = svg_text(picture).partition(">")
    described = "".join(
        character
        for character in describe_picture(picture)
        if character == "\n" or character.isprintable()
    )
    return f"{_XML}{head}{end}<desc>{escape(described, quote=False)}</desc>{DARK}{rest}"


def description_in(text: str) -> str:
    """The description in a file that :func:`svg_file` made; empty without one.

    Examples
    --------
    >>> description_in("<svg><desc>a &lt; b</desc></svg>"), description_in("<svg/>")
    ('a < b', '')
    """
    match = _DESCRIBED.search(text)
    return unescape(match[1]) if match else ""


def spots(picture: Figure) -> list[list[float]]:
    """The positions of cases' marks: ``[left, top, width, height, case]``, in thousandths of the
    figure's width and height.

    A mark without width and height is a point. Marks are those of artists for which
    :func:`drbench.plots.draw.description.named` has the cases.
    """
    wide, high = picture.bbox.size
    marks = []
    for box, case in _boxes(picture):
        if isfinite(box.extents).all():
            place = box.xmin / wide, 1 - box.ymax / high, box.width / wide, box.height / high
            marks.append([*(round(1000 * abs(part), 1) for part in place), case])
    return marks


def _boxes(picture: Figure) -> Iterator[tuple[Bbox, int]]:
    for axes in picture.axes:
        for artist in (*axes.lines, *axes.containers, *axes.collections):
            cases = getattr(artist, "cases", ())
            if not len(cases):
                continue
            at = None if isinstance(artist, BarContainer) else artist.get_transform().transform
            if at is None:
                boxes = [bar.get_window_extent() for bar in artist]
            elif isinstance(artist, QuadMesh):
                grid = artist.get_coordinates()
                down, across = (range(size - 1) for size in grid.shape[:2])
                boxes = [
                    Bbox(at([grid[y, x], grid[y + 1, x + 1]]))
                    for y, x in itertools.product(down, across)
                ]
            else:
                boxes = [Bbox([point, point]) for point in at(artist.get_xydata())]
            yield from ((box, case) for box, case in zip(boxes, cases) if case is not None)
