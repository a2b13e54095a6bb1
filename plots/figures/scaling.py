"""Strong scaling, the time of one problem against the number of ranks, and weak scaling, the rate a
rank keeps as problem and ranks grow together; each with the ideal."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Charts, Marks, draw_chart, panels, polyline
from plots.draw.page import GRID, line_handle, log_ticks, note, number, time_unit
from plots.draw.style import style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    SelectionError,
    Shape,
    Source,
    cases,
    names,
    rising,
    shape_text,
)
from plots.select.records import Records, rows
from plots.select.selection import groups, not_shown, usable

_MOST_PANELS, _MOST_LINES = 6, 12


class Line(NamedTuple):
    """One line: the rows of the fastest case at each number of ranks, rising."""

    name: str
    records: list[Any]


class Panel(NamedTuple):
    """The lines of one problem, fastest at the most ranks first."""

    title: str
    source: Source
    lines: list[Line]

    @property
    def every(self) -> list[Any]:
        """The rows of all lines."""
        return [record for each in self.lines for record in each.records]

    @property
    def ranks(self) -> list[int]:
        """Every number of ranks of a line, rising."""
        return sorted({record.ranks for record in self.every})


def strong_panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """One panel a shape that was run on several numbers of ranks: (panels, notes)."""
    kept, notes = _kept(records, options)
    found = groups(kept, ["anywhere", "shape"])
    several = [each for each in found if each[1].ranks.nunique() > 1]
    if not several:
        raise SelectionError(
            f"no shape of {len(found)} was run on more than one number of ranks. Run one problem "
            "with several -p."
        )
    if len(several) < len(found):
        notes.append(f"not drawn: {len(found) - len(several)} shapes on one number of ranks")
    return _panels(
        [
            (source, f"{shape_text(shape)}  (m × n × k)", inside)
            for (source, shape), inside in several
        ],
        notes,
    )


#: What may grow with the ranks p, tried in this order: m, n or k, or two of them, or all.
GROWING = [grow for count in (1, 2, 3) for grow in combinations("mnk", count)]


def _work(grow: tuple[str, ...], shape: Shape, ranks: int) -> dict[str, Fraction]:
    """What is the same on every number of ranks if these extents grow: the others, and then the
    product of these a rank."""
    sizes = dict(zip("mnk", shape))
    same = {name: Fraction(size) for name, size in sizes.items() if name not in grow}
    return same | {"".join(grow): Fraction(prod(sizes[name] for name in grow), ranks)}


def _title(grow: tuple[str, ...], work: dict[str, Fraction]) -> str:
    product = "".join(grow)
    # a single letter in its place, a product before the others
    first = "mnk".index if len(grow) == 1 else product.__ne__
    parts = sorted(work.items(), key=lambda part: first(part[0]))
    return ", ".join(
        f"{name} = {_each(size)}{' a rank' * (name == product)}" for name, size in parts
    )


def weak_panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """One panel for cases whose work a rank is the same on several numbers of ranks: (panels,
    notes)."""
    left, notes = _kept(records, options)
    found = []
    for grow in GROWING:
        left["work"] = [
            tuple(_work(grow, shape, ranks).values())
            for shape, ranks in zip(left["shape"], left.ranks.tolist())
        ]
        for (source, _), inside in groups(left, ["anywhere", "work"]):
            shapes = inside.drop_duplicates(["ranks", "shape"])
            # one shape for each number of ranks, else it is no family but a coincidence of products
            if len(shapes) == shapes.ranks.nunique() > 1:
                one = shapes.iloc[0]
                title = _title(grow, _work(grow, one["shape"], int(one.ranks)))
                found.append((source, title, inside))
                left = left.drop(inside.index)
    if not found:
        raise SelectionError(
            f"{cases(len(left))}, and no work a rank that is the same on several numbers of "
            "ranks. Let m grow with -p."
        )
    if len(left):
        notes.append(
            f"not drawn: {cases(len(left))} whose work a rank is not found on another number of "
            "ranks"
        )
    return _panels(found, notes)


def _each(part: Fraction) -> str:
    return str(part) if part.denominator == 1 else f"{float(part):.4g}"


def _kept(records: Records, options: Options) -> tuple[DataFrame, list[str]]:
    """What may be drawn, with its source but for ranks and nodes, which are what varies."""
    kept, notes = usable(records, options)
    known = kept[(kept.ranks > 0).fillna(False)]
    if len(known) < len(kept):
        notes.append(f"not drawn: {cases(len(kept) - len(known))} without a number of ranks")
    anywhere = [source._replace(ranks=None, nodes=None) for source in known.source]
    return known.assign(anywhere=anywhere), notes


def _panels(
    found: list[tuple[Source, str, DataFrame]], notes: list[str]
) -> tuple[list[Panel], list[str]]:
    panels = []
    for source, title, inside in found[:_MOST_PANELS]:
        fastest = inside.drop_duplicates(["series", "ranks"]).sort_values("ranks")
        lines = [Line(name, rows(here)) for name, here in groups(fastest, "series")]
        lines.sort(key=lambda line: (-line.records[-1].ranks, line.records[-1].best_s, line.name))
        if len(lines) > _MOST_LINES:
            notes.append(
                f"{title}: not drawn: {names([line.name for line in lines[_MOST_LINES:]])} "
                "(slower than those drawn)"
            )
        panel = Panel(title, source, lines[:_MOST_LINES])
        for each in panel.lines:
            absent = sorted(set(panel.ranks) - {record.ranks for record in each.records})
            if absent:
                notes.append(
                    f"{title}: {each.name} has no case on {', '.join(map(str, absent))} ranks"
                )
        panels.append(panel)
    return panels, notes + not_shown([title for _, title, _ in found[_MOST_PANELS:]], "problems")


def reference(panel: Panel) -> Any:
    """The fastest case on the fewest ranks of a panel: what the ideal starts from."""
    return min(panel.every, key=lambda record: (record.ranks, record.best_s))


def efficiency(record: Any, start: Any) -> float:
    """Percent of the reference's rate a rank that a case keeps."""
    work, base = (each.m * each.n * each.k / each.ranks / each.best_s for each in (record, start))
    return 100 * work / base


