"""The interface of devices for the executor: memory, streams, events, and operations on streams."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from drbench.clock import Clock

from .address import DeviceArray

#: A generator that yields while the host has to wait.
Waiting = Iterator[None]


@dataclass(frozen=True)
class DeviceInfo:
    """The description of a device in a record.

    Attributes
    ----------
    name : str
        As "NVIDIA H200".
    library, kernel : str
        The BLAS with its version, and its architecture or arithmetic, as "cuBLAS 12.8" and "sm_90".
    index, count : int
        Number of this rank's device on the node, and number of the node's devices.
    """

    name: str
    library: str
    kernel: str
    index: int
    count: int


class Event(ABC):
    """A point in the work of a stream. Recording it again moves it to the new point."""

    @abstractmethod
    def query(self) -> bool:
        """True if all work before the point is complete (also if it was never recorded). Raises
        errors of the stream."""

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until the point is reached."""

    @abstractmethod
    def seconds_since(self, earlier: "Event") -> float:
        """Time between two reached points; both events must have been made with ``timed=True``."""


class Stream(ABC):
    """A queue of operations that run in order, concurrently with those of other streams."""

    @abstractmethod
    def record(self, event: Event) -> None:
        """Move ``event`` to the point after all operations given to the stream so far."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Let later operations of the stream wait for ``event``'s latest point; the host does not
        wait."""

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until the stream is empty. Raises errors of its operations."""


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
        """Free the memory; idempotent."""


class Device(ABC):
    """One rank's device. All arrays are :class:`~drbench.device.address.DeviceArray` unless a
    method is documented otherwise.

    Operations are asynchronous: they are put into the stream and return. Their arrays must not be
    changed until the stream has passed them.
    """

    info: DeviceInfo
    #: Most bytes allocated on the device at one time by this process.
    peak_bytes = 0
    #: True if released buffers are filled with NaN (a device for tests).
    poisons = False
    #: True if the first use of a kernel may wait for all work of the device.
    loads_late = False
    #: True if :meth:`capture` can be called.
    captures = False

    def spare_event(self) -> Event:
        """An event returned by :meth:`give_back`, or a new one: after the first repeat the timed
        region makes none."""
        spares = self.__dict__.setdefault("_spares", [])
        return spares.pop() if spares else self.event()

    def give_back(self, event: Event) -> None:
        """Return an event whose last point is no longer needed."""
        self.__dict__.setdefault("_spares", []).append(event)

    # -- memory

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Device memory, at an address that is a multiple of 512. Raises OutOfMemory with the free
        bytes."""

    @abstractmethod
    def allocate_host(self, nbytes: int) -> np.ndarray:
        """Pinned host memory as a flat array of bytes, freed with its last view."""

    @abstractmethod
    def pin(self, memory: np.ndarray) -> DeviceArray:
        """Pin host memory (flat) for asynchronous copies and access by the device, until
        :meth:`unpin`; return it with its address on the device.

        Raises UnsupportedError if the driver cannot.
        """

    @abstractmethod
    def unpin(self, memory: np.ndarray) -> None:
        """Undo :meth:`pin`, before the memory is freed."""

    # -- arrays of the users' library: NumPy's, CuPy's

    @abstractmethod
    def lend(self, address: int, shape: tuple[int, int], dtype: np.dtype, owner):
        """An array over memory at an address, whose views keep ``owner`` alive."""

    @abstractmethod
    def empty(self, shape: tuple[int, int], dtype: np.dtype):
        """An uninitialised array in memory of its own."""

    @abstractmethod
    def taken(self, array):
        """A foreign array as one of that library, in the same memory; NumPy's unchanged.

        Raises UsageError if it cannot be converted.
        """

    @abstractmethod
    def seen(self, array) -> np.ndarray:
        """An array of that library, or NumPy's, converted for the operations here."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Bytes that this rank may still allocate: the device's free memory, divided by the ranks
        that share it."""

    # -- streams

    @abstractmethod
    def stream(self, name: str, multiplies: bool = False) -> Stream:
        """A new stream that does not wait for any other; with ``multiplies`` it is prepared for
        GEMMs now, not at the first one."""

    @abstractmethod
    def reserve(self, stream: Stream, sums: bool) -> None:
        """Let the GEMMs of a stream leave processors to concurrent reductions (``sums``), or use
        the whole device; ignored by devices that cannot."""

    @abstractmethod
    def event(self, timed: bool = False) -> Event:
        """A new event."""

    def capture(self, streams: list[Stream], launch: Callable[[], None]) -> Callable[[], None]:
        """A function that launches at once, on the first of the streams, all operations that
        ``launch()`` puts into them; none of them runs now. The host does not wait in between."""
        raise NotImplementedError

    @abstractmethod
    def synchronise(self) -> None:
        """Block the host until all streams of this device made by this process are empty."""

    @abstractmethod
    def close(self) -> None:
        """Free all streams, handles and memory."""

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
        """target += value (2-D) while no other operation can write it; ``concurrent`` with GEMMs,
        to which it leaves most of the device."""

    @abstractmethod
    def scale(self, target, factor: float, stream: Stream) -> None:
        """target *= factor (2-D); a factor of 0 makes zeros of any old values."""

    @abstractmethod
    def zero(self, target, stream: Stream) -> None:
        """target[...] = 0 (2-D)."""

    @abstractmethod
    def poison(self, target, stream: Stream) -> None:
        """target[...] = NaN (flat, of any dtype): its old values must not be read again."""

    # -- flags: numbers of 32 bits in memory of this device or of one that it can access

    @abstractmethod
    def why_no_waits(self) -> str | None:
        """Why streams cannot, or must not, wait for flags on this device; None if they can."""

    @abstractmethod
    def write_flag(self, flag, number: int, stream: Stream) -> None:
        """flag[0] = number (uint32), after all earlier operations of the stream are complete and
        visible to readers of the number."""

    @abstractmethod
    def wait_flag(self, flag, number: int, stream: Stream) -> None:
        """Let later operations of the stream wait until flag[0] - number, in 32 bits, is not
        negative; the host does not wait."""

    # -- outside the timed region; these block the host

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
        """Rows [row0, row1) of A or B, regenerated from their hash, times x, in float64."""

    @abstractmethod
    def all_finite(self, tile, whole: bool = False) -> bool:
        """Whether no element is NaN or infinite, nor (if ``whole``) has a fraction."""

    @abstractmethod
    def rows_of(self, tile, rows: np.ndarray) -> np.ndarray:
        """Some rows of a tile, copied to the host, in the tile's dtype."""


