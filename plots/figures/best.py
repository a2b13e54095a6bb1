"""The best partitioning of each shape: a heat map over partition triples × replication × stationary
matrix.

A row is a triple of partitions of A, B and C, a column the replication factors of A, B, C; one
block of columns for each stationary matrix. A white cell was not run, a cross was run and is not
ok.
"""

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from drbench.measure.record import Record
from plots.draw.page import MARGIN_IN, PAGE_IN, TITLE_IN, Page, fitted, width_in
from plots.draw.style import FONT_PT, RC, SMALL_PT
from plots.registry import Figure, Made
from plots.select.cases import (
    Options,
    Shape,
    Source,
    cases,
    elided,
    groups,
    names,
    rising,
    shape_of,
    shape_text,
    source_of,
    usable,
    with_quantity,
)
from plots.select.selection import UNIVERSAL, SelectionError, factors, split_factor

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
    best over the others. ``struck`` are the cells whose cases are all not ok; ``hidden`` counts
    rows below the best :data:`_MOST_ROWS`.
    """

    shape: Shape
    source: Source
    rows: list[Row]
    columns: list[Column]
    cells: dict[tuple[Row, Column], Record]
    struck: set[tuple[Row, Column]]
    best: Record
    folded: bool
    hidden: int


def triple(record: Record) -> Row:
    """The forms of the partitions of A, B and C, without their factors."""
    return tuple(split_factor(text or "?")[0] for text in (record.a, record.b, record.c))


def maps(records: Sequence[Record], options: Options) -> tuple[list[Map], str, list[str]]:
    """Choose the cells of every shape and source: (maps, field drawn, notes).

    Raises
    ------
    SelectionError
        If no universal case can be drawn.
    """
    universal = [
        record for record in records if record.algorithm == UNIVERSAL and record.stationary
    ]
    others = sum(record.algorithm != UNIVERSAL or not record.stationary for record in records)
    if not universal:
        raise SelectionError(
            f"no case of the universal algorithm in {len(records)} records. This figure compares "
            "its partitionings."
        )
    kept, notes = usable(universal, options)
    kept, field, more = with_quantity(kept, options)
    notes += more + ([f"not drawn: {cases(others)} of other algorithms"] if others else [])
    failed = groups(
        (record for record in universal if record.status != "ok"),
        lambda record: (source_of(record), shape_of(record)),
    )
    by_map = groups(kept, lambda record: (source_of(record), shape_of(record)))
    shown = list(by_map.items())[:_MOST_MAPS]
    if len(by_map) > len(shown):
        left = [shape_text(shape) for _, shape in list(by_map)[len(shown) :]]
        notes.append(f"not drawn: {len(left)} shapes more ({names(left)}); --shape chooses one")
    chosen = [
        _map(source, shape, inside, failed.get((source, shape), []), field)
        for (source, shape), inside in shown
    ]
    for each in chosen:
        if each.hidden:
            notes.append(
                f"{shape_text(each.shape)}: not drawn: {each.hidden} partition triples below the "
                f"best {len(each.rows)}"
            )
    if any(each.folded for each in chosen):
        notes.append(
            "columns are the factor of C; each cell is the best over the factors of A and B"
        )
    return chosen, field, notes


def _map(
    source: Source, shape: Shape, records: Sequence[Record], failed: Sequence[Record], field: str
) -> Map:
    def better(record: Record) -> tuple:
        return (record.best_s, factors(record), rising(triple(record)), record.stationary)

    every = {(record.stationary, factors(record)) for record in records}
    folded = len(every) > _MOST_COLUMNS

    def column(record: Record) -> Column:
        return record.stationary, factors(record)[2:] if folded else factors(record)

    cells: dict[tuple[Row, Column], Record] = {}
    for record in sorted(records, key=better):
        cells.setdefault((triple(record), column(record)), record)
    ranked = list(dict.fromkeys(row for row, _ in cells))  # by the best of the row
    rows = sorted(ranked[:_MOST_ROWS], key=rising)
    columns = sorted({each for _, each in cells}, key=rising)
    inside = {(row, each) for row in rows for each in columns}
    cells = {cell: record for cell, record in cells.items() if cell in inside}
    struck = {
        cell
        for record in failed
        if (cell := (triple(record), column(record))) in inside and cell not in cells
    }
    best = min(records, key=better)
    return Map(shape, source, rows, columns, cells, struck, best, folded, len(ranked) - len(rows))


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw every map of the records on one page, best cells framed; narrow maps stand side by
    side."""
    chosen, field, notes = maps(records, options)
    with matplotlib.rc_context(RC):
        values = sorted(getattr(record, field) for each in chosen for record in each.cells.values())
        top = max(
            100.0, values[int(_SCALED * (len(values) - 1))]
        )  # a few times of microseconds that the clock got wrong would leave the rest dark
        above = sum(value > top for value in values)
        if above:
            notes = [
                *notes,
                f"{above} of {len(values)} cells are above {top:.0f} % and drawn as that",
            ]
        labels = [
            ("A | B | C", SMALL_PT + 0.5),
            *((row_text(row), SMALL_PT) for each in chosen for row in each.rows),
        ]
        left_in = max(width_in(text, size) for text, size in labels) + 0.14
        most = max(len(each.columns) for each in chosen)
        half_in = PAGE_IN / 2 - left_in - _BAR_IN - 2 * _GAP_IN
        beside = 2 if len(chosen) > 1 and half_in / most >= _LEAST_FOR_NUMBERS_IN else 1
        wide_in = PAGE_IN / beside
        lines = [chosen[at : at + beside] for at in range(0, len(chosen), beside)]
        heights = [max(_high_in(each) for each in line) for line in lines]
        told = [f"best of {shape_text(each.shape)}: {best_text(each, field)}" for each in chosen]
        marks = "c: replication factor; framed: the best case"
        if any(each.struck for each in chosen):
            marks += "; ×: run, not ok"
        if any(
            len(each.cells) + len(each.struck) < len(each.rows) * len(each.columns)
            for each in chosen
        ):
            marks += "; white: no case"
        page = Page(sum(heights), (), [*told, marks, *notes])
        at = 0.0
        for line, high in zip(lines, heights, strict=True):
            for number, each in enumerate(line):
                _panel(page, each, field, top, number * wide_in, left_in, wide_in, at)
            at += high
    return Made(page.picture, notes)


