"""Copies on the CUDA device: every strided copy equals that of NumPy, by the fastest call."""

import numpy as np
import pytest
from fake_cuda import MAX_STRIDE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drbench.device.address import DeviceArray, at_address
from drbench.device.gpu import cuda
from drbench.device.gpu.copies import CopyAxis, as_row_copies
from drbench.device.gpu.kernels import Kernels
from drbench.errors import UnsupportedError, UsageError


@st.composite
def four_axes(draw):
    """(shape, element strides of one side, of the other): runs of rows × rows × runs of columns ×
    columns inside a matrix, or inside one that is stored by columns; or none of some."""
    sides, few = [], st.integers(1, 4)
    rows, columns = (draw(few), draw(st.integers(0, 5))), (draw(few), draw(st.integers(0, 9)))
    for _ in range(2):
        above, left = (draw(st.integers(0, 8)) if each > 1 else 0 for each in (rows[0], columns[0]))
        outer, inner = (rows, above), (columns, left)
        by_columns = draw(st.booleans())
        if by_columns:
            outer, inner = inner, outer
        ((_, high), down), ((runs, wide), across) = outer, inner
        ld = runs * (wide + across) + draw(st.integers(0, 5))
        strides = (high + down) * ld, ld, wide + across, 1
        sides.append(strides[2:] + strides[:2] if by_columns else strides)
    return (*rows, *columns), *sides


def side(shape, strides, dtype, offset, seed):
    """A strided view into memory of its own: (view, memory)."""
    size = sum((extent - 1) * stride for extent, stride in zip(shape, strides) if extent) + 1
    flat = np.random.default_rng(seed).integers(1, 1000, size + offset + 4).astype(dtype)
    strides = [stride * flat.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, strides), flat


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    axes=four_axes(),
    dtype=st.sampled_from(["u2", "f4", "f8"]),
    offsets=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    seed=st.integers(0, 99),
)
def test_a_copy_of_two_or_four_axes_is_that_of_numpy_and_writes_nothing_else(
    device, axes, dtype, offsets, seed
):
    shape, *strides = axes
    target, into = side(shape, strides[0], dtype, offsets[0], seed)
    source, _ = side(shape, strides[1], dtype, offsets[1], seed + 1000)
    expected = into.copy()
    np.lib.stride_tricks.as_strided(expected[offsets[0] :], shape, target.strides)[...] = source
    if shape[0] == shape[2] == 1:
        target, source = target[0, :, 0], source[0, :, 0]
    device.copy(target.view(DeviceArray), source.view(DeviceArray), device.stream("copies"))
    assert (into == expected).all()


def by_which_way(device, cupy, target, source):
    cupy.runtime.calls.clear()
    cupy.module.launches.clear()
    device.copy(target, source, device.stream("copies"))
    return [call[0] for call in cupy.runtime.calls] + [
        launch.name for launch in cupy.module.launches
    ]


def test_contiguous_bytes_strided_rows_and_other_copies_use_different_calls(device, cupy):
    whole, flat = np.zeros((8, 16), "f4").view(DeviceArray), np.zeros(128, "f4").view(DeviceArray)
    assert by_which_way(device, cupy, flat, whole.reshape(-1)) == ["memcpyAsync"]
    assert by_which_way(device, cupy, whole, flat.reshape(8, 16)) == ["memcpyAsync"]
    assert by_which_way(device, cupy, whole[2:4], flat[:32].reshape(2, 16)) == ["memcpyAsync"]
    assert by_which_way(device, cupy, whole[:, 3:9], flat[:48].reshape(8, 6)) == ["memcpy2DAsync"]
    assert by_which_way(device, cupy, whole[:, 3:4], flat[:8].reshape(8, 1)) == ["memcpy2DAsync"]
    runs = np.lib.stride_tricks.as_strided(whole, (2, 2, 2, 4), (256, 64, 32, 4), subok=True)
    assert by_which_way(device, cupy, flat[:32].reshape(2, 2, 2, 4), runs) == ["copy_b16"]
    assert by_which_way(device, cupy, flat[1:33].reshape(2, 2, 2, 4), runs) == ["copy_b4"]
    row_again = np.lib.stride_tricks.as_strided(flat, (8, 16), (0, 4), subok=True)
    assert by_which_way(device, cupy, whole, row_again) == ["copy_b16"]
    assert by_which_way(device, cupy, flat[:0], flat[:0]) == []


def test_long_copies_of_rows_inside_the_device_use_the_kernel(device, cupy, monkeypatch):
    """Where all is a multiple of 16 bytes; another device's memory and the host's are left to the
    copy engine."""
    monkeypatch.setattr(cuda, "_LONG_COPY", 7 * 48 * 4)
    memories = [device.allocate(4 * 640) for _ in range(2)]
    target, source = (at_address(m.address, 640, "f4").reshape(10, 64) for m in memories)
    source.view(np.ndarray)[...] = np.arange(640).reshape(10, 64)
    for rows, columns, way in (
        (slice(0, 7), slice(8, 56), "copy_rows"),
        (slice(0, 7), slice(9, 57), "memcpy2DAsync"),
        (slice(0, 7), slice(8, 59), "memcpy2DAsync"),
        (slice(0, 6), slice(8, 56), "memcpy2DAsync"),
    ):
        target.view(np.ndarray)[...] = -1
        assert by_which_way(device, cupy, target[rows, columns], source[rows, columns]) == [way]
        expected = np.full((10, 64), -1.0)
        expected[rows, columns] = source.view(np.ndarray)[rows, columns]
        assert (target.view(np.ndarray) == expected).all()
    elsewhere = np.zeros((10, 64), "f4").view(DeviceArray)
    for pair in ((target, elsewhere), (elsewhere, target)):
        one, other = (each[:7, 8:56] for each in pair)
        assert by_which_way(device, cupy, one, other) == ["memcpy2DAsync"]
    for memory in memories:
        memory.free()


