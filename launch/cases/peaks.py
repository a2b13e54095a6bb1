"""Peaks: what cores or devices multiply at most, as the user gives it, and percent of it.

They are given by ``--peak``, or in a machine file, which has them in the tables ``[peak.DTYPE]``,
each with its ``source``: ``core_gflops``, ``device_gflops``, or ``rank_gflops`` of whatever a rank
has. ``drbench doctor`` measures those of this machine's cores. A machine model whose peak is a
vendor's gives it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from drbench.errors import UsageError
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.model.machine_file import ARITHMETICS
from drbench.options import Option, named

from .sweep_values import check_keys, read_table, read_toml, require, shipped


def _above_0(gflops: float) -> float:
    if not 0 < gflops < inf:
        raise UsageError(f"must be a number above 0, got {gflops:g}.")
    return gflops


#: Element types that a peak may be of; bfloat16 also stands for products of it summed in float32.
DTYPES = ARITHMETICS
_RATES = named(
    *(Option(f"{per}_gflops", float, check=_above_0) for per in ("core", "device", "rank"))
)


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


def read_peaks(text: str | None, cases: Iterable, machine: str | None = None) -> Peaks:
    """The peaks that ``--peak`` gives, for some cases; empty if it is not given and the machine's
    file holds none.

    Parameters
    ----------
    text : str or None
        GFLOP/s of one rank, a machine by name or file, or ``none``; None for what the ``machine``
        file holds.
    cases : iterable of Case
        What is to be run.

    Raises
    ------
    UsageError
        If it is none of these, or a number stands for several element types.

    Examples
    --------
    >>> from launch.cases.case import Case
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
        if found := _of_file(text):
            return found
        raise UsageError(
            f"--peak {Path(text).name}: no number of GFLOP/s of one rank, none, nor a file (.toml) "
            "or machine (drbench list machines) that holds a table [peak.DTYPE] or a model with a "
            "vendor's peak. drbench doctor measures this machine's."
        ) from None
    if not 0 < gflops < inf:
        raise UsageError(f"--peak {text}: must be above 0, in GFLOP/s of one rank.")
    kinds = sorted({arithmetic(case.dtype, case.compute) for case in cases})
    if len(kinds) > 1:
        raise UsageError(
            f"--peak {text}: the cases are of {' and '.join(kinds)}, which have peaks of their "
            "own. Give a machine file with a table [peak.DTYPE] for each."
        )
    source = f"given: --peak {text} of one rank"
    return {kind: Peak("rank", gflops, source) for kind in kinds}


def check_peak(text: str) -> str:
    """What ``--peak`` takes, read once to see that it can be.

    Raises
    ------
    UsageError
    """
    read_peaks(text, ())
    return text


def _of_file(name: str) -> Peaks:
    """The peaks that a machine file holds, a vendor's in its model included; empty if there are
    none, or it is no file but a label."""
    path = shipped("machines").get(name, Path(name))
    if path.suffix != ".toml":
        return {}
    document = read_toml(path)
    tables, where = document.get("peak", {}), f"{path.name}: peak"
    require(isinstance(tables, dict), where, "tables, as [peak.float32]", tables)
    check_keys(tables, DTYPES, f"{where}.")
    found = _of_model(document.get("model"), path.stem)
    for dtype, table in tables.items():
        given = read_table(table, _RATES | named(Option("source")), f"{where}.{dtype}")
        rates = [key for key in _RATES if key in given]
        what = f"a table with one of {', '.join(_RATES)}, and its source"
        require(len(rates) == 1 and "source" in given, f"{where}.{dtype}", what, table)
        per = rates[0].partition("_")[0]
        found[dtype] = Peak(per, given[rates[0]], given["source"])
    return found


def _of_model(section, name: str) -> Peaks:
    """The peaks of a machine model, if they are not rates that products were fitted with."""
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
