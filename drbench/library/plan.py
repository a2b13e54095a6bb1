"""Plans: operations of ranks on matrices of given specs, traced and laid out once, and bound to
the addresses of the arrays."""

from collections import OrderedDict
from collections.abc import Generator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from drbench.algorithms.registry import get_algorithm
from drbench.algorithms.universal.choice import busiest_rank, fewest_moved
from drbench.algorithms.universal.distribution import result_is_local
from drbench.algorithms.universal.packing import cores
from drbench.errors import DrbenchError, UnsupportedError, UsageError
from drbench.host.executor_base import ExecutorBase
from drbench.host.matrix import Location
from drbench.host.topology import mpi_adds
from drbench.partitions.intervals import Pair
from drbench.program.problem import Operand, Problem
from drbench.program.redistribution import redistribute
from drbench.program.steps import Step
from drbench.program.trace import Trace, trace

from .exchange import Exchange
from .runtime import Runtime
from .spec import Spec

#: Bound executors that a plan keeps.
_MOST_BOUND = 32
#: A base address for the heap's offsets where only distances matter; it is never accessed.
_SOMEWHERE = 1 << 40
#: Candidates that NumPy tries before it gives up deciding whether arrays share memory.
_MOST_WORK: Any = 1 << 16


class Plan:
    """One operation of ranks on matrices of given specs.

    Parameters
    ----------
    runtime : Runtime
    what : str
        In words, the same on every rank.
    specs : dict of str to Spec
        By the names that the program uses; ``"C"`` is written.
    prefetch : int
        Look-ahead of :mod:`drbench.plan.schedule`.

    Attributes
    ----------
    exchange : Exchange
    get : str
        How devices read memory that they can map: ``copy`` it first, or ``view`` it.
    """

    get = "copy"  # of devices only: on cores GEMMs read in place

    def __init__(self, runtime: Runtime, what: str, specs: dict[str, Spec], prefetch: int = 1):
        self.runtime, self.what, self.specs, self._prefetch = runtime, what, specs, prefetch
        runtime.plans.add(self)
        self.exchange = Exchange(runtime.comm, what)
        self._first: ExecutorBase | None = None
        self._bound: OrderedDict[bytes, ExecutorBase] = OrderedDict()
        self._agreed: dict | None = None

    def trace(self, rank: int) -> Trace:
        """The steps of one rank."""
        raise NotImplementedError

    def run(
        self,
        locations: tuple,
        fault: DrbenchError | None = None,
        serials: tuple[int, ...] = (),
        private: np.ndarray | None = None,
        alpha: complex = 1.0,
        beta: complex = 0.0,
    ) -> None:
        """Run the operation (collective).

        Parameters
        ----------
        locations : tuple of int
            Of this rank's local arrays, in the order of ``specs``.
        fault : DrbenchError, optional
            Why this rank cannot run it; then no rank does, and all raise it.
        serials : tuple of int
            Of the matrices, which must be the same on every rank.
        private : ndarray, optional
            This rank's local array of C if that is not in the heap.
        alpha, beta : float or complex
            C = beta·C + alpha·A·B.
        """
        runtime = self.runtime
        runtime.finish_user_work()
        runtime.sync()
        key = self.exchange.handshake(locations, fault, serials, alpha, beta)
        executor = self._bound.get(key) if private is None else None
        if executor is None:
            self.exchange.check(fault)
            executor = self._bind(key, private)
        runtime.sync()
        executor.run(alpha, beta)
        runtime.sync()
        runtime.comm.Barrier()  # all reads have ended, and C is complete
        runtime.sync()

    def _bind(self, key: bytes, private: np.ndarray | None) -> ExecutorBase:
        """An executor for the locations of the last handshake."""
        runtime = self.runtime
        matrices = {}
        for x, (name, spec) in enumerate(self.specs.items()):
            locations, local = self.exchange.locations(x), private if name == "C" else None
            if local is not None:
                locations[runtime.rank] = Location(0, *local.strides)
            matrices[name] = runtime.matrix(self._operand(name), spec.dtype, locations, local)
        if private is None:
            self._check_disjoint({name: [*matrix.places] for name, matrix in matrices.items()})
        if self._first is None:
            trace = self.trace(runtime.rank)
            executor = runtime.executor(trace, matrices, self._prefetch, self.get, self._agreed)
            self._first, self._agreed = executor, executor.remote_reads
        else:
            executor = self._first.bound(matrices)
        if private is None:
            self._bound[key] = executor
            if len(self._bound) > _MOST_BOUND:
                self._bound.popitem(last=False)
        return executor

    @property
    def contents(self) -> str:
        """What the plan holds from one call to the next, in words."""
        if self._first is None:
            return "not called yet"
        return f"{len(self._first.trace.steps)} steps, for {len(self._bound)} sets of arrays"

    def forget(self) -> None:
        """Forget all executors; the next run makes a new one."""
        self._first = None
        self._bound.clear()

    def _operand(self, name: str) -> Operand:
        return Operand(name, self.specs[name].partition)

    def _check_disjoint(self, locations: dict[str, list[Location]]) -> None:
        """Raise, on every rank, if C shares memory with a matrix that is read."""
        size = self.specs["C"].dtype.itemsize
        for name in list(locations)[:-1]:  # all but C
            for rank, (read, written) in enumerate(zip(locations[name], locations["C"])):
                shape, of_c = (self.specs[x].partition.local_shape(rank) for x in (name, "C"))
                if overlap(read, written, shape, of_c, size):
                    raise UsageError(
                        f"{self.what}: C shares memory with {name} on rank {rank}. Write into "
                        "another matrix."
                    )


