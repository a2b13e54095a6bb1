"""The part of CuPy that drbench uses, on host memory: work of a GPU is executed at once, at the
addresses passed to it.

``cublasGemmEx`` is column-major and uses the stream of its handle, as cuBLAS does; kernels are
those of ``kernels.cu``, compiled with g++.
"""

import ctypes
import mmap
import os
import subprocess
import time
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from drbench.device.gpu import cuda, ipc, kernels
from drbench.device.gpu.cuda_stream import Modules

STATUS = {
    1: "cudaErrorInvalidValue",
    2: "cudaErrorMemoryAllocation",
    35: "cudaErrorInsufficientDriver",
    100: "cudaErrorNoDevice",
    217: "cudaErrorPeerAccessUnsupported",
    700: "cudaErrorIllegalAddress",
}
SOURCE = Path(kernels.__file__).with_name("kernels.cu")
MAX_STRIDE = (1 << 31) - 1
BORDER = 4096
#: Arguments of calls of CuPy's NCCL communicator.
NCCL_CALLS = {
    "broadcast": "source target count kind root stream",
    "reduce": "source target count kind operation root stream",
    "allGather": "source target count kind stream",
    "reduceScatter": "source target count kind operation stream",
    "send": "source count kind peer stream",
    "recv": "target count kind peer stream",
}
#: Arguments of cublasGemmEx; * for a pointer, others are 32-bit integers.
GEMM_ARGUMENTS = (
    "handle* transa transb m n k alpha* A* Atype lda B* Btype ldb beta* C* Ctype ldc "
    "computeType algo"
)


def compile_kernels(folder):
    """kernels.cu as a library of the host, made with g++ in a folder; its path."""
    here = Path(__file__).parent
    table = " ".join(f"E({name})" for name in kernels.NAMES)
    text = (
        f'#include "{here}/shim.h"\n#include "{SOURCE}"\n#define KERNELS(E) {table}\n#include '
        f'"{here}/shim_launch.h"\n'
    )
    (folder / "kernels.cpp").write_text(text)
    subprocess.run(
        [
            "g++",
            "-std=c++20",
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            folder / "kernels.so",
            folder / "kernels.cpp",
        ],
        check=True,
        timeout=300,
    )
    return folder / "kernels.so"


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(STATUS[status])


def memory(address, nbytes):
    """Bytes at an address."""
    return (
        np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)
        if nbytes
        else np.empty(0, np.uint8)
    )


def recorded(method):
    """Work of a stream: kept while streams are captured, otherwise executed at once."""

    @wraps(method)
    def given(self, *words):
        if (kept := getattr(self, "runtime", self).captured) is None:
            return method(self, *words)
        kept.append(partial(method, self, *words))
        return 0

    return given


