"""Two runs of the same cases: which became slower or faster beyond tolerance and noise. Pure; the
command is in ``compare_command``.

The rule for one case, with r = NEW time / OLD time:

* *slower* if r of the best repeats and r of the medians are both above 1 + tolerance, and noise
  does not explain it;
* *faster* if both are below 1 / (1 + tolerance), and noise does not explain it;
* *same* if neither; *noise* if both ratios leave the tolerance but noise explains it.

Noise explains a ratio if the 99 % bootstrap interval of the ratio of medians, over the samples of
both sides, holds 1, or if the ranges of the samples overlap by more than a quarter of their
samples. A side with fewer than three samples has no noise to take into account: the two ratios
decide alone, and the summary counts such cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from statistics import median
from zlib import crc32

import numpy

from drbench.errors import UsageError
from drbench.measure.record import HEADER, Record

__all__ = ["KEYS", "REGRESSIONS", "Pair", "compare", "summary"]

#: What tells a case from another: what was asked, but for who ran it, how often and where it was
#: written down.
KEYS = HEADER[HEADER.index("mode") : HEADER.index("status")]
_NOT_KEYS = {"machine", "iters", "warmup", "case", "environment", "nodes"}
KEYS = tuple(name for name in KEYS if name not in _NOT_KEYS)

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
REGRESSIONS = ("broken", "slower")

_FEWEST_SAMPLES, _RESAMPLES, _INTERVAL = 3, 1000, (0.5, 99.5)


@dataclass(frozen=True)
class Pair:
    """One case on both sides.

    Attributes
    ----------
    key : tuple
        Values of the fields compared by.
    old, new : Record or None
        Repeated runs of a case are merged: the smallest best time, all samples.
    outcome : str
        One of :data:`OUTCOMES`.
    best, median : float or None
        NEW time / OLD time.
    low, high : float or None
        Interval of the ratio of medians; None without noise to estimate it from.
    """

    key: tuple
    old: Record | None
    new: Record | None
    outcome: str
    best: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None


def compare(old: list[Record], new: list[Record], tolerance: float) -> tuple[list[Pair], list[str]]:
    """Match cases and judge each: (pairs, notes), worst first.

    Parameters
    ----------
    old, new : list of Record
    tolerance : float
        0.05 for five percent.

    Raises
    ------
    UsageError
        If a side is empty or no case is on both.

    Examples
    --------
    >>> def run(time, m):
    ...     return Record(
    ...         mode="measured", status="ok", m=m, best_s=time, median_s=time, samples_s=[time] * 5
    ...     )
    >>> pairs, _ = compare([run(1.0, 64), run(1.0, 128)], [run(1.2, 64), run(1.01, 128)], 0.05)
    >>> [(pair.new.m, pair.outcome, pair.best) for pair in pairs]
    [(64, 'slower', 1.2), (128, 'same', 1.01)]
    """
    for side, records in (("OLD", old), ("NEW", new)):
        if not records:
            raise UsageError(
                f"{side} holds no records. Give it a result file or the folder of a sweep that ran."
            )
    notes, fields = [], []
    for name in KEYS:
        filled = [any(getattr(record, name) is not None for record in side) for side in (old, new)]
        if filled == [True, True]:
            fields.append(name)
        elif any(filled):
            notes.append(
                f"not compared by {name}: {'NEW' if filled[0] else 'OLD'} does not record it"
            )
    sides = []
    for side, records in (("OLD", old), ("NEW", new)):
        merged, repeated = _merged(records, fields)
        if repeated:
            notes.append(f"{side}: {repeated} rows are repeated runs of a case, merged with it")
        sides.append(merged)
    first, second = sides
    if not first.keys() & second.keys():
        raise UsageError(
            f"no case of OLD ({len(first)}) is in NEW ({len(second)}): "
            f"{_difference(first, second, fields)}. Compare runs of one sweep."
        )
    machines = [sorted({record.machine or "unnamed" for record in side}) for side in (old, new)]
    if machines[0] != machines[1]:
        notes.append(f"machines differ: {', '.join(machines[0])} and {', '.join(machines[1])}")
    pairs = [_judge(key, first.get(key), second.get(key), tolerance) for key in {**first, **second}]
    pairs.sort(
        key=lambda pair: (OUTCOMES.index(pair.outcome), -_size(pair))
    )  # stable: else in the order of the files
    return pairs, notes


def summary(pairs: list[Pair]) -> dict:
    """Counts of outcomes, the medians of all ratios, and the ratio of the roofs (a slower machine,
    not slower code).

    Examples
    --------
    >>> def run(roof):
    ...     return Record(mode="measured", status="ok", best_s=1.0, median_s=1.0, roof_gflops=roof)
    >>> found = summary(compare([run(100.0)], [run(90.0)], 0.05)[0])
    >>> found["same"], found["best"], found["roof"], found["unknown_noise"]
    (1, 1.0, 0.9, 1)
    """
    both = [pair for pair in pairs if pair.best is not None]
    roofs = [
        pair.new.roof_gflops / pair.old.roof_gflops
        for pair in both
        if pair.new.roof_gflops and pair.old.roof_gflops
    ]
    medians = [pair.median for pair in both if pair.median is not None]
    return {
        **{outcome: sum(pair.outcome == outcome for pair in pairs) for outcome in OUTCOMES},
        "compared": len(both),
        "best": median(pair.best for pair in both) if both else None,
        "median": median(medians) if medians else None,
        "roof": median(roofs) if roofs else None,
        "unknown_noise": sum(pair.low is None for pair in both),
    }


def _merged(records: list[Record], fields: list[str]) -> tuple[dict[tuple, Record], int]:
    """Cases by their keys, with all samples of repeated runs; ok runs count where there are any."""
    found: dict[tuple, list[Record]] = {}
    for record in records:
        found.setdefault(tuple(getattr(record, name) for name in fields), []).append(record)
    return {key: _merge(runs) for key, runs in found.items()}, len(records) - len(found)


def _merge(runs: list[Record]) -> Record:
    if len(runs) == 1:
        return runs[0]
    ok = [record for record in runs if record.status == "ok"]
    if not ok:
        return runs[-1]
    best = min(ok, key=lambda record: record.best_s)
    samples = [time for record in ok for time in record.samples_s][:5000]
    times = samples or [record.median_s for record in ok if record.median_s]
    return replace(best, samples_s=samples, median_s=median(times) if times else best.median_s)


def _judge(key: tuple, old: Record | None, new: Record | None, tolerance: float) -> Pair:
    if old is None or new is None:
        return Pair(key, old, new, "new" if old is None else "missing")
    if "ok" not in (old.status, new.status) or old.status != new.status:
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
    low, high, explains = _noise(key, old.samples_s, new.samples_s)
    ratios = [best] if middle is None else [best, middle]
    slower, faster = (
        all(ratio > 1 + tolerance for ratio in ratios),
        all(ratio < 1 / (1 + tolerance) for ratio in ratios),
    )
    outcome = (
        "noise"
        if (slower or faster) and explains
        else "slower"
        if slower
        else "faster"
        if faster
        else "same"
    )
    return Pair(key, old, new, outcome, best, middle, low, high)


def _time(value: float | None) -> bool:
    return value is not None and isfinite(value) and value > 0


def _noise(
    key: tuple, old: list[float], new: list[float]
) -> tuple[float | None, float | None, bool]:
    """(low, high) of the ratio of medians, and whether noise explains a difference."""
    if min(len(old), len(new)) < _FEWEST_SAMPLES or not all(map(_time, [*old, *new])):
        return None, None, False
    draw = numpy.random.default_rng(
        crc32(repr(key).encode())
    )  # the same case gives the same interval
    middles = [
        numpy.median(draw.choice(numpy.asarray(side), (_RESAMPLES, len(side))), axis=1)
        for side in (old, new)
    ]
    low, high = (float(value) for value in numpy.percentile(middles[1] / middles[0], _INTERVAL))
    return low, high, low <= 1 <= high or overlap(old, new) > 0.25


def overlap(old: list[float], new: list[float]) -> float:
    """Share of all samples that lie inside the range of the other side's.

    Examples
    --------
    >>> overlap([1, 2, 3], [4, 5, 6]), overlap([1, 2, 3, 4], [4, 5, 6, 7]), overlap([1, 2], [1, 2])
    (0.0, 0.25, 1.0)
    """
    inside = sum(min(new) <= time <= max(new) for time in old) + sum(
        min(old) <= time <= max(old) for time in new
    )
    return inside / (len(old) + len(new))


def _size(pair: Pair) -> float:
    """How far from 1 the ratio of the best times is, for the order within an outcome."""
    return 0.0 if pair.best is None else max(pair.best, 1 / pair.best)


def _difference(first: dict, second: dict, fields: list[str]) -> str:
    for place, name in enumerate(fields):
        values = [{str(key[place]) for key in side} for side in (first, second)]
        if not values[0] & values[1]:
            return (
                f"{name} is {', '.join(sorted(values[0])[:3])} there and "
                f"{', '.join(sorted(values[1])[:3])} here"
            )
    return "their fields never agree together"
