"""A distributed matrix on devices: tiles in device memory, which the ranks of a node see as device
addresses and those of other nodes reach through a mirror in host memory."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property

from mpi4py import MPI

from drbench.common import TransportChoice, numpy_type
from drbench.errors import DrbenchError, UnsupportedError
from drbench.host.matrix import DistributedMatrix, Window, distributed
from drbench.host.topology import Topology
from drbench.program.problem import Operand, Problem

from .address import DeviceArray, at_address
from .base import Device, Memory, Stream, completed, until

_ALIGNMENT = 512


class DeviceMatrix(DistributedMatrix):
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
        window,
        device: Device,
        direct: bool,
    ):
        super().__init__(operand, topology, dtype, transport, window)
        self.device, self.direct = device, direct
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
        return self.window.in_reach[self.rank]

    @cached_property
    def _spoils(self) -> Stream:
        """One for all repeats: a stream lasts as long as its device."""
        return self.device.stream("poison")

    def spoil(self) -> None:
        self.device.poison(self.storage, self._spoils)
        self._spoils.synchronise()

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
    comm = topology.comm
    if not hasattr(device, "ipc_handle"):  # host memory: MPI shares it
        windows = {}
        for name, (size, dtype) in sizes.items():
            under = Window(topology, size, dtype)
            in_reach = [
                each if each is None else at_address(each.ctypes.data, each.size, each.dtype)
                for each in under.in_reach
            ]
            windows[name] = _DeviceWindow(in_reach, under.close)
        return windows
    offsets, at = {}, 0
    for name, (size, dtype) in sizes.items():
        offsets[name] = at
        at += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    memory = device.allocate(max(at, _ALIGNMENT))
    reached = opened(topology, device, memory)
    of_ranks = comm.allgather({name: (offsets[name], size) for name, (size, _) in sizes.items()})
    left = list(sizes)

    def close():  # of the last matrix: the memory of all; importers let go before the exporter
        left.pop()
        if not left:
            for rank, (address, _) in enumerate(reached):
                if address is not None and rank != comm.rank:
                    device.close_handle(address)
            comm.Barrier()
            memory.free()

    def in_reach(name, dtype):  # C of a rank where additions are not atomic is out of reach
        return [
            at_address(base + offset, size, dtype)
            if base is not None and (adds or name != "C")
            else None
            for (base, adds), (offset, size) in zip(reached, (each[name] for each in of_ranks))
        ]

    return {name: _DeviceWindow(in_reach(name, dtype), close) for name, (_, dtype) in sizes.items()}


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
