"""A case to run, with each field described once. Imports no MPI, so that processes that start jobs
can make cases.

Type, default, check, unit, help and heading are written next to each field; the options of the
command line, the keys of sweep files and the checks are made from them. Columns of the record with
the name of a field are filled from it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any

from drbench.algorithms import get_algorithm
from drbench.clock import Clock
from drbench.errors import DrbenchError, UnsupportedError, UsageError
from drbench.launch.libraries import LIBRARIES, get_library
from drbench.measure.record import HEADER, OPTION_COLUMNS, Record, options_text
from drbench.options import Option, check_options
from drbench.partitions import LayoutError, parse, preset
from drbench.program.problem import ITEMSIZES, PLANNED, REAL_OF, Problem
from drbench.transport import parse_transport

#: Statuses of a case that are no failure of the sweep.
GOOD = ("ok", "unsupported")
#: Columns of the record that describe the case in a trace.
DESCRIPTION_FIELDS = ("algorithm", *OPTION_COLUMNS) + tuple(
    "m n k experts topk routing transpose alpha beta dtype ranks threads a b c transport prefetch "
    "progress label mode".split()
)

#: Where each backend multiplies.
BACKENDS = {"numpy": "cores", "cupy": "GPUs"}


def _is(kind=str, default=None, group="", *, on="", ours=False, **words):
    """A field and its description: ``on`` is the backend that uses it, if only one does; with
    ``ours`` only our executor does, not a library. A field without a heading is given by ``-o``."""
    words |= {"type": kind, "group": group}
    return field(default=default, metadata={"words": words, "on": on, "ours": ours})


_ours = partial(_is, ours=True)
_on_gpus = partial(_ours, int, on="cupy", least=1)


def _seconds(value: float) -> float:
    if not 0 <= value < math.inf:
        raise UsageError(f"must be a number of seconds of at least 0, got {value}.")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UsageError(f"must be a finite number, got {value}.")
    return value


def _partition(text: str) -> str:
    try:
        parse(text)
    except LayoutError as error:
        raise UsageError(str(error)) from None
    return text


_size = partial(_is, int, MISSING, "Problem", least=1, unit="elements")
_layout = partial(_is, group="Layout", check=_partition, metavar="PARTITION")
_MOVES = "Ranks and data movement"


@dataclass(frozen=True)
class Case:
    """One benchmark case. Field names are those of the command line and of
    :class:`drbench.measure.record.Record`.

    Attributes
    ----------
    a, b, c : str or None
        Text forms of the partitions; None for the algorithm's own.
    options : dict
        The algorithm's own options, such as ``stationary``, ``chunk`` or ``mesh``; the algorithm
        chooses those that are missing or None.
    get : str or None
        None means view with numpy, copy on devices.
    collectives : str or None
        On devices also used between nodes, where nccl means the best of the others.
    label : str or None
        Name of what runs in the record; None: ``here``, or the machine model that predicts.
    machine : str or None
        Machine model, name or file, with the times for the schedules ``cost`` and ``exhaustive``;
        None: 100 FLOPs take as long as a byte.
    """

    m: int = _size(help="Rows of A and C, as 4096 or 48Ki.")
    n: int = _size(help="Columns of B and C; without -n and -k they are m.")
    k: int = _size(help="Columns of A, rows of B.")
    a: str | None = _layout(help="Partition of A.", default_text="the algorithm's own")
    b: str | None = _layout(help="Partition of B; see drbench list partitions.")
    c: str | None = _layout(help="Partition of C, likewise.")
    algorithm: str = _is(
        str,
        "universal",
        "Algorithm",
        metavar="NAME",
        help="Algorithm or library; see drbench list.",
    )
    options: dict = field(default_factory=dict)
    preset: str | None = _is(
        group="Layout",
        metavar="NAME",
        help="Partitions of A, B and C by name; see drbench list presets.",
    )
    transpose: str | None = _is(
        ("a", "b", "ab"),
        group="Problem",
        help="Operands stored transposed, partitioned as stored.",
        default_text="none",
    )
    alpha: float | None = _ours(
        float,
        group="Problem",
        check=_finite,
        help="C = alpha·A·B + beta·C.",
        default_text="1",
    )
    beta: float | None = _ours(
        float, group="Problem", check=_finite, help="With 0 C is not read.", default_text="0"
    )
    dtype: str = _is(
        tuple(ITEMSIZES),
        "float32",
        "Problem",
        metavar="TYPE",
        help="Element type of all matrices, or AB:C.",
    )
    backend: str = _is(
        tuple(BACKENDS),
        "numpy",
        _MOVES,
        metavar="NAME",
        help="numpy (cores) or cupy (GPUs).",
    )
    fill: str = _is(
        ("integer", "uniform"),
        "integer",
        help="integer: C is exact and checked without tolerance; uniform: checked against an error "
        "bound.",
    )
    seed: int = _is(int, 0, help="Seed of the matrix elements.")
    transport: str = _ours(
        str,
        "auto",
        _MOVES,
        check=lambda text: str(parse_transport(text)),
        metavar="NAME",
        help="auto, direct, rma or throttled:GBps,us.",
    )
    get: str | None = _ours(
        ("view", "copy"),
        help="Tiles on the same node: view reads them in place, copy copies them first.",
        default_text="view; on devices copy",
    )
    compute: str | None = _is(
        ("tf32",),
        on="cupy",
        help="GPUs: multiply float32 in TF32, which keeps 10 bits of the fraction.",
        default_text="float32 (no TF32)",
    )
    max_gemms: int | None = _on_gpus(
        help="GPUs: GEMMs that may run at the same time.",
        default_text="1",
    )
    max_accumulates: int | None = _on_gpus(
        help="GPUs: accumulates that may run at the same time.",
        default_text="1; simulated: no limit",
    )
    accumulate_blocks: int | None = _on_gpus(
        help="GPUs: most thread blocks of an accumulate, or of a reduction during GEMMs.",
        default_text="12",
    )
    copy_streams: int | None = _on_gpus(
        help="cupy: streams for copies of each direction; other ranks share them round-robin.",
        default_text="1",
    )
    collectives: str | None = _ours(
        ("auto", "nccl", "gpu-aware", "staged"),
        on="cupy",
        help="GPUs: implementation of collectives. On cores it is MPI's.",
        default_text="the first that works",
    )
    prefetch: int | str | None = _ours(
        int,
        words=("all",),
        help="Look-ahead in GEMMs that need communication; 0: no overlap; all: no limit.",
        default_text="1; all for programs with signals",
    )
    progress: str = _ours(
        ("poll", "none"),
        "poll",
        on="numpy",
        help="Who drives MPI in a GEMM: poll splits long GEMMs and polls in between; none: no one.",
    )
    threads: int | None = _is(
        int,
        group=_MOVES,
        on="numpy",
        least=1,
        help="BLAS threads per rank.",
        default_text="cores // ranks",
    )
    iters: int = _is(int, 10, "Measurement", least=1, help="Timed repeats, at least.")
    budget: float = _is(
        float,
        3.0,
        "Measurement",
        unit="seconds",
        check=_seconds,
        metavar="SECONDS",
        help="Repeat until the median is known, or for this time.",
    )
    warmup: int = _is(int, 1, help="Repeats before the clock starts.")
    check: bool = _is(bool, True, help="Verify C after the repeats.")
    gemm_only: bool = _is(
        bool,
        False,
        help="Measure GEMM-only speed (the local GEMMs alone), and collective's time, between the "
        "repeats.",
        default_text="true; in a sweep false",
    )
    pool: int | None = _ours(
        int,
        unit="bytes",
        help="Most receive and scratch memory of a rank, as 64MiB.",
        default_text="what the plan needs",
    )
    label: str | None = _is(
        group="Output",
        metavar="TEXT",
        help="Name of what runs in the records.",
        default_text="here",
    )
    machine: str | None = _is(
        group="Machine model",
        metavar="NAME|FILE",
        help="Machine model.",
    )
    timeline: str | None = _ours(
        group="Output",
        metavar="FILE",
        help="Write the times of each step, for drbench plot timeline.",
    )

    @property
    def scalars(self) -> tuple[float, float]:
        """Alpha and beta."""
        return (1.0 if self.alpha is None else self.alpha), self.beta or 0.0

    def ahead(self, resolved: dict) -> int | str:
        """``prefetch``; if None, the algorithm's default for its resolved options.

        Examples
        --------
        >>> case = Case(8, 8, 8)
        >>> case.ahead({}), case.ahead({"sums": "push"})
        (1, 'all')
        """
        if self.prefetch is not None or self.algorithm in LIBRARIES:
            return 1 if self.prefetch is None else self.prefetch
        return get_algorithm(self.algorithm).prefetch(**resolved)

    def __post_init__(self):
        plain = {"alpha": 1.0, "beta": 0.0, "transpose": "", "collectives": "auto"}
        for name, value in plain.items():
            if getattr(self, name) == value:  # the same case as without the field
                object.__setattr__(self, name, None)
        if self.get is None:
            object.__setattr__(self, "get", "view" if self.backend == "numpy" else "copy")


_DESCRIBED = {entry.name: entry for entry in fields(Case) if entry.metadata}
#: Fields of a case, without the algorithm's options, as options by name.
FIELDS: dict[str, Option] = {
    name: Option(
        name,
        default=None if described.default is MISSING else described.default,
        **described.metadata["words"],
    )
    for name, described in _DESCRIBED.items()
}
#: Fields that only our executor uses, not a library.
OURS = {name for name, described in _DESCRIBED.items() if described.metadata["ours"]}


def shape_of(text: str) -> tuple[int, ...]:
    """(m, n, k) of a text.

    Examples
    --------
    >>> shape_of("64x3Kix768")
    (64, 3072, 768)
    """
    try:
        m, n, k = (FIELDS["m"].read(size) for size in text.split("x"))
    except (UsageError, ValueError):
        raise UsageError(f"a shape is MxNxK, as 64x3Kix768; got {text!r}.") from None
    return m, n, k


def given_fields(case: Case) -> list[str]:
    """The fields that are set, other than those of the problem and the backend.

    Examples
    --------
    >>> given_fields(Case(8, 8, 8, prefetch=2, alpha=1.0))
    ['prefetch']
    """
    plain = Case(case.m, case.n, case.k, backend=case.backend)
    return [name for name in FIELDS if getattr(case, name) != getattr(plain, name)]


def check_case(case: Case) -> None:
    """Check the values of a case: raise a UsageError for a wrong value or one without effect on the
    backend, and an UnsupportedError for one that is not implemented.

    Examples
    --------
    >>> check_case(Case(8, 8, 8, compute="tf32"))
    Traceback (most recent call last):
    drbench.errors.UsageError: -o compute is for GPUs, but the backend is numpy. ...
    """
    check_options(FIELDS, vars(case))
    for name in given_fields(case):
        on = _DESCRIBED[name].metadata["on"]
        if on not in ("", case.backend):
            other = "" if on == "numpy" else ", or use --backend cupy"
            raise UsageError(
                f"{FIELDS[name].flag} is for {BACKENDS[on]}, but the backend is {case.backend}. "
                f"Leave it out{other}."
            )
    on_cores = case.backend == "numpy"
    if not on_cores and case.dtype in REAL_OF:
        raise UnsupportedError(
            f"{case.dtype} multiplications do not run on {BACKENDS[case.backend]}. Use --backend "
            f"numpy, or --dtype {REAL_OF[case.dtype]}."
        )
    if case.dtype in PLANNED or (on_cores and case.dtype.startswith("bfloat16")):
        raise UnsupportedError(
            f"{case.dtype} multiplications do not run on {BACKENDS[case.backend]}. Use drbench "
            "simulate, --dtype float32, or --dtype bfloat16:float32 with --backend cupy."
        )
    if not on_cores and case.transport.startswith("throttled"):
        raise UnsupportedError(
            "--transport throttled delays loads and stores of cores, but the backend is "
            f"{case.backend}. Use --backend numpy."
        )
    check_rounding(case)


def check_rounding(case: Case) -> None:
    """Raise an UnsupportedError for elements that the arithmetic rounds, so that C cannot be
    verified."""
    if case.fill == "uniform" and (case.compute == "tf32" or case.dtype.startswith("bfloat16")):
        raise UnsupportedError(
            "-o fill=uniform cannot be verified with TF32 and bfloat16, which round the elements. "
            "Use -o fill=integer, which both store exactly."
        )


def refuse_our_options(case: Case) -> None:
    """Raise a UsageError for options that only our executor uses: a library moves its data itself,
    and they would have no effect.

    Examples
    --------
    >>> refuse_our_options(Case(8, 8, 8, algorithm="dtensor", prefetch=2))
    Traceback (most recent call last):
    drbench.errors.UsageError: dtensor moves its data itself and takes no -o prefetch. Leave it out.
    """
    for name in given_fields(case):
        if name in OURS:
            raise UsageError(
                f"{case.algorithm} moves its data itself and takes no {FIELDS[name].flag}. Leave "
                "it out."
            )


def case_keys(case: Case) -> dict:
    """The columns of the record that depend on the case alone.

    Examples
    --------
    >>> keys = case_keys(Case(64, 64, 64, options={"stationary": "C"}))
    >>> keys["m"], keys["algorithm"], keys["stationary"], keys["backend"]
    (64, 'universal', 'C', 'numpy')
    """
    named = {name: getattr(case, name) for name in FIELDS if name in HEADER}
    named |= {"label": case.label or "here", "machine": None, "budget_s": case.budget}
    return named | resolved_keys(case, case.options)


def in_place_on(case: Case, nodes: int) -> bool:
    """Whether every rank reads every tile in place, on this number of nodes, as far as is known
    before windows exist.

    Examples
    --------
    >>> case = Case(8, 8, 8)
    >>> in_place_on(case, 1), in_place_on(case, 2), in_place_on(Case(8, 8, 8, get="copy"), 1)
    (True, False, False)
    """
    kind = parse_transport(case.transport).kind
    return kind in ("auto", "direct") and case.get == "view" and nodes == 1


def blocks_in_place(case: Case, node_of: list[int], rank: int) -> Callable[[Any], bool]:
    """A function that returns whether a rank reads a block in place, as far as is known before
    windows exist; ``node_of`` has the lowest rank on each rank's node."""
    by_view = case.get == "view" and parse_transport(case.transport).kind != "rma"
    return lambda block: by_view and node_of[block.owner] == node_of[rank]


