"""Lines over the number of ranks, for the figures ``strong`` and ``weak``: which cases make a line,
pure, and how it is drawn."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import matplotlib
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from drbench.measure.record import Record
from plots.draw.page import (
    GREY,
    MARGIN_IN,
    PAGE_IN,
    TITLE_IN,
    Page,
    line_handle,
    line_look,
    log_axis,
    number,
    time_unit,
)
from plots.draw.style import RC, SMALL_PT, style_of
from plots.registry import Made
from plots.select.cases import (
    Options,
    Source,
    cases,
    fastest,
    groups,
    names,
    rising,
    series,
    shape_of,
    shape_text,
    source_of,
    usable,
)
from plots.select.selection import SelectionError

_MOST_PANELS, _MOST_LINES = 6, 12
_HIGH_IN, _LEFT_IN, _BELOW_IN = 2.2, 0.56, 0.46


class Line(NamedTuple):
    """One line: the fastest case at each number of ranks, rising."""

    name: str
    records: list[Record]


class Panel(NamedTuple):
    """The lines of one problem, fastest at the most ranks first."""

    title: str
    source: Source
    lines: list[Line]


def strong_panels(records: Sequence[Record], options: Options) -> tuple[list[Panel], list[str]]:
    """One panel a shape that was run on several numbers of ranks: (panels, notes)."""
    kept, notes = _kept(records, options)
    found = groups(kept, lambda record: (_anywhere(record), shape_of(record)))
    several = {
        key: inside for key, inside in found.items() if len({record.ranks for record in inside}) > 1
    }
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
            for (source, shape), inside in several.items()
        ],
        notes,
    )


#: What stays the same on every number of ranks p, tried in this order: m, n or k grows with p, or
#: two of them do.
GROWING = (
    (
        "m grows",
        lambda m, n, k, p: (n, k, Fraction(m, p)),
        lambda m, n, k, p: f"m = {_each(m, p)} a rank, n = {n}, k = {k}",
    ),
    (
        "n grows",
        lambda m, n, k, p: (m, k, Fraction(n, p)),
        lambda m, n, k, p: f"m = {m}, n = {_each(n, p)} a rank, k = {k}",
    ),
    (
        "k grows",
        lambda m, n, k, p: (m, n, Fraction(k, p)),
        lambda m, n, k, p: f"m = {m}, n = {n}, k = {_each(k, p)} a rank",
    ),
    (
        "m and n grow",
        lambda m, n, k, p: (k, Fraction(m * n, p)),
        lambda m, n, k, p: f"mn = {_each(m * n, p)} a rank, k = {k}",
    ),
    (
        "m and k grow",
        lambda m, n, k, p: (n, Fraction(m * k, p)),
        lambda m, n, k, p: f"mk = {_each(m * k, p)} a rank, n = {n}",
    ),
    (
        "n and k grow",
        lambda m, n, k, p: (m, Fraction(n * k, p)),
        lambda m, n, k, p: f"nk = {_each(n * k, p)} a rank, m = {m}",
    ),
    (
        "m, n and k grow",
        lambda m, n, k, p: (Fraction(m * n * k, p),),
        lambda m, n, k, p: f"mnk = {_each(m * n * k, p)} a rank",
    ),
)


def weak_panels(records: Sequence[Record], options: Options) -> tuple[list[Panel], list[str]]:
    """One panel for cases whose work a rank is the same on several numbers of ranks: (panels,
    notes)."""
    left, notes = _kept(records, options)
    found = []
    for _, key, title in GROWING:
        families = groups(
            left, lambda record, key=key: (_anywhere(record), key(*shape_of(record), record.ranks))
        )
        for (source, _), inside in families.items():
            shapes = {(record.ranks, shape_of(record)) for record in inside}
            # one shape for each number of ranks, else it is no family but a coincidence of products
            if len({ranks for ranks, _ in shapes}) > 1 and len(shapes) == len(
                {ranks for ranks, _ in shapes}
            ):
                found.append((source, title(*shape_of(inside[0]), inside[0].ranks), inside))
                used = {id(record) for record in inside}
                left = [record for record in left if id(record) not in used]
    if not found:
        raise SelectionError(
            f"{cases(len(left))}, and no work a rank that is the same on several numbers of "
            "ranks. Let m grow with -p."
        )
    if left:
        notes.append(
            f"not drawn: {cases(len(left))} whose work a rank is not found on another number of "
            "ranks"
        )
    return _panels(found, notes)


def _each(product: int, ranks: int) -> str:
    part = Fraction(product, ranks)
    return str(part) if part.denominator == 1 else f"{float(part):.4g}"


def _anywhere(record: Record) -> Source:
    """The source of a record but for its ranks and nodes, which are what varies."""
    return source_of(record)._replace(ranks=None, nodes=None)


def _kept(records: Sequence[Record], options: Options) -> tuple[list[Record], list[str]]:
    kept, notes = usable(records, options)
    known = [record for record in kept if record.ranks]
    if len(known) < len(kept):
        notes.append(f"not drawn: {cases(len(kept) - len(known))} without a number of ranks")
    return known, notes


def _panels(
    found: list[tuple[Source, str, list[Record]]], notes: list[str]
) -> tuple[list[Panel], list[str]]:
    panels = []
    for source, title, inside in found[:_MOST_PANELS]:
        lines = [
            Line(name, [fastest(here) for here in groups(of_name, lambda r: r.ranks).values()])
            for name, of_name in groups(inside, series).items()
        ]
        lines.sort(key=lambda line: (-line.records[-1].ranks, line.records[-1].best_s, line.name))
        if len(lines) > _MOST_LINES:
            notes.append(
                f"{title}: not drawn: {names([line.name for line in lines[_MOST_LINES:]])} "
                "(slower than those drawn)"
            )
            lines = lines[:_MOST_LINES]
        every = {record.ranks for line in lines for record in line.records}
        for line in lines:
            absent = sorted(every - {record.ranks for record in line.records})
            if absent:
                notes.append(
                    f"{title}: {line.name} has no case on {', '.join(map(str, absent))} ranks"
                )
        panels.append(Panel(title, source, lines))
    if len(found) > _MOST_PANELS:
        notes.append(
            f"not drawn: {len(found) - _MOST_PANELS} problems more "
            f"({names([title for _, title, _ in found[_MOST_PANELS:]])}); --shape chooses one"
        )
    return panels, notes


def draw_panels(panels: list[Panel], notes: list[str], weak: bool) -> Made:
    """Draw the panels, two in a row, with the ideal of each."""
    with matplotlib.rc_context(RC):
        found = sorted({line.name for panel in panels for line in panel.lines}, key=rising)
        handles = [line_handle(name, style_of(name)) for name in found]
        ideal = "ideal: the fastest case on the fewest ranks, " + (
            "its time kept" if weak else "its time divided by the ranks"
        )
        high_in = TITLE_IN + _HIGH_IN + _BELOW_IN
        columns = min(2, len(panels))
        wide_in = PAGE_IN / columns
        page = Page(-(-len(panels) // columns) * high_in, handles, [f"dashed: {ideal}", *notes])
        for index, panel in enumerate(panels):
            left, top = index % columns * wide_in, index // columns * high_in
            page.title(
                left + MARGIN_IN, top, wide_in - 2 * MARGIN_IN, panel.title, panel.source.text
            )
            axes = page.axes(left + _LEFT_IN, top + TITLE_IN, wide_in - _LEFT_IN - 0.12, _HIGH_IN)
            (_weak if weak else _strong)(axes, panel)
            _ranks_axis(axes, panel)
    return Made(page.picture, notes)


def reference(panel: Panel) -> Record:
    """The fastest case on the fewest ranks of a panel: what the ideal starts from."""
    every = [record for line in panel.lines for record in line.records]
    fewest = min(record.ranks for record in every)
    return fastest(record for record in every if record.ranks == fewest)


def _ranks_axis(axes, panel: Panel) -> None:
    ranks = sorted({record.ranks for line in panel.lines for record in line.records})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(
        FixedLocator(ranks if len(ranks) <= 8 else ranks[:: -(-len(ranks) // 8)])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.set_xlim(ranks[0] / 1.12, ranks[-1] * 1.12)
    axes.set_xlabel("ranks")
    axes.grid(color="#E5E5E5", linewidth=0.6)


def _lines(axes, panel: Panel, value) -> None:
    ranks = sorted({record.ranks for line in panel.lines for record in line.records})
    for line in reversed(panel.lines):
        at = {record.ranks: value(record) for record in line.records}
        # a number of ranks without a case breaks the line: nothing is interpolated
        axes.plot(
            ranks,
            [at.get(each, float("nan")) for each in ranks],
            zorder=3,
            clip_on=False,
            **line_look(style_of(line.name)),
        )


def _strong(axes, panel: Panel) -> None:
    start = reference(panel)
    ranks = sorted({record.ranks for line in panel.lines for record in line.records})
    times = [record.best_s for line in panel.lines for record in line.records]
    ideal = [start.best_s * start.ranks / each for each in ranks]
    length, unit = time_unit(min(times))
    axes.set_yscale("log")
    _lines(axes, panel, lambda record: record.best_s / length)
    axes.plot(
        ranks,
        [each / length for each in ideal],
        color=GREY,
        linewidth=0.9,
        linestyle=(0, (4, 2)),
        zorder=2,
    )
    room = max(1.1, (max(times) / min(times + ideal)) ** 0.07)
    low, high = min(times + ideal) / length / room, max(times) / length * room**0.5
    axes.set_ylim(low, high)
    log_axis(axes.yaxis, low, high, number)
    axes.annotate(
        "ideal",
        (ranks[-1], ideal[-1] / length),
        (-3, -1),
        "data",
        "offset points",
        ha="right",
        va="top",
        size=SMALL_PT,
        color=GREY,
    )
    axes.set_ylabel(f"best time ({unit})")


def efficiency(record: Record, start: Record) -> float:
    """Percent of the reference's rate a rank that a case keeps."""
    work, base = (each.m * each.n * each.k / each.ranks / each.best_s for each in (record, start))
    return 100 * work / base


def _weak(axes, panel: Panel) -> None:
    start = reference(panel)
    _lines(axes, panel, lambda record: efficiency(record, start))
    highest = max(efficiency(record, start) for line in panel.lines for record in line.records)
    axes.axhline(100, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
    axes.annotate(
        "ideal",
        (1, 100),
        (-3, 2),
        axes.get_yaxis_transform(),
        "offset points",
        ha="right",
        va="bottom",
        size=SMALL_PT,
        color=GREY,
    )
    axes.set_ylim(0, max(112, highest * 1.06))
    axes.set_ylabel("rate a rank, percent of the ideal (%)")
