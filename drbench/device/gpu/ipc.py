"""Memory of one process on the devices of others of the same node, by CUDA's handles."""

import ctypes

from drbench.errors import UnsupportedError, UsageError

_HANDLE_BYTES = 64
_NATIVE_ATOMIC_SUPPORTED = 3  # CU_DEVICE_P2P_ATTRIBUTE_...


def native_atomics(device: int, peer: int) -> bool:
    """Whether additions of one device into another's memory are atomic. CuPy does not show it, so
    the driver is asked; True if it does not answer."""
    try:
        query = ctypes.CDLL("libcuda.so.1").cuDeviceGetP2PAttribute
    except (OSError, AttributeError):
        return True
    found = ctypes.c_int(1)
    return query(ctypes.byref(found), _NATIVE_ATOMIC_SUPPORTED, device, peer) != 0 or bool(
        found.value
    )


class Peers:
    """The part of a CUDA device that shares whole allocations: one ``ipc_handle`` each, opened once
    by every other rank of the node.

    A handle names an allocation from its first byte on, so what lies in it is found by offsets.
    Those who opened it close it before its owner frees the memory, which takes a barrier between
    the two.
    """

    def __init__(self, runtime, index: int, bus_id: str, atomics=native_atomics):
        self._cuda, self._index, self._bus, self._atomics = runtime, index, bus_id, atomics
        self._own: set[bytes] = set()

    def ipc_handle(self, memory) -> bytes:
        """A name for an allocation that other processes of the node can open; it tells them the
        device too.

        Raises
        ------
        UnsupportedError
            If the driver shares no memory (as in some containers and virtual machines).
        """
        try:
            handle = self._cuda.ipcGetMemHandle(memory.address) + self._bus.encode()
        except self._cuda.CUDARuntimeError as error:
            raise UnsupportedError(
                f"this driver does not share memory between processes: {error}; use one rank a "
                "node."
            ) from error
        self._own.add(handle)
        return handle

    def open_handle(self, handle: bytes) -> int:
        """The address at which this process reaches another one's allocation.

        Raises
        ------
        UsageError
            If it is an own allocation, which CUDA does not open.
        UnsupportedError
            If this device has no access to that one.
        """
        if handle in self._own:
            raise UsageError("a rank does not open its own memory; it has the address.")
        owner = handle[_HANDLE_BYTES:].decode()
        if not self._can(self._cuda.deviceCanAccessPeer, owner):
            raise UnsupportedError(
                f"device {self._bus} has no peer access to {owner}; use ranks on devices that "
                "NVLink or one PCIe switch connects."
            )
        try:
            return self._cuda.ipcOpenMemHandle(handle[:_HANDLE_BYTES])
        except self._cuda.CUDARuntimeError as error:
            raise UnsupportedError(
                f"device {self._bus} cannot open memory of {owner}: {error}; ranks need one node "
                "and one IPC namespace."
            ) from error

    def adds_into(self, handle: bytes) -> bool:
        """Whether additions into an opened allocation are atomic: always on one device and over
        NVLink, rarely over PCIe."""
        return self._can(self._atomics, handle[_HANDLE_BYTES:].decode())

    def close_handle(self, address: int) -> None:
        """Give up an opened allocation; nothing may be using it."""
        self._cuda.ipcCloseMemHandle(address)

    def _can(self, question, owner: str) -> bool:
        """``question(this device, owner)``; True if both are one device, or if the owner is hidden
        from this process (CUDA_VISIBLE_DEVICES): then nobody can say."""
        if owner == self._bus:
            return True
        try:
            other = self._cuda.deviceGetByPCIBusId(owner)
        except self._cuda.CUDARuntimeError:
            return True
        return bool(question(self._index, other))