class Multiplication(Plan):
    """The plan of C = beta·C + alpha·A·B for three specs, which a context keeps; with three
    matrices it is a :class:`~drbench.library.context.MultiplicationPlan`.

    Attributes
    ----------
    stationary : str
        The matrix whose tiles do not move.
    """

    def __init__(self, runtime: Runtime, a: Spec, b: Spec, c: Spec, stationary: str, update: bool):
        (m, k), (_, n) = a.shape, b.shape
        A, B, C = map(Operand, "ABC", (a.partition, b.partition, c.partition))
        stored = m, n, k, runtime.size, A, B, C, a.dtype.name
        conjugated = "a" * a.conjugated + "b" * b.conjugated
        problem = Problem(*stored, updates=update, conjugated=conjugated)
        self.problem = problem.on_nodes(runtime.nodes)
        self.update = update
        adds = runtime.in_place or mpi_adds(c.dtype)
        can = [matrix for matrix in "CBA" if adds or result_is_local(self.problem, matrix)]
        if stationary not in ("auto", *can):
            raise UnsupportedError(
                f"with stationary {stationary} partial sums of {a.dtype} are added by MPI, which "
                f"cannot add that type. Use stationary {' or '.join(can)}, or float32."
            )
        if stationary == "auto" and len(can) < 3:
            stationary = fewest_moved(self.problem, can)
        self._options = resolve_universal(self.problem, runtime.in_place, stationary)
        self.stationary, self._can = self._options["stationary"], can
        into = "C +=" if update else "C ="
        what = f"multiply({into} A·B: {a}, {b}, {c}, stationary {self.stationary})"
        super().__init__(runtime, what, {"A": a, "B": b, "C": c})

    @cached_property
    def costs(self) -> dict[str, int]:
        """For each matrix that may be stationary the elements that the busiest rank would move (an
        accumulate counts three times); without those that need MPI to add bfloat16."""
        return {matrix: busiest_rank(self.problem, matrix) for matrix in self._can}

    def trace(self, rank: int) -> Trace:
        machine = cores(self.problem.dtype) if self.runtime.on_cores else None
        universal = get_algorithm("universal")
        return universal.trace(self.problem, rank, machine=machine, **self._options)


def resolve_universal(problem: Problem, in_place: bool, stationary: str = "auto") -> dict:
    """The options of the algorithm ``universal`` with which a context multiplies."""
    return get_algorithm("universal").resolve(
        problem,
        in_place,
        stationary=stationary,
        replicate_result=True,
        sums="accumulate",  # an inbox would have to be as large as the largest plan's
        chunk="none" if problem.dtype == "bfloat16" else "auto",  # each partial sum is rounded
    )


class Redistribution(Plan):
    """C = A in another layout."""

    get = "view"  # it is a copy

    def __init__(self, runtime: Runtime, a: Spec, c: Spec, root: int | None = None):
        self.root = root
        to = "" if root is None else f", rank {root}"
        super().__init__(runtime, f"redistribute({a} to {c}{to})", {"A": a, "C": c}, prefetch=4)

    def trace(self, rank: int) -> Trace:
        old, new = (self._operand(name) for name in "AC")
        program = redistribute(old, new, rank) if self.root in (None, rank) else _nothing()
        return trace(program, None, rank, fresh=False)


def _nothing() -> Generator[Step, Any, None]:
    yield from ()


def overlap(local: Location, other: Location, shape: Pair, other_shape: Pair, item: int) -> bool:
    """Whether two local arrays of one rank share memory, as NumPy decides it; also where steps of
    more than two different sizes make that too hard to decide.

    Examples
    --------
    Columns 0:2 and 2:4 of rows of 4 elements, and columns 0:3 and 2:4:

    >>> overlap(Location(0, 32, 8), Location(16, 32, 8), (3, 2), (3, 2), 8)
    False
    >>> overlap(Location(0, 32, 8), Location(16, 32, 8), (3, 3), (3, 2), 8)
    True
    """
    views = []
    for at, extents in ((local, shape), (other, other_shape)):
        interface: dict[str, Any] = {
            "data": (_SOMEWHERE + at.offset, True),
            "strides": (at.by_row, at.by_col),
        }
        interface |= {"shape": extents, "typestr": f"|V{item}", "version": 3}
        views.append(np.asarray(SimpleNamespace(__array_interface__=interface)))
    try:
        return np.shares_memory(views[0], views[1], max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True