def row_text(row: Row) -> str:
    """A triple as its row is labelled: one text for three that are equal."""
    return elided(row[0] if len(set(row)) == 1 else " | ".join(row), _LABEL_CHARACTERS)


def best_text(each: Map, field: str) -> str:
    """The best case of a map in words."""
    record = each.best
    return (
        f"A {record.a}, B {record.b}, C {record.c}, Stationary {record.stationary}: "
        f"{getattr(record, field):.1f} % of {field.rpartition('_')[2]}"
    )


def _factor_rows(each: Map) -> tuple[str, ...]:
    """The rows of numbers under a map: one if the factors of A, B and C are the same in every
    column."""
    if each.folded:
        return ("c of C",)
    return (
        ("c",)
        if all(len(set(column[1])) == 1 for column in each.columns)
        else ("c of A", "c of B", "c of C")
    )


def _high_in(each: Map) -> float:
    return (
        TITLE_IN + _NAME_IN + len(each.rows) * _ROW_IN + len(_factor_rows(each)) * _DIGIT_IN + 0.16
    )


def _panel(
    page: Page,
    each: Map,
    field: str,
    top: float,
    x_in: float,
    left_in: float,
    wide_in: float,
    at_in: float,
) -> None:
    blocks = groups(each.columns, lambda column: column[0])
    room_in = wide_in - left_in - _BAR_IN - _GAP_IN * (len(blocks) - 1)
    cell_in = min(0.34, room_in / len(each.columns))
    page.title(
        x_in + MARGIN_IN,
        at_in,
        wide_in - 2 * MARGIN_IN,
        shape_text(each.shape) + "  (m × n × k)",
        each.source.text,
    )
    top_in, high_in = at_in + TITLE_IN + _NAME_IN, len(each.rows) * _ROW_IN
    page.text(x_in + MARGIN_IN, top_in - 0.13, "A | B | C", SMALL_PT + 0.5)
    below_in = top_in + high_in + 0.02
    for number, text in enumerate(_factor_rows(each)):
        page.text(
            x_in + left_in - 0.04, below_in + number * _DIGIT_IN, text, SMALL_PT - 0.5, ha="right"
        )
    scale, colors = Normalize(0, top), matplotlib.colormaps[_COLORS]
    x_in += left_in
    for number, (stationary, columns) in enumerate(blocks.items()):
        axes = page.axes(x_in, top_in, cell_in * len(columns), high_in)
        _cells(axes, each, columns, field, scale, colors, numbers=cell_in >= _LEAST_FOR_NUMBERS_IN)
        axes.set_yticks(
            range(len(each.rows)),
            [row_text(row) for row in each.rows] if number == 0 else [""] * len(each.rows),
            size=SMALL_PT,
        )
        axes.set_xticks([])
        for place, column in enumerate(columns):
            digits = column[1][: len(_factor_rows(each))]
            for down, factor in enumerate(digits):
                text, size = fitted(str(factor), SMALL_PT - 0.5, max(0.05, cell_in - 0.01))
                page.text(
                    x_in + cell_in * (place + 0.5),
                    below_in + down * _DIGIT_IN,
                    text,
                    size,
                    ha="center",
                    color="black",
                )
        name = f"Stationary {stationary}" if cell_in * len(columns) >= 0.75 else f"S-{stationary}"
        axes.annotate(name, (0, 1), (0, 2.5), "axes fraction", "offset points", size=FONT_PT - 0.5)
        x_in += cell_in * len(columns) + _GAP_IN
    bar_in = max(high_in, 0.26)
    bar = page.axes(x_in + 0.02, top_in, 0.08, bar_in)
    ticks = [0, 100] if bar_in < 0.4 else [0, 50, 100] if bar_in < 1.2 else [0, 20, 40, 60, 80, 100]
    key = page.picture.colorbar(ScalarMappable(scale, colors), cax=bar, ticks=ticks)
    key.ax.tick_params(labelsize=SMALL_PT, length=2, pad=2)
    key.ax.set_title("% of " + field.rpartition("_")[2], size=SMALL_PT, pad=3)


