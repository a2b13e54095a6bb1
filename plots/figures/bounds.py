"""How far each way to multiply is from the least that it can need: a panel a shape, ranks along x,
needed bytes over the lower bound along y.

A line is a family, by how many dimensions its ranks divide the products in: at each number of ranks
the preset or algorithm of it that needs least.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from plots.draw.chart import (
    Axis,
    Chart,
    Charts,
    Spot,
    draw_chart,
    label_lines,
    panels,
    polyline,
)
from plots.draw.page import GRID, log_ticks, note, number
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError, names, shape_text
from plots.select.typed_rows import Rows

#: In how many dimensions ranks divide the products: one of m, n and k; two of them; two, with
#: replicas that divide the third; all three at once.
FAMILIES = ("1-D", "2-D", "2.5-D", "3-D")


class BoundsRow(NamedTuple):
    """One preset or algorithm on one shape and number of ranks.

    Attributes
    ----------
    m, n, k : int
        C is m×n, A m×k.
    limit_bytes : int or None
        What a rank may use, if that was limited.
    bound_bytes : float
        What some rank needs whatever the schedule (:func:`partitions.io_bound`).
    family : str
        Of :data:`FAMILIES`.
    name, how, needed_bytes, moved_bytes, memory_bytes, share, reason
        As of :class:`launch.models.needs.Need`; the numbers are None if it does not run.
    """

    m: int
    n: int
    k: int
    dtype: str
    ranks: int
    limit_bytes: int | None
    bound_bytes: float
    family: str
    name: str
    how: str
    needed_bytes: int | None
    moved_bytes: int | None
    memory_bytes: int | None
    share: float | None
    reason: str

    @property
    def ratio(self) -> float | None:
        """What is needed over the bound."""
        return None if self.needed_bytes is None else self.needed_bytes / self.bound_bytes


#: The files of such rows.
ROWS = Rows(BoundsRow, "needs", "drbench bounds --csv FILE")

_MOST_PANELS, _HIGH_IN, _ROOM_IN = 8, 2.1, (0.56, 0.5)
_LOOKS = {
    "1-D": LineStyle("#CC79A7", "v", "-"),
    "2-D": LineStyle("#E69F00", "s", "-"),
    "2.5-D": LineStyle("#009E73", "D", "-"),
    "3-D": LineStyle("#0072B2", "o", "-"),
}
#: What the problem of a panel is called by its longest extent, the others being equal.
_KINDS = {"m": "tall", "n": "wide", "k": "large k"}


def _kind(m: int, n: int, k: int) -> str:
    """
    Examples
    --------
    >>> _kind(8, 8, 8), _kind(512, 8, 8), _kind(8, 8, 512), _kind(64, 64, 8), _kind(4, 8, 16)
    ('square', 'tall', 'large k', 'flat', '')
    """
    if m == n == k:
        return "square"
    if m == n > k:
        return "flat"
    extents = {"m": m, "n": n, "k": k}
    longest = max(extents, key=extents.get)
    others = [extent for axis, extent in extents.items() if axis != longest]
    return _KINDS[longest] if max(others) == min(others) else ""


def _panels(rows: Iterable[BoundsRow]) -> tuple[list[tuple[tuple, list[BoundsRow]]], list[str]]:
    """The rows of each shape, element type and memory; of several of one kind the latest."""
    source = lambda row: (row.m, row.n, row.k, row.dtype, row.limit_bytes or 0)
    latest = {(source(row), row.ranks, row.name): row for row in rows if row.ratio}
    if not latest:
        raise SelectionError("there is nothing to draw. Count some with drbench bounds --csv FILE.")
    order = lambda row: (len({row.m, row.n, row.k}), row.m * row.n * row.k, source(row), row.ranks)
    found = [
        (key, list(inside)) for key, inside in groupby(sorted(latest.values(), key=order), source)
    ]
    lost = [shape_text(key[:3]) for key, _ in found[_MOST_PANELS:]]
    notes = [f"not drawn: {', '.join(lost)}: at most {_MOST_PANELS} panels"] if lost else []
    return found[:_MOST_PANELS], notes


def charts(rows: Iterable[BoundsRow], options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found, notes = _panels(rows)
    for family in FAMILIES:
        of = {row.name for _, inside in found for row in inside if row.family == family}
        if of:
            best = "the best of " * (len(of) > 1)
            notes.append(f"{family}: {best}{names(sorted(of), most=9)}")
    made = [_chart(*panel) for panel in found]
    most = max(y for chart in made for marks in chart.marks for y in marks.y if y == y)
    high = max(2.2, most * 1.15)
    limits = high**-0.1, high  # one for all; below the bound there is room to say so
    y = Axis("needed ÷ lower bound", limits, 10, log_ticks(*limits, number))
    return [chart._replace(y=y) for chart in made], notes


def finding(charts: Sequence[Chart]) -> str:
    """How far from the bound the best and the worst family get."""
    most: dict[str, float] = {}
    for marks in (marks for chart in charts for marks in chart.marks):
        most[marks.name] = max(most.get(marks.name, 0), *(y for y in marks.y if y == y))
    order = sorted(most.items(), key=lambda each: each[1])
    (best, least), (worst, far) = order[0], order[-1]
    if best == worst:
        return f"{best} needs up to {number(far)} × the lower bound"
    told = f"{best} stays within {number(least)} × the lower bound"
    return f"{told}; {worst} needs up to {number(far)} ×"


def _chart(key: tuple, rows: list[BoundsRow]) -> Chart:
    *shape, dtype, limit = key
    ranks = sorted({row.ranks for row in rows})
    marks = []
    for family in reversed(FAMILIES):  # what needs least lies on top
        its: dict[float, Spot] = {}
        for row in rows:
            if row.family == family and (row.ranks not in its or its[row.ranks].value > row.ratio):
                its[row.ranks] = Spot(row.ratio)
        if its:
            marks.append(polyline(family, _LOOKS[family], ranks, its))
    step = max(1, -(-len(ranks) // 7))
    kind, text = _kind(*shape), shape_text(tuple(shape))
    return Chart(
        f"{kind}: {text}" if kind else text,
        f"m × n × k, {dtype}" + (f", {limit} bytes of memory a rank" if limit else ""),
        Axis(
            "ranks",
            (ranks[0] / 1.15, ranks[-1] * 1.15),
            2,
            {p: str(p) for p in ranks[::-step][::-1]},
        ),
        Axis("", (0, 1)),
        marks,
    )


def make(rows: Iterable[BoundsRow], options: Options) -> Made:
    """Draw the panels, two in a row."""
    found, notes = charts(list(rows), options)
    about = (
        "bytes of A, B and C that the busiest rank stores or moves, over the least that any "
        "schedule needs (Kwasniewski et al., SC'19; Al Daas et al., SPAA'22); 1 is the bound"
    )
    page, axes = panels(found, (), [about, *notes], _HIGH_IN, 2, _ROOM_IN, finding=finding(found))
    for each, chart in zip(axes, found):
        draw_chart(each, chart)
        each.grid(**GRID)
        label_lines(each, chart, _ROOM_IN[1])
        each.axhspan(chart.y.limits[0], 1, color="#E5E5E5", zorder=0)
        note(each, "below the lower bound", (1, 0), (-3, 2), xycoords="axes fraction", ha="right")
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "bounds",
        "bytes that presets and algorithms need over the lower bound, against ranks",
        make,
        read=ROWS.read,
    ),
)
