"""The experiment engine: runs jobs of any numbers of ranks and any libraries, once each or in
rounds, in a folder that can be resumed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import plural

from .progress import SweepProgress
from .rounds import ROUNDS, Experiment, Job, pooled
from .store import Store, case_id, opened, write_csv
from .supervisor import Settings, supervised

#: A context that runs jobs: takes a store and a progress, gives a function from job to record.
Runner = Callable[[Store, SweepProgress], AbstractContextManager[Callable[[Job], Record]]]


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    run: Runner,
    console: Console,
    *,
    names: Iterable[str] = (),
    most: int | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
    description: str = "",
    **modes: bool,
) -> dict[str, dict[int, Record]]:
    """Run the cases without a row in the folder ``out``, and return the records of each by round.

    With rounds the rows are in its folder :data:`ROUNDS`, and ``records.csv`` has one row per case
    over all its rounds.

    Parameters
    ----------
    names : iterable of str
        Other rows that the folder may contain: of a part that runs elsewhere.
    most : int, optional
        Run at most this many now.
    on_record : callable
        Gets the records, those of earlier runs first.
    description : str
        Printed before the run.
    modes
        As for :func:`.store.opened`.
    """
    inside, pooled_path = Path(out) / ROUNDS, Path(out) / "records.csv"
    jobs, ours, rounds = experiment.jobs, experiment.names, experiment.rounds
    if inside.is_dir() if not rounds else pooled_path.exists() and not inside.is_dir():
        raise UsageError(f"{out} holds the records of another run. Use another --out.")
    ranks = max(job.ranks for job in jobs)
    folder, wanted = inside if rounds else out, [*ours, *names]
    with opened(folder, ranks, wanted, console, **modes) as store:
        before = [store.done[name] for name in ours if name in store.done]
        if description:
            done = f", {len(before)} done before" if before else ""
            console.print(f"{description}{done}", markup=False)
        for record in before:
            on_record(record)
        total = len(jobs) * experiment.least
        watch = SweepProgress(total, before, console, "turn" if rounds else "case")
        todo = (job for job in experiment.todo(store.done) if job.name not in store.done)
        try:
            with run(store, watch) as measure:
                for job in islice(todo, most):
                    watch.started(job.case)
                    record = replace(measure(job), case=job.name)
                    store.add(record)
                    watch.ended(record)
                    on_record(record)
        finally:
            console.print(watch.line(), markup=False)
            found = experiment.runs(store.done)
            if rounds and any(found.values()):
                write_csv(pooled_path, rows_of_runs(found).values())
        if rounds:
            few, many = (end(map(len, found.values())) for end in (min, max))
            text = f"{few} to " if few < many else ""
            console.print(f"interleaved, {text}{plural(many, 'round')}", markup=False)
        return found


def rows_of_runs(found: Mapping[str, Mapping[int, Record]]) -> dict[str, Record]:
    """One row per case over all its rounds, for cases with any."""
    return {name: replace(pooled(run.values()), case=name) for name, run in found.items() if run}


def run_rounds(
    cases: Sequence[Case],
    ranks: int,
    settings: Settings,
    console: Console,
    out: str | Path | None = None,
    probe: bool = False,
) -> list[dict[int, Record]]:
    """Measure some cases in rounds until their order is known (:class:`.rounds.Experiment`), and
    return the records of each by round.

    ``iters`` of a case is its least number of rounds, ``budget`` that of all its rounds. Without
    ``out`` nothing is kept. A ``probe`` finds the fastest only.
    """
    jobs = [Job(case_id(case, ranks), ranks, case) for case in cases]
    experiment = Experiment([jobs], "known", probe)
    with ExitStack() as stack:  # without a temporary folder if ``out`` is given
        if out is None:
            out = stack.enter_context(TemporaryDirectory(prefix="drbench-tune-"))
        found = run_experiment(experiment, out, partial(supervised, settings), console)
        return [found[job.name] for job in jobs]
