"""What to run: the fields of a case. No MPI, so that whoever starts jobs can make cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from algorithms import get_algorithm
from algorithms.registry import Algorithm
from drbench.measure.record import HEADER, Record
from drbench.program.problem import Problem

__all__ = ["PAIRS", "TOLD", "Case", "bound", "case_keys", "failure", "recorded"]

#: Repeats that the ratio to the roof is the median of, at least.
PAIRS = 5

#: Columns of the record that say in a trace what was run.
TOLD = (
    "algorithm",
    "dataflow",
    "mesh",
    "slices",
    "stationary",
    "schedule",
    "m",
    "n",
    "k",
    "dtype",
    "ranks",
    "threads",
    "a",
    "b",
    "c",
    "transport",
    "prefetch",
    "progress",
    "machine",
)


@dataclass(frozen=True)
class Case:
    """One benchmark case. Field names are those of the command line and of
    :class:`drbench.measure.record.Record`.

    Attributes
    ----------
    a, b, c : str or None
        Text forms of the partitions; None for the algorithm's own.
    options : dict
        The algorithm's own options, such as ``stationary``, ``chunk`` or ``mesh``; those not named,
        or None, are the algorithm's to decide.
    threads : int or None
        BLAS threads a rank; None for cores of the node // ranks on it.
    backend : str
        ``"numpy"``, ``"cupy"`` (GPUs) or ``"numpy-async"`` (the executor of GPUs on worker
        threads).
    get : str or None
        ``"view"`` or ``"copy"``; None for view with numpy, copy on devices.
    compute : str or None
        ``"tf32"`` for TF32 products of float32 operands; devices only, like the following four.
    max_gemms, max_accumulates : int or None
        How many products, and accumulates, may run at the same time; None for 1.
    accumulate_blocks : int or None
        Most thread blocks of an accumulate kernel; None for no limit.
    collectives : str or None
        ``"nccl"``, ``"gpu-aware"`` (MPI reads device memory) or ``"staged"``; also how nodes reach
        each other, where nccl means the best of the others.
    trace : str or None
        File for a Chrome trace of one more repeat.
    pool : int or None
        Most bytes of receive and scratch memory a rank may use; None for what the plan needs.
    machine : str
        Name of the machine in the record.
    model : str or None
        Machine model, name or file, whose times the schedules ``cost`` and ``exhaustive`` go by;
        None for 100 FLOPs to a byte.
    """

    m: int
    n: int
    k: int
    a: str | None = None
    b: str | None = None
    c: str | None = None
    algorithm: str = "universal"
    options: dict = field(default_factory=dict)
    preset: str | None = None
    dtype: str = "float32"
    backend: str = "numpy"
    fill: str = "integer"
    seed: int = 0
    transport: str = "auto"
    get: str | None = None
    compute: str | None = None
    max_gemms: int | None = None
    max_accumulates: int | None = None
    accumulate_blocks: int | None = None
    collectives: str | None = None
    prefetch: int = 1
    progress: str = "poll"
    threads: int | None = None
    iters: int = 10
    warmup: int = 1
    check: bool = True
    roof: bool = False
    pool: int | None = None
    machine: str = "here"
    model: str | None = None
    trace: str | None = None

    def __post_init__(self):
        if self.get is None:
            object.__setattr__(self, "get", "view" if self.backend == "numpy" else "copy")

    @property
    def repeats(self) -> int:
        """Repeats after the warm-up: those that are recorded, or as many as the roof asks for."""
        return max(self.iters, PAIRS) if self.roof else self.iters


def recorded(options: dict) -> dict:
    """The options that have a column in the record.

    Examples
    --------
    >>> recorded({"stationary": "B", "chunk": None, "of_no_interest": 1})
    {'stationary': 'B', 'chunk': None}
    """
    return {
        name: None if value in ("auto", "none") else value
        for name, value in options.items()
        if name in HEADER
    }


def case_keys(case: Case) -> dict:
    """The columns of the record that a case alone gives.

    Examples
    --------
    >>> keys = case_keys(Case(64, 64, 64, options={"stationary": "C"}))
    >>> keys["m"], keys["algorithm"], keys["stationary"], keys["backend"]
    (64, 'universal', 'C', 'numpy')
    """
    return {
        name: getattr(case, name) for name in Case.__dataclass_fields__ if name in HEADER
    } | recorded(case.options)


def bound(case: Case, ranks: int) -> tuple[Algorithm, Problem, dict]:
    """The algorithm of a case, its problem on so many ranks, and the options that are set.

    Examples
    --------
    >>> algorithm, problem, options = bound(Case(8, 8, 8, options={"stationary": "B"}), 2)
    >>> algorithm.name, problem.nprocs, options
    ('universal', 2, {'stationary': 'B'})
    """
    algorithm = get_algorithm(case.algorithm)
    options = algorithm.pick(case.options)
    problem = algorithm.problem(
        case.m, case.n, case.k, ranks, case.a, case.b, case.c, case.dtype, **options
    )
    return algorithm, problem, options


def failure(case: Case, ranks: int, status: str, reason: str) -> Record:
    """The row of a case that has no record of its own."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(
        mode="measured", status=status, reason=reason, ranks=ranks, timestamp=now, **case_keys(case)
    )
