"""The heap of a context: one window over its ranks, in which each rank allocates its own part.

Places may differ between ranks, so that only opening and closing are collective. A place is free
again when the last view of it is deleted.
"""

import ctypes
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
from mpi4py import MPI
from numpy.typing import DTypeLike

from drbench.arrays import address_of, numpy_type
from drbench.errors import OutOfMemory, UsageError, as_ours
from drbench.host.huge_pages import HUGE_BYTES, LEAST_BYTES, populate
from drbench.host.launcher import SHARED_MEMORY, shared_memory_free
from drbench.host.matrix import ALIGNMENT, Window
from drbench.host.topology import Topology
from drbench.options import whole_number
from drbench.partitions.intervals import Pair
from drbench.program.problem import row_bytes
from drbench.transport import TransportChoice

from .spec import extents

#: What MPI adds to a node's windows.
_MARGIN = 1 << 20


class Space:
    """Allocator of places in ``nbytes`` bytes: it uses the smallest gap that is large enough, and
    joins gaps that touch. Integers alone; ``phase`` is the offset of byte 0 in its huge page.

    Examples
    --------
    >>> space = Space(4096)
    >>> one, two = space.take(100), space.take(1000)
    >>> one, two, space.taken
    (0, 256, 1280)
    >>> space.give(one, 100)
    >>> space.take(2800), space.take(200), space.take(1)
    (1280, 0, None)
    """

    def __init__(self, nbytes: int, phase: int = 0):
        self.nbytes = nbytes // ALIGNMENT * ALIGNMENT
        self.taken, self._phase = 0, phase
        self._starts = [0]  # of the gaps, ascending
        self._free_ranges = {0: self.nbytes}

    @staticmethod
    def size_of(nbytes: int) -> int:
        """Bytes of a place for an array of ``nbytes``."""
        return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT

    def take(self, nbytes: int) -> int | None:
        """The start of a new place; None if no gap is large enough. A place that may use huge pages
        starts at one if it fits there."""
        size, free_ranges = self.size_of(nbytes), self._free_ranges
        best: tuple[int, int, int] | None = None
        for start in self._starts:
            at = start + (-(start + self._phase) % HUGE_BYTES if size >= LEAST_BYTES else 0)
            spare = free_ranges[start] - (at - start) - size
            if spare < 0:
                at, spare = start, free_ranges[start] - size
            if spare >= 0 and (best is None or spare < best[0]):
                best = spare, start, at
        if best is None:
            return None
        _, start, at = best
        stop = start + free_ranges.pop(start)
        self._starts.remove(start)
        self._put(start, at)
        self._put(at + size, stop)
        self.taken += size
        return at

    def give(self, start: int, nbytes: int) -> None:
        """Free a place."""
        size = self.size_of(nbytes)
        self.taken -= size
        stop = start + size
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == stop:
            stop += self._free_ranges.pop(stop)
            del self._starts[at]
        if at and self._starts[at - 1] + self._free_ranges[self._starts[at - 1]] == start:
            start = self._starts.pop(at - 1)
            del self._free_ranges[start]
        self._put(start, stop)

    @property
    def largest(self) -> int:
        """Bytes of the largest gap."""
        return max(self._free_ranges.values(), default=0)

    def _put(self, start: int, stop: int) -> None:
        if stop > start:
            insort(self._starts, start)
            self._free_ranges[start] = stop - start


class _Holder:
    """An object that all views of one place reference; when it is deleted, the place is free."""

    __slots__ = ("_place", "_left", "__weakref__")

    def __init__(self, place: tuple[int, int], left: deque):
        self._place, self._left = place, left

    def __del__(self):
        self._left.append(self._place)  # may run at any moment in any thread


