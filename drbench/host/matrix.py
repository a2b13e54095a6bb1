"""A distributed matrix: every rank's tiles in one MPI window, reached in place on the node and by
RMA elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from drbench.common import TransportChoice, numpy_type
from drbench.errors import DrbenchError, UnsupportedError
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Block

from .huge_pages import LEAST_BYTES, HugeMapping, in_huge_pages
from .topology import Topology, mpi_type

#: Every rank exposes at least this much, so that "reachable" and "empty" can be told apart.
_MINIMUM_BYTES = 64


class DistributedMatrix:
    """One matrix, partitioned and replicated over the ranks of a topology (collective to make and
    to close).

    Parameters
    ----------
    operand : Operand
        Name and partition.
    topology : Topology
    dtype : str or numpy dtype
        float32 or float64.
    transport : TransportChoice
        ``rma`` hides the other ranks' memory, so that even those of this node are reached by RMA;
        ``direct`` and ``throttled`` refuse ranks that cannot be reached in place.
    window : optional
        Storage made elsewhere, with the attributes of :class:`Window`.

    Raises
    ------
    UnsupportedError
        If ``direct`` (or ``throttled``) is asked for and some rank's memory cannot be reached.

    Notes
    -----
    The accumulate protocol of each replica is fixed here: if all its ranks reach each other's
    memory every add is made in place under a lock on the range it touches, otherwise every add, the
    owner's included, is ``MPI_Accumulate``. The two are never mixed on one replica: that loses
    updates.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
        window=None,
    ):
        self.operand, self.partition, self.topology = operand, operand.partition, topology
        comm = topology.comm
        self.rank, self.dtype = comm.rank, np.dtype(dtype)
        self.replica = self.partition.replica_of(self.rank)
        self.window = window or Window(topology, operand.local_size(self.rank), self.dtype)
        if transport.kind == "rma":
            self.window.in_reach = [
                memory if rank == self.rank else None
                for rank, memory in enumerate(self.window.in_reach)
            ]
        reach = comm.allgather([memory is not None for memory in self.window.in_reach])
        if transport.kind in ("direct", "throttled") and not all(all(row) for row in reach):
            self.window.close()
            raise UnsupportedError(
                f"--transport {transport.kind} needs every rank's memory in reach; the "
                f"{comm.size} ranks "
                f"are on {topology.nodes} nodes (or MPI does not share windows). Use --transport "
                "auto."
            )
        self._agree(reach)

    def _agree(self, reach: list[list[bool]]) -> None:
        """Fix the protocols; ``reach[r][s]`` says that rank r reaches the memory of rank s."""
        p, everyone = self.partition, range(self.partition.replicas)

        def protocol(ranks: Sequence[int]) -> str:
            return "locked" if all(reach[r][s] for r in ranks for s in ranks) else "mpi"

        self.protocols = [protocol(p.members(replica)) for replica in everyone]
        #: Of what replicas add to each other, which Fences keep apart from all else.
        self.between = [
            protocol([rank for copy in p.copies(replica) for rank in p.members(copy)])
            for replica in everyone
        ]
        self.uses_rma = not all(reach[self.rank])
        #: True if some rank reaches this one's memory by RMA only, so that this rank's progress
        #: serves it.
        self.serves_rma = not all(row[self.rank] for row in reach)

    def view(self, block: Block) -> np.ndarray | None:
        """The block in place (rows×columns; rows contiguous, or columns if the matrix is stored
        transposed), or None if out of reach; what has no elements is in reach of every rank."""
        if not block.size:  # it may begin where the storage has ended
            return np.empty(block.shape, self.dtype)
        memory = self.window.in_reach[block.owner]
        if memory is None:
            return None
        item = self.dtype.itemsize
        strides = (item, block.ld * item) if block.transposed else (block.ld * item, item)
        return type(memory)(block.shape, self.dtype, memory, block.offset * item, strides)

    def turned(self, block: Block) -> bool:
        """Whether columns of the block, not its rows, are contiguous where it lies: what is read
        from there, or made to be added there, is best kept so."""
        return block.transposed

    def add(self, value: np.ndarray, block: Block) -> bool:
        """Add ``value`` to the block in place, under its lock; False if the lock is taken."""
        with self.tried(block, block) as held:
            if held:
                target = self.view(block)
                np.add(target, value, out=target)
        return held

    @contextmanager
    def tried(self, first: Block, last: Block) -> Iterator[bool]:
        """The lock on what lies from one block to another below it, unless someone holds part of
        it: whether it is held."""
        owner, start, _ = self._range(first)
        _, low, length = self._range(last)
        taken = owner, start, low + length - start
        held = self.topology.locks.try_acquire(*taken)
        try:
            yield held
        finally:
            if held:
                self.topology.locks.release(*taken)

    @contextmanager
    def guard(self, block: Block) -> Iterator[None]:
        """The lock on a block's range, waited for."""
        taken = self._range(block)
        self.topology.locks.acquire(*taken)
        try:
            yield
        finally:
            self.topology.locks.release(*taken)

    def _range(self, block: Block) -> tuple[int, int, int]:
        """What a lock on a block covers: whose storage, from where on, how long."""
        return block.owner, block.offset, block.span

    def own_blocks(self) -> list[tuple[Block, np.ndarray]]:
        """The tiles this rank owns, with their views."""
        return [(block, self.view(block)) for block in self.operand.own_tiles(self.rank)]

    def spoil(self) -> None:
        """Make every element of this rank's tiles NaN: a result that was not computed is none."""
        self.window.local.fill(np.nan)

    def close(self) -> None:
        """Free the window (collective); no view of a tile may be used afterwards."""
        self.window.close()


