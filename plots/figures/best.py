"""The best partitioning of each shape: a heat map over partition triples × replication × stationary
matrix.

A row is a triple of partitions of A, B and C, a column the replication factors of A, B, C; one
block of columns for each stationary matrix. The colour is the time of the fastest case over that of
the cell, so that the framed cell is the brightest. A white cell was not run, a hollow one is noisy,
a cross was run and is not ok.
"""

from collections.abc import Sequence
from itertools import groupby, product
from math import nan
from typing import Any, NamedTuple

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from pandas import DataFrame

from plots.draw.chart import Axis, Cells, Chart, Charts
from plots.draw.page import (
    MARGIN_IN,
    PAGE_IN,
    TITLE_IN,
    Page,
    fitted,
    number,
    time_unit,
    width_in,
)
from plots.draw.style import FONT_PT, SMALL_PT
from plots.draw.telling import named
from plots.registry import Figure, Made
from plots.select.cases import (
    UNIVERSAL,
    Options,
    SelectionError,
    Shape,
    Source,
    cases,
    elided,
    forms,
    shape_text,
)
from plots.select.records import Records, frame, rows
from plots.select.selection import FASTEST, groups, not_decided, shown, usable

_COLORS, _UNIT, _SHORT_S = "cividis", "% of fastest", 1e-3
_MOST_MAPS, _MOST_ROWS, _MOST_COLUMNS = 8, 60, 90
_ROW_IN, _LEAST_FOR_NUMBERS_IN, _GAP_IN = 0.115, 0.21, 0.09
_NAME_IN, _DIGIT_IN, _BAR_IN = 0.14, 0.085, 0.42  # a block's name, a row of factors, the colour bar
_LABEL_CHARACTERS = 44

Row = tuple[str, str, str]
Column = tuple[str, tuple[int, ...]]


class Map(NamedTuple):
    """One heat map: the best case of every cell, in the order rows and columns are drawn.

    A column is (stationary, factors of A, B, C); folded maps keep C's factor alone and show the
    best over the others. ``best`` is the fastest case that is not noisy, if there is one;
    ``struck`` are the cells whose cases are all not ok; ``hidden`` counts rows below the best
    :data:`_MOST_ROWS`; ``doubt`` says that it is not decided which case is the best, if it is not.
    """

    source: Source
    shape: Shape
    rows: list[Row]
    columns: list[Column]
    cells: dict[tuple[Row, Column], Any]
    struck: set[tuple[Row, Column]]
    best: Any | None
    folded: bool
    hidden: int
    doubt: str


def maps(records: Records, options: Options) -> tuple[list[Map], list[str]]:
    """Choose the cells of every shape and source: (maps, notes).

    Raises
    ------
    SelectionError
        If no universal case can be drawn.
    """
    found = frame(records)
    universal = found[(found.algorithm == UNIVERSAL) & found.stationary.notna()]
    if universal.empty:
        raise SelectionError(
            f"no case of the universal algorithm in {len(found)} records. This figure compares "
            "its partitionings."
        )
    kept, notes = usable(universal, options)
    others = len(found) - len(universal)
    notes += [f"not drawn: {cases(others)} of other algorithms"] if others else []
    failed = dict(groups(universal[universal.status != "ok"], ["source", "shape"]))
    panels, more = shown(kept, _MOST_MAPS)
    chosen = [_map(key, inside, failed.get(key, kept[:0])) for key, inside in panels]
    notes += more + [
        f"{shape_text(each.shape)}: not drawn: {each.hidden} partition triples below the best "
        f"{len(each.rows)}"
        for each in chosen
        if each.hidden
    ]
    if any(each.folded for each in chosen):
        notes.append(
            "columns are the factor of C; each cell is the best over the factors of A and B"
        )
    return chosen, notes


def _map(key: tuple[Source, Shape], found: DataFrame, failed: DataFrame) -> Map:
    folded = len(found[["stationary", "factors"]].drop_duplicates()) > _MOST_COLUMNS

    def placed(table: DataFrame) -> DataFrame:
        return table.assign(
            row=[forms(case) for case in table[["a", "b", "c"]].itertuples()],
            column=[
                (still, factors[2:] if folded else factors)
                for still, factors in zip(table.stationary, table.factors)
            ],
        )

    ranked = placed(found).sort_values([*FASTEST, "factors", "row", "stationary"])
    every = {
        (case.row, case.column): case for case in rows(ranked.drop_duplicates(["row", "column"]))
    }
    order = list(dict.fromkeys(ranked.row))  # by the best of the row
    kept = sorted(order[:_MOST_ROWS])
    cells = {cell: case for cell, case in every.items() if cell[0] in kept}
    columns = sorted({column for _, column in every})
    failed = placed(failed)
    struck = {*zip(failed.row, failed.column)} & {*product(kept, columns)} - cells.keys()
    best = next((case for case in cells.values() if not case.hollow), None)
    hidden = len(order) - len(kept)
    others = [case for case in cells.values() if not case.hollow and case is not best]
    doubt = not_decided(best, others) if best else ""
    return Map(*key, kept, columns, cells, struck, best, folded, hidden, doubt)


