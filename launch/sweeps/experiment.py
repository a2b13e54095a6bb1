"""The experiment engine: runs jobs of any numbers of ranks and any libraries, once each or in
rounds, in a folder that can be resumed."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.measure.noise import FEWEST
from drbench.measure.record import Record

from .progress import SweepProgress
from .rounds import ROUNDS, Experiment, Job
from .store import Store, case_id, open_store, write_csv
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
    on_record: Callable[[Record], None] | None = None,
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
        Begin or finish at most this many cases now.
    on_record : callable
        Gets the row of each case, those of earlier runs too.
    description : str
        Printed before the run.
    modes
        As for :func:`.store.open_store`.
    """
    on_record = on_record or (lambda record: None)
    inside, pooled_path = Path(out) / ROUNDS, Path(out) / "records.csv"
    jobs, rounds = experiment.jobs, experiment.rounds
    if inside.is_dir() if not rounds else pooled_path.exists() and not inside.is_dir():
        raise UsageError(f"{out} holds the records of another run. Use another --out.")
    ours = [job.name for job in jobs]
    folder = inside if rounds else out
    with open_store(
        folder, max(job.ranks for job in jobs), [*ours, *names], console, **modes
    ) as store:
        done = store.done
        runs = experiment.runs(done)
        unfinished = [name for name, run in runs.items() if not experiment.is_finished(run)]
        if description:
            count = len(runs) - len(unfinished)
            console.print(f"{description}{f', {count} done before' * bool(count)}")
        now = experiment.without(unfinished[most:] if most else ())
        before = [record for run in runs.values() for record in run.values()]
        for record in () if rounds else before:
            on_record(record)
        total = len(now.jobs) * experiment.least
        watch = SweepProgress(total, before, console, "turn" if rounds else "case")
        try:
            with run(store, watch) as measure:
                for stage in now.stages:
                    for job in now.turns(stage, done):
                        if job.name in done:
                            continue
                        watch.started(job.case)
                        record = replace(measure(job), case=job.name)
                        store.add(record)
                        watch.ended(record)
                        if not rounds:
                            on_record(record)
                    of_stage = experiment._replace(groups=stage)
                    for record in of_stage.rows(done).values() if rounds else ():
                        on_record(record)
        finally:
            rows = experiment.rows(done)
            runs = experiment.runs(done)
            if rounds and rows:
                write_csv(pooled_path, rows.values())
            watch.close(rows.values(), len(jobs), [*map(len, runs.values())] if rounds else [])
        return runs


def run_rounds(
    cases: Sequence[Case],
    ranks: int,
    settings: Settings,
    console: Console,
    out: str | Path | None = None,
    probe: bool = False,
    fewest: int = FEWEST,
) -> list[dict[int, Record]]:
    """Measure some cases in rounds until their order is known (:class:`.rounds.Experiment`), and
    return the records of each by round.

    ``budget`` is that of all rounds of a case, and ``fewest`` the least number of rounds. Without
    ``out`` nothing is kept. A ``probe`` finds the fastest only.
    """
    jobs = [Job(case_id(case, ranks), ranks, case) for case in cases]
    experiment = Experiment([jobs], "known", probe, fewest)
    with ExitStack() as stack:  # without a temporary folder if ``out`` is given
        if out is None:
            out = stack.enter_context(TemporaryDirectory(prefix="drbench-tune-"))
        runs = run_experiment(experiment, out, partial(supervised, settings), console)
        return [runs[job.name] for job in jobs]