@contextmanager
def distributed(
    problem: Problem,
    topology: Topology,
    transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
    make=DistributedMatrix,
) -> Iterator[dict[str, DistributedMatrix]]:
    """A, B and C of a problem, by name (collective).

    They are freed at the end, also after an error that all ranks found alike; if one rank alone
    broke, they are not: freeing is collective and the others are elsewhere.
    """
    matrices: dict[str, DistributedMatrix] = {}

    def close():
        for matrix in matrices.values():
            matrix.close()

    try:
        for operand in problem.operands:
            dtype = numpy_type(problem.type_of(operand.name))
            matrices[operand.name] = make(operand, topology, dtype, transport)
        yield matrices
    except DrbenchError:
        close()
        raise
    close()


class Window:
    """Storage of ``size`` elements on this rank, exposed to all.

    Parameters
    ----------
    topology : Topology
    size : int
        Elements on this rank; may differ between ranks.
    dtype : numpy dtype
        float32 or float64; uint8 for storage that holds several matrices.
    gather : bool
        Gather all of it into huge pages at once; else :meth:`gather` does it for parts.

    Attributes
    ----------
    local : ndarray, shape (size,)
        Own storage.
    in_reach : list of ndarray or None
        For each rank its storage if this rank can load and store it, else None.
    allocation : str
        How the memory was allocated, for reports.

    Notes
    -----
    One passive-target epoch (``Lock_all``) lasts as long as the window. Loads and stores mix with
    RMA only in the unified memory model; where MPI does not promise it, no other rank counts
    as reachable.
    """

    allocation = "MPI_Win_allocate"
    _shared: MPI.Win | None = None
    _again: Sequence[HugeMapping] = ()

    def __init__(self, topology: Topology, size: int, dtype, gather: bool = True):
        comm = topology.comm
        dtype = np.dtype(dtype)
        itemsize = dtype.itemsize
        nbytes = max(size * itemsize, _MINIMUM_BYTES)
        info = MPI.Info.Create()
        info.Set("accumulate_ordering", "none")  # sums may be applied in any order
        info.Set("same_disp_unit", "true")
        win = MPI.Win.Allocate(nbytes, itemsize, info, comm)
        segments = _query(win, range(comm.size))
        if segments is None:  # Open MPI does not share allocated windows
            win.Free()
            self.allocation = "MPI_Win_allocate_shared under MPI_Win_create"
            self._shared = MPI.Win.Allocate_shared(nbytes, itemsize, comm=topology.node)
            on_node = [
                r for r in range(comm.size) if topology.node_of[r] == topology.node_of[comm.rank]
            ]
            segments = dict(zip(on_node, _query(self._shared, range(topology.node.size)).values()))
            win = MPI.Win.Create(segments[comm.rank], itemsize, info, comm)
        info.Free()
        unified = win.Get_attr(MPI.WIN_MODEL) == MPI.WIN_UNIFIED
        sizes = comm.allgather(size)
        in_reach: list[np.ndarray | None] = [None] * comm.size
        for rank, memory in segments.items():
            if len(memory) >= _MINIMUM_BYTES and (unified or rank == comm.rank):
                in_reach[rank] = np.frombuffer(memory, dtype)[: sizes[rank]]
        if max(sizes) * itemsize >= LEAST_BYTES:
            self._again = in_huge_pages(in_reach, comm.rank if gather else None)
            comm.Barrier()  # nobody writes before all storage is ready
        self._open(comm, dtype, win, in_reach, in_reach[comm.rank])

    def _open(self, comm: MPI.Comm, dtype: np.dtype, win: MPI.Win, in_reach: list, local) -> None:
        """Begin the epoch."""
        self._comm, self.win, self.in_reach, self.local = comm, win, in_reach, local
        self._mpi_type = mpi_type(dtype)
        self._derived: dict[tuple[int, int, int], MPI.Datatype] = {}
        win.Lock_all(MPI.MODE_NOCHECK)

    def _target(self, block: Block):
        """(displacement, count, datatype) of a block in its owner's storage, element by element in
        the order they lie there."""
        (runs, length), offset, ld = block.stored_shape, block.offset, block.ld
        if length == ld or runs == 1:
            return offset, runs * length, self._mpi_type
        return offset, 1, self._runs(runs, length, ld)

    def _runs(self, runs: int, length: int, ld: int) -> MPI.Datatype:
        """So many runs of elements, ``ld`` apart."""
        key = (runs, length, ld)
        kind = self._derived.get(key)
        if kind is None:
            kind = self._derived[key] = self._mpi_type.Create_vector(runs, length, ld).Commit()
        return kind

    def _here(self, array: np.ndarray, block: Block) -> list:
        """The other side of a transfer: a rows×cols array in the order of the block's storage,
        rows (columns, if that is stored transposed) without gaps."""
        array = array.T if block.transposed else array
        if not array.size or array.flags.c_contiguous:
            return [array, array.size, self._mpi_type]
        (runs, length), (apart, along) = array.shape, array.strides
        if (along != array.itemsize and length > 1) or apart % array.itemsize:
            raise ValueError(f"{block!r} moves from or to runs without gaps, as it is stored")
        span = (runs - 1) * apart + length * array.itemsize
        memory = MPI.buffer.fromaddress(array.__array_interface__["data"][0], span)
        return [memory, 1, self._runs(runs, length, apart // array.itemsize)]

    def rget(self, out: np.ndarray, block: Block) -> MPI.Request:
        """Start reading a block into ``out`` (rows×cols, in runs as the block is stored)."""
        return self.win.Rget(self._here(out, block), block.owner, self._target(block))

    def rput(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start writing ``value`` (rows×cols, in runs as the block is stored); complete at the
        owner after :meth:`flush`."""
        return self.win.Rput(self._here(value, block), block.owner, self._target(block))

    def raccumulate(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start adding ``value`` (rows×cols, in runs as the block is stored), element by
        element atomic against other accumulates."""
        return self.win.Raccumulate(
            self._here(value, block), block.owner, self._target(block), MPI.SUM
        )

    def gather(self, start: int, stop: int) -> None:
        """Zero own storage [start, stop) and gather it into huge pages, as far as Linux gives
        them."""
        if self._again and (stop - start) * self.local.itemsize >= LEAST_BYTES:
            self._again[0].collapse(self.local[start:stop])

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
        self.in_reach = []
        self.local = None
        for mapping in self._again:
            mapping.close()
        self._comm.Barrier()
        self.win.Free()
        if self._shared is not None:
            self._shared.Free()


def _query(win: MPI.Win, ranks):
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
