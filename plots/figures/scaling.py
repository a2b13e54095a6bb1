"""Strong scaling, the time of one problem against the number of ranks, and weak scaling, the rate a
rank keeps as problem and ranks grow together; each with the ideal."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import prod

from pandas import DataFrame, Series

from plots.draw.chart import (
    Axis,
    Chart,
    Marks,
    Spot,
    draw_chart,
    label_lines,
    panels,
    polyline,
)
from plots.draw.page import GRID, log_ticks, number, time_unit
from plots.draw.style import style_of
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    SelectionError,
    Shape,
    Source,
    cases,
    names,
    shape_text,
)
from plots.select.records import Records
from plots.select.selection import FASTEST, groups, not_shown, usable

_MOST_PANELS, _MOST_LINES, _ROOM_IN = 6, 12, (0.56, 1.15)


#: Title and source of a problem, and its lines: the fastest case of each series at each number of
#: ranks, rising; the series that is fastest at the most ranks first.
Panel = tuple[str, Source, DataFrame]


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


def _work(grow: tuple[str, ...], shape: Shape, ranks: int) -> tuple[tuple[str, Fraction], ...]:
    """What is the same on every number of ranks if these extents grow: the others, and last the
    product of these a rank."""
    sizes = dict(zip("mnk", shape))
    product = Fraction(prod(sizes.pop(name) for name in grow), ranks)
    return *((name, Fraction(size)) for name, size in sizes.items()), ("".join(grow), product)


def _title(work: tuple[tuple[str, Fraction], ...]) -> str:
    *same, (product, size) = work
    each = product, f"{_each(size)} a rank"
    # a single letter in its place, a product before the others
    parts = [each, *((name, _each(size)) for name, size in same)]
    if len(product) == 1:
        parts.sort(key=lambda part: "mnk".index(part[0]))
    return ", ".join(map(" = ".join, parts))


def weak_panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """One panel for cases whose work a rank is the same on several numbers of ranks: (panels,
    notes)."""
    kept, notes = _kept(records, options)
    by = ["anywhere", "shape", "ranks"]
    kept["problem"] = kept.groupby(by).ngroup()
    left, found = kept[[*by, "problem"]].drop_duplicates(), []
    for grow in GROWING:
        each = zip(left["shape"], left.ranks.tolist())
        left["work"] = [_work(grow, shape, ranks) for shape, ranks in each]
        for (source, work), inside in groups(left, ["anywhere", "work"]):
            # one shape for each number of ranks, else it is no family but a coincidence of products
            if len(inside) == inside.ranks.nunique() > 1:
                cases_of = kept[kept.problem.isin(inside.problem)]
                found.append((source, _title(work), cases_of))
                left = left.drop(inside.index)
    lost = kept.problem.isin(left.problem).sum()
    if not found:
        raise SelectionError(
            f"{cases(lost)}, and no work a rank that is the same on several numbers of "
            "ranks. Let m grow with -p."
        )
    if lost:
        notes.append(
            f"not drawn: {cases(lost)} whose work a rank is not found on another number of ranks"
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
        lines = inside.drop_duplicates(["series", "ranks"]).sort_values("ranks")
        last = lines.drop_duplicates("series", keep="last")
        falling = last.sort_values(
            ["ranks", *FASTEST, "series"], ascending=[False, True, True, True]
        )
        order = list(falling.series)
        if len(order) > _MOST_LINES:
            notes.append(
                f"{title}: not drawn: {names(order[_MOST_LINES:])} (slower than those drawn)"
            )
        order = order[:_MOST_LINES]
        lines = lines[lines.series.isin(order)]
        for name in order:
            absent = sorted({*lines.ranks} - {*lines.ranks[lines.series == name]})
            if absent:
                notes.append(f"{title}: {name} has no case on {', '.join(map(str, absent))} ranks")
        place = lambda names: names.map(order.index)
        panels.append((title, source, lines.sort_values("series", key=place, kind="stable")))
    return panels, notes + not_shown([title for _, title, _ in found[_MOST_PANELS:]], "problems")


def reference(lines: DataFrame) -> Series:
    """The fastest case on the fewest ranks of a panel: what the ideal starts from."""
    return lines.sort_values(["ranks", *FASTEST]).iloc[0]


def efficiency(lines: DataFrame) -> Series:
    """Percent of the reference's rate a rank that each case keeps."""
    work = lines[["m", "n", "k"]].astype(float).prod(axis=1)
    rates = work / lines.ranks.astype(float) / lines.time_s
    return 100 * rates / rates[reference(lines).name]


