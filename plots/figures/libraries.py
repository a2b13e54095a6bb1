"""Algorithms and libraries on the same work: the rate of each, a panel a shape, a row an algorithm
or library (``libraries``), or an algorithm with its data movement (``algorithms``), which of one
shape has the phases that take its time too.

The dot is the best setting of an algorithm on a shape, with the median time of its rounds; the line
through it the interval of that median, or without one the range of the repeats. A setting that
moves nothing is another problem and left out.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import nan

from pandas import DataFrame, Series, concat

from drbench.measure.decision import (
    TIED,
    UNDECIDED,
    Decision,
    answer,
    best_at,
    compared,
    remedy,
)
from drbench.measure.noise import FEWEST, Ratio
from drbench.plots.draw.chart import Axis, Chart, Marks, draw_chart, label_rows, panels
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.page import (
    GRID,
    MARKER_PT,
    make_drawable,
    note,
    page_in,
    patch_handle,
    width_in,
)
from drbench.plots.draw.style import (
    FONT_PT,
    LIBRARIES,
    ON_DRBENCH,
    OTHER,
    PHASES,
    SMALL_PT,
    style_of,
)
from drbench.plots.select.cases import (
    Options,
    Source,
    by_name,
    cases,
    configuration,
    names,
    shape_name,
)
from drbench.plots.select.records import Records, rows
from drbench.plots.select.rounds import counted, decided
from drbench.plots.select.selection import BY_TIME, doubts, not_shown, select_usable
from drbench.texts import number, shape_text, time_unit

_MOST_NAMES, _MOST_SHAPES, _COLUMNS, _ROW_IN, _LEAST_IN = 32, 24, 4, 0.14, 1.48

#: Source and shape of a panel, and the fastest setting of each algorithm: its case, with ``rate``,
#: ``low`` and ``high`` in GFLOP/s.
Panel = tuple[Source, tuple, DataFrame]


def choose(
    records: Records, options: Options, by: str = "algorithm"
) -> tuple[list[Panel], list[str], list[str]]:
    """Choose the dots of each algorithm or variant: (panels, names from the fastest to the slowest,
    notes)."""
    table, notes = select_usable(records, options)
    table = table.assign(name=table[by].fillna("unnamed"))
    moving = compared(list(table.run))
    if not all(moving):
        notes.append(f"not drawn: {cases(moving.count(False))} moving nothing")
        table = table[moving]
    rounds = table.run.map(len)
    if few := (rounds < FEWEST).sum() * (rounds.max() >= FEWEST):
        notes.append(f"{cases(few, 'setting')} of less than {FEWEST} rounds decide nothing")
    best = concat([_best(inside) for _, inside in table.groupby(["source", "shape"], sort=False)])
    on = best.groupby(best.name)["shape"].transform("nunique")
    rare = sorted(set(best.name[2 * on < best["shape"].nunique()]))
    if rare and by == "algorithm":
        notes.append(f"not drawn: {names(rare)}: on less than half of the shapes")
        best = best[~best.name.isin(rare)]
    share = best.rate / best.groupby(["source", "shape"]).rate.transform("max")
    order = share.groupby(best.name).median().sort_values(ascending=False, kind="stable").index
    drawn = list(order[:_MOST_NAMES])
    if lost := list(order[_MOST_NAMES:]):
        notes.append(f"not drawn: {names(lost)}: at most {_MOST_NAMES} names")
    best = best[best.name.isin(drawn)]
    panels_ = [(*key, dots) for key, dots in best.groupby(["source", "shape"], sort=False)]
    panels_.sort(key=lambda panel: (panel[0].text, by_name(panel[1])))
    lost = [shape_text(*shape) for _, shape, _ in panels_[_MOST_SHAPES:]]
    panels_ = panels_[:_MOST_SHAPES]
    notes += doubts(case for _, _, dots in panels_ for case in rows(dots))
    return panels_, drawn, notes + not_shown(lost, "shapes")


def shares(table: DataFrame) -> DataFrame:
    """Percent of the time of each case that its phases take, a column a phase in the order they
    are stacked; empty where a case has no phases.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from drbench.plots.select.records import frame
    >>> known = {"best_s": 1.0, "median_s": 1.25, "phase_gemm_s": 0.75, "phase_fence_s": 0.125}
    >>> case = Record(mode="measured", status="ok", **known)
    >>> other = Record(mode="published", status="ok", best_s=1.0)
    >>> [row.dropna().to_dict() for _, row in shares(frame([case, other])).iterrows()]
    [{'gemm': 60.0, 'fence': 10.0, 'unattributed': 30.0}, {}]
    """
    phases = table[list(PHASES)].set_axis([style.name for style in PHASES.values()], axis=1)
    own_s = table.median_s.fillna(table.best_s)
    phases = phases.where(phases > 0).div(own_s, axis=0) * 100
    rest = 100 - phases.sum(axis=1)
    return phases.assign(**{OTHER.name: rest.where(phases.notna().any(axis=1) & (rest > 0))})


def _best(settings: DataFrame) -> DataFrame:
    """The best setting of each name on a shape, those with unreliable times last, with the ends of
    its interval in GFLOP/s."""
    ratios = [(decision, decision.ratio or Ratio(nan)) for decision in decided(settings)]
    order = {
        "unranked": [not decision.ranked for decision, _ in ratios],
        "unsure": [ratio.low is None and not decision.best for decision, ratio in ratios],
        "ratio": [ratio.middle for _, ratio in ratios],
    }
    ordered = settings.assign(**order).sort_values([*order, *BY_TIME])
    best = settings.loc[ordered.drop_duplicates("name").index]
    spread = [(min(samples), max(samples)) if samples else (nan, nan) for samples in best.samples_s]
    low, high = (Series(values, best.index, float) for values in zip(*spread))
    work = best[["m", "n", "k"]].astype(float).prod(axis=1) * 2 / 1e9
    return best.assign(
        rate=work / best.time_s,
        low=work / best.median_high_s.fillna(high),
        high=work / best.median_low_s.fillna(low),
    )


def finding(chosen: Sequence[Panel], most: int = 3) -> tuple[str, list[str]]:
    """The decision, and notes on the shapes for which it is open: on how many shapes drbench is
    ahead of the fastest other library, tied with it, or behind; without another library the fastest
    of each shape, with at most some names."""
    panels_ = [(decided(dots), _ours(dots), dots, shape) for _, shape, dots in chosen]
    against = [panel for panel in panels_ if panel[1].any() and not panel[1].all()]
    sides = [_side(decisions, ours) for decisions, ours, *_ in against]
    is_open = [side in _OPEN for side in sides] or [True] * len(panels_)
    left = [panel for panel, asks in zip(against or panels_, is_open) if asks]
    answers = [answer(decisions, [*dots.name], most) for decisions, _, dots, _ in left]
    shapes: dict[str, list[str]] = {}
    for text, (*_, shape) in zip(answers, left):
        if text.startswith((TIED, UNDECIDED)) and len(panels_) > 1:
            shapes.setdefault(text, []).append(shape_text(*shape))
    notes = [f"{', '.join(which)}: {text}" for text, which in shapes.items()]
    if needs := remedy(*(decisions for decisions, *_ in left)):
        notes.append(f"undecided: {needs}")
    if not sides and len(answers) == 1:
        (title,) = answers
    elif sides:
        known = Counter(side for side in sides if side not in _OPEN)
        text = [f"{side} the fastest other library on {count}" for side, count in known.items()]
        text = ["drbench is " + ", ".join(text)] * bool(text)
        open_ = Counter(side for side in sides if side in _OPEN)
        text += [f"{what} on {count}" for what, count in open_.items()]
        title = f"{', '.join(text)} of {cases(len(sides), 'shape')}"
    else:
        title = counted(answers)
    return title if title.startswith("drbench") else title[0].upper() + title[1:], notes


_NOTHING = "nothing is ranked"
_OPEN = UNDECIDED, _NOTHING


def _side(decisions: Sequence[Decision], ours: Series) -> str:
    """Whether drbench is ahead of the other libraries on a shape, tied with the fastest, behind, or
    undecided."""
    best = best_at(decisions)
    if best is None:
        return _NOTHING
    is_ours = [*ours]
    others = {
        decision.state
        for decision, mine in zip(decisions, is_ours)
        if decision.ranked and mine != is_ours[best]
    }
    if not others or UNDECIDED in others:
        return UNDECIDED
    return "tied with" if TIED in others else "ahead of" if is_ours[best] else "behind"


def _ours(table: DataFrame) -> Series:
    """Rows whose GEMM-only speed is of drbench's own BLAS."""
    return ~table.algorithm.isin([*LIBRARIES, *ON_DRBENCH])


