"""What a peer is: someone else's distributed GEMM, run on the same work by the same rules.

A peer is no program of steps. Its adapter fills the peer's own arrays from the same hash,
multiplies with the peer's own call under the same mpiexec, and hands its local parts of C over for
the same verification. No module of this package imports mpi4py or the peer when it is imported:
``drbench list libraries`` runs in a process that is no rank.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from drbench.errors import UnsupportedError, UsageError
from drbench.options import Option, check_options, pick_options
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS

if TYPE_CHECKING:
    import numpy as np

    from drbench.host.blas import Blas


_LONGEST = 300


class Availability(NamedTuple):
    """Whether a peer can run here. ``what`` is its version, or what is missing; ``get`` how to get
    it."""

    ok: bool
    what: str
    get: str = ""


def installed(package: str, get: str, distribution: str = "") -> Availability:
    """Whether a Python package is here, which is not imported; its name and version, by those of
    the distribution it comes in.

    Examples
    --------
    >>> installed("yaml_of_nobody", "Do without.").what
    'yaml-of-nobody is not installed'
    """
    name = distribution or package.replace("_", "-")
    if importlib.util.find_spec(package) is None:
        return Availability(False, f"{name} is not installed", get)
    from importlib.metadata import version  # slow, and seldom asked for

    return Availability(True, f"{name} {version(name)}")


class Setting(NamedTuple):
    """One way to run a peer: a label for tables, and the fields of a
    :class:`~launch.cases.case.Case` that choose it."""

    label: str
    fields: dict


class Region(NamedTuple):
    """Rows [row0, row1) and columns [col0, col1) of C."""

    row0: int
    row1: int
    col0: int
    col1: int


class Parts(NamedTuple):
    """A rank's parts of C, as :func:`drbench.measure.verify.verify` reads a distributed matrix.

    Attributes
    ----------
    topology : Topology
    replica : int
        Which copy of C the parts belong to.
    parts : list of (int, int, ndarray)
        Global row and column of the first element, and the elements.
    """

    topology: Any
    replica: int
    parts: list

    def own_blocks(self) -> Iterator[tuple[Region, np.ndarray]]:
        for row, col, part in self.parts:
            if part.size:
                yield Region(row, row + part.shape[0], col, col + part.shape[1]), part


class Job:
    """One prepared multiplication of a peer on one rank: operands in place, ready to be repeated.

    Subclasses fill their operands when they are made. The attributes below are what the rest of the
    suite reads; the measuring code sees the same interface as
    :class:`drbench.host.executor.Executor`.

    Attributes
    ----------
    blas : Blas-like
        ``gemm(a, b, c, beta)`` and ``info`` of the library the peer multiplies with, for its own
        roof.
    layouts : tuple of str
        Text forms of the placements of A, B and C as they are when run.
    resolved : dict
        Further columns of the record: ``mesh``, ``block``, ``panel``, ``dataflow``, ``transport``,
        ``backend``.
    moved : dict
        Bytes by counter, this rank's; empty if the peer does not tell.
    replicas : int
        Complete copies of C to verify.
    operands, out
        What it multiplies, and the result of the last run; both are let go in the end.
    clock : None
        A peer's phases are its own business.
    """

    blas: Blas
    layouts: tuple[str, str, str]
    resolved: dict
    moved: Mapping[str, int] = MappingProxyType({})
    replicas = 1
    arena_bytes = 0
    clock = operands = out = None

    @property
    def bytes(self) -> dict[str, int]:
        return dict.fromkeys(COUNTERS, 0) | {
            name: count for name, count in self.moved.items() if name in COUNTERS
        }

    def spoil(self) -> None:
        """Before each repeat, untimed: what the run before computed is no result of the next."""
        self.out = None

    def run(self) -> None:
        """The multiplication: from operands in place to C complete."""
        raise NotImplementedError

    def parts(self) -> tuple[int, list[tuple[int, int, np.ndarray]]]:
        """This rank's replica of C, and its parts: (row, column, elements)."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the peer holds."""
        self.operands = self.out = None