def _lines(lines: DataFrame, values: Series, low: Series, high: Series) -> list[Marks]:
    """A line a series through the values of its cases, with the ends of their intervals."""
    ranks = sorted(set(lines.ranks.tolist()))
    spots = {at: Spot(values[at], at, lines.hollow[at], low[at], high[at]) for at in lines.index}
    return [
        polyline(name, style_of(name), ranks, {its.ranks[at]: spots[at] for at in its.index})
        for name, its in lines.groupby("series", sort=False)
    ]


def _charts(panel: Panel, weak: bool) -> list[Chart]:
    """The time, of strong scaling, and the efficiency."""
    title, source, lines = panel
    ranks = sorted(set(lines.ranks.tolist()))
    ends = (ranks[0] / 1.12, ranks[-1] * 1.12)
    some = ranks if len(ranks) <= 8 else ranks[:: -(-len(ranks) // 8)]
    x = Axis("ranks", ends, 2, {each: str(each) for each in some})
    low, high = lines.median_low_s / lines.time_s, lines.median_high_s / lines.time_s
    kept = efficiency(lines)
    y = Axis(
        "percent of the ideal (%)", (0, max(112, (kept / low).max() * 1.04, kept.max() * 1.06))
    )
    ideal = Marks("rule", "ideal", ends, [100, 100])
    found = [
        Chart(title, source.text, x, y, [*_lines(lines, kept, kept / high, kept / low), ideal])
    ]
    if weak:
        return found
    start, (length, unit) = reference(lines), time_unit(lines.time_s.min())
    times = lines.time_s / length
    ideals = [start.time_s * start.ranks / each / length for each in ranks]
    every = [*times, *ideals, *(times * low).dropna(), *(times * high).dropna()]
    room = max(1.1, (max(every) / min(every)) ** 0.07)
    limits = min(every) / room, max(every) * room**0.5
    y = Axis(f"time ({unit})", limits, 10, log_ticks(*limits, number))
    ideal = Marks("rule", "ideal", ranks, ideals)
    return [
        Chart(title, source.text, x, y, [*_lines(lines, times, times * low, times * high), ideal]),
        *found,
    ]


def finding(found: list[Panel]) -> str:
    """How much of the ideal the best series keeps at the most ranks of the first problem."""
    _, _, lines = found[0]
    last = lines[lines.ranks == lines.ranks.max()]
    best = last.sort_values(FASTEST).iloc[0]
    kept = efficiency(lines)[best.name]
    return f"{best.series} keeps {kept:.0f} % of the ideal at {best.ranks} ranks"


def make(select: Callable, weak: bool, records: Records, options: Options) -> Made:
    """Draw the panels, two in a row, with the ideal of each."""
    found, notes = select(records, options)
    charts = [chart for panel in found for chart in _charts(panel, weak)]
    ideal = "ideal: the fastest case on the fewest ranks, " + (
        "its rate a rank kept" if weak else "its time divided by the ranks"
    )
    page, axes = panels(
        charts, (), [f"dashed: {ideal}", *notes], room_in=_ROOM_IN, finding=finding(found)
    )
    for each, chart in zip(axes, charts):
        draw_chart(each, chart)
        each.grid(**GRID)
        label_lines(each, chart, _ROOM_IN[1])
    return Made(page.picture, notes)


FIGURES = tuple(
    Figure(name, f"{name} scaling: {summary}", partial(make, select, name == "weak"), takes)
    for name, summary, select, takes in (
        (
            "strong",
            "time of one problem against ranks, and the share of the ideal",
            strong_panels,
            ("moving_only", "shape"),
        ),
        (
            "weak",
            "rate a rank keeps as problem and ranks grow together",
            weak_panels,
            ("moving_only",),
        ),
    )
)
