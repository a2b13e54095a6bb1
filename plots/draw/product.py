"""A, B and C of a run, and lines about what a rank does, in the words of ``drbench explain``.

B is above C and A to its left, so that rows of A and columns of B meet in C.
"""

import re
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from plots.select.runs import Bar, Json

from .matrices import DOES, Square, draw_tiles
from .sheet import Sheet, row_in, rows_of

#: A line about steps: their kind, and what they do.
Line = tuple[str, str]

TEXT_PT, DIGIT_PT, HEAD_PT, HEAD_IN = 11.0, 10.5, 13.0, 0.3
_MARK_IN, _BELOW_IN = 0.15, 0.05
#: Space between A, B and C, and at the edges for their names, in sides of one of them.
_GAP, _EDGE = 0.16, 0.24
#: The whole in sides of one matrix, and its height over its width.
_WIDE, _HIGH = 2.04 + _GAP, 2 + _GAP + 2 * _EDGE
TALL = _HIGH / _WIDE


def draw_product(axes: Axes, sheet: Sheet, case: Json, rank: int, wide: float) -> dict[str, Square]:
    """Draw A, B and C with the tiles of a rank framed, in axes ``wide`` inches wide and
    :data:`TALL` times as high."""
    far = 1 + _GAP
    at = {"A": (0, far), "B": (far, 0), "C": (far, far)}
    axes.set(xlim=(-0.02, _WIDE - 0.02), ylim=(_HIGH - _EDGE, -_EDGE))
    squares = {each["name"]: Square(each, *at[each["name"]]) for each in case["matrices"]}
    for name, square in squares.items():
        draw_tiles(sheet, axes, square, DIGIT_PT, wide / _WIDE, rank=rank)
        down, va = (1.04, "top") if name == "C" else (-0.03, "bottom")
        text = f"{name} stays" if name == stationary_of(case) else name
        style = sheet.text(TEXT_PT, bold=True, va=va)
        axes.text(square.left, square.top + down, text, **style)
    return squares


def stationary_of(case: Json) -> str | None:
    """The matrix that stays, where the name of the program has it.

    Examples
    --------
    >>> stationary_of({"name": "universal S-B chunk 256"}), stationary_of({"name": "cannon OS"})
    ('B', None)
    """
    found = re.search(r"\bS-([ABC])\b", case["name"])
    return found[1] if found else None


def lines_in(lines: Sequence[Line], wide: float) -> float:
    """The height of some lines."""
    return _BELOW_IN + row_in(TEXT_PT) * (
        0.6 + sum(len(rows_of(text, TEXT_PT, wide - _MARK_IN)) for _, text in lines)
    )


def write_lines(sheet: Sheet, lines: Sequence[Line], left: float, top: float, wide: float) -> None:
    """Lines about steps, each behind a square of the colour of its kind."""
    top += _BELOW_IN
    for does, text in lines:
        axes = sheet.axes(does, left, top + 0.015, 0.11, 0.11)
        axes.add_patch(Rectangle((0, 0), 0.11, 0.11, facecolor=DOES[does].color))
        top = sheet.write_rows(left + _MARK_IN, top, text, TEXT_PT, wide - _MARK_IN)


def word_of(rank: int, bar: Bar) -> str:
    """What a rank does in a step: of its group's steps whether it receives or sends."""
    if bar.does == "collective":
        return "receives" if any(target == rank for _, target, _ in bar.moves) else "sends"
    return DOES[bar.does].name + " to" * (bar.does == "add")


def owned(rank: int, name: str, owners: Sequence[int], others: bool = False) -> str:
    """A part of a matrix by its owners, or by the others of them.

    Examples
    --------
    >>> owned(0, "A", [0]), owned(0, "B", [0, 1]), owned(0, "B", [0, 1], others=True)
    ('own A', 'B of ranks 0, 1', 'B of rank 1')
    """
    if list(owners) == [rank]:
        return f"own {name}"
    return f"{name} of {ranks_text(each for each in owners if not others or each != rank)}"


def ranks_text(numbers: Iterable[int]) -> str:
    """Ranks by their numbers.

    Examples
    --------
    >>> ranks_text([2]), ranks_text([0, 1])
    ('rank 2', 'ranks 0, 1')
    """
    found = [str(number) for number in numbers]
    return f"rank{'s' * (len(found) > 1)} {', '.join(found)}"
