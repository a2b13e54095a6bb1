"""One MPI window: every rank's storage of one matrix, reached in place on the node and by RMA
elsewhere."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from .huge_pages import LEAST_BYTES, HugeMapping, map_again
from .mpi_types import mpi_type
from .topology import Topology

__all__ = ["Window"]

#: Every rank exposes at least this much, so that "reachable" and "empty" can be told apart.
_MINIMUM_BYTES = 64


class Window:
    """Storage of ``size`` elements on this rank, exposed to all.

    Parameters
    ----------
    topology : Topology
    size : int
        Elements on this rank; may differ between ranks.
    dtype : numpy dtype
        float32 or float64.

    Attributes
    ----------
    local : ndarray, shape (size,)
        Own storage.
    peers : list of ndarray or None
        For each rank its storage if this rank can load and store it, else None.
    allocation : str
        How the memory was allocated, for reports.

    Notes
    -----
    One passive-target epoch (``Lock_all``) lasts as long as the window. Loads and stores mix with
    RMA only in the unified memory model; where MPI does not promise it, no peer counts as
    reachable.
    """

    def __init__(self, topology: Topology, size: int, dtype):
        comm = topology.comm
        self.dtype = np.dtype(dtype)
        self._mpi_type = mpi_type(self.dtype)
        self._derived: dict[tuple[int, int, int], MPI.Datatype] = {}
        self._comm = comm
        self._shared: MPI.Win | None = None
        itemsize = self.dtype.itemsize
        nbytes = max(size * itemsize, _MINIMUM_BYTES)
        info = MPI.Info.Create()
        info.Set("accumulate_ordering", "none")  # sums may be applied in any order
        info.Set("same_disp_unit", "true")
        self.win = MPI.Win.Allocate(nbytes, itemsize, info, comm)
        self.allocation = "MPI_Win_allocate"
        segments = self._query(self.win, range(comm.size))
        if segments is None:  # Open MPI does not share allocated windows
            self.win.Free()
            self.allocation = "MPI_Win_allocate_shared under MPI_Win_create"
            self._shared = MPI.Win.Allocate_shared(nbytes, itemsize, comm=topology.node)
            on_node = [
                r for r in range(comm.size) if topology.node_of[r] == topology.node_of[comm.rank]
            ]
            segments = dict(
                zip(on_node, self._query(self._shared, range(topology.node.size)).values())
            )
            memory = segments[comm.rank]
            self.win = MPI.Win.Create(memory, itemsize, info, comm)
        info.Free()
        unified = self.win.Get_attr(MPI.WIN_MODEL) == MPI.WIN_UNIFIED
        sizes = comm.allgather(size)
        self.peers: list[np.ndarray | None] = [None] * comm.size
        for rank, memory in segments.items():
            if len(memory) >= _MINIMUM_BYTES and (unified or rank == comm.rank):
                self.peers[rank] = np.frombuffer(memory, self.dtype)[: sizes[rank]]
        self._again: list[HugeMapping] = []
        if max(sizes) * itemsize >= LEAST_BYTES:
            self._again = self._in_huge_pages(comm.rank)
            comm.Barrier()  # nobody writes before all storage is ready
        self.local = self.peers[comm.rank]
        self.win.Lock_all(MPI.MODE_NOCHECK)

    def _in_huge_pages(self, rank: int) -> list[HugeMapping]:
        """See large storage through mappings whose pages can be huge, and make this rank's own
        so."""
        mappings: list[HugeMapping] = []
        for peer, memory in enumerate(self.peers):
            if memory is None or memory.nbytes < LEAST_BYTES:
                continue
            mapping = next((mapping for mapping in mappings if memory in mapping), None)
            if mapping is None:
                mapping = map_again(memory)
                if mapping is None:
                    continue  # loads and stores work all the same, from small pages
                mappings.append(mapping)
            self.peers[peer] = mapping.seen(memory)
            if peer == rank:
                mapping.collapse(self.peers[peer])
        return mappings

    def _query(self, win: MPI.Win, ranks):
        """Memory of each rank as seen from here (empty if it is on another node); None if MPI
        refuses."""
        handler = win.Get_errhandler()
        win.Set_errhandler(MPI.ERRORS_RETURN)
        try:
            found = {rank: win.Shared_query(rank)[0] for rank in ranks}
        except MPI.Exception:
            found = None
        win.Set_errhandler(handler)
        handler.Free()
        return found

    def _target(self, offset: int, rows: int, cols: int, ld: int):
        """(displacement, count, datatype) of a rows×cols block at ``offset`` with leading dimension
        ``ld``."""
        if cols == ld or rows == 1:
            return offset, rows * cols, self._mpi_type
        key = (rows, cols, ld)
        kind = self._derived.get(key)
        if kind is None:
            kind = self._derived[key] = self._mpi_type.Create_vector(rows, cols, ld).Commit()
        return offset, 1, kind

    def rget(self, out: np.ndarray, owner: int, offset: int, ld: int) -> MPI.Request:
        """Start reading a block into ``out`` (rows×cols, contiguous)."""
        return self.win.Rget(
            [out, out.size, self._mpi_type], owner, self._target(offset, *out.shape, ld)
        )

    def rput(self, value: np.ndarray, owner: int, offset: int, ld: int) -> MPI.Request:
        """Start writing ``value`` (rows×cols, contiguous); complete at the owner after
        :meth:`flush`."""
        return self.win.Rput(
            [value, value.size, self._mpi_type], owner, self._target(offset, *value.shape, ld)
        )

    def raccumulate(self, value: np.ndarray, owner: int, offset: int, ld: int) -> MPI.Request:
        """Start adding ``value`` (rows×cols, contiguous), element by element atomic against other
        accumulates."""
        return self.win.Raccumulate(
            [value, value.size, self._mpi_type],
            owner,
            self._target(offset, *value.shape, ld),
            MPI.SUM,
        )

    def flush(self) -> None:
        """Complete this rank's RMA at its targets."""
        self.win.Flush_all()

    def sync(self) -> None:
        """Order this rank's loads and stores with the window's RMA."""
        self.win.Sync()

    def close(self) -> None:
        """End the epoch and free the window (collective). Arrays over its memory must not be used
        afterwards."""
        self.win.Unlock_all()
        for kind in self._derived.values():
            kind.Free()
        self._derived.clear()
        self.peers = []
        self.local = None
        for mapping in self._again:
            mapping.close()
        self._comm.Barrier()
        self.win.Free()
        if self._shared is not None:
            self._shared.Free()
