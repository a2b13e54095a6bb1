"""``drbench sweep``: expand, lock, resume, run, sum up."""

import csv
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from drbench.errors import EXIT_CODES, DrbenchError, MissingError
from drbench.measure.record import HEADER, Record, RecordError
from drbench.measure.record_file import read_csv
from launch.cases.case import Case, bound
from launch.cases.peak_files import read_peaks
from launch.cases.sweep_file import Sweep
from launch.host.units import plural
from launch.peers import PEERS, get_peer
from partitions import LayoutError

from .plan import Plan, SweepRequest, part_of, plan_cases
from .rounds import pooled
from .run_rounds import ROUNDS, Experiment, Job, run_experiment
from .store import GOOD
from .supervisor import Settings

INTERRUPTED = 130
#: Fields that make a problem: cases that differ in one are not compared.
_PROBLEM = ("m", "n", "k", "dtype", "compute", "transpose", "alpha", "beta")


def experiment_of(plan: Plan, pairs: list[tuple[str, Case]], simulate: bool = False) -> Experiment:
    """The experiment of some cases of a plan. Compared are cases of one problem, in a sweep of
    algorithms those on the same tiles; what is simulated needs no rounds."""
    sweep, groups = plan.sweep, {}
    for name, case in pairs:
        job = Job(name, plan.ranks_of[name], case)
        key = tuple(getattr(case, each) for each in _PROBLEM)
        if sweep.rounds == "known":
            key += (job.ranks, _tiles(job) if sweep.view == "algorithms" else ())
        elif len({*plan.ranks_of.values()}) > 1 or not sweep.rounds:
            key = ()
        groups.setdefault(key, []).append(job)
    return Experiment(sweep.name, list(groups.values()), 0 if simulate else sweep.rounds)


def _tiles(job: Job) -> tuple:
    """Where the tiles of a case lie; what is refused lies nowhere, and is compared with nothing."""
    try:
        return tuple(bound(job.case, job.ranks)[1].texts.values())
    except (DrbenchError, LayoutError):
        return (job.name,)


def absent_libraries(names: set[str], simulate: bool) -> dict[str, str]:
    """Libraries of those names that do not take part: name -> why."""
    found = {}
    for name in PEERS:
        if name in names:
            here = get_peer(name).available()
            if simulate:
                found[name] = "its programs cannot be simulated"
            elif not here.ok:
                found[name] = f"{here.what}. {here.get}"
    return found


def left_to_run(request: SweepRequest) -> list[tuple[int, Case]]:
    """(ranks, case) of what a sweep on this machine would run now, as far as its folder says, each
    as often as it has rounds at least; none if ranks are started elsewhere, or compute on GPUs,
    whose time nobody here knows."""
    plan = plan_cases(request)
    experiment = experiment_of(plan, part_of(plan.pairs, request.part), request.simulate)
    folder = Path(request.out) / ROUNDS if experiment.rounds else Path(request.out)
    path = folder / "records.csv"
    try:
        kept = path.is_file() and not request.fresh  # a pipe would keep its reader waiting
        done = {record.case for record in read_csv(path)} if kept else set()
    except (OSError, RecordError):
        done = set()  # none, or one that is refused when it is opened
    jobs = experiment.jobs.values()
    if plan.launcher.words or any(job.case.backend != "numpy" for job in jobs):
        return []
    if not experiment.rounds:
        todo = [(job.ranks, job.case) for job in jobs if job.name not in done]
    else:
        left = max(0, experiment.total - len(done)) // max(1, len(jobs))
        todo = [(job.ranks, job.case) for job in jobs for _ in range(left)]
    return todo[: request.max_cases]


def run_sweep(
    request: SweepRequest,
    console: Console,
    run: Callable | None = None,
    show: Callable[[Sweep, dict], None] | None = None,
) -> int:
    """Run what has no row yet; the exit code. With ``stream`` each record goes to standard output,
    those of earlier runs first. ``run`` is what runs cases (:func:`run_experiment`), and ``show``
    gets the sweep and the records of each case by round in the end.

    Returns
    -------
    int
        0 if every case is ok or unsupported, else the largest of the table; 130 if interrupted.
    """
    plan = plan_cases(request)
    sweep, launcher = plan.sweep, plan.launcher
    if sweep.repeated:
        console.print(
            f"{plural(sweep.repeated, 'case')} of {sweep.name} the same as an earlier one: run once"
        )
    pairs, mine = plan.pairs, part_of(plan.pairs, request.part)
    if not launcher.words:
        absent = absent_libraries({case.algorithm for _, case in mine}, request.simulate)
        for name, why in absent.items():
            console.print(f"without {name}: {why}", markup=False)
        mine = [(name, case) for name, case in mine if case.algorithm not in absent]
        if not mine:
            raise MissingError(
                f"no case of {sweep.name} is left to run. drbench list says who is here."
            )
    settings = Settings(
        request.ranks,
        launcher,
        request.timeout or None,
        request.mem_limit,
        request.environ,
        {} if request.simulate else read_peaks(request.peak, sweep.cases, request.launcher),
    )
    counts = sorted({plan.ranks_of[name] for name, _ in mine})
    told = (
        plural(counts[-1], "rank") if len(counts) == 1 else f"{', '.join(map(str, counts))} ranks"
    )
    experiment = experiment_of(plan, mine, request.simulate)
    try:
        found = run_experiment(
            experiment_of(plan, pairs, request.simulate),
            request.out,
            settings,
            console,
            mine=experiment,
            most=request.max_cases,
            on_record=Stream() if request.stream else None,
            run=run,
            about=f"{sweep.name}: {plural(len(mine), 'case')} on {told}",
            fresh=request.fresh,
            retry=request.retry,
        )
    except KeyboardInterrupt:
        console.print(
            "interrupted; nothing that was finished is lost. Resume: "
            f"{shlex.join(request.arguments())}",
            soft_wrap=True,
            markup=False,
        )
        return INTERRUPTED
    rows = {
        name: replace(pooled(list(run.values())), case=name) for name, run in found.items() if run
    }
    if len(rows) < len(found):
        console.print(
            f"left: {plural(len(found) - len(rows), 'case')} (--max-cases). The same command goes "
            "on",
            markup=False,
        )
    if show is not None and rows:
        show(sweep, found)
    console.print(f"records: {Path(request.out) / 'records.csv'}", markup=False)
    return verdict(rows.values())


class Stream:
    """Writes each record it is called with; a reader that has gone away interrupts the sweep."""

    def __init__(self):
        self._write(HEADER)

    def __call__(self, record: Record) -> None:
        self._write(record.to_row())

    def _write(self, row) -> None:
        try:
            csv.writer(sys.stdout, lineterminator="\n").writerow(row)
            sys.stdout.flush()
        except BrokenPipeError:
            # what is left to flush goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise KeyboardInterrupt from None


def verdict(records) -> int:
    """The exit code of a sweep.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> rows = [
    ...     Record(mode="measured", status=status, reason="why", best_s=1.0)
    ...     for status in ("ok", "unsupported", "timeout", "wrong")
    ... ]
    >>> verdict(rows[:2]), verdict(rows)
    (0, 4)
    """
    bad = {record.status for record in records}.difference(GOOD)
    return max((EXIT_CODES[status] for status in bad), default=0)