def charts(records: Records, options: Options) -> Charts:
    """Describe the maps: (charts, notes)."""
    chosen, notes = maps(records, options)
    return list(map(_chart, chosen)), notes


def _chart(each: Map) -> Chart:
    found = [[each.cells.get((row, column)) for column in each.columns] for row in each.rows]
    columns = [f"S-{still} {'-'.join(map(str, factors))}" for still, factors in each.columns]
    what = "C's replication factor" if each.folded else "replication factors A-B-C"
    places = {(y, x): case for y, row in enumerate(found) for x, case in enumerate(row) if case}
    least_s = (each.best or min(places.values(), key=lambda case: case.time_s)).time_s
    short = sum(case.time_s < _SHORT_S for case in places.values())
    brief = f"; {short} of {len(places)} cases take less than 1 ms" if short else ""
    return Chart(
        shape_text(each.shape) + "  (m × n × k)",
        each.source.text + brief,
        Axis(
            f"stationary matrix and {what}",
            (-0.5, len(columns) - 0.5),
            ticks=dict(enumerate(columns)),
        ),
        Axis(
            "partitions A | B | C",
            (len(each.rows) - 0.5, -0.5),
            ticks=dict(enumerate(map(row_text, each.rows))),
        ),
        [
            Cells(
                [
                    [
                        nan if case is None else min(100.0, 100 * least_s / case.time_s)
                        for case in row
                    ]
                    for row in found
                ],
                [[case and case.Index for case in row] for row in found],
                _UNIT,
                frozenset(place for place, case in places.items() if case.hollow),
                None if each.doubt else _place_of(each.best, places),
            )
        ],
        notes=(f"best of {shape_text(each.shape)}: {best_text(each)}",),
    )


def _place_of(best: Any | None, places: dict[tuple[int, int], Any]) -> tuple[int, int] | None:
    return next((place for place, case in places.items() if case is best), None)


def make(records: Records, options: Options) -> Made:
    """Draw every map of the records on one page, best cells framed; narrow maps stand side by
    side."""
    chosen, notes = maps(records, options)
    described = list(map(_chart, chosen))
    labels = [
        ("A | B | C", SMALL_PT + 0.5),
        *((text, SMALL_PT) for chart in described for text in chart.y.ticks.values()),
    ]
    left_in = max(width_in(text, size) for text, size in labels) + 0.14
    most = max(len(each.columns) for each in chosen)
    half_in = PAGE_IN / 2 - left_in - _BAR_IN - 2 * _GAP_IN
    beside = 2 if len(chosen) > 1 and half_in / most >= _LEAST_FOR_NUMBERS_IN else 1
    wide_in = PAGE_IN / beside
    every = list(zip(chosen, described))
    lines = [every[at : at + beside] for at in range(0, len(every), beside)]
    heights = [max(_high_in(each) for each, _ in line) for line in lines]
    told = [text for chart in described for text in chart.notes]
    marks = "colour: the fastest case's time over that of the cell; c: replication factor"
    if any(cells.frame for chart in described for cells in chart.marks):
        marks += "; framed: the fastest case"
    if any(cells.hollow for chart in described for cells in chart.marks):
        marks += "; hollow: noisy"
    if any(each.struck for each in chosen):
        marks += "; ×: run, not ok"
    if any(
        len(each.cells) + len(each.struck) < len(each.rows) * len(each.columns) for each in chosen
    ):
        marks += "; white: no case"
    page, at = Page(sum(heights), (), [*told, marks, *notes]), 0.0
    for line, high in zip(lines, heights, strict=True):
        for place, (each, chart) in enumerate(line):
            _panel(page, each, chart, place * wide_in, left_in, wide_in, at)
        at += high
    return Made(page.picture, notes)


def row_text(row: Row) -> str:
    """A triple as its row is labelled: one text for three that are equal."""
    return elided(row[0] if len(set(row)) == 1 else " | ".join(row), _LABEL_CHARACTERS)


def best_text(each: Map) -> str:
    """The best case of a map in words."""
    record = each.best
    if record is None:
        return "none, every case is noisy"
    one, unit = time_unit(record.time_s)
    roof = "" if record.oversubscribed else record.percent_of_roof
    told = (
        f"A {record.a}, B {record.b}, C {record.c}, Stationary {record.stationary}: "
        f"{number(record.time_s / one)} {unit}" + (f", {roof:.0f} % of the roof" if roof else "")
    )
    return f"{told}; {each.doubt}" if each.doubt else told


def _factor_rows(each: Map) -> tuple[str, ...]:
    """The rows of numbers under a map: one if the factors of A, B and C are the same in every
    column."""
    if each.folded:
        return ("c of C",)
    mixed = any(len(set(factors)) > 1 for _, factors in each.columns)
    return ("c of A", "c of B", "c of C") if mixed else ("c",)


def _high_in(each: Map) -> float:
    return (
        TITLE_IN + _NAME_IN + len(each.rows) * _ROW_IN + len(_factor_rows(each)) * _DIGIT_IN + 0.16
    )


