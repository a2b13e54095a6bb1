"""The kernels of the CUDA device, run on the host through a shim: values equal those of NumPy, and
nothing outside their targets is written."""

import ctypes
import itertools
import re
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bordered import BORDER, bordered
from fake_cuda import SOURCE
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from drbench.device.address import DeviceArray
from drbench.device.gpu.kernels import (
    ACCUMULATE_BLOCKS,
    NAMES,
    ROWS_AT_ONCE,
    TIMES_THREADS,
    Kernels,
)
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.case import FIELDS

every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
extent = st.integers(1, 40)


def integers(rng, rows, columns):
    return rng.integers(-8, 9, (rows, columns))


def put(view):
    """The same memory as an array on a device."""
    return view.view(DeviceArray)


# -- sums


@pytest.mark.parametrize("what", ["accumulate", "add", "zero"])
@examples
@given(
    rows=extent,
    columns=extent,
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    left=st.integers(0, 8),
    right=st.integers(0, 4),
    blocks=st.sampled_from([1, 3, 16, 200]),
    by_columns=st.booleans(),
    otherwise=st.booleans(),
)
@example(1, 2, "float32", 0, 0, 1, True, False)  # a row of adjacent elements has both orders
def test_sums_and_zeros_are_those_of_numpy_at_any_shape_offset_leading_dimension_and_grid(
    what, new_device, rows, columns, dtype, left, right, blocks, by_columns, otherwise
):
    """By rows or by columns; a sum without atomics also takes a value of the other order."""
    device, rng = new_device(accumulate_blocks=blocks), np.random.default_rng(rows)
    x, y = integers(rng, rows, columns), integers(rng, rows, columns)
    other = by_columns != (otherwise and what == "add")
    dtype = "float32" if dtype == "bfloat16" and what != "zero" else dtype
    target, whole, outside = bordered(x, dtype, by_columns, left=left, right=right)
    value, source, border = bordered(y, dtype, other, left=4 - right, right=right)
    operands = [put(target), put(value)][: 1 if what == "zero" else 2]
    getattr(device, what)(*operands, device.stream("copies"))
    assert (target == (0 if what == "zero" else x + y)).all() and (value == y).all()
    assert (whole[outside] == BORDER).all() and (source[border] == BORDER).all()


@pytest.mark.parametrize(
    "columns, offset, border, vectors",
    [(8, 4, 4, True), (7, 4, 5, False), (8, 2, 4, False), (8, 4, 3, False)],
)
def test_four_floats_are_added_at_once_exactly_when_all_is_a_multiple_of_four(
    device, library, columns, offset, border, vectors
):
    target, *_ = bordered(np.zeros((3, columns)), "f4", above=0, left=offset, right=border)
    value = np.ones((3, columns), "f4")
    before = library.vector_additions()
    device.accumulate(put(target), put(value), device.stream("copies"))
    assert (target == 1).all() and library.vector_additions() - before == (
        3 * columns // 4 if vectors else 0
    )


def test_an_older_device_adds_float_by_float(cupy, new_device, library):
    older = {"name": b"older", "major": 8, "minor": 0, "multiProcessorCount": 108}
    cupy.runtime.getDeviceProperties = lambda index: older
    device, before = new_device(), library.vector_additions()
    target = np.zeros((4, 8), "f4")
    device.accumulate(put(target), put(np.ones((4, 8), "f4")), device.stream("copies"))
    assert (
        device.info.kernel == "sm_80"
        and (target == 1).all()
        and library.vector_additions() == before
    )


