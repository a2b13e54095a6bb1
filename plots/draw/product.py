"""A, B and C of a run with what a rank does to them, in pictures and in lines.

B is above C and A to its left, so that rows of A and columns of B meet in C.
"""

import re
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from drbench.plots.select.runs import Bar, Json, owners_of

from .matrices import DOES, Square, draw_tiles, mark
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
    squares = {matrix["name"]: Square(matrix, *at[matrix["name"]]) for matrix in case["matrices"]}
    for name, square in squares.items():
        draw_tiles(sheet, axes, square, DIGIT_PT, wide / _WIDE, rank=rank)
        down, va = (1.04, "top") if name == "C" else (-0.03, "bottom")
        text = f"{name} stays" if name == stationary_of(case) else name
        axes.text(square.left, square.top + down, text, **sheet.text(TEXT_PT, bold=True, va=va))
    return squares


def stationary_of(case: Json) -> str | None:
    """The stationary matrix, where the name of the program has it; OS, LS and RS are the words of
    other papers.

    Examples
    --------
    >>> stationary_of({"name": "universal S-B chunk 256"}), stationary_of({"name": "cannon OS"})
    ('B', 'C')
    """
    match = re.search(r"\bS-([ABC])\b|\b([OLR])S\b", case["name"])
    return match and (match[1] or {"O": "C", "L": "A", "R": "B"}[match[2]])


def kind_of(case: Json, rank: int, bar: Bar) -> tuple[str, str, list[int]]:
    """What a rank does in a step, in a word too, and the regions that it does it to: in a step of
    its group it receives or sends."""
    does, word = bar.does, DOES[bar.does].name
    if does == "collective":
        receives = any(target == rank for _, target, _ in bar.moves)
        does, word = (does, "receives") if receives else ("send", "sends")
    regions = bar.reads if does in ("multiply", "send") else bar.writes
    if does == "add":
        word = "adds to"
    elif does == "fetch" and case["regions"][regions[0]][0] == "C":  # of another replica
        word = "fetches and adds"
    return does, word, regions or bar.writes or bar.reads


def mark_steps(
    axes: Axes, squares: dict[str, Square], case: Json, rank: int, bars: Iterable[Bar]
) -> None:
    """Mark what the steps of a rank multiply and move. A place has one mark: what moves is also
    multiplied, and what is fetched to be added is not where the rank multiplies itself."""
    marks: dict[str, tuple[int, str]] = {}

    def add_marks(regions: Iterable[int], does: str, first: bool = False) -> None:
        for region in regions:
            name, _, *place = case["regions"][region]
            if first or f"{name}{place}" not in marks:
                marks[f"{name}{place}"] = region, does

    for bar in bars:
        does, word, regions = kind_of(case, rank, bar)
        if does == "multiply":
            add_marks(regions, "read")
            add_marks(bar.writes, does)
        elif bar.moves or bar.does == "collective":
            add_marks(regions, does, word != "fetches and adds")
    for region, does in marks.values():
        mark(axes, squares, case, region, does)


def lines_of(case: Json, rank: int, bars: Iterable[Bar]) -> list[Line]:
    """What a rank does in some steps: a line for each kind, with the tiles by the ranks that store
    them, and from whom they come where it is another rank."""
    kinds: dict[Line, tuple[dict[str, set[int]], set[int]]] = {}
    for bar in bars:
        does, word, regions = kind_of(case, rank, bar)
        if bar.moves or bar.does in ("multiply", "collective"):
            tiles, senders = kinds.setdefault((does, word), ({}, set()))
            for name, owners in (owners_of(case, region) for region in regions):
                others = {*owners} - {rank} if does == "collective" else {*owners}
                tiles.setdefault(name, set()).update(others or owners)
            senders.update(source for source, target, _ in bar.moves if target == rank)
    lines = []
    for (does, word), (tiles, senders) in kinds.items():
        parts = [
            f"{name}\N{NO-BREAK SPACE}{numbers_text(owners)}" for name, owners in tiles.items()
        ]
        text = f"{word} {(' · ' if does == 'multiply' else ' and ').join(parts)}"
        if does == "collective" and not senders <= set().union(*tiles.values()):
            text += f", from {ranks_text(senders)}"
        lines.append((does, text))
    return lines or [("wait", "waits")]


def numbers_text(numbers: Iterable[int]) -> str:
    """Some numbers in order.

    Examples
    --------
    >>> numbers_text({2, 0})
    '0, 2'
    """
    return ", ".join(map(str, sorted(numbers)))


def ranks_text(numbers: Iterable[int]) -> str:
    """Ranks by their numbers.

    Examples
    --------
    >>> ranks_text([2]), ranks_text([0, 1])
    ('rank 2', 'ranks 0, 1')
    """
    text = numbers_text(numbers)
    return f"rank{'s' * (',' in text)} {text}"


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
