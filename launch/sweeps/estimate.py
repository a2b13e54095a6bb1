"""Estimate the time of jobs on this machine before they run."""

from collections.abc import Iterable
from dataclasses import dataclass

from drbench.host.cores import usable_cores
from drbench.launch.cases.case import Case
from drbench.launch.host.kernels import measure_kernels
from drbench.measure.noise import FEWEST, most_repeats, turn_of

from .rounds import OVERHEAD_S, TURN_OVERHEAD_S, Job

#: Seconds to start ranks.
START_S = 1.5
#: Trials by which the shape for GEMM-only speed is chosen: three to six GEMMs, three times plus a
#: warm-up.
_ROOF_TRIALS = 12


@dataclass(frozen=True)
class Estimate:
    """The time of jobs without communication, their FLOPs, and the rate of a core."""

    time_s: float
    flops: float
    core_flops_per_s: float


def most_multiplications(case: Case, multiplication_s: float, rounds: int | str = 0) -> int:
    """The most multiplications of a case if one takes ``multiplication_s``: repeats, warm-up and
    GEMM-only speed; with ``known`` rounds those of the least number of rounds.

    Examples
    --------
    >>> case = Case(8, 8, 8, iters=5, budget=3.0, gemm_only=True)
    >>> [most_multiplications(case, 1.0, rounds) for rounds in (0, 3, "known")]
    [23, 45, 30]
    """
    known = rounds == "known"
    runs, (least, budget_s) = rounds or 1, (case.iters, case.budget)
    if known:
        runs, (least, budget_s) = FEWEST, turn_of(least, budget_s)
    repeats = most_repeats((1 + case.gemm_only) * multiplication_s, least, budget_s)
    return runs * (case.warmup + repeats * (1 + case.gemm_only)) + case.gemm_only * _ROOF_TRIALS


def estimate_time(
    jobs: Iterable[Job], rounds: int | str = 0, rate: float | None = None
) -> Estimate:
    """The estimate for jobs on this machine, one after another, each repeated in its rounds as
    often as its budget allows, at the rate of a core in FLOP/s, by default as it is now."""
    rate, cores = rate or measure_kernels().flops_per_s, usable_cores()
    time_s = flops = 0.0
    starts = set()
    for job in jobs:
        ranks, case = job.ranks, job.case
        threads = case.threads or max(1, cores // ranks)
        flops_once, used = 2 * case.m * case.n * case.k, min(cores, ranks * threads)
        times = most_multiplications(case, flops_once / (rate * used), rounds)
        flops += flops_once * times
        runs = FEWEST if rounds == "known" else rounds or 1
        time_s += OVERHEAD_S + (runs - 1) * TURN_OVERHEAD_S + flops_once * times / (rate * used)
        starts.add(ranks)
    return Estimate(time_s + START_S * len(starts), flops, rate)
