"""The order of jobs: once each or in rounds. In rounds the cases of a problem are interleaved, so
that drift of the machine affects all alike; ratios of times of the same round are compared. Nothing
runs here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, compress
from statistics import median
from typing import NamedTuple

from drbench.launch.cases.case import Case
from drbench.launch.libraries import LIBRARIES
from drbench.mappings import grouped
from drbench.measure.decision import (
    UNDECIDED,
    Run,
    best_of,
    compared,
    drift_of,
    is_noisy_run,
    over,
    seconds_of,
    state_of,
)
from drbench.measure.noise import (
    FEWEST,
    MOST_REPEATS,
    is_stable,
    ratio_columns,
    ratio_of,
    time_columns,
)
from drbench.measure.record import Record

#: Seconds between the repeats of one case and the next, measured at 4 ranks; and if the case is
#: prepared, at 2 ranks.
OVERHEAD_S, TURN_OVERHEAD_S = 0.03, 0.01
#: Folder of the rows of all rounds; ``records.csv`` next to it has one row per case.
ROUNDS = "rounds"


class Job(NamedTuple):
    """A case with its number of ranks and its id; or a run of it in one round, with the name of
    that.

    Attributes
    ----------
    name : str
    ranks : int
    case : Case
    group : str or None
        What ranks share among the jobs of a group, and have prepared for their next runs.
    turn : int or None
        The round, if the case runs with only some of its repeats.
    """

    name: str
    ranks: int
    case: Case
    group: str | None = None
    turn: int | None = None

    @property
    def library(self) -> str:
        """The library whose ranks run the job: each has separate ranks, so that no library is
        affected by the state of another."""
        name = self.case.algorithm
        return name.partition("+")[0] if name in LIBRARIES else ""

    def order(self, mem_limit: int | None) -> dict:
        """The order to run it that ranks receive, as plain data; ``mem_limit`` is for a node."""
        of_case = {"case": asdict(self.case), "mem_limit": mem_limit}
        return of_case | {"group": self.group, "turn": self.turn}


#: The jobs of one problem.
Group = Sequence[Job]


class Experiment(NamedTuple):
    """The jobs of an experiment, and how they are repeated.

    Attributes
    ----------
    groups : sequence of sequence of Job
        The jobs of a group are compared with each other.
    rounds : int or str
        Runs of every case, interleaved; ``known``: a turn of each case in ``fewest`` rounds, then
        of those cases only of which it is not known whether they are slower than the fastest of the
        group or tied with it, until that is known or the ``budget`` of the case is spent; 0: once,
        in order.
    probe : bool
        With ``known``: find the fastest only. After ``fewest`` rounds, and whenever the number of
        rounds has doubled, the slower half is dropped, until two are left.
    fewest : int
        With ``known``: the least number of rounds.

    Notes
    -----
    A case that has no rows while others of its group have, because it is new or runs again, is
    never compared with those rows: it begins in the last round, and the fastest runs again next to
    it.

    One group is finished before the next begins, so that ranks need the matrices of one problem at
    a time. Groups of several libraries or numbers of ranks, which need separate ranks, share their
    rounds, so that fewer ranks are started.

    A probe is successive halving (Karnin, Koren and Somekh, ICML 2013): most turns are spent on the
    contenders that are hardest to distinguish.
    """

    groups: Sequence[Group]
    rounds: int | str = 0
    probe: bool = False
    fewest: int = FEWEST

    @property
    def jobs(self) -> list[Job]:
        """All jobs, each once."""
        return [job for group in self.groups for job in group]

    def without(self, names: Iterable[str]) -> "Experiment":
        """The experiment without some of its jobs."""
        out = {*names}
        groups = [[job for job in group if job.name not in out] for group in self.groups]
        return self._replace(groups=list(filter(None, groups)))

    @property
    def least(self) -> int:
        """The least number of rounds."""
        return self.fewest if self.rounds == "known" else self.rounds or 1

    @property
    def stages(self) -> list[list[Group]]:
        """Groups that are run together, one stage after the other."""
        alone = lambda group: self.rounds and len(_batches(group)) == 1
        stage = lambda group: group[0].name if alone(group) else ""
        return list(grouped(self.groups, stage).values())

    def turns(self, stage: Sequence[Group], done: Mapping[str, Record]) -> Iterator[Job]:
        """Yield the next jobs of a stage, depending on the growing ``done``. Libraries and numbers
        of ranks are visited in changing order.

        Examples
        --------
        >>> jobs = [Job(name, 1 + (name == "c"), Case(8, 8, 8)) for name in "abc"]
        >>> [job.name for job in Experiment([jobs], 2).turns([jobs], {})]
        ['1 | a', '1 | b', '1 | c', '2 | c', '2 | b', '2 | a']
        """
        if not self.rounds:
            yield from (job for group in stage for job in group)
            return
        known, left, first = self.rounds == "known", stage, 0
        if known:
            names = [job.name for group in stage for job in group]
            while any(round_name(first + 1, name) in done for name in names):
                first += 1
        for round_index in range(first, max(self.least, MOST_REPEATS) if known else self.least):
            if known:
                left = [self._unknown(group, done, round_index) for group in stage]
                if not any(left):
                    return
            turn = round_index if known else None
            yield from (
                Job(round_name(round_index, job.name), job.ranks, job.case, key, turn)
                for batch in rotate_order(_batches(chain.from_iterable(left)), round_index)
                for key, group in rotate_order(_groups_of(batch, stage), round_index)
                for job in rotate_order(group, round_index)
            )

    def runs(self, done: Mapping[str, Record]) -> dict[str, Run]:
        """The records of each case by round."""
        if not self.rounds:
            return {job.name: {0: done[job.name]} if job.name in done else {} for job in self.jobs}
        most = max(self.least, MOST_REPEATS)
        return {job.name: _run_of(job.name, done, most) for job in self.jobs}

    def rows(self, done: Mapping[str, Record]) -> dict[str, Record]:
        """A row for each case with any rounds, over all of them. The reason of a row with fewer
        rounds than others of its group is that it was dropped, if it was."""
        rows = {}
        for group in self.groups:
            of_group = self._replace(groups=[group])
            runs = {name: run for name, run in of_group.runs(done).items() if run}
            dropped = self._dropped(runs) if self.rounds == "known" else {}
            for name, run in runs.items():
                row = pool_records(run.values())
                rows[name] = replace(row, case=name, reason=dropped.get(name, row.reason))
        return rows

    def _dropped(self, runs: dict[str, Run]) -> dict[str, str]:
        """The cases without further rounds because they are slower than the fastest, each with that
        reason."""
        most = max(map(len, runs.values()), default=0)
        ok = {name: seconds_of(run) for name, run in runs.items() if _is_ok(run)}
        reasons = {}
        if ok:
            base = ok[_fastest({name: runs[name] for name in ok})]
            for name, seconds in ok.items():
                ratio = ratio_of(over(seconds, base)) if self.least <= len(seconds) < most else None
                if ratio and ratio.low is not None and ratio.low > 1:
                    reasons[name] = f"dropped after {len(seconds)} rounds: slower, {ratio}"
        return reasons

    def is_finished(self, run: Run) -> bool:
        """Whether a case has its least number of rounds, or has none to come because it was not
        ok."""
        return len(run) >= self.least or not _is_ok(run)

    def _unknown(self, group: Group, done: Mapping[str, Record], rounds: int) -> list[Job]:
        """The jobs that continue after this number of rounds: those with too few rounds, those that
        may be as fast as the fastest, and that for comparison. A job that was not ok, or that a
        probe has dropped, has no further turn."""
        runs = {job.name: _run_of(job.name, done, rounds) for job in group}
        runs = {name: run for name, run in runs.items() if _is_ok(run)}
        if self.probe:
            runs = {name: run for name, run in runs.items() if len(run) == rounds}
        left = {name for name, run in runs.items() if len(run) < self.least}
        known = {name: run for name, run in runs.items() if name not in left}
        if not self.probe:
            known = dict(compress(known.items(), compared(list(known.values()))))
        if known:
            times = {name: seconds_of(run) for name, run in known.items()}
            fastest = _fastest(known)
            ratios = {name: over(seconds, times[fastest]) for name, seconds in times.items()}
            close = [*known]
            if self.probe and rounds in (self.least << step for step in range(7)):
                close.sort(key=lambda name: (name != fastest, median(ratios[name])))
                close = close[: max(2, -(-len(close) // 2))]
            if self.probe and len(close) > 2:
                left.update(close)
            else:
                drift, budget_s = drift_of(runs.values()), max(job.case.budget for job in group)
                left |= {
                    name
                    for name in close
                    if name != fastest
                    and not is_decided(ratios[name], drift)
                    and _spent_s(known[name]) < budget_s
                    and not any(is_noisy_run(known[x].values()) for x in (name, fastest))
                }
            if left:
                left.add(fastest)
        return [job for job in group if job.name in left]


def _fastest(runs: Mapping[str, Run]) -> str:
    """The fastest of the cases in the last round."""
    last = max(map(max, runs.values()))
    return best_of({name: seconds_of(run) for name, run in runs.items() if last in run})


def is_decided(ratios: Sequence[float], drift: float | None) -> bool:
    """Whether it is known from ratios of times that a case is slower than the fastest, or tied with
    it: within the drift of the machine, or (if that is not known) 2 %.

    Examples
    --------
    >>> slower, tied, unknown = [1.2] * 5 + [1.01], [1.005, 0.995] * 3, [0.9, 1.1] * 3
    >>> [is_decided(ratios, 0.01) for ratios in (slower, tied, unknown, slower[:5])]
    [True, True, False, False]
    """
    if drift is None and is_stable(ratios):
        return True
    return state_of(ratio_of(ratios), drift) != UNDECIDED


def _is_ok(run: Run) -> bool:
    return all(record.status == "ok" for record in run.values())


def _groups_of(batch: Group, groups: Sequence[Group]) -> list[tuple]:
    """The jobs of a batch by group, each with what identifies the group."""
    of = {job.name: group[0].name for group in groups for job in group}
    return list(grouped(batch, lambda job: of[job.name]).items())


def _batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """The jobs in batches of one number of ranks and one library."""
    return list(grouped(jobs, lambda job: (job.ranks, job.library)).values())


def rotate_order(items: Sequence, round_index: int) -> list:
    """The order of a round (0 is the first): every second round reverses the previous one, so that
    a steady drift cancels in each pair, and each pair begins with another contender.

    Examples
    --------
    >>> [rotate_order("abc", round_index) for round_index in range(4)]
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


