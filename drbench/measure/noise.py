"""How far measured times can be trusted: the interval of a median, when to stop repeating, and
which rows are inconclusive. Pure.

No distribution of times is assumed: the interval of the median is between two of the samples
(order statistics). Repeats are assumed to be independent. If a machine changes its speed for
minutes, both a repeat and the GEMM-only speed measured next to it change, so their ratio decides if
that speed is known. A repeat is left out if another process used a rank's core: the clock of the
thread shows that, whatever the time of the repeat.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from statistics import median, quantiles
from typing import NamedTuple

CONFIDENCE = 0.95
#: A median is stable if half of its interval is within this share of it.
STABLE = 0.02
#: A repeat is disturbed if some rank had no core for more than this share of the time.
DISTURBED = 0.03
#: A row is noisy if its ranks had less than this share of their cores, or most of its repeats were
#: disturbed,
LEAST_SHARE = 0.90
#: or if its samples or ratios spread by more than this share of their median,
NOISY_SPREAD = 0.20
#: or if it is faster than local GEMMs alone by more than chance: percent of GEMM-only
#: speed.
NOISY_PERCENT = 110.0
#: Most repeats of a case, unless it requests more: the interval is then a quarter of the standard
#: deviation wide, and a row of a file 2 KB long.
MOST_REPEATS = 100
#: Names of interleaved cases begin with the number of the round.
_ROUND = r"\d+ \| "
#: With fewer samples no two of them enclose the median with 95 % confidence.
FEWEST = 6
#: Seconds after which no further repeat of a case begins in one of several rounds.
_TURN_S = 0.05


#: Times, or ratios of times.
Samples = Sequence[float]


class Timed(NamedTuple):
    """The time of work of all ranks: seconds from barrier to barrier, the largest share of them in
    which a rank waited for its core, and the CPU seconds of all threads of a rank (mean over the
    ranks)."""

    seconds: float
    lost: float = 0.0
    cpu_s: float = 0.0


def undisturbed(repeats: Sequence[Sequence[Timed]], least: int) -> list[int]:
    """Indices of the repeats in which every rank had its core all the time; of all repeats if these
    are fewer than ``least``.

    Parameters
    ----------
    repeats : list of tuples of Timed
        What was timed in each repeat.
    least : int
        Repeats that must remain.

    Examples
    --------
    >>> fine, lost = Timed(1.0, 0.01), Timed(1.4, 0.25)
    >>> undisturbed([(fine, fine), (fine, lost), (fine, fine)], 2)
    [0, 2]
    >>> undisturbed([(fine, fine), (fine, lost), (fine, fine)], 3)
    [0, 1, 2]
    """
    had = [
        place
        for place, repeat in enumerate(repeats)
        if all(time.lost <= DISTURBED for time in repeat)
    ]
    return had if len(had) >= least else list(range(len(repeats)))


class CoresHad(NamedTuple):
    """How much of their cores the ranks had in the repeats of a row, by the clocks of the threads.

    Attributes
    ----------
    disturbed : int
        Repeats in which some rank had no core for a time, left out or not.
    core_share : float or None
        The smallest share of its core that a rank had, median over the repeats that count; if ranks
        share cores, relative to their fair share. None if that is not known.
    lacking : bool
        Whether the times of the row are inconclusive: the ranks had less than :data:`LEAST_SHARE`
        of their cores, or most of the repeats that count were disturbed.
    """

    disturbed: int
    core_share: float | None
    lacking: bool


def cores_had(
    repeats: Sequence[Sequence[Timed]], counted: Sequence[int], due: float | None = 1.0
) -> CoresHad:
    """How much of their cores the ranks had.

    Parameters
    ----------
    repeats : list of tuples of Timed
        What was timed in each repeat, the run itself first.
    counted : list of int
        Indices of the repeats that count (:func:`undisturbed`).
    due : float or None
        Share of a core that a rank can have. Below 1 ranks share cores: then their CPU seconds
        decide, and no repeat is disturbed. None if CPU seconds are not meaningful either.

    Examples
    --------
    >>> fine, lost = (Timed(1.0, 0.01, 0.99),), (Timed(6.0, 0.83, 1.0),)
    >>> cores_had([fine, fine, lost], [0, 1])
    CoresHad(disturbed=1, core_share=0.99, lacking=False)
    >>> cores_had([fine, lost, lost], [0, 1, 2])
    CoresHad(disturbed=2, core_share=0.17, lacking=True)

    Four ranks on two cores, alone and together with four other processes:

    >>> alone, concurrent = (Timed(2.0, 0.6, 1.0),), (Timed(4.0, 0.8, 1.0),)
    >>> [cores_had([times], [0], 0.5).core_share for times in (alone, concurrent)]
    [1.0, 0.5]
    """
    if due is None:
        return CoresHad(0, None, False)
    runs = [repeats[place][0] for place in counted]
    if due < 1:
        share = median(run.cpu_s / run.seconds for run in runs) / due
        bad = set()
    else:
        share = 1 - median(run.lost for run in runs)
        bad = {*range(len(repeats))} - {*undisturbed(repeats, 0)}
    share = round(min(1.0, max(0.0, share)), 4)
    most = 2 * len(bad.intersection(counted)) > len(counted)
    return CoresHad(len(bad), share, most or share < LEAST_SHARE)


@cache
def median_ranks(samples: int) -> tuple[int, int] | None:
    """Indices, from 0, of the two sorted samples that enclose the median with 95 % confidence; None
    if there are too few.

    Each sample is below the median with probability 1/2, so the i-th smallest is above it with the
    probability of at most i heads in ``samples`` throws of a coin.

    Examples
    --------
    >>> median_ranks(5), median_ranks(6), median_ranks(20)
    (None, (0, 5), (5, 14))
    """
    allowed = int(Fraction(1 - CONFIDENCE) / 2 * 2**samples)  # no float holds 2**1024
    below, place, combinations = 0, -1, 1  # ways to throw place + 1 heads
    while (below := below + combinations) <= allowed:
        place += 1
        combinations = combinations * (samples - place) // (place + 1)
    return None if place < 0 else (place, samples - 1 - place)


def median_interval(samples: Samples) -> tuple[float, float] | None:
    """The 95 % interval of the median; None with fewer than :data:`FEWEST` samples.

    Examples
    --------
    >>> median_interval([5.0, 1.0, 3.0, 2.0, 4.0, 6.0]), median_interval([1.0, 2.0])
    ((1.0, 6.0), None)
    """
    ranks = median_ranks(len(samples))
    if ranks is None:
        return None
    ordered = sorted(samples)
    return ordered[ranks[0]], ordered[ranks[1]]


class Ratio(NamedTuple):
    """The median of paired ratios, and the ends of its 95 % interval; None of fewer than six."""

    middle: float
    low: float | None = None
    high: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the ratio is known to differ from 1.

        Examples
        --------
        >>> (
        ...     Ratio(1.1, 1.05, 1.2).significant,
        ...     Ratio(1.1, 0.99, 1.2).significant,
        ...     Ratio(1.1).significant,
        ... )
        (True, False, False)
        """
        return self.low is not None and not self.low <= 1 <= self.high

    def __str__(self) -> str:
        """As ``1.08 (1.05-1.12)``."""
        between = "" if self.low is None else f" ({self.low:.2f}-{self.high:.2f})"
        return f"{self.middle:.2f}{between}"


