"""Cases over all their rounds, and the decision on who is fastest among them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from pandas import DataFrame, Series

from drbench.mappings import grouped
from drbench.measure.decision import (
    OK,
    UNDECIDED,
    Decision,
    Run,
    best_at,
    decide_compared,
    is_noisy_run,
    seconds_of,
    tie_order,
)
from drbench.measure.noise import time_columns
from drbench.measure.record import IDENTITY

from .cases import Source, cases
from .records import rows

#: Columns that define a problem: cases that differ in them are not comparable.
PROBLEM = "source shape compute transpose alpha beta experts topk routing".split()
#: The setting of a case of a problem: rows that agree in it are rounds of one case, or repeated
#: runs of it.
SETTING = [name for name in IDENTITY if name not in (*PROBLEM, *Source._fields, *"mnk")]

#: The round, with which names of cases in rounds begin.
_TURN = r"^(\d+) \| "
#: Between the rounds of two sweeps, which were not interleaved: more than any has.
_APART = 10**6
#: Columns of a case over all its rounds that differ from those of a round.
_CHANGED = "best_s median_s samples_s iqr_s median_low_s median_high_s stable".split()
_CHANGED += "time_s hollow once gflops percent_of_gemm_only percent_of_peak".split()


def merged(table: DataFrame) -> DataFrame:
    """One row for each case over all its rounds, with its rows by round in the column ``run``, its
    place among equal times in ``tie``, and in ``paired_s`` the time that puts cases of a problem in
    order: that of the best, times the ratio to it. The median of other rounds, in which the machine
    was faster, would put a slower case first.

    The row of a case that ran in rounds has the median time of all its rounds, and the interval of
    that median; it is otherwise the row of the round nearest to it. A case that is not ok in some
    round is not ok.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from drbench.plots.select.records import frame
    >>> case = lambda name, s: Record(mode="measured", status="ok", case=name, best_s=s)
    >>> (row,) = rows(merged(frame([case(f"{at} | x", 1.0 + at) for at in (1, 2, 3)])))
    >>> row.time_s, list(row.run), row.Index
    (3.0, [1, 2, 3], 1)
    """
    if "run" in table:
        return table
    table = table.assign(source=table.source.map(Source.on_known_nodes))
    every = dict(zip(table.index, rows(table)))
    turns = table.case.astype("string").str.extract(_TURN, expand=False)
    in_rounds = table[turns.notna()]
    keys = in_rounds[PROBLEM + SETTING].astype(object)
    keys = list(keys.where(keys.notna(), None).itertuples(index=False, name=None))
    keys = completed(keys, in_rounds.status == "ok")
    runs: dict[tuple, dict[int, Any]] = {}
    for place, setting in zip(in_rounds.index, keys):
        at = int(turns[place]) + _APART * every[place].sweep
        # two contenders may be one setting, such as a named matrix that is the default: the first
        runs.setdefault(setting, {}).setdefault(at, every[place])
    values_of: dict[Any, dict] = {}
    for run in runs.values():
        bad = [row for row in run.values() if row.status != "ok"]
        near = bad[0] if bad else _nearest(list(run.values()))
        values_of[near.Index] = ({} if bad else _over(run, near)) | {"run": run}
    for place in table.index[turns.isna()]:
        run = {at + _APART * every[place].sweep: row for at, row in every[place].rounds.items()}
        values_of[place] = {"run": run or {0: every[place]}}
        if run:
            values_of[place]["hollow"] = is_noisy_run(run.values())
    merged_rows = table.loc[[place for place in table.index if place in values_of]]
    changed = {
        name: Series(
            [values_of[place].get(name, value) for place, value in merged_rows[name].items()],
            merged_rows.index,
            merged_rows[name].dtype,
        )
        for name in _CHANGED
    }
    run = Series(
        [values_of[place]["run"] for place in merged_rows.index], merged_rows.index, object
    )
    order = [tie_order(every[place]) for place in merged_rows.index]
    place_of = {key: place for place, key in enumerate(sorted(set(order)))}
    merged_rows = merged_rows.assign(**changed, run=run, tie=[place_of[key] for key in order])
    paired_s = merged_rows.time_s.copy()
    several = merged_rows[(merged_rows.status == "ok") & run.map(len).gt(1)]
    for _, inside in several.groupby(PROBLEM, dropna=False, sort=False):
        decisions = decided(inside)
        for place, decision in zip(inside.index, decisions):
            if decision.ranked and decision.ratio:
                paired_s[place] = decision.ratio.middle * inside.time_s.iloc[best_at(decisions)]
    return merged_rows.assign(paired_s=paired_s)


def completed(keys: Sequence[tuple], ok: Iterable[bool]) -> list[tuple]:
    """The keys of rows, completed for those that are not ok, which do not know what drbench would
    have chosen: None and ``auto`` become the values of the only ok row that they agree with.

    Examples
    --------
    >>> completed([(8, 1, "rma"), (8, 2, "rma"), (8, None, "auto"), (8, 2, "auto")], [1, 1, 0, 0])
    [(8, 1, 'rma'), (8, 2, 'rma'), (8, None, 'auto'), (8, 2, 'rma')]
    """
    known = dict.fromkeys(key for key, fine in zip(keys, ok) if fine)
    given = [at for at, values in enumerate(zip(*keys)) if not {None, "auto"} & {*values}]
    always = lambda key: tuple(key[at] for at in given)
    alike = grouped(known, always)

    def complete(key: tuple) -> tuple:
        agrees = lambda other: all(x in (None, "auto", y) for x, y in zip(key, other))
        fits = list(filter(agrees, alike.get(always(key), ())))
        return fits[0] if len(fits) == 1 else key

    return list(map(complete, keys))


def _nearest(of: Sequence[Any]) -> Any:
    """The row nearest the median time of those that are not noisy."""
    sure = [row for row in of if not row.hollow] or of
    middle_s = median(row.time_s or 0.0 for row in sure)
    return min(sure, key=lambda row: abs((row.time_s or 0.0) - middle_s))


def _over(run: Run, near: Any) -> dict:
    """The columns of a case over its rounds that differ from those of the round near them."""
    columns = time_columns([*seconds_of(run).values()])
    percents = [
        row.percent_of_gemm_only for row in run.values() if row.percent_of_gemm_only is not None
    ]
    columns |= {"percent_of_gemm_only": median(percents)} if percents else {}
    columns |= {"time_s": columns["median_s"], "hollow": is_noisy_run(run.values()), "once": False}
    faster = near.time_s / columns["time_s"]
    rates = {name: getattr(near, name) for name in ("gflops", "percent_of_peak")}
    return columns | {name: value * faster for name, value in rates.items() if value}


def decided(table: DataFrame) -> list[Decision]:
    """The decision on each row of :func:`merged` of one problem; one that is compared with no
    other is not ranked."""
    uncompared = Decision(UNDECIDED, None, OK, False)
    return [decision or uncompared for decision in decide_compared(list(table.run))]


def counted(answers: Iterable[str], what: str = "shape") -> str:
    """The decisions on several problems in one sentence.

    Examples
    --------
    >>> counted(["a is fastest, 2 ms", "tied: a, b", "tied: b, c"])
    'A is fastest on 1, tied on 2 of 3 shapes'
    """
    counts = Counter(re.split("[:,]", text, maxsplit=1)[0] for text in answers)
    text = ", ".join(f"{state} on {count}" for state, count in counts.items())
    return f"{text[0].upper()}{text[1:]} of {cases(counts.total(), what)}"
