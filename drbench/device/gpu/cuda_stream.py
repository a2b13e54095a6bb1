"""Streams, events and memory of a GPU through CuPy."""

from collections.abc import Callable
from typing import NamedTuple

from drbench.device.base import Event, Memory, Stream
from drbench.errors import CaseFailed, OutOfMemory, UsageError

from .cuda_gemm import NO_WORKSPACE, loaded_cublas

_ERROR_NOT_READY = 600
_ALIGNMENT = 512
_HIGHEST_PRIORITY = -5  # CUDA uses the highest of the device
#: Bytes that allocations are multiples of.
PAGE = 2 << 20


class Modules(NamedTuple):
    """The modules of CuPy that drbench uses."""

    cuda: object  # cupy.cuda
    runtime: object  # cupy.cuda.runtime
    cublas: object  # cupy_backends.cuda.libs.cublas
    raw_module: type  # cupy.RawModule
    cupy: object  # the package, for users' arrays
    driver: object  # its library, for functions that CuPy lacks, or that are slow in CuPy
    find_cublas: Callable = loaded_cublas


class CudaEvent(Event):
    """A CUDA event; without ``timed`` it has no time, which is cheaper."""

    def __init__(self, modules: Modules, timed: bool):
        self._runtime, self.timed = modules.runtime, timed
        self.cupy = modules.cuda.Event(disable_timing=not timed)

    def query(self) -> bool:
        status = self._runtime.eventQuery(self.cupy.ptr)
        if status not in (0, _ERROR_NOT_READY):
            raise self._runtime.CUDARuntimeError(status)
        return status == 0

    def synchronise(self) -> None:
        self.cupy.synchronize()

    def seconds_since(self, earlier: "CudaEvent") -> float:
        if not (self.timed and earlier.timed):
            raise UsageError("the time between two events needs both made with timed=True.")
        return self._runtime.eventElapsedTime(earlier.cupy.ptr, self.cupy.ptr) / 1e3


class CudaStream(Stream):
    """A stream that does not wait for the default stream, with a cuBLAS handle of its own once it
    multiplies.

    A handle has one workspace of megabytes, so two streams that multiply at once must not share it,
    and streams that only copy have none.

    Parameters
    ----------
    modules : Modules
    name : str
    first : bool
        High priority: its kernels are first to get multiprocessors that other kernels leave.
    """

    def __init__(self, modules: Modules, name: str, first: bool = False):
        self.name = name
        self.cupy = modules.cuda.Stream(
            non_blocking=True, priority=_HIGHEST_PRIORITY if first else 0
        )
        self._cublas, self._handle = modules.cublas, None

    @property
    def handle(self) -> int:
        """The cuBLAS handle of the stream, made at its first use on the stream's device.

        Raises
        ------
        OutOfMemory
            If there is no memory for it.
        """
        if self._handle is None:
            try:
                self._handle = self._cublas.create()
            except self._cublas.CUBLASError as error:
                raise OutOfMemory(
                    f"{NO_WORKSPACE} ({error}). Use smaller matrices or more devices."
                ) from error
            self._cublas.setStream(self._handle, self.cupy.ptr)
        return self._handle

    def record(self, event: CudaEvent) -> None:
        self.cupy.record(event.cupy)

    def wait(self, event: CudaEvent) -> None:
        self.cupy.wait_event(event.cupy)

    def synchronise(self) -> None:
        self.cupy.synchronize()

    def close(self) -> None:
        """Free the handle; the stream is freed with its last reference."""
        self.cupy.synchronize()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._cublas.destroy(handle)


class CudaMemory(Memory):
    """One cudaMalloc, whose address names it for other processes (memory of a pool could not be
    shared).

    It has whole pages, because sharing it shares all of its pages; ``nbytes`` is their size.
    """

    def __init__(self, runtime, nbytes: int, living: dict):
        self._runtime, self._living = runtime, living
        self.nbytes = max(-(-nbytes // PAGE), 1) * PAGE
        self.address = runtime.malloc(self.nbytes)
        if self.address % _ALIGNMENT:
            raise CaseFailed(
                f"cudaMalloc returned {self.address:#x}, which is no multiple of {_ALIGNMENT}; "
                "please report the driver."
            )
        living[self.address] = self  # by address, until it is freed

    def free(self) -> None:
        address, self.address = self.address, 0
        if address:
            del self._living[address]
            self._runtime.free(address)