def ratio_of(ratios: Samples) -> Ratio:
    """The median of some ratios, with its interval.

    Examples
    --------
    >>> print(ratio_of([1.1, 1.2, 1.3, 1.2, 1.2, 1.2]), ratio_of([2.0, 1.0]))
    1.20 (1.10-1.30) 1.50
    """
    return Ratio(median(ratios), *(median_interval(ratios) or (None, None)))


def interquartile_range(samples: Samples) -> float | None:
    """The range of the middle half of the samples, by linear interpolation; None for fewer than 2.

    Examples
    --------
    >>> interquartile_range([4.0, 1.0, 2.0, 3.0, 5.0])
    2.0
    """
    if len(samples) < 2:
        return None
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return high - low


def is_stable(samples: Samples) -> bool:
    """Whether half of the median's interval is within :data:`STABLE` of it.

    Examples
    --------
    >>> is_stable([1.0] * 6), is_stable([1.0] * 5), is_stable([1.0] * 5 + [1.1])
    (True, False, False)
    """
    interval = median_interval(samples)
    return interval is not None and interval[1] - interval[0] <= 2 * STABLE * median(samples)


def is_noisy(samples: Samples, ratios: Samples = ()) -> bool:
    """Whether the row is inconclusive: percent of GEMM-only speed is above :data:`NOISY_PERCENT`,
    or the ratios to that speed (without it the samples) spread by more than :data:`NOISY_SPREAD`.

    Examples
    --------
    >>> is_noisy([1.0, 1.0, 1.0]), is_noisy([1.0] * 3, [112.0] * 3), is_noisy([1.0, 1.3])
    (False, True, True)
    """
    above = bool(ratios) and median(ratios) > NOISY_PERCENT
    return above or _spread(ratios or samples) > NOISY_SPREAD


