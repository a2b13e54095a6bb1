"""Times of the kernels and collectives of GPUs, in forms whose constants were fitted to published
measurements."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from drbench.errors import UsageError, shown


class DataSheet(Protocol):
    """What kernels take from a GPU's data sheet: :class:`~drbench.model.gemm.Compute` has it."""

    @property
    def peak_flops(self) -> float: ...
    @property
    def memory_bytes_per_s(self) -> float: ...
    @property
    def units(self) -> int: ...


def norm(a: float, b: float, power: float) -> float:
    """The time of two activities that overlap in part: their sum with ``power`` 1, the longer one
    with inf.

    Examples
    --------
    >>> norm(3.0, 4.0, 1), norm(3.0, 4.0, 2), norm(3.0, 4.0, float("inf"))
    (7.0, 5.0, 4.0)
    """
    low, high = sorted((a, b))
    return high * (1 + (low / high) ** power) ** (1 / power) if low else high


#: From which size on, and the ends of 95 % of measured over predicted times.
IntervalRow = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Constants that were fitted to measured times, and how far other measured times were.

    Attributes
    ----------
    intervals : dict of str to tuple of (float, float, float)
        By class of rows: from a size on, the ends of 95 % of measured over predicted times.
        The rows are others than those of the fit. A class is a part of the rows, such as a head
        size; one named ``any`` is for all others, which else have the widest interval of all.
    doubt : float
        Intervals are wider by this factor: the constants are another board's.
    end : str
        ``low`` or ``high``: every time is at this end of its interval.
        Intervals of whole programs are made so.
    """

    intervals: dict[str, tuple[IntervalRow, ...]] = field(default_factory=dict, hash=False)
    doubt: float = 1.0
    end: str = ""

    def __post_init__(self):
        for of, rows in self.intervals.items():
            starts = [start for start, _, _ in rows]
            fits = all(0 < low <= 1 <= high for _, low, high in rows)
            if starts != sorted(starts) or not fits or not rows:
                raise UsageError(
                    f"intervals of {of} must be [size, low, high], sizes in order, low above 0 and "
                    f"at most 1, high at least 1; got {shown([*map(list, rows)])}."
                )
        if self.end not in ("", "low", "high"):
            raise UsageError(f"end must be low or high, or empty, got {shown(self.end)}.")

    def interval(self, of: str, size: float) -> tuple[float, float]:
        """The ends of 95 % of measured over predicted times of a class and a size.

        Examples
        --------
        >>> known = {"8": [(0, 0.9, 1.1), (1000, 0.95, 1.05)], "any": [(0, 0.5, 2.0)]}
        >>> fitted = Fitted(intervals=known)
        >>> fitted.interval("8", 999), fitted.interval("8", 1000), fitted.interval("64", 5)
        ((0.9, 1.1), (0.95, 1.05), (0.5, 2.0))
        """
        rows: Sequence[IntervalRow] = self.intervals.get(of) or self.intervals.get("any", ())
        if rows:
            at = bisect_right([start for start, _, _ in rows], size)
            _, low, high = rows[max(0, at - 1)]
        else:  # no such rows: the widest interval of all others
            every = [row for of_class in self.intervals.values() for row in of_class]
            low = min((row[1] for row in every), default=1.0)
            high = max((row[2] for row in every), default=1.0)
        return low / self.doubt, high * self.doubt

    def at_end(self, seconds: float, of: str, size: float) -> float:
        """A time, or that end of its interval which these constants are at."""
        if not self.end:
            return seconds
        return seconds * self.interval(of, size)[self.end == "high"]
