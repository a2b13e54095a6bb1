"""The runtime of a context whose matrices are in device memory: the same allocator, plans and
exchange, but other memory and another executor; and the choice between it and that on cores."""

import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

from drbench.device.address import at_address
from drbench.device.base import Device, Memory, Resources
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import DeviceMatrix, Reached, Slab
from drbench.errors import DrbenchError, OutOfMemory, UsageError, did_you_mean
from drbench.host.executor_base import ExecutorBase
from drbench.host.matrix import Location
from drbench.host.topology import Topology
from drbench.program.problem import Operand
from drbench.program.trace import Trace
from drbench.transport import TransportChoice

from .heap import Heap
from .runtime import Runtime


def open_runtime(
    comm: MPI.Comm,
    nbytes: int,
    blas: Any,
    transport: TransportChoice,
    device: str | Device | None,
) -> Runtime:
    """The runtime of a context (collective), by the arguments of :func:`drbench.init`."""
    if device is None or device == "cpu":
        return Runtime(comm, nbytes, blas, transport)
    if not isinstance(device, Device) and device != "gpu":
        hint = did_you_mean(str(device), ("cpu", "gpu"))
        raise UsageError(f"device must be cpu, gpu or a Device, got {device!r}.{hint}")
    return DeviceRuntime(comm, nbytes, blas, transport, device)


class DeviceHeap(Heap):
    """A heap in device memory (collective to make and to close); its window is a
    :class:`~drbench.device.matrix.Slab`."""

    def __init__(self, topology: Topology, nbytes: int, transport: TransportChoice, device: Device):
        self.device = device
        super().__init__(topology, nbytes, transport)

    def _open(self, topology: Topology, transport: TransportChoice) -> Slab:
        sizes = topology.comm.allgather((self.nbytes, self.device.free_bytes()))
        for rank, (wanted, free) in enumerate(sizes):
            if wanted > free:
                raise OutOfMemory(
                    f"the heap of rank {rank} needs {wanted} bytes of device memory, {free} are "
                    "free for it. Use a smaller heap, or more devices."
                )
        slab = Slab(topology, self.device, self.nbytes, self.nbytes, transport)
        if slab.why_unreached and topology.comm.rank == 0:
            warnings.warn(
                f"transfers between GPUs of a node go through the host: {slab.why_unreached}",
                RuntimeWarning,
                stacklevel=2,
            )
        return slab

    def _lent(self, start: int, shape: tuple[int, int], dtype: np.dtype, holder: Any) -> Any:
        return self.device.lend(self.base + start, shape, dtype, holder)

    def offset_of(self, array: Any) -> int | None:
        return super().offset_of(self.device.seen(array))


class DeviceRuntime(Runtime):
    """The ranks of a communicator with a heap on their devices (collective to make and to close).

    Attributes
    ----------
    device : Device
    """

    heap: DeviceHeap
    types = ("float32", "float64")  # those that its atomics add
    on_cores = False
    _memory: Memory | None  # the arena's

    def __init__(
        self,
        comm: MPI.Comm,
        nbytes: int,
        blas: Any,
        transport: TransportChoice,
        device: str | Device,
    ):
        self._asked, self._memory = device, None
        self._lanes: dict = {}
        super().__init__(comm, nbytes, blas, transport)

    def _open_heap(self, nbytes: int, transport: TransportChoice) -> DeviceHeap:
        self.device = _open_own_gpu(self.topology) if isinstance(self._asked, str) else self._asked
        self._moves = self.device.stream("library")
        try:
            return DeviceHeap(self.topology, nbytes, transport, self.device)
        except DrbenchError:
            self._close_device()
            raise

    # -- arrays as users have them

    def taken(self, array: Any) -> Any:
        return self.device.taken(array)

    def empty(self, shape: tuple[int, int], dtype: np.dtype) -> Any:
        return self.device.empty(shape, dtype)

    def zero(self, array: Any) -> None:
        self.finish_user_work()
        self.device.zero(self.device.seen(array), self._moves)
        self._moves.synchronise()

    def copy(self, target: Any, source: Any) -> None:
        target, source = self.device.seen(target), self.device.seen(source)
        if type(source) is np.ndarray:  # rows with padding are copied between host and device
            transposed = target.strides[0] < target.strides[1]
            source = (np.asfortranarray if transposed else np.ascontiguousarray)(source)
        self.finish_user_work()
        self.device.copy(target, source, self._moves)
        self._moves.synchronise()

    # -- execution

    def finish_user_work(self) -> None:
        self.device.synchronise()

    def sync(self) -> None:
        """The host has no loads and stores of its own there."""

    def matrix(
        self, operand: Operand, dtype: np.dtype, places: list[Location], private: Any = None
    ) -> Any:
        slab, window = self.heap.window, None
        if private is not None:  # no other rank sees it
            own = self.device.seen(private).reshape(-1).view(np.uint8)
            in_reach = [own if rank == self.rank else None for rank in range(self.size)]
            window = Reached(in_reach, slab.added.reach)
        return DeviceMatrix(operand, self.topology, dtype, slab, places, window)

    def executor(
        self, trace: Trace, matrices: dict, prefetch: int, get: str, agreed: dict | None = None
    ) -> ExecutorBase:
        return DeviceExecutor(
            trace,
            matrices,
            prefetch=prefetch,
            get=get,
            resources=Resources(arena=self.arena, lanes=self._lanes),
            agreed=agreed,
        )

    def arena(self, nbytes: int) -> np.ndarray:
        if self._memory is None or nbytes > self._memory.nbytes:
            most = 0 if self._memory is None else self._memory.nbytes
            self._outgrown()
            self.forget()
            self._memory = self.device.allocate(max(nbytes, 2 * most, 1))
        return at_address(self._memory.address, nbytes, np.uint8)

    def forget(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            self.device.synchronise()
            memory.free()

    def close(self) -> None:
        self.forget()
        super().close()
        self._close_device()

    def _close_device(self) -> None:
        if isinstance(self._asked, str):
            self.device.close()


def _open_own_gpu(topology: Topology) -> Device:
    """This rank's GPU; if one rank has none, all raise the error of the first (collective)."""
    from drbench.device.gpu.cuda import cuda_device

    device: Any = None
    refusal = None
    try:
        device = cuda_device(topology.node.rank, topology.node.size)
    except DrbenchError as error:
        refusal = type(error)(f"device='gpu': {error}")
    refusals = topology.comm.allgather(refusal)
    for rank, fault in enumerate(refusals):
        if fault is not None:
            if device is not None:
                device.close()
            raise fault if rank == topology.comm.rank else type(fault)(str(fault))
    places = topology.node.allgather(device.bus_id)
    device.sharers = places.count(device.bus_id)
    return device
