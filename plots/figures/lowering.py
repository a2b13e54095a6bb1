"""Direct execution beside the lowerings of the same case: the time of each over that of direct
execution.

One row a case, those on top that gain most by lowering. Left of the line at 1 lowering is faster;
more than 5 % so in the shaded part.
"""

from itertools import groupby
from typing import Any

from matplotlib.lines import Line2D
from numpy import inf, isfinite, isinf, nan
from pandas import DataFrame, concat

from plots.draw.page import (
    MARGIN_IN,
    TITLE_IN,
    Page,
    fitted,
    line_handle,
    line_look,
    page_in,
    width_in,
)
from plots.draw.style import FONT_PT, SMALL_PT, LineStyle
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import (
    UNIVERSAL,
    Options,
    SelectionError,
    Shape,
    Source,
    elided,
    partitioning,
    shape_text,
)
from plots.select.records import Records, frame, rows
from plots.select.selection import shown, usable

LOWERINGS = {
    "greedy": LineStyle("#E69F00", "s", "None"),
    "cost": LineStyle("#009E73", "D", "None"),
    "exhaustive": LineStyle("#0072B2", "o", "None"),
}
_NOT_OK = {"marker": "x", "color": "#777777", "linestyle": "None"}
DIRECT = "direct"
#: Slower than a lowering by more than this is "not as good" (the paper's "within 5%").
WITHIN = 0.95
#: What a case and its lowerings have in common.
_SAME = [
    "source",
    "shape",
    "a",
    "b",
    "c",
    "stationary",
    "chunk",
    "transport",
    "prefetch",
    "get",
    "progress",
]
_MOST_PANELS, _MOST_ROWS, _NAME = 4, 30, 46
_ROW_IN, _BELOW_IN, _RIGHT_IN, _SHAPE_IN = 0.125, 0.42, 0.04, 0.16
_MOST_LABELS = 0.34  # of the page's width
_TITLE = "Lowered over direct execution"


#: Source and shape of a panel, and its cases, the largest gain first: their names, and the time of
#: each lowering over that of direct execution; infinite where it is not ok, empty where it was not
#: run.
Panel = tuple[tuple[Source, Shape], DataFrame]


def row_name(record: Any) -> str:
    """What a row is called: the partitioning as the paper names it, or the three forms, and what
    stays.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> case = Record(
    ...     mode="simulated",
    ...     status="ok",
    ...     best_s=1.0,
    ...     a="row",
    ...     b="column",
    ...     c="column",
    ...     stationary="C",
    ... )
    >>> row_name(case)
    'Inner Prod. S-C'
    """
    replicated = "/" in f"{record.a}{record.b}{record.c}"
    known = "" if replicated else partitioning(record).removeprefix("UA - ")
    forms = known or " | ".join(text or "?" for text in (record.a, record.b, record.c))
    return elided(f"{forms} S-{record.stationary}" if record.stationary else forms, _NAME)


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """Pair each lowered case with the same case run directly: (panels, notes).

    Raises
    ------
    SelectionError
        If there is no such pair.
    """
    found = frame(records)
    refused = (found.status != "ok") & found.schedule.isin(LOWERINGS)
    kept, notes = usable(found[~refused], options)
    ours = lambda table: table[
        (table.algorithm == UNIVERSAL) & table.schedule.isin([DIRECT, *LOWERINGS])
    ]
    compared = ours(kept)
    every = concat([compared, ours(found[refused]).assign(time_s=inf)])
    every["pair"] = every.groupby(_SAME, dropna=False, sort=False).ngroup()
    sure = every[~every.hollow]
    times = sure.groupby(["pair", "schedule"]).time_s.min().unstack()
    times = times.reindex(columns=[DIRECT, *LOWERINGS])
    ratios = times[[*LOWERINGS]].div(times[DIRECT], axis=0)
    ratios = ratios[isfinite(ratios).any(axis=1)]
    if ratios.empty:
        raise SelectionError(
            f"no case that ran both directly and lowered in {len(found)} records. Run drbench "
            "simulate lowering, or a sweep with schedules."
        )
    if len(compared) < len(kept):
        notes.append(f"not drawn: {len(kept) - len(compared)} cases without a schedule to compare")
    cases = every.drop_duplicates("pair").set_index("pair").loc[ratios.index]
    ratios = ratios.assign(
        name=list(map(row_name, rows(cases))),
        best=ratios.min(axis=1),
        source=cases.source,
        shape=cases["shape"],
    ).sort_values(["best", "name"])
    by_panel, more = shown(ratios, _MOST_PANELS, "panels")
    chosen = []
    for panel, inside in by_panel:
        chosen.append((panel, inside[:_MOST_ROWS]))
        if len(inside) > _MOST_ROWS:
            notes.append(
                f"{shape_text(panel[1])}: not drawn: {len(inside) - _MOST_ROWS} cases that gain "
                "less by lowering"
            )
    return chosen, notes + more


