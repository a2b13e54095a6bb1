"""Numbers as people read them: rounded, in a unit that fits, and ticks at round ones."""

from collections.abc import Callable
from math import ceil, floor, log10

from drbench.common import bytes_text, number  # noqa: F401  (for all figures)

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
        found = [
            step * 10.0**decade
            for decade in decades
            for step in steps
            if low <= step * 10.0**decade <= high
        ]
        if len(found) <= _MOST_TICKS:
            return found
    return found[:: ceil(len(found) / _MOST_TICKS)]


def log_ticks(low: float, high: float, text: Callable[[float], str]) -> dict[float, str]:
    """The round ticks of a log axis, place -> text."""
    return {place: text(place) for place in round_ticks(low, high)}


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is a readable number: its length in seconds and its name.

    Examples
    --------
    >>> time_unit(0.02), time_unit(3.0), time_unit(2e-5)
    ((0.001, 'ms'), (1.0, 's'), (1e-06, 'µs'))
    """
    return (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "µs")


def time_text(seconds: float) -> str:
    """A time in a unit that fits.

    Examples
    --------
    >>> time_text(2.5e-3), time_text(0)
    ('2.5 ms', '0 s')
    """
    length, unit = time_unit(seconds) if seconds else (1.0, "s")
    return f"{number(seconds / length)} {unit}"