def _spread(values: Samples) -> float:
    """Interquartile range over median; for few values the whole range."""
    if not values:
        return 0.0
    few = len(values) < FEWEST
    return ((max(values) - min(values)) if few else interquartile_range(values)) / median(values)


def enough(
    samples: Samples,
    spent_s: float,
    least: int,
    budget_s: float,
    ratios: Samples = (),
) -> bool:
    """Whether to stop repeating: at least ``least`` samples, and either the median is stable (of
    the ratios, if there are any), or the budget is spent, or there are :data:`MOST_REPEATS`.

    Parameters
    ----------
    samples : list of float
        Seconds of the repeats so far.
    spent_s : float
        Seconds since the first of them began, all other measurements in between included.
    least : int
        Repeats that are made in any case.
    budget_s : float
        Seconds after which no further repeat begins; 0: exactly ``least`` repeats.
    ratios : list of float
        GEMM-only time next to each repeat, over the time of the repeat.

    Examples
    --------
    >>> enough([1.0] * 6, 6.0, 5, 60.0), enough([1.0] * 6, 6.0, 10, 60.0)
    (True, False)
    >>> enough([1.0, 2.0], 3.0, 2, 60.0), enough([1.0, 2.0], 3.0, 2, 3.0)
    (False, True)
    """
    if len(samples) < least:
        return False
    return spent_s >= budget_s or len(samples) >= MOST_REPEATS or is_stable(ratios or samples)


def turn_of(least: int, budget_s: float) -> tuple[int, float]:
    """The least repeats and the budget of one of several rounds of a case: so that it has its
    repeats in :data:`FEWEST` rounds, and these use half of its budget at most, unless a repeat is
    long. The other half is for cases that are still to be compared.

    Examples
    --------
    >>> turn_of(10, 0.375), turn_of(3, 0.0), turn_of(5, 30.0)
    ((2, 0.03125), (1, 0.0), (1, 0.05))
    """
    return ceil(least / FEWEST), min(_TURN_S, budget_s / (2 * FEWEST))


def most_repeats(repeat_s: float, least: int, budget_s: float) -> int:
    """Most repeats that :func:`enough` requires, if each takes ``repeat_s``.

    Examples
    --------
    >>> most_repeats(0.5, 5, 3.0), most_repeats(2.0, 5, 3.0), most_repeats(1e-6, 5, 3.0)
    (6, 5, 100)
    """
    in_time = ceil(min(MOST_REPEATS, budget_s / repeat_s)) if repeat_s else MOST_REPEATS
    return max(least, in_time if budget_s else 0)


