"""What plans stand on: the ranks of a context, their heap, BLAS, and memory that they share."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

from drbench.common import TransportChoice
from drbench.errors import DrbenchError
from drbench.host.blas import load_blas
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.host.topology import Topology

from .heap import Heap
from .spec import Specs


class Ground:
    """The ranks of a communicator with a heap (collective to make and to close).

    Attributes
    ----------
    comm : MPI.Comm
        A duplicate of the one given.
    rank, size : int
    topology : Topology
    heap : Heap
    blas : Blas
    specs : Specs
    in_place : bool
        Every rank reads every other's memory in place.
    yields : bool
        There are more ranks than cores.
    on_growth : callable
        Called before the arena is replaced by a larger one.
    """

    def __init__(self, comm: MPI.Comm, nbytes: int, blas, transport: TransportChoice):
        self.comm = comm.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.topology = Topology(self.comm)
        try:
            self.heap = Heap(self.topology, nbytes, transport)
        except DrbenchError:  # on every rank alike
            self.topology.close()
            self.comm.Free()
            raise
        self.blas = load_blas() if isinstance(blas, str) and blas == "auto" else blas
        self.specs = Specs(self.size, self.rank)
        self.in_place = all(map(all, self.heap.reach))
        self.yields = self.topology.node.size > self.topology.cores
        self.on_growth: Callable[[], None] = lambda: None
        self._arena = np.empty(0, np.uint8)

    def arena(self, nbytes: int) -> np.ndarray:
        """Receive and scratch memory, shared by all that runs here, one after the other."""
        if nbytes > self._arena.size:
            self.on_growth()
            self._arena = empty_in_huge_pages(max(nbytes, 2 * self._arena.size), np.dtype(np.uint8))
            self._arena.fill(0)
        return self._arena[:nbytes]

    def privately(self, local: np.ndarray) -> SimpleNamespace:
        """A window of which this rank sees an array of its own, and nothing else."""
        in_reach: list = [None] * self.size
        in_reach[self.rank] = local.reshape(-1).view(np.uint8)
        return SimpleNamespace(win=self.heap.window.win, in_reach=in_reach, _derived={})

    def forget(self) -> None:
        """Let go of the arena."""
        self._arena = np.empty(0, np.uint8)

    def close(self) -> None:
        """Free the heap and the communicators."""
        self.heap.close()
        self.topology.close()
        self.comm.Free()