@pytest.mark.parametrize("widest, narrow", [(0, ()), (2048, (512, 2048)), (1 << 20, (512, 2048))])
def test_rows_of_another_device_are_copied_by_the_faster_of_two_ways(
    cupy, new_device, monkeypatch, widest, narrow
):
    """Both are timed when memory of another device is opened: here the copy engine needs three
    times as long for rows up to a width. (An event of the fake has the length of its log as its
    time.)"""
    owner, device = new_device(0), new_device(1)
    by_engine = cupy.runtime.memcpy2DAsync

    def slow(*words):
        cupy.log.extend([None] * (3 if words[4] <= widest else 0))
        return by_engine(*words)

    monkeypatch.setattr(cupy.runtime, "memcpy2DAsync", slow)
    theirs = owner.allocate(1 << 20)
    handle = owner.ipc_handle(theirs)
    address = device.open_handle(handle)
    assert not device._living
    there = at_address(address, 1 << 18, "f4")
    mine = np.zeros(1 << 18, "f4").view(DeviceArray)
    for width in (512, 2048, 16384):
        of, to = (each.reshape(-1, width // 2)[:, : width // 4] for each in (there, mine))
        way = ["copy_rows"] if width in narrow else ["memcpy2DAsync"]
        assert by_which_way(device, cupy, to, of) == way
        if width in narrow:  # GEMMs keep the other multiprocessors
            grid = cupy.module.launches[-1].grid
            assert grid[0] * grid[1] <= device.accumulate_blocks
    same = new_device(0)
    before = len(cupy.log)
    same.open_handle(handle)
    assert len(cupy.log) == before  # ranks that share a device time nothing
    for importer in (device, same):
        importer.close_handle(address)
    theirs.free()


def test_a_repeated_copy_is_prepared_once(device, monkeypatch):
    worked_out = []
    monkeypatch.setattr(
        cuda, "as_row_copies", lambda *given: worked_out.append(1) or as_row_copies(*given)
    )
    target, source = (np.zeros((8, 16), "f4").view(DeviceArray)[:, :9] for _ in range(2))
    stream = device.stream("copies")
    for number in range(4):
        source.view(np.ndarray)[...] = number
        device.copy(target, source, stream)
        assert (target.view(np.ndarray) == number).all()
    device.copy(source, target, stream)
    assert len(worked_out) == 2


def test_a_row_stride_of_more_than_31_bits_is_copied_by_the_kernel():
    far = [CopyAxis(3, MAX_STRIDE + 1, 64), CopyAxis(16, 4, 4)]
    assert as_row_copies(far, 4) is None
    assert as_row_copies([far[0]._replace(target=MAX_STRIDE), far[1]], 4) == (
        3,
        64,
        MAX_STRIDE,
        64,
    )


def test_a_copy_of_more_rows_than_the_kernel_counts_is_refused():
    axes = lambda rows: [
        CopyAxis(1 << 16, 1 << 30, 64),
        CopyAxis(rows, 1 << 10, 64),
        *[CopyAxis(1, 4, 4)] * 2,
    ]
    assert Kernels(True).copy(axes((1 << 16) - 1), 4, 0, 0).name == "copy_b4"
    with pytest.raises(UnsupportedError, match="4294967296x1; cut the copy in two"):
        Kernels(True).copy(axes(1 << 16), 4, 0, 0)


def test_rows_are_copied_between_host_and_device(device, cupy):
    tile = np.arange(48, dtype="f4").reshape(6, 8)
    stream = device.stream("copies")
    pinned = device.allocate_host(6 * 4 * 4).view("f4").reshape(6, 4)
    device.copy(pinned, tile[:, 2:6].view(DeviceArray), stream)
    assert (pinned == tile[:, 2:6]).all()
    assert cupy.runtime.calls[-1][:4] == ("memcpy2DAsync", 16, 6, 4)
    pinned += 100
    device.copy(tile[:, 2:6].view(DeviceArray), pinned, stream)
    assert (tile[:, 2:6] == pinned).all() and (tile[:, 6:] < 100).all()
    with pytest.raises(UnsupportedError, match="pack on the device first"):
        device.copy(np.zeros((4, 6), "f4"), tile[:, :4].T.view(DeviceArray), stream)


def test_copies_of_different_shapes_or_dtypes_are_refused(device):
    tile = np.zeros((4, 4), "f4").view(DeviceArray)
    for target, source in [(tile, tile[:2]), (tile, np.zeros((4, 4)).view(DeviceArray))]:
        with pytest.raises(UsageError, match="one shape and dtype"):
            device.copy(target, source, device.stream("copies"))
