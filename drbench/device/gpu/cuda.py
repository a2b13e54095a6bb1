"""GPUs through CuPy: CUDA's runtime, cuBLAS and the kernels of ``kernels.cu`` behind
:class:`~drbench.device.base.Device`.

CuPy is imported by :func:`cuda_device` only, so that everything else works without it.
"""

from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from importlib import resources
from itertools import pairwise

import numpy as np

from drbench.device.address import DeviceArray, at_address
from drbench.device.base import Device, DeviceInfo, reached
from drbench.errors import (
    CaseFailed,
    DrbenchError,
    MissingError,
    OutOfMemory,
    UnsupportedError,
    UsageError,
)

from .arrays import CupyArrays, by_rows
from .copies import as_row_copies, merged_axes
from .cuda_gemm import CublasGemm
from .cuda_stream import PAGE, CudaEvent, CudaMemory, CudaStream, Modules
from .ipc import Peers
from .kernels import ACCUMULATE_BLOCKS, NAMES, KernelLauncher, Kernels, Launch
from .prepared import CallCache
from .stream_values import StreamValues, load_driver

#: Starts work on a stream.
_Start = Callable[[CudaStream], None]
_MEMCPY_DEFAULT = 4  # CUDA finds the sides by their addresses
_ERROR_OUT_OF_MEMORY, _ERROR_INSUFFICIENT_DRIVER = 2, 35
#: Bytes for cuBLAS's workspaces (32 MiB for each handle on an H100), NCCL's buffers and kernels
#: that are loaded late.
_RESERVE = 1 << 29
#: A stream waits so long for a flag before the host writes it, and resumes within this limit.
_FLAG_LATE_S, _FLAGS_WITHIN_S = 1e-3, 5.0
#: Bytes from which on drbench's kernel copies rows inside a device faster than cudaMemcpy2D, its
#: longer launch included.
_LONG_COPY = 8 << 20
#: Bytes of rows for which both are timed in another device's memory, as so many copies behind each
#: other, and the largest ratio of the kernel's time to that of cudaMemcpy2D for which the kernel is
#: used: it takes multiprocessors.
_ROW_WIDTHS, _COPIES, _CLEARLY = (512, 2048, 8192), 10, 0.7
_PORTABLE_AND_MAPPED = 1 | 2
_INSTALL = (
    "Install CuPy, from a checkout: pip install '.[cuda12]' or '.[cuda13]', by the driver's CUDA; "
    "or choose another --backend."
)

_HIDDEN = "Check nvidia-smi and CUDA_VISIBLE_DEVICES."
_OLD_DRIVER = (
    "The driver is too old for this CuPy: update it, or install CuPy for the CUDA version that "
    "nvidia-smi prints: pip install '.[cuda12]'."
)


