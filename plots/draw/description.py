"""Descriptions of figures as text: panels, axes, series with their points, notes.

They describe matplotlib's objects, not pixels: the text is the same on every system and with any
fonts. Numbers have four digits, the series of a panel are in the order of their names.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, PathCollection, QuadMesh
from matplotlib.colors import same_color, to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator
from numpy import asarray, ma

_INDENT = "  "
#: Of a line or marker that is not drawn.
_BLANK = (None, "None", "", " ")


def named(artist: Any, name: str, cases: Sequence[int | None] = ()) -> Any:
    """Name an artist, or give the whole of a text that was shortened to fit; ``cases`` are the
    numbers of the rows of its marks."""
    artist.described, artist.cases = name, cases
    return artist


def describe_picture(picture: Figure) -> str:
    """Describe a figure as text.

    Examples
    --------
    >>> picture = Figure()
    >>> axes = named(picture.add_axes((0, 0, 1, 1)), "a panel")
    >>> _ = named(axes.plot([1, 2], [0.25, 1 / 3], "o", color="black")[0], "mine")
    >>> _ = axes.set(xlim=(0, 3), ylim=(0, 1), xlabel="ranks", ylabel="time (s)")
    >>> print(describe_picture(picture), end="")
    panel: a panel
      x: ranks, 0 to 3
      y: time (s), 0 to 1
      points, mine (#000000 o): (1, 0.25) (2, 0.3333)
    """
    lines = []
    for axes in picture.axes:
        lines += [f"panel: {_name(axes)}", *(_INDENT + line for line in _axes(axes))]
    for legend in picture.legends:
        lines += ["legend:", *(_INDENT + line for line in _legend(legend))]
    texts = [_name(text) for text in picture.texts if _name(text)]
    return "\n".join([*lines, *(["texts:"] if texts else []), *(_INDENT + t for t in texts)]) + "\n"


def _name(artist: Artist) -> str:
    given = getattr(artist, "described", None)
    if given is None and isinstance(artist, Text):
        given = artist.get_text()
    return " / ".join((given or "").split("\n"))


def _axes(axes: Axes) -> Iterator[str]:
    title = axes.get_title() or axes.get_title("left")
    if title:
        yield f"title: {' / '.join(title.splitlines())}"
    for name in "xy" * axes.axison:
        yield f"{name}: {_axis(axes, name)}"
    if axes.get_label() == "<colorbar>":
        return
    bars = [
        artist for artist in axes.containers if isinstance(artist, BarContainer) and len(artist)
    ]
    in_bars = {id(bar) for artist in bars for bar in artist}
    lines = [_line(line, axes) for line in axes.lines]
    lines += [_bars(artist) for artist in bars]
    lines += [_rectangle(patch, axes) for patch in axes.patches if id(patch) not in in_bars]
    lines += [text for collection in axes.collections for text in _collection(collection)]
    lines += [_text(text, axes) for text in axes.texts if _name(text)]
    yield from sorted(filter(None, lines))


def _axis(axes: Axes, name: str) -> str:
    axis = getattr(axes, f"{name}axis")
    parts = [axis.label.get_text() or "untitled"]
    parts[0] += ", " + " to ".join(map(_number, getattr(axes, f"get_{name}lim")()))
    if axis.get_scale() != "linear":
        parts.append(axis.get_scale())
    if isinstance(axis.get_major_locator(), FixedLocator):
        places = axis.get_majorticklocs()
        texts = [_name(tick) for tick in axis.get_ticklabels()]
        if any(texts):
            parts.append("ticks " + ", ".join(map(_tick, places, texts)))
    return "; ".join(parts)


def _tick(place: float, text: str) -> str:
    number = _number(place)
    return text if text == number else f"{number} = {text}"


def _line(line: Line2D, axes: Axes) -> str:
    points = list(zip(asarray(line.get_xdata(), float), asarray(line.get_ydata(), float)))
    for name, at, transform in (
        ("y", 1, axes.get_yaxis_transform(which="grid")),
        ("x", 0, axes.get_xaxis_transform(which="grid")),
    ):
        if line.get_transform() == transform:
            return f"rule{_called(line)}: {name} = {_number(points[0][at])}"
    dashed, marked = line.get_linestyle() not in _BLANK, line.get_marker() not in _BLANK
    kind = "points" if marked and not dashed else "line"
    described = points if dashed else sorted(points)
    return f"{kind}{_called(line)} ({_style_text(line)}): {_points(described)}"


def _called(artist: Artist) -> str:
    return f", {_name(artist)}" if _name(artist) else ""


def _style_text(line: Line2D) -> str:
    marker = line.get_marker()
    if marker in _BLANK:
        return to_hex(line.get_color())
    face, edge = line.get_markerfacecolor(), line.get_markeredgecolor()
    hollow = same_color(face, "white") and not same_color(edge, "white")
    return f"{to_hex(edge if hollow else face)} {marker}{' hollow' if hollow else ''}"


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"({_number(x)}, {_number(y)})" for x, y in points)


def _bars(bars: Any) -> str:
    fills: dict[str, list] = {}
    for bar in bars:
        box = bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()
        fills.setdefault(_fill(bar), []).append(box)
    described = (f"({fill}): {_boxes(sorted(boxes))}" for fill, boxes in sorted(fills.items()))
    return f"bars{_called(bars)} {', '.join(described)}"


def _boxes(boxes: Iterable[tuple[float, float, float, float]]) -> str:
    """Boxes by their ends: across, then up."""
    return " ".join(
        f"[{_number(x)} to {_number(x + wide)}; {_number(y)} to {_number(y + high)}]"
        for x, y, wide, high in boxes
    )


def _fill(patch: Patch) -> str:
    if not patch.get_fill():
        return f"frame {to_hex(patch.get_edgecolor())}"
    hatch = patch.get_hatch()
    if same_color(patch.get_facecolor(), "white") and not same_color(
        patch.get_edgecolor(), "white"
    ):
        return f"{to_hex(patch.get_edgecolor())} hollow"
    return to_hex(patch.get_facecolor()) + (f" {hatch}" if hatch else "")


def _rectangle(patch: Patch, axes: Axes) -> str:
    box = patch.get_path().get_extents(patch.get_patch_transform())
    ends = (box.x0, box.y0, box.width, box.height)
    return f"box{_called(patch)} ({_fill(patch)}): {_boxes([ends])}"


def _collection(collection: Collection) -> Iterator[str]:
    if isinstance(collection, QuadMesh):
        values = ma.masked_invalid(asarray(collection.get_array(), float))
        rows = values.reshape(values.shape[0], -1).filled(float("nan"))
        for number, row in enumerate(rows):
            cells = " ".join(_number(value) for value in row)
            yield f"cells{_called(collection)}, row {number:03d}: {cells}"
        return
    if isinstance(collection, PathCollection):
        points = sorted(map(tuple, collection.get_offsets()))
        yield f"points{_called(collection)}: {_points(points)}"
        return
    boxes = [path.get_extents() for path in collection.get_paths()]
    colors = sorted(
        {to_hex(color) for color in (*collection.get_facecolor(), *collection.get_edgecolor())}
    )
    described = _boxes((box.x0, box.y0, box.width, box.height) for box in boxes)
    yield f"spans{_called(collection)} ({' '.join(colors)}): {described}"


def _text(text: Text, axes: Axes) -> str:
    at = text.xy if isinstance(text, Annotation) else text.get_position()
    coordinates = text.xycoords if isinstance(text, Annotation) else "data"
    inside = coordinates == "data" and text.get_transform() != axes.transAxes
    where = f" at ({', '.join(map(_number, at))})" if inside else ""
    return f"text{where}: {_name(text)}"


def _legend(legend: Legend) -> Iterator[str]:
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        style_text = _style_text(handle) if isinstance(handle, Line2D) else _fill(handle)
        yield f"{_name(text)} ({style_text})"


def _number(value: float) -> str:
    """A number for the text: four digits, no negative zero.

    Examples
    --------
    >>> _number(1 / 3), _number(123456.0), _number(-0.0), _number(float("nan"))
    ('0.3333', '1.235e+05', '0', '-')
    """
    return f"{float(value) or 0.0:.4g}" if isfinite(value) else "-"
