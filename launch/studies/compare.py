"""Two runs of the same cases: which became slower or faster beyond tolerance and noise. Pure; the
command is in ``launch/commands/results.py``.

The rule for one case, with r = NEW time / OLD time:

* *slower* if r of the best repeats and r of the medians are both above 1 + tolerance, and noise
  does not explain it;
* *faster* if both are below 1 / (1 + tolerance), and noise does not explain it;
* *same* if neither; *noise* if both ratios leave the tolerance but noise explains it.

Noise explains a ratio if a side is marked ``noisy``, or if the intervals of the two medians meet:
their 95 % intervals, or with fewer than six samples, which have none, their ranges. A side with
fewer than three samples has no noise to take into account: the two ratios decide alone, and the
summary counts such cases.
"""

from math import inf
from statistics import median
from typing import Any, NamedTuple

from drbench.errors import UsageError
from drbench.measure.noise import median_interval
from drbench.measure.record import HEADER

#: What tells a case from another: what was asked, but for who ran it, how often and where it was
#: written down.
KEYS = tuple(
    name
    for name in HEADER[HEADER.index("mode") : HEADER.index("status")]
    if name not in ("machine", "iters", "warmup", "case", "environment", "nodes")
)

#: Outcomes in the order they are listed: no longer ok, slower, faster, ok again, not ok in another
#: way, only in OLD, only in NEW, not ok as before, a difference that noise explains, no difference.
#: The first two fail a comparison.
OUTCOMES = (
    "broken",
    "slower",
    "faster",
    "fixed",
    "status",
    "missing",
    "new",
    "failing",
    "noise",
    "same",
)
REGRESSIONS = OUTCOMES[:2]

_FEWEST_SAMPLES = 3


class Pair(NamedTuple):
    """One case on both sides.

    Attributes
    ----------
    key : tuple
        Values of the fields compared by.
    old, new : row or None
        Of :func:`plots.select.records.rows`. Repeated runs of a case are
        merged: the smallest best time, all samples.
    outcome : str
        One of :data:`OUTCOMES`.
    best, median : float or None
        NEW time / OLD time.
    low, high : float or None
        Interval of the ratio of medians; None without noise to estimate it from.
    """

    key: tuple
    old: Any
    new: Any
    outcome: str
    best: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None


def compare(old, new, tolerance: float) -> tuple[list[Pair], list[str]]:
    """Match cases and judge each: (pairs, notes), worst first.

    Parameters
    ----------
    old, new : DataFrame of :func:`plots.select.records.read_records`, or list of Record
    tolerance : float
        0.05 for five percent.

    Raises
    ------
    UsageError
        If a side is empty or no case is on both.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> def run(time, m):
    ...     return Record(
    ...         mode="measured", status="ok", m=m, best_s=time, median_s=time, samples_s=[time] * 5
    ...     )
    >>> pairs, _ = compare([run(1.0, 64), run(1.0, 128)], [run(1.2, 64), run(1.01, 128)], 0.05)
    >>> [(pair.new.m, pair.outcome, pair.best) for pair in pairs]
    [(64, 'slower', 1.2), (128, 'same', 1.01)]
    """
    from pandas import DataFrame

    from plots.select.records import frame

    sides = {"OLD": frame(old), "NEW": frame(new)}
    for side, table in sides.items():
        if table.empty:
            raise UsageError(
                f"{side} holds no records. Give it a result file or the folder of a sweep that ran."
            )
    filled = DataFrame({side: table[[*KEYS]].notna().any() for side, table in sides.items()})
    fields = list(filled.index[filled.all(axis="columns")])
    notes = [
        f"not compared by {name}: {'NEW' if old else 'OLD'} does not record it"
        for name, old, new in filled.itertuples()
        if old != new
    ]
    merged = []
    for side, table in sides.items():
        counts = _counts(table, fields)
        merged.append(_merged(table[counts], fields))
        hidden = table.status[~counts & (table.status != "ok")].astype(str).value_counts()
        if len(hidden):
            said = ", ".join(f"{count} {status}" for status, count in hidden.items())
            notes.append(f"{side}: of cases that are ok in another row, {said} are not compared")
        if repeated := len(table) - len(merged[-1]):
            notes.append(f"{side}: {repeated} rows are repeated runs of a case, merged with it")
    first, second = merged
    if not first.keys() & second.keys():
        raise UsageError(
            f"no case of OLD ({len(first)}) is in NEW ({len(second)}): "
            f"{_difference(first, second, fields)}. Compare runs of one sweep."
        )
    machines = [sorted(table.machine.fillna("unnamed").unique()) for table in sides.values()]
    if machines[0] != machines[1]:
        notes.append(f"machines differ: {', '.join(machines[0])} and {', '.join(machines[1])}")
    pairs = [_judge(key, first.get(key), second.get(key), tolerance) for key in {**first, **second}]
    # how far from 1 the ratio of the best times is; stable: else in the order of the files
    size = lambda pair: max(pair.best, 1 / pair.best) if pair.best else 0
    pairs.sort(key=lambda pair: (OUTCOMES.index(pair.outcome), -size(pair)))
    return pairs, notes


