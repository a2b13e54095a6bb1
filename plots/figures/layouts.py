"""One multiplication in several layouts: who owns what, next to the timeline of all ranks, from the
data of ``drbench explain --save FILE.json``."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from drbench.plots.draw.description import named
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.matrices import DOES, Square, draw_tiles, tint
from drbench.plots.draw.page import GRID, MARGIN_IN, patch_handle
from drbench.plots.draw.sheet import INK, WIDTH_IN, Sheet
from drbench.plots.select.cases import Options
from drbench.plots.select.runs import Bar, Json, read
from drbench.texts import bytes_text, layouts_text, number, time_unit

Span = tuple[float, float]

_SCALE, _TEXT_PT, _TIME_PT, _DIGIT_PT = 1.7, 13.0, 25.0, 10.5
_HEAD_IN, _RANKS_IN, _ROW_IN, _BELOW_IN, _FOOT_IN = 0.48, 1.5, 0.13, 0.2, 0.5
_LEFT_IN, _RIGHT_IN, _MATRIX_IN, _NAMES_IN = 2.8, 0.1, 0.7, 0.22
#: The least share of a transfer, and of a run, that is hidden; that of a wait worth an arrow.
_HIDDEN, _WAIT = 0.9, 0.03


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw a panel for each case, all on one time axis."""
    cases = list(cases)
    times = [case["time_s"] for case in cases]
    fastest, slowest = times.index(min(times)), times.index(max(times))
    timed = all(case["timed"] for case in cases)
    unit_s, unit = time_unit(max(times)) if timed else (max(times) / 100, "%")
    finding = f"{layouts(cases[0])}: {cases[0]['name']}"
    if fastest != slowest:
        finding = (
            f"The layout decides the time: {layouts(cases[slowest])} takes "
            f"{number(max(times) / min(times))} × as long as {layouts(cases[fastest])}"
        )
    does = {bar.does for case in cases for bars in case["ranks"] for bar in bars} | {"wait"}
    handles = [patch_handle(look) for name, look in DOES.items() if name in does]
    notes = [", ".join([cases[0]["multiplication"], *cases[0]["description"][1:]])]
    high_in = [max(_RANKS_IN, _ROW_IN * len(case["ranks"])) for case in cases]
    body_in = sum(high_in) + len(cases) * (_HEAD_IN + _BELOW_IN) + _FOOT_IN
    sheet = Sheet(body_in, handles, notes, finding, _SCALE)
    wide, top = WIDTH_IN - _LEFT_IN - _RIGHT_IN, 0.0
    for at, (case, high) in enumerate(zip(cases, high_in)):
        time = f"{number(case['time_s'] / unit_s)} {unit}"
        title = f"{layouts(case)}\n{time}, {case['name']}"
        axes = sheet.axes(title, _LEFT_IN, top + _HEAD_IN, wide, high)
        axes.set(xlim=(0, 1.01 * max(times) / unit_s), ylim=(len(case["ranks"]) - 0.5, -0.5))
        _draw_time_axis(axes, sheet, f"time ({unit})" if case is cases[-1] else "")
        _draw_ranks(axes, case, unit_s)
        waited = _waited(case) if at == slowest else None
        _point_at(axes, sheet, waited, unit_s, "waits", -0.15)
        if at == fastest and not waited:
            _point_at(axes, sheet, _hidden(case), unit_s, "hidden behind GEMMs", 0.3)
        _draw_case(sheet, case, time, top)
        _draw_names(sheet, len(case["ranks"]), top + _HEAD_IN, high)
        top += _HEAD_IN + high + _BELOW_IN
    return Made(sheet.picture, notes)


def layouts(case: Json) -> str:
    """The layouts of A, B and C."""
    return layouts_text([matrix["text"] for matrix in case["matrices"]])


def waits(bars: Sequence[Bar], stop_s: float) -> list[Span]:
    """When a rank computes nothing.

    Examples
    --------
    >>> waits([Bar(0, "multiply", 1.0, 2.0, 0.0, 0, [], [], [], True)], 2.5)
    [(0.0, 1.0), (2.0, 2.5)]
    """
    spans, end_s = [], 0.0
    busy = sorted((bar.start_s, bar.stop_s) for bar in bars if bar.computes)
    for start_s, until_s in [*busy, (stop_s, stop_s)]:
        if start_s > end_s:
            spans.append((end_s, start_s))
        end_s = max(end_s, until_s)
    return spans


def _hidden(case: Json) -> tuple[int, Span] | None:
    """The longest transfer that a rank computes during, of the first rank that hardly waits and has
    one, and of equal ones that nearest the middle of the run: the rank, and from when to when."""
    for rank, bars in enumerate(case["ranks"]):
        idle, hidden = waits(bars, case["time_s"]), []
        hardly = sum(map(_length, idle)) <= (1 - _HIDDEN) * case["time_s"]
        for bar in bars if hardly else ():
            span = bar.start_s, bar.stop_s
            seen = sum(max(0.0, min(span[1], stop) - max(span[0], start)) for start, stop in idle)
            if bar.moves and not bar.computes and seen <= (1 - _HIDDEN) * _length(span):
                hidden.append(span)
        if hidden:
            least = 0.99 * max(map(_length, hidden))
            long = [span for span in hidden if _length(span) >= least]
            return rank, min(long, key=lambda span: abs(sum(span) - case["time_s"]))
    return None


