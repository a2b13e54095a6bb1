"""Algorithms side by side: the fastest case of each, on the left its time with its interval, on the
right the phases that take it.

Phases are means over the ranks in the repeat nearest to the median; what no phase accounts for is
"unattributed".
"""

from typing import Any

from pandas import DataFrame

from plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows
from plots.draw.page import GRID, TITLE_IN, Page, note, number, page_in, patch_handle, time_unit
from plots.draw.page import width_in as text_in
from plots.draw.style import OTHER, PHASES, SMALL_PT, Fill, style_of
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import Options, Shape, Source, configuration, elided, names, shape_text
from plots.select.records import Records, rows
from plots.select.selection import FASTEST, NOT_STABLE, not_decided, shown, usable

from .volume import local_s

_MOST_PANELS, _MOST_ROWS, _NEAR = 4, 16, 1.05
_ROW_IN, _BELOW_IN, _RIGHT_IN = 0.17, 0.46, 0.08
_PHASES_OF_PAGE = 0.26

#: Source and shape of a panel, and its rows: the best case of each algorithm and data movement,
#: fastest first.
Panel = tuple[tuple[Source, Shape], DataFrame]


def shares(found: DataFrame) -> DataFrame:
    """Percent of the time of each case that its phases take, a column a phase in the order they
    are stacked; empty where a case has no phases.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> known = {"best_s": 1.0, "median_s": 1.25, "phase_gemm_s": 0.75, "phase_fence_s": 0.125}
    >>> case = Record(mode="measured", status="ok", **known)
    >>> other = Record(mode="published", status="ok", best_s=1.0)
    >>> [row.dropna().to_dict() for _, row in shares(frame([case, other])).iterrows()]
    [{'gemm': 60.0, 'fence': 10.0, 'unattributed': 30.0}, {}]
    """
    phases = found[list(PHASES)].set_axis([look.name for look in PHASES.values()], axis=1)
    phases = phases.where(phases > 0).div(found.time_s, axis=0) * 100
    rest = 100 - phases.sum(axis=1)
    return phases.assign(**{OTHER.name: rest.where(phases.notna().any(axis=1) & (rest > 0))})


def panels(records: Records, options: Options) -> tuple[list[Panel], list[str]]:
    """Choose the rows: (panels, notes)."""
    kept, notes = usable(records, options)
    chosen, more = shown(kept, _MOST_PANELS)
    found = []
    for (source, shape), inside in chosen:
        best = inside.drop_duplicates("variant").sort_values([*FASTEST, "variant"])
        found.append(((source, shape), best[:_MOST_ROWS]))
        first, *others = rows(best[~best.hollow][:_MOST_ROWS]) or [None]
        if doubt := first and not_decided(first, others):
            notes.append(f"{shape_text(shape)}: {row_text(first)}: {doubt}")
        if lost := list(best.variant[_MOST_ROWS:]):
            notes.append(f"{shape_text(shape)}: not drawn: {names(lost)} (slower than those drawn)")
        if absent := sorted(set(kept.variant) - set(best.variant)):
            notes.append(f"{shape_text(shape)}, {source.text}: no case of {names(absent)}")
    return found, notes + more


def row_text(case: Any) -> str:
    """How a row is labelled: name and configuration."""
    return elided(": ".join(filter(None, (case.variant, configuration(case)))), 48)


def finding(best: DataFrame) -> str:
    """Which is the fastest, and how many are near it."""
    sure = best[~best.hollow]
    if sure.empty:
        return "Every case is noisy: none is the fastest"
    first = sure.iloc[0]
    near = (sure.time_s <= _NEAR * first.time_s).sum() - 1
    return f"{first.variant} is fastest; {near} of the {len(best) - 1} others are within 5 % of it"


