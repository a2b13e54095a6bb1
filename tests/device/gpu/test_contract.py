"""The contract of a device with the executor, with all data on the device: on the fake everywhere,
and on the real GPU where there is one."""

import itertools
import mmap
import subprocess
import sys
import time
from importlib import resources

import numpy as np
import pytest

from drbench.device.address import at_address
from drbench.device.gpu import kernels
from drbench.device.gpu.cuda import cuda_device, require_gpu
from drbench.device.gpu.nccl import nccl_group, why_no_nccl
from drbench.errors import MissingError, OutOfMemory
from drbench.host.fill import Fill

every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])

try:
    GPU, WHY_NONE = cuda_device(0, 1), ""
except MissingError as error:
    GPU, WHY_NONE = None, str(error)


@pytest.fixture(params=["fake", "real"] if GPU else ["fake"])
def any_device(request):
    return request.getfixturevalue("device") if request.param == "fake" else GPU


def on_the_gpu(test):
    """A test that the fake cannot run."""
    test = pytest.mark.parametrize("any_device", ["real"], indirect=True)(test)
    return pytest.mark.skipif(GPU is None, reason=WHY_NONE)(test)


def extent(device):
    """Rows and columns that keep a GPU busy for longer than a launch takes; the fake, which is
    never busy, gets few."""
    return 2000 if device is GPU else 40


@pytest.fixture
def memories(any_device):
    """``memories(array)``: a copy of a host array on the device; all are freed at the end."""
    made, stream = [], any_device.stream("stage")

    def put(array):
        made.append(any_device.allocate(array.nbytes))
        on_device = at_address(made[-1].address, array.size, array.dtype).reshape(array.shape)
        stage = any_device.allocate_host(array.nbytes).view(array.dtype).reshape(array.shape)
        stage[...] = array
        any_device.copy(on_device, stage, stream)
        stream.synchronise()
        return on_device

    yield put
    any_device.synchronise()
    for memory in made:
        memory.free()


def fetch(device, array):
    """A device array, copied to the host."""
    host, stream = np.empty(array.shape, array.dtype), device.stream("fetch")
    device.copy(host, array, stream)
    stream.synchronise()
    return host


def integers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, shape)


