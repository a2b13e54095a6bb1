"""MeshSlice's figures: FLOP utilization of a transformer's FC layers by algorithm, chips, mesh and
slice count, and where communication goes.

One panel a model. Drawn from the rows of ``drbench llm-study``; rows of mode ``published`` are
marks without a line.
"""

from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots.draw.page import (
    GREY,
    MARGIN_IN,
    MARKER_PT,
    PAGE_IN,
    TITLE_IN,
    Page,
    line_handle,
    line_look,
    patch_handle,
)
from plots.draw.style import RC, SMALL_PT, LineStyle, style_of
from plots.registry import Figure, Made
from plots.select.cases import Options
from plots.select.llm_rows import ALL, LlmRow, read_rows
from plots.select.selection import SelectionError

_HIGH_IN, _LEFT_IN, _BELOW_IN = 2.1, 0.52, 0.46
#: In the order of the paper's legend.
_ORDER = (
    "meshslice",
    "wang",
    "wang-free",
    "collective",
    "cannon",
    "summa",
    "tensor_parallel_1d",
    "fsdp",
)
#: Parts of the communication time, from the bottom of a bar.
_PARTS = (
    ("transfer_s", "transfer", "#0072B2", ""),
    ("sync_s", "synchronisation", "#E69F00", "////"),
    ("launch_s", "launch", "#CC79A7", "xxxx"),
)
_SHORT = {
    "meshslice": "MeshSlice",
    "wang": "Wang",
    "wang-free": "Wang, free loop count",
    "collective": "Collective",
    "cannon": "Cannon",
    "summa": "SUMMA",
    "tensor_parallel_1d": "1-D TP",
    "fsdp": "FSDP",
}
_PRODUCTS = {"forward": "fwd", "backward data": "data", "backward weight": "weight"}


def chosen(
    rows: Sequence[LlmRow], study: str, keep: Callable[[LlmRow], bool]
) -> dict[str, list[LlmRow]]:
    """The rows of a study by model, in the order they come in.

    Raises
    ------
    SelectionError
        If there are none.
    """
    found: dict[str, list[LlmRow]] = {}
    for row in rows:
        if row.study == study and keep(row):
            found.setdefault(row.model, []).append(row)
    if not any(row.mode == "simulated" for kept in found.values() for row in kept):
        raise SelectionError(
            f"no rows of the study {study} in {len(rows)}. Make some with drbench llm-study "
            f"{study}."
        )
    return found


def _page(
    models: dict[str, list[LlmRow]], handles: Sequence, notes: Sequence[str], across: bool = True
) -> tuple[Page, list]:
    """A page with axes for each model: side by side, or one below another."""
    high_in, count = TITLE_IN + _HIGH_IN + _BELOW_IN, len(models)
    columns = min(2, count) if across else 1
    page, wide_in, out = Page(-(-count // columns) * high_in, handles, notes), PAGE_IN / columns, []
    for index, (model, rows) in enumerate(models.items()):
        left, top = index % columns * wide_in, index // columns * high_in
        first = next(row for row in rows if row.mode == "simulated")
        page.title(
            left + MARGIN_IN,
            top,
            wide_in - 2 * MARGIN_IN,
            model,
            f"{_told(rows)}, {first.machine}, {first.mode}",
        )
        axes = page.axes(left + _LEFT_IN, top + TITLE_IN, wide_in - _LEFT_IN - 0.12, _HIGH_IN)
        axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
        out.append((axes, rows))
    return page, out


def _told(rows: list[LlmRow]) -> str:
    chips, batches = sorted({row.chips for row in rows}), sorted({row.batch for row in rows})
    ends = lambda values: str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}"
    return f"{ends(chips)} chips, batch {ends(batches)} × {rows[0].seq}"


def _algorithms(models: dict[str, list[LlmRow]]) -> list[str]:
    found = {row.algorithm for rows in models.values() for row in rows}
    return [name for name in _ORDER if name in found] + sorted(found - set(_ORDER))


def _style(algorithm: str) -> LineStyle:
    return (
        style_of("wang")._replace(color="#E8A9CD", marker="^", dashes=(0, (1.2, 1.2)))
        if algorithm == "wang-free"
        else style_of(algorithm)
    )


def _name(algorithm: str) -> str:
    return _SHORT.get(algorithm, algorithm)


def _scaling(rows: Sequence[LlmRow], study: str, told: str) -> Made:
    models = chosen(rows, study, lambda row: row.product == ALL)
    names = _algorithms(models)
    with matplotlib.rc_context(RC):
        handles, notes = [line_handle(_name(name), _style(name)) for name in names], [told]
        if any(row.mode == "published" for kept in models.values() for row in kept):
            handles.append(
                Line2D(
                    [],
                    [],
                    linestyle="",
                    marker="*",
                    color="black",
                    markersize=MARKER_PT + 2,
                    label="the paper: MeshSlice, Wang",
                )
            )
        page, panels = _page(models, handles, notes)
        for axes, kept in panels:
            ranks = sorted({row.chips for row in kept})
            for name in reversed(names):
                at = {
                    row.chips: row.utilization_percent
                    for row in kept
                    if row.algorithm == name and row.mode == "simulated"
                }
                some = sorted(at)
                axes.plot(
                    some,
                    [at[each] for each in some],
                    zorder=3,
                    clip_on=False,
                    **line_look(_style(name)),
                )
            for row in kept:
                if row.mode == "published":
                    axes.plot(
                        [row.chips],
                        [row.utilization_percent],
                        linestyle="",
                        marker="*",
                        markersize=MARKER_PT + 2,
                        color="black",
                        markerfacecolor=_style(row.algorithm).color,
                        markeredgewidth=0.6,
                        zorder=4,
                        clip_on=False,
                    )
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(ranks))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
            axes.set_xlim(ranks[0] / 1.12, ranks[-1] * 1.12)
            axes.set_xlabel("chips")
            axes.set_ylim(0, 100)
            axes.set_ylabel("FLOP utilization (%)")
    return Made(page.picture, [])