def _chart(panel: Panel, here: Sequence[str], limits: tuple[float, float], by: str) -> Chart:
    _, shape, dots = panel
    # of libraries it would be a limit of drbench's BLAS alone
    gemm_only = dots.gemm_only_gflops[_ours(dots)].median() if by == "variant" else nan
    y = Axis(
        "",
        (len(here) - 0.5, -0.5),
        ticks={at: make_drawable(name, 30) for at, name in enumerate(here)},
    )
    marks = [
        Marks(
            "points", case.name, [case.rate], [here.index(case.name)], [case.Index],
            style_of(case.algorithm or ""), across=True, hollow=[case.hollow],
            low=[case.low or nan], high=[case.high or nan],
        )
        for case in rows(dots)
    ]  # fmt: skip
    if gemm_only > 0:
        marks.append(Marks("rule", "GEMM-only speed", [gemm_only, gemm_only], y.limits))
    x = Axis("GFLOP/s, all ranks together", limits)
    name, sizes = shape_name(shape), shape_text(*shape)
    return Chart(name, sizes * (name != sizes), x, y, marks)


def _phases(chart: Chart, dots: DataFrame, here: Sequence[str]) -> list[Chart]:
    """The phases of the cases of a panel that are not noisy, in rows next to its own; no chart if
    none has any."""
    parts = shares(dots[~dots.hollow])
    parts = parts.set_axis([here.index(name) for name in dots.name[~dots.hollow]])
    base = parts.cumsum(axis=1).sub(parts)
    marks = [
        Marks(
            "bars", style.name, list(has), list(has.index), (), style,
            list(base[style.name][has.index]), across=True,
        )
        for style in (*PHASES.values(), OTHER)
        for has in [parts[style.name].dropna()]
        if len(has)
    ]  # fmt: skip
    x = Axis("percent of the time", (0, max(100.0, parts.sum(axis=1).max())))
    subtitle = "means over the ranks in the median repeat"
    return [Chart("what takes the time", subtitle, x, chart.y, marks)] if marks else []


