"""Rows of the ledger: every measured or published number with the prediction made for it.

``results/ledger.csv`` has those of the last release.
"""

from typing import NamedTuple

from plots.select.typed_rows import Rows

#: What a number is: seconds, times as fast as something, or percent of peak.
UNITS = ("s", "x", "%")


class LedgerRow(NamedTuple):
    """One number.

    Attributes
    ----------
    release : str
        The release whose predictions these are.
    group : str
        Points of one origin: new ones start a group of their own.
    mode : str
        ``measured`` or ``published``.
    machine : str
        Model that predicted it.
    what : str
        The case in words: it tells a point from the others of its group.
    m, n, k : int
        Of the product; 0 where the number is of several.
    flops : float
        Of the work that the number is about.
    unit : str
        Of :data:`UNITS`.
    value, predicted : float
    low, high : float or None
        The interval of the prediction; None where it has none.
    fitted : int
        1 if the residuals that the interval is made of have this point in them.
    source : str
        The file with the number.
    """

    release: str
    group: str
    mode: str
    machine: str
    ranks: int
    what: str
    m: int
    n: int
    k: int
    flops: float
    unit: str
    value: float
    predicted: float
    low: float | None
    high: float | None
    fitted: int
    source: str

    @property
    def error(self) -> float:
        """Share by which the prediction is longer, or larger, than the number."""
        return self.predicted / self.value - 1

    @property
    def held(self) -> bool | None:
        """Whether the number lies in the interval; None without one."""
        return None if self.low is None else self.low <= self.value <= self.high

    @property
    def half_width(self) -> float | None:
        """Half of the interval, as a share of the prediction."""
        return None if self.low is None else (self.high - self.low) / 2 / self.predicted


ROWS = Rows(LedgerRow, "ledger", "results/ledger.csv")
