"""Who is fastest: the one decision that tables, titles, reports and commands ask for. Pure.

Cases that ran in interleaved rounds are compared by the ratios of their times in the same round: a
drift of the machine changes both. The smallest difference that counts is the drift *d*: the median
over rounds of \\|GEMM-only speed of a round ÷ that of the round before − 1\\|. Without that speed
it is not known, and no case is tied. With the 95 % interval of the median ratio of a case to the
best (of fewer than six rounds there is none), the case is

- **tied** with the best if the interval is within 1 ± d;
- **slower** if it is above 1 and reaches beyond 1 + d;
- else **undecided**.

The best is **fastest** if all others are slower. Cases with unequal numbers of rounds are compared
in the rounds that both have.

*Rows measured one after the other* say less: the machine may have changed in between, and only the
GEMM-only speed next to each shows how much. The interval of their ratio is made of the intervals of
both medians and widened by the ratio of both GEMM-only speeds: above 1 the case is slower, else it
is undecided. They never show a tie.

*Predictions* are tied if the interval of their ratio contains 1, else slower: no further round
would change that. Guessed constants vary together in both, where records have the times with other
constants; the rest of the intervals is independent. Predictions without intervals are compared by
their times alone.

Noisy, oversubscribed and failed cases are never ranked. Oversubscribed ones get ratios to their
like.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp, log
from statistics import median
from typing import Any, NamedTuple

from .noise import FEWEST, MOST_REPEATS, Ratio, is_noisy, measured_once, ratio_of
from .record import OPTION_COLUMNS

FASTEST, TIED, SLOWER, UNDECIDED = "fastest", "tied", "slower", "undecided"

#: Marks of states in tables: the others say nothing that the ratio does not.
MARKS = {TIED: "=", UNDECIDED: "?"}

#: What would decide: more rounds, rounds instead of one case after the other, or other conditions.
ROUNDS, INTERLEAVED = "more rounds", "interleaved rounds"
SPEEDS = "more rounds with their GEMM-only speed"
QUIET, CORES, OK = "a quiet machine", "a core for each rank", "a run that is ok"
REPEATS, SOURCES = "more repeats", "a measurement of both on one machine"

#: The rows of a case by round; one row for a case that ran once, in round 0.
Run = Mapping[int, Any]
#: The seconds of a case by round.
Times = Mapping[int, float]


class Decision(NamedTuple):
    """What the records of a problem tell about one of its cases.

    Attributes
    ----------
    state : str
        ``fastest``, ``tied``, ``slower`` or ``undecided``.
    ratio : Ratio or None
        Its time over that of the best; None without a time.
    needs : str
        What would decide it, if it is undecided.
    ranked : bool
        Whether its time can be trusted; if not, it is undecided and in no title.
    best : bool
        Whether the others are compared with it.
    """

    state: str
    ratio: Ratio | None = None
    needs: str = ""
    ranked: bool = True
    best: bool = False

    def __str__(self) -> str:
        """The ratio, and the mark of the state.

        Examples
        --------
        >>> slower, tied = Decision(SLOWER, Ratio(1.2, 1.1, 1.3)), Decision(TIED, best=True)
        >>> print(slower, "and", tied, "and", Decision(UNDECIDED, Ratio(1.02), ROUNDS))
        1.20 (1.10-1.30) and 1 = and 1.02 ?
        """
        ratio = "1" if self.best else "" if self.ratio is None else str(self.ratio)
        return f"{ratio} {MARKS.get(self.state, '')}".strip()

    def to_json_dict(self) -> dict:
        """The state, what would decide, and the ratio with its interval."""
        ratio = self.ratio or Ratio(None)
        values = {"ratio": ratio.middle, "ratio_low": ratio.low, "ratio_high": ratio.high}
        return {"state": self.state, "needs": self.needs or None, **values}


def decide(runs: Sequence[Run], dropped: Collection[int] = ()) -> list[Decision]:
    """Decide which of the cases of one problem is the fastest.

    Parameters
    ----------
    runs : sequence of mapping
        For each case its rows by round: Records, or rows of a table of records.
    dropped : collection of int
        Places of cases that a sweep dropped because they were slower: none of them is the best.

    Returns
    -------
    list of Decision
        In the order of the cases.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> def run(*times_s):
    ...     rows = (Record(mode="measured", status="ok", best_s=s) for s in times_s)
    ...     return dict(enumerate(rows))

    The machine becomes a third slower in every second round, with all cases:

    >>> slow = [1.0, 1.5] * 3
    >>> cases = [run(*slow), run(*(1.1 * s for s in slow)), run(1.2, 1.9)]
    >>> [x.state for x in decide(cases[:2])], [x.state for x in decide(cases)]
    (['fastest', 'slower'], ['undecided', 'slower', 'undecided'])
    """
    decisions: list[Decision] = [Decision(UNDECIDED, None, OK, False)] * len(runs)
    for shared in (True, False):
        mine = {
            at: _doubt(run)
            for at, run in enumerate(runs)
            if _is_timed(run) and _is_shared(run) is shared
        }
        sure = [at for at, doubt in mine.items() if not doubt] or list(mine)
        if not sure:
            continue
        best = _best([at for at in sure if at not in dropped] or sure, runs)
        drift = drift_of([runs[at] for at in sure])
        for at, doubt in mine.items():
            state, ratio, needs = _compare(runs[at], runs[best], drift)
            if doubt or shared:
                state, needs = UNDECIDED, doubt or CORES
            decisions[at] = Decision(state, ratio, needs, not (doubt or shared))
        others = [decision for at, decision in enumerate(decisions) if at != best]
        decisions[best] = _of_best(decisions[best], others)
    return decisions


def compared(runs: Sequence[Run]) -> list[bool]:
    """Which cases of one shape are compared: on several ranks those that move nothing are another
    problem, for an operand is on all ranks; unless all are such, or all have the same tiles.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> known = {"mode": "measured", "status": "ok", "best_s": 1.0, "ranks": 2}
    >>> rows = [Record(**known, a=a, get_bytes=b) for a, b in (("R", 0), ("row", 8), ("R", 8))]
    >>> runs = [{0: row} for row in rows]
    >>> compared(runs), compared(runs[::2])
    ([False, True, True], [True, True])
    """
    first = [next(iter(run.values())) for run in runs]
    local = [row.moved_bytes == 0 and row.ranks != 1 for row in first]
    alike = all(local) or len({(row.a, row.b, row.c) for row in first}) == 1
    return [alike or not is_local for is_local in local]


def decide_compared(runs: Sequence[Run]) -> list[Decision | None]:
    """The decisions on the cases that are :func:`compared`; None for the others."""
    takes = compared(runs)
    decisions = iter(decide([run for run, taken in zip(runs, takes) if taken]))
    return [next(decisions) if taken else None for taken in takes]


def _of_best(mine: Decision, others: Sequence[Decision]) -> Decision:
    """The decision on the best, from those on the others."""
    ranked = [decision for decision in others if decision.ranked]
    mine = mine._replace(ratio=Ratio(1.0), best=True)
    if not mine.ranked:
        return mine
    # with noisy cases alone it is compared with nothing; failed ones are no cases
    rivals = ranked or [decision for decision in others if decision.ratio]
    needs = [decision.needs for decision in rivals if decision.state == UNDECIDED]
    if needs:
        return mine._replace(state=UNDECIDED, needs=needs[0])
    is_tied = any(decision.state == TIED for decision in ranked)
    return mine._replace(state=TIED if is_tied else FASTEST, needs="")


def best_at(decisions: Sequence[Decision]) -> int | None:
    """The place of the best ranked case; None if none is ranked."""
    return next(
        (at for at, decision in enumerate(decisions) if decision.best and decision.ranked), None
    )


def leaders(decisions: Sequence[Decision]) -> list[int]:
    """The places of all ranked cases that may be the fastest, the best first."""
    best = best_at(decisions)
    if best is None:
        return []
    near = [
        at
        for at, decision in enumerate(decisions)
        if at != best and decision.ranked and decision.state != SLOWER
    ]
    return [best, *sorted(near, key=lambda at: decisions[at].ratio.middle)]


def answer(decisions: Sequence[Decision], names: Sequence[str], most: int = 3) -> str:
    """The decision in words, with at most some names.

    Examples
    --------
    >>> best, near = Decision(TIED, Ratio(1.0), best=True), Decision(TIED, Ratio(1.01))
    >>> answer([near, best], ["a", "b"])
    'tied: b, a'
    >>> unsure = Decision(UNDECIDED, Ratio(1.01), ROUNDS)
    >>> answer([best._replace(state=UNDECIDED), unsure, unsure], "abc", 2)
    'undecided: a, b and 1 more'
    >>> fastest, slower = best._replace(state=FASTEST), Decision(SLOWER, Ratio(1.1))
    >>> answer([fastest, slower], "ab"), answer([fastest], "a")
    ('a is fastest', 'only a')
    >>> answer([Decision(UNDECIDED, Ratio(1.0), QUIET, False, True)], "a")
    'nothing is ranked'
    """
    first = leaders(decisions)
    if not first:
        return "nothing is ranked"
    state = decisions[first[0]].state
    if state == FASTEST:  # which means nothing of one case
        name, alone = (
            names[first[0]],
            sum(decision.ratio is not None for decision in decisions) == 1,
        )
        return f"only {name}" if alone else f"{name} is fastest"
    known = list(dict.fromkeys(names[at] for at in first))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{state}: {', '.join(known[:most])}{more}"


def remedy(*problems: Sequence[Decision]) -> str:
    """What would decide problems that are not decided; empty if all are.

    Examples
    --------
    >>> remedy([Decision(UNDECIDED, Ratio(1.0), ROUNDS, best=True)], [Decision(FASTEST, best=True)])
    'more rounds would decide'
    """
    best = (
        next((decision for decision in decisions if decision.best), None) for decisions in problems
    )
    needs = dict.fromkeys(decision.needs if decision else OK for decision in best)
    needs.pop("", None)
    return f"{', or '.join(needs)} would decide" if needs else ""


def drift_of(runs: Iterable[Run]) -> float | None:
    """The drift of the machine from a round to the next, as a share; None without the GEMM-only
    speed of two rounds.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> known = {"mode": "measured", "status": "ok", "best_s": 1.0}
    >>> rows = [Record(**known, gemm_only_gflops=speed) for speed in (100.0, 101.0, 99.0)]
    >>> round(drift_of([dict(enumerate(rows))]), 4)
    0.0149
    """
    changes = [
        abs(_speed(row) / _speed(run[at - 1]) - 1)
        for run in runs
        for at, row in run.items()
        if at - 1 in run and _speed(row) and _speed(run[at - 1])
    ]
    return median(changes) if changes else None


def best_of(times: Mapping[Any, Times]) -> Any:
    """The contender that no other beats: in the median of the rounds that both have, each other
    takes at least as long. If all are beaten by some other, one of these; of equal ones the first.
    With too few rounds for an interval it is one only if all have too few.

    Examples
    --------
    The second ran only while the machine was fast:

    >>> best_of({"a": {0: 1.0, 1: 1.0, 2: 5.0, 3: 5.0}, "b": {0: 1.2, 1: 1.3}})
    'a'
    """
    enough = [name for name in times if len(times[name]) >= FEWEST] or times
    first, *others = sorted(enough, key=lambda name: median(times[name].values()))
    for name in others:
        ratios = over(times[name], times[first])
        if ratios and median(ratios) < 1:
            first = name
    return first


def _best(places: Iterable[int], runs: Sequence[Run]) -> int:
    first = lambda at: tie_order(next(iter(runs[at].values())))
    return best_of({at: seconds_of(runs[at]) for at in sorted(places, key=first)})


def tie_order(row: Any) -> tuple:
    """The order of cases with equal times, everywhere: Stationary C, B, A, small replication
    factors first, then by name.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> known = {"mode": "measured", "status": "ok", "best_s": 1.0}
    >>> rows = [Record(**known, stationary=x, a=a) for x, a in zip("BCC", ("row", "row/c2", "row"))]
    >>> [rows.index(row) for row in sorted(rows, key=tie_order)]
    [2, 1, 0]
    """
    text = lambda name: str(getattr(row, name) or "")
    factors = [re.search(r"/c(\d{1,9})$", text(name)) for name in "abc"]
    stationary = "CBA".find(text("stationary").upper()) % 4  # none: last
    return (
        stationary,
        *(int(factor[1]) if factor else 1 for factor in factors),
        *map(text, ("algorithm", "preset", *"abc", *OPTION_COLUMNS, "case")),
    )


def over(times: Times, base: Times) -> list[float]:
    """The ratios of times to base in every round that has both.

    Examples
    --------
    >>> over({0: 3.0, 1: 5.0, 3: 1.0}, {0: 2.0, 1: 4.0, 2: 1.0})
    [1.5, 1.25]
    """
    return [seconds / base[at] for at, seconds in times.items() if at in base]


def seconds_of(run: Run) -> Times:
    """The time of a case in each round."""
    return {at: row.time_s for at, row in run.items()}


def is_noisy_run(rows: Iterable[Any]) -> bool:
    """Whether most rounds of a case are noisy, or most of those with their GEMM-only speed, or its
    percentages of that differ too much. Times that differ are no noise: their ratios to times of
    other cases in the same rounds need not."""
    noisy = [(bool(row.noisy), row.percent_of_gemm_only) for row in rows]
    percents = [percent for _, percent in noisy if percent is not None]
    if len(noisy) == len(percents) > 1 and is_noisy((), percents):
        return True
    most = lambda marks: 2 * sum(marks) > len(marks)
    return most([mark for mark, _ in noisy]) or most([mark for mark, known in noisy if known])


def _is_timed(run: Run) -> bool:
    return bool(run) and all(row.status == "ok" and (row.time_s or 0) > 0 for row in run.values())


def _is_shared(run: Run) -> bool:
    """Whether ranks shared cores in some round."""
    return any(bool(row.oversubscribed) for row in run.values())


def _doubt(run: Run) -> str:
    """What a case needs before its time can be trusted; empty if nothing."""
    if is_noisy_run(run.values()):
        return QUIET
    if len(run) > 1:
        return ""
    (row,) = run.values()
    once = measured_once(row.mode, row.samples_s, row.case)
    return REPEATS if once else ""


def _speed(row: Any) -> float:
    """The GEMM-only speed that was measured next to a row; 0 if none was."""
    return row.gemm_only_gflops or 0.0


def _compare(run: Run, best: Run, drift: float | None) -> tuple[str, Ratio, str]:
    """The state of a case next to the best, its ratio, and what would decide it."""
    mine, other = next(iter(run.values())), next(iter(best.values()))
    if run is best:
        return TIED, Ratio(1.0), ""
    modes = {mine.mode, other.mode}
    if modes == {"simulated"}:
        ratio = _predicted(mine, other)
        return SLOWER if ratio.low > 1 else TIED, ratio, ""
    if modes != {"measured"}:
        return UNDECIDED, Ratio(mine.time_s / other.time_s), SOURCES
    if len(run) == len(best) == 1:
        ratio = _one_after_the_other(mine, other)
        is_slower = ratio.low is not None and ratio.low > 1
        return (SLOWER, ratio, "") if is_slower else (UNDECIDED, ratio, INTERLEAVED)
    ratios = over(seconds_of(run), seconds_of(best))
    if not ratios:
        middle_s, base_s = (median(seconds_of(rows).values()) for rows in (run, best))
        return UNDECIDED, Ratio(middle_s / base_s), INTERLEAVED
    ratio = ratio_of(ratios)
    state, more = state_of(ratio, drift), ROUNDS if drift is not None else SPEEDS
    if len(ratios) >= MOST_REPEATS:
        more = QUIET
    return state, ratio, more if state == UNDECIDED else ""


def state_of(ratio: Ratio, drift: float | None) -> str:
    """The state of a case, from the ratios of its times to those of the best in the same rounds and
    the drift of the machine between rounds.

    Examples
    --------
    >>> ratios = Ratio(1.0, 0.99, 1.01), Ratio(1.02, 1.01, 1.03), Ratio(1.0, 0.98, 1.02), Ratio(2.0)
    >>> [state_of(ratio, 0.01) for ratio in ratios]
    ['tied', 'slower', 'undecided', 'undecided']
    """
    if ratio.low is None or ratio.high is None:
        return UNDECIDED
    limit = drift or 0.0
    if 1 - limit <= ratio.low and ratio.high <= 1 + limit:
        return TIED
    return SLOWER if ratio.low > 1 else UNDECIDED


def _one_after_the_other(mine: Any, other: Any) -> Ratio:
    """The ratio of two rows of different minutes, with an interval if both have one, and the
    GEMM-only speed of both is known."""
    middle, speeds = mine.time_s / other.time_s, (_speed(mine), _speed(other))
    ends = [_ends(row) for row in (mine, other)]
    if not all(speeds) or None in ends:
        return Ratio(middle)
    (low, high), (least, most) = ends
    change = max(speeds) / min(speeds)
    return Ratio(middle, low / most / change, high / least * change)


def _predicted(mine: Any, other: Any) -> Ratio:
    """The ratio of two predictions; exact without intervals.

    Examples
    --------
    Both times change alike with the guessed constants, which make most of their intervals:

    >>> from drbench.measure.record import Record
    >>> known = {"mode": "simulated", "status": "ok"}
    >>> make = lambda s, *more: Record(
    ...     **known, best_s=s, median_low_s=0.5 * s, median_high_s=2.0 * s, samples_s=[s, *more]
    ... )
    >>> print(_predicted(make(1.1, 0.55, 2.2), make(1.0, 0.51, 2.0)))
    1.10 (1.08-1.30)
    >>> print(_predicted(make(1.1), make(1.0)))
    1.10 (0.41-2.93)
    """
    ratio, rows = mine.time_s / other.time_s, (mine, other)
    own = [_spread(row.samples_s) for row in rows]
    if len(mine.samples_s) != len(other.samples_s) or mine.machine != other.machine:
        own = [[], []]
    shared = [a / b for a, b in zip(mine.samples_s, other.samples_s)] if any(own) else []
    ends = [[log(end / row.time_s) for end in _ends(row) or [row.time_s] * 2] for row in rows]
    # what is left of each interval are errors of each prediction alone
    left = [
        [max(0.0, end[at] ** 2 - sum(factor[at] ** 2 for factor in known)) for at in (0, 1)]
        for end, known in zip(ends, own)
    ]
    (low, high), (least, most) = left
    below, above = (sum(factor[at] ** 2 for factor in _spread(shared)) for at in (0, 1))
    return Ratio(
        ratio,
        ratio * exp(-((low + most + below) ** 0.5)),
        ratio * exp((high + least + above) ** 0.5),
    )


def _spread(times: Sequence[float]) -> list[tuple[float, float]]:
    """How far a time changes with the guessed constants, and with the sharing of links: logarithms
    of the least and the largest factor of each."""
    logs = [[log(time / times[0]) for time in group] for group in (times[1:3], times[3:])]
    return [(min(0.0, *factors), max(0.0, *factors)) for factors in logs if factors]


def _ends(row: Any) -> tuple[float, float] | None:
    """The interval of the time of a row, if it has one."""
    ends = row.median_low_s, row.median_high_s
    return ends if all((end or 0) > 0 for end in ends) else None
