"""The experiment engine: cases of any numbers of ranks and any libraries, once each or in rounds,
in a folder that is taken up where it was left."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.noise import MOST_REPEATS
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import plural
from launch.peers import PEERS

from .folder import opened
from .progress import SweepProgress
from .rounds import halving, pooled, runs_of, turn_name, turned, turns
from .store import case_id, write_csv
from .supervisor import Settings, run_cases

#: Where the rows of all rounds are, in a folder that is kept; beside it, a row a case.
ROUNDS, POOLED = "rounds", "records.csv"


class Job(NamedTuple):
    """A case on so many ranks, by its id; or one round of it, by the name of that."""

    name: str
    ranks: int
    case: Case

    @property
    def library(self) -> str:
        """Whose process the ranks are: each library has ranks of its own, so that none meets what
        another has left in them."""
        name = self.case.algorithm
        return name.partition("+")[0] if name in PEERS else ""


class Experiment(NamedTuple):
    """What is run.

    Attributes
    ----------
    name : str
    groups : sequence of sequence of Job
        Those of a group are compared with one another.
    rounds : int or str
        How often every case is run, interleaved; ``known``: until the ratios to the fastest of
        each group are known; 0: once, in order.
    probe : bool
        With ``known``: look for the fastest of the one group only (:func:`.rounds.halving`).
    """

    name: str
    groups: Sequence[Sequence[Job]]
    rounds: int | str = 0
    probe: bool = False

    @property
    def jobs(self) -> dict[str, Job]:
        """Every case once, by its id."""
        return {job.name: job for group in self.groups for job in group}

    @property
    def names(self) -> list[str]:
        """The names of all rows there may be."""
        if not self.rounds:
            return list(self.jobs)
        most = self.rounds if type(self.rounds) is int else self._least
        return [
            turn_name(turn, name) for turn in range(max(most, MOST_REPEATS)) for name in self.jobs
        ]

    @property
    def total(self) -> int:
        """How many rows there are in the end, at least."""
        return len(self.jobs) * (self._least if self.rounds == "known" else self.rounds or 1)

    @property
    def _least(self) -> int:
        return max(job.case.iters for job in self.jobs.values())

    def todo(self, done: Mapping[str, Record]) -> Iterator[Job]:
        """What is to be run next, looking at what is done meanwhile."""
        if not self.rounds:
            yield from self.jobs.values()
        elif self.rounds == "known":
            jobs = self.jobs
            named = [{job.name: job.case for job in group} for group in self.groups]
            budget_s = max(job.case.budget for job in jobs.values())
            follow = partial(halving, named[0]) if self.probe else partial(turns, named)
            for name, case in follow(done, self._least, budget_s):
                yield Job(name, jobs[name.partition(" | ")[2]].ranks, case)
        else:
            yield from rounds_of(self.groups, self.rounds)


def rounds_of(groups: Sequence[Sequence[Job]], rounds: int) -> Iterator[Job]:
    """All jobs of so many rounds: each visits all groups, and in each the libraries and numbers of
    ranks in changing order.

    Examples
    --------
    >>> jobs = [Job("a", 1, Case(8, 8, 8)), Job("b", 1, Case(8, 8, 8)), Job("c", 2, Case(8, 8, 8))]
    >>> [job.name for job in rounds_of([jobs], 2)]
    ['1 | a', '1 | b', '1 | c', '2 | c', '2 | a', '2 | b']
    """
    for turn in range(rounds):
        for group in groups:
            for batch in turned(_batches(group), turn):
                yield from (job._replace(name=turn_name(turn, job.name)) for job in batch)


def _batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs of one number of ranks and one library together."""
    found: dict[tuple, list[Job]] = {}
    for job in jobs:
        found.setdefault((job.ranks, job.library), []).append(job)
    return list(found.values())


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    settings: Settings,
    console: Console,
    *,
    mine: Experiment | None = None,
    most: int | None = None,
    on_record: Callable[[Record], None] | None = None,
    run: Callable | None = None,
    about: str = "",
    **modes: bool,
) -> dict[str, dict[int, Record]]:
    """Run what has no row yet in the folder ``out``; the records of each case by round.

    With rounds the rows are in its folder :data:`ROUNDS`, and a row a case, of all its rounds, in
    its :data:`POOLED`.

    Parameters
    ----------
    mine : Experiment, optional
        The part of it that is run here.
    most : int, optional
        Run at most so many now.
    run : callable
        As :func:`.supervisor.run_cases`, which it is by default.
    about : str
        What is run, printed before it is.
    modes
        Those of :func:`.folder.opened`.
    """
    mine, run = mine or experiment, run or run_cases
    folder = Path(out) / ROUNDS if experiment.rounds else Path(out)
    if experiment.rounds and not folder.is_dir() and (folder.parent / POOLED).exists():
        raise UsageError(f"{out} holds the records of another run. Use another --out.")
    if not experiment.rounds and (folder / ROUNDS).is_dir():
        raise UsageError(f"{out} holds a run in rounds, and this is none. Use another --out.")
    ranks = max(job.ranks for job in experiment.jobs.values())
    with opened(folder, experiment.name, ranks, experiment.names, console, **modes) as store:
        ours = mine.jobs
        before = [row for name, row in store.done.items() if name.rpartition(" | ")[2] in ours]
        if about:
            done = f", {len(before)} done before" if before else ""
            console.print(f"{about}{done}", markup=False)
        for record in before if on_record else ():
            on_record(record)
        what = "turn" if experiment.rounds else "case"
        watch = SweepProgress(mine.total, before, console, on_record, what)
        todo = islice((job for job in mine.todo(store.done) if job.name not in store.done), most)
        try:
            with watch:
                for (count, _), batch in groupby(todo, lambda job: (job.ranks, job.library)):
                    pairs = ((job.name, job.case) for job in batch)
                    run(pairs, store, replace(settings, ranks=count), watch)
        finally:
            console.print(watch.line(), markup=False)
            found = runs_of_jobs(mine, store.done)
            if experiment.rounds and any(found.values()):
                every = runs_of_jobs(experiment, store.done)
                rows = [_row(name, run) for name, run in every.items() if run]
                write_csv(Path(out) / POOLED, rows)
        if experiment.rounds:
            console.print(_said(found.values()), markup=False)
        return found


