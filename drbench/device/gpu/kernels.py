"""How the kernels of ``kernels.cu`` are launched: which one, on which grid, with which
arguments."""

import functools
from collections.abc import Callable

import numpy as np

from drbench.errors import UnsupportedError, UsageError

from .copies import Axis, in_words

_SUFFIX = {"float32": "f32", "float64": "f64", "bfloat16": "bf16"}
#: Every kernel.
NAMES = (
    "accumulate_f32",
    "accumulate_f64",
    "accumulate_f32x4",
    "add_f32",
    "add_f64",
    "scale_f32",
    "scale_f64",
    "zero_b2",
    "zero_b4",
    "zero_b8",
    "copy_b2",
    "copy_b4",
    "copy_b8",
    "copy_b16",
    "fill_f32",
    "fill_f64",
    "fill_bf16",
    "times_f32",
    "times_f64",
    "times_bf16",
    "hashed_times",
    "not_finite_f32",
    "not_finite_f64",
    "not_finite_bf16",
)
_THREADS = 256
#: Threads of a block of ``times_*`` and ``hashed_times``; THREADS in kernels.cu.
PRODUCT_THREADS = 128
_MOST_BLOCKS_DOWN = 65535  # of a grid's second axis


class Kernels:
    """Launches with arguments made from arrays.

    Parameters
    ----------
    launch : callable
        ``launch(name, grid, block, arguments, stream)``; arguments are NumPy scalars of the width
        the kernel declares.
    vector_atomics : bool
        Whether four neighbouring floats can be added in one operation (compute capability 9.0 and
        later).
    accumulate_blocks : int or None
        At most so many blocks add at a time, which leaves the other multiprocessors to GEMMs; None
        for as many as there is work for.
    multiprocessors : int
        Of the device. A sum beside products takes at most as many blocks, which is an eighth of the
        threads that run at the same time, or ``accumulate_blocks``.
    """

    def __init__(
        self,
        launch: Callable,
        vector_atomics: bool,
        accumulate_blocks: int | None = None,
        multiprocessors: int = 1,
    ):
        if accumulate_blocks is not None and accumulate_blocks < 1:
            raise UsageError(f"accumulate needs at least 1 block, got {accumulate_blocks}.")
        self._launch, self._vectors, self._accumulate_blocks = (
            launch,
            vector_atomics,
            accumulate_blocks,
        )
        self._blocks_beside = accumulate_blocks or multiprocessors

    def accumulate(self, target, value, stream) -> None:
        """target += value, atomically; float32 or float64."""
        name = self._sum("accumulate", target, value)
        rows, columns = target.shape
        places = target.ctypes.data, _leading(target), value.ctypes.data, _leading(value)
        arguments = _words64(*places, *target.shape)
        if (
            self._vectors
            and name == "accumulate_f32"
            and not (
                columns % 4 or places[0] % 16 or places[1] % 4 or places[2] % 16 or places[3] % 4
            )
        ):
            name, columns = "accumulate_f32x4", columns // 4
        self._over(name, rows, columns, arguments, stream, self._accumulate_blocks)

    def add(self, target, value, stream, beside: bool = False) -> None:
        """target += value; float32 or float64. The value may lie by rows or by columns. ``beside``
        products the grid is capped."""
        name, item = self._sum("add", target, value), value.itemsize
        down, across = (step // item for step in value.strides)
        places = target.ctypes.data, _leading(target), value.ctypes.data, down, across
        most = self._blocks_beside if beside else None
        self._over(name, *target.shape, _words64(*places, *target.shape), stream, most)

    def scale(self, target, factor: float, stream) -> None:
        """target *= factor; float32 or float64."""
        if target.dtype.char not in "fd":
            raise UnsupportedError(
                f"our scale kernel takes float32 or float64, got {target.dtype}."
            )
        arguments = [*_whole(target), target.dtype.type(factor)]
        self._over(f"scale_{_suffix(target.dtype)}", *target.shape, arguments, stream)

    def zero(self, target, stream) -> None:
        """target = 0; elements of 2, 4 or 8 bytes."""
        self._over(
            f"zero_b{_words(target.itemsize)}",
            *target.shape,
            _whole(target),
            stream,
        )

    def copy(self, axes: list[Axis], itemsize: int, target: int, source: int, stream) -> None:
        """Move elements of ``itemsize`` bytes from one address to another along at most four axes
        with strides in bytes."""
        word, axes = in_words(axes, _words(itemsize), target, source)
        extents = [axis.extent for axis in axes]
        rows, columns = extents[0] * extents[1], extents[2] * extents[3]
        if max(rows, columns) >= 1 << 32:
            raise UnsupportedError(
                f"our copy kernel counts rows and columns in 32 bits, got {rows}x{columns}; cut "
                "the copy in two."
            )
        to, of = (
            _words64(target, *(axis.target for axis in axes)),
            _words64(source, *(axis.source for axis in axes)),
        )
        self._over(f"copy_b{word}", rows, columns, [*to, *of, *map(np.uint32, extents)], stream)

    def fill(self, target, fill, matrix: str, row0: int, col0: int, stream) -> None:
        """:meth:`drbench.host.fill.Fill.into`, in float32, float64 or (rounded once, from float32)
        bfloat16. A target whose columns are contiguous is filled as it lies."""
        turned = target.strides[0] < target.strides[1]
        target = target.T if turned else target
        arguments = [
            *_whole(target),
            *_words64(row0, col0),
            np.uint32(turned),
            *_hash(fill, matrix),
        ]
        self._over(f"fill_{_suffix(target.dtype)}", *target.shape, arguments, stream)

    def times(self, tile, x: int, vectors: int, out: int, stream) -> None:
        """out = tile · x in double; ``x`` and ``out`` are addresses of columns×vectors and
        rows×vectors doubles without gaps."""
        rows, columns = tile.shape
        self._product(
            f"times_{_suffix(tile.dtype)}",
            rows,
            _words64(tile.ctypes.data, _leading(tile), columns),
            x,
            vectors,
            out,
            stream,
        )

    def hashed_times(
        self,
        fill,
        matrix: str,
        row0: int,
        row1: int,
        columns: int,
        x: int,
        vectors: int,
        out: int,
        stream,
    ) -> None:
        """out = rows [row0, row1) of A or B, remade from their hash, times x."""
        self._product(
            "hashed_times",
            row1 - row0,
            [*_words64(row0), *_hash(fill, matrix), *_words64(columns)],
            x,
            vectors,
            out,
            stream,
        )

    def not_finite(self, tile, whole: bool, found: int, stream) -> None:
        """Set the 32-bit integer at address ``found`` to 1 if an element is NaN or infinite, or (if
        ``whole``) has a fraction; it is left alone otherwise."""
        self._over(
            f"not_finite_{_suffix(tile.dtype)}",
            *tile.shape,
            [*_whole(tile), np.uint32(whole), *_words64(found)],
            stream,
        )

    def _sum(self, what: str, target, value) -> str:
        """The kernel's name."""
        if target.dtype != value.dtype or target.dtype.char not in "fd":
            raise UnsupportedError(
                f"our {what} kernel takes float32 or float64 on both sides, got {target.dtype} "
                f"+= {value.dtype}."
            )
        if target.shape != value.shape:
            raise UsageError(f"{what} needs one shape, got {target.shape} += {value.shape}.")
        return f"{what}_{_suffix(target.dtype)}"

    def _over(
        self,
        name: str,
        rows: int,
        columns: int,
        arguments: list,
        stream,
        most_blocks: int | None = None,
    ) -> None:
        """One thread for each element (or four of them) if the grid is large enough; blocks are as
        wide as short rows need."""
        if not (rows and columns):
            return
        across = min(_THREADS, 1 << (columns - 1).bit_length())
        down = _THREADS // across
        grid = [min(-(-columns // across), (1 << 31) - 1), min(-(-rows // down), _MOST_BLOCKS_DOWN)]
        if most_blocks is not None:
            grid[0] = min(grid[0], most_blocks)
            grid[1] = min(grid[1], most_blocks // grid[0])
        self._launch(name, (*grid, 1), (across, down, 1), arguments, stream)

    def _product(
        self, name: str, rows: int, matrix: list, x: int, vectors: int, out: int, stream
    ) -> None:
        if rows and vectors:
            arguments = [*matrix, *_words64(x, vectors, out)]
            self._launch(name, (rows, vectors, 1), (PRODUCT_THREADS, 1, 1), arguments, stream)


def _leading(x) -> int:
    """Leading dimension of a row-major matrix in elements."""
    (rows, columns), (down, across), step = x.shape, x.strides, x.itemsize
    if (columns > 1 and across != step) or (rows > 1 and down % step):
        raise UsageError(
            f"kernels take row-major matrices, got strides {x.strides} for {step} bytes."
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
        np.uint32(2 * fill.bound + 1 if fill.kind == "integer" else 0),
    ]


@functools.cache
def _suffix(dtype: np.dtype) -> str:
    try:
        return _SUFFIX[dtype.name]
    except KeyError:
        raise UnsupportedError(f"our kernels take {', '.join(_SUFFIX)}, got {dtype}.") from None


def _words(itemsize: int) -> int:
    if itemsize not in (2, 4, 8):
        raise UnsupportedError(f"our kernels take elements of 2, 4 or 8 bytes, got {itemsize}.")
    return itemsize