class Heap:
    """One window over the ranks of a topology (collective to make and to close).

    Parameters
    ----------
    topology : Topology
    nbytes : int
        Of this rank's part.
    transport : TransportChoice
        ``auto``, ``direct`` or ``rma``.

    Attributes
    ----------
    window : Window

    Raises
    ------
    OutOfMemory
        If some node has too little shared memory.
    UnsupportedError
        If the transport is ``direct`` and some rank's memory cannot be mapped.
    """

    _shared = False  # whether its memory is that of SHARED_MEMORY

    def __init__(self, topology: Topology, nbytes: int, transport: TransportChoice):
        self.nbytes = nbytes
        self.window = self._open(topology, transport)
        own = self.window.in_reach[topology.comm.rank]
        self.base = address_of(own)
        self._space = Space(nbytes, self.base % HUGE_BYTES)
        self._left: deque[tuple[int, int]] = deque()
        self._spare: dict[int, deque] = {}  # released places, by size
        self._gathered = self._populated = 0
        self._bytes = ctypes.c_char * nbytes  # made once: slower than making an array

    def _open(self, topology: Topology, transport: TransportChoice) -> Any:
        """The window, after a check that all nodes have memory for it (collective)."""
        _check_capacity(topology, self.nbytes)
        self._shared = topology.node.size > 1
        try:
            return Window(topology, self.nbytes, gather=False, transport=transport)
        except MPI.Exception as error:  # of a limit of the shell, on every rank
            raise as_ours(error) or error from None

    @property
    def taken(self) -> int:
        """Bytes of this rank's part that are in use."""
        self._join_free()
        return self._space.taken

    def _join_free(self) -> None:
        """Free all released places."""
        self._sweep()
        for size in list(self._spare):
            for start in self._spare.pop(size):
                self._space.give(start, size)

    def _sweep(self) -> None:
        """Collect released places by size. The first one released is reused first, so that a loop
        gets the same places again."""
        left, spare = self._left, self._spare
        while left:
            start, nbytes = left.popleft()
            spare.setdefault(Space.size_of(nbytes), deque()).append(start)

    def _take(self, nbytes: int) -> int | None:
        """The start of a new place; None if no gap is large enough."""
        self._sweep()
        ready = self._spare.get(Space.size_of(nbytes))
        if ready:
            return ready.popleft()
        self._join_free()
        return self._space.take(nbytes)

    def array(self, shape: Pair, dtype: DTypeLike) -> np.ndarray:
        """A new uninitialised array in this rank's part of the heap, which operations use in place.

        Parameters
        ----------
        shape : (int, int)
            Rows and columns.
        dtype : str or numpy dtype

        Returns
        -------
        ndarray
            By rows; the transposed one of an array of columns × rows is by columns.

        Raises
        ------
        OutOfMemory
            With the bytes that are needed and free.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     local = ctx.heap.array((3, 4), "float64").T  # LLD = 4, three columns
        ...     A = ctx.from_scalapack([1, 0, 4, 3, 2, 2, 0, 0, 4], local)
        ...     print(local.shape, np.shares_memory(A.local, local))
        (4, 3) True
        """
        kind = numpy_type(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        return self.allocate(extents(shape), kind)[0]

    def allocate(
        self, shape: Pair, dtype: np.dtype, padded: bool = False
    ) -> tuple[np.ndarray, int]:
        """A new array, with padded rows or without, and its start in this rank's part.

        Raises
        ------
        OutOfMemory
            With the bytes that are needed and free.
        """
        stride = row_bytes(shape[1] * dtype.itemsize, padded)
        nbytes = shape[0] * stride
        start = self._take(nbytes)
        if start is None:
            raise OutOfMemory(self._too_small(shape, dtype, nbytes))
        if self._shared and start + nbytes > self._populated:
            if not populate(self.window.local[self._populated : start + nbytes], _MARGIN):
                self._left.append((start, nbytes))
                raise OutOfMemory(
                    f"{SHARED_MEMORY} is full: an array needs {nbytes} bytes, this rank's part of "
                    f"this heap has {self._populated} of its {self.nbytes} there; all contexts and "
                    "ranks share it. Enlarge it (containers: --shm-size=8g), or delete arrays."
                )
            self._populated = start + nbytes
        if start + nbytes > self._gathered and nbytes >= LEAST_BYTES:
            self.window.gather(max(start, self._gathered), start + nbytes)
            self._gathered = start + nbytes
        holder = _Holder((start, nbytes), self._left)
        array = self._lent(start, (shape[0], stride // dtype.itemsize), dtype, holder)
        return array[:, : shape[1]], start

    def _lent(self, start: int, shape: Pair, dtype: np.dtype, holder: _Holder) -> np.ndarray:
        """The array of a place, which references its holder."""
        memory: Any = self._bytes.from_address(self.base)
        memory.owner = holder
        return np.ndarray(shape, dtype, memory, start)

    def _too_small(self, shape: Pair, dtype: np.dtype, nbytes: int) -> str:
        rows, cols = shape
        free, largest = self._space.nbytes - self._space.taken, self._space.largest
        return (
            f"the heap is too small: an array of {rows}x{cols} {dtype.name} needs {nbytes} bytes, "
            f"{free} of {self.nbytes} are free (the largest gap has {largest}). Use "
            f"heap={self._space.taken + Space.size_of(nbytes)} or more, or delete arrays."
        )

    def offset_of(self, array: np.ndarray) -> int | None:
        """The start of an array in this rank's part, as of :meth:`offset_at`."""
        start = address_of(array)
        return self.offset_at(start, array.shape, array.strides, array.itemsize)

    def offset_at(
        self, address: int, shape: Sequence[int], strides: Sequence[int], item: int
    ) -> int | None:
        """The start in this rank's part of an array at an address; None if it is elsewhere, or is
        contiguous along no axis. Strides in bytes."""
        (rows, cols), (by_row, by_col), offset = shape, strides, address - self.base
        fits = (by_col == item and by_row >= cols * item) or (
            by_row == item and by_col >= rows * item
        )
        return offset if fits and 0 <= offset < self.nbytes else None

    def close(self) -> None:
        """Free the window (collective); its arrays may not be used afterwards."""
        self.window.close()


def parse_bytes(text: str | int) -> int:
    """Bytes of a size as given to ``init``.

    Examples
    --------
    >>> parse_bytes("1G"), parse_bytes("64MiB"), parse_bytes(4096), parse_bytes("1.5k")
    (1073741824, 67108864, 4096, 1536)
    """
    if isinstance(text, str):
        short = text.strip().lower().removesuffix("b").removesuffix("i")
        size = whole_number(short + "i" * short.endswith(tuple("kmgt")), "bytes")
    else:
        size = int(text) if isinstance(text, int | np.integer) else None
    if size is None or size < 1:
        raise UsageError(f"heap must be a size such as 64M or 1G, or bytes, got {text!r}.")
    return size


def _check_capacity(topology: Topology, nbytes: int) -> None:
    """Raise on every rank if some node's memory cannot hold its ranks' heaps (collective)."""
    capacity: tuple = ()
    if topology.node.rank == 0:
        capacity = ("memory", psutil.virtual_memory().total)
        shared = shared_memory_free()
        if shared is not None and topology.node.size > 1 and shared < capacity[1]:
            capacity = SHARED_MEMORY, shared
    heaps = topology.comm.allgather((nbytes, capacity))
    for lowest in sorted(set(topology.node_of)):
        sizes = [size for (size, _), node in zip(heaps, topology.node_of) if node == lowest]
        (where, there), wanted = heaps[lowest][1], sum(sizes) + _MARGIN
        if wanted > there:
            raise OutOfMemory(
                f"the heaps of the {len(sizes)} ranks on rank {lowest}'s node need {wanted} bytes, "
                f"its {where} has {there}. Use a smaller heap, or more nodes."
            )
