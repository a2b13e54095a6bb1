"""The record of one case, which is the CSV schema of every result file.

A case that ran, was refused or failed leaves one :class:`Record`: the keys that say what was
asked first, the measurements after, units in names. How files of them are read and written is in
:mod:`drbench.measure.record_file`.

Nothing heavy is imported: a rank imports this module.
"""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from drbench.program.steps import COUNTERS

SCHEMA_VERSION = 12
MODES = ("measured", "simulated", "published")
STATUSES = ("ok", "unsupported", "wrong", "failed", "timeout", "out_of_memory")


# what a field holds; None is an empty cell
Integer, Number, Flag, Text = int | None, float | None, bool | None, str | None


class RecordError(ValueError):
    """A record or a record file that breaks the schema: what, got, and the way out, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One case: what was asked, how it ended, what it took.

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

    # -- keys: what was asked
    schema_version: Integer = SCHEMA_VERSION
    mode: Text  # measured | simulated | published
    machine: Text = None
    algorithm: Text = None  # registry name; for published rows the name of the series
    stationary: Text = None  # A | B | C; universal only
    dataflow: Text = None  # OS | LS | RS, or a 1-D algorithm's own
    mesh: Text = None  # process mesh Pr x Pc, as 2x3
    slices: Integer = None  # MeshSlice's S
    block: Integer = None  # elements: of MeshSlice's slicing, or of a block-cyclic peer
    panel: Integer = None  # elements: SUMMA's panel width
    unroll: Integer = None  # ring steps merged into one product
    chunk: Integer = None  # elements: longest range of the free axis in one product
    schedule: Text = None  # direct | greedy | cost | exhaustive
    ir_max_compute: Integer = None  # products in one operation of a lowered program
    ir_max_comm: Integer = None  # transfers in one operation of a lowered program
    assemble: Text = None  # never | always: pieces of operands copied together; auto where empty
    options: Text = None  # the algorithm's other options: name=value;name=value
    m: Integer = None  # C is m x n, A is m x k, B is k x n
    n: Integer = None
    k: Integer = None
    experts: Integer = None  # of a product of experts; m counts tokens then
    topk: Integer = None  # experts of a token
    routing: Text = None  # uniform | skewed, and :SEED
    transpose: Text = None  # operands stored transposed: a | b | ab; none where empty
    alpha: Number = None  # C = alpha A B + beta C: 1 and 0 where empty
    beta: Number = None
    dtype: Text = None
    fill: Text = None
    ranks: Integer = None
    threads: Integer = None  # a rank
    nodes: Integer = None
    a: Text = None  # text form of the partition of A as it is stored
    b: Text = None
    c: Text = None
    preset: Text = None
    backend: Text = None  # numpy | numpy-async | cupy
    compute: Text = None  # arithmetic of products on a device: fp32 | tf32 | fp64 | bf16
    max_gemms: Integer = (
        None  # products that may run at the same time on a device; likewise accumulates
    )
    max_accumulates: Integer = None
    accumulate_blocks: Integer = None  # thread blocks an accumulate kernel is limited to
    copy_streams: Integer = None  # of each direction, in a program with signals on a device
    #: mpi; nccl | gpu-aware | staged; older records have direct | direct+mpi too: shared memory
    collectives: Text = None
    transport: Text = None
    arbitration: Text = None  # of a simulation: fair | fifo, how transfers share links
    get: Text = None
    progress: Text = None  # poll | thread | none; on devices who signals: streams | hosts
    prefetch: Integer = None  # look-ahead in Gemms; empty: all, or a peer's own
    iters: Integer = None  # at least so many timed repeats
    budget_s: Number = None  # and more, until the median is known well, for so long; 0: none
    warmup: Integer = None
    seed: Integer = None
    replicate_result: Flag = None
    case: Text = None  # hash of the case's definition, in a sweep
    environment: Text = None  # id of the environment file the row was measured in
    # -- how it ended
    status: Text  # one of STATUSES
    reason: Text = None  # one line; required unless ok
    # -- measurements
    best_s: Number = None
    median_s: Number = None
    samples_s: list[float] = field(default_factory=list)  # every timed repeat, slowest rank
    iqr_s: Number = None  # interquartile range of the samples
    median_low_s: Number = None  # 95 % interval: of the median, from order statistics, or, where
    # simulated, of the prediction (launch.models.intervals)
    median_high_s: Number = None
    cpu_s: Number = None  # of all threads of a rank: median of the repeats, mean over the ranks
    disturbed: Integer = None  # repeats in which some rank was kept from its core; left out where
    # --iters others are left (before schema 12: those that were left out)
    core_share: Number = None  # of its core that a rank had: the least of the ranks, median of the
    # repeats that count; where ranks share cores, of what they are due
    stable: Flag = None  # the median of the ratios to the roof (or of times) is known within 2 %
    noisy: Flag = None  # nothing is to be concluded from this row: drbench.measure.noise says when
    oversubscribed: Flag = (
        None  # ranks x threads of some node exceed its cores, or ranks share GPUs
    )
    gflops: Number = None  # 2mnk (of experts: of each pair) / median_s / 1e9, all ranks together
    roof_gflops: Number = None  # local GEMMs alone, all ranks together: median of the repeats
    percent_of_roof: Number = None  # median of the paired ratios; min and max are their range
    balance_limit: Number = None  # mean FLOPs of a rank / most of one: no run gets nearer its roof
    percent_of_roof_min: Number = None
    percent_of_roof_max: Number = None
    percent_of_roof_low: Number = None  # 95 % interval of that median
    percent_of_roof_high: Number = None
    percent_of_peak: Number = None  # empty without a peak that has a source
    peak_gflops: Number = None  # of all ranks together, of this element type and backend
    peak_source: Text = None  # where that peak comes from
    local_gemm_s: Number = (
        None  # the same work in local products alone, best shape, no communication
    )
    effective_communication_s: Number = None  # median_s - local_gemm_s (FLUX, Eq. 1)
    overlap_efficiency: Number = (
        None  # 1 - effective communication / that of collective on the same layout (FLUX, Eq. 2)
    )
    beyond: Text = None  # what a prediction needed and its machine's calibration did not see
    get_bytes: Integer = None  # copied; bytes are summed over all ranks
    direct_bytes: Integer = None  # read in place
    put_bytes: Integer = None
    accumulate_bytes: Integer = None
    collective_bytes: Integer = None
    replica_bytes: Integer = None
    pool_bytes: Integer = None  # the most one rank holds
    panel_bytes: Integer = None  # of operands copied into panels, all ranks together
    peak_rss_bytes: Integer = None
    peak_device_bytes: Integer = None  # the most one rank's device memory holds
    plan_s: Number = None
    steps: Integer = None
    phase_get_wait_s: Number = None
    phase_collective_wait_s: Number = None
    phase_gemm_s: Number = None
    phase_accumulate_s: Number = None
    phase_fence_s: Number = None
    phase_pack_s: Number = None
    device: Text = None
    ranks_per_device: Integer = None
    blas: Text = None
    blas_kernel: Text = None
    mpi: Text = None
    error: Number = None  # what the verification found; 0 is exact
    timestamp: Text = None  # ISO 8601

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
        """The time of the case: the median of its repeats; what is simulated or published has one
        time.

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
        """Give the CSV cells, in the order of :data:`HEADER`; ``None`` is an empty cell.

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
        """Build the record of one row of CSV cells.

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
        """Give a dictionary for ``json.dumps``: ``samples_s`` a list, ``None`` for null.

        JSON has no NaN and no infinity: those become ``None``.

        Examples
        --------
        >>> Record(mode="measured", status="ok", best_s=1.0, samples_s=[1, 2]).to_json_dict()[
        ...     "samples_s"
        ... ]
        [1.0, 2.0]
        """
        return {name: _json_value(getattr(self, name)) for name in HEADER}


