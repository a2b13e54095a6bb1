"""The best partitioning of each shape: a row a triple of partitions of A, B and C, a column a
stationary matrix and replication factor of C.

A cell is the fastest case of all replication factors of A and B; its number is the time of the best
case of the shape over its own, in percent; the stronger the colour the faster. A cell whose cases
are all noisy is grey instead of blue.
"""

from functools import partial
from math import nan
from typing import Any

from pandas import DataFrame

from drbench.measure.decision import FASTEST, answer, best_at, remedy
from drbench.plots.draw.description import named
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.page import MARGIN_IN, TITLE_IN, FigurePage, Title, page_in, width_in
from drbench.plots.draw.style import FONT_PT, SMALL_PT
from drbench.plots.select.cases import (
    UNIVERSAL,
    Options,
    SelectionError,
    Shape,
    Source,
    cases,
    forms,
    shorten,
)
from drbench.plots.select.records import Records, frame, rows
from drbench.plots.select.rounds import counted, decided
from drbench.plots.select.selection import BY_TIME, doubts, select_usable, shown
from drbench.texts import layouts_text, shape_text, time_text

_MOST_MAPS, _MOST_ROWS, _LABEL_CHARACTERS = 6, 40, 44
_ROW_IN, _WIDEST_IN, _SPACING_IN, _HEAD_IN, _BELOW_IN = 0.13, 0.5, 0.12, 0.14, 0.36
_SHORT_S = 1e-3

#: Source and shape of a map, and its cells: the best case of each ``row``, ``stationary`` and
#: ``factor`` with its ``percent`` of the fastest.
Map = tuple[tuple[Source, Shape], DataFrame]


def maps(records: Records, options: Options) -> tuple[list[Map], list[str]]:
    """Choose the cells of every shape and source: (maps, notes).

    Raises
    ------
    SelectionError
        If no universal case can be drawn.
    """
    table = frame(records)
    universal = table[(table.algorithm == UNIVERSAL) & table.stationary.notna()]
    if universal.empty:
        raise SelectionError(
            f"no case of the universal algorithm in {len(table)} records. This figure compares "
            "its partitionings."
        )
    drawn, notes = select_usable(universal, options)
    if len(universal) < len(table):
        notes.append(f"not drawn: {cases(len(table) - len(universal))} of other algorithms")
    panels, more = shown(drawn, _MOST_MAPS)
    chosen = []
    for key, inside in panels:
        ordered = inside.assign(
            row=[row_text(forms(case)) for case in rows(inside)],
            factor=[factors[2] for factors in inside.factors],
        ).sort_values(BY_TIME)
        cells = ordered.drop_duplicates(["row", "stationary", "factor"])
        order = list(dict.fromkeys(cells.row))[:_MOST_ROWS]
        if lost := cells.row.nunique() - len(order):
            notes.append(f"{shape_text(*key[1])}: not drawn: {lost} slower partition triples")
        cells = cells[cells.row.isin(order)]
        best = best_at(decided(cells))
        least_s = cells.paired_s.min() if best is None else cells.paired_s.iloc[best]
        percent = (100 * least_s / cells.paired_s).clip(upper=100)
        chosen.append((key, cells.assign(percent=percent)))
    return chosen, notes + more


def row_text(row: tuple[str, str, str]) -> str:
    """The label of a triple: one text for three equal partitions."""
    row = [text or "?" for text in row]
    return shorten(layouts_text(row), _LABEL_CHARACTERS)


def finding(cells: DataFrame, most: int = 3) -> str:
    """The decision on a map: its best layouts, at most some, with the time if one is fastest."""
    decisions = decided(cells)
    names = [f"{row_text((c.a, c.b, c.c))} S-{c.stationary}" for c in rows(cells)]
    text, at = answer(decisions, names, most), best_at(decisions)
    if at is not None and decisions[at].state == FASTEST:
        text += f", {time_text(cells.time_s.iloc[at])}"
    needs = remedy(decisions)
    return text[0].upper() + text[1:] + f" ({needs})" * bool(needs)


