"""Strong scaling, the time of one problem against the number of ranks, and weak scaling, the rate a
rank keeps while problem and ranks grow together; each with the ideal."""

from fractions import Fraction
from functools import partial
from itertools import combinations
from math import prod

from pandas import DataFrame, Series

from drbench.measure.decision import Decision, answer, best_at, remedy
from drbench.plots.draw.chart import Axis, Chart, Marks, Spot, labelled_panels, polyline
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.numbers import log_ticks
from drbench.plots.draw.style import style_of
from drbench.plots.select.cases import Options, SelectionError, Shape, Source, cases, names
from drbench.plots.select.records import Records, rows
from drbench.plots.select.rounds import counted, decided
from drbench.plots.select.selection import BY_TIME, doubts, groups, not_shown, select_usable
from drbench.texts import number, time_unit

_MOST_PANELS, _MOST_LINES, _HIGH_IN, _MARGINS_IN = 6, 12, 2.2, (0.56, 1.15)


#: Title and source of a problem, and its lines: the fastest case of each series at each number of
#: ranks, rising; the series that is fastest at the most ranks first.
Panel = tuple[str, Source, DataFrame]


#: What may grow with the ranks p, tried in this order: nothing, of strong scaling; of weak scaling
#: m, n or k, or two of them, or all.
STRONG = [()]
WEAK = [grow for count in (1, 2, 3) for grow in combinations("mnk", count)]


def _work(grow: tuple[str, ...], shape: Shape, ranks: int) -> tuple[tuple[str, Fraction, str], ...]:
    """The constants on every number of ranks if these extents grow: these multiplied, a rank, and
    the others."""
    sizes = dict(zip("mnk", map(Fraction, shape)))
    grown = prod(sizes.pop(name) for name in grow) / ranks
    a_rank = [("".join(grow), grown, " a rank")] if grow else []
    return *a_rank, *((name, size, "") for name, size in sizes.items())


def _title(work: tuple[tuple[str, Fraction, str], ...]) -> str:
    return ", ".join(f"{name} = {_each(size)}{of}" for name, size, of in work)


def choose(
    growing: list[tuple[str, ...]], records: Records, options: Options
) -> tuple[list[Panel], list[str]]:
    """One panel for cases whose problem, or whose work a rank, is the same on several numbers of
    ranks: (panels, notes)."""
    table, notes = _kept(records, options)
    by = ["anywhere", "shape", "ranks"]
    table["problem"] = table.groupby(by).ngroup()
    left, families = table[[*by, "problem"]].drop_duplicates(), []
    for grow in growing:
        sizes = zip(left["shape"], left.ranks.tolist())
        left["work"] = [_work(grow, shape, ranks) for shape, ranks in sizes]
        for (source, work), inside in groups(left, ["anywhere", "work"]):
            # one shape for each number of ranks, else it is a coincidence and no family
            if len(inside) == inside.ranks.nunique() > 1:
                cases_of = table[table.problem.isin(inside.problem)]
                families.append((source, _title(work), cases_of))
                left = left.drop(inside.index)
    lost, what = table.problem.isin(left.problem).sum(), "problem"
    remedy = "Run one problem with several -p and the same --threads."
    if growing is WEAK:
        what, remedy = "work a rank", "Let m grow with -p."
    if not families:
        raise SelectionError(
            f"{cases(lost)}, and no {what} that is the same on several numbers of ranks. {remedy}"
        )
    if lost:
        notes.append(
            f"not drawn: {cases(lost)} whose {what} is on one number of ranks only. {remedy}"
        )
    return _panels(families, notes)


def _each(part: Fraction) -> str:
    return str(part) if part.denominator == 1 else number(float(part), 4)


def _kept(records: Records, options: Options) -> tuple[DataFrame, list[str]]:
    """The cases to draw, with their source without ranks and nodes, which vary."""
    table, notes = select_usable(records, options)
    known = table[(table.ranks > 0).fillna(False)]
    if len(known) < len(table):
        notes.append(f"not drawn: {cases(len(table) - len(known))} without a number of ranks")
    anywhere = [source._replace(ranks=None, nodes=None) for source in known.source]
    return known.assign(anywhere=anywhere), notes


