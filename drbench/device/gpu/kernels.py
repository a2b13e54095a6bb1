"""Launches of the kernels of ``kernels.cu``: kernel, grid and arguments."""

import ctypes
import functools
from collections.abc import Callable
from math import gcd
from typing import NamedTuple

import numpy as np

from drbench.errors import CaseFailed, UnsupportedError, UsageError

from .copies import CopyAxis, in_words

_SUFFIX = {"float32": "f32", "float64": "f64", "bfloat16": "bf16"}
#: Every kernel.
NAMES = (
    "accumulate_f32 accumulate_f64 accumulate_f32x4 add_f32 add_f64 add_f32x4 scale_f32 "
    "scale_f64 zero_b2 zero_b4 zero_b8 copy_b2 copy_b4 copy_b8 copy_b16 copy_rows fill_f32 "
    "fill_f64 fill_bf16 times_f32 times_f64 times_bf16 hashed_times not_finite_f32 "
    "not_finite_f64 not_finite_bf16"
).split()
#: Threads of a block, and of a block in a small grid: on an H100 16 such blocks add 0.6 TB/s, 16 of
#: 256 threads a fifth of it.
_THREADS, _THREADS_OF_FEW = 256, 1024
#: Blocks that add during GEMMs by default: on an H100 they move as much as its NVLink does
#: (450 GB/s), nine tenths of it hidden behind a GEMM. With a block for each part of the work
#: nothing is hidden.
ACCUMULATE_BLOCKS = 12
_WORD = 16  # bytes
#: Rows that a thread of a kernel over words moves at once; ROWS_AT_ONCE in kernels.cu.
ROWS_AT_ONCE = 4
#: Threads of a block of ``times_*`` and ``hashed_times``; THREADS in kernels.cu.
TIMES_THREADS = 128
_MOST_BLOCKS_DOWN = 65535  # of a grid's second axis