@every_dtype
@pytest.mark.parametrize("transposed", list(itertools.product([False, True], repeat=3)), ids=str)
def test_gemms_of_strided_views_are_exact_and_in_place(any_device, memories, dtype, transposed):
    """At any offset, vectors too. C is NaN before a GEMM with beta 0; the second one adds to the
    first, and neither writes anything else."""
    output, stream = "float32" if dtype == "bfloat16" else dtype, any_device.stream("compute")
    for number, (m, n, k) in enumerate([(67, 35, 130), (1, 9, 4), (6, 1, 1), (1, 1, 12)]):
        top, left = 2 * number, 5 - number

        def parts(matrices):
            for whole, across, (rows, cols) in zip(matrices, transposed, ((m, k), (k, n), (m, n))):
                corner = whole[top:, left:]
                yield corner[:cols, :rows].T if across else corner[:rows, :cols]

        size = max(m, n, k) + 8
        whole = [*integers(number, 2, size, size + 5).astype(float), np.full((size, size), np.nan)]
        on = [memories(x.astype(kind)) for x, kind in zip(whole, (dtype, dtype, output))]
        a, b, c = parts(on)
        x, y, z = parts(whole)
        for beta in (0.0, 1.0):
            any_device.gemm(a, b, c, beta, stream)
            stream.synchronise()
            z[...] = (1 + beta) * (x @ y)
            for each, expected in [*zip(on, whole)][0 if beta else 2 :]:
                found = fetch(any_device, each).astype(float)
                assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("columns, column", [(512, 8), (511, 8), (512, 7)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_streams_that_add_into_one_part_of_a_tile_lose_nothing(
    any_device, memories, dtype, columns, column
):
    rows = extent(any_device)
    tile, ones = map(memories, (np.zeros((rows + 10, 640), dtype), np.ones((rows, columns), dtype)))
    streams = [any_device.stream(name) for name in ("left", "right")]
    for _ in range(3):
        for stream in streams:
            any_device.accumulate(tile[5:-5, column : column + columns], ones, stream)
    any_device.synchronise()
    expected = np.zeros((rows + 10, 640))
    expected[5:-5, column : column + columns] = 6
    assert (fetch(any_device, tile) == expected).all()


def test_a_stream_that_waits_for_an_event_sees_earlier_writes(any_device, memories):
    shape = extent(any_device), extent(any_device)
    ones, tile, taken = (memories(np.full(shape, value, "f4")) for value in (1, 0, 0))
    compute, copies = map(any_device.stream, ("compute", "copies"))
    ready = any_device.event()
    assert ready.query()  # never recorded
    for round in range(1, 6):
        for _ in range(10):
            any_device.add(tile, ones, compute)
        compute.record(ready)
        copies.wait(ready)
        any_device.copy(taken, tile, copies)
        copies.synchronise()
        assert ready.query() and (fetch(any_device, taken) == 10 * round).all()


def test_timed_events_measure_the_work_between_them(any_device, memories):
    size = extent(any_device)
    ones, c = memories(np.ones((size, size), "f4")), memories(np.zeros((size, 8), "f4"))
    stream, start = any_device.stream("compute"), time.perf_counter()
    before, after = (any_device.event(timed=True) for _ in range(2))
    stream.record(before)
    for _ in range(20):
        any_device.gemm(ones, ones[:, :8], c, 0.0, stream)
    stream.record(after)
    after.synchronise()
    took = after.seconds_since(before)
    assert 0 < took and (any_device is not GPU or took <= time.perf_counter() - start)


@every_dtype
def test_copies_and_zeros_of_strided_parts(any_device, memories, dtype):
    whole = integers(1, 64, 96).astype(dtype)
    source, target = memories(whole), memories(np.zeros_like(whole))
    stream = any_device.stream("copies")
    any_device.poison(target, stream)
    step, (down, across) = whole.itemsize, whole.strides
    shape, strides = (3, 4, 5, 8), (16 * down, down, 16 * across, across)
    runs = np.lib.stride_tricks.as_strided(source[2:, 8:], shape, strides, subok=True)
    packed = target.reshape(-1)[:480].reshape(shape)
    any_device.copy(packed, runs, stream)
    any_device.copy(target[20:30, 3:40], source[30:40, 5:42], stream)
    any_device.zero(target[40:50, 1:50], stream)
    stream.synchronise()
    expected = np.full(whole.shape, np.nan)
    expected.reshape(-1)[:480] = np.lib.stride_tricks.as_strided(
        whole[2:, 8:], shape, strides
    ).reshape(-1)
    expected[20:30, 3:40] = whole[30:40, 5:42]
    expected[40:50, 1:50] = 0
    found = fetch(any_device, target).astype(float)
    assert step * 96 == down and np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("kind", ["integer", "sparse", "uniform"])
@every_dtype
def test_filling_and_checking_agree_with_the_host(any_device, memories, dtype, kind):
    fill, exact = Fill(kind, 5, 300) if kind != "sparse" else None, np.empty((70, 300))
    if kind == "sparse":
        kind, fill = "integer", Fill("integer", 5, 10**6, dtype="bfloat16:float32")
    fill.into(exact, "A", 1000, 0)
    tile = memories(np.full((72, 310), np.nan, dtype))[1:71, 4:304]
    assert not any_device.all_finite(tile)
    any_device.fill(tile, fill, "A", 1000, 0)
    assert any_device.all_finite(tile, whole=True) == (kind == "integer")
    assert any_device.all_finite(tile) and (fetch(any_device, tile) == exact.astype(dtype)).all()
    x = integers(3, 300, 2).astype(float)
    assert (any_device.times(tile, x) == exact.astype(dtype).astype(float) @ x).all()
    assert (any_device.hashed_times(fill, "A", 1000, 1070, 300, x) == exact @ x).all()
    rows = np.array([0, 7, 69])
    assert (any_device.rows_of(tile, rows) == exact.astype(dtype)[rows]).all()


def test_too_large_an_allocation_is_out_of_memory_and_the_device_continues(any_device, memories):
    with pytest.raises(OutOfMemory, match=r"35184372088832 bytes on .*: \d+ of its \d+ bytes are"):
        any_device.allocate(1 << 45)
    assert (
        any_device.all_finite(memories(np.zeros((4, 4), "f4")))
        and 0 < any_device.free_bytes() < 1 << 45
    )


IMPORTER = """
import sys, numpy as np
from drbench.device.address import at_address
from drbench.device.gpu.cuda import cuda_device
from drbench.errors import UnsupportedError
device = cuda_device(1, 2)
try:
    address = device.open_handle(bytes.fromhex(sys.argv[1]))
except UnsupportedError as error:
    print(error)
    sys.exit(3)
tile = at_address(address, 64 * 100, "f4").reshape(64, 100)
own, stream = device.allocate(64 * 96 * 4), device.stream("copies")
value = at_address(own.address, 64 * 96, "f4").reshape(64, 96)
device.copy(value, tile[:, :96], stream)
for _ in range(10):
    device.accumulate(tile[:, 4:], value, stream)
stream.synchronise()
device.close_handle(address)
"""


@pytest.mark.skipif(GPU is None, reason=WHY_NONE)
def test_another_process_reads_a_tile_and_adds_into_it():
    device = GPU
    memory, stream = device.allocate(64 * 100 * 4), device.stream("copies")
    tile = at_address(memory.address, 64 * 100, "f4").reshape(64, 100)
    stage = np.ones((64, 100), "f4")
    device.copy(tile, stage, stream)
    stream.synchronise()
    command = [sys.executable, "-c", IMPORTER, device.ipc_handle(memory).hex()]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
    if done.returncode == 3:
        memory.free()
        pytest.skip(done.stdout)
    assert done.returncode == 0
    expected = np.ones((64, 100))
    expected[:, 4:] += 10
    assert (fetch(device, tile) == expected).all()
    memory.free()


@pytest.mark.parametrize("factor", [0.0, 2.0, -0.5])
def test_scaled_tiles_and_gemms_with_alpha_and_beta(any_device, memories, factor):
    """C = factor·C, and C = alpha·A·B + beta·C."""
    whole, stream = integers(5, 40, 48).astype("f4"), any_device.stream("compute")
    tile = memories(np.where(whole == 0, np.nan if factor == 0 else 0, whole).astype("f4"))
    any_device.scale(tile[4:36, 8:40], factor, stream)
    stream.synchronise()
    expected = whole.copy()
    expected[4:36, 8:40] *= factor
    assert (fetch(any_device, tile)[4:36, 8:40] == expected[4:36, 8:40]).all()
    a, b, c = (memories(integers(seed, 32, 32).astype("f4")) for seed in (1, 2, 3))
    any_device.gemm(a, b, c, factor, stream, alpha=3.0)
    stream.synchronise()
    made = 3 * (integers(1, 32, 32) @ integers(2, 32, 32)) + factor * integers(3, 32, 32)
    assert (fetch(any_device, c) == made).all()


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("columns", [640, 639])
def test_additions_during_gemms(any_device, memories, by_columns, columns):
    rows, stream = extent(any_device), any_device.stream("side")
    tile, value = integers(6, rows, columns), integers(7, rows, columns)
    on = memories(tile.astype("f4"))
    other = memories(value.T.astype("f4")).T if by_columns else memories(value.astype("f4"))
    for _ in range(3):
        any_device.add(on, other, stream, concurrent=True)
    stream.synchronise()
    assert (fetch(any_device, on) == tile + 3 * value).all()


def test_the_device_sees_pinned_memory(any_device, memories):
    """MPI writes it, the device adds from it: mirrors of remote ranks."""
    host = mmap.mmap(-1, 1 << 16)  # its own pages, as of a window
    array = np.frombuffer(host, np.float32)
    seen = any_device.pin(array)
    tile, stream = memories(np.ones((128, 128), "f4")), any_device.stream("out")
    for number in (2, 5):
        array[:] = number
        any_device.add(tile, seen.reshape(128, 128), stream)
        stream.synchronise()
    any_device.copy(seen.reshape(128, 128), tile, stream)
    stream.synchronise()
    assert (array == 8).all()
    any_device.unpin(array)
    del array, seen
    host.close()


@pytest.fixture
def flag(any_device):
    """One flag in device memory, 0."""
    memory, stream = any_device.allocate(512), any_device.stream("flags")
    found = at_address(memory.address, 128, np.uint32)
    any_device.zero(found.reshape(1, -1), stream)
    stream.synchronise()
    yield memory, found[5:6]
    any_device.synchronise()
    memory.free()


def still(event, seconds=0.05):
    """An event that is not reached for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert not event.query()
    return True


@on_the_gpu
def test_a_stream_waits_until_another_has_written_the_flag_and_sees_earlier_writes(
    any_device, memories, flag
):
    """The fake's waits block the host, so this needs a GPU."""
    size = extent(GPU)
    ones, slot, taken = (memories(np.full((size, size), value, "f4")) for value in (1, 0, 0))
    takes, sends, done = GPU.stream("in"), GPU.stream("push"), GPU.event()
    assert GPU.why_no_waits() is None
    for run in range(1, 6):
        GPU.wait_flag(flag[1], run, takes)
        GPU.copy(taken, slot, takes)
        takes.record(done)
        assert still(done)
        GPU.add(slot, ones, sends)
        GPU.write_flag(flag[1], run, sends)
        done.synchronise()
        assert (fetch(GPU, taken) == run).all()
    for number in (2**32 - 1, 0, 3):  # the comparison wraps around
        GPU.write_flag(flag[1], number, sends)
        sends.synchronise()
        GPU.wait_flag(flag[1], number, takes)
        GPU.wait_flag(flag[1], (number - 7) % 2**32, takes)
        takes.synchronise()
    GPU.wait_flag(flag[1], 4, takes)
    takes.record(done)
    assert still(done)
    GPU.write_flag(flag[1], 9, sends)
    done.synchronise()


@pytest.mark.skipif(GPU is None, reason=WHY_NONE)
def test_the_largest_block_of_every_kernel_can_be_launched():
    source = resources.files(kernels.__package__).joinpath("kernels.cu").read_text()
    module = require_gpu()[0].raw_module(code=source, options=("-std=c++17",))
    for name in kernels.NAMES:
        function = module.get_function(name)
        assert function.num_regs <= 64 and function.max_threads_per_block == 1024, name


SENDER = """
import sys, time
import numpy as np
from drbench.device.address import at_address
from drbench.device.gpu.cuda import cuda_device
device = cuda_device(0, 1)
flags, slot = (device.open_handle(bytes.fromhex(handle)) for handle in sys.argv[1:])
flag = at_address(flags, 128, np.uint32)[5:6]
slot = at_address(slot, 1 << 20, "f4").reshape(1024, 1024)
own = device.allocate(slot.nbytes)
value, stream = at_address(own.address, slot.size, "f4").reshape(slot.shape), device.stream("push")
device.copy(value, np.full(slot.shape, 7, "f4"), stream)
stream.synchronise()
sys.stdin.readline()
device.copy(slot, value, stream)
device.write_flag(flag, 1, stream)
stream.synchronise()
sys.stdin.readline()
device.close_handle(flags)
"""


@on_the_gpu
def test_a_stream_waits_for_the_flag_that_another_process_writes(any_device, memories, flag):
    memory = GPU.allocate(1 << 22)
    slot = at_address(memory.address, 1 << 20, "f4").reshape(1024, 1024)
    taken = memories(np.zeros((1024, 1024), "f4"))
    handles = [GPU.ipc_handle(each).hex() for each in (flag[0], memory)]
    command = [sys.executable, "-c", SENDER, *handles]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as sender:
        stream, done = GPU.stream("in"), GPU.event()
        GPU.wait_flag(flag[1], 1, stream)
        GPU.copy(taken, slot, stream)
        stream.record(done)
        assert still(done)
        sender.stdin.write("go\n")
        sender.stdin.flush()
        end = time.monotonic() + 60
        while not done.query():
            assert time.monotonic() < end and sender.poll() is None
        assert (fetch(GPU, taken) == 7).all()
        sender.stdin.write("end\n")
        sender.stdin.flush()
        assert sender.wait(60) == 0
    memory.free()


@on_the_gpu
def test_nccl_of_one_rank_executes_every_step(any_device, memories):
    if (why := why_no_nccl(1)) is not None:
        pytest.skip(why)
    from mpi4py import MPI

    group, stream = nccl_group(MPI.COMM_SELF, GPU), GPU.stream("row")
    sent, into = memories(np.arange(64, dtype="f4")), memories(np.zeros(64, "f4"))
    for step in (
        lambda: group.broadcast(sent, 0, stream),
        lambda: group.all_gather(sent, [64], stream),
        lambda: group.reduce(sent, into, 0, stream),
        lambda: group.reduce_scatter(sent, into, [64], stream),
        lambda: group.shift(into, sent, 0, 0, stream),
    ):
        step()
        stream.synchronise()
    assert (fetch(GPU, into) == np.arange(64)).all()
    group.close()