def _chart(panel: Panel, weak: bool) -> Chart:
    ranks, start = panel.ranks, reference(panel)
    ends = (ranks[0] / 1.12, ranks[-1] * 1.12)
    some = ranks if len(ranks) <= 8 else ranks[:: -(-len(ranks) // 8)]
    if weak:
        value = partial(efficiency, start=start)
        highest = max(map(value, panel.every))
        y = Axis("rate a rank, percent of the ideal (%)", (0, max(112, highest * 1.06)))
        ideal = Marks("rule", "ideal", ends, [100, 100])
    else:
        times = [record.best_s for record in panel.every]
        length, unit = time_unit(min(times))
        value = lambda record: record.best_s / length
        ideals = [start.best_s * start.ranks / each for each in ranks]
        room = max(1.1, (max(times) / min(times + ideals)) ** 0.07)
        limits = min(times + ideals) / length / room, max(times) / length * room**0.5
        y = Axis(f"best time ({unit})", limits, 10, log_ticks(*limits, number))
        ideal = Marks("rule", "ideal", ranks, [each / length for each in ideals])
    lines = [
        polyline(
            each.name,
            style_of(each.name),
            ranks,
            {record.ranks: (value(record), record.Index) for record in each.records},
        )
        for each in panel.lines
    ]
    x = Axis("ranks", ends, 2, {each: str(each) for each in some})
    return Chart(panel.title, panel.source.text, x, y, [*lines, ideal])


def charts(select: Callable, weak: bool, records: Records, options: Options) -> Charts:
    """Describe the panels: (charts, notes)."""
    found, notes = select(records, options)
    return [_chart(panel, weak) for panel in found], notes


def make(select: Callable, weak: bool, records: Records, options: Options) -> Made:
    """Draw the panels, two in a row, with the ideal of each."""
    found, notes = charts(select, weak, records, options)
    named = sorted({marks.name for chart in found for marks in chart.marks[:-1]}, key=rising)
    ideal = "ideal: the fastest case on the fewest ranks, " + (
        "its time kept" if weak else "its time divided by the ranks"
    )
    page, axes = panels(
        found,
        [line_handle(name, style_of(name)) for name in named],
        [f"dashed: {ideal}", *notes],
    )
    for each, chart in zip(axes, found):
        draw_chart(each, chart)
        each.grid(**GRID)
        rule = chart.marks[-1]
        note(
            each,
            "ideal",
            (1, 100) if weak else (rule.x[-1], rule.y[-1]),
            (-3, 2 if weak else -1),
            xycoords=each.get_yaxis_transform() if weak else "data",
            ha="right",
            va="bottom" if weak else "top",
        )
    return Made(page.picture, notes)


FIGURES = tuple(
    Figure(
        name,
        summary,
        partial(make, select, name == "weak"),
        takes,
        charts=partial(charts, select, name == "weak"),
    )
    for name, summary, select, takes in (
        (
            "strong",
            "strong scaling: time of one problem against ranks, with the ideal",
            strong_panels,
            ("moving_only", "shape"),
        ),
        (
            "weak",
            "weak scaling: rate a rank keeps as problem and ranks grow together, with the ideal",
            weak_panels,
            ("moving_only",),
        ),
    )
)