class CudaDevice(CupyArrays, Device, Peers):
    """One rank's GPU.

    Parameters
    ----------
    modules : Modules
    index : int
        Number of the device among those visible to this process.
    sharers : int
        Ranks that use this device.
    tf32 : bool
        Multiply float32 in TF32.
    accumulate_blocks : int
        As for :class:`~drbench.device.gpu.kernels.Kernels`.

    Attributes
    ----------
    accumulate_blocks : int
    bus_id : str
        The device's PCI address, equal on two ranks of a node exactly if they share the device.
    sharers : int
        Set it after a comparison of ``bus_id`` if ranks see different devices
        (CUDA_VISIBLE_DEVICES).
    narrow_rows : int or None
        The widest rows in memory of another device, in bytes, that a kernel copies; None until such
        memory is opened.
    """

    #: CUDA loads a kernel at its first launch, for which it may wait for the whole context.
    loads_late = True
    captures = True

    def __init__(
        self,
        modules: Modules,
        index: int,
        sharers: int = 1,
        tf32: bool = False,
        accumulate_blocks: int = ACCUMULATE_BLOCKS,
    ):
        self._modules, self._runtime, self._index, self.sharers = (
            modules,
            modules.runtime,
            index,
            sharers,
        )
        self._streams: list[CudaStream] = []
        self.narrow_rows: int | None = None
        self._living: dict[int, CudaMemory] = {}
        self.peak_bytes = 0
        self.use()
        self.bus_id = self._runtime.deviceGetPCIBusId(index)
        Peers.__init__(self, self._runtime, index, self.bus_id)
        properties = self._runtime.getDeviceProperties(index)
        self._prepared = CallCache()
        module = modules.raw_module(
            code=resources.files(__package__).joinpath("kernels.cu").read_text("utf-8"),
            options=("-std=c++17",),
        )
        # compiled now, not in the timed region
        functions = {name: module.get_function(name).kernel.ptr for name in NAMES}
        self._launcher = KernelLauncher(modules.driver, functions)
        self._kernels = Kernels(properties["major"] >= 9, accumulate_blocks)
        self.accumulate_blocks = accumulate_blocks
        # 0 is all to cuBLAS
        self._processors_with_sums = max(properties["multiProcessorCount"] - accumulate_blocks, 0)
        self._checks = CudaStream(modules, "checks")
        version = modules.cublas.getVersion(self._checks.handle)
        cublas = modules.find_cublas(version // 10000)
        if cublas is None:
            raise MissingError(
                f"--backend cupy needs libcublas.so.{version // 10000}, and CuPy has loaded cuBLAS "
                "by another name. Use CuPy and cuBLAS of pip install '.[cuda12]' or '.[cuda13]', "
                "from a checkout."
            )
        self._gemm = CublasGemm(cublas, tf32)
        self._values = StreamValues(modules.driver, index)
        architecture = f"sm_{properties['major']}{properties['minor']}"
        self.info = DeviceInfo(
            properties["name"].decode(),
            f"cuBLAS {version // 10000}.{version // 100 % 100}.{version % 100}",
            f"{architecture} tf32" if tf32 else architecture,
            index,
            self._runtime.getDeviceCount(),
        )
        self._why_no_flags = self._values.why_not or self._try_flags()

    def use(self) -> None:
        """Make this the device of the calling thread (a thread starts on device 0)."""
        self._runtime.setDevice(self._index)

    # -- memory

    def allocate(self, nbytes: int) -> CudaMemory:
        self.use()
        with self._out_of_memory(f"{nbytes} bytes on {self.info.name}"):
            memory = CudaMemory(self._runtime, nbytes, self._living)
        self.peak_bytes = max(self.peak_bytes, sum(block.nbytes for block in self._living.values()))
        return memory

    def allocate_host(self, nbytes: int) -> np.ndarray:
        with self._out_of_memory(f"{nbytes} bytes of pinned host memory"):
            memory = self._modules.cuda.PinnedMemory(max(nbytes, 1))
        return np.frombuffer(self._modules.cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)

    def pin(self, memory: np.ndarray) -> DeviceArray:
        address = memory.ctypes.data
        if memory.nbytes:
            self.use()
            try:
                self._runtime.hostRegister(address, memory.nbytes, _PORTABLE_AND_MAPPED)
            except self._runtime.CUDARuntimeError as error:
                raise UnsupportedError(
                    f"CUDA cannot pin {memory.nbytes} bytes of MPI's window ({error}), which "
                    "ranks without access to each other's devices need; use ranks with access, "
                    "or an MPI whose windows are in /dev/shm."
                ) from error
            address = self._runtime.pointerGetAttributes(address).devicePointer
        return at_address(address, memory.size, memory.dtype)

    def unpin(self, memory: np.ndarray) -> None:
        if memory.nbytes:
            self.synchronise()
            self._runtime.hostUnregister(memory.ctypes.data)

    def free_bytes(self) -> int:
        self.use()
        free, total = self._runtime.memGetInfo()
        return max(free // self.sharers - min(_RESERVE, total // 16), 0)

    @contextmanager
    def _out_of_memory(self, what: str):
        try:
            yield
        except self._runtime.CUDARuntimeError as error:
            if error.status != _ERROR_OUT_OF_MEMORY:
                raise
            free, total = self._runtime.memGetInfo()
            raise OutOfMemory(
                f"cannot allocate {what}: {free} of its {total} bytes are free; use more devices "
                "or smaller matrices."
            ) from error

    # -- streams

    def stream(self, name: str, multiplies: bool = False) -> CudaStream:
        self.use()
        # transfers are short, and other ranks wait for them
        stream = CudaStream(self._modules, name, first=not multiplies)
        if multiplies:
            _ = stream.handle  # made here, before the timed region
        self._streams.append(stream)
        return stream

    def reserve(self, stream: CudaStream, sums: bool) -> None:
        self._gemm.leave(stream.handle, self._processors_with_sums if sums else 0)

    def event(self, timed: bool = False) -> CudaEvent:
        self.use()
        return CudaEvent(self._modules, timed)

    def capture(self, streams: list[CudaStream], launch: Callable[[], None]) -> Callable[[], None]:
        """As a CUDA graph, in which all streams begin and end with the first one."""
        self.use()
        (first, *others), begun = streams, self.event()
        ended = [self.event() for _ in others]
        first.cupy.begin_capture()
        try:
            first.record(begun)
            for other in others:
                other.wait(begun)
            launch()
            for other, end in zip(others, ended):
                other.record(end)
                first.wait(end)
        finally:
            graph = first.cupy.end_capture()
        graph.upload(first.cupy)

        def launch_all() -> None:
            self.use()
            graph.launch(first.cupy)

        return launch_all

    def synchronise(self) -> None:
        self.use()
        self._runtime.deviceSynchronize()

    def close(self) -> None:
        for stream in [*self._streams, self._checks]:
            stream.close()
        self._streams = []
        self._prepared.clear()
        for memory in list(
            self._living.values()
        ):  # of a refused case; a sweep continues in this process
            memory.free()

    # -- operations on a stream

    def gemm(self, a, b, c, beta: float, stream: CudaStream, alpha: float = 1.0) -> None:
        if not a.shape[1]:
            if beta != 1.0:
                self.scale(c, beta, stream)
        elif c.size:
            call = self._prepared(self._gemm.call, a, b, c)
            self.use()
            self._gemm(stream.handle, call, beta, alpha)

    def copy(self, target, source, stream: CudaStream) -> None:
        self._prepared(self._copying, target, source)(stream)

    def _copying(self, target, source) -> _Start:
        """A function that copies on a stream."""
        if target.shape != source.shape or target.dtype != source.dtype:
            raise UsageError(
                f"a copy needs one shape and dtype, got {target.shape} {target.dtype} = "
                f"{source.shape} {source.dtype}."
            )
        if not target.size:
            return self._ready(None)
        to, of = target.ctypes.data, source.ctypes.data
        axes = merged_axes(target.shape, target.strides, source.strides)
        rows, on_device = (
            as_row_copies(axes, target.itemsize),
            isinstance(target, DeviceArray) and isinstance(source, DeviceArray),
        )
        if rows is None:
            if not on_device:
                raise UnsupportedError(
                    "copies between host and device need contiguous rows; pack on the device first."
                )
            return self._ready(self._kernels.copy(axes, target.itemsize, to, of))
        count, width, to_stride, of_stride = rows
        if count == 1:
            copy = partial(self._runtime.memcpyAsync, to, of, width, _MEMCPY_DEFAULT)
            return lambda stream: copy(stream.cupy.ptr)
        own = self._holds(to) and self._holds(of)
        if on_device and (target.nbytes >= _LONG_COPY if own else width <= (self.narrow_rows or 0)):
            launch = self._kernels.copy_rows(to, of, *rows, concurrent=not own)
            if launch is not None:
                return self._ready(launch)
        return self._copying_by_engine(to, of, *rows)

    def _copying_by_engine(
        self, to: int, of: int, count: int, width: int, to_stride: int, of_stride: int
    ) -> _Start:
        copy = partial(
            self._runtime.memcpy2DAsync, to, to_stride, of, of_stride, width, count, _MEMCPY_DEFAULT
        )
        return lambda stream: copy(stream.cupy.ptr)

    def _holds(self, address: int) -> bool:
        """Whether an address is in memory that this device has allocated."""
        return any(0 <= address - block.address < block.nbytes for block in self._living.values())

    def open_handle(self, handle: bytes) -> int:
        address = super().open_handle(handle)
        if self.narrow_rows is None and self.owner_of(handle) != self.bus_id:
            self.narrow_rows = self._compared_rows(address)
        return address

    def _compared_rows(self, address: int) -> int:
        """The widest rows in another device's memory, in bytes, that the kernel copies clearly
        faster than cudaMemcpy2D; 0 if it copies none faster."""
        try:
            memory, widest = self.allocate(PAGE), 0
        except OutOfMemory:
            return 0
        begin, end = (self.event(timed=True) for _ in range(2))
        for width in _ROW_WIDTHS:
            rows = memory.address, address, PAGE // (2 * width), width, 2 * width, 2 * width
            kernel = self._ready(self._kernels.copy_rows(*rows, concurrent=True))
            seconds = []
            for copy in (kernel, self._copying_by_engine(*rows)):
                copy(self._checks)  # the first use may load the kernel
                self._checks.record(begin)
                for _ in range(_COPIES):
                    copy(self._checks)
                self._checks.record(end)
                end.synchronise()
                seconds.append(end.seconds_since(begin))
            if seconds[0] < _CLEARLY * seconds[1]:
                widest = width
        memory.free()
        return widest

    def accumulate(self, target, value, stream: CudaStream, guard=None) -> None:
        self._prepared(self._accumulating, target, value)(stream)

    def _accumulating(self, target, value) -> _Start:
        return self._ready(self._kernels.accumulate(*by_rows(target, value)))

    def add(self, target, value, stream: CudaStream, concurrent: bool = False) -> None:
        make = self._adding_concurrently if concurrent else self._adding
        self._prepared(make, target, value)(stream)

    def _adding(self, target, value, concurrent: bool = False) -> _Start:
        return self._ready(self._kernels.add(*by_rows(target, value), concurrent))

    def _adding_concurrently(self, target, value) -> _Start:
        return self._adding(target, value, True)

    def scale(self, target, factor: float, stream: CudaStream) -> None:
        if factor == 0.0:
            self.zero(target, stream)
        else:
            self._launch(self._kernels.scale(*by_rows(target), factor), stream)

    def zero(self, target, stream: CudaStream) -> None:
        if not target.size:
            return
        if target.flags.forc:
            self._runtime.memsetAsync(target.ctypes.data, 0, target.nbytes, stream.cupy.ptr)
        else:
            self._launch(self._kernels.zero(*by_rows(target)), stream)

    def poison(self, target, stream: CudaStream) -> None:
        if target.size:  # all bits of every element set is a NaN, whatever its width
            self._runtime.memsetAsync(target.ctypes.data, 0xFF, target.nbytes, stream.cupy.ptr)

    # -- flags

    def why_no_waits(self) -> str | None:
        if self.sharers > 1:
            return (
                f"{self.sharers} ranks share a GPU, whose streams may block each other while they "
                "wait"
            )
        return self._why_no_flags

    def _try_flags(self) -> str | None:
        """Why streams do not wait for flags, or write none, which is possible on a part of a GPU;
        None if they do both.

        Raises
        ------
        MissingError
            If the stream is never released: then no work of this device would end.
        """
        stream, done = CudaStream(self._modules, "flags"), self.event()
        flag, written = self.allocate_host(8).view(np.uint32).reshape(2, 1)  # the host writes one
        flag[0] = written[0] = 0
        try:
            self.wait_flag(flag, 1, stream)
            self.write_flag(written, 1, stream)
        except CaseFailed as error:
            flag[0] = 1
            return str(error)
        stream.record(done)
        early, flag[0] = reached(done, _FLAG_LATE_S), 1
        if not reached(done, _FLAGS_WITHIN_S):
            raise MissingError(
                f"a stream that waits for a flag was blocked for {_FLAGS_WITHIN_S:.0f} s after the "
                "flag was written. Use another driver, or --backend numpy."
            )
        return "streams do not wait for flags" if early or written[0] != 1 else None

    def write_flag(self, flag, number: int, stream: CudaStream) -> None:
        self.use()
        self._values.write(flag.ctypes.data, number, stream.cupy.ptr)

    def wait_flag(self, flag, number: int, stream: CudaStream) -> None:
        self.use()
        self._values.wait(flag.ctypes.data, number, stream.cupy.ptr)

    def _ready(self, launch: Launch | None) -> _Start:
        """A function that launches on a stream; for None it does nothing."""
        if launch is None:
            return lambda stream: None
        start = self._launcher.ready(launch)

        def on(stream: CudaStream) -> None:
            self.use()
            start(stream.cupy.ptr)

        return on

    def _launch(self, launch: Launch | None, stream: CudaStream) -> None:
        self._ready(launch)(stream)

    # -- outside the timed region: earlier work of the device is complete before, and work of these
    # functions after

    @contextmanager
    def _alone(self):
        self.synchronise()
        try:
            yield self._checks
        finally:
            self._checks.synchronise()

    def fill(self, target, fill, matrix: str, row0: int, col0: int) -> None:
        with self._alone() as stream:
            self._launch(self._kernels.fill(target, fill, matrix, row0, col0), stream)

    def times(self, tile, x: np.ndarray) -> np.ndarray:
        return self._multiply_by_vectors(tile.shape[0], x, partial(self._kernels.times, tile))

    def hashed_times(
        self, fill, matrix: str, row0: int, row1: int, columns: int, x: np.ndarray
    ) -> np.ndarray:
        return self._multiply_by_vectors(
            row1 - row0,
            x,
            partial(self._kernels.hashed_times, fill, matrix, (row0, row1), columns),
        )

    def _multiply_by_vectors(self, rows: int, x: np.ndarray, make) -> np.ndarray:
        """Allocate x and the result on the device, and run the launch that ``make(address of x,
        vectors, address of the result)`` returns."""
        x, vectors = np.asarray(x, float), x.shape[1]
        both = np.vstack([x, np.empty((rows, vectors))])
        self._lent(both, lambda at: make(at, vectors, at + x.nbytes))
        return both[len(x) :]

    def all_finite(self, tile, whole: bool = False) -> bool:
        flag = np.zeros(1, np.uint32)
        self._lent(flag, partial(self._kernels.not_finite, tile, whole))
        return not flag[0]

    def _lent(self, array: np.ndarray, make) -> None:
        """Copy an array of the host to the device, launch ``make(address)``, and copy it back."""
        memory = self.allocate(array.nbytes)
        here = array.ctypes.data
        try:
            # copies in the same stream: a cudaMemcpy could return before it has arrived
            with self._alone() as stream:
                moved = array.nbytes, _MEMCPY_DEFAULT, stream.cupy.ptr
                self._runtime.memcpyAsync(memory.address, here, *moved)
                self._launch(make(memory.address), stream)
                self._runtime.memcpyAsync(here, memory.address, *moved)
        finally:
            memory.free()

    def rows_of(self, tile, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), tile.shape[1]), tile.dtype)
        with self._alone() as stream:
            starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)  # of adjacent rows
            for low, high in pairwise([*starts, len(rows)]):
                self.copy(out[low:high], tile[rows[low] :][: high - low], stream)
        return out


