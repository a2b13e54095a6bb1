"""``drbench sweep``: run a plan and summarise its records."""

import csv
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from drbench.errors import EXIT_CODES, MissingError, UsageError
from drbench.launch.cases.case import GOOD
from drbench.launch.cases.peaks import read_peaks
from drbench.launch.libraries import LIBRARIES, get_library
from drbench.measure.record import HEADER, Record
from drbench.texts import plural

from .experiment import Runner, run_experiment
from .plan import SweepPlan, SweepRequest
from .rounds import Job
from .supervisor import Settings, supervised

INTERRUPTED = 130


def run_sweep(
    plan: SweepPlan,
    request: SweepRequest,
    console: Console,
    run: Runner | None,
    show: Callable[[dict], int | None],
    given: int | None = None,
    supervise: Callable | None = None,
    keep: Callable[[Record], None] | None = None,
) -> int:
    """Run the cases without a row, and return the exit code. With ``stream`` each record is written
    to standard output, those of earlier runs first. ``run`` runs cases (None: on ranks, those that
    ``supervise`` starts or the ``given`` number of them), and ``show`` gets the records of each
    case by round at the end, and may return an exit code. Without ``out`` nothing is kept but what
    ``keep`` does with the record of each case, as soon as it is finished.

    Returns
    -------
    int
        0 if every case is ok or unsupported, else the largest of the table; 130 if interrupted.
    """
    sweep, mine, on_ranks = plan.sweep, plan.mine, plan.on_ranks
    print_line = console.print
    if given and run is None:
        mine, left = jobs_on(given, mine)
        on_ranks = plural(given, "rank")
        if left:
            print_line(f"left for another launch: {left}")
    if not plan.launcher.words:
        names, simulate = {job.case.algorithm for job in mine}, request.simulate
        wanted = [name for name in LIBRARIES if name in names]
        absent = [name for name in wanted if simulate or not get_library(name).available().ok]
        if absent and simulate:
            print_line(f"Not simulated, they are libraries: {', '.join(absent)}")
        elif absent:
            print_line(f"Not installed: {', '.join(absent)} (drbench list libraries NAME says how)")
        mine = [job for job in mine if job.case.algorithm not in absent]
        if not mine:
            raise MissingError(
                f"no case of {sweep.name} is left to run. See drbench list libraries."
            )
    if run is None:
        peaks = read_peaks(request.peak, sweep.cases, request.launcher)
        limits = request.timeout or None, request.mem_limit
        run = partial(
            supervise or supervised, Settings(plan.launcher, *limits, request.environ, peaks)
        )
    if request.stream:
        _stream(HEADER)
        keep = lambda record: _stream(record.to_row())
    experiment = plan.experiment(mine, request.simulate)
    here = nullcontext(request.out) if request.out else TemporaryDirectory(prefix="drbench-")
    try:
        with here as out:
            runs = run_experiment(
                experiment,
                out,
                run,
                console,
                names=[job.name for job in plan.jobs],
                most=request.max_cases,
                on_record=keep,
                description=f"{sweep.name}: {plural(len(mine), 'case')} on {on_ranks}",
                fresh=request.fresh,
                retry=request.retry,
            )
    except KeyboardInterrupt:
        if not request.out:
            raise
        again = "the same command" if given else shlex.join(request.arguments())
        print_line(f"interrupted; finished cases are kept. Resume: {again}")
        return INTERRUPTED
    if left := sum(not experiment.is_finished(run) for run in runs.values()):
        print_line(f"left: {plural(left, 'case')} (--max-cases). The same command resumes")
    records = [record for run in runs.values() for record in run.values()]
    code = show(runs) if records else None
    if request.out:
        print_line(f"records: {Path(request.out) / 'records.csv'}")
    return code or choose_exit_code(records)


def jobs_on(given: int, jobs: list[Job]) -> tuple[list[Job], str]:
    """The jobs that ranks of a launcher can run: of their number, and all of one library, since
    each needs ranks of its own; and the others in words.

    Raises
    ------
    UsageError
        If there is none.
    """
    alone = lambda job: job.library and get_library(job.case.algorithm).launch  # a program
    fits = [job.library for job in jobs if job.ranks == given and not alone(job)]
    mine, others = [], Counter()
    for job in jobs:
        if job.ranks != given:
            others[f"on {plural(job.ranks, 'rank')}"] += 1
        elif job.library not in fits[:1] or alone(job):
            others[f"of {job.library or 'drbench'}"] += 1
        else:
            mine.append(job)
    left = ", ".join(f"{plural(count, 'case')} {what}" for what, count in others.items())
    if not mine:
        raise UsageError(
            f"no case can run on the {plural(given, 'rank')} of this launch ({left}). Start "
            "another number, or drbench sweep without a launcher."
        )
    return mine, left


def _stream(row: Iterable[str]) -> None:
    """Write a row to standard output."""
    csv.writer(sys.stdout, lineterminator="\n").writerow(row)
    sys.stdout.flush()


def choose_exit_code(records: Iterable[Record]) -> int:
    """The exit code of a sweep.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> rows = [
    ...     Record(mode="measured", status=status, reason="why", best_s=1.0)
    ...     for status in ("ok", "unsupported", "timeout", "wrong")
    ... ]
    >>> choose_exit_code(rows[:2]), choose_exit_code(rows)
    (0, 4)
    """
    bad = {record.status for record in records}.difference(GOOD)
    return max((EXIT_CODES[status] for status in bad), default=0)
