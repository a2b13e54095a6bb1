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

from drbench.errors import UsageError, did_you_mean
from drbench.launch.cases.case import GOOD
from drbench.mappings import grouped
from drbench.measure.noise import median_interval
from drbench.measure.record import IDENTITY, KINDS, REQUEST, WHERE, WITH

#: Columns of the request in which no value is a value.
_FORM = "transpose alpha beta experts topk routing compute".split()

#: Outcomes in the order of the list: no longer ok, slower, faster, ok again, not ok in another way,
#: only in OLD, only in NEW, not ok as before or only in NEW, refused as before, a difference
#: explained by noise, no difference.
OUTCOMES = "broken slower faster fixed status missing new failing refused noise same".split()
#: Outcomes that fail a comparison,
REGRESSIONS = "broken", "slower", "outside"
#: and those that do unless they are allowed, by the word for that; ``noisy``: if there is no other.
ALLOWED = {"missing": ["missing"], "failing": ["status", "failing"], "noisy": ["noise"]}
_DECIDED = "broken slower faster fixed same outside inside".split()

_FEWEST_SAMPLES = 3


class Pair(NamedTuple):
    """One case on both sides.

    Attributes
    ----------
    old, new : row or None
        From :func:`drbench.plots.select.records.rows`. Repeated runs of a case are merged: the
        smallest best time, all samples.
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


def select_sides(old, new, by: Mapping[str, str]) -> list:
    """The rows of OLD and NEW, reduced to the values of columns that are compared.

    Parameters
    ----------
    old, new : DataFrame of :func:`drbench.plots.select.records.read_records`
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
    >>> from drbench.plots.select.records import frame
    >>> run = lambda threads: Record(mode="measured", status="ok", best_s=1.0, threads=threads)
    >>> table = frame([run(1), run(2), run(16)])
    >>> [[row.threads for row in side] for side in select_sides(table, None, {"threads": "16,2"})]
    [[16], [2]]
    """
    from drbench.plots.select.records import rows

    both = [rows(old), rows(old if new is None else new)]
    for name, values in by.items():
        if name not in IDENTITY:
            hint = did_you_mean(name, IDENTITY) or " docs/reference/records.md lists the columns."
            raise UsageError(f"--by {name}: it identifies no case.{hint}")
        if not values and new is not None:
            continue
        known = [
            sorted({_text(row, name) for row in side}, key=lambda text: (len(text), text))
            for side in both
        ]
        two = values.split(",") if values else known[0]
        chosen = [
            [text] if text in texts else [x for x in texts if text and text in x]
            for text, texts in zip(two, known)
        ]
        if [len(two), *map(len, chosen)] != [2, 1, 1]:
            raise UsageError(
                f"--by {name}{values and '='}{values}: it needs one value for each side, and there "
                f"are {', '.join(map(repr, known[0] + known[1]))}. Use --by {name}=OLD,NEW."
            )
        both = [[x for x in rows if [_text(x, name)] == y] for rows, y in zip(both, chosen)]
        new = both
    return both


def _text(row: Any, name: str) -> str:
    """The value of a column as in a cell."""
    value = getattr(row, name)
    return "" if value is None else KINDS[name].write(value)


def compare(old, new, tolerance: float, by: Collection[str] = ()) -> tuple[list[Pair], list[str]]:
    """Match cases and judge each: (pairs, notes), worst first.

    Cases match if their requests are equal. Where they ran must be equal if a side has several of
    that, what they ran with (BLAS, MPI) if a side has one case with several: rows of two machines
    are no repeats of a case, but a side may be another machine.

    Parameters
    ----------
    old, new : DataFrame of :func:`drbench.plots.select.records.read_records`, or list of Record
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
    from drbench.plots.select.records import frame, rows
    from drbench.plots.select.rounds import completed

    tables = {"OLD": rows(frame(old)), "NEW": rows(frame(new))}
    for side, table in tables.items():
        if not table:
            raise UsageError(
                f"{side} has no records. Give a result file or the folder of a sweep that ran."
            )
    known = {name: [_values(table, name) for table in tables.values()] for name in IDENTITY}
    fields, notes = [], []
    for name in (*REQUEST, *WHERE):
        first, second = map(len, known[name])
        if name in by:
            continue
        if max(first, second) > 1 or name in _FORM or (name in REQUEST and first and second):
            fields.append(name)
        elif name in REQUEST and first + second:
            side = "NEW" if first else "OLD"
            notes.append(f"not compared by {name}: {side} does not record it")
    key = lambda row: tuple(getattr(row, name) for name in fields)
    cases = [case for table in tables.values() for case in grouped(table, key).values()]
    several = lambda name: any(len(_values(case, name)) > 1 for case in cases)
    if name := next(filter(several, by), None):
        raise UsageError(f"--by {name}: a side has cases with several. Use --by {name}=OLD,NEW.")
    fields += [name for name in WITH if name not in by and several(name)]
    every = [row for table in tables.values() for row in table]
    keys = iter(completed([*map(key, every)], [row.status == "ok" for row in every]))
    merged = []
    for side, table in tables.items():
        runs = grouped(table, lambda row: next(keys))
        counted = {key: _counted(rows_of_case) for key, rows_of_case in runs.items()}
        merged.append({key: _merged(rows_of_case) for key, rows_of_case in counted.items()})
        statuses = lambda by_case: Counter(
            row.status for rows_of_case in by_case.values() for row in rows_of_case
        )
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
        there, here = (", ".join(sorted(map(str, values))) for values in known[name])
        if there and here and there != here:
            notes.append(f"{name} differs: {there} and {here}")
    pairs = [_judge(first.get(key), second.get(key), tolerance) for key in {**first, **second}]
    # by the distance of the ratio of best times from 1; stable, otherwise in the order of the files
    size = lambda pair: max(pair.best, 1 / pair.best) if pair.best else 0
    pairs.sort(key=lambda pair: (OUTCOMES.index(pair.outcome), -size(pair)))
    return pairs, notes


