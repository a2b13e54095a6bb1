"""Repeats of what all ranks do at once, until their median is known: of a run, a chain, a
transfer."""

import statistics
from collections.abc import Callable

from drbench.common import Clock
from drbench.measure.noise import Timed, cores_had, enough, is_noisy, time_columns, undisturbed
from drbench.program.trace import no_collection


def sample(
    comm,
    once: Callable[[int], tuple[Timed, ...]],
    least: int,
    budget_s: float,
    due: float | None = 1.0,
    ratio: Callable[..., float] | None = None,
) -> tuple[dict, list[int], list[float]]:
    """Repeat until the median of the times, or of the ratios, is known or the budget is spent
    (collective). Repeats in which a rank was kept from its core do not count, unless ranks share
    cores.

    Parameters
    ----------
    once : callable
        ``once(place)`` -> what was timed in that repeat, the run itself first.
    least : int
        Repeats that are made, and that must be left, whatever they show.
    budget_s : float
        Seconds after which no further repeat begins.
    due : float or None
        Share of a core that a rank can have (:func:`cores_had`), 1 unless they share them.
    ratio : callable, optional
        ``ratio(*repeat)``, of what was timed together.

    Returns
    -------
    dict, list of int, list of float
        Columns of the record, the places of the repeats that count, and their ratios.
    """
    repeats: list[tuple[Timed, ...]] = []
    start, done = Clock.now(), False
    with no_collection():
        while not done:
            repeats.append(once(len(repeats)))
            counted = undisturbed(repeats, least) if due == 1 else [*range(len(repeats))]
            samples = [round(repeats[place][0].seconds, 9) for place in counted]
            ratios = [ratio(*repeats[place]) for place in counted] if ratio else []
            # times are the same on every rank, the time spent is rank 0's
            done = comm.bcast(enough(samples, Clock.now() - start, least, budget_s, ratios))
    cores = cores_had(repeats, counted, due)
    columns = time_columns(samples, ratios) | {
        "noisy": cores.lacking or is_noisy(samples, ratios),
        "cpu_s": statistics.median(repeats[place][0].cpu_s for place in counted),
        "disturbed": cores.disturbed,
        "core_share": cores.core_share,
    }
    return columns, counted, ratios