def _waited(case: Json) -> tuple[int, Span] | None:
    """The longest wait of the first rank that has one that counts, and from when to when."""
    for rank, bars in enumerate(case["ranks"]):
        longest = max(waits(bars, case["time_s"]), key=_length, default=(0.0, 0.0))
        if _length(longest) > _WAIT * case["time_s"]:
            return rank, longest
    return None


def _length(span: Span) -> float:
    return span[1] - span[0]


def _point_at(
    axes: Axes, sheet: Sheet, target: tuple[int, Span] | None, unit_s: float, text: str, lane: float
) -> None:
    """An arrow from a text above the timeline to the middle of a span of a rank."""
    if target is None:
        return
    rank, span = target
    middle, half = sum(span) / 2 / unit_s, 0.011 * len(text)
    at = min(1 - half, max(half, middle / axes.get_xlim()[1]))
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.5 * sheet.unit_in}
    style = sheet.text(_TEXT_PT, textcoords="axes fraction", ha="center", zorder=5)
    axes.annotate(text, (middle, rank + lane), (at, 1.1), arrowprops=arrow, **style)


def _draw_time_axis(axes: Axes, sheet: Sheet, label: str) -> None:
    """An axis of time; without a label it has no numbers."""
    axes.set_axis_on()
    axes.spines["left"].set_visible(False)
    axes.tick_params(left=False, labelleft=False, bottom=bool(label), labelbottom=bool(label))
    axes.tick_params(labelsize=_TEXT_PT * sheet.unit_in)
    axes.set_xlabel(label, size=_TEXT_PT * sheet.unit_in)
    axes.grid(axis="x", **GRID)


def _draw_ranks(axes: Axes, case: Json, unit_s: float) -> None:
    """The timelines: what each rank computes above, and when it waits; its transfers below."""
    for rank, bars in enumerate(case["ranks"]):
        lanes = {("wait", True): waits(bars, case["time_s"])}
        for bar in bars:
            if bar.does != "wait":
                lanes.setdefault((bar.does, bar.computes), []).append((bar.start_s, bar.stop_s))
        for (does, computes), spans in sorted(lanes.items()):
            places = [(start / unit_s, (stop - start) / unit_s) for start, stop in spans]
            lane = (rank - 0.45, 0.53) if computes else (rank + 0.13, 0.32)
            drawn = axes.broken_barh(places, lane, facecolor=DOES[does].color, linewidth=0)
            named(drawn, f"{DOES[does].name}, rank {rank}")


def _draw_case(sheet: Sheet, case: Json, time: str, top: float) -> None:
    """Left of a timeline: the layouts' names, who owns which tiles of A, B and C, and the time."""
    moved = next(value for name, value, _ in case["facts"] if name == "moved")
    moves = [region for bars in case["ranks"] for bar in bars if bar.moves for region in bar.writes]
    names = "".join(sorted({case["regions"][region][0] for region in moves}))
    wide = _LEFT_IN - _NAMES_IN - 0.16
    sheet.write(MARGIN_IN, top + 0.1, layouts(case), _TEXT_PT, wide, bold=True)
    sheet.write(
        MARGIN_IN, top + 0.32, f"{bytes_text(moved)} of {names or 'ABC'} move", _TEXT_PT, wide
    )
    axes = sheet.axes("who owns which tile", MARGIN_IN, top + 0.6, wide, _MATRIX_IN + 0.24)
    step, middle = (wide - _MATRIX_IN) / 2, 0.24 + _MATRIX_IN / 2
    for at, (matrix, sign) in enumerate(zip(case["matrices"], "·= ")):
        square = Square(matrix, at * step, 0.24, _MATRIX_IN)
        draw_tiles(sheet, axes, square, _DIGIT_PT, replica=0)
        name = square.left + _MATRIX_IN / 2, 0.18
        axes.text(*name, matrix["name"], **sheet.text(_TEXT_PT, bold=True, ha="center"))
        between = square.left + (_MATRIX_IN + step) / 2, middle
        axes.text(*between, sign, **sheet.text(_TEXT_PT, ha="center", va="center"))
    sheet.write(MARGIN_IN, top + 0.92 + _MATRIX_IN, time, _TIME_PT, wide, bold=True)


def _draw_names(sheet: Sheet, count: int, top: float, high: float) -> None:
    """The numbers of the ranks, in the colours of their tiles."""
    axes = sheet.axes("ranks", _LEFT_IN - _NAMES_IN - 0.02, top, _NAMES_IN, high)
    axes.set(xlim=(0, 1), ylim=(count - 0.5, -0.5))
    style = sheet.text(min(_TEXT_PT, 60 * high / count), ha="center", va="center")
    for rank in range(count):
        axes.add_patch(Rectangle((0, rank - 0.45), 1, 0.9, facecolor=tint(rank), linewidth=0))
        axes.text(0.5, rank, str(rank), **style)
    axes.text(1, -0.55, "rank", **sheet.text(_TEXT_PT - 2, ha="right", va="bottom"))


FIGURES = (Figure.listed("layouts", make, (), read),)