def summarise(pairs: list[Pair]) -> dict:
    """Counts of outcomes, the medians of all ratios, and the ratio of the roofs (a slower machine,
    not slower code).

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> def run(roof):
    ...     return Record(
    ...         mode="measured", status="ok", best_s=1.0, median_s=1.0, gemm_only_gflops=roof
    ...     )
    >>> found = summarise(compare([run(100.0)], [run(90.0)], 0.05)[0])
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


def list_failures(totals: Mapping[str, Any], allowed: Collection[str] = ()) -> list[str]:
    """What fails a comparison, from the counts of its outcomes; empty if nothing does.

    Examples
    --------
    >>> found = dict.fromkeys(OUTCOMES, 0) | {"noise": 8, "missing": 7}
    >>> list_failures(found), list_failures(found | {"same": 1}, ["missing"])
    (['7 missing (--allow missing)', '8 noisy (--allow noisy)'], [])
    """
    counts = {word: sum(totals[name] for name in outcomes) for word, outcomes in ALLOWED.items()}
    if any(map(totals.get, _DECIDED)):
        counts["noisy"] = 0
    texts = [f"{totals[name]} {name}" for name in REGRESSIONS if totals.get(name)]
    counted = [(word, n) for word, n in counts.items() if n and word not in allowed]
    return texts + [f"{n} {word} (--allow {word})" for word, n in counted]


def _values(rows: list, name: str) -> set:
    """The known values of a column."""
    return {getattr(row, name) for row in rows} - {None}


def _counted(runs: list) -> list:
    """The runs that represent their case: a wrong one if any; else those that are ok, if any."""
    for status in ("wrong", "ok"):
        if chosen := [run for run in runs if run.status == status]:
            return chosen
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
        values = [{str(key[place]) for key in side} for side in (first, second)]
        if not values[0] & values[1]:
            there, here = (", ".join(sorted(texts)[:3]) for texts in values)
            return f"{name} is {there} there and {here} here; --by {name} compares these"
    return "their fields never agree together. Compare runs of one sweep"
