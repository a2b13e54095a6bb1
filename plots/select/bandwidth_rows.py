"""Rows that ``drbench bandwidth`` measures; ranks import this module without matplotlib."""

from statistics import median
from typing import NamedTuple

from .typed_rows import RowFiles

#: The measured operations, by their names in machine models.
OPERATIONS = "get put accumulate broadcast allgather reduce reducescatter shift".split()
#: Collectives of which each rank has a share already, or keeps one: (p - 1) / p of their size
#: crosses its link.
DIVIDED = ("allgather", "reducescatter")
#: The upper limit: a copy inside a rank's own memory, through the same executor. STREAM counts
#: twice as much, the bytes that are read and those that are written.
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
        Of one transfer, the slowest rank; 95 % interval of the median. None if not measured.
    algorithm_gbps, bus_gbps : float or None
        See :func:`bus_bandwidth`.
    reason : str
        Why they were not measured.
    noisy : bool or None
        Whether the row is unreliable: the ranks lacked their cores, or the samples spread by more
        than a fifth. None in older rows.
    core_share : float or None
        The smallest share of its core that a rank had, median of the samples.
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

    The first is bytes over time. The second is the rate of a rank's link, for any number p of ranks
    comparable with the hardware: (p - 1) / p of the first for :data:`DIVIDED`, all of it for the
    others.

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
    """A row of the ranks' measurement: ``operation``, ``nbytes``, ``times``, ``samples_s`` and the
    ``interval`` of their median, ``noisy`` and ``core_share``, or the ``reason`` why there are
    none."""
    operation, nbytes = measured["operation"], measured["nbytes"]
    samples = measured.get("samples_s", [])
    low, high = measured.get("interval", (None, None))
    middle, algorithm, bus = None, None, None
    if samples:
        middle = median(samples)
        algorithm, bus = bus_bandwidth(operation, nbytes, middle, description["ranks"])
    return BandwidthRow(
        operation=operation,
        nbytes=nbytes,
        transfers=measured["times"],
        samples=len(samples),
        median_s=middle,
        median_low_s=low,
        median_high_s=high,
        algorithm_gbps=algorithm,
        bus_gbps=bus,
        reason=measured.get("reason", ""),
        noisy=measured.get("noisy"),
        core_share=measured.get("core_share"),
        **description,
    )


#: The files of such rows.
ROWS = RowFiles(BandwidthRow, "bandwidths", "drbench bandwidth --csv FILE")
