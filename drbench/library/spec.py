"""Specs of matrices: shape, type and partition; equal specs are one object."""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from operator import index
from typing import SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from drbench.arrays import numpy_type
from drbench.errors import UsageError, shown
from drbench.partitions import LayoutError, Partition, partition, sources, stored_runs, summed
from drbench.partitions.intervals import Pair

#: Types of elements.
TYPES = ("float32", "float64", "complex64", "complex128", "bfloat16")
#: How a matrix is laid out: a text form of :mod:`drbench.partitions.text` or
#: :mod:`drbench.partitions.dtensor`, a partition, or the spec of another matrix.
Layout: TypeAlias = "str | Partition | Spec"
#: Requests that are cached.
_MOST = 4096


def as_int(value: object) -> int | None:
    """A whole number as an int; None for anything else: a float, a text, True, an array.

    Examples
    --------
    >>> import numpy as np
    >>> [as_int(value) for value in (3, np.int64(3), 3.0, True, "3")]
    [3, 3, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:  # an array of several elements, or of floats
        return None


class Spec:
    """Shape, type and partition of a distributed matrix, on one rank of a context.

    Made by :meth:`Specs.of`, which returns the same object for the same request, so that plans are
    found by identity.

    Attributes
    ----------
    shape : (int, int)
    dtype : numpy dtype
    partition : Partition
    local_shape : (int, int)
        Of this rank's local array: its rows × its columns, in the order of the whole matrix.
    conjugated : bool
        The elements are the conjugates of those in memory.
    """

    def __init__(self, whole: Partition, dtype: np.dtype, rank: int, conjugated: bool = False):
        self.partition, self.dtype, self.rank = whole, dtype, rank
        self.conjugated = conjugated
        self.shape, self.text = whole.shape, whole.text
        self.local_shape = whole.local_shape(rank)
        self._transposed: Spec | None = None
        self._adjoint: Spec | None = None
        self._parts: dict[tuple, tuple[Spec, slice, slice]] = {}

    @property
    def layout(self) -> str:
        """Text form of the partition; of a part, that of the whole."""
        part_of = self.partition.part_of
        return self.text if part_of is None else part_of[0].text

    @property
    def T(self) -> "Spec":
        """The spec of the transposed matrix."""
        if self._transposed is None:
            self._transposed = self._like(self.partition.transposed())
            self._transposed._transposed = self
        return self._transposed

    @property
    def H(self) -> "Spec":
        """The spec of the conjugate transpose; of real numbers that of the transpose."""
        if self.dtype.kind != "c":
            return self.T
        if self._adjoint is None:
            self._adjoint = self._like(self.partition.transposed())
            self._adjoint.conjugated = not self.conjugated
            self._adjoint._adjoint = self
        return self._adjoint

    def _like(self, whole: Partition) -> "Spec":
        return Spec(whole, self.dtype, self.rank, self.conjugated)

    def part(self, rows: slice, cols: slice) -> "tuple[Spec, slice, slice]":
        """The spec of a range of rows and one of columns, and their slices of the local array.

        Parameters
        ----------
        rows, cols : slice
            Without steps.

        Raises
        ------
        UsageError
            If they are not ranges, or have steps.
        """
        spans = []
        for span, extent in zip((rows, cols), self.shape):
            if not isinstance(span, slice) or span.step not in (None, 1):
                raise UsageError(
                    f"a part of a matrix is two ranges without steps, as A[0:4, 2:], got {span!r}."
                )
            try:
                start, stop, _ = span.indices(extent)
            except TypeError as error:
                raise UsageError(f"a part of a matrix is two ranges, got {span}: {error}") from None
            spans.append((start, max(start, stop)))
        entry = self._parts.get(key := tuple(spans))
        if entry is None:
            if len(self._parts) > _MOST:
                self._parts.clear()
            part = self._like(self.partition.part(*spans))
            down, across = (
                slice(*map(int, np.searchsorted(index, span)))
                for index, span in zip(self.indices, spans)
            )
            entry = self._parts[key] = part, down, across
        return entry

    @cached_property
    def whole(self) -> "Spec":
        """The spec of the matrix after a pending reduction: itself, except for Partial."""
        if self.partition.terms == 1:
            return self
        return self._like(summed(self.partition))

    def runs(self, axis: int, rank: int | None = None) -> list[tuple[int, int, int]]:
        """The rows (``axis`` 0) or columns of a rank's local array as (start, stop, local start),
        ascending and as long as they can be."""
        whole, rank = self.partition, self.rank if rank is None else rank
        if not whole.holds(rank):
            return []
        held, coordinate = (whole.rows, whole.cols)[axis], whole.places.coords(rank)[axis]
        runs = stored_runs(held, (held[x][:2] for x in held.held_by(coordinate)))
        return [(run.start, run.stop, run.local) for run in runs]

    def fragments(self) -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice]]]:
        """Ranges of rows and of columns of the whole matrix that the local array has, and their
        slices of it.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> list(Spec(partition("row", (4, 6), 2), np.dtype("f4"), 1).fragments())
        [((slice(2, 4, None), slice(0, 6, None)), (slice(0, 2, None), slice(0, 6, None)))]
        """
        for row, bottom, top in self.runs(0):
            for col, right, left in self.runs(1):
                here = slice(top, top + bottom - row), slice(left, left + right - col)
                yield (slice(row, bottom), slice(col, right)), here

    @cached_property
    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows, and the columns, of the whole matrix that the local array has."""
        indices = []
        for axis in (0, 1):
            index = np.empty(self.local_shape[axis], np.int64)
            for start, stop, local in self.runs(axis):
                index[local : local + stop - start] = np.arange(start, stop)
            indices.append(index)
        return indices[0], indices[1]

    def within(self, other: "Spec") -> Pair | None:
        """The start of this local array in that of ``other``, on this rank, if on every rank it is
        a part of it: then no element moves from one to the other.

        Examples
        --------
        Of two copies each rank keeps one half:

        >>> from drbench.partitions import partition
        >>> whole, half = (
        ...     Spec(partition(text, (4, 6), 2), np.dtype("f4"), 1) for text in ("row/c2", "column")
        ... )
        >>> half.within(whole), whole.within(half)
        ((0, 3), None)
        """
        mine = None
        for rank in range(self.partition.nprocs):
            if sources(other.partition, self.partition, rank) != [other.partition.replica_of(rank)]:
                return None  # only one of the two has a pending reduction
            down, across = (
                _shift(self.runs(axis, rank), other.runs(axis, rank)) for axis in (0, 1)
            )
            if down is None or across is None:
                return None
            if rank == self.rank:
                mine = down, across
        return mine

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"{rows}x{cols} {self.dtype.name} {self.text}" + ", conjugated" * self.conjugated