def make(records: Records, options: Options) -> Made:
    """Draw every map of the records, one below the other."""
    chosen, notes = maps(records, options)
    left_in = max(width_in(row, SMALL_PT) for _, cells in chosen for row in cells.row) + 0.14
    highs_in = [
        TITLE_IN + _HEAD_IN + cells.row.nunique() * _ROW_IN + _BELOW_IN for _, cells in chosen
    ]
    description = (
        "numbers: the best case's time over that of the cell, in percent; a cell is the fastest "
        "over the replication factors of A and B"
    )
    drawn = [case for _, cells in chosen for case in rows(cells)]
    findings = [finding(cells) for _, cells in chosen]
    if len(chosen) > 1 and (needs := remedy(*(decided(cells) for _, cells in chosen))):
        notes = [*notes, f"undecided: {needs}"]
    title: Title = partial(finding, chosen[0][1])
    if len(chosen) > 1:
        title = counted(text.split(" (")[0] for text in findings)
    page, at_in = (
        FigurePage(sum(highs_in), (), [description, *notes, *doubts(drawn, "grey")], title),
        0.0,
    )
    for map_, high_in, text in zip(chosen, highs_in, findings):
        _draw_map(page, map_, at_in, left_in, text if len(chosen) > 1 else "")
        at_in += high_in
    return Made(page.picture, notes)


def _draw_map(page: FigurePage, map_: Map, top_in: float, left_in: float, subtitle: str) -> None:
    (source, shape), cells = map_
    short = (cells.time_s < _SHORT_S).sum()
    brief = f"; {short} of {len(cells)} cells take less than 1 ms" if short else ""
    description = f"{source.text}{brief}{': ' * bool(subtitle)}{subtitle}"
    page.title(MARGIN_IN, top_in, page_in() - 2 * MARGIN_IN, shape_text(*shape), description)
    order = sorted(cells.row.unique())
    factors_of = {
        matrix: sorted(own.factor.unique()) for matrix, own in cells.groupby("stationary")
    }
    columns = sum(map(len, factors_of.values()))
    width_left_in = page_in() - left_in - MARGIN_IN - _SPACING_IN * (len(factors_of) - 1)
    cell_in, x_in = min(_WIDEST_IN, width_left_in / columns), left_in
    for matrix, factors in factors_of.items():
        own = cells[cells.stationary == matrix]
        place = (x_in, top_in + TITLE_IN + _HEAD_IN, cell_in * len(factors), len(order) * _ROW_IN)
        axes = named(page.axes(*place), f"{shape_text(*shape)}, Stationary {matrix}\n{description}")
        _draw_cells(axes, own, order, factors)
        axes.set_yticks(range(len(order)), order if x_in == left_in else [""] * len(order))
        axes.tick_params(length=0, pad=2, labelsize=SMALL_PT)
        axes.set_title(f"S-{matrix}", size=FONT_PT, pad=2, loc="left")
        axes.set_xlabel("replicas of C", size=SMALL_PT, labelpad=1)
        x_in += cell_in * len(factors) + _SPACING_IN


def _draw_cells(axes: Any, own: DataFrame, order: list[str], factors: list[int]) -> None:
    every = rows(own)
    for case in every:
        y, x = order.index(case.row), factors.index(case.factor)
        style = {"ha": "center", "va": "center_baseline", "size": SMALL_PT}
        style["color"] = "white" if case.percent > 60 else "black"
        axes.text(x, y, f"{case.percent:.0f}", **style)
    edges = [[at - 0.5 for at in range(count + 1)] for count in (len(factors), len(order))]
    for hollow, name, colors, most in ((False, "", "Blues", 110), (True, "noisy", "Greys", 160)):
        at = {(case.row, case.factor): case for case in every if case.hollow == hollow}
        if at:
            grid = [[at.get((row, factor)) for factor in factors] for row in order]
            values = [[case.percent if case else nan for case in row] for row in grid]
            style = {"vmax": most, "cmap": colors, "edgecolors": "white", "linewidth": 0.4}
            mesh = axes.pcolormesh(*edges, values, vmin=0, **style)
            named(mesh, name, [cell and cell.Index for row in grid for cell in row])
    axes.set(xlim=(-0.5, len(factors) - 0.5), ylim=(len(order) - 0.5, -0.5))
    axes.set_xticks(range(len(factors)), list(map(str, factors)))
    axes.spines[:].set_visible(False)


FIGURES = (Figure.listed("best", make, ("moving_only", "shape")),)
