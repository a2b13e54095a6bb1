"""Direct execution next to the lowerings of the same case: the time of each over that of direct
execution.

One row a case that gains over 5 % by lowering, those on top that gain most.
"""

from typing import Any

from numpy import inf, isfinite, nan
from pandas import DataFrame, concat

from plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows
from plots.draw.chart import panels as panels_of
from plots.draw.page import line_handle
from plots.draw.style import LineStyle
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
_ROW_IN, _LABELS_IN = 0.14, 2.4


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
    """Draw a panel a shape and source: the cases whose time a lowering changes by over 5 %."""
    found, notes = panels(records, options)
    every = concat([inside for _, inside in found])
    gain, cut = (every.best < WITHIN).sum(), len(every)
    told = [
        "1 is the time of direct execution; of a case each lowering is drawn; cases that all "
        "lowerings leave within 5 % of it, or make slower, are not"
    ]
    finding = f"Lowering gains over 5 % in {gain} of {cut} cases"
    drawn = [(key, inside[inside.best < WITHIN][:_MOST_ROWS]) for key, inside in found]
    drawn = [(key, inside) for key, inside in drawn if len(inside)] or [
        (key, inside[:3]) for key, inside in found[:1]
    ]
    ratios = concat([inside for _, inside in drawn])[[*LOWERINGS]]
    handles = [
        line_handle(name, style) for name, style in LOWERINGS.items() if ratios[name].notna().any()
    ]
    finite = ratios.replace(inf, nan)
    limits = min(finite.min().min(), WITHIN) - 0.02, max(finite.max().max(), 1.0) + 0.04
    charts = [_chart(*panel, limits) for panel in drawn]
    highs_in = [len(inside) * _ROW_IN for _, inside in drawn]
    page, axes = panels_of(charts, handles, [*told, *notes], highs_in, 1, (_LABELS_IN, 0.1),
                           finding=finding)  # fmt: skip
    for each, chart in zip(axes, charts):
        draw_chart(each, chart, 3.8, color="black", linestyle="-", linewidth=0.8)
        label_rows(each, list(chart.y.ticks.values()), _LABELS_IN - 0.1)
        each.grid(axis="y", color="#EEEEEE", linewidth=0.5)
    return Made(page.picture, notes)


def _chart(key: tuple[Source, Shape], inside: DataFrame, limits: tuple[float, float]) -> Chart:
    source, shape = key
    rows_of = range(len(inside))
    marks = [
        Marks("points", name, list(inside[name].replace(inf, nan)), list(rows_of), (), style)
        for name, style in LOWERINGS.items()
        if isfinite(inside[name]).any()
    ]
    y = Axis("", (len(inside) - 0.5, -0.5), ticks=dict(zip(rows_of, inside.name)))
    marks.append(Marks("rule", "direct", [1.0, 1.0], y.limits))
    return Chart(
        shape_text(shape), source.text, Axis("time ÷ that of direct execution", limits), y, marks
    )


FIGURES = (
    Figure(
        "lowering",
        "direct execution next to the lowerings of the same case",
        make,
        ("moving_only", "shape"),
    ),
)