def cuda_device(
    local_rank: int,
    ranks_on_node: int,
    compute: str = "auto",
    accumulate_blocks: int = ACCUMULATE_BLOCKS,
) -> CudaDevice:
    """The GPU of one rank: ranks of a node are assigned to its devices round-robin.

    Parameters
    ----------
    local_rank, ranks_on_node : int
        Number of this rank on its node, and number of ranks there.
    compute : str
        ``"auto"``: GEMMs in the dtype's own arithmetic; ``"tf32"``: float32 GEMMs in TF32.
    accumulate_blocks : int
        Most thread blocks that add to tiles at the same time.

    Raises
    ------
    MissingError
        If CuPy, cuBLAS or NVRTC cannot be loaded, or there is no usable device.
    UsageError
        If ``compute`` is another word.
    """
    if compute not in ("auto", "tf32"):
        raise UsageError(f"the arithmetic is auto or tf32, got {compute!r}.")
    modules, count = require_gpu()
    index = local_rank % count
    try:
        return CudaDevice(
            modules,
            index,
            len(range(index, ranks_on_node, count)),
            compute == "tf32",
            accumulate_blocks,
        )
    except DrbenchError:
        raise
    except Exception as error:  # CuPy loads cuBLAS and NVRTC at their first use, and has its own
        # errors for kernels that do not compile; another process may occupy the device
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise MissingError(
            f"--backend cupy cannot set up GPU {index} ({reason}). Check nvidia-smi, and CuPy "
            "with python -c 'import cupy; cupy.show_config()'."
        ) from error


