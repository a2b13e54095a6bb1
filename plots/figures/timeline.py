"""Timelines: when one rank computed and when each direction of the mesh was busy, from the traces
of real runs (MeshSlice, Figure 4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from drbench.common import StepTime
from drbench.measure.timeline import read_chrome_trace
from plots.draw.page import (
    GREY,
    MARGIN_IN,
    PAGE_IN,
    TITLE_IN,
    Page,
    bar_edge,
    patch_handle,
    time_unit,
)
from plots.draw.style import FONT_PT, Fill
from plots.registry import Figure, Made
from plots.select.cases import Options, SelectionError, elided

#: Tracks from top to bottom: name in the trace -> label and look.
TRACKS = {
    "compute": Fill("compute", "#0072B2"),
    "column": Fill("inter-row (column)", "#E69F00", "////"),
    "row": Fill("inter-column (row)", "#D55E00", "xxxx"),
    "one-sided": Fill("one-sided", "#CC79A7", "...."),
    "fence": Fill("fence", "#56B4E9", "----"),
}
_LANE_IN, _BELOW_IN, _LEFT_IN, _RIGHT_IN = 0.2, 0.36, 1.15, 0.12


class Panel(NamedTuple):
    """One run: what it was, and its tracks on the rank that is shown."""

    name: str
    told: str
    tracks: dict[str, list[StepTime]]


def panel(path: str, text: str) -> Panel:
    """Choose what a trace shows: the rank that computed for the longest time, on a tie the first.

    Raises
    ------
    SelectionError
        If it is no trace, or an empty one.
    """
    try:
        events, about = read_chrome_trace(text)
    except ValueError as error:
        raise SelectionError(
            f"{path}: {error}. Give it files that drbench run --timeline wrote."
        ) from None
    if not events:
        raise SelectionError(f"{path}: the trace has no steps.")
    busy: dict[int, float] = {}
    for event in events:
        busy[event.rank] = busy.get(event.rank, 0.0) + (
            event.stop_s - event.start_s if event.track == "compute" else 0.0
        )
    rank = max(sorted(busy), key=busy.get)
    tracks = {track: [e for e in events if e.rank == rank and e.track == track] for track in TRACKS}
    words = [
        about.get("algorithm"),
        about.get("dataflow"),
        f"S-{about['stationary']}" if about.get("stationary") else None,
    ]
    told = [
        f"m={about.get('m')} n={about.get('n')} k={about.get('k')}",
        f"{about.get('ranks')} ranks" + (f" as {about['mesh']}" if about.get("mesh") else ""),
        str(about.get("transport")),
        str(about.get("machine")),
        f"rank {rank}",
    ]
    return Panel(
        " ".join(str(word) for word in words if word),
        ", ".join(told),
        {track: found for track, found in tracks.items() if found},
    )


def read(paths: Sequence[str]) -> list[Panel]:
    """A panel for each file."""
    return [
        panel(str(path), Path(path).read_text(encoding="utf-8", errors="replace")) for path in paths
    ]


def make(panels: Sequence[Panel], options: Options) -> Made:
    """Draw one panel a run, all on one time axis."""
    longest = max(e.stop_s for p in panels for found in p.tracks.values() for e in found)
    one, unit = time_unit(longest)
    shown = [track for track in TRACKS if any(track in p.tracks for p in panels)]
    handles = [patch_handle(TRACKS[track]) for track in shown]
    heights = [TITLE_IN + _LANE_IN * len(p.tracks) + _BELOW_IN for p in panels]
    notes = [
        "each panel shows the rank that computed for the longest time, in one repeat of its own"
    ]
    page = Page(sum(heights) + MARGIN_IN, handles, notes)
    top = MARGIN_IN
    for p, height in zip(panels, heights):
        title, high_in = (elided(p.name, 80), p.told), _LANE_IN * len(p.tracks)
        axes = page.panel(title, 0, top, PAGE_IN, high_in, (_LEFT_IN, _RIGHT_IN))
        for y, (track, events) in enumerate(p.tracks.items()):
            look = TRACKS[track]
            axes.broken_barh(
                [(e.start_s / one, (e.stop_s - e.start_s) / one) for e in events],
                (y - 0.38, 0.76),
                facecolor=look.color,
                edgecolor=bar_edge(look.color),
                hatch=look.hatch,
                linewidth=0.4,
            )
        axes.set_yticks(
            range(len(p.tracks)),
            [TRACKS[track].name for track in p.tracks],
            fontsize=FONT_PT - 0.5,
        )
        axes.set_ylim(len(p.tracks) - 0.5, -0.5)
        axes.set_xlim(0, 1.01 * longest / one)
        axes.tick_params(left=False)
        axes.set_xlabel(
            f"time since the repeat began ({unit})",
            fontsize=FONT_PT - 0.5,
            color=GREY,
            labelpad=1,
        )
        top += height
    return Made(page.picture, notes)


FIGURES = (
    Figure(
        "timeline",
        "when a rank computed and communicated, from the files of drbench run --timeline",
        make,
        (),
        read,
    ),
)
