"""Rows of the ledger: every measured or published number with the prediction made for it."""

from typing import NamedTuple

from plots.select.typed_rows import Rows


class LedgerRow(NamedTuple):
    """One number.

    Attributes
    ----------
    group : str
        Points of one origin: new ones start a group of their own.
    mode : str
        ``measured`` or ``published``.
    machine : str
        Model that predicted it.
    what : str
        The case in words.
    unit : str
        Of ``s``, ``x`` (times as fast as something) or ``%`` (of the roof, or of peak).
    value, predicted : float
    low, high : float or None
        The interval of the prediction; None where it has none, or is made of this very number.
    source : str
        The file with the number.
    """

    group: str
    mode: str
    machine: str
    what: str
    unit: str
    value: float
    predicted: float
    low: float | None
    high: float | None
    source: str


ROWS = Rows(LedgerRow, "ledger", "python -m launch.papers DIR ledger")