def _shift(part: list, whole: list) -> int | None:
    """The offset of the runs of a local axis in another local axis; None if elements are missing
    there, or not contiguous."""
    shifts = set()
    for start, stop, local in part:
        for low, high, there in whole:
            if low <= start and stop <= high:
                shifts.add(there + start - low - local)
                break
        else:
            return None
    if len(shifts) > 1:
        return None
    return shifts.pop() if shifts else 0


def extents(shape: Sequence[int]) -> Pair:
    """The rows and columns of a shape.

    Raises
    ------
    UsageError
        If it is not a pair of whole numbers.

    Examples
    --------
    >>> extents([np.int64(4), 2])
    (4, 2)
    >>> extents((4.0, 2))
    Traceback (most recent call last):
    drbench.errors.UsageError: a matrix has two extents, got shape (4.0, 2).
    """
    pair = isinstance(shape, (tuple, list)) and len(shape) == 2
    sizes = tuple(size for size in map(as_int, shape) if size is not None) if pair else ()
    if len(sizes) != 2:
        raise UsageError(f"a matrix has two extents, got shape {shape!r}.")
    return sizes


def factor(value: complex, dtype: np.dtype) -> complex:
    """Alpha or beta as elements of a type are multiplied by it (bfloat16 in float32).

    Raises
    ------
    UsageError
        If it is no finite number of that type.

    Examples
    --------
    >>> factor(2, np.dtype("f8")), factor(1e-300, np.dtype("f4")), factor(1 - 2j, np.dtype("c8"))
    (2.0, 0.0, (1-2j))
    """
    if type(value) is float and value in (0.0, 1.0):  # at once
        return value
    if dtype.kind == "c" and isinstance(value, complex | np.complexfloating):
        part = np.dtype(f"f{dtype.itemsize // 2}")
        both = complex(factor(value.real, part).real, factor(value.imag, part).real)
        return both if both.imag else both.real
    real = ctypes.c_double if dtype.name in ("float64", "complex128") else ctypes.c_float
    try:
        number = real(float(value + 0.0)).value  # type: ignore[arg-type]  # texts are no numbers
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"alpha and beta are finite numbers of {dtype}, got {shown(value)}.")
    return number


