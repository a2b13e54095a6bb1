"""Storage of a matrix on devices: every rank's tiles, seen by the ranks of its node as device
addresses."""

from __future__ import annotations

from mpi4py import MPI

from drbench.errors import UnsupportedError
from drbench.host.mpi_types import mpi_type
from drbench.host.topology import Topology
from drbench.host.window import Window

from .address import DeviceArray, at_address
from .base import Device

__all__ = ["DeviceArena", "Exposed", "Mirror", "device_windows"]

_ALIGNMENT = 512


class _DeviceWindow:
    """One matrix's storage on every rank's device.

    Attributes
    ----------
    peers : list of DeviceArray or None
        For each rank its storage if this rank's device can reach it, else None.
    """

    def __init__(self, peers: list, close):
        self.peers, self._close = peers, close

    def flush(self) -> None:
        """Nothing is under way: kernels and copies belong to streams."""

    def sync(self) -> None:
        """Streams order what they do."""

    def close(self) -> None:
        """Let go of the storage (collective); idempotent."""
        self.peers = []
        close, self._close = self._close, None
        if close is not None:
            close()


class DeviceArena:
    """One allocation on each rank's device, opened by the other ranks of the node (collective to
    make and to close).

    Peers are reached through CUDA's IPC handles where the devices can reach each other; where they
    cannot, they count as out of reach.

    Parameters
    ----------
    topology : Topology
    device : Device
        With ``ipc_handle``, ``open_handle``, ``adds_into`` and ``close_handle``
        (:class:`drbench.device.gpu.ipc.Peers`).
    nbytes : int
        On this rank.

    Attributes
    ----------
    addresses : list of int or None
        For each rank its allocation as this one sees it.
    adds : list of bool
        For each rank whether this one's additions there are atomic.
    """

    def __init__(self, topology: Topology, device: Device, nbytes: int):
        comm = topology.comm
        self._comm, self._device = comm, device
        self.memory = device.allocate(max(nbytes, _ALIGNMENT))
        found = comm.allgather((topology.node_of[comm.rank], self._handle()))
        self.addresses: list[int | None] = [None] * comm.size
        self.adds = [True] * comm.size
        self._opened: list[int] = []
        for rank, (node, handle) in enumerate(found):
            if rank == comm.rank:
                self.addresses[rank] = self.memory.address
            elif node == topology.node_of[comm.rank] and handle is not None:
                try:
                    self.addresses[rank] = device.open_handle(handle)
                except UnsupportedError:
                    continue  # no peer access: out of reach
                self._opened.append(self.addresses[rank])
                self.adds[rank] = device.adds_into(handle)

    def _handle(self) -> bytes | None:
        """This rank's, or None if the driver shares no memory or nobody needs it."""
        if self._comm.size == 1:
            return None
        try:
            return self._device.ipc_handle(self.memory)
        except UnsupportedError:
            return None

    def close(self) -> None:
        """Importers let go before the exporter frees."""
        for address in self._opened:
            self._device.close_handle(address)
        self._comm.Barrier()
        self.memory.free()


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
            peers = [
                None if peer is None else at_address(peer.ctypes.data, peer.size, peer.dtype)
                for peer in under.peers
            ]
            windows[name] = _DeviceWindow(peers, under.close)
        return windows
    offsets, at = {}, 0
    for name, (size, dtype) in sizes.items():
        offsets[name] = at
        at += -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    arena = DeviceArena(topology, device, at)
    of_ranks = comm.allgather({name: (offsets[name], size) for name, (size, _) in sizes.items()})
    left = set(sizes)

    def closer(name):
        def close():
            left.discard(name)
            if not left:
                arena.close()

        return close

    def peers(name, dtype):  # C of a rank where additions are not atomic is out of reach
        reached = [
            base if adds or name != "C" else None for base, adds in zip(arena.addresses, arena.adds)
        ]
        return [
            None if base is None else at_address(base + offset, size, dtype)
            for base, (offset, size) in zip(reached, (each[name] for each in of_ranks))
        ]

    return {
        name: _DeviceWindow(peers(name, dtype), closer(name)) for name, (_, dtype) in sizes.items()
    }


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
        self.dtype, self._comm = storage.dtype, topology.comm
        self._mpi_type, self._derived, self._shared, self._again = (
            mpi_type(storage.dtype),
            {},
            None,
            [],
        )
        self.allocation = "MPI_Win_create on device memory"
        self.peers, self.local = [], storage
        self.win = MPI.Win.Create(
            storage if storage.size else None, storage.dtype.itemsize, comm=topology.comm
        )
        self.win.Lock_all(MPI.MODE_NOCHECK)
