"""The order of jobs: once each or in rounds. In rounds contenders are interleaved, so that drift of
the machine affects all alike; ratios of times of the same round are compared. Nothing runs here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from typing import NamedTuple

from drbench.measure.decision import best_of, is_noisy_run, over, seconds_of
from drbench.measure.noise import (
    MOST_REPEATS,
    STABLE,
    enough,
    ratio_columns,
    ratio_of,
    time_columns,
)
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.libraries import LIBRARIES

#: Seconds between the repeats of one case and the next, measured at 4 ranks.
OVERHEAD_S = 0.03
#: Folder of the rows of all rounds; ``records.csv`` next to it has one row per case.
ROUNDS = "rounds"


class Job(NamedTuple):
    """A case with its number of ranks and its id; or one turn of it, with the name of the turn."""

    name: str
    ranks: int
    case: Case

    @property
    def library(self) -> str:
        """The library whose ranks run the job: each has separate ranks, so that no library is
        affected by the state of another."""
        name = self.case.algorithm
        return name.partition("+")[0] if name in LIBRARIES else ""


class Experiment(NamedTuple):
    """The jobs of an experiment, and how they are repeated.

    Attributes
    ----------
    groups : sequence of sequence of Job
        The jobs of a group are compared with each other.
    rounds : int or str
        Runs of every case, interleaved; ``known``: one repeat per turn (a case with a roof has all
        its repeats in the first turn), until the ratio of each to the fastest of its group is known
        within 2 %, or the ``budget`` of all its turns is spent, and at least ``iters`` times; 0:
        once, in order.
    probe : bool
        With ``known``: find the fastest only. After ``iters`` rounds, and whenever the number of
        rounds has doubled, the slower half is dropped. The last two continue until their ratio is
        known, or they differ by more than 2 %, or a budget is spent: then they are tied.

    Notes
    -----
    A probe is successive halving (Karnin, Koren and Somekh, ICML 2013): most turns are spent on the
    contenders that are hardest to distinguish.
    """

    groups: Sequence[Sequence[Job]]
    rounds: int | str = 0
    probe: bool = False

    @property
    def jobs(self) -> list[Job]:
        """All jobs, each once."""
        return [job for group in self.groups for job in group]

    @property
    def least(self) -> int:
        """The least number of rounds."""
        if self.rounds == "known":
            return max(job.case.iters for job in self.jobs)
        return self.rounds or 1

    @property
    def names(self) -> list[str]:
        """The names of all possible rows."""
        if not self.rounds:
            return [job.name for job in self.jobs]
        most = range(self._most)
        return [round_name(round_index, job.name) for round_index in most for job in self.jobs]

    @property
    def _most(self) -> int:
        """The largest number of rounds that rows may have."""
        return max(self.least, MOST_REPEATS)

    def todo(self, done: Mapping[str, Record]) -> Iterator[Job]:
        """Yield the next jobs, depending on the growing ``done``. Libraries and numbers of ranks,
        which need separate ranks, are visited in changing order.

        Examples
        --------
        >>> jobs = [Job(name, 1 + (name == "c"), Case(8, 8, 8)) for name in "abc"]
        >>> [job.name for job in Experiment([jobs], 2).todo({})]
        ['1 | a', '1 | b', '1 | c', '2 | c', '2 | b', '2 | a']
        """
        if not self.rounds:
            yield from self.jobs
            return
        known, left = self.rounds == "known", self.groups
        for round_index in range(self._most if known else self.least):
            for group in rotated(left, round_index):
                for batch in rotated(_batches(group), round_index):
                    yield from (
                        self._in_round(job, round_index) for job in rotated(batch, round_index)
                    )
            if known:
                left = [self._unknown(group, done, round_index + 1) for group in self.groups]
                if not any(left):
                    return

    def runs(self, done: Mapping[str, Record]) -> dict[str, dict[int, Record]]:
        """The records of each case by round."""
        if self.rounds:
            return {job.name: _run_of(job.name, done, self._most) for job in self.jobs}
        return {name: {0: done[name]} if name in done else {} for name in self.names}

    def _in_round(self, job: Job, round_index: int) -> Job:
        case = job.case
        if self.rounds == "known" and not (case.roof and round_index == 0):
            case = replace(case, iters=1, budget=0.0, roof=False)
        return Job(round_name(round_index, job.name), job.ranks, case)

    def _unknown(self, group: Sequence[Job], done: Mapping[str, Record], rounds: int) -> list[Job]:
        """The jobs that continue after this number of rounds: those whose ratio is not known, and
        the fastest for comparison. A job that was not ok has no further turn."""
        runs = {job.name: _run_of(job.name, done, rounds) for job in group}
        runs = {
            name: run
            for name, run in runs.items()
            if all(record.status == "ok" for record in run.values())
            and (len(run) == rounds or not self.probe)  # else it was dropped
        }
        if len(runs) < 1 + self.probe:
            return []
        times = {name: seconds_of(run) for name, run in runs.items()}
        fastest = best_of(times)
        ratios = {name: over(each, times[fastest]) for name, each in times.items()}
        left = list(runs)
        if self.probe and len(left) > 2 and rounds in (self.least << step for step in range(7)):
            left.sort(key=lambda name: (name != fastest, median(ratios[name])))
            del left[-(-len(left) // 2) :]
        if rounds >= self.least and (len(left) < 3 or not self.probe):
            others = {name for name in left if name != fastest}
            unknown = {x for x in others if not self._is_known(ratios[x], _spent_s(runs[x]))}
            left = [fastest, *unknown] if unknown else []
        return [job for job in group if job.name in left]

    def _is_known(self, ratios: list[float], spent_s: float) -> bool:
        low, budget_s = ratio_of(ratios).low, max(job.case.budget for job in self.jobs)
        apart = self.probe and low is not None and low > 1 + STABLE
        return apart or enough(ratios, spent_s, self.least, budget_s)


def _batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """The jobs in batches of one number of ranks and one library."""
    found: dict[tuple, list[Job]] = {}
    for job in jobs:
        found.setdefault((job.ranks, job.library), []).append(job)
    return list(found.values())


def rotated(items: Sequence, round_index: int) -> list:
    """The order of a round (0 is the first): every second round reverses the previous one, so that
    a steady drift cancels in each pair, and each pair begins with another contender.

    Examples
    --------
    >>> [rotated("abc", round_index) for round_index in range(4)]
    [['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'c', 'a'], ['a', 'c', 'b']]
    """
    first = round_index // 2 % max(1, len(items))
    order = [*items[first:], *items[:first]]
    return order[::-1] if round_index % 2 else order


def round_name(round_index: int, contender: str) -> str:
    """The name of a case in a round; the round is the number before the first blank.

    Examples
    --------
    >>> round_name(0, "row"), round_of(round_name(6, "a | b"))
    ('1 | row', 6)
    """
    return f"{round_index + 1} | {contender}"


def round_of(name: str) -> int:
    """The round of a name that :func:`round_name` made."""
    return int(name.partition(" ")[0]) - 1


def _run_of(name: str, done: Mapping[str, Record], rounds: int) -> dict[int, Record]:
    """The records of a contender by round."""
    names = ((round_index, round_name(round_index, name)) for round_index in range(rounds))
    return {round_index: done[row] for round_index, row in names if row in done}


def _spent_s(run: Mapping[int, Record]) -> float:
    return sum(
        OVERHEAD_S + (1 + (run[round_index].warmup or 0)) * seconds
        for round_index, seconds in seconds_of(run).items()
    )


def pooled(records: Iterable[Record]) -> Record:
    """One record of the rounds of a case: the samples joined, an equal number from each round;
    percent of the roof is the median over the rounds that have it.

    A case that was not ok in some round is not ok.

    Examples
    --------
    >>> make = lambda seconds, ratio: Record(
    ...     mode="measured",
    ...     status="ok",
    ...     m=1,
    ...     n=1,
    ...     k=1,
    ...     best_s=seconds,
    ...     samples_s=[seconds],
    ...     percent_of_roof=ratio,
    ... )
    >>> found = pooled([make(2.0, 90.0), make(4.0, 70.0), make(3.0, 80.0)])
    >>> found.median_s, found.percent_of_roof, found.percent_of_roof_min
    (3.0, 80.0, 70.0)
    """
    records = list(records)
    bad = next((record for record in records if record.status != "ok"), None)
    if bad is not None or len(records) == 1:
        return replace(bad or records[0], case=None)
    samples_of = [record.samples_s or [record.time_s] for record in records]
    share = min(max(1, 5 * MOST_REPEATS // len(records)), *map(len, samples_of))
    samples = list(chain.from_iterable(found[:share] for found in samples_of))
    roofed = [record for record in records if record.percent_of_roof is not None]
    percents = [record.percent_of_roof for record in roofed]
    first, changed = records[0], time_columns(samples, percents[1:] and percents)
    faster = first.time_s / changed["median_s"]
    for name in ("gflops", "percent_of_peak"):
        if value := getattr(first, name):
            changed[name] = value * faster
    for name, of in (("cpu_s", median), ("core_share", median), ("disturbed", sum)):
        known = [value for each in records if (value := getattr(each, name)) is not None]
        changed[name] = of(known) if known else None
    if len(roofed) > 1:
        changed |= ratio_columns(percents)
    elif roofed:
        changed["stable"] = roofed[0].stable
    changed["noisy"] = is_noisy_run(records)
    return replace(first, case=None, **changed)
