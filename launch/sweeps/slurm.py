"""``drbench sweep --jobs slurm``: job scripts from a template.

Every value is quoted for the shell or refused; none is ever joined to a line unquoted.
"""

import dataclasses
import math
import os
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError
from launch.cases.case import Case
from launch.cases.launchers import Launcher
from launch.host.files import write_whole

from .estimate import estimated
from .plan import SweepRequest, part_of, plan_cases

_TEMPLATES = Path(__file__).parents[1] / "data" / "templates"


def comment(value) -> str:
    """A text that cannot leave its comment."""
    text = str(value)
    if not text.isprintable():
        raise UsageError(
            f"{text!r} cannot go into a job script: newlines and control characters are refused."
        )
    return text


def quote(value) -> str:
    """A word for the shell; refuses what cannot be one line.

    Examples
    --------
    >>> quote("a; rm -rf $HOME"), quote(4)
    ("'a; rm -rf $HOME'", '4')
    """
    return shlex.quote(comment(value))


def sbatch_script(
    launcher: Launcher,
    ranks: int,
    command: list[str],
    folder: str,
    job: str,
    about: str,
    script: str,
    asked: dict[str, str] | None = None,
) -> str:
    """The text of a job script that runs ``command`` in ``folder``. ``asked`` are options of sbatch
    that the machine file goes before.

    Raises
    ------
    UsageError
        If a value cannot be quoted.
    """
    import jinja2

    if not re.fullmatch(r"[A-Za-z0-9_-]+", job, re.ASCII):
        raise UsageError(f"job name {job!r}: only letters, digits, - and _.")
    place = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        keep_trailing_newline=True,
    )
    place.filters.update(quote=quote, comment=comment)
    text = place.get_template("sweep.sbatch.j2").render(
        about=about,
        script=script,
        job=job,
        nodes=launcher.nodes(ranks),
        ranks=ranks,
        tasks_per_node=min(ranks, launcher.ranks_per_node or 0),
        launcher=launcher,
        options=(asked or {}) | launcher.sbatch,
        folder=folder,
        command=command,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def time_limit(seconds: float) -> str:
    """A time limit as sbatch takes it: three times what was estimated, since neither communication
    nor the speed of the node is known, and ten minutes, in whole minutes.

    Examples
    --------
    >>> time_limit(0), time_limit(3600), time_limit(10 * 3600)
    ('0-00:10:00', '0-03:10:00', '1-06:10:00')
    """
    minutes = 10 + math.ceil(3 * seconds / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def _asked(request: SweepRequest, launcher: Launcher, cases: list[Case]) -> dict[str, str]:
    """What a job needs: cores of each rank, and time, as far as they are known here."""
    ranks, options = min(request.ranks, launcher.ranks_per_node or request.ranks), {}
    threads = dict(request.override).get("threads", "")
    threads = int(threads) if threads.isdecimal() else None
    if threads is None and launcher.cores_per_node:
        threads = max(1, launcher.cores_per_node // ranks)
    if threads:
        options["cpus-per-task"] = str(threads)
    if "time" not in launcher.sbatch and all(case.backend == "numpy" for case in cases):
        options["time"] = time_limit(estimated(cases, request.ranks).time_s)
    return options


def write_jobs(request: SweepRequest, parts: int, console: Console) -> int:
    """Write one script a part into the folder of the sweep; says how to submit them."""
    plan = plan_cases(request)
    sweep, launcher, pairs = plan.sweep, plan.launcher, plan.pairs
    if len({*plan.ranks_of.values()}) > 1:
        raise UsageError(
            f"--jobs: {sweep.name} runs on several numbers of ranks, and a job has one. Use -o "
            "ranks=N, a job each."
        )
    if request.launcher is None:
        launcher = launcher.with_launcher("srun")
        request = dataclasses.replace(request, launcher="srun")
    folder = Path(request.out)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, parts + 1):
        stem = sweep.name if parts == 1 else f"{sweep.name}-{number}of{parts}"
        part = request
        if parts > 1:
            out = os.path.join(request.out, f"part-{number}")
            part = dataclasses.replace(request, part=(number, parts), out=out)
        command = [sys.executable, "-m", *part.arguments()]
        path = folder / f"{stem}.sbatch"
        cases = [case for _, case in part_of(pairs, (number, parts))]
        about = f"{len(cases)} cases of {sweep.name} on {request.ranks} ranks"
        asked = _asked(request, launcher, cases)
        text = sbatch_script(
            launcher, request.ranks, command, os.getcwd(), stem, about, path.name, asked
        )
        write_whole(path, text)
        console.print(f"sbatch {path}", markup=False)
    return 0
