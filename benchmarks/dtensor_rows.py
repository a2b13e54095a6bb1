"""Results from rows of ``benchmarks/dtensor.py``: steps of an MLP by stock and by drbench, and the
cost of a call."""

from typing import NamedTuple

from pandas import DataFrame

from drbench.launch.studies.libraries import OURS, STOCK
from drbench.measure.decision import over
from drbench.measure.noise import Ratio, median_interval, ratio_of

_WORK = ["batch", "width", "hidden", "what"]


class MlpStep(NamedTuple):
    """A step of an MLP by stock and by drbench: batch, width, hidden and the step's name; median
    seconds of both, their paired ratio, that of the CPU time, and rounds."""

    work: tuple
    stock_s: float
    ours_s: float
    time: Ratio
    cpu: Ratio
    rounds: int


def steps(table: DataFrame) -> list[MlpStep]:
    """A line a step, of rows of ``benchmarks/dtensor.py mlp``.

    Examples
    --------
    >>> row = {"batch": 8, "width": 2, "hidden": 4, "what": "forward", "round": 1}
    >>> both = [
    ...     row | {"side": "dtensor", "seconds": 3.0, "cpu_s": 4.0},
    ...     row | {"side": "dtensor+drbench", "seconds": 2.0, "cpu_s": 4.0},
    ... ]
    >>> (step,) = steps(DataFrame(both))
    >>> step.work, step.stock_s, str(step.time), str(step.cpu)
    ((8, 2, 4, 'forward'), 3.0, '1.50', '1.00')
    """
    lines = []
    for work, rows in table.groupby(_WORK, sort=False):
        by_round = rows.pivot(index="round", columns="side", values=["seconds", "cpu_s"]).dropna()
        time, cpu = (
            ratio_of(over(by_round[column][STOCK].to_dict(), by_round[column][OURS].to_dict()))
            for column in ("seconds", "cpu_s")
        )
        middle = [float(by_round.seconds[side].median()) for side in (STOCK, OURS)]
        lines.append(MlpStep(work, *middle, time, cpu, len(by_round)))
    return lines


def call_us(table: DataFrame, call: str, beyond: str | None = None) -> tuple[float, float, float]:
    """Microseconds of a call of ``benchmarks/dtensor.py calls``, beyond another in the same round:
    the median and its interval.

    Examples
    --------
    >>> rows = [{"call": x, "round": n, "us": 2.0 * n + len(x)} for x in "ab" for n in range(6)]
    >>> call_us(DataFrame(rows), "a"), call_us(DataFrame(rows), "a", "b")
    ((6.0, 1.0, 11.0), (0.0, 0.0, 0.0))
    """
    by_round = table.pivot(index="round", columns="call", values="us")
    us = by_round[call] - (by_round[beyond] if beyond else 0)
    low, high = median_interval(list(us)) or (us.min(), us.max())
    return float(us.median()), low, high


#: Comparisons of calls: a call, its baseline, and the bar in microseconds.
_CALLS = (
    ("the local GEMMs alone", None, None),
    ("S(0) · S(0), stock", "the local GEMMs alone", None),
    ("S(0) · S(0), on drbench", "the local GEMMs alone", 50),
    ("S(0) · S(0), operands copied, on drbench", "the local GEMMs alone", 80),
    ("S(0) · R, kept by stock, on drbench", "S(0) · R, stock", 3),
    ("first call of a layout, on drbench", None, 10_000),
)


def call_costs(table: DataFrame) -> DataFrame:
    """A row a comparison: the call as ``case``, ``beyond`` which other, the median in microseconds
    with its interval, and the bar, NaN without one."""
    lines = [(call, beyond, *call_us(table, call, beyond), bar) for call, beyond, bar in _CALLS]
    return DataFrame(lines, columns=["case", "beyond", "us", "low", "high", "bar"])
