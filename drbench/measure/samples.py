"""Repeat a run, a chain or a transfer on all ranks until the median time is known."""

import statistics
from collections.abc import Callable

from drbench.clock import Clock
from drbench.program.trace import no_collection

from .noise import Timed, cores_had, enough, is_noisy, time_columns, undisturbed


def sample(
    comm,
    once: Callable[[int], tuple[Timed, ...]],
    least: int,
    budget_s: float,
    due: float | None = 1.0,
    ratio: Callable[..., float] | None = None,
) -> tuple[dict, list[int], list[float]]:
    """Repeat until the median of the times, or of the ratios, is known or the budget is spent
    (collective). Repeats in which a rank lost its core to other processes are dropped, unless ranks
    share cores.

    Parameters
    ----------
    once : callable
        ``once(place)`` -> the times of that repeat, the run itself first.
    least : int
        The least number of repeats that count.
    budget_s : float
        Seconds after which no further repeat starts.
    due : float or None
        Share of a core that a rank can have (:func:`cores_had`), 1 unless ranks share cores.
    ratio : callable, optional
        ``ratio(*repeat)`` of the times of a repeat.

    Returns
    -------
    dict, list of int, list of float
        Columns of the record, the indices of the repeats that count, and their ratios.
    """
    repeats: list[tuple[Timed, ...]] = []
    start, done = Clock.now(), False
    with no_collection():
        while not done:
            repeats.append(once(len(repeats)))
            counted = undisturbed(repeats, least) if due == 1 else [*range(len(repeats))]
            samples = [round(repeats[place][0].seconds, 9) for place in counted]
            ratios = [ratio(*repeats[place]) for place in counted] if ratio else []
            # times are equal on all ranks, the time spent is rank 0's
            done = comm.bcast(enough(samples, Clock.now() - start, least, budget_s, ratios))
    cores = cores_had(repeats, counted, due)
    columns = time_columns(samples, ratios) | {
        "noisy": cores.lacking or is_noisy(samples, ratios),
        "cpu_s": statistics.median(repeats[place][0].cpu_s for place in counted),
        "disturbed": cores.disturbed,
        "core_share": cores.core_share,
    }
    return columns, counted, ratios
