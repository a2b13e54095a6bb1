"""Strong scaling: the time of one problem against the number of ranks, with the ideal."""

from collections.abc import Sequence

from drbench.measure.record import Record
from plots.registry import Figure, Made
from plots.select.cases import Options

from .scaling import draw_panels, strong_panels


def make(records: Sequence[Record], options: Options) -> Made:
    """Draw a panel a shape that was run on several numbers of ranks."""
    return draw_panels(*strong_panels(records, options), weak=False)


FIGURES = (
    Figure(
        "strong",
        "strong scaling: time of one problem against ranks, with the ideal",
        make,
        ("moving_only", "shape"),
    ),
)
