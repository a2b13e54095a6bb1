"""What a peer is: someone else's distributed GEMM, run on the same work by the same rules.

A peer is no program of steps. Its adapter is a class: what it needs, which partitions it takes, and
one function that multiplies. The rest is here, once for all: its local arrays are filled from the
same hash, and its part of C is handed to the same verification. No module of this package imports
mpi4py or the peer when it is imported: ``drbench list libraries`` runs in a process that is no
rank.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from drbench.errors import DrbenchError, UnsupportedError, UsageError
from drbench.options import Option, check_options, pick_options
from drbench.program.problem import Operand, Problem
from drbench.program.steps import COUNTERS, Block

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


def installed(get: str, *packages: str, least: str = "") -> Availability:
    """Whether Python packages are here, which are not imported; the version of the first, which
    may be too old.

    Examples
    --------
    >>> installed("Do without.", "yaml_of_nobody").what
    'yaml_of_nobody is not installed'
    >>> installed("pip install -U click.", "click", least="999.1").what.partition(" is ")[2]
    'older than 999.1'
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return Availability(False, f"{package} is not installed", get)
    from importlib.metadata import packages_distributions, version  # slow, and seldom asked for

    name = packages_distributions().get(packages[0], packages)[0]
    found = version(name)
    if least and _release(found) < _release(least):
        return Availability(False, f"{name} {found} is older than {least}", get)
    return Availability(True, f"{name} {found}")