def summary(pairs: list[Pair]) -> dict:
    """Counts of outcomes, the medians of all ratios, and the ratio of the roofs (a slower machine,
    not slower code).

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> def run(roof):
    ...     return Record(mode="measured", status="ok", best_s=1.0, median_s=1.0, roof_gflops=roof)
    >>> found = summary(compare([run(100.0)], [run(90.0)], 0.05)[0])
    >>> found["same"], found["best"], found["roof"], found["unknown_noise"]
    (1, 1.0, 0.9, 1)
    """
    told = [pair for pair in pairs if pair.best is not None]
    roofs = [(pair.new.roof_gflops, pair.old.roof_gflops) for pair in told]
    ratios = {
        "best": [pair.best for pair in told],
        "median": [pair.median for pair in told if pair.median is not None],
        "roof": [new / old for new, old in roofs if new and old],
    }
    return {
        **{outcome: sum(pair.outcome == outcome for pair in pairs) for outcome in OUTCOMES},
        "compared": len(told),
        **{name: median(values) if values else None for name, values in ratios.items()},
        "unknown_noise": sum(pair.low is None for pair in told),
    }


def _cases(table, fields: list[str]):
    """The number of the case of each row."""
    return table.groupby(fields, dropna=False, observed=True, sort=False).ngroup()


def _counts(table, fields: list[str]):
    """Whether a row stands for its case: a case is wrong if a run of it was; else ok runs count
    where there are any."""
    case, ok, wrong = _cases(table, fields), table.status == "ok", table.status == "wrong"
    any_ok, any_wrong = (some.groupby(case).transform("any") for some in (ok, wrong))
    return wrong | ~any_wrong & (ok | ~any_ok)


def _merged(table, fields: list[str]) -> dict[tuple, Any]:
    """Cases by their keys, with all samples of repeated runs, from rows that stand for them."""
    from plots.select.records import rows

    ok = table.status == "ok"
    group = _cases(table, fields)
    table = table.assign(group=group, time=table.best_s.where(ok), turn=range(len(table)))
    table.loc[~ok, "turn"] *= -1  # the best of those that are ok, else the last
    kept = table.sort_values("group", kind="stable")
    chosen = kept.sort_values(["group", "time", "turn"]).drop_duplicates("group").set_index("group")
    again = kept[(kept.status == "ok") & kept.duplicated("group", keep=False)]
    for case, runs in again.groupby("group"):
        samples = sum(runs.samples_s, [])[:5000]
        chosen.at[case, "samples_s"] = samples
        times = samples or list(runs.median_s[runs.median_s > 0])
        if times:
            chosen.at[case, "median_s"] = median(times)
    return {tuple(getattr(case, name) for name in fields): case for case in rows(chosen)}


def _judge(key: tuple, old, new, tolerance: float) -> Pair:
    if old is None or new is None:
        return Pair(key, old, new, "new" if old is None else "missing")
    if not old.status == new.status == "ok":
        outcome = (
            "broken"
            if old.status == "ok"
            else "fixed"
            if new.status == "ok"
            else "status"
            if old.status != new.status
            else "failing"
        )
        return Pair(key, old, new, outcome)
    best = new.best_s / old.best_s
    middle = new.median_s / old.median_s if _time(old.median_s) and _time(new.median_s) else None
    low, high = _interval(old.samples_s, new.samples_s)
    explains = old.noisy or new.noisy or low is not None and low <= 1 <= high
    ratios = [best] if middle is None else [best, middle]
    outcome = (
        "slower"
        if min(ratios) > 1 + tolerance
        else "faster"
        if max(ratios) < 1 / (1 + tolerance)
        else "same"
    )
    if explains and outcome != "same":
        outcome = "noise"
    return Pair(key, old, new, outcome, best, middle, low, high)


def _time(value: float | None) -> bool:
    return 0 < (value or 0) < inf


def _interval(old: list[float], new: list[float]) -> tuple[float, float] | tuple[None, None]:
    """(low, high) of the ratio of medians; None without noise to estimate it from."""
    if min(len(old), len(new)) < _FEWEST_SAMPLES or not all(map(_time, [*old, *new])):
        return None, None
    (old_low, old_high), (new_low, new_high) = (
        median_interval(side) or (min(side), max(side)) for side in (old, new)
    )
    return new_low / old_high, new_high / old_low


def _difference(first: dict, second: dict, fields: list[str]) -> str:
    for place, name in enumerate(fields):
        values = [{str(key[place]) for key in side} for side in (first, second)]
        if not values[0] & values[1]:
            return (
                f"{name} is {', '.join(sorted(values[0])[:3])} there and "
                f"{', '.join(sorted(values[1])[:3])} here"
            )
    return "their fields never agree together"
