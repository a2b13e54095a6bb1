"""Rows of the studies of a transformer's FC layers, the data of their figures: one CSV file per
study.

A row is an algorithm on all twelve multiplications of a block (``layer`` and ``product`` are
``all``) or on one of them; times are of one block, forward and backward. ``python -m
drbench.launch.papers`` writes them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from drbench.plots.select.typed_rows import RowFiles

ALL = "all"
#: Columns that identify the same case in published and simulated rows.
SAME = "study machine model chips algorithm variant layer".split()


class LlmRow(NamedTuple):
    """One algorithm, one model, one number of chips.

    Attributes
    ----------
    study : str
        ``weak``, ``strong``, ``meshes``, ``slices``, ``dataflows`` or ``slice4x4``.
    variant : str
        Distinguishes otherwise equal rows of a study, for example by dataflows.
    slices : str
        MeshSlice's S by layer, as ``6-4-8-8``; for one multiplication its own.
    seconds : float or None
        Simulated; None of published rows.
    estimated_s : float or None
        By the autotuner's cost model.
    utilization_percent : float
        FLOPs over seconds, chips and peak.
    compute_s, launch_s, sync_s, transfer_s : float or None
        Of local GEMMs alone, and of the busiest link alone, overlapped or not.
    """

    study: str
    mode: str
    machine: str
    model: str
    chips: int
    batch: int
    seq: int
    algorithm: str
    mesh: str
    variant: str
    layer: str
    product: str
    m: int | None
    n: int | None
    k: int | None
    dataflow: str
    slices: str
    seconds: float | None
    estimated_s: float | None
    utilization_percent: float
    compute_s: float | None
    launch_s: float | None
    sync_s: float | None
    transfer_s: float | None


LlmRows = Iterator[LlmRow]
ROWS = RowFiles(LlmRow, "rows of an LLM study", "python -m drbench.launch.papers DIR")


def is_tried(mesh: str) -> bool:
    """Whether the authors' autotuner tries a mesh: it has at least four rows and four columns
    (Autotuner.py).

    Examples
    --------
    >>> is_tried("64x4"), is_tried("2x128")
    (True, False)
    """
    return min(map(int, mesh.split("x"))) >= 4