class _Kind(NamedTuple):
    """One type of field: how its values are made plain, written to a cell and read from a full
    one."""

    allowed: str
    plain: Callable[[Any], Any]
    write: Callable[[Any], str]
    read: Callable[[str], Any]

    #: What stands for None.
    empty: Callable[[], Any] = type(None)

    def made_plain(self, value: Any) -> Any:
        return self.empty() if value is None else self.plain(value)

    def column(self, cells: Iterable[str]) -> list:
        """The values of many cells; those of equal texts are read once."""
        found = set(cells) - {""}
        values = map(self.read, found)
        if self.plain in (_plain_text, _plain_list):  # a number's cell holds a plain one already
            values = map(self.plain, values)
        known = {"": self.empty()} | dict(zip(found, values))
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


def _plain_text(value: Any) -> str | None:
    if not isinstance(value, str):
        raise TypeError
    # one row is one line; what UTF-8 cannot hold (surrogates from file names) must not lose the row
    text = " ".join(value.splitlines()).encode("utf-8", "backslashreplace").decode("utf-8")
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
    """A number; one that is infinite or NaN is not known."""
    value = _plain_float(value)
    return value if math.isfinite(value) else None


def _finite(cell: str) -> float:
    """The number of a cell; no measurement gives an infinite one."""
    value = float(cell)
    if not math.isfinite(value):
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
    return None if isinstance(value, float) and not math.isfinite(value) else value