@dataclass(frozen=True)
class Peer:
    """A peer as the rest of the suite sees it.

    Attributes
    ----------
    name : str
        What ``--algorithm`` takes.
    about : str
        One line for ``drbench list libraries``.
    available : callable
        ``available()`` -> :class:`Availability`; cheap, and never starts MPI in this process.
    layout : callable
        ``layout(a, b, c, nprocs, **options)`` -> text forms of A, B and C to bind a problem to,
        where the user leaves them open.
    prepare : callable or None
        ``prepare(problem, topology, fill, threads, options)`` -> :class:`Job` (collective). None
        for a program of its own.
    launch : callable or None
        ``launch(case, keys, ranks, timeout)`` -> Record with these keys, for a program that is
        started beside drbench.
    settings : callable
        ``settings(nprocs)`` -> list of :class:`Setting`; the first is the peer's default.
    options : dict of str to Option
        What it takes, by name.
    transposes : bool
        Its library multiplies operands that are stored transposed, where they lie.
    """

    name: str
    about: str
    available: Callable[[], Availability]
    settings: Callable[[int], list[Setting]]
    layout: Callable[..., tuple[str, str, str]]
    prepare: Callable[..., Job] | None = None
    launch: Callable[..., Any] | None = None
    options: dict[str, Option] = field(default_factory=dict)
    transposes: bool = False

    def pick(self, options: dict) -> dict:
        """The options that are set; one the peer does not take is a UsageError.

        Examples
        --------
        >>> from drbench.options import named
        >>> options = named(Option("block", int))
        >>> peer = Peer(
        ...     "p",
        ...     "",
        ...     lambda: None,
        ...     lambda nprocs: [],
        ...     lambda *given, **by: given,
        ...     options=options,
        ... )
        >>> peer.pick({"block": 64, "panel": None})
        {'block': 64}
        >>> peer.pick({"slices": 2})
        Traceback (most recent call last):
        drbench.errors.UsageError: p takes no slices. It takes block.
        """
        check_options(self.options, options)
        return pick_options(self.name, self.options, options)

    def problem(self, m, n, k, nprocs, *given, transpose="", **options) -> Problem:
        """The problem in float32, on the peer's own layout where no partition is given.

        Raises
        ------
        UnsupportedError
            If operands are stored transposed, and the peer's library does not take them so.
        """
        if transpose and not self.transposes:
            raise UnsupportedError(
                f"{self.name} does not multiply operands stored transposed where they lie (its "
                f"library, or our adapter); got --transpose {transpose}. Leave it out, or use "
                "--algorithm universal."
            )
        texts = self.layout(*(*given, None, None, None)[:3], nprocs, **options)
        return Problem(m, n, k, nprocs, *texts, transpose=transpose)


def layout_of_its_own(takes: str, instead: str) -> Callable[..., tuple[str, str, str]]:
    """The ``layout`` of a peer that chooses partitions itself, and refuses any that is given."""

    def layout(a, b, c, nprocs, **options):
        for text in filter(None, (a, b, c)):
            raise UsageError(f"{takes}; got the partition {text!r}. {instead}")
        return "block", "block", "block"

    return layout


def refuse_alike(comm, name: str, attempt: Callable[[], None]) -> None:
    """Let a peer try on every rank; what one of them refuses all do (collective).

    Raises
    ------
    UnsupportedError
        With the words of the first rank that the peer refused.
    """
    words = None
    try:
        attempt()
    except (
        RuntimeError,
        NotImplementedError,
        ValueError,
        AssertionError,
        IndexError,
        TypeError,
        ImportError,
        OSError,  # a library that a package loads when it is first used
    ) as error:
        words = own_words(error)
    for said in filter(None, comm.allgather(words)):
        raise UnsupportedError(f"{name} refuses: {said}")


def own_words(error: BaseException) -> str:
    """The first lines of an exception of someone else's, on one line and of readable length.

    Examples
    --------
    >>> own_words(RuntimeError("Sharding propagation failed\\n  for mm"))
    'RuntimeError: Sharding propagation failed for mm'
    """
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."
