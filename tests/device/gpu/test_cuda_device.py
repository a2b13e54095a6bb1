"""Calls of the CUDA device to cuBLAS and CUDA's runtime, executed on host memory at the addresses
it passes."""

import sys
import types

import numpy as np
import pytest
from bordered import BORDER, bordered
from fake_cuda import FakeCupy

from drbench.device.address import DeviceArray, at_address
from drbench.device.base import Device
from drbench.device.gpu import cuda, cuda_stream
from drbench.device.gpu.cuda import CudaDevice, cuda_device
from drbench.device.gpu.cuda_gemm import gemm_call
from drbench.errors import (
    CaseFailed,
    DrbenchError,
    MissingError,
    OutOfMemory,
    UnsupportedError,
    UsageError,
)
from drbench.launch.ranks.gpu_report import describe


def by_address(view):
    """The view again, made from nothing but its address, shape and strides."""
    extents = [(extent - 1) * abs(stride) for extent, stride in zip(view.shape, view.strides)]
    flat = at_address(view.ctypes.data, sum(extents) // view.itemsize + 1, view.dtype)
    return np.ndarray.__new__(DeviceArray, view.shape, view.dtype, flat, 0, view.strides)


def ones(rows=2, columns=2, dtype="f4"):
    """An array on a device."""
    return np.ones((rows, columns), dtype).view(DeviceArray)


# -- GEMMs


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_gemm_with_k_0_clears_or_keeps_c_without_cublas(device, cupy, beta):
    c, whole, outside = bordered(np.full((3, 4), 5), "f4")
    empty = lambda *shape: by_address(np.empty(shape, "f4"))
    device.gemm(empty(3, 0), empty(0, 4), by_address(c), beta, device.stream("compute"))
    assert (c == (5 if beta else 0)).all() and (whole[outside] == BORDER).all()
    device.gemm(empty(0, 2), empty(2, 4), empty(0, 4), beta, device.stream("compute"))
    assert cupy.cublas.calls == []


@pytest.mark.parametrize(
    "dtype, tf32, compute, types",
    [
        ("float32", False, 68, (0, 0, 0)),
        ("float32", True, 77, (0, 0, 0)),
        ("float64", False, 70, (1, 1, 1)),
        ("bfloat16", False, 68, (14, 14, 0)),
    ],
)
def test_each_dtype_is_multiplied_in_its_arithmetic(new_device, cupy, dtype, tf32, compute, types):
    device = new_device(tf32=tf32)
    a = np.ones((2, 2), dtype)
    c = np.zeros((2, 2), "float32" if dtype == "bfloat16" else dtype)
    device.gemm(by_address(a), by_address(a), by_address(c), 0.0, device.stream("compute"))
    (call,) = cupy.cublas.calls
    assert (call.computeType, call.types) == (compute, types) and (c == 2).all()
    assert device.info.kernel == ("sm_90 tf32" if tf32 else "sm_90")


def test_work_runs_on_its_stream_and_only_streams_that_multiply_have_a_handle_each(device, cupy):
    tile, handles = ones(4, 4), cupy.cublas.handles
    streams = [device.stream(name) for name in ("first", "second")]
    for stream in (*streams, *streams):
        device.accumulate(tile, tile, stream)
        device.add(tile, tile, stream)
        device.zero(tile[:, 1:], stream)
        device.copy(tile, tile, stream)
    assert cupy.cublas.handles == handles
    used = [launch.stream for launch in cupy.module.launches]
    assert used == [stream.cupy.ptr for stream in (*streams, *streams) for _ in range(3)]
    for stream in (*streams, *streams):
        device.gemm(tile, tile, ones(4, 4), 0.0, stream)
    used = [(call.stream, call.handle) for call in cupy.cublas.calls]
    assert used == 2 * [(stream.cupy.ptr, stream.handle) for stream in streams]
    assert used[0][1] != used[1][1] and cupy.cublas.handles == handles + 2
    device.close()
    device.close()


@pytest.mark.parametrize("blocks, left", [({}, 120), (8, 124), (132, 0), (200, 0)])
def test_gemms_leave_multiprocessors_to_the_blocks_that_add(new_device, cupy, blocks, left):
    """A GEMM that fills the device would end before a block of the other kernel began."""
    limits, blocks = [], {"accumulate_blocks": blocks} if blocks else {}
    device = new_device(**blocks)
    stream = device.stream("gemms", multiplies=True)
    device.reserve(stream, True)  # cuBLAS before 11.5 has no such call
    cupy.cublas.cublasSetSmCountTarget = lambda handle, count: limits.append(
        (handle.value, count.value)
    )
    device.reserve(stream, True)
    device.reserve(stream, False)
    assert limits == [(stream.handle, left), (stream.handle, 0)]


def test_what_cublas_and_the_driver_refuse_is_one_line(device, cupy):
    one, stream = ones(), device.stream("gemms")
    device.gemm(one, one, ones(), 0.0, stream)
    cupy.cublas.full = True
    with pytest.raises(OutOfMemory, match="no memory left for a workspace of cuBLAS"):
        device.gemm(one, one, one, 0.0, stream)
    with pytest.raises(OutOfMemory, match="CUBLAS_STATUS_ALLOC_FAILED"):
        device.stream("more", multiplies=True)
    device._gemm._multiply = lambda *words: 15
    with pytest.raises(CaseFailed, match="cublasGemmEx failed with status 15"):
        device.gemm(one, one, one, 0.0, stream)
    device._launcher._start = lambda *words: 701
    with pytest.raises(CaseFailed, match="cuLaunchKernel failed with error 701 .* accumulate_f32"):
        device.accumulate(one, one, stream)


def test_copies_have_priority_over_the_blocks_of_a_gemm(device):
    """A GEMM of more blocks than fit at once yields to copies after each block."""
    moves, multiplies = device.stream("copies"), device.stream("gemms", multiplies=True)
    assert moves.cupy.priority < multiplies.cupy.priority == 0


def test_a_thread_that_starts_on_another_device_is_switched_to_this_one(device, cupy):
    tile = ones()
    stream = device.stream("compute")
    graph = device.capture([stream], lambda: device.zero(tile[:, 1:], stream))
    for work in (
        graph,
        lambda: device.capture([stream], lambda: None),
        lambda: device.gemm(tile, tile, tile, 0.0, stream),
        lambda: device.accumulate(tile, tile, stream),
        lambda: device.allocate(8).free(),
        device.free_bytes,
        device.event,
        device.synchronise,
        lambda: device.stream("new"),
        lambda: device.all_finite(tile),
    ):
        cupy.runtime.device = 0
        work()
        assert cupy.runtime.device == 1


def test_gemms_that_cublas_has_no_arithmetic_or_number_for_are_refused(new_device):
    def far(*strides):
        flat = at_address(4096, 1 << 40, "u1")
        return np.ndarray.__new__(DeviceArray, (2, 2), np.dtype("f4"), flat, 0, strides)

    assert gemm_call(far(4 * ((1 << 31) - 1), 4), far(8, 4), far(8, 4)).ldb == (1 << 31) - 1
    device, tf32 = new_device(), new_device(tf32=True)
    for run, operands, error in (
        (gemm_call, (far(4 << 31, 4), far(8, 4), far(8, 4)), "leading dimension of 2147483648"),
        (gemm_call, map(np.zeros, ((2, 3), (4, 5), (2, 5))), "m×k, k×n and m×n"),
        (gemm_call, (np.zeros((4, 8))[::2, ::2], *map(np.zeros, ((4, 3), (2, 3)))), "contiguous"),
        (device, ("i4", "i4", "i4"), "int32 · int32 into int32"),
        (device, ("f4", "f8", "f4"), "float32 · float64 into float32"),
        (tf32, ("f8", "f8", "f8"), "TF32 is an arithmetic for float32, got float64"),
    ):
        with pytest.raises(DrbenchError, match=error):
            if run is gemm_call:
                run(*operands)
            else:
                run.gemm(*(ones(dtype=each) for each in operands), 1.0, run.stream("compute"))


# -- memory


@pytest.mark.parametrize("nbytes, pages", [(0, 1), (1000, 1), (2 << 20, 1), ((2 << 20) + 1, 2)])
def test_memory_is_aligned_whole_pages_and_freed_once(device, cupy, nbytes, pages):
    memory = device.allocate(nbytes)
    assert isinstance(device, Device) and memory.address % 512 == 0
    assert cupy.runtime.used == memory.nbytes == device.peak_bytes == pages << 21
    memory.free()
    memory.free()
    assert cupy.runtime.used == 0


def test_an_error_of_an_allocation_other_than_too_little_memory_is_not_out_of_memory(device, cupy):
    cupy.runtime.malloc = raising(cupy.runtime.CUDARuntimeError(700))
    with pytest.raises(cupy.runtime.CUDARuntimeError):
        device.allocate(8)


def test_ranks_that_share_a_device_share_its_free_memory(cupy, new_device):
    """Less the memory of cuBLAS and NCCL, which grows with the device's memory."""
    kept = 1 << 24
    assert new_device(sharers=1).free_bytes() == (1 << 28) - kept
    assert new_device(sharers=3).free_bytes() == (1 << 28) // 3 - kept
    cupy.runtime.total = 80 << 30
    assert new_device().free_bytes() == (80 << 30) - (1 << 29)
    device = new_device()
    cupy.runtime.used = cupy.runtime.total - 1
    assert device.free_bytes() == 0


# -- streams and events


def test_streams_wait_for_the_event_they_are_given_and_only_timed_events_have_a_time(device, cupy):
    """Calls to CUDA and their streams: a host cannot observe which of the two waits."""
    first, second, event = device.stream("copies"), device.stream("compute"), device.event()
    cupy.log.clear()
    first.record(event)
    second.wait(event)
    event.synchronise()
    first.synchronise()
    one, other, which = first.cupy.ptr, second.cupy.ptr, event.cupy.ptr
    assert cupy.log[:2] == [("record", one, which), ("wait", other, which)]
    assert cupy.log[2:] == [("synchronise", which), ("synchronise", one)]
    assert event.cupy.disable_timing
    before, after = device.event(timed=True), device.event(timed=True)
    first.record(before)
    first.record(after)  # a millisecond later
    assert after.seconds_since(before) == 1e-3 and before.seconds_since(after) == -1e-3
    for pair in ((after, event), (event, before)):
        with pytest.raises(UsageError, match="timed=True"):
            pair[0].seconds_since(pair[1])


def test_a_query_distinguishes_done_from_not_ready_and_raises_errors_of_the_stream(device, cupy):
    event = device.event()
    assert event.query()
    cupy.runtime.event_status = 600
    assert not event.query()
    cupy.runtime.event_status = 700
    with pytest.raises(RuntimeError, match="IllegalAddress"):
        event.query()


# -- memory of other processes


def test_a_handle_opens_on_other_ranks_of_the_same_or_a_peer_device_and_closes(cupy, new_device):
    owner, same, peer = new_device(0), new_device(0), new_device(1)
    memory = owner.allocate(4096)
    handle = owner.ipc_handle(memory)
    for importer in (same, peer):
        assert importer.open_handle(handle) == memory.address
    assert cupy.runtime.opened == {memory.address: 2}
    for importer in (same, peer):
        importer.close_handle(memory.address)
    assert cupy.runtime.opened == {memory.address: 0}
    memory.free()


def test_an_own_handle_is_not_opened_and_devices_without_peer_access_are_reported(cupy, new_device):
    owner, peer = new_device(0), new_device(1)
    handle = owner.ipc_handle(owner.allocate(64))
    with pytest.raises(UsageError, match="does not open its own memory"):
        owner.open_handle(handle)
    with pytest.raises(UnsupportedError, match="cudaErrorPeerAccessUnsupported"):
        peer.open_handle(bytes(64) + handle[64:])
    cupy.runtime.peers = False
    with pytest.raises(UnsupportedError, match="0000:01:00.0 has no peer access to 0000:00:00.0"):
        peer.open_handle(handle)
    hidden = handle[:64] + b"0000:07:00.0"  # not visible to this process: CUDA itself must answer
    assert peer.open_handle(hidden) in cupy.runtime.opened


# -- which device, and none at all


@pytest.fixture
def importable(monkeypatch, library):
    """``importable(fake)``: the module that ``import cupy`` finds from now on."""

    def install(fake):
        libs = types.ModuleType("cupy_backends.cuda.libs")
        libs.cublas = fake.cublas
        monkeypatch.setattr("drbench.device.gpu.cuda.load_driver", lambda: fake.driver)
        monkeypatch.setattr(cuda_stream.Modules.__new__, "__defaults__", (lambda _: fake.cublas,))
        for name, module in {
            "cupy": fake.as_module(),
            "cupy_backends": types.ModuleType("cupy_backends"),
            "cupy_backends.cuda": types.ModuleType("cupy_backends.cuda"),
            "cupy_backends.cuda.libs": libs,
        }.items():
            monkeypatch.setitem(sys.modules, name, module)

    return lambda **devices: install(FakeCupy(library, **devices))


@pytest.mark.parametrize(
    "ranks, devices, expected",
    [(2, 2, [(0, 1), (1, 1)]), (3, 2, [(0, 2), (1, 1), (0, 2)]), (2, 4, [(0, 1), (1, 1)])],
)
def test_ranks_use_the_devices_of_a_node_cyclically(importable, ranks, devices, expected):
    importable(devices=devices)
    made = [cuda_device(rank, ranks) for rank in range(ranks)]
    assert [(device.info.index, device.sharers) for device in made] == expected
    info = made[0].info
    found = info.name, info.library, info.kernel, info.count
    assert found == ("NVIDIA Fake", "cuBLAS 13.10.3", "sm_90", devices)


def test_the_arithmetic_is_auto_or_tf32(importable):
    importable()
    assert cuda_device(0, 1, "tf32").info.kernel == "sm_90 tf32"
    with pytest.raises(UsageError, match="auto or tf32, got 'bf16'"):
        cuda_device(0, 1, "bf16")


def raising(error):
    def call(*words):
        raise error

    return call


def test_an_unusable_gpu_is_refused_in_one_line_with_the_remedy(importable, monkeypatch):
    """CuPy's CompileException is a plain Exception; a CuPy for AMD is refused before it is
    used."""

    def refused(text):
        with pytest.raises(MissingError, match=text) as caught:
            cuda_device(0, 1)
        assert caught.value.exit_code == 3 and "\n" not in str(caught.value)

    importable(devices=0)
    refused("needs a GPU, and CUDA finds none: cudaErrorNoDevice. Check nvidia-smi and CUDA_VIS")
    runtime = sys.modules["cupy"].cuda.runtime
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "getDeviceCount", raising(runtime.CUDARuntimeError(35)))
        refused(r"cudaErrorInsufficientDriver. The driver is too old for this CuPy.*'\.\[cuda12\]'")
    importable()
    unloaded = raising(RuntimeError("CuPy failed to load libcublas.so.12:\n no such file"))
    uncompiled = raising(Exception("nvrtc: error:\n no such option"))
    cupy = sys.modules["cupy"]
    for owner, name, value, text in (
        (cuda, "CudaStream", unloaded, r"GPU 0 \(RuntimeError: CuPy .*.so.12: no such file\)"),
        (cupy.RawModule, "get_function", uncompiled, "Exception: nvrtc: error: no such option"),
        (cupy.cuda.runtime, "is_hip", True, "NVIDIA GPUs only.* Use --backend numpy"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            refused(text)
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if it were not installed
    refused(r"cannot load CuPy: .*cupy.*pip install '\.\[cuda12\]'")


def test_a_cublas_by_another_name_is_refused(cupy):
    modules = cupy.modules()._replace(find_cublas=lambda version: None)
    with pytest.raises(MissingError, match="needs libcublas.so.13"):
        CudaDevice(modules, 0)


def test_closing_a_device_frees_the_memory_of_a_refused_case(new_device, cupy):
    before, device = len(cupy.runtime.allocations), new_device(0)
    kept = device.allocate(100), device.allocate(1)
    kept[0].free()
    device.close()
    kept[1].free()  # idempotent
    assert len(cupy.runtime.allocations) == before


def test_a_description_has_versions_and_the_compute_mode_of_each_gpu(device, cupy, monkeypatch):
    cupy.__version__ = "14.2.0"
    properties, runtime = cupy.runtime.getDeviceProperties(0), cupy.runtime
    monkeypatch.setattr(
        runtime, "getDeviceProperties", lambda index: properties | {"totalGlobalMem": 80 << 30}
    )
    monkeypatch.setattr(runtime, "deviceGetAttribute", lambda which, index: {20: 3 * index}[which])
    for version in ("runtimeGetVersion", "driverGetVersion"):
        monkeypatch.setattr(runtime, version, lambda: 13000, raising=False)
    assert describe(device)["no_peer_access"] == []
    runtime.peers = False
    found = describe(device)
    assert found["no_peer_access"] == [(0, 1), (1, 0)]
    assert [gpu["compute_mode"] for gpu in found["devices"]] == [0, 3]  # default, exclusive process
    assert (found["cupy"], found["driver"], found["no_waits"]) == ("14.2.0", 13000, None)
