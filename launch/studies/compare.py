"""Compare two runs of the same cases: which became slower or faster beyond tolerance and noise. The
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

from collections import Counter
from math import inf
from statistics import median
from typing import Any, NamedTuple

from drbench.common import grouped
from drbench.errors import UsageError
from drbench.measure.noise import median_interval
from drbench.measure.record import HEADER

#: Fields that identify a case: all of the request, except who ran it, how often and where it was
#: recorded.
KEYS = tuple(
    name
    for name in HEADER[HEADER.index("mode") : HEADER.index("status")]
    if name not in ("label", "machine", "iters", "warmup", "case", "environment", "nodes")
)

#: Outcomes in the order of the list: no longer ok, slower, faster, ok again, not ok in another way,
#: only in OLD, only in NEW, not ok as before, refused as before, a difference explained by noise,
#: no difference.
#: The first two fail a comparison.
OUTCOMES = "broken slower faster fixed status missing new failing refused noise same".split()
REGRESSIONS = OUTCOMES[:2]

_FEWEST_SAMPLES = 3


class Pair(NamedTuple):
    """One case on both sides.

    Attributes
    ----------
    old, new : row or None
        From :func:`plots.select.records.rows`. Repeated runs of a case are merged: the smallest
        best time, all samples.
    outcome : str
        One of :data:`OUTCOMES`.
    best, median : float or None
        NEW time / OLD time.
    low, high : float or None
        Interval of the ratio of medians; None without noise to estimate it from.
    """

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
    from plots.select.records import frame, rows

    tables = {"OLD": frame(old), "NEW": frame(new)}
    for side, table in tables.items():
        if table.empty:
            raise UsageError(
                f"{side} has no records. Give a result file or the folder of a sweep that ran."
            )
    before, now = (
        {name for name in KEYS if table[name].notna().any()} for table in tables.values()
    )
    fields = [name for name in KEYS if name in before & now]
    notes = [
        f"not compared by {name}: {'NEW' if name in before else 'OLD'} does not record it"
        for name in KEYS
        if name in before ^ now
    ]
    merged = []
    for side, table in tables.items():
        runs = grouped(rows(table), lambda row: tuple(getattr(row, name) for name in fields))
        counted = {key: _counted(each) for key, each in runs.items()}
        merged.append({key: _merged(each) for key, each in counted.items()})
        statuses = lambda found: Counter(row.status for each in found.values() for row in each)
        hidden = statuses(runs) - statuses(counted)
        del hidden["ok"]
        if hidden:
            message = ", ".join(f"{count} {status}" for status, count in hidden.most_common())
            notes.append(f"{side}: of cases that are ok in another row, {message} are not compared")
        if repeated := len(table) - len(runs):
            notes.append(f"{side}: {repeated} rows are repeated runs of a case, merged with it")
    first, second = merged
    if not first.keys() & second.keys():
        raise UsageError(
            f"no case of OLD ({len(first)}) is in NEW ({len(second)}): "
            f"{_difference(first, second, fields)}. Compare runs of one sweep."
        )
    labels = [sorted(table.label.fillna("unnamed").unique()) for table in tables.values()]
    if labels[0] != labels[1]:
        notes.append(f"labels differ: {', '.join(labels[0])} and {', '.join(labels[1])}")
    pairs = [_judge(first.get(key), second.get(key), tolerance) for key in {**first, **second}]
    # by the distance of the ratio of best times from 1; stable, otherwise in the order of the files
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
    ...     return Record(
    ...         mode="measured", status="ok", best_s=1.0, median_s=1.0, gemm_only_gflops=roof
    ...     )
    >>> found = summary(compare([run(100.0)], [run(90.0)], 0.05)[0])
    >>> found["same"], found["best"], found["gemm_only"], found["unknown_noise"]
    (1, 1.0, 0.9, 1)
    """
    text = [pair for pair in pairs if pair.best is not None]
    roofs = [(pair.new.gemm_only_gflops, pair.old.gemm_only_gflops) for pair in text]
    ratios = {
        "best": [pair.best for pair in text],
        "median": [pair.median for pair in text if pair.median is not None],
        "gemm_only": [new / old for new, old in roofs if new and old],
    }
    counts = Counter(pair.outcome for pair in pairs)
    return {
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "compared": len(text),
        **{name: median(values) if values else None for name, values in ratios.items()},
        "unknown_noise": sum(pair.low is None for pair in text),
    }


def _counted(runs: list) -> list:
    """The runs that represent their case: a wrong one if any; else those that are ok, if any."""
    for status in ("wrong", "ok"):
        if found := [run for run in runs if run.status == status]:
            return found
    return runs


def _merged(runs: list) -> Any:
    """The fastest ok run, with the samples of all, or else the last run."""
    best = min(runs, key=lambda run: run.best_s) if runs[0].status == "ok" else runs[-1]
    if best.status != "ok" or len(runs) == 1:
        return best
    samples = sum((run.samples_s for run in runs), [])[:5000]
    times = samples or [run.median_s for run in runs if _time(run.median_s)]
    middle = median(times) if times else best.median_s
    return best._replace(samples_s=samples, median_s=middle)


def _judge(old, new, tolerance: float) -> Pair:
    if old is None or new is None:
        return Pair(old, new, "new" if old is None else "missing")
    if not old.status == new.status == "ok":
        again = "refused" if new.status == "unsupported" else "failing"
        failing = again if old.status == new.status else "status"
        outcome = "broken" if old.status == "ok" else "fixed" if new.status == "ok" else failing
        return Pair(old, new, outcome)
    best = new.best_s / old.best_s
    middle = new.median_s / old.median_s if _time(old.median_s) and _time(new.median_s) else None
    repeats = [row.samples_s if row.mode == "measured" else [] for row in (old, new)]
    low, high = _interval(*repeats)
    ratios = [best] if middle is None else [best, middle]
    outcome = (
        "slower"
        if min(ratios) > 1 + tolerance
        else "faster"
        if max(ratios) < 1 / (1 + tolerance)
        else "same"
    )
    explains = old.noisy or new.noisy or low is not None and low <= 1 <= high
    if explains and outcome != "same":
        outcome = "noise"
    return Pair(old, new, outcome, best, middle, low, high)


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
