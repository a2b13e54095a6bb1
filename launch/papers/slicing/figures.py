"""Direct execution next to the lowerings of the same case: the time of each over that of direct
execution.

One row a case that gains over 5 % by lowering, those on top that gain most.
"""

from typing import Any

from plots.draw.chart import Axis, Chart, Marks
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

from ..drawing import dots, draw_page

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
    ratios = ratios.assign(name=[*map(row_name, rows(cases))], best=ratios.min(axis=1))
    ratios = ratios.join(cases[["source", "shape"]]).sort_values(["best", "name"])
    gain = ratios[ratios.best < WITHIN]
    some = ratios[:1] if gain.empty else gain
    most = some.groupby(["source", "shape"], sort=False).head(_MOST_ROWS)
    if len(most) < len(some):
        notes.append(f"not drawn: {len(some) - len(most)} cases that gain less")
    by_panel, more = shown(most, _MOST_PANELS, "panels")
    of_all = most[[*LOWERINGS]]
    limits = min(of_all.min(axis=None), WITHIN) - 0.02, max(of_all.max(axis=None), 1.0) + 0.04
    x, charts = Axis("time ÷ that of direct execution", limits), []
    for (source, shape), inside in by_panel:
        table = inside.set_index("name")[[*LOWERINGS]].dropna(axis=1, how="all")
        *axes, marks = dots(x, table, LOWERINGS)
        marks.append(Marks("rule", "direct", [1.0, 1.0], axes[1].limits))
        charts.append(Chart(shape_text(shape), source.text, *axes, marks))
    notes += more
    told = (
        "1 is the time of direct execution; of a case each lowering is drawn; cases that all "
        "lowerings leave within 5 % of it, or make slower, are not"
    )
    finding = f"Lowering gains over 5 % in {len(gain)} of {len(ratios)} cases"
    highs_in = [len(inside) * _ROW_IN for _, inside in by_panel]
    made = draw_page(charts, LOWERINGS, [told, *notes], highs_in, _LABELS_IN, 1, finding)
    return made._replace(notes=notes)


FIGURES = (
    Figure(
        "lowering",
        "direct execution next to the lowerings of the same case",
        make,
        ("moving_only", "shape"),
    ),
)
