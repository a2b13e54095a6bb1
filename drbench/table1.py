"""Table 1 of the paper as an API: what a program may do with the tiles of a distributed matrix, on
cores and on devices.

The algorithms of this project yield steps instead, which an executor overlaps; this is for trying
things out, and for programs that schedule themselves.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from drbench.device.address import DeviceArray, at_address
from drbench.device.base import Event, Stream, drive
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import DeviceMatrix
from drbench.errors import UnsupportedError, UsageError
from drbench.host.executor import Executor
from drbench.host.matrix import DistributedMatrix
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Block
from drbench.program.trace import trace
from partitions import Interval


def table1(matrix: DistributedMatrix) -> Table1:
    """The primitives of a matrix, on cores or on a device.

    Examples
    --------
    One rank with tiles of 2x2:

    >>> from drbench.host.topology import Topology
    >>> from drbench.program.problem import Operand
    >>> from partitions import partition
    >>> operand = Operand("C", partition("tiles:2x2", (4, 6), 1))
    >>> with Topology(MPI.COMM_SELF) as topology:
    ...     matrix = DistributedMatrix(operand, topology, "float32")
    ...     c = table1(matrix)
    ...     c.put_tile((0, 1), np.ones((2, 2)))
    ...     c.accumulate_tile((0, 1), np.full((2, 2), 4.0))
    ...     c.fence()
    ...     print(c.grid_shape(), c.overlapping_tiles(((0, 2), (1, 3))))
    ...     print(c.get_tile((0, 1)).tolist())
    ...     matrix.close()
    (2, 3) [(0, 0), (0, 1)]
    [[5.0, 5.0], [5.0, 5.0]]

    The same on a device, here one of worker threads:

    >>> from drbench.common import TransportChoice
    >>> from drbench.device.matrix import device_windows
    >>> from drbench.device.threads import HostDevice
    >>> with Topology(MPI.COMM_SELF) as topology:
    ...     device = HostDevice()
    ...     window = device_windows(topology, device, {"C": (24, np.dtype("f4"))})["C"]
    ...     auto = TransportChoice("auto")
    ...     matrix = DeviceMatrix(operand, topology, "float32", auto, window, device, False)
    ...     c = table1(matrix)
    ...     c.put_tile((1, 2), [[1, 2], [3, 4]])
    ...     c.fence()
    ...     future = c.get_tile_async((1, 2))
    ...     print(type(future.wait()).__name__, c.get_tile((1, 2)).tolist())
    ...     matrix.close()
    ...     device.close()
    DeviceArray [[1.0, 2.0], [3.0, 4.0]]
    """
    return (DeviceTable1 if isinstance(matrix, DeviceMatrix) else Table1)(matrix)


class Table1:
    """The primitives on cores; ``idx`` is a tile (i, j) of the tile grid, ``replica=None`` the
    caller's own.

    Parameters
    ----------
    matrix : DistributedMatrix
        Must outlive what is under way here.

    Raises
    ------
    UsageError
        If there is no such replica, or a value has not the tile's shape.
    UnsupportedError
        If the tile is out of this rank's reach, with what to use instead.
    """

    def __init__(self, matrix: DistributedMatrix):
        self.matrix, self.operand, self.partition = matrix, matrix.operand, matrix.partition
        self.topology, self.rank, self.replica = matrix.topology, matrix.rank, matrix.replica
        self.dtype = matrix.dtype

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

    def own_blocks(self) -> list[tuple[Block, np.ndarray]]:
        """The tiles this rank owns, in place."""
        return self.matrix.own_blocks()

    def tile(self, idx, replica: int | None = None) -> np.ndarray:
        """A tile in place, rows×columns. Writable by its owner; for others only in reach of shared
        memory."""
        return self._reached(self._block(idx, replica), "Use get_tile.")

    def get_tile_async(self, idx, replica: int | None = None) -> TileFuture:
        """Start copying a tile; a future of the copy."""
        block = self._block(idx, replica)
        view = self.matrix.view(block)
        if view is not None:
            return TileFuture(view.copy(), MPI.REQUEST_NULL)
        out = np.empty(block.shape, self.dtype)
        return TileFuture(out, self.matrix.window.rget(out, block))

    def get_tile(self, idx, replica: int | None = None) -> np.ndarray:
        """A copy of a tile in host memory."""
        return self.get_tile_async(idx, replica).wait()

    def put_tile(self, idx, value, replica: int | None = None) -> None:
        """Overwrite a tile; visible to everyone after :meth:`fence`. No one else may touch it until
        then."""
        block = self._block(idx, replica)
        value, target = self._value(value, block), self.matrix.view(block)
        if target is not None:
            target[...] = value
        else:
            self.matrix.window.rput(value, block).Wait()

    def accumulate_tile(self, idx, value, replica: int | None = None) -> None:
        """Add to a tile, atomically per element; complete everywhere after :meth:`fence`."""
        block, matrix = self._block(idx, replica), self.matrix
        value = self._value(value, block)
        if matrix.protocols[block.replica] == "mpi":
            matrix.window.raccumulate(value, block).Wait()
            return
        target = self._reached(
            block,
            f"Its replica {block.replica} is accumulated in place on its own node: accumulate "
            "into the own replica.",
        )
        with matrix.guard(block):
            np.add(target, value, out=target)

    def fence(self) -> None:
        """Everyone's puts and accumulates are complete and visible to everyone (collective)."""
        window = self.matrix.window
        window.flush()
        window.sync()
        self.topology.comm.Barrier()
        window.sync()

    def reduce_replicas(self, origin: int = 0, how: str = "pull") -> None:
        """Origin's tiles += the tiles of all other replicas (collective), read by the ranks of the
        origin, or with ``how="push"`` added by those of the others."""
        self._run(reduce_replicas, origin, how)

    def broadcast_replica(self, origin: int = 0) -> None:
        """All other replicas' tiles = origin's (collective)."""
        self._run(broadcast_replica, origin)

    def _executor(self, steps):
        """The executor of a program on this matrix."""
        return Executor(steps, {self.operand.name: self.matrix})

    def _run(self, program, origin: int, *how: str) -> None:
        copies = len(self.partition.copies())  # of a pending sum those of each term
        if not 0 <= origin < copies:
            raise UsageError(f"{self.operand.name} has copies 0 to {copies - 1}, got {origin}.")
        self.fence()
        name = self.operand.name
        steps = program(self.operand, self.rank, origin, *how)
        with self._executor(trace(steps, None, self.rank, fresh=False, written=name)) as executor:
            executor.run()

    def _block(self, idx, replica: int | None) -> Block:
        self._check_replica(replica)
        return self.operand.tile_block(tuple(idx), self.replica if replica is None else replica)

    def _check_replica(self, replica: int | None) -> None:
        if replica is not None and not 0 <= replica < self.partition.replicas:
            raise UsageError(
                f"{self.operand.name} has replicas 0 to {self.partition.replicas - 1}, got "
                f"{replica}."
            )

    def _value(self, value, block: Block) -> np.ndarray:
        value = np.ascontiguousarray(value, dtype=self.dtype)
        if value.shape != block.shape:
            raise UsageError(
                f"tile {block.tile} of {self.operand.name} is {block.shape[0]}x{block.shape[1]}, "
                f"got {'x'.join(map(str, value.shape))}."
            )
        return value

    def _reached(self, block: Block, else_: str) -> np.ndarray:
        view = self.matrix.view(block)
        if view is None:
            raise UnsupportedError(
                f"tile {block.tile} of {self.operand.name} is on rank {block.owner}, out of reach "
                f"of rank {self.rank}. {else_}"
            )
        return view