def _cells(axes, each: Map, columns, field: str, scale, colors, numbers: bool) -> None:
    found = [[each.cells.get((row, column)) for column in columns] for row in each.rows]
    values = [
        [float("nan") if record is None else getattr(record, field) for record in row]
        for row in found
    ]
    edges = [
        [place - 0.5 for place in range(count + 1)] for count in (len(columns), len(each.rows))
    ]
    axes.pcolormesh(*edges, values, norm=scale, cmap=colors, edgecolors="white", linewidth=0.2)
    for y, row in enumerate(each.rows):
        for x, column in enumerate(columns):
            record, value = found[y][x], values[y][x]
            if (row, column) in each.struck:
                axes.text(
                    x, y, "×", size=SMALL_PT - 1, color="#777777", ha="center", va="center_baseline"
                )
            elif record is not None and numbers:
                ink = "black" if scale(value) > 0.55 else "white"
                axes.text(
                    x,
                    y,
                    f"{value:.0f}",
                    size=SMALL_PT - 0.5,
                    color=ink,
                    ha="center",
                    va="center_baseline",
                )
            if record is each.best:
                axes.add_patch(
                    Rectangle(
                        (x - 0.5, y - 0.5),
                        1,
                        1,
                        fill=False,
                        edgecolor="#D55E00",
                        linewidth=1.3,
                        zorder=5,
                        clip_on=False,
                    )
                )
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(each.rows) - 0.5, -0.5)
    axes.tick_params(length=0, pad=2)
    axes.set_facecolor("white")


FIGURES = (
    Figure(
        "best",
        "best partitioning of each shape: percent over partition triples x replication x "
        "stationary",
        make,
        ("moving_only", "quantity", "shape"),
    ),
)