def _run_of(name: str, done: Mapping[str, Record], rounds: int) -> Run:
    """The records of a contender by round."""
    names = ((round_index, round_name(round_index, name)) for round_index in range(rounds))
    return {round_index: done[row] for round_index, row in names if row in done}


def _spent_s(run: Run) -> float:
    """Seconds of the repeats of a case and of the local GEMMs next to them."""
    return sum(
        sum(record.samples_s) * (2 if record.gemm_only_gflops else 1) for record in run.values()
    )


#: Columns of which a row of several rounds has the median, or the sum.
_POOLED = (
    *((name, median) for name in ("cpu_s", "core_share", "gemm_only_gflops", "local_gemm_s")),
    ("effective_communication_s", median),
    ("disturbed", sum),
)


def pool_records(records: Iterable[Record]) -> Record:
    """One record of the rounds of a case: the samples joined, an equal number from each round;
    percent of GEMM-only speed is the median over the rounds that have it. What is measured in the
    first round alone is that of the first.

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
    ...     percent_of_gemm_only=ratio,
    ... )
    >>> found = pool_records([make(2.0, 90.0), make(4.0, 70.0), make(3.0, 80.0)])
    >>> found.median_s, found.percent_of_gemm_only, found.percent_of_gemm_only_min
    (3.0, 80.0, 70.0)
    """
    records = list(records)
    bad = next((record for record in records if record.status != "ok"), None)
    if bad is not None or len(records) == 1:
        return replace(bad or records[0], case=None)
    samples_of = [record.samples_s or [record.time_s] for record in records]
    share = min(max(1, 5 * MOST_REPEATS // len(records)), *map(len, samples_of))
    samples = list(chain.from_iterable(of_record[:share] for of_record in samples_of))
    with_percent = [record for record in records if record.percent_of_gemm_only is not None]
    percents = [record.percent_of_gemm_only for record in with_percent]
    first, changed = records[0], time_columns(samples, percents[1:] and percents)
    faster = first.time_s / changed["median_s"]
    for name in ("gflops", "percent_of_peak"):
        if value := getattr(first, name):
            changed[name] = value * faster
    for name, of in _POOLED:
        known = [value for record in records if (value := getattr(record, name)) is not None]
        changed[name] = of(known) if known else None
    if len(with_percent) > 1:
        changed |= ratio_columns(percents)
    elif with_percent:
        changed["stable"] = with_percent[0].stable
    changed["noisy"] = is_noisy_run(records)
    return replace(first, case=None, **changed)