def time_columns(samples: list[float], ratios: Samples = ()) -> dict:
    """The columns of :class:`drbench.measure.record.Record` computed from the samples alone, and
    whether the median is stable: that of the ratios to GEMM-only speed, if there are any.

    Examples
    --------
    >>> columns = time_columns([0.5, 0.75, 0.5])
    >>> columns["best_s"], columns["median_s"], columns["median_low_s"], columns["stable"]
    (0.5, 0.5, None, False)
    """
    low, high = median_interval(samples) or (None, None)
    return {
        "samples_s": samples,
        "best_s": min(samples),
        "median_s": median(samples),
        "iqr_s": interquartile_range(samples),
        "median_low_s": low,
        "median_high_s": high,
        "stable": is_stable(ratios or samples),
    }


def ratio_columns(ratios: list[float]) -> dict:
    """The columns computed from the paired ratios, in percent of GEMM-only
    #: speed.

        Examples
        --------
        >>> ratio_columns([90.0, 95.0, 85.0])["percent_of_gemm_only"]
        90.0
    """
    low, high = median_interval(ratios) or (None, None)
    return {
        "percent_of_gemm_only": median(ratios),
        "percent_of_gemm_only_min": min(ratios),
        "percent_of_gemm_only_max": max(ratios),
        "percent_of_gemm_only_low": low,
        "percent_of_gemm_only_high": high,
    }


#: Reasons to doubt a row, the worst first: its column, the value, its mark, and what to do.
DOUBTS = (
    ("noisy", True, "~", "time not usable, measure on a quiet machine"),
    ("oversubscribed", True, "+", "ranks share cores, compare only with such runs"),
    ("stable", False, "±", "median not known within 2 %, give it a larger budget"),
)


def cores_text(record) -> str:
    """How much of their cores the ranks of a record had, in words; empty if all, or if that is not
    known.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> row = SimpleNamespace(core_share=0.18, disturbed=5, oversubscribed=False)
    >>> cores_text(row), cores_text(SimpleNamespace(core_share=0.99, disturbed=0))
    ('the ranks had 18 % of their cores, 5 repeats disturbed', '')
    """
    share, disturbed = record.core_share, record.disturbed
    if share is None or (share >= LEAST_SHARE and not disturbed):
        return ""
    repeats = f", {disturbed} {'repeat' if disturbed == 1 else 'repeats'} disturbed"
    whose = "their share of the cores" if record.oversubscribed else "their cores"
    return f"the ranks had {100 * share:.0f} % of {whose}{repeats if disturbed else ''}"


def doubts(record) -> list[str]:
    """Reasons to doubt the times of a record, each in a word or two; empty if they can be trusted,
    or are not measured.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> run = dict(mode="measured", status="ok", best_s=1.0)
    >>> doubts(Record(**run, noisy=True, stable=False)), doubts(Record(**run))
    (['noisy', 'not stable'], [])
    """
    return [
        name if value else f"not {name}"
        for name, value, *_ in DOUBTS
        if getattr(record, name) is value
    ]


def measured_once(mode: str, samples: Samples, case: str | None) -> bool:
    """Whether a row is a single repeat, which is treated as noisy. A round is one repeat of many.

    Examples
    --------
    >>> measured_once("measured", [1.0], "7f"), measured_once("measured", [1.0], "3 | s | heat | x")
    (True, False)
    >>> measured_once("measured", [1.0, 1.1], "7f"), measured_once("simulated", [1.0], "7f")
    (False, False)
    """
    return mode == "measured" and len(samples) == 1 and not re.match(_ROUND, case or "")


def nearest_to_median(samples: Samples) -> int:
    """The index of the sample that is the median, or the one just below it.

    Examples
    --------
    >>> nearest_to_median([3.0, 1.0, 2.0, 9.0])
    2
    """
    order = sorted(range(len(samples)), key=samples.__getitem__)
    return order[(len(order) - 1) // 2]