def make(records: Records, options: Options) -> Made:
    """Draw a panel a shape, one above the other."""
    found, notes = panels(records, options)
    parts = [shares(best) for _, best in found]
    looks = [*PHASES.values(), OTHER]
    used = [look for look in looks if any(part[look.name].notna().any() for part in parts)]
    left_in = max(text_in(row_text(case), SMALL_PT) for _, best in found for case in rows(best))
    left_in = min(left_in + 0.16, 0.4 * page_in())
    highs_in = [len(best) * _ROW_IN for _, best in found]
    told = ["left: the median time of the fastest case of each, and its interval"]
    if any(_one_roof(best) for _, best in found):
        told[0] += "; dashed, the roof: the same work without communication"
    told += ["right: means over the ranks in the median repeat"] * bool(used)
    if any((best.stable == False).any() for _, best in found):  # noqa: E712
        told.append(f"≈: {NOT_STABLE}")
    body_in = sum(highs_in) + len(found) * (TITLE_IN + _BELOW_IN)
    page = Page(body_in, list(map(patch_handle, used)), [*told, *notes], finding(found[0][1]))
    top_in = 0.0
    for ((source, shape), best), part, high_in in zip(found, parts, highs_in):
        more = f"; {finding(best)}" * (len(found) > 1)
        about = (shape_text(shape), source.text + more)
        phases_in = _PHASES_OF_PAGE * page_in() if used else 0.0
        room_in = (left_in, phases_in + 0.34)
        axes = page.panel(about, 0, top_in, page_in(), high_in, room_in)
        _draw_times(axes, best, left_in)
        if used:
            place = page_in() - phases_in - _RIGHT_IN, top_in + TITLE_IN, phases_in, high_in
            _draw_phases(named(page.axes(*place), f"{about[0]}, phases"), part, used)
        top_in += TITLE_IN + high_in + _BELOW_IN
    return Made(page.picture, notes)


def _one_roof(best: DataFrame) -> float:
    """The time of the same work without communication; 0 if it is not known, or no two cases agree
    on it within a tenth."""
    found = local_s(best).dropna()
    return found.median() if len(found) and found.max() <= 1.1 * found.min() else 0.0


def _draw_times(axes, best: DataFrame, left_in: float) -> None:
    length, unit = time_unit(best.time_s.min())
    x, low, high = (
        column / length for column in (best.time_s, best.median_low_s, best.median_high_s)
    )
    places = list(range(len(best)))
    marks = [
        Marks(
            "points", case.variant, [x[case.Index]], [place], [case.Index],
            style_of(case.algorithm or ""), across=True, hollow=[case.hollow],
            low=[low[case.Index]], high=[high[case.Index]],
        )
        for place, case in zip(places, rows(best))
    ]  # fmt: skip
    shown_ = [*x, *low.dropna(), *high.dropna()]
    if roof_s := _one_roof(best):
        shown_.append(roof_s / length)
        marks.append(Marks("rule", "the roof", shown_[-1:] * 2, (-0.5, len(best) - 0.5)))
    room = 0.06 * (max(shown_) - min(shown_)) or 0.05 * max(shown_)
    limits = max(0.0, min(shown_) - room), max(shown_) + 4 * room
    labels = dict(zip(places, map(row_text, rows(best))))
    y = Axis("", (len(best) - 0.5, -0.5), ticks=labels)
    draw_chart(axes, Chart("", "", Axis(f"time ({unit})", limits), y, marks), color="black")
    for place, case in zip(places, rows(best)):
        about = "≈ " * (case.stable is False)
        end = max(each for each in (x[case.Index], high[case.Index]) if each == each)
        text = f"{about}{number(x[case.Index])}{' (noisy)' * case.hollow}"
        note(axes, text, (end, place), (5, 0), va="center")
    label_rows(axes, list(labels.values()), left_in - 0.14)
    axes.grid(axis="both", **{**GRID, "linewidth": 0.4})


def _draw_phases(axes, part: DataFrame, used: list[Fill]) -> None:
    part = part.reset_index(drop=True)
    base = part.cumsum(axis=1).sub(part)
    marks = [
        Marks("bars", look.name, list(has), list(has.index), (), look,
              list(base[look.name][has.index]), across=True)
        for look in used
        for has in [part[look.name].dropna()]
        if len(has)
    ]  # fmt: skip
    top = max(100.0, part.sum(axis=1).max())
    y = Axis("", (len(part) - 0.5, -0.5), ticks=dict.fromkeys(range(len(part)), ""))
    draw_chart(axes, Chart("", "", Axis("percent of the time", (0, top)), y, marks))
    axes.tick_params(axis="y", length=0)


FIGURES = (
    Figure(
        "algorithms",
        "algorithm comparison: the fastest case of each with its interval, and its phases",
        make,
        ("moving_only", "shape"),
    ),
)
