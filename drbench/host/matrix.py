"""The distributed matrix: the primitives of the paper's Table 1 on tiles in an MPI window."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from drbench.common import TransportChoice
from drbench.errors import UnsupportedError, UsageError
from drbench.program.problem import Operand
from drbench.program.steps import Block
from partitions import Interval

from .locks import RangeLocks
from .topology import Topology
from .window import Window

__all__ = ["DistributedMatrix", "TileFuture"]


class TileFuture:
    """A tile on its way (``get_tile_async``)."""

    def __init__(self, value: np.ndarray, request: MPI.Request | None):
        self._value, self._request = value, request

    def done(self) -> bool:
        """True once :meth:`wait` will not block."""
        if self._request is not None and self._request.Test():
            self._request = None
        return self._request is None

    def wait(self) -> np.ndarray:
        """The copy of the tile, rows×columns."""
        if self._request is not None:
            self._request.Wait()
            self._request = None
        return self._value


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
        ``rma`` hides peers' memory, so that even ranks of this node are reached by RMA; ``direct``
        and ``throttled`` refuse peers that cannot be reached in place.
    locks : RangeLocks or None
        Needed where tiles are accumulated in place.
    window : optional
        Storage made elsewhere, with the attributes of :class:`~drbench.transports.Window`.

    Raises
    ------
    UnsupportedError
        If ``direct`` (or ``throttled``) is asked for and some rank's memory cannot be reached.

    Notes
    -----
    ``replica=None`` means the caller's own replica. The accumulate protocol of each replica is
    fixed here: if all its ranks reach each other's memory every add is made in place under a lock
    on the range it touches, otherwise every add, the owner's included, is ``MPI_Accumulate``. The
    two are never mixed on one replica: that loses updates.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
        locks: RangeLocks | None = None,
        window=None,
    ):
        self.operand, self.partition, self.topology = operand, operand.partition, topology
        comm = topology.comm
        self.rank, self.locks, self.dtype = comm.rank, locks, np.dtype(dtype)
        self.replica = self.partition.replica_of(self.rank)
        self.window = window or Window(topology, self.partition.local_size(self.rank), self.dtype)
        if transport.kind == "rma":
            self.window.peers = [
                p if r == self.rank else None for r, p in enumerate(self.window.peers)
            ]
        reach = comm.allgather([peer is not None for peer in self.window.peers])
        if transport.kind in ("direct", "throttled") and not all(all(row) for row in reach):
            self.window.close()
            raise UnsupportedError(
                f"--transport {transport.kind} needs every rank's memory in reach; the "
                f"{comm.size} ranks "
                f"are on {topology.nodes} nodes (or MPI does not share windows). Use --transport "
                "auto."
            )
        size = self.partition.ranks_per_replica
        self.protocols = [
            "locked" if all(reach[r][s] for r in members for s in members) else "mpi"
            for members in (range(q * size, (q + 1) * size) for q in range(self.partition.replicas))
        ]
        self.uses_rma = not all(reach[self.rank])
        #: True if some rank reaches this one's memory by RMA only, so that this rank's progress
        #: serves it.
        self.serves_rma = not all(row[self.rank] for row in reach)

    # -- what the executor works with: blocks
    # ---------------------------------------------------------------

    def view(self, block: Block) -> np.ndarray | None:
        """The block in place (rows×columns, row-major, leading dimension = tile width), or None if
        out of reach."""
        memory = self.window.peers[block.owner]
        if memory is None:
            return None
        item = self.dtype.itemsize
        return type(memory)(
            block.shape, self.dtype, memory, block.offset * item, (block.ld * item, item)
        )

    def rget(self, out: np.ndarray, block: Block) -> MPI.Request:
        """Start an RMA read of the block into ``out``."""
        return self.window.rget(out, block.owner, block.offset, block.ld)

    def rput(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start an RMA write of ``value`` to the block."""
        return self.window.rput(value, block.owner, block.offset, block.ld)

    def raccumulate(self, value: np.ndarray, block: Block) -> MPI.Request:
        """Start an RMA add of ``value`` to the block."""
        return self.window.raccumulate(value, block.owner, block.offset, block.ld)

    def add(self, value: np.ndarray, block: Block, wait: bool = True) -> bool:
        """Add ``value`` to the block in place, under its lock; with ``wait=False``, False if the
        lock is taken."""
        if wait:
            self.locks.acquire(block.owner, block.offset, block.span)
        elif not self.locks.try_acquire(block.owner, block.offset, block.span):
            return False
        try:
            target = self.view(block)
            np.add(target, value, out=target)
        finally:
            self.locks.release(block.owner, block.offset, block.span)
        return True

    # -- Table 1
    # ----------------------------------------------------------------------------------------------

    def grid_shape(self) -> tuple[int, int]:
        """Rows and columns of the tile grid."""
        return self.partition.grid_shape

    def tile_bounds(self, idx) -> tuple[Interval, Interval]:
        """Half-open row and column bounds of a tile."""
        return self.partition.tile_bounds(idx)

    def overlapping_tiles(self, region, replica: int | None = None) -> list[tuple[int, int]]:
        """Indices of the tiles that overlap a region ((row0, row1), (col0, col1)); the same in
        every replica."""
        self._check_replica(replica)
        return self.partition.overlapping_tiles(*region)

    def tile(self, idx, replica: int | None = None) -> np.ndarray:
        """A tile in place. Writable by its owner; for others only in reach of shared memory.

        Raises
        ------
        UnsupportedError
            If the tile's owner is out of reach.
        """
        block = self._tile_block(idx, replica)
        view = self.view(block)
        if view is None:
            raise UnsupportedError(
                f"tile {tuple(idx)} of {self.operand.name} is on rank {block.owner}, out of "
                "reach of "
                f"rank {self.rank}. Use get_tile."
            )
        return view

    def get_tile_async(self, idx, replica: int | None = None) -> TileFuture:
        """Start copying a tile; a future of the copy."""
        block = self._tile_block(idx, replica)
        view = self.view(block)
        if view is not None:
            return TileFuture(view.copy(), None)
        out = np.empty(block.shape, self.dtype)
        return TileFuture(out, self.rget(out, block))

    def get_tile(self, idx, replica: int | None = None) -> np.ndarray:
        """A copy of a tile."""
        return self.get_tile_async(idx, replica).wait()

    def put_tile(self, idx, view, replica: int | None = None) -> None:
        """Overwrite a tile; visible to everyone after :meth:`fence`. No one else may touch it until
        then."""
        block = self._tile_block(idx, replica)
        value = self._value(view, block)
        target = self.view(block)
        if target is not None:
            target[...] = value
        else:
            self.rput(value, block).Wait()

    def accumulate_tile(self, idx, view, replica: int | None = None) -> None:
        """Add to a tile, atomically per element; complete everywhere after :meth:`fence`.

        Raises
        ------
        UnsupportedError
            If the tile is in another replica whose ranks share a node this rank is not on: that
            replica is added to in place, which this rank cannot do.
        """
        block = self._tile_block(idx, replica)
        value = self._value(view, block)
        if self.protocols[block.replica] == "mpi":
            self.raccumulate(value, block).Wait()
            return
        if self.window.peers[block.owner] is None:
            raise UnsupportedError(
                f"replica {block.replica} of {self.operand.name} is accumulated in place on its "
                "own node, "
                f"which rank {self.rank} is not on. Accumulate into the own replica."
            )
        self.add(value, block)

    def fence(self) -> None:
        """Everyone's puts and accumulates are complete and visible to everyone (collective)."""
        self.window.flush()
        self.window.sync()
        self.topology.comm.Barrier()
        self.window.sync()

    def reduce_replicas(self, origin: int = 0) -> None:
        """Origin's tiles += the tiles of all other replicas (collective)."""
        from drbench.program.replicas import reduce_replicas

        self._run_between_replicas(reduce_replicas, origin)

    def broadcast_replica(self, origin: int = 0) -> None:
        """All other replicas' tiles = origin's (collective)."""
        from drbench.program.replicas import broadcast_replica

        self._run_between_replicas(broadcast_replica, origin)

    # -- the rest
    # ---------------------------------------------------------------------------------------------

    def own_blocks(self) -> list[tuple[Block, np.ndarray]]:
        """The tiles this rank owns, with their views."""
        return [(block, self.view(block)) for block in self.operand.own_tiles(self.rank)]

    def close(self) -> None:
        """Free the window (collective); no view of a tile may be used afterwards."""
        self.window.close()

    def _run_between_replicas(self, program, origin: int) -> None:
        from drbench.program.trace import trace

        from .executor import Executor

        self._check_replica(origin)
        self.fence()
        steps = trace(
            program(self.operand, self.rank, origin),
            None,
            self.rank,
            fresh=False,
            written=self.operand.name,
        )
        with Executor(steps, {self.operand.name: self}) as executor:
            executor.run()

    def _tile_block(self, idx, replica: int | None) -> Block:
        self._check_replica(replica)
        return self.operand.tile_block(tuple(idx), self.replica if replica is None else replica)

    def _check_replica(self, replica: int | None) -> None:
        if replica is not None and not 0 <= replica < self.partition.replicas:
            raise UsageError(
                f"{self.operand.name} has replicas 0 to {self.partition.replicas - 1}, got "
                f"{replica}."
            )

    def _value(self, view, block: Block) -> np.ndarray:
        value = np.ascontiguousarray(view, dtype=self.dtype)
        if value.shape != block.shape:
            raise UsageError(
                f"tile {block.tile} of {self.operand.name} is {block.shape[0]}x{block.shape[1]}, "
                f"got {'x'.join(map(str, value.shape))}."
            )
        return value