def make(records: Records, options: Options) -> Made:
    """Draw a panel a shape, those of a source beside each other with the same rows."""
    found, notes = panels(records, options)
    every = concat([inside for _, inside in found])
    ratios, slower = every[[*LOWERINGS]], (every.best < WITHIN).sum()
    told = [
        f"1 is the time of direct execution; in {len(every) - slower} of {len(every)} cases it "
        "is within 5 % of the best lowering, in the others (shaded) it is not"
    ]
    handles = [
        line_handle(name, style) for name, style in LOWERINGS.items() if ratios[name].notna().any()
    ]
    if isinf(ratios).any(axis=None):
        text = "not ok: exhaustive is beyond its limit, or refused"
        handles.append(Line2D([], [], label=text, markersize=4, **_NOT_OK))
    low, high = min(every.best.min(), WITHIN), max(ratios.replace(inf, nan).max().max(), 1 / WITHIN)
    left_in = 0.14 + max(width_in(name, SMALL_PT) for name in every.name)
    left_in = min(left_in, _MOST_LABELS * page_in())
    rows_of = [
        (source, list(inside)) for source, inside in groupby(found, lambda panel: panel[0][0])
    ]
    orders = [
        list(concat([inside for _, inside in here]).groupby("name").best.min().sort_values().index)
        for _, here in rows_of
    ]
    head_in = TITLE_IN + _SHAPE_IN
    highs_in = [head_in + len(order) * _ROW_IN + _BELOW_IN for order in orders]
    page, top_in = Page(sum(highs_in), handles, [*told, *notes]), 0.0
    for (source, here), order, high_in in zip(rows_of, orders, highs_in):
        page.title(MARGIN_IN, top_in, page_in() - 2 * MARGIN_IN, _TITLE, source.text)
        wide_in = (page_in() - left_in - _RIGHT_IN) / len(here)
        for number, ((_, shape), inside) in enumerate(here):
            at_in = left_in + number * wide_in
            text, size = fitted(shape_text(shape), FONT_PT - 0.5, wide_in - 0.08)
            named(page.text(at_in, top_in + TITLE_IN, text, size, color="black"), "")
            place = (at_in, top_in + head_in, wide_in - 0.1, len(order) * _ROW_IN)
            axes = named(page.axes(*place), f"{_TITLE}\n{shape_text(shape)}\n{source.text}")
            _panel(axes, inside, order if number == 0 else [""] * len(order), order, low, high)
            if number == 0:
                names = axes.get_yticklabels()
                for name, whole in zip(names, order):
                    text, size = fitted(whole, SMALL_PT, left_in - 0.1)
                    named(name, whole).set(text=text, size=size)
        top_in += high_in
    return Made(page.picture, notes)


def _panel(axes, inside: DataFrame, labels, order, low: float, high: float) -> None:
    room = 0.04 * (high - low)
    edge = high + 2.5 * room
    named(axes.axvspan(low - room, WITHIN, color="#F3E3DC", zorder=0), "lowering gains over 5 %")
    named(axes.axvline(1, color="black", linewidth=0.8, zorder=1), "direct")
    at = inside.name.map(order.index)
    for name, style in LOWERINGS.items():
        ratios = inside[name]
        has = isfinite(ratios)
        look = line_look(style) | {"markersize": 3.8, "markeredgewidth": 0.4}
        if has.any():
            named(axes.plot(ratios[has], at[has], clip_on=False, zorder=3, **look)[0], name)
        if isinf(ratios).any():
            refused = at[isinf(ratios)]
            look = {"markersize": 3, "markeredgewidth": 0.7, **_NOT_OK}
            drawn = axes.plot([edge - room] * len(refused), refused, **look)
            named(drawn[0], f"{name}, not ok")
    axes.set_yticks(range(len(order)), labels)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlim(low - room, edge)
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#EEEEEE", linewidth=0.5)
    axes.set_xlabel("time ÷ that of direct", size=SMALL_PT + 0.5)


FIGURES = (
    Figure(
        "lowering",
        "direct execution beside the lowerings of the same case",
        make,
        ("moving_only", "shape"),
    ),
)
