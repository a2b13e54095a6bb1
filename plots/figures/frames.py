"""Four moments of a rank of a run, from the data of ``drbench explain --save FILE.json``."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from matplotlib.patches import Rectangle

from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.matrices import DOES, LINE, mark
from drbench.plots.draw.page import MARGIN_IN
from drbench.plots.draw.product import (
    HEAD_IN,
    HEAD_PT,
    TALL,
    TEXT_PT,
    Line,
    draw_product,
    kind_of,
    lines_in,
    lines_of,
    mark_steps,
    write_lines,
)
from drbench.plots.draw.sheet import INK, WIDTH_IN, Sheet
from drbench.plots.select.cases import Options
from drbench.plots.select.runs import Bar, Json, read

from .layouts import layouts

_FRAMES, _NUMBER_PT, _RUN_IN = 4, 20.0, 0.36


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw four moments of the rank that moves most, and its whole run below them; a strip for each
    case."""
    wide, strips, high = WIDTH_IN / _FRAMES, [], 0.0
    inside = wide - 3 * MARGIN_IN
    for case in cases:
        rank = _busiest(case)
        times = moments(case, rank)
        said = [lines_at(case, rank, t) for t in times]
        below = TALL * inside + max(lines_in(lines, wide) for lines in said)
        strips.append((case, rank, times, said, high, below))
        high += 2 * HEAD_IN + below + 2 * _RUN_IN
    sheet = Sheet(high)
    for case, rank, times, said, top, below in strips:
        title = f"{case['name']}, {layouts(case)}"
        about = f"Rank {rank} of {len(case['ranks'])}, its tiles framed. A 1: rank 1's tile of A."
        about += " Dotted: waits for its GEMM." * any(find_waiting(case, rank, t) for t in times)
        sheet.write(MARGIN_IN, top + MARGIN_IN, title, HEAD_PT, WIDTH_IN - 0.2, bold=True)
        sheet.write(MARGIN_IN, top + MARGIN_IN + 0.22, about, TEXT_PT, WIDTH_IN - 0.2)
        top += 2 * HEAD_IN - 0.05
        for at, (t, lines) in enumerate(zip(times, said)):
            left = at * wide + MARGIN_IN
            axes = sheet.axes(f"moment {at + 1}", left, top, inside, TALL * inside)
            squares = draw_product(axes, sheet, case, rank, inside)
            for region in find_waiting(case, rank, t):
                mark(axes, squares, case, region, "waiting")
            mark_steps(axes, squares, case, rank, active(case, rank, t))
            axes.text(0, 0.2, str(at + 1), **sheet.text(_NUMBER_PT, bold=True, va="top"))
            write_lines(sheet, lines, left, top + TALL * inside, wide)
        _draw_run(sheet, case, rank, times, top + below + _RUN_IN / 2)
    return Made(sheet.picture, [])


def _busiest(case: Json) -> int:
    """The first rank that moves most bytes; if all move as many, one in the middle."""
    moved = [sum(move[2] for bar in bars for move in bar.moves) for bars in case["ranks"]]
    return moved.index(max(moved)) if len({*moved}) > 1 else len(moved) // 2


def find_waiting(case: Json, rank: int, t: float) -> list[int]:
    """The regions that a rank has fetched before a moment and multiplies after it."""
    used = {region for bar in active(case, rank, t) for region in bar.reads}
    bars = [bar for bar in case["ranks"][rank] if not bar.computes and bar.stop_s <= t < bar.held_s]
    return [region for bar in bars for region in bar.writes if region not in used]


def active(case: Json, rank: int, t: float) -> list[Bar]:
    """The steps of a rank at a moment, in the order of :data:`DOES`."""
    bars = [bar for bar in case["ranks"][rank] if bar.start_s <= t < bar.stop_s]
    return sorted(bars, key=lambda bar: [*DOES].index(bar.does))


def moments(case: Json, rank: int, most: int = _FRAMES) -> list[float]:
    """The moments of a rank to draw: one of each local GEMM that reads other tiles, while something
    moves if it does, and one without; the longest if they are too many, and if they are too few the
    longest of the rest."""
    ends = {end for bar in case["ranks"][rank] for end in (bar.start_s, bar.stop_s)}
    spans = pairwise(sorted(ends | {0.0, case["time_s"]}))
    states = []
    for lines, same in groupby(spans, key=lambda span: lines_at(case, rank, sum(span) / 2)):
        length_s, middle = max((stop - start, (start + stop) / 2) for start, stop in same)
        states.append((length_s, middle, lines))
    gemm = lambda state: [text for does, text in state[2] if does == "multiply"]
    chosen = [
        max(same, key=lambda state: (len(state[2]), state[0]))
        for same in ([*states] for _, states in groupby(states, key=gemm))
    ]
    chosen = sorted(chosen, reverse=True)[:most]
    rest = sorted((state for state in states if state not in chosen), reverse=True)
    return sorted(t for _, t, _ in chosen + rest[: most - len(chosen)])


def lines_at(case: Json, rank: int, t: float) -> list[Line]:
    """What a rank does at a moment, a line for each kind of step."""
    return lines_of(case, rank, active(case, rank, t))


def _draw_run(sheet: Sheet, case: Json, rank: int, times: Sequence[float], top: float) -> None:
    """The run of a rank: what it computes above, its transfers below, and the frames' moments."""
    left = 0.62
    sheet.write(MARGIN_IN, top + 0.09, f"rank {rank}", TEXT_PT, left)
    axes = sheet.axes(f"rank {rank}, time", left, top, WIDTH_IN - left - 0.1, _RUN_IN)
    axes.set(xlim=(0, case["time_s"]), ylim=(1, 0))
    axes.add_patch(Rectangle((0, 0), case["time_s"], 1, fill=False, edgecolor=LINE, linewidth=0.6))
    for bar in case["ranks"][rank]:
        place, (does, _, _) = (
            (bar.start_s, 0.06 if bar.computes else 0.53),
            kind_of(case, rank, bar),
        )
        look = {"facecolor": DOES[does].color, "edgecolor": "white", "linewidth": 0.4}
        look["zorder"] = 1 if does == "send" else 2
        axes.add_patch(Rectangle(place, bar.stop_s - bar.start_s, 0.43, **look))
    for number, t in enumerate(times, 1):
        axes.plot([t, t], [0, 1], color=INK, linewidth=1.2)
        axes.text(t, -0.06, str(number), **sheet.text(TEXT_PT, bold=True, ha="center", va="bottom"))


FIGURES = (Figure.listed("frames", make, (), read),)
