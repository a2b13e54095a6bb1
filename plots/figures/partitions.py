"""Who stores what in each layout, from the data of ``drbench explain --save FILE.json``."""

from collections.abc import Sequence

from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.matrices import Square, draw_tiles
from drbench.plots.draw.page import MARGIN_IN
from drbench.plots.draw.product import DIGIT_PT, HEAD_IN, HEAD_PT, TEXT_PT, ranks_text
from drbench.plots.draw.sheet import WIDTH_IN, Sheet
from drbench.plots.select.cases import Options
from drbench.plots.select.runs import Json, read, tiles
from drbench.texts import plural

_SCALE, _SQUARE_IN, _STORED_IN, _COLUMNS = 1.4, 1.25, 2.1, 3


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw each layout that a matrix of the runs has, all its replicas."""
    known = {matrix["text"]: matrix for case in cases for matrix in case["matrices"]}
    wide, count = WIDTH_IN / _COLUMNS, len(cases[0]["ranks"])
    finding = f"{plural(count, 'rank')}; the number in a tile is the rank that stores it"
    sheet = Sheet(-(-len(known) // _COLUMNS) * _STORED_IN, finding=finding, scale=_SCALE)
    for at, (text, matrix) in enumerate(known.items()):
        row, column = divmod(at, _COLUMNS)
        left, top, inside = column * wide + MARGIN_IN, row * _STORED_IN, wide - 2 * MARGIN_IN
        sheet.write(left, top, text, HEAD_PT, inside, bold=True)
        _draw_replicas(sheet, matrix, left, top + HEAD_IN, inside)
        top += HEAD_IN + _SQUARE_IN + 0.06
        sheet.write_rows(left, top, _stored(matrix), TEXT_PT, inside)
    return Made(sheet.picture, [])


def _draw_replicas(sheet: Sheet, matrix: Json, left: float, top: float, wide: float) -> None:
    """The replicas of a matrix next to each other; terms with a plus between them."""
    count, gap_in = len(matrix["places"][2]), 0.16
    side = min(_SQUARE_IN, (wide - gap_in * (count - 1)) / count)
    axes = sheet.axes(matrix["text"], left, top, wide, _SQUARE_IN)
    for replica in range(count):
        square = Square(matrix, replica * (side + gap_in), 0.0, side)
        draw_tiles(sheet, axes, square, DIGIT_PT, replica=replica)
        if replica and any(matrix["terms"]):
            place = square.left - gap_in / 2, side / 2
            axes.text(*place, "+", **sheet.text(TEXT_PT, ha="center", va="center"))


def _stored(matrix: Json) -> str:
    """What each rank stores, or in how many copies or terms the matrix is stored.

    Examples
    --------
    >>> whole, halves = [[8, 0]], [[4, 0], [8, 1]]
    >>> places = {"shape": [8, 8], "places": [[0], [0, 1], [0]], "terms": [0]}
    >>> _stored(places | {"rows": whole, "cols": halves})
    'each rank stores whole columns'
    """
    every = [*tiles(matrix)]
    count = len(matrix["places"][2])
    if any(matrix["terms"]):
        return f"{count} full-size terms, one on each rank; the matrix is their sum"
    if count > 1:
        ranks = [sorted({tile.owners[replica] for tile in every}) for replica in range(count)]
        return f"{count} copies: " + " and ".join(
            f"replica {replica} on {ranks_text(on)}" for replica, on in enumerate(ranks)
        )
    per_rank = len(every) // len({tile.owners for tile in every})
    what = "a block" if per_rank == 1 else plural(per_rank, "tile")
    for axis, name in enumerate(("columns", "rows")):
        if len(matrix[("rows", "cols")[axis]]) == 1:
            what = f"whole {name}"
    return f"each rank stores {what}"


FIGURES = (Figure.listed("partitions", make, (), read),)