class Launch(NamedTuple):
    """A kernel with its grid and arguments (NumPy scalars of the width that it declares)."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple


class KernelLauncher:
    """Launches kernels by the driver, which takes the host 1 / 1.4 of the time of CuPy.

    Parameters
    ----------
    driver
        CUDA's library.
    functions : dict of str to int
        The driver's handles of the kernels, by name.
    """

    def __init__(self, driver, functions: dict[str, int]):
        self._start, self._functions = driver.cuLaunchKernel, functions

    def ready(self, launch: Launch) -> Callable[[int], None]:
        """A function that starts a launch on a stream, with its arguments prepared."""
        cells = [np.array([argument]) for argument in launch.arguments]
        arguments = (ctypes.c_void_p * len(cells))(*(cell.ctypes.data for cell in cells))
        arguments.cells = cells  # kept with the addresses
        function = ctypes.c_void_p(self._functions[launch.name])
        words = tuple(map(ctypes.c_uint, (*launch.grid, *launch.block, 0)))

        def start(stream: int) -> None:
            status = self._start(function, *words, ctypes.c_void_p(stream), arguments, None)
            if status:
                raise CaseFailed(
                    f"cuLaunchKernel failed with error {status} of the driver for {launch.name}. "
                    "Run the case with --backend numpy, and report the device and its driver."
                )

        return start


class Kernels:
    """The launches for given arrays: a :class:`Launch`, or None if there is no work.

    Parameters
    ----------
    vector_atomics : bool
        Whether four neighbouring floats can be added in one operation (compute capability 9.0 and
        later).
    accumulate_blocks : int
        Most blocks of an accumulate, or of a reduction during GEMMs, at the same time, each on a
        multiprocessor that GEMMs do not use.
    """

    def __init__(self, vector_atomics: bool, accumulate_blocks: int = ACCUMULATE_BLOCKS):
        if accumulate_blocks < 1:
            raise UsageError(f"accumulate needs at least 1 block, got {accumulate_blocks}.")
        self._vectors, self._accumulate_blocks = vector_atomics, accumulate_blocks

    def accumulate(self, target, value) -> Launch | None:
        """target += value, atomically; float32 or float64."""
        most = self._accumulate_blocks
        return self._add("accumulate", target, value, self._vectors, most, _leading(value))

    def add(self, target, value, concurrent: bool = False) -> Launch | None:
        """target += value; float32 or float64. The value may be row- or column-major. With
        ``concurrent`` GEMMs the grid is limited."""
        down, across = (step // value.itemsize for step in value.strides)
        by_words = across == 1 or value.shape[1] == 1
        most = self._accumulate_blocks if concurrent else None
        return self._add("add", target, value, by_words, most, down, across)

    def scale(self, target, factor: float) -> Launch | None:
        """target *= factor; float32 or float64."""
        if target.dtype.char not in "fd":
            raise UnsupportedError(
                f"the scale kernel needs float32 or float64, got {target.dtype}."
            )
        arguments = [*_whole(target), target.dtype.type(factor)]
        return _over(f"scale_{_suffix(target.dtype)}", *target.shape, arguments)

    def zero(self, target) -> Launch | None:
        """target = 0; elements of 2, 4 or 8 bytes."""
        return _over(f"zero_b{_words(target.itemsize)}", *target.shape, _whole(target))

    def copy(self, axes: list[CopyAxis], itemsize: int, target: int, source: int) -> Launch | None:
        """Move elements of ``itemsize`` bytes from one address to another along at most four axes
        with strides in bytes."""
        word, axes = in_words(axes, _words(itemsize), target, source)
        extents = [axis.extent for axis in axes]
        rows, columns = extents[0] * extents[1], extents[2] * extents[3]
        if max(rows, columns) >= 1 << 32:
            raise UnsupportedError(
                f"the copy kernel has 32-bit rows and columns, got {rows}x{columns}; cut the copy "
                "in two."
            )
        to, of = (
            _words64(target, *(axis.target for axis in axes)),
            _words64(source, *(axis.source for axis in axes)),
        )
        return _over(f"copy_b{word}", rows, columns, [*to, *of, *map(np.uint32, extents)])

    def copy_rows(
        self,
        target: int,
        source: int,
        count: int,
        width: int,
        to_stride: int,
        of_stride: int,
        concurrent: bool = False,
    ) -> Launch | None:
        """Copy rows with row strides, all numbers in bytes; None unless all but ``count`` are
        multiples of 16. With ``concurrent`` GEMMs the grid is limited."""
        if gcd(_WORD, target, source, width, to_stride, of_stride) < _WORD:
            return None
        rows = Words(target, to_stride // _WORD, source, of_stride // _WORD, count, width // _WORD)
        return _words_of_rows("copy_rows", rows, self._accumulate_blocks if concurrent else None)

    def fill(self, target, fill, matrix: str, row0: int, col0: int) -> Launch | None:
        """:meth:`drbench.host.fill.Fill.into`, in float32, float64 or (rounded once, from float32)
        bfloat16. A target may have contiguous columns."""
        transposed = target.strides[0] < target.strides[1]
        target = target.T if transposed else target
        arguments = [
            *_whole(target),
            *_words64(row0, col0),
            np.uint32(transposed),
            *_hash(fill, matrix),
        ]
        return _over(f"fill_{_suffix(target.dtype)}", *target.shape, arguments)

    def times(self, tile, x: int, vectors: int, out: int) -> Launch | None:
        """out = tile · x in double; ``x`` and ``out`` are addresses of columns×vectors and
        rows×vectors doubles without gaps."""
        rows, columns = tile.shape
        words = _words64(tile.ctypes.data, _leading(tile), columns)
        return _multiply_by_vectors(f"times_{_suffix(tile.dtype)}", rows, words, x, vectors, out)

    def hashed_times(
        self,
        fill,
        matrix: str,
        rows: tuple[int, int],
        columns: int,
        x: int,
        vectors: int,
        out: int,
    ) -> Launch | None:
        """out = rows [start, stop) of A or B, regenerated from their hash, times x."""
        start, stop = rows
        words = [*_words64(start), *_hash(fill, matrix), *_words64(columns)]
        return _multiply_by_vectors("hashed_times", stop - start, words, x, vectors, out)

    def not_finite(self, tile, whole: bool, flag: int) -> Launch | None:
        """Set the 32-bit integer at address ``flag`` to 1 if an element is NaN or infinite, or (if
        ``whole``) has a fraction; else it is not changed."""
        arguments = [*_whole(tile), np.uint32(whole), *_words64(flag)]
        return _over(f"not_finite_{_suffix(tile.dtype)}", *tile.shape, arguments)

    def _add(
        self, what: str, target, value, by_words: bool, most_blocks: int | None, *strides: int
    ) -> Launch | None:
        """The kernel that adds a value with these strides, by words where both consist of them."""
        if target.dtype != value.dtype or target.dtype.char not in "fd":
            raise UnsupportedError(
                f"the {what} kernel needs float32 or float64 on both sides, got {target.dtype} "
                f"+= {value.dtype}."
            )
        if target.shape != value.shape:
            raise UsageError(f"{what} needs one shape, got {target.shape} += {value.shape}.")
        name = f"{what}_{_suffix(target.dtype)}"
        if by_words and target.dtype.char == "f" and (rows := _rows_of_words(target, value)):
            return _words_of_rows(f"{name}x4", rows, most_blocks)
        places = target.ctypes.data, _leading(target), value.ctypes.data, *strides
        return _over(name, *target.shape, _words64(*places, *target.shape), most_blocks)


class Words(NamedTuple):
    """Two matrices in words of 16 bytes: addresses, leading dimensions, extents."""

    target: int
    ldt: int
    source: int
    lds: int
    rows: int
    columns: int


def _rows_of_words(target, value) -> Words | None:
    """Two row-major matrices in words; None if they do not consist of whole words."""
    (rows, columns), item, per_word = target.shape, target.itemsize, _WORD // target.itemsize
    words = Words(
        target.ctypes.data, _leading(target), value.ctypes.data, _leading(value), rows, columns
    )
    if (
        gcd(_WORD, words.target, words.source, *(x * item for x in (*words[1:4:2], columns)))
        < _WORD
    ):
        return None
    return words._replace(
        ldt=words.ldt // per_word, lds=words.lds // per_word, columns=columns // per_word
    )


def _words_of_rows(name: str, words: Words, most_blocks: int | None = None) -> Launch | None:
    """A kernel whose threads move :data:`ROWS_AT_ONCE` rows at once."""
    down = -(-words.rows // ROWS_AT_ONCE)
    return _over(name, down, words.columns, _words64(*words), most_blocks)


def _over(
    name: str, rows: int, columns: int, arguments: list, most_blocks: int | None = None
) -> Launch | None:
    """A launch with one thread for each element (or word) if the grid is large enough; blocks are
    narrow for short rows. Blocks of a small grid have the most threads of a multiprocessor, and the
    shape with the least work for the busiest block."""
    if not (rows and columns):
        return None
    if most_blocks is None:
        across = min(_THREADS, 1 << (columns - 1).bit_length())
        grid, block = _grid(rows, columns, across, _THREADS)
    else:
        shapes = (
            _grid(rows, columns, 1 << power, _THREADS_OF_FEW, most_blocks // wide, wide)
            for power in range(5, _THREADS_OF_FEW.bit_length())
            for wide in range(1, min(most_blocks, -(-columns >> power)) + 1)
        )
        grid, block = min(shapes, key=functools.partial(_passes, rows, columns))
    return Launch(name, (*grid, 1), (*block, 1), tuple(arguments))


def _grid(rows, columns, across: int, threads: int, tall=_MOST_BLOCKS_DOWN, wide=(1 << 31) - 1):
    """A grid of at most tall x wide blocks of threads for a matrix, and its blocks, ``across``
    threads wide."""
    down = threads // across
    return (min(-(-columns // across), wide), min(-(-rows // down), tall)), (across, down)


def _passes(rows: int, columns: int, shape: tuple) -> tuple[int, int]:
    """The number of elements for each thread of the busiest block; among equal shapes wide blocks
    are first."""
    (wide, tall), (across, down) = shape
    return -(-columns // (wide * across)) * -(-rows // (tall * down)), -across


def _multiply_by_vectors(
    name: str, rows: int, matrix: list, x: int, vectors: int, out: int
) -> Launch | None:
    if not (rows and vectors):
        return None
    arguments = (*matrix, *_words64(x, vectors, out))
    return Launch(name, (rows, vectors, 1), (TIMES_THREADS, 1, 1), arguments)


def _leading(x) -> int:
    """Leading dimension of a row-major matrix in elements."""
    (rows, columns), (down, across), step = x.shape, x.strides, x.itemsize
    if (columns > 1 and across != step) or (rows > 1 and down % step):
        raise UsageError(
            f"kernels need row-major matrices, got strides {x.strides} for {step} bytes."
        )
    return down // step if rows > 1 else columns


def _whole(x) -> list:
    """Address, leading dimension and extents."""
    return _words64(x.ctypes.data, _leading(x), *x.shape)


def _words64(*numbers) -> list:
    """Addresses and extents as the 64-bit arguments of a kernel."""
    return list(map(np.int64, numbers))


def _hash(fill, matrix: str) -> list:
    return [
        np.uint32(fill.salt(matrix)),
        np.uint32(fill.levels + 256 * fill.bound if fill.kind == "integer" else 0),
    ]


@functools.cache
def _suffix(dtype: np.dtype) -> str:
    try:
        return _SUFFIX[dtype.name]
    except KeyError:
        raise UnsupportedError(f"kernels need {', '.join(_SUFFIX)}, got {dtype}.") from None


def _words(itemsize: int) -> int:
    if itemsize not in (2, 4, 8):
        raise UnsupportedError(f"kernels need elements of 2, 4 or 8 bytes, got {itemsize}.")
    return itemsize