class FakeRuntime:
    """cupy.cuda.runtime with ``devices`` devices of ``total`` bytes, of which a thread uses
    ``device``."""

    CUDARuntimeError, is_hip = CUDARuntimeError, False

    def __init__(self, devices=1, total=1 << 28):
        self.devices, self.total, self.used, self.device = devices, total, 0, 0
        self.calls, self.allocations, self.opened = [], {}, {}
        self.event_status = 0
        self.captured = None  # what is given to streams while they are captured
        self.recorded_ms = {}  # by event: every record takes a millisecond
        self.pinned, self.waits = set(), []  # waits for flags of the host, with their numbers
        self.peers = True
        self.rate = np.inf  # FLOPs of GEMMs and bytes of copies in a second

    def getDeviceCount(self):
        if not self.devices:
            raise CUDARuntimeError(100)
        return self.devices

    def setDevice(self, index):
        assert 0 <= index < self.devices
        self.device = index

    def deviceGetPCIBusId(self, index):
        return f"0000:{index:02x}:00.0"

    def deviceGetByPCIBusId(self, name):
        index = int(name.split(":")[1], 16)
        if index >= self.devices:
            raise CUDARuntimeError(1)
        return index

    def deviceCanAccessPeer(self, device, peer):
        assert device != peer
        return int(self.peers)

    def deviceGetAttribute(self, attribute, index):
        assert attribute == 20, "cudaDevAttrComputeMode"
        return 0

    def getDeviceProperties(self, index):
        numbers = {"major": 9, "minor": 0, "multiProcessorCount": 132}
        return {"name": b"NVIDIA Fake", "totalGlobalMem": self.total} | numbers

    def runtimeGetVersion(self):
        return 13000

    driverGetVersion = runtimeGetVersion

    def deviceSynchronize(self):
        assert self.captured is None, "a capture does not survive it"
        self.calls.append(("deviceSynchronize",))

    def memGetInfo(self):
        return self.total - self.used, self.total

    def malloc(self, size):
        if size > self.total - self.used:
            raise CUDARuntimeError(2)
        block = np.full(size + 2 * BORDER + 512, 0xA5, np.uint8)
        address = -(-(block.ctypes.data + BORDER) // 512) * 512
        self.allocations[address] = block, size
        self.used += size
        return address

    def free(self, address):
        block, size = self.allocations.pop(address)
        self.used -= size
        edges = np.delete(
            block, np.arange(address - block.ctypes.data, address - block.ctypes.data + size)
        )
        assert (edges == 0xA5).all(), "something was written outside an allocation"

    @recorded
    def memcpyAsync(self, target, source, size, kind, stream):
        self.calls.append(("memcpyAsync", size, kind, stream))
        memory(target, size)[:] = memory(source, size)
        time.sleep(size / self.rate)

    @recorded
    def memcpy2DAsync(
        self, target, target_stride, source, source_stride, width, height, kind, stream
    ):
        assert (
            0 < width <= min(target_stride, source_stride)
            and max(target_stride, source_stride) <= MAX_STRIDE
        )
        self.calls.append(("memcpy2DAsync", width, height, kind, stream))
        for row in range(height):
            memory(target + row * target_stride, width)[:] = memory(
                source + row * source_stride, width
            )
        time.sleep(width * height / self.rate)

    @recorded
    def memsetAsync(self, target, value, size, stream):
        self.calls.append(("memsetAsync", value, size, stream))
        memory(target, size)[:] = value

    def hostRegister(self, address, size, flags):
        assert size and flags == 3
        self.calls.append(("hostRegister", size))

    def pointerGetAttributes(self, address):
        """Attributes of the allocation that contains the address, and of registered host memory."""
        for start, (_, size) in self.allocations.items():
            if start <= address < start + size:
                return SimpleNamespace(devicePointer=address, type=2, device=self.device)
        return SimpleNamespace(devicePointer=address, type=1, device=-2)

    def hostUnregister(self, address):
        self.calls.append(("hostUnregister",))

    def eventQuery(self, event):
        for wait in filter(passed, list(self.waits)):
            self.waits.remove(wait)
            self.pinned.discard(wait[0])
        return 600 if self.waits else self.event_status

    def eventElapsedTime(self, earlier, later):
        return float(self.recorded_ms[later] - self.recorded_ms[earlier])

    def ipcGetMemHandle(self, address):
        assert address in self.allocations, "a handle names an allocation by its first byte"
        return address.to_bytes(64, "little")

    def ipcOpenMemHandle(self, handle):
        assert len(handle) == 64
        address = int.from_bytes(handle, "little")
        if address == 0:
            raise CUDARuntimeError(217)
        self.opened[address] = self.opened.get(address, 0) + 1
        return address

    def ipcCloseMemHandle(self, address):
        self.opened[address] -= 1


class SharedRuntime(FakeRuntime):
    """Allocations are files in memory, and a handle is the name of one: other processes open
    them. Each has the mark of its test in its name, so that files of killed processes are
    removed (``starting.run_process``)."""

    def __init__(self, **options):
        super().__init__(**options)
        self.files, self.mapped, self.opens = 0, {}, True
        mark = os.environ.get("DRBENCH_TEST_RUN", "")[:12]
        self._name = f"/dev/shm/drbench-fake-gpu-{mark}-{os.getpid()}"

    def malloc(self, size):
        if size > self.total - self.used:
            raise CUDARuntimeError(2)
        self.files += 1
        path = f"{self._name}-{self.files}"
        with open(path, "wb+") as file:
            file.truncate(size)
            block = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        block[:] = 0xA5
        address = block.ctypes.data
        self.allocations[address], self.used = (block, size), self.used + size
        self.mapped[address] = path
        return address

    def free(self, address):
        os.unlink(self.mapped.pop(address))
        self.used -= self.allocations.pop(address)[1]

    def ipcGetMemHandle(self, address):
        return self.mapped[address].encode().ljust(64, b"\0")

    def ipcOpenMemHandle(self, handle):
        if not self.opens:
            raise CUDARuntimeError(1)
        path = handle.rstrip(b"\0").decode()
        with open(path, "rb+") as file:
            block = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        self.opened[block.ctypes.data] = block
        return block.ctypes.data

    def ipcCloseMemHandle(self, address):
        del self.opened[address]


def passed(wait):
    """Whether the flag at an address has a number, or a later one."""
    address, number = wait
    flag = memory(address, 4).view(np.uint32)
    return (int(flag[0]) - number) % (1 << 32) < 1 << 31


class FakeDriver:
    """libcuda's launches and stream memory operations: a write is done at once, a wait blocks the
    host, as if the device had one queue, except a wait for a flag of the host."""

    def __init__(self, module, patience_s=60.0):
        self.calls, self._patience_s, self._module = [], patience_s, module
        self.cuLaunchKernel = module.launch

    def cuDeviceGetAttribute(self, found, attribute, index):
        assert attribute == 98  # CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES
        found._obj.value = 1
        return 0

    def cuStreamWriteValue32_v2(self, stream, address, value, flags):
        assert stream.value and address.value % 4 == 0 and flags.value == 0
        self.calls.append(("write", stream.value, value.value))
        memory(address.value, 4).view(np.uint32)[0] = value.value
        return 0

    def cuStreamWaitValue32_v2(self, stream, address, value, flags):
        assert stream.value and address.value % 4 == 0
        assert flags.value == 1 << 30  # cyclic >=, and what came before the flag is visible
        self.calls.append(("wait", stream.value, value.value))
        wait, end = (address.value, value.value), time.monotonic() + self._patience_s
        if address.value in self._module.runtime.pinned:
            self._module.runtime.waits.append(wait)
            return 0
        while not passed(wait):
            if time.monotonic() > end:
                return 702  # CUDA_ERROR_LAUNCH_TIMEOUT
            time.sleep(1e-5)
        return 0


class FakeArray:
    """cupy.ndarray: its elements are read only with :meth:`get`."""

    def __init__(self, shape, dtype=float, memptr=None, strides=None, elements=None):
        dtype, self._owner = np.dtype(dtype), memptr
        if elements is None and memptr is None:
            elements = np.full(shape, 0x5A, dtype)
        if elements is None:
            size = int(np.prod(shape)) * dtype.itemsize
            lent = getattr(memptr.memory, "size", size)
            assert lent in (size, size or 1), "lent memory is that of the array, at least a byte"
            elements = memory(memptr.ptr, size).view(dtype).reshape(shape)
        self._elements = elements

    shape, strides, dtype = (
        property(lambda self, name=name: getattr(self._elements, name))
        for name in ("shape", "strides", "dtype")
    )
    size, itemsize, nbytes, ndim = (
        property(lambda self, name=name: getattr(self._elements, name))
        for name in ("size", "itemsize", "nbytes", "ndim")
    )

    @property
    def data(self):
        return SimpleNamespace(ptr=self._elements.ctypes.data)

    def _of(self, elements):
        return FakeArray(None, elements.dtype, self._owner, elements=elements)

    @property
    def T(self):
        return self._of(self._elements.T)

    def __getitem__(self, ranges):
        return self._of(self._elements[ranges])

    def __setitem__(self, ranges, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        self._elements[ranges] = value._elements if isinstance(value, FakeArray) else value

    def fill(self, value):
        self._elements.fill(value)

    def copy(self, order="C"):
        return FakeArray(None, self.dtype, elements=self._elements.copy(order))

    def get(self):
        return self._elements.copy()

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    @property
    def __cuda_array_interface__(self):
        return {**self._elements.__array_interface__, "version": 3}

    def __dlpack__(self, stream=None, **options):
        return self._elements.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._elements.__dlpack_device__()


class CUBLASError(RuntimeError):
    pass


class FakeCublas:
    """CuPy's module and the functions of its library that are called by ctypes."""

    CUBLASError = CUBLASError

    def __init__(self, runtime):
        self.runtime, self.handles, self.calls, self.streams, self.full = runtime, 0, [], {}, False

    def create(self):
        if self.full:
            raise CUBLASError("CUBLAS_STATUS_ALLOC_FAILED")
        self.handles += 1
        return 0xB000 + self.handles

    def setStream(self, handle, stream):
        self.streams[handle] = stream

    def destroy(self, handle):
        self.handles -= 1

    def getVersion(self, handle):
        return 131003

    @recorded
    def cublasGemmEx(self, *words):
        """C = alpha·op(A)·op(B) + beta·C, all column-major, in float64 and rounded once."""
        names = GEMM_ARGUMENTS.split()
        kinds = [ctypes.c_void_p if name[-1] == "*" else ctypes.c_int for name in names]
        assert [*map(type, words)] == kinds
        if self.full:
            return 3
        x = SimpleNamespace(**{name.strip("*"): word.value for name, word in zip(names, words)})
        x.stream, x.types = self.streams[x.handle], (x.Atype, x.Btype, x.Ctype)
        self.calls.append(x)
        assert x.algo == -1 and min(x.m, x.n, x.k) > 0
        scalar = np.float64 if x.computeType == 70 else np.float32
        alpha, beta = (memory(at, scalar().itemsize).view(scalar)[0] for at in (x.alpha, x.beta))
        a = matrix(x.A, *((x.k, x.m) if x.transa else (x.m, x.k)), x.lda, x.Atype)
        b = matrix(x.B, *((x.n, x.k) if x.transb else (x.k, x.n)), x.ldb, x.Btype)
        c = matrix(x.C, x.m, x.n, x.ldc, x.Ctype)
        made = (a.T if x.transa else a).astype(float) @ (b.T if x.transb else b).astype(float)
        c[...] = alpha * made + (beta * c.astype(float) if beta else 0)
        time.sleep(2 * x.m * x.n * x.k / self.runtime.rate)
        return 0


def matrix(address, rows, columns, ld, kind):
    """A column-major matrix at an address."""
    assert ld >= rows
    dtype = np.dtype({0: np.float32, 1: np.float64, 14: ml_dtypes.bfloat16}[kind])
    flat = memory(address, ((columns - 1) * ld + rows) * dtype.itemsize).view(dtype)
    return np.lib.stride_tricks.as_strided(
        flat, (rows, columns), (dtype.itemsize, ld * dtype.itemsize)
    )


class FakeModule:
    """cupy.RawModule, of kernels that are compiled already."""

    def __init__(self, runtime, library):
        self.runtime, self.library, self.launches, self.names = runtime, library, [], {}

    def __call__(self, *, code, options):
        assert "KERNEL accumulate_f32x4" in code and options == ("-std=c++17",)
        return self

    def get_function(self, name):
        at = 0xF000 + len(self.names)
        self.names[at] = name
        return SimpleNamespace(kernel=SimpleNamespace(ptr=at))

    @recorded
    def launch(self, function, *words):
        """cuLaunchKernel."""
        *shape, shared, stream, arguments, extra = words
        assert shared.value == 0 and extra is None and stream.value
        name, shape = self.names[function.value], [word.value for word in shape]
        grid, block = tuple(shape[:3]), tuple(shape[3:])
        self.launches.append(
            SimpleNamespace(name=name, grid=grid, block=block, stream=stream.value)
        )
        self.library.launch_at(name, grid, block, arguments)
        return 0


class FakeCupy:
    """The modules of CuPy that drbench uses."""

    __version__ = "0 (fake)"

    def __init__(self, library=None, **devices):
        self.runtime = FakeRuntime(**devices)
        self.cublas = FakeCublas(self.runtime)
        self.module = FakeModule(self.runtime, library)
        self.streams = self.events = self.graphs = 0
        self.log = []
        fake = self

        class Stream:
            def __init__(self, *, non_blocking, priority):
                assert non_blocking
                self.priority = priority
                fake.streams += 1
                self.ptr = 0x5000 + fake.streams

            def record(self, event):
                fake.log.append(("record", self.ptr, event.ptr))
                fake.runtime.recorded_ms[event.ptr] = len(fake.log)

            def wait_event(self, event):
                fake.log.append(("wait", self.ptr, event.ptr))

            def synchronize(self):
                assert fake.runtime.captured is None
                fake.log.append(("synchronise", self.ptr))

            def begin_capture(self):
                assert fake.runtime.captured is None
                fake.runtime.captured = []

            def end_capture(self):
                kept, fake.runtime.captured = fake.runtime.captured, None

                def launch(stream):
                    fake.graphs += 1
                    for each in kept:
                        assert not each()

                return SimpleNamespace(launch=launch, upload=lambda stream: None)

        class Event:
            def __init__(self, *, disable_timing):
                fake.events += 1
                self.ptr, self.disable_timing = 0xE000 + fake.events, disable_timing

            def synchronize(self):
                fake.log.append(("synchronise", self.ptr))

        def pinned(size):
            made = np.zeros(size, np.uint8)
            self.runtime.pinned.add(made.ctypes.data)
            return made

        self.ndarray = FakeArray
        self.driver = FakeDriver(self.module)
        self.cuda = SimpleNamespace(
            UnownedMemory=lambda ptr, size, owner, device_id: SimpleNamespace(
                ptr=ptr, size=size, owner=owner
            ),
            MemoryPointer=lambda memory, offset: SimpleNamespace(
                ptr=memory.ptr + offset, memory=memory
            ),
            runtime=self.runtime,
            Stream=Stream,
            Event=Event,
            PinnedMemory=pinned,
            PinnedMemoryPointer=lambda block, offset: block[offset:],
        )

    def empty(self, shape, dtype):
        return FakeArray(shape, dtype)

    def asarray(self, array):
        described = array.__cuda_array_interface__
        assert described["data"][0], "memory that there is"
        holder = SimpleNamespace(__array_interface__=described, kept=array)
        return FakeArray(None, elements=np.asarray(holder), memptr=holder)

    def from_dlpack(self, array):
        return FakeArray(None, elements=np.from_dlpack(array))

    def modules(self):
        """As the device takes them."""
        modules = self.cuda, self.runtime, self.cublas, self.module, self, self.driver
        return Modules(*modules, lambda version: {13: self.cublas}[version])

    def without_flags(self):
        """As of a driver before CUDA 11.7."""
        self.driver = SimpleNamespace(cuLaunchKernel=self.module.launch)

    def as_module(self):
        """The module of ``import cupy``."""
        return SimpleNamespace(cuda=self.cuda, RawModule=self.module)


@contextmanager
def shared_cupy(
    path, peers=True, atomics=True, opens=True, total=1 << 28, devices=2, driver=True, rate=np.inf
):
    """A fake CuPy for a process without GPUs, whose memory other processes open, if ``opens`` (a
    context manager), which multiplies and copies at most ``rate`` FLOPs and bytes in a second. Its
    result counts remaining memory and launched graphs."""
    fake = FakeCupy(Library(path), devices=devices)
    fake.runtime = SharedRuntime(devices=devices, total=total)
    if not driver:
        fake.without_flags()
    fake.cublas.runtime = fake.module.runtime = fake.cuda.runtime = fake.runtime
    fake.runtime.peers, fake.runtime.opens, fake.runtime.rate = peers, opens, rate
    make, real = ipc.Peers.__init__, (ipc.Peers.__init__.__defaults__, cuda._import_cupy)
    make.__defaults__, cuda._import_cupy = (lambda device, peer: atomics,), fake.modules

    def left():
        return len(fake.runtime.allocations) + len(fake.runtime.opened) + fake.cublas.handles

    left.graphs = lambda: fake.graphs
    try:
        yield left
    finally:
        make.__defaults__, cuda._import_cupy = real


class Library:
    """kernels.cu, compiled with g++."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.vector_additions_so_far.restype = ctypes.c_longlong

    def launch(self, name, grid, block, arguments):
        assert all(isinstance(argument, np.generic) for argument in arguments), (
            "CuPy would choose the width of a Python number"
        )
        cells = [np.array([argument]) for argument in arguments]
        pointers = (ctypes.c_void_p * len(cells))(*[cell.ctypes.data for cell in cells])
        sizes = (ctypes.c_int * len(cells))(*[cell.itemsize for cell in cells])
        self.launch_at(name, grid, block, pointers, sizes)

    def launch_at(self, name, grid, block, pointers, sizes=None):
        """Call with pointers to the arguments, as for the driver, with checked sizes."""
        status = self._library.launch(
            name.encode(),
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            pointers,
            sizes,
            len(pointers),
        )
        assert status == 0, (
            f"{name}: {['', 'no such kernel', 'not the arguments it declares'][status]}"
        )

    def vector_additions(self):
        return self._library.vector_additions_so_far()