def _release(version: str) -> list[int]:
    """The first two numbers of a version."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


class Library:
    """One prepared multiplication of a peer on one rank: operands in place, ready to be repeated.
    What is the same for all of them is the class's.

    Subclasses say what they need, take and are, and how they multiply; they do not override what
    the constructor does. The measuring code sees the same interface as
    :class:`drbench.host.executor.Executor`.

    Attributes
    ----------
    name : str
        What ``--algorithm`` takes.
    description : str
        One line for ``drbench list libraries``.
    options : dict of str to Option
        What it takes, by name; of ours what :data:`launch.libraries.options.LIBRARIES` says.
    transposes : bool
        Its library multiplies operands that are stored transposed, where they lie.
    instead : str
        What to do instead of giving a partition that it does not take.
    order : str
        How it stores local arrays: ``"C"`` by rows, ``"F"`` by columns.
    launch : callable or None
        ``launch(case, keys, ranks, timeout)`` -> Record with these keys, of a program that is
        started next to drbench. Such a peer is never constructed.
    work : Problem
        What is multiplied.
    topology, rank, threads
        Where.
    blas : Blas-like
        ``gemm(a, b, c, beta)`` and ``info`` of the library the peer multiplies with, for its own
        roof.
    resolved : dict
        Further columns of the record: ``mesh``, ``block``, ``panel``, ``dataflow``, ``transport``,
        ``backend``.
    moved : dict
        Bytes by counter, this rank's; empty if the peer does not tell.
    operands, out
        What it multiplies, and the result of the last run; both are let go in the end.
    clock : None
        A peer's phases are its own business.
    """

    name = description = ""
    options: Mapping[str, Option] = MappingProxyType({})
    transposes = False
    instead = "Leave the partitions out."
    order = "C"
    launch: Callable[..., Any] | None = None

    blas: Blas
    resolved: Mapping[str, Any] = MappingProxyType({})
    moved: Mapping[str, int] = MappingProxyType({})
    clock = operands = out = None

    # -- what a peer says of itself ------------------------------------------

    @staticmethod
    def available() -> Availability:
        """Whether it can run here; cheap, and never starts MPI in this process."""
        raise NotImplementedError

    @staticmethod
    def settings(nprocs: int) -> list[dict]:
        """Ways to run it: fields of a :class:`~launch.cases.case.Case`. The first is its
        default."""
        return [{}]

    @staticmethod
    def layout(nprocs: int, given: tuple, **options) -> tuple[str, ...]:
        """The partitions of A, B and C that it multiplies, of those that are given, or None."""
        return "block", "block", "block"

    # -- one multiplication --------------------------------------------------

    def __init__(self, problem: Problem, topology, fill, threads: int, options: dict):
        self.work, self.topology, self.rank = problem, topology, topology.comm.rank
        self.threads, self._fill = threads, fill
        self.check_dtype(problem.dtype)
        self.prepare(options)

    def prepare(self, options: dict) -> None:
        """Make operands, and all that is not timed (collective)."""
        raise NotImplementedError

    def run(self) -> None:
        """The multiplication: from operands in place to ``out`` complete."""
        raise NotImplementedError

    def result(self) -> np.ndarray:
        """This rank's local array of C."""
        return self.out

    def poison(self) -> None:
        """Before each repeat, untimed: what the run before computed is no result of the next."""
        self.out = None

    def close(self) -> None:
        """Release what the peer holds."""
        self.operands = self.out = None

    # -- what they share -----------------------------------------------------

    @classmethod
    def pick(cls, options: dict) -> dict:
        """The options that are set; one the peer does not take is a UsageError.

        Examples
        --------
        >>> from drbench.options import named
        >>> class Mine(Library):
        ...     name, options = "mine", named(Option("block", int))
        >>> Mine.pick({"block": 64, "panel": None})
        {'block': 64}
        >>> Mine.pick({"slices": 2})
        Traceback (most recent call last):
        drbench.errors.UsageError: mine takes no slices. It takes block.
        """
        check_options(cls.options, options)
        return pick_options(cls.name, cls.options, options)

    @classmethod
    def problem(cls, m, n, k, nprocs, a=None, b=None, c=None, transpose="", **options) -> Problem:
        """The problem in float32, on the peer's own layout where no partition is given.

        Raises
        ------
        UsageError
            If a partition is given that the peer does not take.
        UnsupportedError
            If operands are stored transposed, and the peer's library does not take them so.
        """
        if transpose and not cls.transposes:
            raise UnsupportedError(
                f"{cls.name} does not multiply operands stored transposed where they lie (its "
                f"library, or our adapter); got --transpose {transpose}. Leave it out, or use "
                "--algorithm universal."
            )
        texts = cls.layout(nprocs, (a, b, c), **options)
        for text, own in zip((a, b, c), texts):
            if text not in (None, own):
                raise UsageError(
                    f"{cls.name} has A, B and C by {', '.join(texts)} here; got {text!r}. "
                    f"{cls.instead}"
                )
        return Problem(m, n, k, nprocs, *texts, transpose=transpose)

    def filled(self) -> list[np.ndarray]:
        """This rank's local arrays of A and B, as they are stored, with their elements."""
        local = [self.local(operand) for operand in (self.work.a, self.work.b)]
        for operand, array in zip(self.work.operands, local):
            for block, tile in self._tiles(operand, array):
                self._fill.into(tile, operand.name, block.row0, block.col0)
        return local

    def local(self, operand: Operand) -> np.ndarray:
        """Memory of this rank's local array of a matrix."""
        import numpy as np

        return np.zeros(operand.stored.local_shape(self.rank), self.work.dtype, self.order)

    def own_blocks(self) -> Iterator[tuple[Block, np.ndarray]]:
        """The tiles of C that this rank has computed, as of a distributed matrix."""
        return self._tiles(self.work.c, self.result())

    def _tiles(self, operand: Operand, local: np.ndarray) -> Iterator[tuple[Block, np.ndarray]]:
        local = local.T if operand.transposed else local
        for block in operand.own_tiles(self.rank):
            row, col = operand.partition.local_start(block.tile)
            rows, cols = block.shape
            yield block, local[row : row + rows, col : col + cols]

    @property
    def replica(self) -> int:
        """Which copy of C this rank holds a part of."""
        return self.work.c.partition.replica_of(self.rank)

    @property
    def bytes(self) -> dict[str, int]:
        """Every counter; 0 of what the peer does not tell."""
        return dict.fromkeys(COUNTERS, 0) | self.moved

    @classmethod
    def check_dtype(cls, dtype: str) -> None:
        """Refuse other elements than float32 and float64, as an UnsupportedError."""
        if dtype not in ("float32", "float64"):
            raise UnsupportedError(
                f"{cls.name} multiplies float32 and float64 here (our adapter), got {dtype}. Use "
                "--dtype float32."
            )

    def check_even(self, *axes: str) -> None:
        """Refuse extents that do not divide evenly over the ranks, as an UnsupportedError."""
        for axis in axes:
            extent, nprocs = self.work.extent(axis), self.work.nprocs
            if extent % nprocs:
                raise UnsupportedError(
                    f"{self.name} divides {axis} evenly over the ranks (its library, or our "
                    f"adapter); {axis} = {extent} on {nprocs} ranks. Use a multiple of {nprocs}."
                )

    def attempt(self, what: Callable[[], None]) -> None:
        """Let the peer try on every rank; what one of them refuses all do (collective).

        Raises
        ------
        UnsupportedError
            With the words of the first rank that the peer refused.
        """
        words = None
        try:
            what()
        except DrbenchError:  # which all ranks find alike
            raise
        except Exception as error:
            words = own_words(error)
        for described in filter(None, self.topology.comm.allgather(words)):
            raise UnsupportedError(f"{self.name} refuses: {described}")


class ArrayBlas:
    """The product of a library of arrays, for the roof of peers that multiply with it.

    Parameters
    ----------
    info : BlasInfo
    matmul : callable
        ``matmul(a, b, out=c)`` of its arrays.
    load : callable
        A NumPy array as one of its own, on a GPU a copy: made the first time that operands are
        seen, which the roof does not time.
    wait : callable
        Until what was started has ended.
    """

    def __init__(self, info, matmul: Callable, load: Callable, wait: Callable[[], None]):
        self.info, self._matmul, self._load, self._wait = info, matmul, load, wait
        self._seen: dict = {}

    def gemm(self, a, b, c, beta: float) -> None:
        """c = a·b (``beta`` is 0)."""
        key = (a.ctypes.data, a.shape, b.shape)
        if key not in self._seen:
            self._seen = {key: [self._load(each) for each in (a, b, c)]}
        left, right, out = self._seen[key]
        self._matmul(left, right, out=out)
        self._wait()


def own_words(error: BaseException) -> str:
    """The first lines of an exception of someone else's, on one line and of readable length.

    Examples
    --------
    >>> own_words(RuntimeError("Sharding propagation failed\\n  for mm"))
    'RuntimeError: Sharding propagation failed for mm'
    """
    words = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "..."
