"""A distributed matrix on devices: tiles in device memory, which the ranks of a node see as device
addresses and those of other nodes reach through a mirror in host memory."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property

import numpy as np
from mpi4py import MPI

from drbench.common import TransportChoice, numpy_type
from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError
from drbench.host.matrix import DistributedMatrix, Window, distributed
from drbench.host.topology import Topology
from drbench.program.problem import Operand, Problem

from .address import DeviceArray, at_address
from .base import Device, Memory, Stream, completed, until

_ALIGNMENT = 512


class OnDevice:
    """A distributed matrix as far as it lies on a device.

    Attributes
    ----------
    device : Device
    direct : bool
        MPI itself reads and writes device memory (GPU-aware); else what other nodes read is staged
        through a mirror in pinned host memory.
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

    topology: Topology
    device: Device
    direct: bool
    outgoing = None
    incoming = None

    @property
    def storage(self) -> DeviceArray:
        """This rank's tiles: flat, or rows × columns."""
        raise NotImplementedError

    def at_home(self, memory):
        """The part of a mirror's memory that stands for this rank's tiles, shaped as
        :attr:`storage`."""
        raise NotImplementedError

    # -- steps that the host must take part in: generators that yield while they wait
    # ---------------------------

    def publishing(self, stream: Stream) -> Iterator[None]:
        """Show the tiles as they are to the ranks out of reach; a barrier must follow."""
        if self.outgoing is not None and not self.direct and self.storage.size:
            self.device.copy(self.at_home(self.outgoing.seen), self.storage, stream)
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
            added = self.at_home(self.incoming.seen)
            self.device.add(_by_rows(self.storage), _by_rows(added), stream)
            yield from until(self.device, stream)
            self.at_home(self.incoming.local).fill(0)
        self.incoming.sync()
        if publish:
            yield from self.publishing(stream)
        yield from completed(comm.Ibarrier())


def _by_rows(array):
    """A flat array as one row."""
    return array if array.ndim == 2 else array.reshape(1, -1)


