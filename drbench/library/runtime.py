"""Resources that all plans of a context share: ranks, heap, BLAS, scratch memory."""

from typing import Any
from weakref import WeakSet

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from drbench.errors import DrbenchError
from drbench.host.blas import GivenBlas, load_blas
from drbench.host.executor import Executor
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.host.matrix import DistributedMatrix, Location
from drbench.host.redistribution import Redistributor
from drbench.host.topology import Topology
from drbench.program.problem import Operand
from drbench.program.trace import Trace
from drbench.transport import TransportChoice

from .heap import Heap
from .spec import TYPES, Specs


class Runtime:
    """The ranks of a communicator with a heap (collective to make and to close).

    Attributes
    ----------
    comm : MPI.Comm
        A duplicate of the communicator that was given.
    rank, size : int
    topology : Topology
    heap : Heap
    blas : Blas
    specs : Specs
    types : tuple of str
        The element types that matrices may have.
    in_place : bool
        Every rank reads every other's memory in place.
    nodes : list of int
        For each rank the lowest rank on its node; of ranks that compute on devices, 0.
    on_cores : bool
        Ranks compute on cores, not on devices.
    pads : bool
        Rows of new local arrays are padded: ranks compute on cores, and no message contains tiles.
    yields : bool
        There are more ranks than cores.
    plans : WeakSet of Plan
        That run on it: all of them forget their executors when a larger arena replaces the old one.
    """

    types: tuple[str, ...] = TYPES
    on_cores: bool = True

    def __init__(self, comm: MPI.Comm, nbytes: int, blas: Any, transport: TransportChoice):
        self.comm = comm.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.topology = Topology(self.comm)
        try:
            self.heap = self._open_heap(nbytes, transport)
        except DrbenchError:  # on every rank alike
            self.topology.close()
            self.comm.Free()
            raise
        own = load_blas() if isinstance(blas, str) and blas == "auto" else blas
        self.blas: Any = own if hasattr(own, "prepare_gemm") else GivenBlas(own)
        self.specs = Specs(self.size, self.rank, self.types)
        self.in_place = all(map(all, self.heap.window.reach))
        self.nodes = self.topology.node_of if self.on_cores else [0] * self.size
        self.pads = self.on_cores and self.in_place
        self.yields = self.topology.oversubscribed(1)
        self.plans: WeakSet = WeakSet()
        self._arena = np.empty(0, np.uint8)

    def _open_heap(self, nbytes: int, transport: TransportChoice) -> Heap:
        return Heap(self.topology, nbytes, transport)

    # -- arrays as users have them

    def taken(self, array: ArrayLike) -> np.ndarray:
        """A user's array as one of the type that this runtime uses, in the same memory."""
        return np.asarray(array)

    def empty(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """An array of this rank's own."""
        return np.empty(shape, dtype)

    def zero(self, array: np.ndarray) -> None:
        """Make every element 0."""
        array.fill(0)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """target[...] = source."""
        np.copyto(target, source)

    # -- execution

    def finish_user_work(self) -> None:
        """Wait for GPU work that users have started; on cores there is none."""

    def sync(self) -> None:
        """Order this rank's loads and stores with the others'."""
        self.heap.window.sync()

    def matrix(
        self,
        operand: Operand,
        dtype: np.dtype,
        places: list[Location],
        private: np.ndarray | None = None,
    ) -> DistributedMatrix:
        """A matrix whose local arrays are at places of the heap; ``private`` replaces this rank's
        by an array that no other rank sees."""
        window = self.heap.window if private is None else self.heap.window.private(private)
        return DistributedMatrix(operand, self.topology, dtype, window, places)

    def executor(
        self, trace: Trace, matrices: dict, prefetch: int, get: str, agreed: dict | None = None
    ) -> Any:
        """The executor of a trace on matrices, in the arena that all share. ``get`` is how a device
        reads memory that it can map; cores read in place. ``agreed`` is ``remote_reads`` of an
        earlier executor."""
        if trace.problem is None:
            return Redistributor(trace, matrices, self.arena)  # type: ignore[unreachable]
        executor = Executor(trace, matrices, blas=self.blas, prefetch=prefetch, arena=self.arena)
        executor.yields = self.yields
        return executor

    def arena(self, nbytes: int) -> np.ndarray:
        """Receive and scratch memory, shared by all executors, which run one after the other."""
        if nbytes > self._arena.size:
            self._outgrown()
            self._arena = empty_in_huge_pages(max(nbytes, 2 * self._arena.size), np.dtype(np.uint8))
            self._arena.fill(0)
        return self._arena[:nbytes]

    def _outgrown(self) -> None:
        """Make all plans forget the old arena; each is laid out again when it is called."""
        for plan in self.plans:
            plan.forget()

    def forget(self) -> None:
        """Release the arena."""
        self._arena = np.empty(0, np.uint8)

    def close(self) -> None:
        """Free the heap and the communicators."""
        self.heap.close()
        self.topology.close()
        self.comm.Free()
