"""``drbench sweep --jobs slurm``: job scripts from a template.

Every value is quoted for the shell or refused; no line contains an unquoted value.
"""

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError
from drbench.launch.cases.launchers import Launcher
from drbench.launch.host.files import write_whole
from drbench.launch.host.python import PYTHON, importable

from .estimate import estimate_time
from .plan import SweepRequest, plan_cases
from .rounds import Experiment

_TEMPLATE = Path(__file__).parents[1] / "data/templates/sweep.sbatch.j2"


def comment(value) -> str:
    """A text that is safe in a comment of one line."""
    text = str(value)
    if not text.isprintable():
        raise UsageError(
            f"{text!r} cannot be used in a job script: newlines and control characters are refused."
        )
    return text


def quote(value) -> str:
    """A word quoted for the shell; an error for more than one line.

    Examples
    --------
    >>> quote("a; rm -rf $HOME"), quote(4)
    ("'a; rm -rf $HOME'", '4')
    """
    return shlex.quote(comment(value))


def sbatch_script(launcher: Launcher, ranks: int, options: dict[str, str], **words) -> str:
    """The text of a job script that runs a ``command`` in a ``folder``, with options of sbatch;
    ``words`` fill the template.

    Raises
    ------
    UsageError
        If a value cannot be quoted.
    """
    import jinja2

    template = jinja2.Template(
        _TEMPLATE.read_text("utf-8"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    text = template.render(
        words,
        quote=quote,
        comment=comment,
        nodes=launcher.nodes(ranks),
        ranks=ranks,
        tasks_per_node=min(ranks, launcher.ranks_per_node or 0),
        launcher=launcher,
        options=options,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def time_limit(seconds: float) -> str:
    """A time limit for sbatch: three times the estimate, since communication and the speed of the
    node are unknown, plus ten minutes, in whole minutes.

    Examples
    --------
    >>> time_limit(0), time_limit(3600), time_limit(10 * 3600)
    ('0-00:10:00', '0-03:10:00', '1-06:10:00')
    """
    minutes = 10 + math.ceil(3 * seconds / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def _options(
    request: SweepRequest,
    launcher: Launcher,
    asked: Sequence[Experiment],
    rate: Callable[[], float],
) -> dict[str, str]:
    """The options of a Slurm job, or of an array of a job for each experiment: that it resumes
    after its node failed, in the same log, and ends cleanly before its time is over; cores of each
    rank, and time, as far as known. Those of the machine file override them."""
    options = {"requeue": "", "open-mode": "append", "signal": "B:TERM@60"}
    every = [job.case for experiment in asked for job in experiment.jobs]
    threads = max((case.threads or 0 for case in every), default=0)
    cores = launcher.cores_per_node
    if not threads and cores:
        ranks = min(request.ranks, launcher.ranks_per_node or request.ranks)
        threads = max(1, cores // ranks)
    if threads:
        options["cpus-per-task"] = str(threads)
    if "time" not in launcher.sbatch and all(case.backend == "numpy" for case in every):
        longest_s = max(estimate_time(of.jobs, of.rounds, rate()).time_s for of in asked)
        options["time"] = time_limit(longest_s)
    return options | launcher.sbatch


def write_jobs(request: SweepRequest, parts: int, array: bool, console: Console) -> int:
    """Write a script per part, or that of a job array with a task per part, into the folder of the
    sweep, and print how to submit them."""
    if request.launcher is None:
        request = replace(request, launcher="srun")
    folder, whole = Path(request.out), plan_cases(request)
    rate = cache(lambda: estimate_time([]).core_flops_per_s)  # one for all scripts, if needed
    plans = [whole.part(number, parts) for number in range(1, parts + 1)]
    for number, plan in enumerate([whole] if array else plans, 1):
        part, ending = request, ""
        if parts > 1 or array:
            out, ending = os.path.join(request.out, f"part-{number}"), f"-{number}of{parts}"
            part = replace(request, part=f"{number}/{parts}", out=out)
        name, launcher, ranks = plan.sweep.name, plan.launcher, request.ranks
        launcher = replace(launcher, environment=importable(launcher.environment))
        if len(plan.counts) > 1:
            raise UsageError(
                f"--jobs: {name} runs on several numbers of ranks, but a job has one. Use -o "
                "ranks=N, one job each."
            )
        asked = [of.experiment(of.mine) for of in (plans if array else [plan])]
        options, words = _options(part, launcher, asked, rate), part.arguments()
        if array:
            options, ending = {"array": f"1-{parts}"} | options, ""
            words = [word for word in request.arguments() if word != f"--out={request.out}"]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}{ending}.sbatch"
        text = sbatch_script(
            launcher,
            ranks,
            options,
            command=[*PYTHON, "-m", *words],
            parts=parts * array,
            out=request.out,
            folder=os.getcwd(),
            job=path.stem,
            description=f"{len(plan.mine)} cases of {name} on {ranks} ranks",
            script=path.name,
        )
        write_whole(path, text)
        console.print(f"sbatch {shlex.quote(str(path))}")
    return 0
