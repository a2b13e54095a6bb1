"""A distributed matrix on devices: tiles in device memory, which ranks of the same node access by
device addresses, and those of other nodes through a mirror in host memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.arrays import numpy_type
from drbench.errors import OutOfMemory, UnsupportedError
from drbench.host.matrix import (
    ALIGNMENT,
    DistributedMatrix,
    Window,
    agree_on_reach,
    local_places,
)
from drbench.host.topology import ClosedTogether, Topology
from drbench.program.problem import Problem
from drbench.transport import TransportChoice

from .address import DeviceArray, at_address
from .base import Device, Memory, Stream, Waiting, completed, until

_NOT_ATOMIC = (
    "NVML does not report that additions into its memory are atomic; partial sums, if there are "
    "any, are sent through the host."
)


class DeviceMatrix(DistributedMatrix):
    """One matrix whose local arrays are in slabs of device memory (not collective).

    Parameters
    ----------
    operand, topology, dtype, places :
        As of :class:`DistributedMatrix`.
    slab : Slab
    window : optional
        The mapped part of ``slab``, if that is not all.

    Attributes
    ----------
    device : Device
    direct : bool
        MPI itself reads and writes device memory (GPU-aware); else data that other nodes read is
        staged through a mirror in pinned host memory.
    outgoing : Mirror or Exposed or None
        Memory that remote ranks read; None if every rank maps the memory of every other.
    why_unreached : str or None
        Why ranks of a node do not reach each other's devices (:func:`opened`).
    incoming : Mirror or None
        C only: memory to which remote ranks add. MPI adds in host memory, also if it is GPU-aware,
        and :meth:`fencing` adds the sum to the tiles.

    Notes
    -----
    Local ranks add by atomics into the tile, remote ranks by MPI into the mirror. The two never
    access the same memory, so both may be used on one replica.
    """

    def __init__(self, operand, topology, dtype, slab: "Slab", places, window=None):
        written = operand.name == "C"
        window = window or (slab.added if written else slab)
        super().__init__(operand, topology, dtype, window, places)
        self.device, self.direct, self.why_unreached = slab.device, slab.direct, slab.why_unreached
        self.outgoing, self.incoming = slab.outgoing, slab.incoming if written else None

    @cached_property
    def storage(self) -> DeviceArray:
        """This rank's local array."""
        return self.local_in(self.window.in_reach[self.rank])

    @cached_property
    def _shown(self):
        """The memory of the local array that remote ranks read."""
        return self.local_in(self.outgoing.seen)

    @cached_property
    def _came(self):
        """The partial sums that remote ranks have added."""
        return self.local_in(self.incoming.seen)

    @cached_property
    def poisoning(self) -> Stream:
        """The stream of all poison: a stream lives as long as its device."""
        return self.device.stream("poison")

    def poison(self) -> None:
        self.device.poison(self.storage, self.poisoning)
        self.poisoning.synchronise()

    # -- steps that the host must take part in: generators that yield while they wait
    # ---------------------------

    def publishing(self, stream: Stream) -> Waiting:
        """Make the current tiles visible to remote ranks; a barrier must follow."""
        if self.outgoing is not None and not self.direct and self.storage.size:
            self.device.copy(self._shown, self.storage, stream)
            yield from until(self.device, stream)
        if self.outgoing is not None:
            self.outgoing.sync()

    def fencing(self, stream: Stream, publish: bool) -> Waiting:
        """Complete the adds of all ranks and make them visible to all; wait for streams that add
        before (collective)."""
        comm = self.topology.comm
        if self.incoming is not None:
            self.incoming.flush()
        yield from completed(comm.Ibarrier())
        if self.incoming is None:
            return
        self.incoming.sync()
        if self.storage.size:
            self.device.add(self.storage, self._came, stream)
            yield from until(self.device, stream)
            self.local_in(self.incoming.local).fill(0)
        self.incoming.sync()
        if publish:
            yield from self.publishing(stream)
        yield from completed(comm.Ibarrier())


