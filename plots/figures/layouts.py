"""One multiplication in several layouts: each drawn next to the timeline of all ranks, from the
data of ``drbench explain --save FILE.json``."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from drbench.texts import number, time_unit
from plots.draw.description import named
from plots.draw.page import GRID, MARGIN_IN, Page, fitted, page_in, patch_handle, width_in
from plots.draw.style import FONT_PT, OTHER, PHASES, Fill
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError
from plots.summaries import SUMMARIES

#: A run, a matrix of it or a fact about it, as in the file.
Json = dict[str, Any]
#: Kind of step -> its entry in the legend; local GEMMs are in the upper half of a rank's row.
DOES = {
    "multiply": PHASES["phase_gemm_s"]._replace(name="local GEMM"),
    "fetch": Fill("get", PHASES["phase_get_wait_s"].color),
    "add": Fill("accumulate", PHASES["phase_accumulate_s"].color),
    "send": Fill("send", "#56B4E9"),
    "collective": Fill("collective", PHASES["phase_collective_wait_s"].color),
    "copy": Fill("copy", "#7F7F00"),
    "wait": Fill("wait", OTHER.color),
}
_SUBTITLE_IN = 0.12
_HEAD_IN, _RANKS_IN, _BELOW_IN, _ROW_IN, _FOOT_IN = 0.36, 1.3, 0.1, 0.12, 0.32
_LEFT_IN, _RIGHT_IN, _MATRIX_IN = 1.62, 0.12, 0.56
_LIGHT, _DARK, _OWN = "#EDF0F3", "#DDE2E8", "#1A1A1A"


def read(paths: Sequence[str]) -> list[Json]:
    """The cases of files that ``drbench explain --save FILE.json`` wrote.

    Raises
    ------
    SelectionError
        If a file is no such file.
    """
    cases = []
    for path in paths:
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            cases += found["cases"]
            _ = [(each["ranks"], each["matrices"], each["time_s"]) for each in found["cases"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SelectionError(
                f"{path}: not the data of a run ({error}). Give it a file of drbench explain "
                "--save FILE.json."
            ) from None
    return cases


def make(cases: Sequence[Json], options: Options) -> Made:
    """Draw a panel for each case, all on one time axis; the marked tiles are those of one rank."""
    cases = list(cases)
    times = [case["time_s"] for case in cases]
    one, unit = time_unit(max(times))
    finding = f"{_layouts(cases[0])}: {cases[0]['name']}"
    if len(cases) > 1:
        least, most = times.index(min(times)), times.index(max(times))
        ratio = number(times[most] / times[least])
        finding = f"The layout decides the time: {_layouts(cases[most])} takes {ratio} × as long as"
        finding += f" {_layouts(cases[least])}"
    does = {bar[1] for case in cases for bars in case["ranks"] for bar in bars}
    shown = len(cases[0]["ranks"]) // 3
    subtitle = ", ".join([cases[0]["multiplication"], *cases[0]["description"][1:]])
    notes = [f"one row for each rank; marked tiles: those of rank {shown}"]
    handles = [patch_handle(look) for name, look in DOES.items() if name in does]
    high_in = [max(_RANKS_IN, _ROW_IN * len(case["ranks"])) for case in cases]
    body_in = _SUBTITLE_IN + sum(high_in) + len(cases) * (_HEAD_IN + _BELOW_IN) + _FOOT_IN
    page = Page(body_in, handles, notes, finding)
    text, size = fitted(subtitle, FONT_PT, page_in() - 2 * MARGIN_IN)
    page.text(MARGIN_IN, 0.0, text, size)
    wide_in, top_in = page_in() - _LEFT_IN - _RIGHT_IN, _SUBTITLE_IN
    for case, high in zip(cases, high_in):
        limits_in = width_in(_limits(case, one), FONT_PT) + 0.75
        title, size = fitted(_layouts(case), FONT_PT + 0.5, wide_in - limits_in - 0.1, True)
        head = page.text(_LEFT_IN, top_in + 0.16, title, size, weight="bold", color="black")
        time = f"{number(case['time_s'] / one)} {unit}"
        right = page.text(
            page_in() - _RIGHT_IN, top_in + 0.12, time, FONT_PT + 3, ha="right", weight="bold"
        )
        right.set_color("black")
        small = page.text(page_in() - _RIGHT_IN - 0.75, top_in + 0.16, _limits(case, one), FONT_PT)
        small.set_ha("right")
        for text in (head, right, small):
            named(text, "")
        axes = page.axes(_LEFT_IN, top_in + _HEAD_IN, wide_in, high)
        named(axes, f"{_layouts(case)}\n{time}, {_limits(case, one)}")
        _draw_ranks(axes, case, one)
        axes.axvline(case["time_s"] / one, color="black", linewidth=1.0)
        axes.set_xlim(0, 1.02 * max(times) / one)
        last = case is cases[-1]
        axes.tick_params(left=False, labelleft=False, bottom=last, labelbottom=last)
        axes.spines["left"].set_visible(False)
        _draw_layout(page, case, shown, top_in + _HEAD_IN + (high - 2 * _MATRIX_IN - 0.2) / 2)
        top_in += _HEAD_IN + high + _BELOW_IN
    axes.set_xlabel(f"time ({unit})")
    return Made(page.picture, notes)


def _layouts(case: Json) -> str:
    """
    Examples
    --------
    >>> _layouts({"matrices": [{"name": "A", "text": "row"}, {"name": "B", "text": "row"}]})
    'A, B row'
    """
    texts: dict[str, list[str]] = {}
    for each in case["matrices"]:
        texts.setdefault(each["text"], []).append(each["name"])
    return " · ".join(f"{', '.join(names)} {text}" for text, names in texts.items())


def _limits(case: Json, one: float) -> str:
    """The algorithm, and the interval of the prediction and the share of the peak where they are
    known."""
    found = [case["name"]]
    if case.get("interval"):
        found.append("95 %: {}–{}".format(*(number(s / one) for s in case["interval"])))
    if case.get("percent_of_peak") is not None:
        found.append(f"{number(case['percent_of_peak'])} % of peak")
    return ", ".join(found)


def _draw_ranks(axes: Axes, case: Json, one: float) -> None:
    """The timelines: local GEMMs in the upper half of each rank's row, the rest in the lower."""
    ranks = case["ranks"]
    for name, look in DOES.items():
        for at, bars in enumerate(ranks):
            spans = [(bar[2] / one, (bar[3] - bar[2]) / one) for bar in bars if bar[1] == name]
            if spans:
                low = at - 0.46 if name == "multiply" else at + 0.02
                drawn = axes.broken_barh(spans, (low, 0.44), facecolor=look.color, linewidth=0)
                named(drawn, f"{look.name}, rank {at}")
    axes.set_ylim(len(ranks) - 0.4, -0.6)
    axes.grid(axis="x", **GRID)


