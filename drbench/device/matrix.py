"""The distributed matrix on devices: Table 1 of the paper on tiles in device memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from drbench.common import TransportChoice
from drbench.errors import UnsupportedError
from drbench.host.locks import RangeLocks
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology
from drbench.program.problem import Operand
from drbench.program.steps import Block

from .address import DeviceArray, at_address
from .base import Device, Event, Stream
from .waiting import completed, until
from .window import Exposed, Mirror

__all__ = ["DeviceMatrix", "DeviceTileFuture"]


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


class DeviceMatrix(DistributedMatrix):
    """One matrix in device memory (collective to make and to close).

    Parameters
    ----------
    operand, topology, dtype, transport, locks :
        As of :class:`DistributedMatrix`. ``rma`` hides peers' memory; ``throttled`` is not for
        devices.
    window :
        Of :func:`~drbench.device.window.device_windows`.
    device : Device
    direct : bool
        MPI itself reads and writes device memory (GPU-aware); else what other nodes read is staged
        through a mirror in pinned host memory.

    Attributes
    ----------
    outgoing : Mirror or Exposed or None
        What ranks out of reach read; None if every rank reaches every other.
    incoming : Mirror or None
        C only: what ranks out of reach add to. MPI adds in host memory, whatever it can do on
        devices, and :meth:`fencing` adds the sum to the tiles.

    Notes
    -----
    Ranks in reach add by atomics into the tile, the others by MPI into the mirror. The two never
    touch the same memory, so both may be used on one replica.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        transport: TransportChoice,
        locks: RangeLocks,
        window,
        device: Device,
        direct: bool,
    ):
        super().__init__(operand, topology, dtype, transport, locks, window)
        self.device, self.direct = device, direct
        self._stream = device.stream(f"table {operand.name}")
        apart = topology.comm.allreduce(self.uses_rma, MPI.LOR)
        size = self.partition.local_size(self.rank)
        self.outgoing = self.incoming = None
        if apart:
            self.outgoing = (
                Exposed(topology, self.storage)
                if direct
                else Mirror(topology, device, size, self.dtype)
            )
            if operand.name == "C":
                self.incoming = Mirror(topology, device, size, self.dtype)

    @property
    def storage(self) -> DeviceArray:
        """This rank's tiles, flat."""
        return self.window.peers[self.rank]

    @contextmanager
    def guard(self, block: Block) -> Iterator[None]:
        """The lock on a block's range, for devices without atomics."""
        self.locks.acquire(block.owner, block.offset, block.span)
        try:
            yield
        finally:
            self.locks.release(block.owner, block.offset, block.span)

    # -- steps that the host must take part in: generators that yield while they wait
    # ---------------------------

    def publishing(self, stream: Stream) -> Iterator[None]:
        """Show the tiles as they are to the ranks out of reach; a barrier must follow."""
        if self.outgoing is not None and not self.direct and self.storage.size:
            self.device.copy(self.outgoing.seen, self.storage, stream)
            yield from until(self.device, stream)
        if self.outgoing is not None:
            self.outgoing.sync()

    def fencing(self, stream: Stream, publish: bool) -> Iterator[None]:
        """Everyone's adds are complete and visible to everyone; streams that added must have been
        waited for (collective)."""
        comm = self.topology.comm
        if self.incoming is not None:
            self.incoming.flush()
        yield from completed(comm.Ibarrier())
        if self.incoming is None:
            return
        self.incoming.sync()
        if self.storage.size:
            self.device.add(self.storage.reshape(1, -1), self.incoming.seen.reshape(1, -1), stream)
            yield from until(self.device, stream)
            self.incoming.local[:] = 0
        self.incoming.sync()
        if publish:
            yield from self.publishing(stream)
        yield from completed(comm.Ibarrier())

    # -- Table 1
    # ---------------------------------------------------------------------------------------------

    def get_tile_async(self, idx, replica: int | None = None) -> DeviceTileFuture:
        """Start copying a tile into device memory of one's own; from a rank out of reach it is the
        tile as of the last :meth:`fence`."""
        block = self._tile_block(idx, replica)
        memory = self.device.allocate(max(block.size * self.dtype.itemsize, 1))
        out, view = (
            at_address(memory.address, block.size, self.dtype).reshape(block.shape),
            self.view(block),
        )
        if view is None:
            landed = np.empty(block.shape, self.dtype) if not self.direct else out
            self.outgoing.rget(landed, block.owner, block.offset, block.ld).Wait()
            view = landed
        if view is not out:
            self.device.copy(out, view, self._stream)
        event = self.device.event()
        self._stream.record(event)
        if not isinstance(view, DeviceArray):
            event.synchronise()  # the landing place is this function's
        return DeviceTileFuture(out, memory, event)

    def get_tile(self, idx, replica: int | None = None) -> np.ndarray:
        """A copy of a tile in host memory."""
        future = self.get_tile_async(idx, replica)
        value = future.wait()
        return self.device.rows_of(value, np.arange(value.shape[0]))

    def put_tile(self, idx, view, replica: int | None = None) -> None:
        """Overwrite a tile with a host array; no one else may touch it until the next
        :meth:`fence`.

        Raises
        ------
        UnsupportedError
            If the tile's owner is out of reach.
        """
        block, target = self._reached(idx, replica)
        self.device.copy(target, self._value(view, block), self._stream)
        self._stream.synchronise()

    def accumulate_tile(self, idx, view, replica: int | None = None) -> None:
        """Add a host array to a tile, atomically per element; complete everywhere after
        :meth:`fence`."""
        block = self._tile_block(idx, replica)
        value = self._value(view, block)
        target = self.view(block)
        if target is None:
            if self.incoming is None:
                raise UnsupportedError(
                    f"tile {block.tile} of {self.operand.name} is on rank {block.owner}, out of "
                    f"reach of rank {self.rank}; between "
                    "nodes only C is accumulated into."
                )
            self.incoming.raccumulate(value, block.owner, block.offset, block.ld).Wait()
            return
        memory = self.device.allocate(max(value.nbytes, 1))
        copied = at_address(memory.address, value.size, self.dtype).reshape(value.shape)
        self.device.copy(copied, value, self._stream)
        self.device.accumulate(target, copied, self._stream, self.guard(block))
        self._stream.synchronise()
        memory.free()

    def fence(self) -> None:
        """Everyone's puts and accumulates are complete and visible to everyone (collective)."""
        for _ in self.fencing(self._stream, publish=True):
            pass
        if self.incoming is None and self.outgoing is not None:
            for _ in self.publishing(self._stream):
                pass
            self.topology.comm.Barrier()

    def close(self) -> None:
        """Free the storage (collective)."""
        self._stream.synchronise()
        for mirror in (self.outgoing, self.incoming):
            if mirror is not None:
                mirror.close()
        super().close()

    def _reached(self, idx, replica: int | None) -> tuple[Block, DeviceArray]:
        block = self._tile_block(idx, replica)
        view = self.view(block)
        if view is None:
            raise UnsupportedError(
                f"tile {block.tile} of {self.operand.name} is on rank {block.owner}, out of "
                f"reach of rank {self.rank}. "
                "Let a rank of its node put it."
            )
        return block, view

    def _run_between_replicas(self, program, origin: int) -> None:
        from drbench.program.trace import trace

        from .executor import DeviceExecutor

        self._check_replica(origin)
        self.fence()
        steps = trace(
            program(self.operand, self.rank, origin),
            None,
            self.rank,
            fresh=False,
            written=self.operand.name,
        )
        with DeviceExecutor(steps, {self.operand.name: self}, self.device) as executor:
            executor.run()
