"""The base class of libraries: other distributed GEMMs, measured on the same work by the same
rules.

A library is not a program of steps. Its adapter is a class with its requirements, the partitions it
accepts, and a function that multiplies. The base class fills its local arrays from the same hash,
and verifies its part of C in the same way. Importing a module of this package imports neither
mpi4py nor the library, since ``drbench list libraries`` runs in a process that is not a rank.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from textwrap import shorten
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from drbench.errors import DrbenchError, MissingError, UnsupportedError, UsageError
from drbench.options import Option, check_options, pick_options
from drbench.program.problem import Operand, Problem, row_bytes
from drbench.program.steps import COUNTERS, Block

if TYPE_CHECKING:
    import numpy as np

    from drbench.host.blas import Blas


class Availability(NamedTuple):
    """Whether a library can run here. ``what`` is its version, or what is missing; ``get`` how to
    install it."""

    ok: bool
    what: str
    get: str = ""


def installed(get: str, *packages: str, least: str = "") -> Availability:
    """Whether Python packages are installed, without importing them, with the version of the first,
    which may be too old.

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
    from importlib.metadata import packages_distributions, version  # slow, and rarely needed

    name = packages_distributions().get(packages[0], packages)[0]
    release = version(name)
    if least and _release(release) < _release(least):
        return Availability(False, f"{name} {release} is older than {least}", get)
    return Availability(True, f"{name} {release}")


