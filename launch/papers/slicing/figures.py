"""Direct execution next to the lowerings of the same case: the time of each over that of direct
execution.

One row a case that gains over 5 % by lowering, those on top that gain most.
"""

from typing import Any

from pandas import concat

from plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows, panels
from plots.draw.page import line_handle
from plots.draw.style import LineStyle
from plots.registry import Figure, Made
from plots.select.cases import (
    UNIVERSAL,
    Options,
    SelectionError,
    elided,
    partitioning,
    shape_text,
)
from plots.select.records import Records, frame, rows
from plots.select.selection import shown, usable

from ..drawing import dots

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


def make(records: Records, options: Options) -> Made:
    """Draw a panel a shape and source: the cases whose time a lowering changes by over 5 %."""
    found = frame(records)
    # where a lowering was refused there is nothing to draw
    kept, notes = usable(found[(found.status == "ok") | ~found.schedule.isin(LOWERINGS)], options)
    every = kept[(kept.algorithm == UNIVERSAL) & kept.schedule.isin([DIRECT, *LOWERINGS])]
    if len(every) < len(kept):
        notes.append(f"not drawn: {len(kept) - len(every)} cases without a schedule to compare")
    every = every.assign(pair=every.groupby(_SAME, dropna=False, sort=False).ngroup())
    times = every[~every.hollow].groupby(["pair", "schedule"]).time_s.min().unstack()
    times = times.reindex(columns=[DIRECT, *LOWERINGS])
    ratios = times[[*LOWERINGS]].div(times[DIRECT], axis=0).dropna(how="all")
    if ratios.empty:
        raise SelectionError(
            f"no case that ran both directly and lowered in {len(found)} records. Run drbench "
            "sweep lowering --simulate --machine NAME, or a sweep with schedules."
        )
    cases = every.drop_duplicates("pair").set_index("pair").loc[ratios.index]
    ratios = ratios.assign(
        name=list(map(row_name, rows(cases))),
        best=ratios.min(axis=1),
        source=cases.source,
        shape=cases["shape"],
    ).sort_values(["best", "name"])
    gain = ratios[ratios.best < WITHIN]
    by_panel, more = shown(ratios[:1] if gain.empty else gain, _MOST_PANELS, "panels")
    notes += more
    notes += [
        f"{shape_text(shape)}: not drawn: {len(inside) - _MOST_ROWS} cases that gain less"
        for (_, shape), inside in by_panel
        if len(inside) > _MOST_ROWS
    ]
    by_panel = [(panel, inside[:_MOST_ROWS]) for panel, inside in by_panel]
    drawn = concat([inside[[*LOWERINGS]] for _, inside in by_panel])
    limits = min(drawn.min(axis=None), WITHIN) - 0.02, max(drawn.max(axis=None), 1.0) + 0.04
    x, charts = Axis("time ÷ that of direct execution", limits), []
    for (source, shape), inside in by_panel:
        series = {
            name: (inside[name], look)
            for name, look in LOWERINGS.items()
            if inside[name].notna().any()
        }
        of_rows = dots(x, list(inside.name), series)
        of_rows[-1].append(Marks("rule", "direct", [1.0, 1.0], of_rows[1].limits))
        charts.append(Chart(shape_text(shape), source.text, *of_rows))
    handles = [
        line_handle(name, look) for name, look in LOWERINGS.items() if drawn[name].notna().any()
    ]
    told = [
        "1 is the time of direct execution; of a case each lowering is drawn; cases that all "
        "lowerings leave within 5 % of it, or make slower, are not"
    ]
    finding = f"Lowering gains over 5 % in {len(gain)} of {len(ratios)} cases"
    highs_in = [len(inside) * _ROW_IN for _, inside in by_panel]
    page, axes = panels(charts, handles, [*told, *notes], highs_in, 1, (_LABELS_IN, 0.1),
                        finding=finding)  # fmt: skip
    for each, chart in zip(axes, charts):
        draw_chart(each, chart, 3.8, color="black", linestyle="-", linewidth=0.8)
        label_rows(each, list(chart.y.ticks.values()), _LABELS_IN - 0.1)
        each.grid(axis="y", color="#EEEEEE", linewidth=0.5)
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "lowering",
        "direct execution next to the lowerings of the same case",
        make,
        ("moving_only", "shape"),
    ),
)
