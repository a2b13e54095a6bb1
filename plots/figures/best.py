"""The best partitioning of each shape: a heat map over partition triples × replication × stationary
matrix.

A row is a triple of partitions of A, B and C, a column the replication factors of A, B, C; one
block of columns for each stationary matrix. A white cell was not run, a cross was run and is not
ok.
"""

from collections.abc import Sequence
from itertools import groupby, product
from math import nan
from typing import Any, NamedTuple

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from pandas import DataFrame, Series

from plots.draw.chart import Axis, Cells, Chart, Charts
from plots.draw.page import MARGIN_IN, PAGE_IN, TITLE_IN, Page, fitted, width_in
from plots.draw.style import FONT_PT, SMALL_PT
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
from plots.select.selection import groups, shown, usable, with_quantity

_COLORS = "cividis"
_SCALED = 0.99  # share of the cells that the colours tell apart
_MOST_MAPS, _MOST_ROWS, _MOST_COLUMNS = 8, 60, 90
_ROW_IN, _LEAST_FOR_NUMBERS_IN, _GAP_IN = 0.115, 0.21, 0.09
_NAME_IN, _DIGIT_IN, _BAR_IN = 0.14, 0.085, 0.42  # a block's name, a row of factors, the colour bar
_LABEL_CHARACTERS = 44

Row = tuple[str, str, str]
Column = tuple[str, tuple[int, ...]]


class Map(NamedTuple):
    """One heat map: the best case of every cell, in the order rows and columns are drawn.

    A column is (stationary, factors of A, B, C); folded maps keep C's factor alone and show the
    best over the others. ``field`` is the column that is drawn; ``struck`` are the cells whose
    cases are all not ok; ``hidden`` counts rows below the best :data:`_MOST_ROWS`.
    """

    source: Source
    shape: Shape
    field: str
    rows: list[Row]
    columns: list[Column]
    cells: dict[tuple[Row, Column], Any]
    struck: set[tuple[Row, Column]]
    best: Any
    folded: bool
    hidden: int


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
    kept, field, more = with_quantity(kept, options)
    others = len(found) - len(universal)
    notes += more + ([f"not drawn: {cases(others)} of other algorithms"] if others else [])
    failed = dict(groups(universal[universal.status != "ok"], ["source", "shape"]))
    panels, more = shown(kept, _MOST_MAPS)
    chosen = [_map(key, inside, failed.get(key, kept[:0]), field) for key, inside in panels]
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


def _map(key: tuple[Source, Shape], found: DataFrame, failed: DataFrame, field: str) -> Map:
    folded = len(found[["stationary", "factors"]].drop_duplicates()) > _MOST_COLUMNS

    def placed(table: DataFrame) -> DataFrame:
        return table.assign(
            row=[forms(case) for case in table[["a", "b", "c"]].itertuples()],
            column=[
                (still, factors[2:] if folded else factors)
                for still, factors in zip(table.stationary, table.factors)
            ],
        )

    ranked = placed(found).sort_values(["best_s", "factors", "row", "stationary"])
    every = {
        (case.row, case.column): case for case in rows(ranked.drop_duplicates(["row", "column"]))
    }
    order = list(dict.fromkeys(ranked.row))  # by the best of the row
    kept = sorted(order[:_MOST_ROWS])
    cells = {cell: case for cell, case in every.items() if cell[0] in kept}
    columns = sorted({column for _, column in every})
    failed = placed(failed)
    struck = {*zip(failed.row, failed.column)} & {*product(kept, columns)} - cells.keys()
    best = next(iter(cells.values()))
    hidden = len(order) - len(kept)
    return Map(*key, field, kept, columns, cells, struck, best, folded, hidden)


def charts(records: Records, options: Options) -> Charts:
    """Describe the maps, colours on one scale for all: (charts, notes)."""
    _, *described = _described(records, options)
    return tuple(described)


def _described(records: Records, options: Options) -> tuple[list[Map], list[Chart], list[str]]:
    chosen, notes = maps(records, options)
    values = Series([getattr(case, each.field) for each in chosen for case in each.cells.values()])
    # a few times of microseconds that the clock got wrong would leave the rest dark
    top = max(100.0, values.quantile(_SCALED, interpolation="lower"))
    above = (values > top).sum()
    if above:
        notes.append(f"{above} of {len(values)} cells are above {top:.0f} % and drawn as that")
    return chosen, [_chart(each, top) for each in chosen], notes


def _chart(each: Map, top: float) -> Chart:
    found = [[each.cells.get((row, column)) for column in each.columns] for row in each.rows]
    columns = [f"S-{still} {'-'.join(map(str, factors))}" for still, factors in each.columns]
    what = "C's replication factor" if each.folded else "replication factors A-B-C"
    return Chart(
        shape_text(each.shape) + "  (m × n × k)",
        each.source.text,
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
                    [nan if case is None else getattr(case, each.field) for case in row]
                    for row in found
                ],
                [[case and case.Index for case in row] for row in found],
                top,
            )
        ],
        notes=(f"best of {shape_text(each.shape)}: {best_text(each)}",),
    )