@pytest.mark.parametrize("columns", [40960, 6144, 4128, 2304, 49152, 1024, 100])
@pytest.mark.parametrize("blocks", [7, 12, 16, 60])
def test_the_grid_of_an_accumulate_is_capped_and_all_its_blocks_have_work(blocks, columns):
    """Few blocks are as large as they can be: each has a multiprocessor to itself. Where columns
    are no power of two, a grid along them alone would leave blocks idle."""
    tile = np.empty((4096, columns), "f4").view(DeviceArray)
    launch = Kernels(True, blocks).accumulate(tile, tile)
    (wide, tall, _), (across, down, _) = launch.grid, launch.block
    assert wide * tall <= blocks and across * down == 1024
    busiest = -(-(columns // 4) // (wide * across)) * -(-1024 // (tall * down))
    assert busiest * blocks * 1024 <= 1.2 * 1024 * (columns // 4) + blocks * 1024
    with pytest.raises(UsageError, match="at least 1 block, got 0"):
        Kernels(True, 0)
    assert FIELDS["accumulate_blocks"].default_text == str(ACCUMULATE_BLOCKS)


@pytest.mark.parametrize("dtype, columns", [("float32", 64), ("float32", 63), ("float64", 64)])
def test_threads_that_add_into_one_tile_at_once_lose_nothing(library, dtype, columns):
    tile = np.zeros((40, columns), dtype)
    value = np.ones_like(tile)
    kernels, start = Kernels(True), threading.Barrier(4)

    def add():
        start.wait()
        for _ in range(15):
            launch = kernels.accumulate(put(tile), put(value))
            library.launch(*launch)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tile == 60).all()


def test_sums_of_other_dtypes_shapes_and_layouts_are_refused(device):
    stream, tile = device.stream("copies"), np.zeros((4, 6), "f4")
    for target, value, error in [
        (tile.astype("i4"), tile.astype("i4"), "float32 or float64 on both sides, got int32"),
        (tile, tile.astype("f8"), r"got float32 \+= float64"),
        (tile, tile[:3], "one shape"),
        (tile, np.zeros((6, 4), "f4").T, "row-major"),
    ]:
        with pytest.raises((UnsupportedError, UsageError), match=error):
            device.accumulate(put(target), put(value), stream)


# -- GEMMs in double


@every_dtype
@pytest.mark.parametrize(
    "rows, columns, vectors", [(1, 1, 1), (3, 5, 2), (7, 130, 2), (2, 400, 3), (0, 4, 2), (3, 0, 2)]
)
def test_a_stored_matrix_times_vectors_is_exact_for_integers_and_repeats_bit_by_bit(
    device, dtype, rows, columns, vectors
):
    rng = np.random.default_rng(rows + columns)
    values, x = (
        integers(rng, rows, columns),
        rng.integers(-4096, 4097, (columns, vectors)).astype(float),
    )
    tile, *_ = bordered(values, dtype)
    assert (device.times(put(tile), x) == values @ x).all()
    if dtype == "float64":
        tile[...] = rng.standard_normal(tile.shape)
        x = rng.standard_normal(x.shape)
        first, second = device.times(put(tile), x), device.times(put(tile), np.asfortranarray(x))
        assert (first == second).all() and np.allclose(first, tile @ x, rtol=1e-12)


def test_memory_that_gemms_and_checks_borrow_is_released(device, cupy):
    tile = put(np.ones((3, 4), "f4"))
    before = cupy.runtime.used
    device.times(tile, np.ones((4, 2)))
    device.all_finite(tile)
    assert cupy.runtime.used == before and not cupy.runtime.allocations


# -- finite or not


@every_dtype
@pytest.mark.parametrize(
    "whole, bad", [(False, [np.nan, np.inf, -np.inf]), (True, [0.5, -2.75, np.nan, np.inf])]
)
def test_one_element_that_is_not_finite_or_not_whole_is_found_at_any_place(
    device, dtype, whole, bad
):
    for (rows, columns, *place), value in itertools.product(
        [(3, 5, 2, 4), (1, 1, 0, 0), (40, 300, 39, 0), (40, 300, 20, 299)], bad
    ):
        tile, memory, outside = bordered(np.full((rows, columns), -3), dtype)
        memory[outside] = value  # elements outside the tile do not count
        assert device.all_finite(put(tile), whole=whole)
        tile[*place] = value
        assert not device.all_finite(put(tile), whole=whole)


def test_the_largest_and_smallest_finite_numbers_are_finite(device):
    for limits in map(np.finfo, ("f4", "f8")):
        ends = limits.max, limits.min, limits.smallest_subnormal, 0.0
        assert device.all_finite(put(np.array([ends], limits.dtype)))


# -- the source


def test_every_kernel_of_the_source_is_launched_by_name():
    source = SOURCE.read_text()
    declared = re.findall(r"^KERNEL (\w+)\(", source, re.MULTILINE) + re.findall(
        r"^COPY\((\w+),", source, re.MULTILINE
    )
    assert sorted(declared) == sorted(NAMES)
    assert f"#define THREADS {TIMES_THREADS}\n" in source
    assert f"#define ROWS_AT_ONCE {ROWS_AT_ONCE}\n" in source


ARCHITECTURES = (80, 90, 100, 120)
#: A multiprocessor has 65 536 registers, and a block has up to 1024 threads.
MOST_REGISTERS = 64


def compile_for(nvrtc, source, architecture):
    """The log of the compiler and the PTX, with the options of CuPy."""

    def text(what):
        size = ctypes.c_size_t()
        assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        found = ctypes.create_string_buffer(size.value)
        assert getattr(nvrtc, f"nvrtcGet{what}")(program, found) == 0
        return found.value.decode()

    program, words = ctypes.c_void_p(), [f"-arch=sm_{architecture}", "-std=c++17", "-ftz=true"]
    words += ["--device-as-default-execution-space", "--ptxas-options=-v"]
    start = nvrtc.nvrtcCreateProgram
    assert start(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    failed = nvrtc.nvrtcCompileProgram(program, len(words), options)
    assert not failed, text("ProgramLog")
    return text("ProgramLog"), text("PTX")


def resources(log):
    """For each kernel its registers, and its bytes of stack and of spilled registers."""
    lines = r"Function properties for (\w+)\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, "
    lines += r"(\d+) bytes spill loads\n.*Used (\d+) reg"
    return {name: (int(used), *map(int, rest)) for name, *rest, used in re.findall(lines, log)}


@pytest.fixture(scope="module")
def compiled():
    """For each architecture the log and the PTX of all kernels; 0: of sm_100 without bounds."""
    path = Path(sysconfig.get_path("purelib"), "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    if not path.exists():
        pytest.skip("no NVRTC: make test-torch installs it")
    nvrtc = ctypes.CDLL(str(path))
    source = SOURCE.read_text()
    unbound = source.replace("__launch_bounds__(1024)", "")
    works = [(source, each) for each in ARCHITECTURES] + [(unbound, 100)]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda work: compile_for(nvrtc, *work), works)
        return dict(zip((*ARCHITECTURES, 0), made))


@pytest.mark.wheels
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_and_its_largest_block_fits_a_multiprocessor(compiled, architecture):
    used, spilled = resources(compiled[architecture][0]), 32 if architecture == 80 else 0
    assert {*used} == {*NAMES} and max(used.values())[0] <= MOST_REGISTERS
    assert max(most for _, *sizes in used.values() for most in sizes) <= spilled
    assert not any(any(sizes) for name, (_, *sizes) in used.items() if "x4" in name)


@pytest.mark.wheels
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_additions_are_atomic_for_all_gpus_and_of_four_floats_from_9_0_on(compiled, architecture):
    """Of the whole system: a GPU adds into memory of another."""
    _, *kernels = re.split(r"\.entry (?=\w+\()", compiled[architecture][1])
    assert len(kernels) == len(NAMES)
    for text in kernels:
        name = re.match(r"\w+", text)[0]
        found = set(re.findall(r"\b(?:atom|red)\.[\w.]+", text))
        four = "v4.f32" if architecture >= 90 else "f32"
        kinds = {"accumulate_f32": "f32", "accumulate_f64": "f64", "accumulate_f32x4": four}
        assert {each.partition(".")[2] for each in found} == (
            {f"global.sys.add.{kinds[name]}"} if name in kinds else set()
        )


@pytest.mark.wheels
def test_without_launch_bounds_a_kernel_would_not_fit_blackwell(compiled):
    assert max(resources(compiled[0][0]).values())[0] > MOST_REGISTERS