class Lane:
    """A stream, whether it runs GEMMs and whether these leave processors to reductions, the number
    of points recorded on it, and the last point of each other lane that it has waited for."""

    def __init__(self, name: str, stream: Stream, multiplies: bool = False):
        self.name, self.stream, self.multiplies = name, stream, multiplies
        self.concurrent_sums, self.count, self.seen = False, 0, {}

    def record(self, event: Event) -> None:
        """Record one more point."""
        self.stream.record(event)
        self.count += 1

    def wait(self, other: "Lane", count: int, event: Event) -> None:
        """Let later operations wait for point ``count`` of another lane, which is ``event``; only
        once for each point."""
        if other is not self and self.seen.get(other.name, 0) < count:
            self.stream.wait(event)
            self.seen[other.name] = count


@dataclass
class Resources:
    """Streams and memory of a device, shared by executors that never run at the same time.

    Attributes
    ----------
    gemms, accumulates : int
        Number of GEMMs, and of accumulates, that may run at the same time: streams for each. Parts
        of a kernel are separate GEMMs here.
    copies : int
        Streams for copies to and from other ranks, for each direction; ranks are assigned to them
        round-robin.
    arena : callable, optional
        As of :class:`~drbench.host.executor_base.ExecutorBase`.
    lanes : dict of str to Lane
        The streams that have been used, by name.
    """

    gemms: int = 1
    accumulates: int = 1
    copies: int = 1
    arena: Callable[[int], np.ndarray] | None = None
    lanes: dict[str, Lane] = field(default_factory=dict)


def until(device: Device, stream: Stream) -> Waiting:
    """Wait, in a generator, for all operations given to a stream before this call."""
    event = device.spare_event()
    stream.record(event)

    def wait():
        while not event.query():
            yield
        device.give_back(event)

    return wait()


def reached(event: Event, within_s: float) -> bool:
    """Whether an event is reached in so many seconds; returns as soon as it is."""
    end = Clock.now() + within_s
    while not event.query():
        if Clock.now() > end:
            return False
    return True


def completed(request) -> Waiting:
    """Wait, in a generator, for an MPI request."""
    while not request.Test():
        yield
