"""How long cases will take on this machine, before any of them runs."""

from collections.abc import Iterable
from dataclasses import dataclass

from drbench.host.cores import usable_cores
from drbench.measure.noise import most_repeats
from launch.cases.case import Case
from launch.host.kernels import measure_kernels

#: Measured at 4 ranks: between the repeats of one case and the next.
OVERHEAD_S = 0.03
#: To start ranks.
START_S = 1.5
#: Local products with which the roof finds its shape: three to six, three times and once before.
_ROOF_TRIALS = 12
#: What takes longer is asked about.
LONG_S = 1800.0
#: Less than any core multiplies: what is short at this rate needs no measurement.
_SLOW_FLOPS_PER_S = 4e9


@dataclass(frozen=True)
class Estimate:
    """What cases take: FLOPs at a rate, and a little for each case. Communication is not in it.

    Examples
    --------
    >>> Estimate(cases=100, flops=3e12, cores=2, core_flops_per_s=5e10).time_s
    34.5
    """

    cases: int
    flops: float
    cores: int
    core_flops_per_s: float

    @property
    def flops_per_s(self) -> float:
        """Of all cores together."""
        return self.cores * self.core_flops_per_s

    @property
    def time_s(self) -> float:
        """Of all cases, one after the other."""
        return START_S + OVERHEAD_S * self.cases + self.flops / self.flops_per_s


def most_products(case: Case, product_s: float) -> int:
    """How often all of a case's FLOPs are done, at most, if once takes so many seconds: repeats,
    warm-up and roof.

    Examples
    --------
    >>> case = Case(8, 8, 8, iters=5, budget=3.0, roof=True)
    >>> most_products(case, 1.0), most_products(case, 0.1)
    (23, 43)
    """
    repeats = most_repeats((1 + case.roof) * product_s, case.iters, case.budget)
    return case.warmup + repeats + case.roof * (repeats + _ROOF_TRIALS)


def estimated(cases: Iterable[Case], ranks: int, *, measure: bool = True) -> Estimate:
    """The estimate for cases of so many ranks on this machine, each repeated as often as its budget
    allows; without ``measure`` at a rate that any core reaches, so that it is too long rather than
    too short."""
    cases, cores = list(cases), usable_cores()
    threads = [case.threads or max(1, cores // ranks) for case in cases]
    used = min(cores, ranks * max(threads, default=1))
    rate = measure_kernels().flops_per_s if measure else _SLOW_FLOPS_PER_S
    flops = 0
    for case in cases:
        product = 2 * case.m * case.n * case.k
        flops += product * most_products(case, product / (rate * used))
    return Estimate(len(cases), flops, used, rate)


def long_time(jobs: Iterable[tuple[int, Case]]) -> float:
    """Seconds that cases, each with its number of ranks, are estimated at, if that is long enough
    to be asked about; else 0."""
    on: dict[int, list[Case]] = {}
    for ranks, case in jobs:
        on.setdefault(ranks, []).append(case)
    for measure in (False, True):  # what is short at the rate of any core needs no measurement
        time_s = sum(estimated(cases, ranks, measure=measure).time_s for ranks, cases in on.items())
        if time_s <= LONG_S:
            return 0.0
    return time_s