_KIND_OF_TYPE = {
    Integer: _Kind("an integer", _plain_int, repr, int),
    Number: _Kind("a number", _plain_finite, repr, _finite),
    Flag: _Kind(
        "true or false",
        _plain_bool,
        lambda value: repr(value).lower(),
        lambda cell: {"true": True, "false": False}[cell.lower()],
    ),
    Text: _Kind(
        "a text",
        _plain_text,
        lambda text: "'" + text if text.startswith(FORMULA_STARTS) else text,
        lambda cell: cell.removeprefix("'"),
    ),
    list[float]: _Kind(
        f"at most {_MOST_SAMPLES} numbers",
        _plain_list,
        lambda values: ";".join(map(repr, values)),
        lambda cell: [float(part) for part in cell.split(";")],
        list,
    ),
}
#: How the values of each column are made plain, written and read.
KINDS: dict[str, _Kind] = {item.name: _KIND_OF_TYPE[item.type] for item in fields(Record)}
KINDS["error"] = _Kind("a number", _plain_float, repr, float)  # of a wrong C it may be inf or NaN
HEADER: tuple[str, ...] = tuple(KINDS)
#: Columns of algorithms' options; the last holds those that have none of their own.
OPTION_COLUMNS = HEADER[HEADER.index("stationary") : HEADER.index("options") + 1]


def unknown_version(version: Any) -> str:
    """Say that records of another schema version are not read, and what to do.

    Examples
    --------
    >>> unknown_version("11")
    'schema_version 11 is of an older drbench; this one reads 12. Use the drbench that wrote the...
    """
    try:
        older = int(version) < SCHEMA_VERSION
    except (TypeError, ValueError):
        older = False
    return (
        f"schema_version {version} is {'of an older drbench' if older else 'unknown'}; this "
        f"{'one' if older else 'drbench'} reads {SCHEMA_VERSION}. Use the drbench that wrote the "
        "file, or measure again."
    )


def trouble_of(schema_version, mode, status, reason, best_s) -> str | None:
    """Say how these fields break the schema."""
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
    if status == "ok" and not 0 < (best_s or 0) < math.inf:
        return f"status 'ok' needs best_s > 0; got {best_s}. Use status 'failed' with a reason."
    return None


#: The fields that :func:`trouble_of` checks together.
CHECKED = ("schema_version", "mode", "status", "reason", "best_s")


def by_balance(of: Any) -> str:
    """Of a record or a row of a table, what stands after its percent of the roof: the most that it
    could be, where work is uneven.

    Examples
    --------
    >>> uneven = Record(mode="measured", status="ok", best_s=1, balance_limit=0.8551)
    >>> by_balance(uneven), by_balance(Record(mode="measured", status="ok", best_s=1))
    (' of 85.5 by balance', '')
    """
    limit = getattr(of, "balance_limit", None)
    return f" of {100 * limit:.1f} by balance" if limit is not None and limit < 0.9995 else ""


def options_text(options: dict[str, Any]) -> str | None:
    """What the column ``options`` holds; None for nothing.

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
    """The options that a record was made with, as far as they are told; those without a column of
    their own are texts.

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