def _panel(
    page: Page,
    each: Map,
    chart: Chart,
    x_in: float,
    left_in: float,
    wide_in: float,
    at_in: float,
) -> None:
    blocks = [list(block) for _, block in groupby(each.columns, key=lambda column: column[0])]
    room_in = wide_in - left_in - _BAR_IN - _GAP_IN * (len(blocks) - 1)
    cell_in = min(0.34, room_in / len(each.columns))
    page.title(x_in + MARGIN_IN, at_in, wide_in - 2 * MARGIN_IN, chart.title, chart.told)
    top_in, high_in = at_in + TITLE_IN + _NAME_IN, len(each.rows) * _ROW_IN
    named(page.text(x_in + MARGIN_IN, top_in - 0.13, "A | B | C", SMALL_PT + 0.5), "")
    below_in, digits = top_in + high_in + 0.02, _factor_rows(each)
    for row, text in enumerate(digits):
        at = x_in + left_in - 0.04, below_in + row * _DIGIT_IN
        named(page.text(*at, text, SMALL_PT - 0.5, ha="right"), "")
    (cells,) = chart.marks
    scale, colors = Normalize(0, 100), matplotlib.colormaps[_COLORS]
    x_in += left_in
    first = 0
    for columns in blocks:
        axes = page.axes(x_in, top_in, cell_in * len(columns), high_in)
        told = " ".join("-".join(map(str, factors)) for _, factors in columns)
        by = f"Stationary {columns[0][0]}; {', '.join(digits)}: {told}"
        named(axes, f"{chart.title}\n{chart.told}\n{by}")
        _cells(axes, each, columns, first, cells, scale, colors, cell_in >= _LEAST_FOR_NUMBERS_IN)
        axes.set_yticks(
            list(chart.y.ticks),
            [text * (first == 0) for text in chart.y.ticks.values()],
            size=SMALL_PT,
        )
        axes.set_xticks([])
        axes.set_ylim(chart.y.limits)
        for place, (_, factors) in enumerate(columns):
            for down, factor in enumerate(factors[: len(digits)]):
                text, size = fitted(str(factor), SMALL_PT - 0.5, max(0.05, cell_in - 0.01))
                at = x_in + cell_in * (place + 0.5), below_in + down * _DIGIT_IN
                named(page.text(*at, text, size, ha="center", color="black"), "")
        still, wide = columns[0][0], cell_in * len(columns)
        name = f"Stationary {still}" if wide >= 0.75 else f"S-{still}"
        at = (0, 1), (0, 2.5), "axes fraction", "offset points"
        named(axes.annotate(name, *at, size=FONT_PT - 0.5), "")
        x_in += wide + _GAP_IN
        first += len(columns)
    bar_in = max(high_in, 0.26)
    bar = page.axes(x_in + 0.02, top_in, 0.08, bar_in)
    ticks = [0, 100] if bar_in < 0.4 else [0, 50, 100] if bar_in < 1.2 else [0, 20, 40, 60, 80, 100]
    key = page.picture.colorbar(ScalarMappable(scale, colors), cax=bar, ticks=ticks)
    key.ax.tick_params(labelsize=SMALL_PT, length=2, pad=2)
    key.ax.set_title(_UNIT.replace("of ", "of\n"), size=SMALL_PT, pad=6, loc="left")


def _cells(
    axes,
    each: Map,
    columns: Sequence[Column],
    first: int,
    cells: Cells,
    scale: Normalize,
    colors,
    numbers: bool,
) -> None:
    values = [row[first : first + len(columns)] for row in cells.values]
    edges = [
        [place - 0.5 for place in range(count + 1)] for count in (len(columns), len(each.rows))
    ]
    axes.pcolormesh(*edges, values, norm=scale, cmap=colors, edgecolors="white", linewidth=0.2)
    text = {"ha": "center", "va": "center_baseline"}
    inner = {"color": "white", "linewidth": 0, "zorder": 2.5}
    frame = {"fill": False, "edgecolor": "#D55E00", "linewidth": 1.3, "zorder": 5, "clip_on": False}
    for y, row in enumerate(each.rows):
        for x, column in enumerate(columns):
            hollow = (y, first + x) in cells.hollow
            if hollow:
                hole = axes.add_patch(Rectangle((x - 0.3, y - 0.3), 0.6, 0.6, **inner))
                named(hole, "noisy")
            if (row, column) in each.struck:
                axes.text(x, y, "×", size=SMALL_PT - 1, color="#777777", **text)
            elif (row, column) in each.cells and numbers and not hollow:
                ink = "black" if scale(values[y][x]) > 0.55 else "white"
                told = axes.text(
                    x, y, f"{values[y][x]:.0f}", size=SMALL_PT - 0.5, color=ink, **text
                )
                named(told, "")  # the cell has it
            if (y, first + x) == cells.frame:
                best = Rectangle((x - 0.5, y - 0.5), 1, 1, **frame)
                named(axes.add_patch(best), "fastest")
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.tick_params(length=0, pad=2)
    axes.set_facecolor("white")


FIGURES = (
    Figure(
        "best",
        "best partitioning of each shape: time over partition triples x replication x stationary",
        make,
        ("moving_only", "shape"),
        charts=charts,
    ),
)