def runs_of_jobs(experiment: Experiment, done: Mapping[str, Record]) -> dict[str, dict]:
    """The records of each case by round."""
    if not experiment.rounds:
        return {name: {0: done[name]} if name in done else {} for name in experiment.jobs}
    most = len(experiment.names) // len(experiment.jobs)
    return {name: runs_of(name, done, most) for name in experiment.jobs}


def _row(name: str, run: Mapping[int, Record]) -> Record:
    return replace(pooled(list(run.values())), case=name)


def run_rounds(
    groups: Sequence[Sequence[Case]],
    name: str,
    settings: Settings,
    console: Console,
    out: str | Path | None = None,
    fresh: bool = False,
    probe: bool = False,
) -> list[list[dict[int, Record]]]:
    """Measure the cases of each group in rounds until their order is known (:func:`.rounds.turns`);
    the records of each case by round.

    ``iters`` of a case are its rounds at least, ``budget`` is that of all its rounds. Without
    ``out`` nothing is kept. A ``probe`` looks for the fastest of one group only.
    """
    ranks = settings.ranks
    jobs = [[Job(case_id(case, ranks), ranks, case) for case in group] for group in groups]
    experiment = Experiment(name, jobs, "known", probe)
    with ExitStack() as stack:  # of no folder, if one is given
        if out is None:
            out = stack.enter_context(TemporaryDirectory(prefix=f"drbench-{name}-"))
        found = run_experiment(experiment, out, settings, console, fresh=fresh)
        return [[found[job.name] for job in group] for group in jobs]


def _said(found: Iterable[Mapping[int, Record]]) -> str:
    counts = [len(run) for run in found]
    few, many = min(counts), max(counts)
    return f"in turn, {f'{few} to ' if few < many else ''}{plural(many, 'round')}"