def make(records: Records, options: Options) -> Made:
    """Draw every map of the records on one page, best cells framed; narrow maps stand side by
    side."""
    chosen, described, notes = _described(records, options)
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
    marks = "c: replication factor; framed: the best case"
    if any(each.struck for each in chosen):
        marks += "; ×: run, not ok"
    if any(
        len(each.cells) + len(each.struck) < len(each.rows) * len(each.columns) for each in chosen
    ):
        marks += "; white: no case"
    page, at = Page(sum(heights), (), [*told, marks, *notes]), 0.0
    for line, high in zip(lines, heights, strict=True):
        for number, (each, chart) in enumerate(line):
            _panel(page, each, chart, number * wide_in, left_in, wide_in, at)
        at += high
    return Made(page.picture, notes)


def row_text(row: Row) -> str:
    """A triple as its row is labelled: one text for three that are equal."""
    return elided(row[0] if len(set(row)) == 1 else " | ".join(row), _LABEL_CHARACTERS)


def best_text(each: Map) -> str:
    """The best case of a map in words."""
    record = each.best
    return (
        f"A {record.a}, B {record.b}, C {record.c}, Stationary {record.stationary}: "
        f"{getattr(record, each.field):.1f} % of {each.field.rpartition('_')[2]}"
    )


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
    page.text(x_in + MARGIN_IN, top_in - 0.13, "A | B | C", SMALL_PT + 0.5)
    below_in, digits = top_in + high_in + 0.02, _factor_rows(each)
    for number, text in enumerate(digits):
        page.text(
            x_in + left_in - 0.04, below_in + number * _DIGIT_IN, text, SMALL_PT - 0.5, ha="right"
        )
    (cells,) = chart.marks
    scale, colors = Normalize(0, cells.top), matplotlib.colormaps[_COLORS]
    x_in += left_in
    first = 0
    for columns in blocks:
        axes = page.axes(x_in, top_in, cell_in * len(columns), high_in)
        values = [row[first : first + len(columns)] for row in cells.values]
        _cells(axes, each, columns, values, scale, colors, cell_in >= _LEAST_FOR_NUMBERS_IN)
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
                page.text(
                    x_in + cell_in * (place + 0.5),
                    below_in + down * _DIGIT_IN,
                    text,
                    size,
                    ha="center",
                    color="black",
                )
        still, wide = columns[0][0], cell_in * len(columns)
        name = f"Stationary {still}" if wide >= 0.75 else f"S-{still}"
        axes.annotate(name, (0, 1), (0, 2.5), "axes fraction", "offset points", size=FONT_PT - 0.5)
        x_in += wide + _GAP_IN
        first += len(columns)
    bar_in = max(high_in, 0.26)
    bar = page.axes(x_in + 0.02, top_in, 0.08, bar_in)
    ticks = [0, 100] if bar_in < 0.4 else [0, 50, 100] if bar_in < 1.2 else [0, 20, 40, 60, 80, 100]
    key = page.picture.colorbar(ScalarMappable(scale, colors), cax=bar, ticks=ticks)
    key.ax.tick_params(labelsize=SMALL_PT, length=2, pad=2)
    key.ax.set_title("% of " + each.field.rpartition("_")[2], size=SMALL_PT, pad=3)


def _cells(
    axes,
    each: Map,
    columns: Sequence[Column],
    values: list[list[float]],
    scale: Normalize,
    colors,
    numbers: bool,
) -> None:
    edges = [
        [place - 0.5 for place in range(count + 1)] for count in (len(columns), len(each.rows))
    ]
    axes.pcolormesh(*edges, values, norm=scale, cmap=colors, edgecolors="white", linewidth=0.2)
    text = {"ha": "center", "va": "center_baseline"}
    for y, row in enumerate(each.rows):
        for x, column in enumerate(columns):
            case, value = each.cells.get((row, column)), values[y][x]
            if (row, column) in each.struck:
                axes.text(x, y, "×", size=SMALL_PT - 1, color="#777777", **text)
            elif case is not None and numbers:
                ink = "black" if scale(value) > 0.55 else "white"
                axes.text(x, y, f"{value:.0f}", size=SMALL_PT - 0.5, color=ink, **text)
            if case == each.best:
                frame = {"fill": False, "edgecolor": "#D55E00", "linewidth": 1.3, "zorder": 5}
                axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, clip_on=False, **frame))
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.tick_params(length=0, pad=2)
    axes.set_facecolor("white")


FIGURES = (
    Figure(
        "best",
        "best partitioning of each shape: percent over partition triples x replication x "
        "stationary",
        make,
        ("moving_only", "quantity", "shape"),
        charts=charts,
    ),
)
