"""Ticks of axes at round numbers."""

from math import ceil, floor, log10

from drbench.texts import number

_MOST_TICKS = 7


def round_ticks(low: float, high: float) -> list[float]:
    """Ticks at round numbers times powers of ten in a positive range, as many as possible.

    Examples
    --------
    >>> round_ticks(0.9, 30)
    [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0]
    >>> round_ticks(1, 2e6)
    [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0]
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for steps in (
        (1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
        (1, 1.5, 2, 3, 5, 7),
        (1, 2, 3, 5),
        (1, 2, 5),
        (1, 3),
        (1,),
    ):
        ticks = [
            step * 10.0**decade
            for decade in decades
            for step in steps
            if low <= step * 10.0**decade <= high
        ]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: ceil(len(ticks) / _MOST_TICKS)]


def log_ticks(low: float, high: float) -> dict[float, str]:
    """The round ticks of a log axis, place -> text."""
    return {place: number(place) for place in round_ticks(low, high)}
