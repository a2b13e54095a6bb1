"""The record of one case, which is the CSV schema of every result file.

Each case that ran, was refused or failed has one :class:`Record`: first the keys, which describe
the case, then the measurements, with units in their names. :mod:`drbench.measure.record_file` reads
and writes files of records.

Imports are light, because each rank imports this module.
"""

import operator
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from math import inf, isfinite
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from drbench.program.steps import COUNTERS

SCHEMA_VERSION = 14
MODES = ("measured", "simulated", "published")
STATUSES = ("ok", "unsupported", "wrong", "failed", "timeout", "out_of_memory")


# types of fields; None is an empty cell
Integer, Number, Flag, Text = int | None, float | None, bool | None, str | None


#: The least and the largest number that is measured: those of two multiply without overflow.
_TINY, _MOST = 1e-100, 1e100


def _column(
    description: str, unit: str = "", default: Any = None, least: float = 0, **more: Any
) -> Any:
    """A column with its meaning and its unit, which docs/reference/records.md lists, and the least
    of its numbers."""
    metadata = {"description": description, "unit": unit, "least": least}
    return field(default=default, metadata=metadata, **more)


class RecordError(ValueError):
    """A record or a record file breaks the schema: the problem, the value found and the remedy, in
    one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One case: its keys, its outcome, and its measurements.

    Only ``mode`` and ``status`` are required; ``None`` is an empty cell (for ``samples_s``:
    ``[]``). Values are made plain when a record is built (NumPy scalars become int and float, a
    text is put on one line of at most 10 000 characters, an empty text becomes ``None``), so that a
    record equals the one read back from its row. Use ``dataclasses.replace`` to change one.

    Raises
    ------
    RecordError
        If ``mode``, ``status`` or ``schema_version`` is unknown, if ``status`` is ``ok`` without a
        positive ``best_s`` or anything else without a ``reason``, or if a value has the wrong type.

    Examples
    --------
    >>> Record(mode="measured", status="ok", m=64, best_s=0.25, samples_s=[0.25, 0.5]).samples_s
    [0.25, 0.5]
    >>> try:
    ...     Record(mode="measured", status="failed")
    ... except RecordError as error:
    ...     print(error)
    status 'failed' needs a reason; got none. Say in one line why the case is not ok.
    """

    # -- keys: the case
    schema_version: Integer = _column("version of these columns", default=SCHEMA_VERSION)
    mode: Text = _column("measured, simulated or published", default=MISSING)
    label: Text = _column(
        "name of what ran or was predicted: --label, else here, the machine model's or the source's"
    )
    machine: Text = _column("name of the machine model of a prediction")
    algorithm: Text = _column("algorithm or library; of published rows the name of the series")
    stationary: Text = _column("matrix whose tiles do not move, A, B or C; universal only")
    dataflow: Text = _column("OS, LS or RS (C, A or B stays), or a 1-D algorithm's own")
    mesh: Text = _column("process mesh, rows x columns")
    slices: Integer = _column("slice count S of meshslice")
    block: Integer = _column(
        "block of meshslice's slicing, or of a block-cyclic library", "elements"
    )
    panel: Integer = _column("width of SUMMA's panels", "elements")
    unroll: Integer = _column("ring steps, or panels, merged into one GEMM")
    chunk: Integer = _column("longest range of an axis that one GEMM covers", "elements")
    schedule: Text = _column("direct, greedy, cost or exhaustive, and :COMPUTExCOMM")
    ir_max_compute: Integer = _column("most GEMMs in one operation of a lowered program")
    ir_max_comm: Integer = _column("most transfers in one operation of a lowered program")
    assemble: Text = _column("packing of operands in older records: never or always; empty: auto")
    options: Text = _column("other options of the algorithm, as name=value;name=value")
    m: Integer = _column("rows of A and C", "elements", least=1)
    n: Integer = _column("columns of B and C", "elements", least=1)
    k: Integer = _column("columns of A, rows of B", "elements", least=1)
    experts: Integer = _column("expert matrices in B; m then counts tokens")
    topk: Integer = _column("experts of one token")
    routing: Text = _column("uniform or skewed, and :SEED")
    transpose: Text = _column("operands that are stored transposed: a, b or ab; empty: none")
    alpha: Number = _column("factor of A B in C = alpha A B + beta C; empty: 1", least=-inf)
    beta: Number = _column("factor of the C that is there before; empty: 0", least=-inf)
    dtype: Text = _column("element type; as bfloat16:float32 if C has another type than A and B")
    fill: Text = _column("elements of A and B: integer or uniform")
    ranks: Integer = _column("MPI ranks", least=1)
    threads: Integer = _column("BLAS threads of one rank", least=1)
    nodes: Integer = _column("nodes that the ranks ran on", least=1)
    a: Text = _column("partition of A as it is stored")
    b: Text = _column("partition of B as it is stored")
    c: Text = _column("partition of C")
    preset: Text = _column("name of the three partitions, if one was given")
    backend: Text = _column("numpy (cores) or cupy (GPUs)")
    compute: Text = _column("arithmetic of GEMMs on a device: fp32, tf32, fp64 or bf16")
    max_gemms: Integer = _column("GEMMs that may run at the same time on a device")
    max_accumulates: Integer = _column("accumulates that may run at the same time on a device")
    accumulate_blocks: Integer = _column("most thread blocks of an accumulate kernel")
    copy_streams: Integer = _column("streams for copies of each direction on a device")
    collectives: Text = _column(
        "who moves the data of collectives: mpi; on devices nccl, gpu-aware or staged"
    )
    transport: Text = _column(
        "direct, rma, mixed (both, on several nodes) or throttled:GBps,us; auto: of predictions"
    )
    arbitration: Text = _column("how simulated transfers share links: fair or fifo")
    get: Text = _column("tiles of ranks on the same node: view (read in place) or copy")
    progress: Text = _column(
        "who drives MPI during GEMMs: poll or none; on devices, of programs with signals, who "
        "sends and awaits these: streams or hosts"
    )
    prefetch: Integer = _column(
        "look-ahead in GEMMs that need communication; empty: all, or a library's own"
    )
    iters: Integer = _column("least number of timed repeats")
    budget_s: Number = _column(
        "repeats continue for at most this long, until the median is known; 0: iters only", "s"
    )
    warmup: Integer = _column("repeats before the timed ones")
    seed: Integer = _column("seed of the matrix elements")
    replicate_result: Flag = _column("whether all replicas of C get the result")
    case: Text = _column("hash of the case's definition, in a sweep")
    environment: Text = _column(
        "id of the file in environments/ that describes software and hardware"
    )
    # -- how it ended
    status: Text = _column(
        "ok, unsupported, wrong, failed, timeout or out_of_memory", default=MISSING
    )
    reason: Text = _column(
        "one line: why the case is not ok; if ok, that a sweep dropped it, or why GPUs of a node "
        "do not reach each other's memory, else empty"
    )
    # -- measurements
    best_s: Number = _column(
        "shortest repeat; a repeat lasts as long as its slowest rank", "s", least=_TINY
    )
    median_s: Number = _column("median of the repeats: the time of the case", "s", least=_TINY)
    samples_s: list[float] = _column(
        "every timed repeat, separated by semicolons; of a prediction its time, then those "
        "with other constants",
        "s",
        least=_TINY,
        default_factory=list,
        default=MISSING,
    )
    iqr_s: Number = _column("interquartile range of the repeats", "s")
    median_low_s: Number = _column(
        "lower end of the 95 % interval of the median, or of a predicted time", "s"
    )
    median_high_s: Number = _column("upper end of that interval", "s")
    cpu_s: Number = _column(
        "CPU time of a rank's threads: median of the repeats, mean over the ranks", "s"
    )
    disturbed: Integer = _column("repeats in which another process kept a rank from its core")
    core_share: Number = _column(
        "least share of its core that a rank had, 0 to 1: median of the repeats"
    )
    stable: Flag = _column(
        "whether the median (of ratios to GEMM-only speed, or of times) is known within 2 %"
    )
    noisy: Flag = _column("whether the row is too uncertain to conclude from")
    oversubscribed: Flag = _column(
        "whether ranks x threads of a node exceed its cores, or ranks share a GPU"
    )
    gflops: Number = _column(
        "rate of all ranks together: 2 m n k / median_s; with experts 2 m topk n k / median_s",
        "GFLOP/s",
    )
    gemm_only_gflops: Number = _column(
        "GEMM-only speed, of the same local GEMMs without communication, all ranks: median of the "
        "repeats",
        "GFLOP/s",
    )
    percent_of_gemm_only: Number = _column(
        "gflops over GEMM-only speed: median of the ratios of paired repeats", "%"
    )
    balance_limit: Number = _column(
        "mean FLOPs of a rank / most FLOPs of one: the largest possible share of GEMM-only speed"
    )
    percent_of_gemm_only_min: Number = _column("least of those ratios", "%")
    percent_of_gemm_only_max: Number = _column("largest of those ratios", "%")
    percent_of_gemm_only_low: Number = _column(
        "lower end of the 95 % interval of their median", "%"
    )
    percent_of_gemm_only_high: Number = _column("upper end of that interval", "%")
    percent_of_peak: Number = _column("gflops over peak_gflops; empty if no peak is given", "%")
    peak_gflops: Number = _column(
        "peak of all ranks together, for this element type and backend", "GFLOP/s"
    )
    peak_source: Text = _column("source of that peak")
    local_gemm_s: Number = _column(
        "time of the same work at GEMM-only speed: local GEMMs, no communication", "s"
    )
    effective_communication_s: Number = _column(
        "median_s - local_gemm_s (FLUX, Eq. 1)", "s", least=-inf
    )
    overlap_efficiency: Number = _column(
        "1 - effective_communication_s / the same of the algorithm collective, on this layout "
        "(FLUX, Eq. 2)",
        least=-inf,
    )
    beyond: Text = _column(
        "properties of a prediction outside the range of the model's calibration"
    )
    get_bytes: Integer = _column("fetched from other ranks by copies, all ranks together", "B")
    direct_bytes: Integer = _column(
        "read in place from other ranks' memory, all ranks together", "B"
    )
    put_bytes: Integer = _column("written to other ranks, all ranks together", "B")
    accumulate_bytes: Integer = _column("added to other ranks' tiles, all ranks together", "B")
    collective_bytes: Integer = _column("moved by collectives and shifts, all ranks together", "B")
    replica_bytes: Integer = _column("moved between replicas, all ranks together", "B")
    pool_bytes: Integer = _column("receive and scratch memory of the rank that needs most", "B")
    panel_bytes: Integer = _column("copied into packed operands, all ranks together", "B")
    peak_rss_bytes: Integer = _column("largest resident memory of one rank's process", "B")
    peak_device_bytes: Integer = _column("largest device memory of one rank", "B")
    plan_s: Number = _column("planning before anything is timed, on the slowest rank", "s")
    steps: Integer = _column("steps of the programs of all ranks together")
    phase_get_wait_s: Number = _column(
        "waiting for fetched tiles (all phases: mean over the ranks, in the median repeat)", "s"
    )
    phase_collective_wait_s: Number = _column("waiting for collectives, shifts and signals", "s")
    phase_gemm_s: Number = _column("inside BLAS", "s")
    phase_accumulate_s: Number = _column("adding to own or remote tiles", "s")
    phase_fence_s: Number = _column("waiting in fences", "s")
    phase_pack_s: Number = _column("copying blocks into packed operands", "s")
    slowest_rank: Integer = _column(
        "rank that computed longest (GEMMs, accumulates, packing), in the median repeat"
    )
    slowest_rank_s: Number = _column("how long that rank computed", "s")
    device: Text = _column("name of the GPU")
    ranks_per_device: Integer = _column("ranks that share one GPU")
    blas: Text = _column("BLAS library and version")
    blas_kernel: Text = _column("processor architecture that the BLAS chose its kernels for")
    mpi: Text = _column("MPI library and version")
    error: Number = _column("largest error that the verification found; 0 is exact")
    timestamp: Text = _column("end of the case, ISO 8601")

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kind.made_plain(value))
            except (TypeError, ValueError, OverflowError):
                raise RecordError(
                    f"{name} must be {kind.allowed}; got {value!r}. Leave it None if it is not "
                    "known."
                ) from None
        trouble = trouble_of(*(getattr(self, name) for name in CHECKED))
        if trouble:
            raise RecordError(trouble)

    @property
    def time_s(self) -> float | None:
        """The time of the case: the median of its repeats, or the one time that is simulated or
        published.

        Examples
        --------
        >>> Record(mode="measured", status="ok", best_s=1.0, median_s=1.5).time_s
        1.5
        """
        return self.best_s if self.median_s is None else self.median_s

    @property
    def moved_bytes(self) -> int | None:
        """Bytes moved by any means, read in place included; ``None`` if no :data:`COUNTERS` was
        counted: unknown is not zero.

        Examples
        --------
        >>> case = Record(mode="measured", status="ok", best_s=0.1, put_bytes=8, replica_bytes=4)
        >>> case.moved_bytes
        12
        """
        counts = [getattr(self, name) for name in COUNTERS]
        return None if counts == [None] * len(COUNTERS) else sum(count or 0 for count in counts)

    def to_row(self) -> list[str]:
        """The CSV cells, in the order of :data:`HEADER`; ``None`` is an empty cell.

        Floats are written by ``repr``, so they round-trip. A text that a spreadsheet would run as a
        formula gets a single quote before it, which :meth:`from_row` takes off.

        Examples
        --------
        >>> row = Record(mode="simulated", status="failed", reason="=1+1", ranks=4).to_row()
        >>> [row[HEADER.index(name)] for name in ("mode", "ranks", "reason", "best_s")]
        ['simulated', '4', "'=1+1", '']
        """
        values = ((kind, getattr(self, name)) for name, kind in KINDS.items())
        return ["" if value is None else kind.write(value) for kind, value in values]

    @classmethod
    def from_row(cls, row: Iterable[str]) -> "Record":
        """The record of one row of CSV cells.

        Raises
        ------
        RecordError
            If the row has the wrong number of cells, a cell does not parse, or the record is
            invalid.

        Examples
        --------
        >>> record = Record(mode="measured", status="ok", best_s=0.1, replicate_result=False)
        >>> Record.from_row(record.to_row()) == record
        True
        """
        cells = list(row)
        if len(cells) != len(HEADER):
            raise RecordError(
                f"a row of schema {SCHEMA_VERSION} has {len(HEADER)} cells; got {len(cells)}. "
                "Restore the row or delete it."
            )
        values = {}
        for (name, kind), cell in zip(KINDS.items(), cells, strict=True):
            try:
                values[name] = kind.read(cell) if cell else None
            except (ValueError, KeyError):
                raise RecordError(
                    f"{name} must be {kind.allowed}; got the cell {cell!r}. Correct it or empty it."
                ) from None
        return cls(**values)

    def to_json_dict(self) -> dict[str, Any]:
        """A dictionary for ``json.dumps``: ``samples_s`` a list, ``None`` for null.

        JSON has no NaN and no infinity: those become ``None``.

        Examples
        --------
        >>> Record(mode="measured", status="ok", best_s=1.0, samples_s=[1, 2]).to_json_dict()[
        ...     "samples_s"
        ... ]
        [1.0, 2.0]
        """
        return {name: _json_value(getattr(self, name)) for name in HEADER}


