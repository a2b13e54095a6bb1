"""What to run: the fields of a case. No MPI, so that whoever starts jobs can make cases."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One benchmark case. Field names are those of the command line and of :class:`drbench.record.Record`.

    Attributes
    ----------
    options : dict
        The algorithm's own options, such as ``chunk``.
    threads : int or None
        BLAS threads a rank; None for cores of the node // ranks on it.
    pool : int or None
        Most bytes of receive and scratch memory a rank may use; None for what the plan needs.
    """

    m: int
    n: int
    k: int
    a: str = "block"
    b: str = "block"
    c: str = "block"
    algorithm: str = "universal"
    stationary: str = "auto"
    options: dict = field(default_factory=dict)
    preset: str | None = None
    dtype: str = "float32"
    fill: str = "integer"
    seed: int = 0
    transport: str = "auto"
    get: str = "view"
    prefetch: int = 1
    progress: str = "poll"
    threads: int | None = None
    iters: int = 10
    warmup: int = 1
    check: bool = True
    roof: bool = False
    replicate_result: bool = False
    pool: int | None = None
    machine: str = "here"