def _release(version: str) -> list[int]:
    """The first two numbers of a version."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


class Library:
    """One prepared multiplication of a library on one rank: operands in place, ready to be
    repeated.

    Subclasses define their requirements, options and names, and how they multiply; they do not
    override the constructor. The interface for measurements is that of
    :class:`drbench.host.executor.Executor`.

    Attributes
    ----------
    name : str
        The value of ``--algorithm``.
    description : str
        One line for ``drbench list libraries``.
    options : dict of str to Option
        Its options by name; for built-in libraries those of
        :data:`drbench.launch.libraries.options.LIBRARIES`.
    transposes : bool
        Whether it multiplies operands stored transposed in place.
    instead : str
        Remedy for a partition that it does not accept.
    order : str
        Storage of local arrays: ``"C"`` row-major, ``"F"`` column-major.
    pads : bool
        Local arrays may have any leading dimension: it is chosen as for our own matrices.
    dtypes : tuple of str
        Element types that it multiplies. With ``"bfloat16:float32"`` its C is in bfloat16, as its
        own calls return it.
    launch : callable or None
        ``launch(case, keys, ranks, timeout)`` -> Record with these keys, of a separate program.
        Such a library is never constructed.
    work : Problem
        The multiplication, with C in the type of A and B.
    compute : str or None
        ``"tf32"``: float32 is multiplied in TF32.
    topology, rank, threads
        The ranks and the threads of each.
    blas : Blas-like
        ``prepare_gemm(a, b, c)`` and ``info`` of the BLAS that it uses, for its GEMM-only speed.
    resolved : dict
        Further columns of the record: ``mesh``, ``block``, ``panel``, ``dataflow``, ``transport``,
        ``backend``.
    moved : dict
        Bytes of this rank by counter; empty if the library does not report them.
    operands, out
        The operands, and the result of the last run; both are released at the end.
    clock : None
        A library's phases are unknown.
    """

    name = description = ""
    options: Mapping[str, Option] = MappingProxyType({})
    transposes = False
    instead = "Leave the partitions out."
    order = "C"
    pads = False
    dtypes: tuple[str, ...] = ("float32", "float64")
    launch: Callable[..., Any] | None = None

    blas: Blas
    resolved: Mapping[str, Any] = MappingProxyType({})
    moved: Mapping[str, int] = MappingProxyType({})
    clock = operands = out = None

    # -- description of a library ---------------------------------------------

    @staticmethod
    def available() -> Availability:
        """Whether the library can run here; fast, and never starts MPI in this process."""
        raise NotImplementedError

    @staticmethod
    def settings(nprocs: int) -> list[dict]:
        """Its settings: fields of a ``launch.cases`` Case. The first is the default."""
        return [{}]

    @staticmethod
    def layout(nprocs: int, given: tuple, **options) -> tuple[str, ...]:
        """The partitions of A, B and C that it multiplies, from the given ones or None."""
        return "block", "block", "block"

    # -- one multiplication --------------------------------------------------

    def __init__(
        self,
        problem: Problem,
        topology,
        fill,
        threads: int,
        options: dict,
        compute: str | None = None,
    ):
        self.topology, self.rank = topology, topology.comm.rank
        self.threads, self._fill, self.compute = threads, fill, compute
        self.check_arithmetic(problem.dtype, compute, options)
        self.work = replace(problem, dtype=problem.type_of("A"))
        self.prepare(options)

    def prepare(self, options: dict) -> None:
        """Make operands, and do everything that is not timed (collective)."""
        raise NotImplementedError

    def run(self) -> None:
        """Multiply: from operands in place to the complete ``out``."""
        raise NotImplementedError

    def result(self) -> np.ndarray:
        """This rank's local array of C."""
        return self.out

    def poison(self) -> None:
        """Invalidate the previous result before each repeat, untimed."""
        self.out = None

    def close(self) -> None:
        """Release the resources of the library."""
        self.operands = self.out = None

    # -- shared code -----------------------------------------------------------

    @classmethod
    def pick(cls, options: dict) -> dict:
        """The options that are set; a UsageError for one that the library does not have.

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
        """The problem in float32, with the library's own layout where no partition is given.

        Raises
        ------
        UsageError
            If the library does not accept a given partition.
        UnsupportedError
            If operands are stored transposed, and the library does not support it.
        """
        if transpose and not cls.transposes:
            raise UnsupportedError(
                f"{cls.name} does not multiply operands stored transposed (the library, or our "
                f"adapter); got --transpose {transpose}. Leave it out, or use "
                "--algorithm universal."
            )
        texts = cls.layout(nprocs, (a, b, c), **options)
        for text, own in zip((a, b, c), texts):
            if text not in (None, own):
                raise UsageError(
                    f"{cls.name} needs A, B and C as {', '.join(texts)} here; got {text!r}. "
                    f"{cls.instead}"
                )
        return Problem(m, n, k, nprocs, *texts, transpose=transpose)

    def filled(self) -> list[np.ndarray]:
        """This rank's filled local arrays of A and B, as stored."""
        local = [self.local(operand) for operand in (self.work.a, self.work.b)]
        for operand, array in zip(self.work.operands, local):
            for block, tile in self._tiles(operand, array):
                self._fill.into(tile, operand.name, block.row0, block.col0)
        return local

    def local(self, operand: Operand) -> np.ndarray:
        """A new local array of this rank for a matrix, in a type that NumPy has."""
        import numpy as np

        rows, cols = operand.stored.local_shape(self.rank)[:: -1 if self.order == "F" else 1]
        dtype = np.dtype(host_type(self.work.dtype))
        line = row_bytes(cols * dtype.itemsize, self.pads) // dtype.itemsize
        array = np.zeros((rows, line), dtype)[:, :cols]
        return array.T if self.order == "F" else array

    def own_blocks(self) -> Iterator[tuple[Block, np.ndarray]]:
        """The tiles of C that this rank has computed, as from a distributed matrix."""
        return self._tiles(self.work.c, self.result())

    def _tiles(self, operand: Operand, local: np.ndarray) -> Iterator[tuple[Block, np.ndarray]]:
        local = local.T if operand.transposed else local
        for block in operand.own_tiles(self.rank):
            row, col = operand.partition.local_start(block.tile)
            rows, cols = block.shape
            yield block, local[row : row + rows, col : col + cols]

    @property
    def replica(self) -> int:
        """The replica of C that this rank stores a part of."""
        return self.work.c.partition.replica_of(self.rank)

    @property
    def bytes(self) -> dict[str, int]:
        """All counters; 0 for those that the library does not report."""
        return dict.fromkeys(COUNTERS, 0) | self.moved

    @staticmethod
    def on_gpu(options: dict) -> bool:
        """Whether it multiplies on GPUs, with these options."""
        return False

    @classmethod
    def check_arithmetic(cls, dtype: str, compute: str | None, options: dict) -> None:
        """Raise an UnsupportedError for an element type or arithmetic that it does not have."""
        if dtype not in cls.dtypes:
            raise UnsupportedError(
                f"{cls.name} multiplies {' and '.join(cls.dtypes)} here (our adapter), got "
                f"{dtype}. Use --dtype float32."
            )
        if compute and not (cls.on_gpu(options) and dtype == "float32"):
            where = "GPUs" if cls.on_gpu(options) else "cores"
            raise UnsupportedError(
                f"-o compute={compute} is arithmetic of GPUs for float32, but {cls.name} "
                f"multiplies {dtype} on {where} here. Leave it out."
            )

    def refuse_shared_gpus(self, gpu: str | None) -> None:
        """Raise a MissingError on every rank if some rank has no GPU, or two ranks of a node have
        the same (collective).

        Parameters
        ----------
        gpu : str or None
            What identifies the GPU of this rank on its node; None without a GPU.
        """
        gpus = self.topology.node.allgather(gpu)
        problem = None
        if None in gpus:
            problem = f"a node has no GPU for {gpus.count(None)} of its {len(gpus)} ranks"
        elif len({*gpus}) < len(gpus):
            problem = f"{len(gpus)} ranks of a node have only {len({*gpus})} together"
        for described in filter(None, self.topology.comm.allgather(problem)):
            raise MissingError(
                f"{self.name} needs a GPU per rank, but {described}. Use fewer ranks per node, and "
                "show every rank all GPUs of the node (srun --gpus-per-node, no --gpu-bind)."
            )

    def check_even(self, *axes: str) -> None:
        """Raise an UnsupportedError for extents that do not divide evenly over the ranks."""
        for axis in axes:
            extent, nprocs = self.work.extent(axis), self.work.nprocs
            if extent % nprocs:
                raise UnsupportedError(
                    f"{self.name} divides {axis} evenly over the ranks (the library, or our "
                    f"adapter); {axis} = {extent} on {nprocs} ranks. Use a multiple of {nprocs}."
                )

    def attempt(self, what: Callable[[], None]) -> None:
        """Call the library on every rank; if it refuses on one, all ranks raise (collective).

        Raises
        ------
        UnsupportedError
            With the message of the first rank that it refused.
        """
        words = None
        try:
            what()
        except DrbenchError:  # found by all ranks
            raise
        except Exception as error:
            words = own_words(error)
        for described in filter(None, self.topology.comm.allgather(words)):
            raise UnsupportedError(f"{self.name} refuses: {described}")


