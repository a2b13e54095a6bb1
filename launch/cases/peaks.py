"""Peaks: what cores or devices multiply at most, as the user gives it, and percent of it in
records."""

from dataclasses import dataclass, replace

from drbench.measure.record import Record


@dataclass(frozen=True)
class Peak:
    """What one core, device or rank multiplies at most, of one element type.

    Attributes
    ----------
    per : str
        ``"core"``, ``"device"`` or ``"rank"``.
    gflops : float
        1e9 FLOP/s of one.
    source : str
        Where it comes from, in one line.
    """

    per: str
    gflops: float
    source: str

    def of_ranks(self, record: Record) -> float | None:
        """1e9 FLOP/s of all ranks of a record together; None if the peak is of other hardware, or
        the record does not say how much of it the ranks had.

        Examples
        --------
        Four ranks of two threads, and two GPUs that four ranks share:

        >>> run = dict(mode="measured", status="ok", best_s=1.0, ranks=4)
        >>> cores = Record(**run, backend="numpy", threads=2, nodes=2)
        >>> gpus = Record(**run, backend="cupy", ranks_per_device=2)
        >>> Peak("core", 50.0, "-").of_ranks(cores), Peak("device", 60e3, "-").of_ranks(gpus)
        (400.0, 120000.0)
        >>> Peak("core", 50.0, "-").of_ranks(gpus), Peak("rank", 7.0, "-").of_ranks(gpus)
        (None, 28.0)
        """
        ranks = record.ranks
        if self.per == "rank":
            return ranks * self.gflops
        if self.per == "device":
            on_devices = record.device or record.ranks_per_device
            return ranks * self.gflops / (record.ranks_per_device or 1) if on_devices else None
        if record.backend != "numpy" or not record.threads or record.oversubscribed:
            return None
        return ranks * record.threads * self.gflops


#: By element type.
Peaks = dict[str, Peak]


def arithmetic(dtype: str, compute: str | None = None) -> str:
    """The element type whose peak counts for products of a case.

    Examples
    --------
    >>> arithmetic("float32"), arithmetic("float32", "tf32"), arithmetic("bfloat16:float32")
    ('float32', 'tf32', 'bfloat16')
    """
    return "tf32" if compute == "tf32" else dtype.partition(":")[0]


def with_peak(record: Record, peaks: Peaks) -> Record:
    """A record with the columns ``peak_gflops``, ``peak_source`` and ``percent_of_peak``; as it is
    if it has no time, or no such peak is known.

    Examples
    --------
    >>> record = Record(
    ...     mode="measured", status="ok", dtype="float32", ranks=2, best_s=1.0, gflops=120.0
    ... )
    >>> found = with_peak(record, {"float32": Peak("rank", 75.0, "given")})
    >>> found.peak_gflops, found.percent_of_peak, found.peak_source
    (150.0, 80.0, 'given')
    """
    if record.status != "ok" or not record.gflops or not record.dtype or not record.ranks:
        return record
    peak = peaks.get(arithmetic(record.dtype, record.compute))
    total = peak and peak.of_ranks(record)
    if not total:
        return record
    return replace(
        record,
        peak_gflops=total,
        peak_source=peak.source,
        percent_of_peak=100 * record.gflops / total,
    )