class TileFuture:
    """A tile on its way (``get_tile_async``)."""

    def __init__(self, value: np.ndarray, request: MPI.Request):
        self._value, self._request = value, request

    def done(self) -> bool:
        """True once :meth:`wait` will not block."""
        return self._request.Test()

    def wait(self) -> np.ndarray:
        """The copy of the tile, rows×columns."""
        self._request.Wait()
        return self._value


class DeviceTileFuture:
    """A tile on its way into this rank's device memory."""

    def __init__(self, value: DeviceArray, memory, event: Event):
        self._value, self._memory, self._event = value, memory, event

    def __del__(self):
        self._event.synchronise()  # the copy may be under way
        self._memory.free()

    def done(self) -> bool:
        """True once the copy is complete."""
        return self._event.query()

    def on(self, stream: Stream) -> DeviceArray:
        """The copy, for work given to ``stream`` from now on: the stream waits, the host does
        not."""
        stream.wait(self._event)
        return self._value

    def wait(self) -> DeviceArray:
        """The copy, complete; it lives as long as this future."""
        self._event.synchronise()
        return self._value


class DeviceTable1(Table1):
    """On a device. Values that are put or accumulated come from the host; between nodes a tile can
    be got as of the last :meth:`fence`, not be put, and of C be accumulated into."""

    def __init__(self, matrix: DeviceMatrix):
        super().__init__(matrix)
        self.device = matrix.device
        self._stream = self.device.stream(f"table {self.operand.name}")

    def get_tile_async(self, idx, replica: int | None = None) -> DeviceTileFuture:
        block, matrix = self._block(idx, replica), self.matrix
        out, memory = self._allocate(block.shape)
        view = matrix.view(block)
        if view is None:
            view = out if matrix.direct else np.empty(block.shape, self.dtype)
            matrix.outgoing.rget(view, block).Wait()
        if view is not out:
            self.device.copy(out, view, self._stream)
        event = self.device.event()
        self._stream.record(event)
        if not isinstance(view, DeviceArray):
            event.synchronise()  # the landing place is this function's
        return DeviceTileFuture(out, memory, event)

    def get_tile(self, idx, replica: int | None = None) -> np.ndarray:
        future = self.get_tile_async(idx, replica)
        value = future.wait()
        return self.device.rows_of(value, np.arange(value.shape[0]))

    def put_tile(self, idx, value, replica: int | None = None) -> None:
        block = self._block(idx, replica)
        target = self._reached(block, "Let a rank of its node put it.")
        self.device.copy(target, self._value(value, block), self._stream)
        self._stream.synchronise()

    def accumulate_tile(self, idx, value, replica: int | None = None) -> None:
        block, incoming = self._block(idx, replica), self.matrix.incoming
        value = self._value(value, block)
        if self.matrix.view(block) is None and incoming is not None:
            incoming.raccumulate(value, block).Wait()
            return
        target = self._reached(block, "Between nodes only C is accumulated into.")
        copied, memory = self._allocate(value.shape)
        self.device.copy(copied, value, self._stream)
        self.device.accumulate(target, copied, self._stream, self.matrix.guard(block))
        self._stream.synchronise()
        memory.free()

    def fence(self) -> None:
        matrix = self.matrix
        drive(matrix.fencing(self._stream, publish=True))
        if matrix.incoming is None and matrix.outgoing is not None:
            drive(matrix.publishing(self._stream))
            self.topology.comm.Barrier()

    def _allocate(self, shape: tuple[int, int]):
        size = shape[0] * shape[1]
        memory = self.device.allocate(max(size * self.dtype.itemsize, 1))
        return at_address(memory.address, size, self.dtype).reshape(shape), memory

    def _executor(self, steps):
        return DeviceExecutor(steps, {self.operand.name: self.matrix}, self.device)