def opened(
    topology: Topology, device: Device, memory: Memory
) -> tuple[list[tuple[int | None, bool]], str | None]:
    """An allocation on each rank's device, opened by the other ranks of the node (collective).

    They are opened by CUDA's IPC handles if the devices have peer access; else the ranks count as
    remote. All ranks then copy rows of other devices in the same way.

    Parameters
    ----------
    device : Device
        With ``ipc_handle``, ``open_handle``, ``adds_into`` and ``close_handle``
        (:class:`drbench.device.gpu.ipc.Peers`).
    memory : Memory
        This rank's.

    Returns
    -------
    list of (int or None, bool)
        For each rank the address of its allocation on this one, and whether this one's additions
        there are atomic.
    str or None
        For the first two ranks of a node that do not reach each other's device, or whose additions
        are not atomic, the reason; the same on every rank.
    """
    comm, node = topology.comm, topology.node_of[topology.comm.rank]
    handle: bytes | UnsupportedError | None = None
    if comm.size > 1:
        try:
            handle = device.ipc_handle(memory)
        except UnsupportedError as error:
            handle = error
    handles, whys = comm.allgather((node, handle)), []
    reach: list[tuple[int | None, bool]] = [(None, False)] * comm.size
    reach[comm.rank] = memory.address, True
    for x in range(1, comm.size):  # the next rank first, so that each opens another one's first
        rank = (comm.rank + x) % comm.size
        other, theirs = handles[rank]
        if other != node:
            continue
        try:
            if isinstance(theirs, UnsupportedError):
                raise theirs
            reach[rank] = device.open_handle(theirs), device.adds_into(theirs)
            refusal = "" if reach[rank][1] else _NOT_ATOMIC
        except UnsupportedError as error:
            refusal = str(error)
        if refusal:
            whys.append(f"rank {comm.rank} to rank {rank}: {refusal}")
    reasons, widths = zip(*comm.allgather((whys, device.narrow_rows)))
    device.narrow_rows = min((width for width in widths if width is not None), default=None)
    return reach, next((reason for reason in sum(reasons, []) if reason), None)


