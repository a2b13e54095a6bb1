"""Peak rates of cores or devices, as given by the user, and percentages of them.

They are given by ``--peak``, or in the tables ``[peak.DTYPE]`` of a machine file: ``core_gflops``,
``device_gflops``, or ``rank_gflops``, each with its ``source``. ``drbench doctor`` measures those
of this machine's cores. A machine model with a vendor's peak provides it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from drbench.errors import UsageError
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.model.machine_file import ARITHMETICS, read_section
from drbench.options import Option, named
from drbench.program.problem import REAL_OF

from .sweep_values import check_keys, read_table, read_toml, require, shipped


def _above_0(gflops: float) -> float:
    if not 0 < gflops < inf:
        raise UsageError(f"must be a number above 0, got {gflops:g}.")
    return gflops


_RATES = named(
    *(Option(f"{per}_gflops", float, check=_above_0) for per in ("core", "device", "rank"))
)


@dataclass(frozen=True)
class Peak:
    """The peak rate of one core, device or rank for one element type.

    Attributes
    ----------
    per : str
        ``"core"``, ``"device"`` or ``"rank"``.
    gflops : float
        1e9 FLOP/s of one core, device or rank.
    source : str
        The source of the number, in one line.
    """

    per: str
    gflops: float
    source: str

    def of_ranks(self, record: Record) -> float | None:
        """The peak of all ranks of a record together, in 1e9 FLOP/s; None if it is for other
        hardware, or the record lacks the cores or devices of the ranks.

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
    """The element type whose peak applies to a case.

    Examples
    --------
    >>> arithmetic("float32"), arithmetic("float32", "tf32"), arithmetic("bfloat16:float32")
    ('float32', 'tf32', 'bfloat16')
    """
    return "tf32" if compute == "tf32" else dtype.partition(":")[0]


def compute_column(dtype: str, compute: str | None = None) -> str:
    """The arithmetic of GEMMs on a GPU, as in the column ``compute`` of a record.

    Examples
    --------
    >>> compute_column("float64"), compute_column("float32", "tf32")
    ('fp64', 'tf32')
    >>> compute_column("bfloat16:float32")
    'bf16'
    """
    return arithmetic(dtype, compute).replace("bfloat", "bf").replace("float", "fp")


def with_peak(record: Record, peaks: Peaks) -> Record:
    """The record with the columns ``peak_gflops``, ``peak_source`` and ``percent_of_peak``;
    unchanged if it has no time, or the peak is unknown.

    Examples
    --------
    >>> record = Record(
    ...     mode="measured", status="ok", dtype="float32", ranks=2, best_s=1.0, gflops=120.0
    ... )
    >>> found = with_peak(record, {"float32": Peak("rank", 75.0, "given")})
    >>> found.peak_gflops, found.percent_of_peak, found.peak_source
    (150.0, 80.0, 'given')
    """
    if record.status != "ok" or not record.gflops:
        return record
    name = arithmetic(record.dtype, record.compute)
    peak = peaks.get(name) or peaks.get(REAL_OF.get(name, name))
    total = peak and peak.of_ranks(record)
    if not total:
        return record
    return replace(
        record,
        peak_gflops=total,
        peak_source=peak.source,
        percent_of_peak=100 * record.gflops / total,
    )


def read_peaks(text: str | None, cases: Iterable, machine: str | None = None) -> Peaks:
    """The peaks of ``--peak`` for some cases; empty if it is not given and the machine's file has
    none.

    Parameters
    ----------
    text : str or None
        GFLOP/s of one rank, a machine by name or file, or ``none``; None for the peaks of the
        ``machine`` file.
    cases : iterable of Case
        The cases to run.

    Raises
    ------
    UsageError
        If the text is none of these, or one number is given for several element types.

    Examples
    --------
    >>> from drbench.launch.cases.case import Case
    >>> read_peaks("80.5", [Case(8, 8, 8)])
    {'float32': Peak(per='rank', gflops=80.5, source='given: --peak 80.5 of one rank')}
    >>> read_peaks("h100x8", [])["float32"].gflops, read_peaks(None, [])
    (67000.0, {})
    """
    if text is None:
        return _of_file(machine.partition(",")[0]) if machine else {}
    if text == "none":
        return {}
    try:
        gflops = float(text)
    except ValueError:
        if peaks := _of_file(text):
            return peaks
        raise UsageError(
            f"--peak {Path(text).name}: give GFLOP/s of one rank, none, or a file (.toml) or "
            "machine (drbench list machines) with a table [peak.DTYPE] or a vendor's peak in its "
            "model. drbench doctor measures this machine's."
        ) from None
    if not 0 < gflops < inf:
        raise UsageError(f"--peak {text}: must be above 0, in GFLOP/s of one rank.")
    kinds = sorted({arithmetic(case.dtype, case.compute) for case in cases})
    if len(kinds) > 1:
        raise UsageError(
            f"--peak {text}: the cases are of {' and '.join(kinds)}, which have different peaks. "
            "Give a machine file with a table [peak.DTYPE] for each."
        )
    source = f"given: --peak {text} of one rank"
    return {kind: Peak("rank", gflops, source) for kind in kinds}


def check_peak(text: str) -> str:
    """Check the text of ``--peak`` and return it.

    Raises
    ------
    UsageError
    """
    read_peaks(text, ())
    return text


def _of_file(name: str) -> Peaks:
    """The peaks of a machine file, including a vendor's in its model; empty if there are none, or
    if the name is only a label."""
    path = shipped("machines").get(name, Path(name))
    if path.suffix != ".toml":
        return {}
    document = read_toml(path)
    tables, where = document.get("peak", {}), f"{path.name}: peak"
    require(isinstance(tables, dict), where, "tables, as [peak.float32]", tables)
    check_keys(tables, ARITHMETICS, f"{where}.")
    peaks = _of_model(read_section(path) if "model" in document else None, path.stem)
    for dtype, table in tables.items():
        given = read_table(table, _RATES | named(Option("source")), f"{where}.{dtype}")
        rates = [key for key in _RATES if key in given]
        what = f"a table with one of {', '.join(_RATES)}, and its source"
        require(len(rates) == 1 and "source" in given, f"{where}.{dtype}", what, table)
        per = rates[0].partition("_")[0]
        peaks[dtype] = Peak(per, given[rates[0]], given["source"])
    return peaks


def _of_model(section, name: str) -> Peaks:
    """The peaks of a machine model, unless they were fitted to GEMMs."""
    compute = section.get("compute", {}) if isinstance(section, dict) else {}
    if "peak_flops" not in compute or compute.get("peak_measured"):
        return {}
    tables = {section.get("dtype", Machine.dtype): ("compute", compute)}
    for dtype, own in section.get("dtypes", {}).items():
        tables[dtype] = (f"dtypes.{dtype}", own)
    return {
        dtype: Peak("device", table["peak_flops"] / 1e9, f"model.{where}.peak_flops of {name}")
        for dtype, (where, table) in tables.items()
    }