def weak(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 9: each algorithm at its own best mesh, the batch half the chips."""
    return _scaling(rows, "weak", "every algorithm at its own best mesh; Cannon needs a square one")


def strong(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 12: the batch stays."""
    return _scaling(
        rows,
        "strong",
        "every algorithm at its own best mesh; Cannon needs a square one; FSDP's batch would "
        "have to grow",
    )


def breakdown(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 10: communication of the busiest link, overlapped or not, over the time of the
    products."""
    most = max((row.chips for row in rows if row.study == "weak"), default=0)
    models = chosen(
        rows,
        "weak",
        lambda row: row.product == ALL and row.chips == most and row.mode == "simulated",
    )
    notes = [
        "communication of a chip's busiest link, overlapped or not, relative to the time of its "
        "products; bars above the axis end at the number printed"
    ]
    with matplotlib.rc_context(RC):
        page, panels = _page(
            models, [patch_handle(name, color, hatch) for _, name, color, hatch in _PARTS], notes
        )
        for axes, kept in panels:
            kept = sorted(
                kept,
                key=lambda row: (
                    _ORDER.index(row.algorithm) if row.algorithm in _ORDER else len(_ORDER)
                ),
            )
            totals = [
                sum(getattr(row, part) for part, *_ in _PARTS) / row.compute_s for row in kept
            ]
            top = min(max(totals), 6.0) * 1.12
            for x, (row, total) in enumerate(zip(kept, totals)):
                at = 0.0
                for part, _, color, hatch in _PARTS:
                    height = getattr(row, part) / row.compute_s
                    axes.bar(
                        x,
                        min(height, max(top - at, 0)),
                        0.7,
                        bottom=at,
                        color=color,
                        hatch=hatch,
                        edgecolor="white",
                        linewidth=0.4,
                        zorder=2,
                    )
                    at += height
                axes.annotate(
                    f"{total:.2f}",
                    (x, min(total, top)),
                    (0, 1.5),
                    "data",
                    "offset points",
                    size=SMALL_PT,
                    color=GREY,
                    ha="center",
                    bbox={"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none"},
                    zorder=4,
                )
            axes.axhline(1, color="#888888", linewidth=0.8, linestyle=(0, (1, 2)), zorder=3)
            axes.set_xticks(
                range(len(kept)),
                [_name(row.algorithm).replace(" ", "\n", 2) for row in kept],
                size=SMALL_PT - 1,
            )
            axes.tick_params(axis="x", length=0)
            axes.set_ylim(0, top)
            axes.set_ylabel("communication over computation")
    return Made(page.picture, [])


def shapes(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 11: the distinct products of each model."""
    most = max((row.chips for row in rows if row.study == "weak"), default=0)
    models = chosen(
        rows,
        "weak",
        lambda row: row.product != ALL and row.chips == most and row.mode == "simulated",
    )
    names = _algorithms(models)
    notes = [
        "one group a product of different m × n × k, named after the first that has it; each "
        "algorithm on its best mesh for the whole model"
    ]
    with matplotlib.rc_context(RC):
        page, panels = _page(
            models,
            [patch_handle(_name(name), _style(name).color) for name in names],
            notes,
            across=False,
        )
        for axes, kept in panels:
            seen: dict[tuple, LlmRow] = {}
            for row in kept:
                seen.setdefault((row.m, row.n, row.k), row)
            for group, (_shape, first) in enumerate(seen.items()):
                for place, name in enumerate(names):
                    here = [
                        row
                        for row in kept
                        if row.algorithm == name
                        and (row.layer, row.product) == (first.layer, first.product)
                    ]
                    if here:
                        axes.bar(
                            group * (len(names) + 1) + place,
                            here[0].utilization_percent,
                            0.86,
                            color=_style(name).color,
                            edgecolor="white",
                            linewidth=0.4,
                            zorder=2,
                        )
            axes.set_xticks(
                [group * (len(names) + 1) + (len(names) - 1) / 2 for group in range(len(seen))],
                [
                    f"{row.layer} {_PRODUCTS[row.product]}\n{m} ×\n{n} × {k}"
                    for (m, n, k), row in seen.items()
                ],
                size=SMALL_PT - 0.5,
            )
            axes.tick_params(axis="x", length=0)
            axes.set_ylim(0, 100)
            axes.set_ylabel("FLOP utilization (%)")
    return Made(page.picture, [])


def _modelled(
    rows: Sequence[LlmRow], study: str, tick: Callable[[LlmRow], str], name: str, notes: list[str]
) -> Made:
    models = chosen(rows, study, lambda row: row.product == ALL and row.estimated_s is not None)
    looks = (("simulated", style_of("meshslice")), ("cost model", style_of("collective")))
    with matplotlib.rc_context(RC):
        page, panels = _page(models, [line_handle(told, look) for told, look in looks], notes)
        for axes, kept in panels:
            places = range(len(kept))
            for values, (_, look) in zip(
                (
                    [row.utilization_percent for row in kept],
                    [row.utilization_percent * row.seconds / row.estimated_s for row in kept],
                ),
                looks,
            ):
                axes.plot(places, values, zorder=3, clip_on=False, **line_look(look))
            axes.set_xticks(places, [tick(row) for row in kept], size=SMALL_PT)
            axes.set_xlabel(name)
            axes.set_ylim(0, 100)
            axes.set_ylabel("FLOP utilization (%)")
    return Made(page.picture, [])


def meshes(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 13: the autotuner's cost model against the simulation, by mesh."""
    return _modelled(
        rows,
        "meshes",
        lambda row: row.mesh,
        "mesh, rows × columns",
        ["MeshSlice; on each mesh with the slice counts the cost model chooses there"],
    )


def slices(rows: Sequence[LlmRow], options: Options) -> Made:
    """Figure 14: the cost model against the simulation, by slice count."""
    return _modelled(
        rows,
        "slices",
        lambda row: row.slices.split("-")[0],
        "slices S",
        ["MeshSlice on 32 × 8, the same slice count in all layers"],
    )


FIGURES = tuple(
    Figure(f"llm-{name}", summary, make, read=read_rows)
    for name, summary, make in (
        (
            "weak",
            "MeshSlice, Figure 9: utilization of a transformer's FC layers as chips and batch grow",
            weak,
        ),
        ("strong", "MeshSlice, Figure 12: the same at one batch", strong),
        (
            "breakdown",
            "MeshSlice, Figure 10: launch, synchronisation and transfer over computation",
            breakdown,
        ),
        ("shapes", "MeshSlice, Figure 11: utilization by product", shapes),
        ("meshes", "MeshSlice, Figure 13: cost model and simulation by mesh", meshes),
        ("slices", "MeshSlice, Figure 14: cost model and simulation by slice count", slices),
    )
)
