"""Timelines: when one rank computed and when each direction of the mesh was busy, from the traces
of real runs (MeshSlice, Figure 4)."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from drbench.clock import StepTime
from drbench.mappings import grouped
from drbench.measure.timeline import read_chrome_trace
from drbench.plots.draw.description import named
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.page import GRID, MARGIN_IN, FigurePage, bar_edge, fit_text, page_in
from drbench.plots.draw.style import FONT_PT, FillStyle
from drbench.plots.select.cases import Options, SelectionError, names, shorten
from drbench.texts import number, shape_text, time_text, time_unit

#: Tracks from top to bottom: name in the trace -> label and look.
TRACKS = {
    "compute": FillStyle("compute", "#0072B2"),
    "column": FillStyle("inter-row (column)", "#E69F00", "////"),
    "row": FillStyle("inter-column (row)", "#D55E00", "xxxx"),
    "one-sided": FillStyle("one-sided", "#CC79A7", "\\\\\\\\"),
    "fence": FillStyle("fence", "#56B4E9", "----"),
}
_LANE_IN, _NAME_IN, _SUBTITLE_IN, _BELOW_IN, _LEFT_IN, _RIGHT_IN = 0.17, 0.26, 0.2, 0.42, 1.15, 0.12
#: Between the panels above and the titles of those below.
_SPACING_IN = 0.1


class Panel(NamedTuple):
    """One run: its description, and its tracks on the rank that is shown, by their names.

    ``name`` is the algorithm with the stationary matrix, ``dataflow`` that of a mesh.
    """

    name: str
    dataflow: str
    subtitle: str
    rank: int
    tracks: dict[str, list[StepTime]]

    @property
    def stop_s(self) -> float:
        """The time at which the rank ended."""
        return max(event.stop_s for events in self.tracks.values() for event in events)

    @property
    def title(self) -> str:
        """Its name, its time, and how much of that is local GEMMs."""
        busy_s = sum(event.stop_s - event.start_s for event in self.tracks.get("compute", ()))
        gemms = f", local GEMMs {time_text(busy_s)}" if busy_s else ""
        return f"{shorten(self.name, 60)}: {time_text(self.stop_s)}{gemms}"


def panel(path: str, text: str) -> Panel:
    """Choose the rank of a trace: the one that computed for the longest time, on a tie the first.

    Raises
    ------
    SelectionError
        If it is not a trace, or an empty one.
    """
    try:
        events, description = read_chrome_trace(text)
    except ValueError as error:
        raise SelectionError(
            f"{path}: {error}. Give it files that drbench run --timeline wrote."
        ) from None
    events = [event for event in events if event.stop_s > event.start_s]
    if not events:
        raise SelectionError(f"{path}: the trace has no steps that take time.")
    busy: dict[int, float] = defaultdict(float)
    for event in events:
        busy[event.rank] += (event.stop_s - event.start_s) * (event.track == "compute")
    rank = max(sorted(busy), key=busy.get)
    own = grouped((event for event in events if event.rank == rank), lambda event: event.track)
    tracks = {track: own[track] for track in TRACKS if track in own}
    stationary = f" S-{description['stationary']}" if description.get("stationary") else ""
    mesh = description.get("mesh") or "1"
    subtitle = [
        shape_text(*(description.get(name) for name in "mnk")),
        f"{description.get('ranks')} ranks" + (f" as {mesh}" if "1" not in mesh.split("x") else ""),
        _transport(description.get("transport") or "auto"),
        description.get("label"),
        description.get("mode"),
    ]
    return Panel(
        f"{description.get('algorithm') or ''}{stationary}",
        description.get("dataflow") or "",
        ", ".join(str(word) for word in subtitle if word),
        rank,
        tracks,
    )


def _transport(text: str) -> str:
    """The description of a transport; empty for one that drbench chose.

    Examples
    --------
    >>> _transport("throttled:0.115,20"), _transport("auto"), _transport("rma")
    ('links of 0.115 GB/s and 20 µs', '', 'rma')
    """
    if text == "auto":
        return ""
    return re.sub("^throttled:(.*),(.*)$", r"links of \1 GB/s and \2 µs", text)


def read(paths: Sequence[str]) -> list[Panel]:
    """A panel for each file; the dataflow is in a name only where the algorithm does not tell the
    panels apart."""
    panels = [
        panel(str(path), Path(path).read_text(encoding="utf-8", errors="replace")) for path in paths
    ]
    if 1 < len(panels) == len({p.name for p in panels}):
        return panels
    return [p._replace(name=f"{p.name} {p.dataflow}".strip()) for p in panels]


def make(panels: Sequence[Panel], options: Options) -> Made:
    """Draw one panel a run, all on one time axis."""
    panels = list(panels)
    longest_s = max(p.stop_s for p in panels)
    unit_s, unit = time_unit(longest_s)
    fastest, *_, slowest = sorted(panels * 2, key=lambda p: p.stop_s)
    finding = f"{fastest.name} ends first; {slowest.name} takes "
    finding += f"{number(slowest.stop_s / fastest.stop_s)} × its time"
    if slowest.stop_s <= 1.01 * fastest.stop_s:
        finding = f"{names([p.name for p in panels])} end at the same time, within 1 %"
    finding *= len(panels) > 1
    notes = [
        "each panel shows the rank that computed for the longest time "
        f"({names([str(p.rank) for p in panels])})"
    ]
    # parts that all runs share appear once
    changed = [
        p.subtitle != before.subtitle
        for before, p in pairwise([panels[0]._replace(subtitle=""), *panels])
    ]
    heads_in = [
        _NAME_IN + described * (_SUBTITLE_IN + _SPACING_IN * (at > 0))
        for at, described in enumerate(changed)
    ]
    heights_in = [_LANE_IN * len(p.tracks) for p in panels]
    page = FigurePage(sum(heads_in) + sum(heights_in) + _BELOW_IN + MARGIN_IN, (), notes, finding)
    top_in = MARGIN_IN
    for p, described, head_in, high_in in zip(panels, changed, heads_in, heights_in):
        if described:
            text, size = fit_text(p.subtitle, FONT_PT, page_in() - 2 * MARGIN_IN)
            at_in = top_in + head_in - _NAME_IN - _SUBTITLE_IN
            named(page.text(MARGIN_IN, at_in, text, size), "")
        wide_in = page_in() - _LEFT_IN - _RIGHT_IN
        text, size = fit_text(p.title, FONT_PT + 0.5, wide_in, True)
        at_in = top_in + head_in - 0.17
        named(page.text(_LEFT_IN, at_in, text, size, weight="bold", color="black"), "")
        axes = page.axes(_LEFT_IN, top_in + head_in, wide_in, high_in)
        named(axes, f"{p.title}\n{p.subtitle}")
        for y, (track, events) in enumerate(p.tracks.items()):
            style = TRACKS[track]
            spans = axes.broken_barh(
                [(e.start_s / unit_s, (e.stop_s - e.start_s) / unit_s) for e in events],
                (y - 0.38, 0.76),
                facecolor=style.color,
                edgecolor=bar_edge(style.color),
                hatch=style.hatch,
                linewidth=0.4,
            )
            named(spans, style.name)
        labels = [TRACKS[track].name for track in p.tracks]
        axes.set_yticks(range(len(labels)), labels, fontsize=FONT_PT - 0.5)
        axes.set_ylim(len(p.tracks) - 0.5, -0.5)
        axes.set_xlim(0, 1.01 * longest_s / unit_s)
        axes.grid(axis="x", **GRID)
        axes.tick_params(left=False, bottom=p is panels[-1], labelbottom=p is panels[-1])
        top_in += head_in + high_in
    axes.set_xlabel(f"time since the repeat began ({unit})")
    return Made(page.picture, notes)


FIGURES = (Figure.listed("timeline", make, (), read),)
