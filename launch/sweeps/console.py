"""Where a sweep speaks, and what ``--dry-run`` prints."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from launch.cases.case import Case
from launch.cases.machine_files import Machine
from launch.cases.sweep_file import Sweep

__all__ = ["dry_run", "progress_console"]


def progress_console(stderr: bool = False) -> Console:
    """Standard output (or error); long lines stay whole where it is not a terminal."""
    out = Console(highlight=False, stderr=stderr, soft_wrap=True)
    return (
        out
        if out.is_terminal
        else Console(
            highlight=False,
            stderr=stderr,
            soft_wrap=True,
            width=100_000,
            file=sys.stderr if stderr else sys.stdout,
        )
    )


def dry_run(
    request,
    sweep: Sweep,
    machine: Machine,
    pairs: list[tuple[str, Case]],
    limit: int,
    console: Console,
) -> int:
    """Print what the sweep would be."""
    from .forecast import show_forecast
    from .sweep import part_of

    nodes = machine.nodes(request.ranks)
    console.print(
        f"{sweep.name}: {sweep.about}; scale {sweep.scale}, machine {machine.name}, launcher "
        f"{' '.join(machine.launcher) or 'mpiexec'}",
        markup=False,
    )
    cores = len(os.sched_getaffinity(0))
    threads = min(cores, request.ranks * (request.threads or max(1, cores // request.ranks)))
    cases = [case for _, case in part_of(pairs, request.part)][: request.max_cases]
    show_forecast(cases, request.ranks, nodes, threads, request.mem_limit, console, limit)
    return 0
