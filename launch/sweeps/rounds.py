"""Rounds: contenders are measured in turn, each once a round, so that a drifting machine hurts all
alike; what is compared are ratios of times of the same round. Pure: nothing is run here.

Sweeps with ``rounds = "known"`` and ``tune --measure`` go on until the ratios to the fastest are
known (:func:`turns`); others make as many rounds as they are told, in the same order
(:func:`turned`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from drbench.measure.noise import (
    MOST_REPEATS,
    STABLE,
    Ratio,
    enough,
    is_noisy,
    ratio_columns,
    ratio_of,
    time_columns,
)
from drbench.measure.record import Record
from launch.cases.case import Case

from .estimate import OVERHEAD_S


def turned(items: Sequence, turn: int) -> list:
    """The order of a round, the first being turn 0: every second one is the last one backwards, so
    that a steady drift cancels in each two, and each two begin with another.

    Examples
    --------
    >>> [turned("abc", turn) for turn in range(4)]
    [['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'c', 'a'], ['a', 'c', 'b']]
    """
    first = turn // 2 % max(1, len(items))
    order = [*items[first:], *items[:first]]
    return order[::-1] if turn % 2 else order


def turn_name(turn: int, contender: str) -> str:
    """The name of a case in a round; the round is the number before the first blank.

    Examples
    --------
    >>> turn_name(0, "row"), turn_of(turn_name(6, "a | b"))
    ('1 | row', 6)
    """
    return f"{turn + 1} | {contender}"


def turn_of(name: str) -> int:
    """The turn of a name that :func:`turn_name` made."""
    return int(name.partition(" ")[0]) - 1


#: The seconds of a contender by turn.
Times = Mapping[int, float]


def paired(times: Mapping[str, Times]) -> tuple[str, dict[str, list[float]]]:
    """The contender with the smallest median time (a noisy one only if all are), and the ratio of
    each to it in every round that both have.

    Examples
    --------
    The machine takes twice as long in the second round:

    >>> paired({"slow": {0: 1.5, 1: 3.0}, "fast": {0: 1.0, 1: 2.0, 2: 1.0}})
    ('fast', {'slow': [1.5, 1.5], 'fast': [1.0, 1.0, 1.0]})
    """
    order = {
        name: (is_noisy([*found.values()]), median(found.values())) for name, found in times.items()
    }
    fastest = min(order, key=order.get)
    return fastest, {name: over(found, times[fastest]) for name, found in times.items()}


def over(times: Times, base: Times) -> list[float]:
    """One over the other in every round that has both.

    Examples
    --------
    >>> over({0: 3.0, 1: 5.0, 3: 1.0}, {0: 2.0, 1: 4.0, 2: 1.0})
    [1.5, 1.25]
    """
    return [seconds / base[turn] for turn, seconds in times.items() if turn in base]


def turn_case(case: Case, turn: int) -> Case:
    """What is run in a turn: one repeat; in the first, where there is a roof to compare with, all
    that the case asks for, once and for all.

    Examples
    --------
    >>> case = Case(8, 8, 8, roof=True, iters=5)
    >>> turn_case(case, 0) == case, turn_case(case, 1).iters, turn_case(case, 1).roof
    (True, 1, False)
    """
    whole = case.roof and turn == 0
    return case if whole else replace(case, iters=1, budget=0.0, roof=False)


def turns(
    groups: Iterable[Mapping[str, Case]],
    done: Mapping[str, Record],
    least: int,
    budget_s: float,
) -> Iterator[tuple[str, Case]]:
    """The next turn, again and again, until the ratio of every contender to the fastest of its
    group is known within 2 %, or its budget is spent. Pure: it looks at what is done.

    Parameters
    ----------
    groups : iterable of mapping of str to Case
        Contenders by name; those of a group are compared.
    done : mapping of str to Record
        By the names that are given here; each is there when the next is asked for.
    least : int
        Rounds that are made whatever they show.
    budget_s : float
        Seconds a contender may take in all its turns together, the first of one with a roof aside;
        0: exactly ``least`` rounds.

    Yields
    ------
    (str, Case)
        A name (:func:`turn_name`) and what is to be run. Who was not ok has no further turn.
    """
    groups = list(groups)
    cases = {name: case for group in groups for name, case in group.items()}
    left = [list(group) for group in groups]
    for turn in range(max(least, MOST_REPEATS)):
        for group in turned(left, turn):
            for name in turned(group, turn):
                yield turn_name(turn, name), turn_case(cases[name], turn)
        left = [_unknown(group, done, turn + 1, least, budget_s) for group in groups]
        if not any(left):
            return


def halving(
    group: Mapping[str, Case], done: Mapping[str, Record], least: int, budget_s: float
) -> Iterator[tuple[str, Case]]:
    """The next turn of a probe for the fastest: after ``least`` rounds, and again after as many as
    were made before, the slower half has no further turn. The last two go on until their ratio is
    known within 2 %, or that they differ by more, or a budget is spent: then it is a tie. Pure, and
    as of :func:`turns`, whose arguments these are, for one group.

    Notes
    -----
    Successive halving (Karnin, Koren and Somekh, ICML 2013): the turns go to those among whom it is
    hard to decide.

    Examples
    --------
    Four contenders, two rounds of all, then four of two:

    >>> done, ran = {}, []
    >>> for name, case in halving({x: Case(8, 8, 8) for x in "abcd"}, done, 2, 60.0):
    ...     seconds = 1.0 + "abcd".index(name[-1])
    ...     done[name] = Record(mode="measured", status="ok", best_s=seconds, samples_s=[seconds])
    ...     ran.append(name[-1])
    >>> "".join(ran)
    'abcddcbabaababba'
    """
    left, turn, until = list(group), 0, max(1, least)
    while left and turn < MOST_REPEATS:
        for name in turned(left, turn):
            yield turn_name(turn, name), turn_case(group[name], turn)
        turn += 1
        runs = {name: runs_of(name, done, turn) for name in left}
        left = [name for name in left if all(r.status == "ok" for r in runs[name].values())]
        if len(left) < 2:
            return
        fastest, ratios = paired({name: seconds_of(runs[name]) for name in left})
        if turn >= until and len(left) > 2:
            order = sorted(left, key=lambda name: (name != fastest, median(ratios[name])))
            left = [name for name in left if name in order[: -(-len(left) // 2)]]
            until = 2 * turn
        if len(left) == 2 and turn >= least:
            (other,) = (name for name in left if name != fastest)
            found = ratio_of(ratios[other])
            spent_s = max(_spent_s(runs[name]) for name in left)
            if found.low is not None and found.low > 1 + STABLE:
                return
            if enough(ratios[other], spent_s, least, budget_s):
                return


def _unknown(
    group: Iterable[str], done: Mapping[str, Record], rounds: int, least: int, budget_s: float
) -> list[str]:
    """Who has to go on: those whose ratio is not known, and the fastest to compare them with."""
    runs = {name: runs_of(name, done, rounds) for name in group}
    runs = {name: run for name, run in runs.items() if all(r.status == "ok" for r in run.values())}
    if not runs:
        return []
    fastest, ratios = paired({name: seconds_of(run) for name, run in runs.items()})
    if rounds < least:
        return list(runs)
    unknown = {
        name
        for name, run in runs.items()
        if name != fastest and not enough(ratios[name], _spent_s(run), least, budget_s)
    }
    return [name for name in runs if name in unknown or name == fastest] if unknown else []


def runs_of(name: str, done: Mapping[str, Record], rounds: int = MOST_REPEATS) -> dict[int, Record]:
    """The records of a contender by turn."""
    found = {turn: done.get(turn_name(turn, name)) for turn in range(rounds)}
    return {turn: record for turn, record in found.items() if record is not None}


def seconds_of(run: Mapping[int, Record]) -> Times:
    """The time of each turn: the first repeat of each turn: the first turn may have more."""
    return {turn: (record.samples_s or [record.time_s])[0] for turn, record in run.items()}


def _spent_s(run: Mapping[int, Record]) -> float:
    return sum(
        OVERHEAD_S + (1 + (run[turn].warmup or 0)) * seconds
        for turn, seconds in seconds_of(run).items()
    )


@dataclass(frozen=True)
class Standing:
    """How a contender fared.

    Attributes
    ----------
    record : Record
        Of all its rounds (:func:`pooled`).
    ratio : Ratio or None
        Its time over that of the fastest, in pairs; None if it has no time.
    fastest : bool
        Whether it is that one.
    given_up : bool
        A probe (:func:`halving`) gave it no further turn.
    """

    record: Record
    ratio: Ratio | None = None
    fastest: bool = False
    given_up: bool = False

    def __str__(self) -> str:
        """The ratio in words; empty without one.

        Examples
        --------
        >>> row = Record(mode="measured", status="ok", best_s=1.0)
        >>> for standing in (Standing(row, Ratio(1.02, 0.98, 1.05)), Standing(row, Ratio(1.02))):
        ...     print(standing)
        1.02 (0.98-1.05), not told apart
        1.02, not told apart
        >>> print(Standing(row, Ratio(1.0), True), "and", Standing(row, Ratio(1.2, 1.1, 1.3)))
        1 (the fastest) and 1.20 (1.10-1.30)
        """
        if self.ratio is None:
            return ""
        if self.fastest:
            return "1 (the fastest)"
        if self.given_up:
            return f"{self.ratio}, given up"
        return f"{self.ratio}{'' if self.ratio.apart else ', not told apart'}"

    def to_json_dict(self) -> dict:
        """The ratio, its interval, and whether that excludes 1, or this is the fastest."""
        ratio = self.ratio or Ratio(None)
        told = {"fastest": self.fastest, "told_apart": self.ratio is not None and ratio.apart}
        told["given_up"] = self.given_up
        return {"ratio": ratio.middle, "ratio_low": ratio.low, "ratio_high": ratio.high, **told}


def standings(runs: Sequence[Mapping[int, Record]]) -> list[Standing]:
    """How contenders fared, in their order, from their records by turn."""
    pools = [pooled(list(run.values())) for run in runs]
    times = {
        str(at): seconds_of(run)
        for at, (run, pool) in enumerate(zip(runs, pools))
        if pool.status == "ok"
    }
    if not times:
        return [Standing(pool) for pool in pools]
    most = max(map(len, times.values()))  # who was given up early is no fastest
    fastest, _ = paired({at: each for at, each in times.items() if len(each) == most})
    ratios = {at: over(each, times[fastest]) for at, each in times.items()}
    return [
        Standing(pool, ratio_of(ratios[at]), at == fastest, len(times[at]) < most)
        if at in ratios
        else Standing(pool)
        for at, pool in zip(map(str, range(len(pools))), pools)
    ]


def pooled(records: Sequence[Record]) -> Record:
    """One row of the rounds of a case: samples together, as many of each round as the round with
    the fewest has; percent of the roof as the median of the rounds that have it.

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
    bad = next((record for record in records if record.status != "ok"), None)
    if bad is not None or len(records) == 1:
        return replace(bad or records[0], case=None)
    samples_of = [record.samples_s or [record.time_s] for record in records]
    share = min(max(1, 5 * MOST_REPEATS // len(records)), *map(len, samples_of))
    samples = list(chain.from_iterable(found[:share] for found in samples_of))
    roofed = [record for record in records if record.percent_of_roof is not None]
    percents = [record.percent_of_roof for record in roofed]
    first, times = records[0], time_columns(samples, percents[1:] and percents)
    faster = first.time_s / times["median_s"]
    rate = first.gflops and first.gflops * faster
    changed = times | {"gflops": rate, "case": None}
    for name, of in (("cpu_s", median), ("core_share", median), ("disturbed", sum)):
        known = [value for each in records if (value := getattr(each, name)) is not None]
        changed[name] = of(known) if known else None
    if len(roofed) > 1:
        changed |= ratio_columns(percents)
    elif roofed:
        changed["stable"] = roofed[0].stable
    most = lambda rows: 2 * sum(bool(row.noisy) for row in rows) > len(rows)
    changed["noisy"] = is_noisy(samples) or most(roofed) or most(records)
    if first.percent_of_peak:
        changed["percent_of_peak"] = first.percent_of_peak * faster
    return replace(first, **changed)