def make(by: str, records: Records, options: Options) -> Made:
    """Draw the shapes of each source next to each other, with the same rows."""
    chosen, drawn, notes = choose(records, options, by)
    every = concat([dots for _, _, dots in chosen])
    here = [name for name in drawn if any((dots.name == name).any() for _, _, dots in chosen)]
    labels = dict(zip(here, here))
    if by == "algorithm":
        labels |= {name: f"drbench {name}" for name in every.name[_ours(every)]}
    if by == "variant" and len(chosen) == 1:
        for case in rows(chosen[0][2]):
            labels[case.name] = f"{case.name} {configuration(case)}".strip()
    wide_in = max(width_in(make_drawable(name, 48), FONT_PT - 0.5) for name in labels.values())
    left_in = 0.14 + min(0.32 * page_in(), wide_in)
    ends = every[["rate", "low", "high"] + ["gemm_only_gflops"] * (by == "variant")]
    low, high = ends[["rate", "low", "high"]].min().min(), ends.max().max()
    low = 0.0 if low < 0.5 * high or low == high else low - 0.08 * (high - low)
    charts = [_chart(panel, here, (low, high + 0.3 * (high - low)), by) for panel in chosen]
    phases = _phases(charts[0], chosen[0][2], here) if by == "variant" and len(chosen) == 1 else []
    titled_in = max(width_in(chart.title, FONT_PT + 1, True) for chart in charts) + 0.2
    columns = int((page_in() - left_in) / max(_LEAST_IN, titled_in))
    columns = max(1, min(_COLUMNS, len(chosen + phases), columns))
    sources = list(dict.fromkeys(source.text for source, _, _ in chosen))
    if len(sources) > 1:
        charts = [
            chart._replace(subtitle=f"{source.text}, {chart.subtitle}")
            for chart, (source, _, _) in zip(charts, chosen)
        ]
    subtitle = [
        f"{names(sources)}. Dot: the best setting, with its median time; line: the interval of the "
        "median, or the range of the repeats" + "; dashed: GEMM-only speed" * (by == "variant")
    ]
    if used := sorted({*every.algorithm} & {*LIBRARIES}):
        subtitle.append(f"libraries with a BLAS of their own: {names(used)}")
    _, more = finding(chosen)
    styles = [marks.style for chart in phases for marks in chart.marks]
    page, axes = panels(
        charts + phases, list(map(patch_handle, styles)), [*subtitle, *notes, *more],
        len(here) * _ROW_IN,
        columns, (0.08, 0.2), finding=lambda most: finding(chosen, most)[0], left_in=left_in,
    )  # fmt: skip
    for at, (plot, chart) in enumerate(zip(axes, charts + phases)):
        draw_chart(plot, chart, MARKER_PT + 0.8, color="#666666", linewidth=0.8, zorder=1)
        label_rows(plot, dict(enumerate(labels.values())), left_in - 0.14)
        plot.tick_params(axis="y", labelleft=at % columns == 0)
        plot.tick_params(axis="x", labelsize=SMALL_PT)
        plot.locator_params(axis="x", nbins=3)
        titled = at == 0 or chart in phases
        plot.set_xlabel(chart.x.title if titled else "", size=SMALL_PT, ha="left", x=0)
    for plot, (_, _, dots) in zip(axes, chosen):
        length, unit = time_unit(dots.time_s.min())
        for case in rows(dots):
            end = max(filter(None, (case.rate, case.high)))
            text = f"{number(case.time_s / length)} {unit}"
            style = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none"}
            at = end, here.index(case.name)
            note(plot, text, at, (5, 0), va="center", bbox=style)
        plot.grid(**GRID)
    return Made(page.picture, notes)


FIGURES = tuple(
    Figure.listed(name, partial(make, by), ("moving_only", "shape", "height"))
    for name, by in (("algorithms", "variant"), ("libraries", "algorithm"))
)