def _panels(
    families: list[tuple[Source, str, DataFrame]], notes: list[str]
) -> tuple[list[Panel], list[str]]:
    panels = []
    for source, title, inside in families[:_MOST_PANELS]:
        lines = inside.drop_duplicates(["series", "ranks"]).sort_values("ranks")
        last = lines.drop_duplicates("series", keep="last")
        falling = last.sort_values(
            ["ranks", *BY_TIME, "series"], ascending=[False, True, True, True, True]
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
    notes += doubts(case for *_, lines in panels for case in rows(lines))
    return panels, notes + not_shown([title for _, title, _ in families[_MOST_PANELS:]], "problems")


def reference(lines: DataFrame) -> Series:
    """The fastest case on the fewest ranks of a panel, if possible one with a core for each rank:
    the reference of the ideal."""
    shared = lines.oversubscribed.fillna(False)
    return lines.assign(shared=shared).sort_values(["ranks", "shared", *BY_TIME]).iloc[0]


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
    x = Axis("ranks", ends, 2, {count: str(count) for count in some})
    low, high = lines.median_low_s / lines.time_s, lines.median_high_s / lines.time_s
    percent = efficiency(lines)
    y = Axis(
        "percent of the ideal (%)",
        (0, max(112, (percent / low).max() * 1.04, percent.max() * 1.06)),
    )
    ideal = Marks("rule", "ideal", ends, [100, 100])
    charts = [
        Chart(
            title,
            source.text,
            x,
            y,
            [*_lines(lines, percent, percent / high, percent / low), ideal],
        )
    ]
    if weak:
        return charts
    start, (length, unit) = reference(lines), time_unit(lines.time_s.min())
    times = lines.time_s / length
    ideals = [start.time_s * start.ranks / count / length for count in ranks]
    every = [*times, *ideals, *(times * low).dropna(), *(times * high).dropna()]
    headroom = max(1.1, (max(every) / min(every)) ** 0.07)
    limits = min(every) / headroom, max(every) * headroom**0.5
    y = Axis(f"time ({unit})", limits, 10, log_ticks(*limits))
    ideal = Marks("rule", "ideal", ranks, ideals)
    return [
        Chart(title, source.text, x, y, [*_lines(lines, times, times * low, times * high), ideal]),
        *charts,
    ]


def finding(chosen: list[Panel], most: int = 3) -> str:
    """The decision at the most ranks of a problem, with at most some names, and the share of the
    ideal that the fastest series keeps; of several problems how often each is the answer."""
    asked = [_asked(lines) for *_, lines in chosen]
    if len(chosen) > 1:
        answers = (answer(decisions, list(last.series)) for last, decisions in asked)
        return f"{counted(answers, 'problem')}, on the most ranks"
    ((last, decisions),), ((*_, lines),) = asked, chosen
    percent = efficiency(lines)
    names = [f"{row.series} with {percent[row.Index]:.0f} % of the ideal" for row in rows(last)]
    return f"On {cases(last.ranks.iloc[0], 'rank')} {answer(decisions, names, most)}"


def _asked(lines: DataFrame) -> tuple[DataFrame, list[Decision]]:
    """The cases that the title names, and the decision on them: those on the most ranks, or those
    on the fewest, where the ideal starts, if none of these is ranked."""
    ends = (lines[lines.ranks == ranks] for ranks in (lines.ranks.min(), lines.ranks.max()))
    first, last = ((end, decided(end)) for end in ends)
    return first if best_at(first[1]) is None else last


def make(growing: list[tuple[str, ...]], records: Records, options: Options) -> Made:
    """Draw the panels, two in a row, with the ideal of each."""
    chosen, notes = choose(growing, records, options)
    weak = growing is WEAK
    charts = [chart for panel in chosen for chart in _charts(panel, weak)]
    ideal = "ideal: the fastest case on the fewest ranks, " + (
        "its rate a rank kept" if weak else "its time divided by the ranks"
    )
    text = [f"dashed: {ideal}", *notes]
    if needs := remedy(*(_asked(lines)[1] for *_, lines in chosen)):
        text.append(f"undecided: {needs}")
    page, _ = labelled_panels(charts, text, _HIGH_IN, _MARGINS_IN, partial(finding, chosen))
    return Made(page.picture, notes)


FIGURES = (
    Figure.listed("strong", partial(make, STRONG), ("moving_only", "shape", "height")),
    Figure.listed("weak", partial(make, WEAK), ("moving_only", "height")),
)
