"""What the command line prints: tables, the drawing of partitions, bytes and seconds in readable
units."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drbench.measure.record import Record, options_of
from drbench.plan.explain import picture
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS

from .units import format_bytes, seconds

__all__ = ["console", "drawing", "show_record"]

_COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "red", "yellow", "bright_black")
#: Options that the line about the algorithm has in words of their own.
_TOLD = ("stationary", "dataflow", "mesh", "schedule", "ir_max_compute", "ir_max_comm")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def console() -> Console:
    """Standard output; wide enough for tables when it is not a terminal."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=140)


def lowered_words(record: Record) -> str:
    """How the program was lowered; empty if it was not.

    Examples
    --------
    >>> lowered_words(
    ...     Record(
    ...         mode="measured",
    ...         status="failed",
    ...         reason="-",
    ...         schedule="cost",
    ...         ir_max_compute=1,
    ...         ir_max_comm=2,
    ...     )
    ... )
    'lowered (cost, at most 1 computes and 2 transfers at a time)'
    """
    if record.schedule in (None, "direct"):
        return ""
    return (
        f"lowered ({record.schedule}, at most {record.ir_max_compute} computes and "
        f"{record.ir_max_comm} transfers at a time)"
    )


def show_record(record: Record) -> None:
    """The short table ``drbench run`` ends with."""
    out = console()
    table = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    add = lambda name, value: table.add_row(name, str(value))
    add(
        "problem",
        f"C {record.m}x{record.n} = A {record.m}x{record.k} · B {record.k}x{record.n}, "
        f"{record.dtype}, {record.fill} fill",
    )
    add("partitions", f"A {record.a}   B {record.b}   C {record.c}")
    kind = [
        record.algorithm,
        record.stationary and f"Stationary {record.stationary}",
        record.dataflow,
        record.mesh and f"mesh {record.mesh}",
    ]
    kind += [f"{name} {value}" for name, value in options_of(record).items() if name not in _TOLD]
    kind += [f"prefetch {record.prefetch}" if record.prefetch is not None else ""]
    kind.append(lowered_words(record))
    add("algorithm", ", ".join(word for word in kind if word))
    threads = f" x {record.threads} threads" if record.threads else ""
    add("ranks", f"{record.ranks}{threads} on {record.nodes} node(s), transport {record.transport}")
    if record.ranks_per_device is not None:
        add(
            "device",
            f"{record.device}, {record.ranks_per_device} rank(s) each, {record.compute}, at most "
            f"{record.max_gemms} products and {record.max_accumulates} "
            f"accumulates at a time, collectives {record.collectives}",
        )
    if record.best_s is not None:
        add(
            "time",
            f"best {seconds(record.best_s)}, median {seconds(record.median_s)} of {record.iters}",
        )
        add("rate", f"{record.gflops:.4g} GFLOP/s")
        if record.percent_of_roof is not None:
            add(
                "roof",
                f"{record.percent_of_roof:.1f} % of {record.roof_gflops:.4g} GFLOP/s without "
                "communication "
                f"({record.percent_of_roof_min:.1f}-{record.percent_of_roof_max:.1f} %)",
            )
        if record.effective_communication_s is not None:
            efficiency = (
                ""
                if record.overlap_efficiency is None
                else f", overlap efficiency {record.overlap_efficiency:.2f} (collective: 0)"
            )
            add(
                "overlap",
                f"effective communication {seconds(record.effective_communication_s)} beyond one "
                f"local product{efficiency}",
            )
        counts = {name: getattr(record, name) for name in COUNTERS}
        add(
            "moved",
            ", ".join(
                f"{name.removesuffix('_bytes')} {format_bytes(count)}"
                for name, count in counts.items()
                if count
            )
            or ("nothing" if any(count is not None for count in counts.values()) else "not told"),
        )
        if record.phase_gemm_s is not None:
            add(
                "mean phases",
                ", ".join(
                    f"{name.replace('_', ' ')} {seconds(getattr(record, f'phase_{name}_s'))}"
                    for name in (
                        "get_wait",
                        "collective_wait",
                        "gemm",
                        "accumulate",
                        "fence",
                        "pack",
                    )
                    if getattr(record, f"phase_{name}_s") or name == "gemm"
                ),
            )
        pool = f"pool {format_bytes(record.pool_bytes)}, " if record.pool_bytes is not None else ""
        if record.peak_rss_bytes is not None:
            on_device = (
                f", on the device {format_bytes(record.peak_device_bytes)}"
                if record.peak_device_bytes is not None
                else ""
            )
            add(
                "memory",
                f"{pool}resident {format_bytes(record.peak_rss_bytes)}{on_device} (largest rank)",
            )
        add(
            "library",
            f"{record.blas} ({record.blas_kernel or 'unknown'} kernels), "
            f"{record.mpi or 'MPI unknown'}",
        )
    result = {None: "not checked", 0.0: "exact"}.get(
        record.error, f"error {record.error:.3g}" if record.error else ""
    )
    verdict = (
        Text(f"{record.status}: {record.reason}", "red")
        if record.reason
        else Text(f"ok, {result}", "green")
    )
    table.add_row("result", verdict)
    out.print(table)


def drawing(problem: Problem) -> Table:
    """The three matrices side by side: each point shows the rank that owns it in replica 0."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    longest = max(problem.m, problem.n, problem.k)
    cells = []
    for operand in (problem.a, problem.b, problem.c):
        p = operand.partition
        rows, cols = p.shape
        replicas = (
            f", {p.replicas} replicas of {p.ranks_per_replica} ranks" if p.replicas > 1 else ""
        )
        table.add_column(
            f"{operand.name} {rows}x{cols}\n{p.text}{replicas}\ntiles "
            f"{p.tile_shape[0]}x{p.tile_shape[1]}, grid {p.grid}"
        )
        height, width = max(2, round(12 * rows / longest)), max(4, round(30 * cols / longest))
        cells.append(_raster(picture(p, height, width)))
    table.add_row(*cells)
    return table


def _raster(owners: list[list[int]]) -> Text:
    text = Text()
    for y, row in enumerate(owners):
        if y:
            text.append("\n")
        for owner in row:
            text.append(_DIGITS[owner % len(_DIGITS)], _COLOURS[owner % len(_COLOURS)])
    return text
