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
from collections.abc import Collection, Mapping
from math import inf
from statistics import median
from typing import Any, NamedTuple

from drbench.common import grouped
from drbench.errors import UsageError, did_you_mean
from drbench.measure.noise import median_interval
from drbench.measure.record import IDENTITY, REQUEST, WHERE, WITH
from launch.cases.case import GOOD

#: Columns of the request in which no value is a value.
_FORM = "transpose alpha beta experts topk routing compute".split()

#: Outcomes in the order of the list: no longer ok, slower, faster, ok again, not ok in another way,
#: only in OLD, only in NEW, not ok as before or only in NEW, refused as before, a difference
#: explained by noise, no difference.
OUTCOMES = "broken slower faster fixed status missing new failing refused noise same".split()
#: Outcomes that fail a comparison,
REGRESSIONS = OUTCOMES[:2]
#: and those that do unless they are allowed, by the word for that; ``noisy``: if there is no other.
ALLOWED = {"missing": ["missing"], "failing": ["status", "failing"], "noisy": ["noise"]}
_DECIDED = "broken slower faster fixed same".split()

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


def sides(old, new, by: Mapping[str, str]) -> list:
    """The tables of OLD and NEW, reduced to the values of columns that are compared.

    Parameters
    ----------
    old, new : DataFrame of :func:`plots.select.records.read_records`
        Without ``new`` both sides are rows of ``old``.
    by : mapping of str to str
        For each column ``OLD,NEW``, its values there, or a part of each that no other has; empty:
        without ``new`` the two values that it has, else all.

    Raises
    ------
    UsageError
        If a column identifies no case, or the values are not two that it has.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> run = lambda threads: Record(mode="measured", status="ok", best_s=1.0, threads=threads)
    >>> table = frame([run(1), run(2), run(16)])
    >>> [side.threads.tolist() for side in sides(table, None, {"threads": "16,2"})]
    [[16], [2]]
    """
    found = [old, old if new is None else new]
    for name, values in by.items():
        if name not in IDENTITY:
            hint = did_you_mean(name, IDENTITY) or " docs/reference/records.md lists the columns."
            raise UsageError(f"--by {name}: it identifies no case.{hint}")
        texts = [[_text(value) for value in side[name].to_numpy(object)] for side in found]
        known = [sorted({*side}, key=lambda text: (text.zfill(20), text)) for side in texts]
        two = values.split(",") if values else known[0]
        if not values and new is not None:
            continue
        chosen = [
            [text] if text in each else [x for x in each if text and text in x]
            for text, each in zip(two, known)
        ]
        if len(two) != 2 or any(len(each) != 1 for each in chosen):
            described = " and ".join(dict.fromkeys(", ".join(map(repr, each)) for each in known))
            raise UsageError(
                f"--by {name}{values and f'={values}'}: it needs one value for each side; {name} "
                f"is {described}. Use --by {name}=OLD,NEW."
            )
        found = [
            side[[text == value for text in each]]
            for side, each, (value,) in zip(found, texts, chosen)
        ]
        new = found[1]  # the sides differ by now
    return found


def _text(value: Any) -> str:
    """A value as its cell; empty without one."""
    return (
        ""
        if value != value or value is None
        else str(value).lower()
        if value is True or value is False
        else str(value)
    )


def compare(old, new, tolerance: float, by: Collection[str] = ()) -> tuple[list[Pair], list[str]]:
    """Match cases and judge each: (pairs, notes), worst first.

    Cases match if their requests are equal. Where they ran must be equal if a side has several of
    that, what they ran with (BLAS, MPI) if a side has one case with several: rows of two machines
    are no repeats of a case, but a side may be another machine.

    Parameters
    ----------
    old, new : DataFrame of :func:`plots.select.records.read_records`, or list of Record
    tolerance : float
        0.05 for five percent.
    by : collection of str
        Columns that may differ: what is compared.

    Raises
    ------
    UsageError
        If a side is empty, no case is on both, or a case has several values of what is compared.

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
    from plots.select.rounds import completed

    tables = {"OLD": rows(frame(old)), "NEW": rows(frame(new))}
    for side, table in tables.items():
        if not table:
            raise UsageError(
                f"{side} has no records. Give a result file or the folder of a sweep that ran."
            )
    known = {name: [_values(table, name) for table in tables.values()] for name in IDENTITY}
    several = {name for name, both in known.items() if max(map(len, both)) > 1}
    compared = [name for name in (*REQUEST, *WHERE) if name not in by]
    fields = [
        name
        for name in compared
        if name in several or name in _FORM or (name in REQUEST and all(known[name]))
    ]
    notes = [
        f"not compared by {name}: {'NEW' if known[name][0] else 'OLD'} does not record it"
        for name in compared
        if name in REQUEST and name not in fields and any(known[name])
    ]
    key = lambda row: tuple(getattr(row, name) for name in fields)
    cases = [case for table in tables.values() for case in grouped(table, key).values()]
    fields += [
        name
        for name in WITH
        if name in several - {*by} and any(len(_values(case, name)) > 1 for case in cases)
    ]
    every = [row for table in tables.values() for row in table]
    keys = iter(completed([*map(key, every)], [row.status == "ok" for row in every]))
    merged = []
    for side, table in tables.items():
        runs = grouped(table, lambda row: next(keys))
        for name in by:
            for case in runs.values():
                if len(found := _values(case, name)) > 1:
                    texts = ", ".join(sorted(map(_text, found)))
                    raise UsageError(
                        f"--by {name}: {side} has a case with several ({texts}). Use --by "
                        f"{name}=OLD,NEW."
                    )
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
            f"{_difference(first, second, fields)}."
        )
    for name in (*by, *WHERE, *WITH):
        sets = [", ".join(sorted(map(_text, values))) or "unknown" for values in known[name]]
        if sets[0] != sets[1]:
            notes.append(f"{name} differs: {sets[0]} and {sets[1]}")
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


def failures(found: Mapping[str, Any], allowed: Collection[str] = ()) -> list[str]:
    """What fails a comparison, from its :func:`summary`; empty if nothing does.

    Examples
    --------
    >>> found = dict.fromkeys(OUTCOMES, 0) | {"noise": 8, "missing": 7}
    >>> failures(found), failures(found | {"same": 1}, ["missing"])
    (['7 missing (--allow missing)', 'nothing but noise (--allow noisy)'], [])
    """
    texts = [f"{found[name]} {name}" for name in REGRESSIONS if found[name]]
    for word, outcomes in ALLOWED.items():
        count = sum(found[name] for name in outcomes)
        if word == "noisy" and any(found[name] for name in _DECIDED):
            continue
        if count and word not in allowed:
            what = "nothing but noise" if word == "noisy" else f"{count} {word}"
            texts.append(f"{what} (--allow {word})")
    return texts


def _values(found: list, name: str) -> set:
    """The known values of a column."""
    return {getattr(row, name) for row in found} - {None}


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
        fails = old is None and new.status not in GOOD
        return Pair(old, new, "failing" if fails else "new" if old is None else "missing")
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
        values = [{_text(key[place]) for key in side} for side in (first, second)]
        if not values[0] & values[1]:
            there, here = (", ".join(sorted(each)[:3]) or "empty" for each in values)
            return f"{name} is {there} there and {here} here; --by {name} compares these"
    return "their fields never agree together. Compare runs of one sweep"
