"""Weak scaling: the rate a rank keeps as problem and ranks grow together, with the ideal."""

from collections.abc import Sequence

from drbench.measure.record import Record
from plots.registry import Figure, Made
from plots.select.cases import Options

from .scaling import draw_panels, weak_panels


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw a panel for each family of problems with the same work a rank."""
    return draw_panels(*weak_panels(records, options), weak=True)


FIGURES = (
    Figure(
        "weak",
        "weak scaling: rate a rank keeps as problem and ranks grow together, with the ideal",
        make,
        ("moving_only",),
    ),
)