def plain(array: ArrayLike) -> ArrayLike:
    """A user's array, or a list of rows.

    Raises
    ------
    UsageError
        If it is of a class of its own, as a masked array, and so more than its elements.

    Examples
    --------
    >>> plain(np.ma.masked_equal([[1.0, 2.0]], 2.0))
    Traceback (most recent call last):
    drbench.errors.UsageError: a MaskedArray has more than elements, ...
    """
    for item in (array, *array) if isinstance(array, list | tuple) else (array,):
        if isinstance(item, np.ndarray) and type(item) not in (np.ndarray, np.memmap):
            raise UsageError(
                f"a {type(item).__name__} has more than elements, which drbench would lose. Give "
                "its elements, as np.asarray(array); of a masked array array.filled(0.0)."
            )
    return array


class Specs:
    """The specs of one context."""

    def __init__(self, nprocs: int, rank: int, types: tuple[str, ...] = TYPES):
        self._nprocs, self._types = nprocs, types
        self._cached: Callable[..., Spec] = lru_cache(_MOST)(self._read)
        # different texts of the same layout share all but the text
        self._make = lru_cache(_MOST)(lambda whole, text, kind: Spec(whole, kind, rank))

    def of(self, shape: Sequence[int], layout: Layout, dtype: DTypeLike) -> Spec:
        """The spec of a layout; the same object for the same request.

        Raises
        ------
        UsageError
            If the layout cannot be read or does not fit shape and ranks, or the type is none of
            those that the context has.
        """
        key = extents(shape), layout, dtype
        try:
            return self._cached(*key)
        except TypeError:  # a list cannot be a key
            return self._read(*key)

    def _read(self, shape: Pair, layout: Layout, dtype: DTypeLike) -> Spec:
        if not isinstance(layout, str | Partition | Spec):
            raise UsageError(
                f"a layout is a text or a Partition, got {type(layout).__name__}. Of an array "
                "ctx.wrap or ctx.from_scalapack makes a matrix."
            )
        if isinstance(layout, Spec):
            if layout.shape == shape and layout.dtype == dtype:
                return layout
            layout = layout.partition
        try:
            kind = numpy_type(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        except TypeError:
            kind = None
        if kind is None or kind.name not in self._types:
            raise UsageError(f"dtype must be one of {', '.join(self._types)}; got {dtype!r}.")
        if not kind.isnative:  # BLAS would read the bytes of each element backwards
            raise UsageError(
                f"dtype must have this machine's byte order, got {kind.str!r}. Convert the array "
                "first: array.astype(array.dtype.newbyteorder('='))."
            )
        try:
            whole = (
                layout if isinstance(layout, Partition) else partition(layout, shape, self._nprocs)
            )
        except LayoutError as error:
            raise UsageError(f"layout {layout!r} of {shape}: {error}") from None
        if whole.shape != shape or whole.nprocs != self._nprocs:
            raise UsageError(
                f"layout {whole.text} is of {whole.shape[0]}x{whole.shape[1]} on {whole.nprocs} "
                f"ranks; the matrix is {'x'.join(map(str, shape))} on {self._nprocs}."
            )
        return self._make(whole, whole.text, kind)