@contextmanager
def device_matrices(
    problem: Problem,
    topology: Topology,
    device: Device,
    transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
    direct: bool = False,
) -> Iterator[dict[str, DeviceMatrix]]:
    """A, B and C of a problem in one slab of device memory, by name; freed as those of
    :func:`~drbench.host.matrix.distributed` are (collective).

    Parameters
    ----------
    transport : TransportChoice
        As of :class:`~drbench.host.matrix.Window`; ``throttled`` is not for devices.
    direct : bool
        As of :class:`Slab`.
    """
    rank, places, ends, added = topology.comm.rank, {}, [0] * topology.comm.size, 0
    for operand in problem.operands[::-1]:  # C first: remote ranks add only to C
        starts = [-(-end // ALIGNMENT) * ALIGNMENT for end in ends]
        item = problem.itemsizes[operand.name]
        places[operand.name], ends = local_places(operand, item, starts=starts)
        added = added or ends[rank]
    with Slab(topology, device, ends[rank], added, transport, direct) as slab:
        yield {
            operand.name: DeviceMatrix(
                operand,
                topology,
                numpy_type(problem.type_of(operand.name)),
                slab,
                places[operand.name],
            )
            for operand in problem.operands
        }


class Reached(NamedTuple):
    """The memory of other ranks that a rank loads and stores, as of a
    :class:`~drbench.host.matrix.Window`."""

    in_reach: list
    reach: list


class Slab(ClosedTogether):
    """One allocation on each rank's device, mapped by the other ranks of its node (collective to
    make and to close).

    Parameters
    ----------
    topology : Topology
    device : Device
    nbytes : int
        On this rank's device; may differ between ranks.
    added : int, optional
        Number of bytes, from the first on, to which remote ranks add; they read all bytes. None:
        they do neither.
    transport : TransportChoice
        As of :func:`~drbench.host.matrix.agree_on_reach`, whose errors it has.
    direct : bool
        MPI itself reads and writes device memory (GPU-aware).

    Attributes
    ----------
    in_reach, reach : list
        As of :class:`~drbench.host.matrix.Window`.
    added : Reached
        The same for memory to which this rank's device may add: additions there are atomic.
    outgoing, incoming : Window or None
        Memory that remote ranks read, and to which they add; None without remote ranks.
    why_unreached : str or None
        Of :func:`opened`.

    Raises
    ------
    OutOfMemory
        On every rank, if one device has too little memory.
    """

    outgoing = incoming = why_unreached = None

    def __init__(
        self,
        topology: Topology,
        device: Device,
        nbytes: int,
        added: int | None = None,
        transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
        direct: bool = False,
    ):
        self._topology, self.device, self.direct = topology, device, direct
        self._memory = self._under = refusal = None
        reached: list[tuple[int | None, bool]]
        shared = hasattr(device, "ipc_handle")
        if shared:
            try:
                self._memory = device.allocate(max(nbytes, ALIGNMENT))
            except OutOfMemory as error:
                refusal = error
        sizes, refusals = zip(*topology.comm.allgather((nbytes, refusal)))
        if any(refusals):
            if self._memory is not None:
                self._memory.free()
            raise next(filter(None, refusals))
        if shared:
            reached, self.why_unreached = opened(topology, device, self._memory)
        else:  # host memory: MPI shares it
            self._under = Window(topology, nbytes)
            reached = [
                (memory if memory is None else memory.ctypes.data, True)
                for memory in self._under.in_reach
            ]
        self._opened = [base for base, _ in reached]
        everything = [
            base if base is None else at_address(base, size, np.uint8)
            for base, size in zip(self._opened, sizes)
        ]
        atomic = [memory if adds else None for memory, (_, adds) in zip(everything, reached)]
        try:
            self.in_reach, self.reach = agree_on_reach(everything, topology, transport)
            self.added = Reached(*agree_on_reach(atomic, topology, transport))
        except UnsupportedError:  # on every rank
            self.close()
            raise
        if added is not None and not all(map(all, self.added.reach)):
            own = self.in_reach[topology.comm.rank]
            self.outgoing = Exposed(topology, own) if direct else Mirror(topology, device, nbytes)
            self.incoming = Mirror(topology, device, added)

    def gather(self, start: int, stop: int) -> None:
        """Do nothing: device memory needs no huge pages."""

    def close(self) -> None:
        """Free the memory; importers close it before the exporter."""
        for mirror in (self.outgoing, self.incoming):
            if mirror is not None:
                mirror.close()
        comm = self._topology.comm
        if self._under is not None:
            self._under.close()
            return
        for rank, address in enumerate(self._opened):
            if address is not None and rank != comm.rank:
                self.device.close_handle(address)
        comm.Barrier()
        self._memory.free()


class Mirror(Window):
    """Pinned host memory that mirrors a rank's slab, or its first bytes; other nodes access it by
    RMA.

    Attributes
    ----------
    seen : DeviceArray, shape (nbytes,)
        This rank's part, with its address on the device.
    """

    def __init__(self, topology: Topology, device: Device, nbytes: int):
        super().__init__(topology, nbytes)
        self._device = device
        self.local[:] = 0
        self.seen = device.pin(self.local)
        topology.comm.Barrier()

    def close(self) -> None:
        self._device.unpin(self.local)
        self.seen = None
        super().close()


class Exposed(Window):
    """Device memory that a GPU-aware MPI reads and writes itself.

    Parameters
    ----------
    memory : DeviceArray
        This rank's.
    """

    def __init__(self, topology: Topology, memory: DeviceArray):
        win = MPI.Win.Create(memory if memory.size else None, 1, comm=topology.comm)
        self._open(topology.comm, win, [], memory)
