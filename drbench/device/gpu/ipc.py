"""Sharing of device memory between processes of one node, by CUDA's IPC handles."""

import ctypes
import functools

from drbench.errors import UnsupportedError, UsageError

_HANDLE_BYTES = 64
_ATOMICS, _STATUS_OK = 3, 0  # NVML_P2P_CAPS_INDEX_ATOMICS, NVML_P2P_STATUS_OK


@functools.cache
def native_atomics(bus_id: str, peer_bus_id: str) -> bool:
    """Whether additions of one device into another's memory are atomic, according to NVML; False if
    NVML is not available. It also sees devices that CUDA_VISIBLE_DEVICES hides from CUDA."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return False
    except (OSError, AttributeError):
        return False
    devices = ctypes.c_void_p(), ctypes.c_void_p()
    atomic = ctypes.c_int(-1)
    try:
        for device, name in zip(devices, (bus_id, peer_bus_id)):
            if nvml.nvmlDeviceGetHandleByPciBusId_v2(name.encode(), ctypes.byref(device)):
                return False
        status = nvml.nvmlDeviceGetP2PStatus(*devices, _ATOMICS, ctypes.byref(atomic))
        return status == 0 and atomic.value == _STATUS_OK
    finally:
        nvml.nvmlShutdown()


class Peers:
    """The part of a CUDA device that shares whole allocations: each has one ``ipc_handle``, opened
    once by every other rank of the node.

    A handle identifies an allocation from its first byte on, so arrays in it are found by offsets.
    Ranks that opened it close it before its owner frees the memory, with a barrier in between.
    """

    def __init__(self, runtime, index: int, bus_id: str, atomics=native_atomics):
        self._cuda, self._index, self._bus, self._atomics = runtime, index, bus_id, atomics
        self._own: set[bytes] = set()

    def ipc_handle(self, memory) -> bytes:
        """A handle of an allocation that other processes of the node can open; it contains the
        device, too.

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
        """The address of another process's allocation in this process.

        Raises
        ------
        UsageError
            If the allocation is this rank's own, which CUDA does not open.
        UnsupportedError
            If this device has no access to that one.
        """
        if handle in self._own:
            raise UsageError("a rank does not open its own memory; it has the address.")
        owner = self.owner_of(handle)
        if not self._reaches(owner):
            raise UnsupportedError(
                f"device {self._bus} has no peer access to {owner}; use ranks on devices that "
                "NVLink or one PCIe switch connects."
            )
        try:
            return self._cuda.ipcOpenMemHandle(handle[:_HANDLE_BYTES])
        except self._cuda.CUDARuntimeError as error:
            raise UnsupportedError(
                f"device {self._bus} cannot open memory of {owner}: {error}; show all GPUs of the "
                "node to each rank (Slurm: --gpus-per-node, no --gpu-bind, no --gpus-per-task; "
                "containers: --ipc=host)."
            ) from error

    @staticmethod
    def owner_of(handle: bytes) -> str:
        """The PCI address of the device whose memory a handle is for."""
        return handle[_HANDLE_BYTES:].decode()

    def adds_into(self, handle: bytes) -> bool:
        """Whether additions into an opened allocation are atomic: always on one device and over
        NVLink, rarely over PCIe. False if unknown."""
        owner = self.owner_of(handle)
        return owner == self._bus or self._atomics(self._bus, owner)

    def close_handle(self, address: int) -> None:
        """Close an opened allocation, which must not be in use."""
        self._cuda.ipcCloseMemHandle(address)

    def _reaches(self, owner: str) -> bool:
        """Whether this device has access to another's memory; True if the other is hidden from this
        process (CUDA_VISIBLE_DEVICES): then opening it raises the error."""
        if owner == self._bus:
            return True
        try:
            other = self._cuda.deviceGetByPCIBusId(owner)
        except self._cuda.CUDARuntimeError:
            return True
        return bool(self._cuda.deviceCanAccessPeer(self._index, other))