class _FieldKind(NamedTuple):
    """One type of field: functions that make a value plain, write it to a cell and read it."""

    allowed: str
    plain: Callable[[Any], Any]
    write: Callable[[Any], str]
    read: Callable[[str], Any]

    #: The value that replaces None.
    empty: Callable[[], Any] = type(None)
    #: The least number, and the largest; without a largest any value is allowed.
    least: float = -inf
    most: float | None = None

    def made_plain(self, value: Any) -> Any:
        value = self.empty() if value is None else self.plain(value)
        numbers = value if isinstance(value, list) else () if value is None else (value,)
        if self.most is not None and not all(self.least <= x <= self.most for x in numbers):
            raise ValueError
        return value

    def column(self, cells: Iterable[str]) -> list:
        """The values of many cells; equal texts are read once."""
        known = {cell: self.made_plain(self.read(cell)) for cell in set(cells) - {""}}
        known[""] = self.empty()
        return [known[cell] for cell in cells]


# the quote itself too, so that reading is the inverse
FORMULA_STARTS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "'",
)
# csv refuses to read a cell beyond 131 072 characters
_MOST_CHARACTERS, _MOST_SAMPLES = (
    10_000,
    5_000,
)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def _plain_text(value: Any) -> str | None:
    if not isinstance(value, str):
        raise TypeError
    # one row is one line; surrogates (from file names), which UTF-8 cannot encode, must not lose it
    text = " ".join(value.splitlines()).encode("utf-8", "backslashreplace").decode("utf-8")
    text = _CONTROL.sub(" ", text)
    return text[:_MOST_CHARACTERS] or None


