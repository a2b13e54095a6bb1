"""``drbench sweep --jobs slurm``: the job scripts of a sweep."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError

from .slurm import write_sbatch
from .sweep import Request, part_of, plan_cases

__all__ = ["write_jobs"]


def write_jobs(request: Request, parts: int, console: Console) -> int:
    """Write one script a part into the folder of the sweep; says how to submit them."""
    if request.part != (1, 1):
        raise UsageError("--jobs makes the parts itself: use --parts N instead of --part.")
    if request.fresh:
        raise UsageError(
            "--jobs and --fresh: a job that is submitted again would begin anew. Use another --out."
        )
    sweep, machine, pairs = plan_cases(request)
    if request.launcher is None and not machine.launcher:
        machine = machine.with_launcher("srun")
        request = dataclasses.replace(request, launcher="srun")
    folder, here = Path(request.out), os.getcwd()
    for number in range(1, parts + 1):
        stem = sweep.name if parts == 1 else f"{sweep.name}-{number}of{parts}"
        part = (
            request
            if parts == 1
            else dataclasses.replace(
                request, part=(number, parts), out=os.path.join(request.out, f"part-{number}")
            )
        )
        command = [sys.executable, "-m", *part.arguments()]
        path = write_sbatch(
            folder / f"{stem}.sbatch",
            machine,
            request.ranks,
            command,
            here,
            stem,
            about=f"{len(part_of(pairs, (number, parts)))} cases of {sweep.name} on "
            f"{request.ranks} ranks",
        )
        console.print(f"sbatch {path}", markup=False)
    return 0