class ArrayBlas:
    """The GEMM of an array package, for the GEMM-only speed of libraries that multiply with it.

    Parameters
    ----------
    info : BlasInfo
    prepare : callable
        ``prepare(a, b, c)`` -> a function that multiplies NumPy arrays as arrays of its own, on a
        GPU copies of them.
    wait : callable
        Waits until all started work has ended.
    """

    def __init__(self, info, prepare: Callable, wait: Callable[[], None]):
        self.info, self._prepare, self._wait = info, prepare, wait

    def prepare_gemm(self, a, b, c, conjugated: str = "") -> Callable[[float, float], None]:
        """``call_gemm(beta, alpha)``: c = a·b, as beta is 0 here, alpha 1, and no conjugates."""
        multiply = self._prepare(a, b, c)

        def call_gemm(beta: float, alpha: float) -> None:
            multiply()
            self._wait()

        return call_gemm


def host_type(dtype: str) -> str:
    """The NumPy type of elements on the host: float32 for bfloat16, which contains it."""
    return "float32" if dtype.startswith("bfloat16") else dtype


def own_words(error: BaseException) -> str:
    """The first lines of a library's exception, on one line of readable length.

    Examples
    --------
    >>> own_words(RuntimeError("Sharding propagation failed\\n  for mm"))
    'RuntimeError: Sharding propagation failed for mm'
    """
    return shorten(f"{type(error).__name__}: {error}", 300, placeholder="...")