def _plain_bool(value: Any) -> bool:
    if type(value).__name__ in ("bool", "bool_", "numpy.bool"):
        return bool(value)
    raise TypeError


def _plain_int(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return int(operator.index(value))


def _plain_float(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError
    return float(value)


def _plain_finite(value: Any) -> float | None:
    """A number; None if it is infinite or NaN."""
    value = _plain_float(value)
    return value if isfinite(value) else None


def _finite(cell: str) -> float:
    """The number of a cell; no measurement gives an infinite one."""
    value = float(cell)
    if not isfinite(value):
        raise ValueError
    return value


def _plain_list(values: Any) -> list[float]:
    values = [value if type(value) is float else _plain_float(value) for value in values]
    if len(values) > _MOST_SAMPLES:
        raise ValueError
    return values


def _json_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


_KIND_OF_TYPE = {
    Integer: _FieldKind("an integer", _plain_int, repr, int, most=2**63 - 1),
    Number: _FieldKind("a number", _plain_finite, repr, _finite, most=_MOST),
    Flag: _FieldKind(
        "true or false",
        _plain_bool,
        lambda value: repr(value).lower(),
        lambda cell: {"true": True, "false": False}[cell.lower()],
    ),
    Text: _FieldKind(
        "a text in UTF-8",
        _plain_text,
        lambda text: "'" + text if text.startswith(FORMULA_STARTS) else text,
        lambda cell: cell.encode().decode().removeprefix("'"),  # raises of another encoding
    ),
    list[float]: _FieldKind(
        f"at most {_MOST_SAMPLES} numbers",
        _plain_list,
        lambda values: ";".join(map(repr, values)),
        lambda cell: [float(part) for part in cell.split(";")],
        list,
        most=_MOST,
    ),
}


def _kind_of(column: Any) -> _FieldKind:
    kind, least = _KIND_OF_TYPE[column.type], column.metadata["least"]
    if kind.most is None:
        return kind
    if least == -inf:  # any that is finite
        return kind._replace(most=sys.float_info.max)
    return kind._replace(allowed=f"{kind.allowed} from {least:g} to {kind.most:g}", least=least)


#: How the values of each column are made plain, written and read.
KINDS: dict[str, _FieldKind] = {item.name: _kind_of(item) for item in fields(Record)}
KINDS["error"] = _FieldKind(
    "a number", _plain_float, repr, float
)  # of a wrong C it may be inf or NaN
HEADER: tuple[str, ...] = tuple(KINDS)
#: Columns of this version under their names in older ones, None where these have none.
_IN_13: dict[str, str | None] = dict.fromkeys(("slowest_rank", "slowest_rank_s"))
_OLDER: dict[str, dict[str, str | None]] = {
    "12": _IN_13
    | {"label": "machine", "machine": None}
    | {name: name.replace("gemm_only", "roof") for name in HEADER if "gemm_only" in name},
    "13": _IN_13,
}
#: Columns that identify a case: where it ran, with what, and its request, without how often it was
#: repeated.
WHERE = ("label", "machine", "nodes")
WITH = ("device", "ranks_per_device", "blas", "blas_kernel", "mpi")
REQUEST = tuple(
    name
    for name in HEADER[HEADER.index("mode") : HEADER.index("status")]
    if name not in (*WHERE, "iters", "budget_s", "warmup", "case", "environment")
)
IDENTITY = (*REQUEST, *WHERE, *WITH)
#: The header of each version of the schema that is read.
HEADERS = {
    version: tuple(older for name in HEADER if (older := names.get(name, name)))
    for version, names in _OLDER.items()
} | {str(SCHEMA_VERSION): HEADER}


def from_older(row: tuple[str, ...]) -> tuple[str, ...]:
    """The cells of a row of an older version in this one; unchanged if they are not those of such a
    row.

    Examples
    --------
    >>> old = {"schema_version": "12", "mode": "simulated", "machine": "pvc12", "roof_gflops": "2"}
    >>> row = from_older(tuple(old.get(name, "") for name in HEADERS["12"]))
    >>> {name: cell for name, cell in zip(HEADER, row) if cell}  # doctest: +NORMALIZE_WHITESPACE
    {'schema_version': '14', 'mode': 'simulated', 'label': 'pvc12', 'machine': 'pvc12',
     'gemm_only_gflops': '2'}
    """
    version = row[0] if row else ""
    if version not in _OLDER or len(row) != len(HEADERS[version]):
        return row
    cells: dict[str | None, str] = dict(zip(HEADERS[version], row))
    values = {name: cells.get(_OLDER[version].get(name, name), "") for name in HEADER}
    values["schema_version"] = str(SCHEMA_VERSION)
    if version == "12" and cells["mode"] == "simulated":
        values["machine"] = cells["machine"]
    return tuple(values.values())


#: Columns of algorithms' options; the last holds all options without a column.
OPTION_COLUMNS = HEADER[HEADER.index("stationary") : HEADER.index("options") + 1]


def unknown_version(version: Any) -> str:
    """The message that records of another schema version are not read, and the remedy.

    Examples
    --------
    >>> unknown_version("11")
    'schema_version 11 is of an older drbench; this one reads 14. Use the drbench that wrote the...
    """
    try:
        older = int(version) < SCHEMA_VERSION
    except (TypeError, ValueError):
        older = False
    return (
        f"schema_version {version} is {'of an older drbench' if older else 'unknown'}; this "
        f"{'one' if older else 'drbench'} reads {SCHEMA_VERSION}. Use the drbench that "
        "wrote the file, or measure again."
    )


def trouble_of(schema_version, mode, status, reason, best_s) -> str | None:
    """The message how these fields break the schema; None if they do not."""
    if schema_version != SCHEMA_VERSION:
        return unknown_version(schema_version)
    if mode not in MODES:
        return f"mode must be one of {', '.join(MODES)}; got {mode!r}. Correct the mode."
    if status not in STATUSES:
        return f"status must be one of {', '.join(STATUSES)}; got {status!r}. Correct the status."
    if status != "ok" and reason is None:
        return (
            f"status {status!r} needs a reason; got none. Say in one line why the case is not ok."
        )
    if status == "ok" and best_s is None:
        return "status 'ok' needs best_s > 0; got none. Use status 'failed' with a reason."
    return None


#: The fields that :func:`trouble_of` checks together.
CHECKED = ("schema_version", "mode", "status", "reason", "best_s")


def by_balance(of: Any) -> str:
    """Text after the percent of GEMM-only speed of a record or a row of a table: the most that it
    could be, if work is uneven.

    Examples
    --------
    >>> uneven = Record(mode="measured", status="ok", best_s=1, balance_limit=0.8551)
    >>> by_balance(uneven), by_balance(Record(mode="measured", status="ok", best_s=1))
    (' of 85.5 by balance', '')
    """
    limit = getattr(of, "balance_limit", None)
    return f" of {100 * limit:.1f} by balance" if limit is not None and limit < 0.9995 else ""


def options_text(options: dict[str, Any]) -> str | None:
    """The text of the column ``options``; None if there are none.

    Examples
    --------
    >>> options_text({"colour": 3, "deep": True, "left": None})
    'colour=3;deep=true'
    """
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    return ";".join(f"{name}={quote(text, ' /:,.()')}" for name, text in texts.items()) or None


def read_options(text: str | None) -> dict[str, str]:
    """The texts by name that :func:`options_text` wrote.

    Examples
    --------
    >>> read_options("colour=3;shade=a%3Bb"), read_options(None)
    ({'colour': '3', 'shade': 'a;b'}, {})
    """
    parts = (part.partition("=") for part in (text or "").split(";") if part)
    return {name: unquote(value) for name, _, value in parts}


def options_of(record: Record) -> dict[str, Any]:
    """The options that a record contains; those without a column of their own are texts.

    Examples
    --------
    >>> record = Record(mode="measured", status="ok", best_s=1, slices=8, options="colour=3")
    >>> options_of(record)
    {'slices': 8, 'colour': '3'}
    """
    own = {name: getattr(record, name) for name in OPTION_COLUMNS[:-1]}
    return {name: value for name, value in own.items() if value is not None} | read_options(
        record.options
    )
