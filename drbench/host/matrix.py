"""A distributed matrix: a local array on every rank, in an MPI window, accessed in place on the
node and by RMA elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.arrays import address_of, numpy_type
from drbench.errors import UnsupportedError
from drbench.partitions.intervals import Pair
from drbench.program.problem import Operand, Problem, row_bytes
from drbench.program.steps import Block
from drbench.transport import TransportChoice

from .copies import Move, Strided
from .huge_pages import LEAST_BYTES, HugeMapping, in_huge_pages
from .topology import ClosedTogether, Topology, mpi_type

#: Local arrays begin at multiples of this many bytes.
ALIGNMENT = 256
#: Every rank exposes at least this much, so that mapped and empty memory are distinguishable.
_MINIMUM_BYTES = 64
#: Datatypes of strided blocks that a window keeps.
_MOST_TYPES = 1024
_AUTO = TransportChoice("auto")


class Location(NamedTuple):
    """The location of a rank's local array, or of a block of it: its first element in the rank's
    part of the window, and its row and column strides, in bytes."""

    offset: int
    by_row: int
    by_col: int

    @property
    def by_columns(self) -> bool:
        """Whether columns, not rows, are contiguous.

        Examples
        --------
        Rows of 8 elements of 4 bytes, and the transposed view of them:

        >>> Location(0, 32, 4).by_columns, Location(0, 4, 32).by_columns
        (False, True)
        """
        return self.by_row < self.by_col


def local_places(
    operand: Operand, item: int, padded: bool = False, starts: Sequence[int] = ()
) -> tuple[list[Location], list[int]]:
    """The places of the local arrays of all ranks, and their ends, in bytes.

    Parameters
    ----------
    operand : Operand
    item : int
        Bytes of an element.
    padded : bool
        Rows are padded (:func:`drbench.program.problem.row_bytes`).
    starts : sequence of int
        Start of the local array by rank, by default 0.
    """
    places, ends = [], []
    for rank in range(operand.stored.nprocs):
        rows, cols = operand.stored.local_shape(rank)
        start, stride = starts[rank] if starts else 0, row_bytes(cols * item, padded)
        strides = (item, stride) if operand.transposed else (stride, item)
        places.append(Location(start, *strides))
        ends.append(start + rows * stride)
    return places, ends


class DistributedMatrix(ClosedTogether):
    """One matrix whose local arrays are in a window, which it may share with others (not
    collective).

    A local array has the rank's rows × the rank's columns, in the order of the whole matrix, as
    ScaLAPACK and DTensor store them. Strides may be any that BLAS allows, and differ between ranks:
    a transposed, padded or sliced array, or one wider on some ranks, is no special case.

    Parameters
    ----------
    operand : Operand
        Name and partition.
    topology : Topology
    dtype : str or numpy dtype
    window : Window
    places : sequence of Location
        By rank.

    Notes
    -----
    The accumulate protocol of each replica is fixed here: if all its ranks map each other's memory
    every add is made in place under a lock on its range, otherwise every add, the owner's included,
    is ``MPI_Accumulate``. The two are never mixed on one replica: that would lose updates. Ranks
    without tiles may add to replica 0.
    """

    def __init__(
        self, operand: Operand, topology: Topology, dtype, window, places: Sequence[Location]
    ):
        self.operand, self.partition, self.topology = operand, operand.partition, topology
        self.rank, self.dtype = topology.comm.rank, np.dtype(dtype)
        self.replica = self.partition.replica_of(self.rank)
        self.window, self.places = window, places
        self._starts: dict[Pair, Pair] = {}
        p, everyone, reach = self.partition, range(self.partition.replicas), window.reach

        def protocol(ranks: Sequence[int]) -> str:
            return "locked" if all(reach[r][s] for r in ranks for s in ranks) else "mpi"

        self.protocols = [protocol(p.members(replica)) for replica in everyone]
        # idle ranks, too, have replica 0
        self.protocols[0] = protocol([x for x in range(p.nprocs) if not p.replica_of(x)])
        #: Protocol of adds between replicas, which Fences separate from all other adds.
        self.between = [
            protocol([rank for other in p.copies(replica) for rank in p.members(other)])
            for replica in everyone
        ]
        self.uses_rma = not all(reach[self.rank])
        #: True if some rank accesses this one's memory by RMA only, so that this rank must progress
        #: MPI for it.
        self.serves_rma = not all(row[self.rank] for row in reach)

    @classmethod
    def open(
        cls,
        operand: Operand,
        topology: Topology,
        dtype,
        transport: TransportChoice = _AUTO,
        padded: bool = False,
    ) -> "DistributedMatrix":
        """A matrix in a window of its own, with padded rows or without (collective); errors as of
        :class:`Window`."""
        dtype = np.dtype(dtype)
        places, sizes = local_places(operand, dtype.itemsize, padded)
        window = Window(topology, sizes[topology.comm.rank], transport=transport)
        return cls(operand, topology, dtype, window, places)

    def locate(self, block: Block) -> Location:
        """The place of a block in its owner's part of the window; the block may be one of the
        transposed matrix."""
        column_major = block.transposed != self.operand.transposed
        tile, at = block.tile, (block.row0, block.col0)
        if column_major:
            tile, at = tile[::-1], at[::-1]
        start = self._starts.get(tile)
        if start is None:  # place of element (0, 0) if it were in this tile
            rows, cols = self.partition.tile_bounds(tile)
            row, col = self.partition.local_start(tile)
            start = self._starts[tile] = row - rows.start, col - cols.start
        offset, by_row, by_col = self.places[block.owner]
        offset += (start[0] + at[0]) * by_row + (start[1] + at[1]) * by_col
        return (
            Location(offset, by_col, by_row) if column_major else Location(offset, by_row, by_col)
        )

    def view(self, block: Block) -> np.ndarray | None:
        """The block in place (rows×columns, with the strides of its owner's local array), or None
        if it is not mapped; never None for an empty block."""
        memory = self.window.in_reach[block.owner if block.size else self.rank]
        if memory is None:
            return None
        if not block.size:  # it may begin where the storage has ended
            return memory[:0].view(self.dtype).reshape(block.shape)
        offset, *strides = self.locate(block)
        return type(memory)(block.shape, self.dtype, memory, offset, tuple(strides))

    def column_major(self, block: Block) -> bool:
        """Whether columns of the block, not its rows, are contiguous in its owner's array: best
        also for buffers that are read from it or added to it."""
        column_major = block.transposed != self.operand.transposed
        return self.places[block.owner].by_columns != column_major

    def rget(self, out: np.ndarray, block: Block) -> MPI.Request:
        """Start reading a block into ``out`` (rows×cols)."""
        return self.window.rget(out, block.owner, self.locate(block))

    def rput(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start writing ``value`` (rows×cols) into a block; complete at the owner after
        :meth:`Window.flush`."""
        return self.window.rput(value, block.owner, self.locate(block))

    def raccumulate(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start adding ``value`` (rows×cols) to a block, element by element atomic against other
        accumulates."""
        return self.window.raccumulate(value, block.owner, self.locate(block))

    def add(self, value: np.ndarray, block: Block) -> bool:
        """Add ``value`` to the block in place, under its lock; False if the lock is taken."""
        taken, locks = self._range(block), self.topology.locks
        if not locks.try_acquire(*taken):
            return False
        try:
            target = self.view(block)
            np.add(target, value, out=target)
        finally:
            locks.release(*taken)
        return True

    @contextmanager
    def guard(self, block: Block) -> Iterator[None]:
        """A context that holds the lock on a block's range."""
        taken = self._range(block)
        self.topology.locks.acquire(*taken)
        try:
            yield
        finally:
            self.topology.locks.release(*taken)

    def _range(self, block: Block) -> tuple[int, int, int]:
        """The range of a lock on a block: owner, start, length."""
        offset, *strides = self.locate(block)
        length = Strided(offset, block.shape, tuple(strides)).length(self.dtype.itemsize)
        return block.owner, offset, length

    def own_blocks(self) -> list[tuple[Block, np.ndarray]]:
        """The tiles this rank owns, with their views."""
        return [(block, self.view(block)) for block in self.operand.own_tiles(self.rank)]

    def local_in(self, memory):
        """The part of this rank's memory, or of a mirror of it, that is its local array."""
        shape = self.partition.local_shape(self.rank)
        if 0 in shape:
            return memory[:0].view(self.dtype).reshape(shape)
        offset, *strides = self.places[self.rank]
        return type(memory)(shape, self.dtype, memory, offset, tuple(strides))

    def poison(self) -> None:
        """Fill this rank's tiles with NaN, so that elements that are not computed are found."""
        self.local_in(self.window.in_reach[self.rank]).fill(np.nan)

    def close(self) -> None:
        """Free the window (collective); no view of a tile may be used afterwards."""
        self.window.close()


@contextmanager
def distributed(
    problem: Problem, topology: Topology, transport: TransportChoice = _AUTO
) -> Iterator[dict[str, DistributedMatrix]]:
    """A, B and C of a problem, by name, each in a window of its own (collective).

    They are freed at the end, also after an error on all ranks; not after an error on one rank
    alone, because freeing is collective.
    """
    with ExitStack() as opened:
        yield {
            operand.name: opened.enter_context(
                DistributedMatrix.open(
                    operand,
                    topology,
                    numpy_type(problem.type_of(operand.name)),
                    transport,
                    problem.padded,
                )
            )
            for operand in problem.operands
        }


def agree_on_reach(
    in_reach: Sequence, topology: Topology, transport: TransportChoice
) -> tuple[list, list[list[bool]]]:
    """The memory of each rank that this one loads and stores, None for the others; and
    ``reach[r][s]``, whether rank r loads and stores that of rank s (collective).

    Parameters
    ----------
    in_reach : sequence of ndarray or None
        The memory that is mapped.
    transport : TransportChoice
        ``rma`` hides the other ranks' memory, so that even those of this node are accessed by RMA;
        ``direct`` and ``throttled`` refuse ranks whose memory is not mapped.

    Raises
    ------
    UnsupportedError
        If the transport is ``direct`` (or ``throttled``) and some rank's memory is not mapped.
    """
    comm = topology.comm
    visible = [
        None if transport.kind == "rma" and rank != comm.rank else memory
        for rank, memory in enumerate(in_reach)
    ]
    reach = comm.allgather([memory is not None for memory in visible])
    if transport.kind in ("direct", "throttled") and not all(map(all, reach)):
        raise UnsupportedError(
            f"transport {transport.kind} needs every rank's memory in reach; the {comm.size} ranks "
            f"are on {topology.nodes} nodes (or MPI does not share windows). Use --transport auto."
        )
    return visible, reach


class Window:
    """Storage of ``nbytes`` bytes on this rank, exposed to all.

    Parameters
    ----------
    topology : Topology
    nbytes : int
        On this rank; may differ between ranks.
    gather : bool
        Gather all of it into huge pages at once; else :meth:`gather` does it for parts.
    transport : TransportChoice
        As of :func:`agree_on_reach`, whose errors it has.

    Attributes
    ----------
    local : ndarray, shape (nbytes,)
        Own storage.
    in_reach : list of ndarray or None
        For each rank its storage if this rank can load and store it, else None.
    reach : list of list of bool
        ``reach[r][s]``: rank r loads and stores the storage of rank s.

    Notes
    -----
    One passive-target epoch (``Lock_all``) lasts as long as the window. Loads and stores mix with
    RMA only in the unified memory model; if MPI does not guarantee it, no other rank's memory is
    used in place.
    """

    _shared: MPI.Win | None = None
    _again: Sequence[HugeMapping] = ()

    def __init__(
        self,
        topology: Topology,
        nbytes: int,
        gather: bool = True,
        transport: TransportChoice = _AUTO,
    ):
        comm, size = topology.comm, max(nbytes, _MINIMUM_BYTES)
        info = MPI.Info.Create()
        info.Set("accumulate_ordering", "none")  # sums may be applied in any order
        info.Set("same_disp_unit", "true")
        win = MPI.Win.Allocate(size, 1, info, comm)
        segments = _query(win, range(comm.size))
        if segments is None:  # Open MPI does not share allocated windows
            win.Free()
            self._shared = MPI.Win.Allocate_shared(size, 1, comm=topology.node)
            on_node = [
                r for r in range(comm.size) if topology.node_of[r] == topology.node_of[comm.rank]
            ]
            segments = dict(zip(on_node, _query(self._shared, range(topology.node.size)).values()))
            win = MPI.Win.Create(segments[comm.rank], 1, info, comm)
        info.Free()
        unified = win.Get_attr(MPI.WIN_MODEL) == MPI.WIN_UNIFIED
        sizes = comm.allgather(nbytes)
        in_reach: list[np.ndarray | None] = [None] * comm.size
        for rank, memory in segments.items():
            if len(memory) >= _MINIMUM_BYTES and (unified or rank == comm.rank):
                in_reach[rank] = np.frombuffer(memory, np.uint8)[: sizes[rank]]
        if max(sizes) >= LEAST_BYTES:
            self._again = in_huge_pages(in_reach, comm.rank if gather else None)
            comm.Barrier()  # no rank writes before all storage is ready
        self._open(comm, win, in_reach, in_reach[comm.rank])
        try:
            self.in_reach, self.reach = agree_on_reach(in_reach, topology, transport)
        except UnsupportedError:  # on every rank
            self.close()
            raise

    def _open(self, comm: MPI.Comm, win: MPI.Win, in_reach: list, local) -> None:
        """Begin the epoch."""
        self._comm, self.win, self.in_reach, self.local = comm, win, in_reach, local
        self._types: dict[tuple, MPI.Datatype] = {}
        win.Lock_all(MPI.MODE_NOCHECK)

    def private(self, array: np.ndarray) -> "Window":
        """This window with another array as this rank's part, which no other rank sees; it is never
        closed itself."""
        window, rank = copy(self), self._comm.rank
        window.in_reach = [None] * self._comm.size
        window.in_reach[rank] = array.reshape(-1).view(np.uint8)
        return window

    def rget(self, out: np.ndarray, owner: int, place: Location) -> MPI.Request:
        """Start reading from a place of a rank's part into ``out`` (rows×cols)."""
        return self.win.Rget(*self._ends(out, owner, place))

    def rput(self, value: np.ndarray, owner: int, place: Location) -> MPI.Request:
        """Start writing ``value`` (rows×cols) to a place; complete there after :meth:`flush`."""
        return self.win.Rput(*self._ends(value, owner, place))

    def raccumulate(self, value: np.ndarray, owner: int, place: Location) -> MPI.Request:
        """Start adding ``value`` (rows×cols) at a place, element by element atomic against other
        accumulates."""
        return self.win.Raccumulate(*self._ends(value, owner, place), MPI.SUM)

    def _ends(self, array: np.ndarray, owner: int, place: Location) -> tuple[list, int, tuple]:
        """A transfer's (memory, count, datatype) here, its rank and (offset, count, datatype)
        there, in the order of the elements there. An array of the same order is one message
        without packing."""
        offset, *strides = place
        if place.by_columns:
            array, strides = array.T, strides[::-1]
        there = offset, *self._elements(array.dtype, array.shape, tuple(strides))
        return self.message(array), owner, there

    def message(self, array: np.ndarray) -> list:
        """An array for MPI, (memory, count, datatype), with its elements in row-major order; it may
        have gaps."""
        dtype, shape = array.dtype, array.shape
        if not array.size or array.flags.c_contiguous:
            return [array, array.size, mpi_type(dtype)]
        start = address_of(array)
        span = Strided(start, shape, array.strides).length(dtype.itemsize)
        memory = MPI.buffer.fromaddress(start, span)
        return [memory, *self._elements(dtype, shape, array.strides)]

    def _elements(self, dtype: np.dtype, shape: Pair, strides: Pair) -> tuple[int, MPI.Datatype]:
        """Count and datatype of elements with these strides."""
        (runs, length), (across, along), item = shape, strides, dtype.itemsize
        if (along == item or length == 1) and (across == length * item or runs == 1):
            return runs * length, mpi_type(dtype)
        return 1, self._series(dtype, (Strided(0, shape, strides),))

    def read(self, dtype: np.dtype, owner: int, moves: tuple[Move, ...]) -> MPI.Request:
        """Start reading many blocks of a rank's part, each into its place here, as one message.

        Parameters
        ----------
        dtype : numpy dtype
        owner : int
        moves : tuple of (Strided, Strided)
            Addresses here, and offsets in the owner's part; axes in the same order.
        """
        here, there = (self._series(dtype, places) for places in zip(*moves))
        return self.win.Rget([MPI.BOTTOM, 1, here], owner, (0, 1, there))

    def _series(self, dtype: np.dtype, places: tuple[Strided, ...]) -> MPI.Datatype:
        """The datatype of the elements of several places, one place after the other."""
        key, types = (dtype.char, places), self._types
        kind = types.pop(key, None)
        if kind is None:
            if len(types) >= _MOST_TYPES:  # the one not used for longest; MPI keeps what is in use
                types.pop(next(iter(types))).Free()
            parts = [self._spread(dtype, place) for place in places]
            starts = [place.start for place in places]
            if starts == [0]:
                kind = parts.pop().Commit()
            else:
                kind = MPI.Datatype.Create_struct([1] * len(parts), starts, parts).Commit()
            for part in parts:
                part.Free()
        types[key] = kind
        return kind

    def _spread(self, dtype: np.dtype, place: Strided) -> MPI.Datatype:
        """The datatype of the elements of one place, from its first one on."""
        types, run, extent = [mpi_type(dtype)], 1, dtype.itemsize
        for n, step in zip(reversed(place.shape), reversed(place.strides)):
            if step == extent:  # they are contiguous
                run, extent = run * n, n * step
            else:
                types.append(types[-1].Create_hvector(n, run, step))
                run, extent = 1, 0
        if run > 1 or len(types) == 1:
            types.append(types[-1].Create_contiguous(run))
        for inner in types[1:-1]:
            inner.Free()
        return types[-1]

    def gather(self, start: int, stop: int) -> None:
        """Zero own storage [start, stop) and gather it into huge pages, if Linux provides them."""
        if self._again and stop - start >= LEAST_BYTES:
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
        for kind in self._types.values():
            kind.Free()
        self._types.clear()
        self.in_reach = []
        self.local = None
        for mapping in self._again:
            mapping.close()
        self._comm.Barrier()
        self.win.Free()
        if self._shared is not None:
            self._shared.Free()


def _query(win: MPI.Win, ranks):
    """Memory of each rank as mapped here (empty if it is on another node); None if MPI refuses."""
    handler = win.Get_errhandler()
    win.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        segments = {rank: win.Shared_query(rank)[0] for rank in ranks}
    except MPI.Exception:
        segments = None
    win.Set_errhandler(handler)
    handler.Free()
    return segments