def _draw_layout(page: Page, case: Json, rank: int, top_in: float) -> None:
    """A, B above C, and C, each a square with its tiles, those of one rank marked."""
    at = {"A": (0, 1), "B": (1, 0), "C": (1, 1)}
    step_in = _MATRIX_IN + 0.16
    for matrix in case["matrices"]:
        column, row = at[matrix["name"]]
        left = MARGIN_IN + column * step_in
        axes = page.axes(left, top_in + row * step_in, _MATRIX_IN, _MATRIX_IN)
        named(axes, f"{matrix['name']} {matrix['text']}")
        axes.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[])
        axes.set_title(matrix["name"], fontsize=FONT_PT, weight="bold", pad=2)
        axes.spines[:].set_visible(False)
        for (x0, x1, y0, y1), odd, own in _tiles(matrix, rank):
            color = _OWN if own else (_LIGHT, _DARK)[odd]
            axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=color, linewidth=0))


def _tiles(matrix: Json, rank: int) -> Iterable[tuple[tuple, bool, bool]]:
    """The tiles of a matrix as shares of it: ``(x0, x1, y0, y1)``, whether it is an odd one, and
    whether the rank has it, in any replica."""
    across, down = matrix["shape"][1], matrix["shape"][0]
    by_row, by_column, by_replica = matrix["places"]
    y0 = 0
    for i, (y1, row) in enumerate(matrix["rows"]):
        x0 = 0
        for j, (x1, column) in enumerate(matrix["cols"]):
            owners = {by_row[row] + by_column[column] + replica for replica in by_replica}
            yield (
                (x0 / across, x1 / across, y0 / down, y1 / down),
                bool((i + j) % 2),
                rank in owners,
            )
            x0 = x1
        y0 = y1


FIGURES = (
    Figure(
        "layouts",
        SUMMARIES["layouts"],
        make,
        (),
        read,
    ),
)
