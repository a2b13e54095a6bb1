"""Which matrix is stationary, and what a rank moves in a whole run, from the data of
``drbench explain --save FILE.json``."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.matrices import DOES, Square
from drbench.plots.draw.page import MARGIN_IN
from drbench.plots.draw.product import (
    HEAD_PT,
    TALL,
    TEXT_PT,
    draw_product,
    kind_of,
    lines_in,
    lines_of,
    mark_steps,
    stationary_of,
    write_lines,
)
from drbench.plots.draw.sheet import WIDTH_IN, Sheet
from drbench.plots.select.cases import Options
from drbench.plots.select.runs import Json, read, tiles

from .layouts import layouts

_COLUMNS, _ABOVE_IN = 3, 0.46


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw what a rank moves in a whole run, a panel for each case, and for each rank that has the
    same tile of the stationary matrix as the first."""
    panels = [(case, rank) for case in cases for rank in _sharing(case)]
    wide = WIDTH_IN / max(_COLUMNS, len(panels))
    inside = wide - 5 * MARGIN_IN
    said = [lines_of(case, rank, case["ranks"][rank]) for case, rank in panels]
    high = _ABOVE_IN + TALL * inside + max(lines_in(lines, inside) for lines in said)
    sheet = Sheet(high)
    for at, ((case, rank), lines) in enumerate(zip(panels, said)):
        left, top, stationary = at * wide + MARGIN_IN, MARGIN_IN, stationary_of(case)
        title = f"{f'S-{stationary}' if stationary else case['name']}, {layouts(case)}"
        sheet.write(left, top, title, HEAD_PT, WIDTH_IN / len(panels) - 0.2, bold=True)
        sheet.write(left, top + 0.22, f"what {_place(case, rank)} does", TEXT_PT, inside)
        top += _ABOVE_IN - MARGIN_IN
        axes = sheet.axes(f"{case['name']}, rank {rank}", left, top, inside, TALL * inside)
        squares = draw_product(axes, sheet, case, rank, inside)
        mark_steps(axes, squares, case, rank, case["ranks"][rank])
        _draw_flow(axes, sheet, case, rank, squares)
        write_lines(sheet, lines, left, top + TALL * inside, inside)
    return Made(sheet.picture, [])


def _sharing(case: Json) -> Sequence[int]:
    """The ranks that have the first tile of the stationary matrix; else rank 0."""
    for matrix in case["matrices"]:
        if matrix["name"] == stationary_of(case):
            return next(tiles(matrix)).owners[:_COLUMNS]
    return [0]


def _place(case: Json, rank: int) -> str:
    """A rank, and which replica of the stationary matrix it has."""
    for matrix in case["matrices"]:
        owners = next((tile.owners for tile in tiles(matrix) if rank in tile.owners), ())
        if matrix["name"] == stationary_of(case) and len(owners) > 1:
            return f"rank {rank} (replica {owners.index(rank)})"
    return f"rank {rank}"


def _draw_flow(axes: Axes, sheet: Sheet, case: Json, rank: int, squares: dict[str, Square]) -> None:
    """Arrows from what a rank fetches to its tile of the stationary matrix, and from there to what
    it adds to."""
    stationary = stationary_of(case)
    own = (
        [tile for tile in tiles(squares[stationary].matrix) if rank in tile.owners]
        if stationary
        else []
    )
    moved: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for bar in case["ranks"][rank] if own else ():
        does, word, regions = kind_of(case, rank, bar)
        for name, _, rows, cols in (case["regions"][region] for region in regions):
            if word in ("fetches", "adds to") and bar.moves and name != stationary:
                moved.setdefault((does, name), []).append(squares[name].middle(rows, cols))
    for (does, _), places in moved.items():
        ends = [squares[stationary].middle([own[0].rows], [own[0].cols])]
        ends.append(tuple(sum(coordinates) / len(places) for coordinates in zip(*places)))
        arrow = {"arrowstyle": "-|>", "color": DOES[does].color, "zorder": 5}
        arrow |= dict.fromkeys(("shrinkA", "shrinkB"), 9 * sheet.unit_in)
        arrow |= {"linewidth": 3 * sheet.unit_in, "mutation_scale": 18 * sheet.unit_in}
        axes.annotate("", *(ends if does == "fetch" else ends[::-1]), arrowprops=arrow)


FIGURES = (Figure.listed("stationary", make, (), read),)
