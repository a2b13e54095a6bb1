"""Cases over dates or commits, and the steps in them.

Cuts divide a series so that the sum of the distances of its values from the median of their piece,
plus 2.5 ln N times the upper quartile of the changes from a value to the next for each cut, is
least; of logarithms. A *step* is from a piece of three values or more to the next such piece, if
their medians differ by more than the tolerance.
"""

import json
from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import pairwise
from math import inf, log
from pathlib import Path
from statistics import median, quantiles

from pandas import DataFrame

from drbench.measure.record import WITH

from .cases import SelectionError
from .records import csv_files, place_of_rows, read_records
from .references import add_cases, add_values

_FEWEST, _COST = 3, 2.5


def read_history(paths: Iterable[str | Path]) -> DataFrame:
    """Read result files, and of folders each ``records.csv`` in them or below (rows of rounds are
    no separate runs), as :func:`.records.read_records` does, with the ``commit`` of drbench or its
    version, as the environment of a row has it."""
    below = [sorted(Path(path).rglob("records.csv")) or csv_files(path) for path in paths]
    files = [file for of in below for file in of if file.parent.name != "rounds"]
    table = read_records(files)
    places = zip(table.sweep, table.environment)
    return table.assign(commit=[_read_commit(files[at - 1].parent, name) for at, name in places])


@cache
def _read_commit(folder, name):
    try:
        own, inside = (x / f"environments/{name}.json" for x in (folder, place_of_rows(folder)))
        state = json.loads((own if own.is_file() else inside).read_bytes())["drbench"]
        return (state["commit"] or state["version"])[:10] + "+" * state.get("dirty", False)
    except (OSError, ValueError, LookupError, TypeError):
        return None  # of no sweep


def select_points(
    table: DataFrame,
    by: str = "date",
    words: Collection[str] = (),
    quantity: str | None = None,
    tolerance: float = 0.05,
) -> DataFrame:
    """The points of each case in the order of time, those of cases with steps first. Rows that are
    not ok, noisy, or without a date or commit are none.

    Parameters
    ----------
    table : DataFrame of :func:`read_history`
    by : str
        ``date`` or ``commit``.
    words : sequence of str
        Of the cases, such as ``m=8``: all others are left out.
    quantity : str or None
        As :func:`.references.add_values` takes it.
    tolerance : float
        Least change of a step: 0.05 for 5 %.

    Returns
    -------
    DataFrame
        A row a point: that of the table, with ``case`` and the value of :mod:`.references`,
        ``when``, the date or commit, and in ``step``, of the first point after a step, the median
        after it / the median before it, and what it ran with that the point before did not.

    Raises
    ------
    SelectionError
        If there is no point.
    """
    when = table.commit if by == "commit" else table.timestamp.str[:16].str.replace("T", " ")
    table = add_cases(table.assign(when=when, step="")).sort_values("timestamp")
    table = table.loc[[{*words} <= {*case.split()} for case in table.case]]
    table = table.query("status == 'ok' and not hollow and when == when and timestamp == timestamp")
    points = add_values(table, quantity).query("value > 0")
    if points.empty:
        asked = " and ".join((by, *words))
        raise SelectionError(
            f"no row of these files is ok, not noisy, with a {asked}. Leave something out, or "
            "measure again."
        )
    for _, rows in points.groupby(["label", "case"]):
        setup = rows[["commit", *WITH]].astype(object).fillna("").to_dict("records")
        for at, ratio in find_steps(rows.value.tolist(), tolerance).items():
            new = (f"{name} {x}" for name, x in setup[at].items() if x != setup[at - 1][name])
            text = f"× {ratio:.3f} at {', '.join([rows.when.iloc[at], *new])}"
            points.loc[rows.index[at], "step"] = text
    is_flat = points.groupby(["label", "case"]).step.transform("max") == ""
    return points.loc[is_flat.sort_values(kind="stable").index]


def find_steps(values: Sequence[float], tolerance: float = 0.05) -> dict[int, float]:
    """The steps of a series of positive numbers: place of the first value after each -> median
    after it / median before it.

    Examples
    --------
    >>> find_steps([1.0, 1.01, 1.0, 1.0, 1.99, 2.0, 2.02, 1.99, 1.0, 1.01, 1.0])
    {4: 1.995, 8: 0.5012531328320802}
    >>> find_steps([1.0, 1.0, 1.0, 1.0, 2.0, 2.0]), find_steps([1.0, 1.2, 1.0, 1.2] * 5)
    ({}, {})
    """
    count, logs = len(values), [*map(log, values)]
    if count < 2 * _FEWEST:
        return {}
    changes = [abs(after - before) for before, after in pairwise(logs)]
    cost = _COST * log(count) * quantiles(changes, n=4, method="inclusive")[2] + 1e-9
    best = [(0.0, [0])] + [(inf, [])] * count  # of the values before each place: sum and cuts
    for start in range(count):
        ordered, (total, cuts) = [], best[start]
        for size, value in enumerate(logs[start:], 1):
            insort(ordered, value)
            # the sum grows by the distance from the nearer of the medians before
            total += max(ordered[size // 2] - value, value - ordered[(size - 1) // 2])
            best[start + size] = min(best[start + size], (total + cost, [*cuts, start + size]))
    long = [(at, end) for at, end in pairwise(best[-1][1]) if end - at >= _FEWEST]
    middles = [(at, median(values[at:end])) for at, end in long]
    ratios = {at: after / before for (_, before), (at, after) in pairwise(middles)}
    return {at: ratio for at, ratio in ratios.items() if max(ratio, 1 / ratio) > 1 + tolerance}
