"""What a device offers the executor: memory, streams, events, and what to do on a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from .address import DeviceArray


@dataclass(frozen=True)
class DeviceInfo:
    """What a record says of a device.

    Attributes
    ----------
    name : str
        As "NVIDIA H200".
    library, kernel : str
        What multiplies, with its version, and for which architecture or in which arithmetic, as
        "cuBLAS 12.8" and "sm_90".
    index, count : int
        Which of the node's devices this rank uses, and how many there are.
    """

    name: str
    library: str
    kernel: str
    index: int
    count: int


class Event(ABC):
    """A point in the work of a stream. Recorded again, it means the new point."""

    @abstractmethod
    def query(self) -> bool:
        """True if everything before the point is complete (also if it was never recorded). Raises
        what the stream met."""

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until the point is reached."""

    @abstractmethod
    def seconds_since(self, earlier: Event) -> float:
        """Time between two reached points; both events must have been made with ``timed=True``."""


class Stream(ABC):
    """Work in order, beside that of other streams."""

    @abstractmethod
    def record(self, event: Event) -> None:
        """Make ``event`` the point after everything given to the stream so far."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Nothing given to the stream from now on starts before ``event``'s latest point; the host
        does not wait."""

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until the stream is empty. Raises what an operation met."""


class Memory(ABC):
    """One allocation.

    Attributes
    ----------
    address, nbytes : int
    """

    address: int
    nbytes: int

    @abstractmethod
    def free(self) -> None:
        """Give it back; idempotent."""


class Device(ABC):
    """One rank's device. All arrays are :class:`~drbench.device.address.DeviceArray` unless a
    method says otherwise.

    Operations are asynchronous: they are put into the stream and return. Arrays given to them must
    stay as they are until the stream has passed them.
    """

    info: DeviceInfo
    #: Most bytes that were allocated on it at one time by this process; None where its memory is
    #: the host's.
    peak_bytes: int | None = None
    #: True if buffers that are given away become NaN (a device for tests).
    poisons = False
    #: True if the first use of a kernel may wait for all that the device is doing.
    loads_late = False
    #: True if :meth:`capture` can be called.
    captures = False

    def spare_event(self) -> Event:
        """An event given back by :meth:`give_back`, or a new one: after the first repeat none is
        made while the clock runs."""
        spares = self.__dict__.setdefault("_spares", [])
        return spares.pop() if spares else self.event()

    def give_back(self, event: Event) -> None:
        """Nobody asks about the event's last point any more."""
        self.__dict__.setdefault("_spares", []).append(event)

    # -- memory

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Device memory, at an address that is a multiple of 512. Raises OutOfMemory with what is
        free."""

    @abstractmethod
    def allocate_host(self, nbytes: int) -> np.ndarray:
        """Pinned host memory as a flat array of bytes, freed with its last view."""

    @abstractmethod
    def pin(self, memory: np.ndarray) -> DeviceArray:
        """Host memory (flat) made fit for asynchronous copies and visible to the device, as the
        device sees it; until :meth:`unpin`.

        Raises UnsupportedError if the driver cannot.
        """

    @abstractmethod
    def unpin(self, memory: np.ndarray) -> None:
        """Undo :meth:`pin`, before the memory is freed."""

    # -- arrays of the library that the device's users work with: NumPy's, CuPy's

    @abstractmethod
    def lend(self, address: int, shape: tuple[int, int], dtype: np.dtype, owner):
        """An array over memory at an address; ``owner`` lives as long as any view of it."""

    @abstractmethod
    def empty(self, shape: tuple[int, int], dtype: np.dtype):
        """An array in memory of its own, with whatever that holds."""

    @abstractmethod
    def taken(self, array):
        """An array from elsewhere as one of that library, in the same memory; NumPy's as they are.

        Raises UsageError if it is none that can be taken.
        """

    @abstractmethod
    def seen(self, array) -> np.ndarray:
        """An array of that library, or NumPy's, as the operations here take it."""

    @abstractmethod
    def free_bytes(self) -> int:
        """What this rank may still allocate: the device's free memory, divided by the ranks that
        share it."""

    # -- streams

    @abstractmethod
    def stream(self, name: str, multiplies: bool = False) -> Stream:
        """A new stream that does not wait for any other; ``multiplies`` makes ready now what its
        first product would have to make."""

    @abstractmethod
    def reserve(self, stream: Stream, sums: bool) -> None:
        """Let the products of a stream leave processors to sums that run beside them, or use all
        of the device; a device that cannot divides itself as it will."""

    @abstractmethod
    def event(self, timed: bool = False) -> Event:
        """A new event."""

    def capture(self, streams: list[Stream], launch: Callable[[], None]) -> Callable[[], None]:
        """What ``launch()`` gives to some streams, none of it done now, as one call that gives it
        all to the first of them; the host does not wait for anything in between."""
        raise NotImplementedError

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until all streams of this device made by this process are empty."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all streams and handles, and of memory that was not freed."""

    # -- operations on a stream

    @abstractmethod
    def gemm(self, a, b, c, beta: float, stream: Stream, alpha: float = 1.0) -> None:
        """c = beta·c + alpha·a·b in place, as :meth:`drbench.host.blas.Blas.gemm` (views contiguous
        along one axis; beta 0 does not read c)."""

    @abstractmethod
    def copy(self, target, source, stream: Stream) -> None:
        """target[...] = source for arrays of one shape and dtype with 2 or 4 axes, or flat; a
        stride of the last axis is one element, or of both arrays that of another one is.

        Either may be pinned host memory (a plain ndarray, then both are contiguous or 2-D).
        """

    @abstractmethod
    def accumulate(self, target, value, stream: Stream, guard=None) -> None:
        """target += value (2-D, row-major, any leading dimensions), atomic element by element
        against every process that can reach the memory.

        ``guard`` is a context manager around the adding, for devices without atomics.
        """

    @abstractmethod
    def add(self, target, value, stream: Stream, concurrent: bool = False) -> None:
        """target += value (2-D) where nobody else can be writing; ``concurrent`` products, to which
        it leaves most of the device."""

    @abstractmethod
    def scale(self, target, factor: float, stream: Stream) -> None:
        """target *= factor (2-D); a factor of 0 makes zeros whatever was there."""

    @abstractmethod
    def zero(self, target, stream: Stream) -> None:
        """target[...] = 0 (2-D)."""

    @abstractmethod
    def poison(self, target, stream: Stream) -> None:
        """target[...] = NaN (flat, of any dtype): what was there must not be read again."""

    # -- flags: numbers of 32 bits in memory of this device or of one that it reaches

    @abstractmethod
    def why_no_waits(self) -> str | None:
        """Why streams cannot wait for flags here, or why it could go wrong; None if they can."""

    @abstractmethod
    def write_flag(self, flag, number: int, stream: Stream) -> None:
        """flag[0] = number (uint32), after all that was given to the stream before is complete and
        visible to whoever sees the number."""

    @abstractmethod
    def wait_flag(self, flag, number: int, stream: Stream) -> None:
        """Nothing given to the stream from now on starts before flag[0] - number, in 32 bits, is
        not negative; the host does not wait."""

    # -- outside the clock; these block the host

    @abstractmethod
    def fill(self, target, fill, matrix: str, row0: int, col0: int) -> None:
        """:meth:`drbench.host.fill.Fill.into` on the device."""

    @abstractmethod
    def times(self, tile, x: np.ndarray) -> np.ndarray:
        """tile · x in float64: tile rows×columns on the device, x columns×v and the result rows×v
        on the host."""

    @abstractmethod
    def hashed_times(
        self, fill, matrix: str, row0: int, row1: int, columns: int, x: np.ndarray
    ) -> np.ndarray:
        """Rows [row0, row1) of A or B, made anew from their hash, times x, in float64."""

    @abstractmethod
    def all_finite(self, tile, whole: bool = False) -> bool:
        """Whether no element is NaN or infinite, nor (if ``whole``) has a fraction."""

    @abstractmethod
    def rows_of(self, tile, rows: np.ndarray) -> np.ndarray:
        """Some rows of a tile, copied to the host, in the tile's dtype."""


