"""Which matrix stays, and what a rank moves in a whole run, from the data of
``drbench explain --save FILE.json``."""

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes

from plots.draw.matrices import DOES, Square, mark
from plots.draw.page import MARGIN_IN
from plots.draw.product import (
    HEAD_PT,
    TALL,
    TEXT_PT,
    Line,
    draw_product,
    lines_in,
    ranks_text,
    stationary_of,
    word_of,
    write_lines,
)
from plots.draw.sheet import WIDTH_IN, Sheet
from plots.registry import Figure, Made
from plots.select.cases import Options
from plots.select.runs import Json, owners_of, read, tiles
from plots.summaries import SUMMARIES

from .layouts import layouts

_COLUMNS, _ABOVE_IN = 3, 0.46


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw what a rank moves in a whole run, a panel for each case, and for each rank that has the
    same tile of the matrix that stays as the first."""
    panels = [(case, rank) for case in cases for rank in _sharing(case)]
    wide = WIDTH_IN / max(_COLUMNS, len(panels))
    inside = wide - 5 * MARGIN_IN
    said = [[*_moved_by(case, rank)] for case, rank in panels]
    high = _ABOVE_IN + TALL * inside + max(lines_in(lines, inside) for lines in said)
    sheet = Sheet(high)
    for at, ((case, rank), lines) in enumerate(zip(panels, said)):
        left, top, still = at * wide + MARGIN_IN, MARGIN_IN, stationary_of(case)
        title = f"{f'S-{still}' if still else case['name']}, {layouts(case)}"
        sheet.write(left, top, title, HEAD_PT, WIDTH_IN / len(panels) - 0.2, bold=True)
        sheet.write(left, top + 0.22, f"what {_place(case, rank)} does", TEXT_PT, inside)
        top += _ABOVE_IN - MARGIN_IN
        axes = sheet.axes(f"{case['name']}, rank {rank}", left, top, inside, TALL * inside)
        squares = draw_product(axes, sheet, case, rank, inside)
        _draw_flow(axes, sheet, case, rank, squares)
        write_lines(sheet, lines, left, top + TALL * inside, inside)
    return Made(sheet.picture, [])


def _sharing(case: Json) -> Sequence[int]:
    """The ranks that have the first tile of the matrix that stays; else rank 0."""
    for matrix in case["matrices"]:
        if matrix["name"] == stationary_of(case):
            return next(tiles(matrix)).owners[:_COLUMNS]
    return [0]


def _place(case: Json, rank: int) -> str:
    """A rank, and which replica of the matrix that stays it has."""
    for matrix in case["matrices"]:
        owners = next((tile.owners for tile in tiles(matrix) if rank in tile.owners), ())
        if matrix["name"] == stationary_of(case) and len(owners) > 1:
            return f"rank {rank} (replica {owners.index(rank)})"
    return f"rank {rank}"


def _moved_by(case: Json, rank: int) -> Iterator[Line]:
    """What a rank computes and moves in the whole run."""
    if _computed(case, rank):
        yield "multiply", "multiplies into own C"
    for (does, word), regions in _moved_regions(case, rank).items():
        owners: dict[str, set[int]] = {}
        for region in regions:
            name, ranks = owners_of(case, region)
            owners.setdefault(name, set()).update({*ranks} - {rank})
        for name, ranks in owners.items():
            after = " at the end, and adds it" * ((name, does) == ("C", "fetch"))
            yield does, f"{word} {name} of {ranks_text(sorted(ranks))}{after}"


def _computed(case: Json, rank: int) -> list[int]:
    """The regions of its own tiles of C that a rank's GEMMs write."""
    bars = [bar for bar in case["ranks"][rank] if bar.does == "multiply"]
    found = dict.fromkeys(region for bar in bars for region in bar.writes)
    return [region for region in found if owners_of(case, region) == ("C", [rank])]


def _moved_regions(case: Json, rank: int) -> dict[Line, list[int]]:
    """The regions that a rank moves between itself and others, by kind of step and its word."""
    found: dict[Line, dict[int, None]] = {}
    for bar in case["ranks"][rank]:
        if bar.moves:
            regions = bar.reads if bar.does == "send" else bar.writes
            found.setdefault((bar.does, word_of(rank, bar)), {}).update(dict.fromkeys(regions))
    return {line: [*regions] for line, regions in found.items()}


def _draw_flow(axes: Axes, sheet: Sheet, case: Json, rank: int, squares: dict[str, Square]) -> None:
    """Mark what a rank moves; arrows lead to and from its tile of the matrix that stays."""
    name = stationary_of(case)
    own = next(
        (
            squares[name].middle([tile.rows], [tile.cols])
            for tile in (tiles(squares[name].matrix) if name else ())
            if rank in tile.owners
        ),
        None,
    )
    for number in _computed(case, rank):
        mark(axes, squares["C"], *case["regions"][number][2:], "multiply")
    for (does, _), numbers in _moved_regions(case, rank).items():
        moved: dict[str, list[tuple[float, float]]] = {}
        for region, _, rows, cols in (case["regions"][number] for number in numbers):
            if region == "C" and does == "fetch":  # replicas are added at the end
                continue
            mark(axes, squares[region], rows, cols, does)
            moved.setdefault(region, []).append(squares[region].middle(rows, cols))
        for places in (places for region, places in moved.items() if own and region != name):
            there = tuple(sum(each) / len(places) for each in zip(*places))
            head, tail = (own, there) if does == "fetch" else (there, own)
            arrow = {"arrowstyle": "-|>", "color": DOES[does].color, "zorder": 5}
            arrow |= dict.fromkeys(("shrinkA", "shrinkB"), 9 * sheet.unit_in)
            arrow |= {"linewidth": 3 * sheet.unit_in, "mutation_scale": 18 * sheet.unit_in}
            axes.annotate("", head, tail, arrowprops=arrow)


FIGURES = (Figure("stationary", SUMMARIES["stationary"], make, (), read),)