def resolved_keys(case: Case, resolved: dict) -> dict:
    """The columns of the record that depend on the resolved options: those with their own column,
    and the others together.

    Examples
    --------
    >>> resolved_keys(Case(64, 64, 64), {"stationary": "B", "sums": "push", "shade": "a;b"})
    {'stationary': 'B', 'options': 'sums=push;shade=a%3Bb', 'prefetch': None}
    """
    ahead, columns, others = case.ahead(resolved), {}, {}
    for name, value in resolved.items():
        of = columns if name in HEADER else others
        of[name] = None if value in ("auto", "none") else value
    columns["options"] = options_text(others) if others else None
    return columns | {"prefetch": None if ahead == "all" else ahead}


def partition_texts(values: dict, ranks: int) -> dict[str, str | None]:
    """The partitions of A, B and C as texts: given ones, else the preset's; None for the
    algorithm's own.

    Examples
    --------
    >>> partition_texts({"preset": "outer", "c": "block"}, 4)
    {'a': 'column', 'b': 'row', 'c': 'block'}
    """
    named: tuple = (None, None, None)
    if values.get("preset"):
        sizes = tuple(values.get(name) for name in "mnk")
        named = preset(
            values["preset"], ranks, sizes if all(sizes) else None, _space_of_rank(values, ranks)
        )
    return {name: values.get(name) or text for name, text in zip("abc", named)}