def require_gpu() -> tuple[Modules, int]:
    """CuPy's modules, and the number of GPUs visible to this process.

    Raises
    ------
    MissingError
        If there is no CuPy, or no GPU.
    """
    modules, status, why = _import_cupy(), 0, ""
    try:
        count = modules.runtime.getDeviceCount()
    except modules.runtime.CUDARuntimeError as error:
        count, status, why = 0, error.status, f": {error}"
    if not count:
        remedy = _OLD_DRIVER if status == _ERROR_INSUFFICIENT_DRIVER else _HIDDEN
        raise MissingError(f"--backend cupy needs a GPU, and CUDA finds none{why}. {remedy}")
    return modules, count


def _import_cupy() -> Modules:
    try:
        import cupy
        from cupy_backends.cuda.libs import cublas
    except ImportError as error:  # CuPy loads libraries of CUDA when it is imported
        reason = " ".join(str(error).split())
        raise MissingError(f"--backend cupy cannot load CuPy: {reason}. {_INSTALL}") from error
    if cupy.cuda.runtime.is_hip:
        raise MissingError(
            "--backend cupy runs on NVIDIA GPUs only, and this CuPy is built for AMD GPUs. Use "
            "--backend numpy."
        )
    return Modules(cupy.cuda, cupy.cuda.runtime, cublas, cupy.RawModule, cupy, load_driver())
