"""``drbench sweep --jobs slurm``: job scripts from a template.

Every value is quoted for the shell or refused; none is ever joined to a line unquoted.
"""

import dataclasses
import os
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console

from drbench.errors import MissingError, UsageError
from launch.cases.launchers import Launcher
from launch.host.files import write_whole

from .sweep import SweepRequest, part_of, plan_cases

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
) -> str:
    """The text of a job script that runs ``command`` in ``folder``.

    Raises
    ------
    UsageError
        If a value cannot be quoted.
    MissingError
        If jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MissingError(
            "--jobs slurm needs jinja2. Install it with: pip install jinja2"
        ) from None
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
        folder=folder,
        command=command,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def write_jobs(request: SweepRequest, parts: int, console: Console) -> int:
    """Write one script a part into the folder of the sweep; says how to submit them."""
    if request.part != (1, 1):
        raise UsageError("--jobs makes the parts itself: use --parts N instead of --part.")
    if request.fresh:
        raise UsageError(
            "--jobs and --fresh: a job that is submitted again would begin anew. Use another --out."
        )
    sweep, launcher, pairs = plan_cases(request)
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
        count = len(part_of(pairs, (number, parts)))
        about = f"{count} cases of {sweep.name} on {request.ranks} ranks"
        text = sbatch_script(launcher, request.ranks, command, os.getcwd(), stem, about, path.name)
        write_whole(path, text)
        console.print(f"sbatch {path}", markup=False)
    return 0
