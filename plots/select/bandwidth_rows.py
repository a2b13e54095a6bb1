"""What ``drbench bandwidth`` measured, row by row; ranks load this, and nothing that draws."""

from statistics import median
from typing import NamedTuple

from .typed_rows import Rows

#: What is measured, by the names that machine models have.
OPERATIONS = (
    "get",
    "put",
    "accumulate",
    "broadcast",
    "allgather",
    "reduce",
    "reducescatter",
    "shift",
)
#: Collectives of which each rank has a share already, or keeps one: (p - 1) / p of their size
#: crosses its link.
DIVIDED = ("allgather", "reducescatter")
#: The roof: a copy inside a rank's own memory, through the same executor. STREAM counts twice as
#: much, the bytes that are read and those that are written.
COPY = "copy"


class BandwidthRow(NamedTuple):
    """One kind of transfer at one size, all ranks at once; GB are 1e9 bytes.

    Attributes
    ----------
    operation : str
        A name of :data:`OPERATIONS`, or :data:`COPY`.
    nbytes : int
        Of one transfer; of allgather and reducescatter the whole of what is divided.
    transfers : int
        Of one repeat, whose time is divided by it.
    median_s, median_low_s, median_high_s : float or None
        Of one transfer, the slowest rank; 95 % interval of the median. None if there are none.
    algorithm_gbps, bus_gbps : float or None
        See :func:`bus_bandwidth`.
    reason : str
        Why there are none.
    noisy : bool or None
        Whether nothing can be concluded: the ranks lacked their cores, or the samples spread by
        more than a fifth. None in rows of before it was told.
    core_share : float or None
        The share of its core that the rank with the least of it had, median of the samples.
    """

    label: str
    transport: str
    backend: str
    dtype: str
    ranks: int
    nodes: int
    operation: str
    nbytes: int
    transfers: int
    samples: int
    median_s: float | None
    median_low_s: float | None
    median_high_s: float | None
    algorithm_gbps: float | None
    bus_gbps: float | None
    mpi: str
    reason: str
    noisy: bool | None = None
    core_share: float | None = None


def bus_bandwidth(operation: str, nbytes: int, seconds: float, ranks: int) -> tuple[float, float]:
    """Algorithm and bus bandwidth in GB/s.

    The first is bytes over time. The second is what crosses a rank's link, whatever the number p of
    ranks, and so can be held against the hardware: (p - 1) / p of it for :data:`DIVIDED`, all of it
    for the others.

    Notes
    -----
    Collectives as nccl-tests count them (broadcast, reduce, sendrecv: 1; allgather, reduce-scatter:
    (n - 1) / n), https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; get, put and
    accumulate as osu_get_bw, osu_put_bw and osu_acc_latency of the OSU Micro-Benchmarks count
    bytes: once.

    Examples
    --------
    >>> bus_bandwidth("allgather", 10**9, 0.5, 4), bus_bandwidth("get", 10**9, 0.5, 4)
    ((2.0, 1.5), (2.0, 2.0))
    """
    rate = nbytes / seconds / 1e9
    return rate, rate * (ranks - 1) / ranks if operation in DIVIDED else rate


def row_of(measured: dict, **description) -> BandwidthRow:
    """A row of what the ranks measured: ``operation``, ``nbytes``, ``times``, ``samples_s`` and the
    ``interval`` of their median, ``noisy`` and ``core_share``, or the ``reason`` why there are
    none."""
    samples = measured.get("samples_s", [])
    row = BandwidthRow(
        operation=measured["operation"],
        nbytes=measured["nbytes"],
        transfers=measured["times"],
        samples=len(samples),
        **dict.fromkeys(BandwidthRow._fields[10:15]),
        reason=measured.get("reason", ""),
        **description,
    )
    if not samples:
        return row
    middle, (low, high) = median(samples), measured["interval"]
    algorithm, bus = bus_bandwidth(row.operation, row.nbytes, middle, row.ranks)
    return row._replace(
        median_s=middle,
        median_low_s=low,
        median_high_s=high,
        algorithm_gbps=algorithm,
        bus_gbps=bus,
        noisy=measured["noisy"],
        core_share=measured["core_share"],
    )


#: The files of such rows.
ROWS = Rows(BandwidthRow, "bandwidths", "drbench bandwidth --csv FILE")