def _space_of_rank(values: dict, ranks: int) -> int | None:
    """Most elements that a rank can store, if limited: its share of the three matrices plus those
    of ``pool``.

    Examples
    --------
    >>> _space_of_rank({"m": 8, "n": 8, "k": 8, "pool": 64}, 4)
    64
    """
    if values.get("pool") is None:
        return None
    m, n, k = (values[name] for name in "mnk")
    itemsize = ITEMSIZES[values.get("dtype") or "float32"]
    return -(-(m * k + k * n + m * n) // ranks) + values["pool"] // itemsize


def get_algorithm_or_library(name: str) -> Any:
    """The algorithm or library of that name.

    Raises
    ------
    UsageError
        If the name is unknown.
    """
    return get_library(name) if name in LIBRARIES else get_algorithm(name)


def refuse_library(name: str) -> None:
    """Refuse a library in commands that plan, show or predict a program: a library has none.

    Raises
    ------
    UsageError
        If the name is that of a library.
    """
    if name in LIBRARIES:
        raise UsageError(
            f"{name} is a library: it has no program to show or to predict. Run it; drbench list "
            "libraries describes it."
        )


def bind_case(case: Case, ranks: int) -> tuple[Any, Problem, dict]:
    """The algorithm or library of a case, its problem on ``ranks`` ranks, and the given options.

    Examples
    --------
    >>> algorithm, problem, options = bind_case(Case(8, 8, 8, options={"stationary": "B"}), 2)
    >>> algorithm.name, problem.nprocs, options
    ('universal', 2, {'stationary': 'B'})
    """
    algorithm_or_library = get_algorithm_or_library(case.algorithm)
    options = algorithm_or_library.pick(case.options)
    try:
        problem = algorithm_or_library.problem(
            case.m,
            case.n,
            case.k,
            ranks,
            case.a,
            case.b,
            case.c,
            transpose=case.transpose or "",
            **options,
        )
        problem = replace(problem, dtype=case.dtype, updates=case.beta is not None)
    except LayoutError as error:
        raise UsageError(str(error)) from None
    return algorithm_or_library, problem, options


def bind_on_nodes(case: Case, node_of: Sequence[int]) -> tuple[Any, Problem, dict]:
    """The same with the node of each rank. Every plan, prediction and run on known nodes calls
    this, so that all use the same program.

    Examples
    --------
    >>> case = Case(8, 8, 8, options={"stationary": "B"})
    >>> for node_of in [0, 0, 0, 0], [0, 0, 2, 2]:
    ...     print(bind_on_nodes(case, node_of)[1].nodes)
    ()
    (0, 0, 2, 2)
    """
    algorithm, problem, options = bind_case(case, len(node_of))
    if case.backend == "numpy" and case.algorithm not in LIBRARIES:
        problem = problem.on_nodes(node_of)
    return algorithm, problem, options


def failure(case: Case, ranks: int, status: str, reason: str) -> Record:
    """The record of a case that did not run to its end."""
    return Record(
        mode="measured",
        status=status,
        reason=reason,
        ranks=ranks,
        timestamp=Clock.date(),
        **case_keys(case),
    )


def run_program(case: Case, ranks: int, timeout_s: float | None) -> Record:
    """Start a library that is a separate program, and return its record. Its BLAS is unknown, so it
    has no GEMM-only speed."""
    case = replace(case, gemm_only=False)
    try:
        return get_library(case.algorithm).launch(case, case_keys(case), ranks, timeout_s)
    except DrbenchError as error:
        status = "failed" if error.status == "usage" else error.status
        return failure(case, ranks, status, str(error))