class Lane:
    """A stream, whether GEMMs go there and leave room to sums, how many points were recorded on it,
    and up to which point of the others it has waited."""

    __slots__ = ("name", "stream", "multiplies", "concurrent_sums", "count", "seen")

    def __init__(self, name: str, stream: Stream, multiplies: bool = False):
        self.name, self.stream, self.multiplies = name, stream, multiplies
        self.concurrent_sums, self.count, self.seen = False, 0, {}

    def record(self, event: Event) -> None:
        """One more point."""
        self.stream.record(event)
        self.count += 1

    def wait(self, other: Lane, count: int, event: Event) -> None:
        """Nothing given from now on starts before point ``count`` of another lane, which ``event``
        is; not said twice."""
        if other is not self and self.seen.get(other.name, 0) < count:
            self.stream.wait(event)
            self.seen[other.name] = count


@dataclass
class Resources:
    """Streams and memory of a device that executors share which never run at the same time.

    Attributes
    ----------
    gemms, accumulates : int
        How many GEMMs, and accumulates, may run at the same time: streams for each. Parts of a
        kernel are GEMMs of their own here.
    copies : int
        Streams for the copies of each direction that belong to signals; ranks are dealt to them in
        turn.
    arena : callable, optional
        As of :class:`~drbench.host.executor_base.ExecutorBase`.
    lanes : dict of str to Lane
        The streams by name, as far as they were asked for.
    """

    gemms: int = 1
    accumulates: int = 1
    copies: int = 1
    arena: Callable[[int], np.ndarray] | None = None
    lanes: dict[str, Lane] = field(default_factory=dict)


def until(device: Device, stream: Stream) -> Iterator[None]:
    """Wait, in a generator, for everything given to a stream before this call."""
    event = device.spare_event()
    stream.record(event)

    def wait():
        while not event.query():
            yield
        device.give_back(event)

    return wait()


def completed(request) -> Iterator[None]:
    """Wait, in a generator, for an MPI request."""
    while not request.Test():
        yield