class DeviceMatrix(OnDevice, DistributedMatrix):
    """One matrix in device memory (collective to make and to close).

    Parameters
    ----------
    operand, topology, dtype, transport :
        As of :class:`DistributedMatrix`; ``throttled`` is not for devices.
    window :
        Of :func:`device_windows`.
    device : Device
    direct : bool
        MPI itself reads and writes device memory (GPU-aware); else what other nodes read is staged
        through a mirror in pinned host memory.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        transport: TransportChoice,
        window,
        device: Device,
        direct: bool,
    ):
        super().__init__(operand, topology, dtype, transport, window)
        self.device, self.direct = device, direct
        apart = topology.comm.allreduce(self.uses_rma, MPI.LOR)
        size = self.partition.local_size(self.rank)
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
        return self.window.in_reach[self.rank]

    def at_home(self, memory):
        return memory

    @cached_property
    def _spoils(self) -> Stream:
        """One for all repeats: a stream lasts as long as its device."""
        return self.device.stream("poison")

    def spoil(self) -> None:
        self.device.poison(self.storage, self._spoils)
        self._spoils.synchronise()

    def close(self) -> None:
        """Free the storage (collective)."""
        for mirror in (self.outgoing, self.incoming):
            if mirror is not None:
                mirror.close()
        super().close()


class _DeviceWindow:
    """One matrix's storage on every rank's device.

    Attributes
    ----------
    in_reach : list of DeviceArray or None
        For each rank its storage if this rank's device can reach it, else None.
    """

    def __init__(self, in_reach: list, close):
        self.in_reach, self._close = in_reach, close

    def close(self) -> None:
        """Let go of the storage (collective); idempotent."""
        self.in_reach = []
        close, self._close = self._close, None
        if close is not None:
            close()


def opened(topology: Topology, device: Device, memory: Memory) -> list[tuple[int | None, bool]]:
    """An allocation on each rank's device, opened by the other ranks of the node (collective).

    They are reached through CUDA's IPC handles where the devices can reach each other; where they
    cannot, they count as out of reach.

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
        For each rank its allocation as this one sees it, and whether this one's additions there are
        atomic.
    """
    comm, node, handle = topology.comm, topology.node_of[topology.comm.rank], None
    if comm.size > 1:
        with suppress(UnsupportedError):  # the driver shares no memory
            handle = device.ipc_handle(memory)
    found: list[tuple[int | None, bool]] = []
    for rank, (other, theirs) in enumerate(comm.allgather((node, handle))):
        found.append((memory.address if rank == comm.rank else None, True))
        if rank != comm.rank and other == node and theirs is not None:
            with suppress(UnsupportedError):  # no peer access: out of reach
                found[rank] = device.open_handle(theirs), device.adds_into(theirs)
    return found


@contextmanager
def device_matrices(
    problem: Problem,
    topology: Topology,
    device: Device,
    transport: TransportChoice = TransportChoice("auto"),  # noqa: B008  (frozen)
    direct: bool = False,
) -> Iterator[dict[str, DeviceMatrix]]:
    """A, B and C of a problem in device memory, by name; see
    :func:`~drbench.host.matrix.distributed`."""
    windows = device_windows(
        topology,
        device,
        {
            operand.name: (
                operand.partition.local_size(topology.comm.rank),
                numpy_type(problem.type_of(operand.name)),
            )
            for operand in problem.operands
        },
    )

    def make(operand, *about):
        return DeviceMatrix(operand, *about, windows[operand.name], device, direct)

    try:
        with distributed(problem, topology, transport, make) as matrices:
            yield matrices
    except DrbenchError:
        for window in windows.values():  # those of matrices that were not made
            window.close()
        raise


def device_windows(topology: Topology, device: Device, sizes: dict) -> dict:
    """Storage of several matrices (collective).

    Parameters
    ----------
    sizes : dict of str to (int, dtype)
        Elements on this rank, and their type.
    """
    places, at = {}, 0
    for name, (size, dtype) in sizes.items():
        places[name] = at, at + size * dtype.itemsize
        at += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    slab, left = Slab(topology, device, at), list(sizes)
    of_ranks = topology.comm.allgather(places)

    def close():  # of the last matrix: the memory of all
        left.pop()
        if not left:
            slab.close()

    return {
        name: _DeviceWindow(
            [
                whole if whole is None else whole[slice(*found[name])].view(dtype)
                for whole, found in zip(slab.in_reach(added=name == "C"), of_ranks)
            ],
            close,
        )
        for name, (_, dtype) in sizes.items()
    }


class Slab:
    """One allocation on each rank's device, reached by the other ranks of its node (collective to
    make and to close).

    Parameters
    ----------
    topology : Topology
    device : Device
    nbytes : int
        On this rank's device; may differ between ranks.

    Raises
    ------
    OutOfMemory
        On every rank, if one device has not so much.
    """

    def __init__(self, topology: Topology, device: Device, nbytes: int):
        self._topology, self._device = topology, device
        self._memory = self._under = refusal = None
        self._reached: list[tuple[int | None, bool]]
        shared = hasattr(device, "ipc_handle")
        if shared:
            try:
                self._memory = device.allocate(max(nbytes, _ALIGNMENT))
            except OutOfMemory as error:
                refusal = error
        self._sizes, refusals = zip(*topology.comm.allgather((nbytes, refusal)))
        if any(refusals):
            if self._memory is not None:
                self._memory.free()
            raise next(filter(None, refusals))
        if shared:
            self._reached = opened(topology, device, self._memory)
        else:  # host memory: MPI shares it
            self._under = Window(topology, nbytes, np.uint8)
            self._reached = [
                (each if each is None else each.ctypes.data, True) for each in self._under.in_reach
            ]

    def in_reach(self, added: bool = False) -> list[DeviceArray | None]:
        """For each rank its memory, in bytes; None where it is out of reach or, if it is to be
        ``added`` to, where additions are not atomic."""
        return [
            None if base is None or (added and not adds) else at_address(base, size, np.uint8)
            for (base, adds), size in zip(self._reached, self._sizes)
        ]

    def close(self) -> None:
        """Give the memory back; importers let go before the exporter."""
        comm = self._topology.comm
        if self._under is not None:
            self._under.close()
            return
        for rank, (address, _) in enumerate(self._reached):
            if address is not None and rank != comm.rank:
                self._device.close_handle(address)
        comm.Barrier()
        self._memory.free()


class Mirror(Window):
    """Pinned host memory as large as a rank's storage on its device, which other nodes reach by RMA
    in its place.

    Attributes
    ----------
    seen : DeviceArray, shape (size,)
        This rank's part, as its device sees it.
    """

    def __init__(self, topology: Topology, device: Device, size: int, dtype):
        super().__init__(topology, size, dtype)
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
    storage : DeviceArray
        This rank's.
    """

    def __init__(self, topology: Topology, storage: DeviceArray):
        win = MPI.Win.Create(
            storage if storage.size else None, storage.dtype.itemsize, comm=topology.comm
        )
        self._open(topology.comm, storage.dtype, win, [], storage)
