"""A device made of NumPy and threads: the asynchronous executor without a GPU.

Streams are threads that start each operation after a random delay, so that two operations that no
event orders run in both orders sooner or later. It tests correctness; its times are meaningless.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import random
import threading
import time
from contextlib import contextmanager, nullcontext
from unittest import mock

import numpy as np
import psutil

from drbench.device.address import at_address
from drbench.device.base import Device, DeviceInfo, Event, Memory, Stream
from drbench.device.gpu import cuda
from drbench.errors import OutOfMemory
from drbench.host.blas import load_blas
from drbench.host.fill import Fill, HostElements

_ALIGNMENT = 512
#: Longest random delay before an operation, and how many operations in ten are delayed.
_DELAY_S, _DELAYED = 4e-4, 5
#: Seconds between two polls of an awaited flag.
_POLL_S = 2e-5
_LAST_S = 5.0  # limit for the current operation of a closed stream


class _Mark:
    """One point in a stream's work, reached once."""

    __slots__ = ("reached", "at_s", "stream")

    def __init__(self, stream: HostStream):
        self.reached, self.at_s, self.stream = threading.Event(), 0.0, stream

    def reach(self) -> None:
        self.at_s = time.perf_counter()
        self.reached.set()


class HostEvent(Event):
    def __init__(self):
        self.mark: _Mark | None = None

    def query(self) -> bool:
        if self.mark is None:
            return True
        self.mark.stream.check()
        return self.mark.reached.is_set()

    def synchronise(self) -> None:
        if self.mark is not None:
            self.mark.reached.wait()
            self.mark.stream.check()

    def seconds_since(self, earlier: HostEvent) -> float:
        return self.mark.at_s - earlier.mark.at_s


class HostStream(Stream):
    """A thread that runs the operations of a queue; after a failure it skips the rest and keeps the
    error."""

    def __init__(self, name: str, seed: int, delay_s: float):
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._random, self._delay_s = random.Random(f"{seed} {name}"), delay_s
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(
            target=self._work,
            args=(self._queue,),  # a device with one queue gives the stream another one
            name=f"drbench-stream-{name}",
            daemon=True,
        )
        self._thread.start()

    def _work(self, operations: queue.SimpleQueue) -> None:
        while (operation := operations.get()) is not None:
            delayed, call = operation
            if delayed and self._delay_s and self._random.randrange(10) < _DELAYED:
                time.sleep(self._random.random() * self._delay_s)
            if delayed and self._failure is not None:
                continue
            try:
                call()
            except BaseException as error:  # raised on the host at its next query
                self._failure = error
            del operation, call  # it may keep memory alive

    def put(self, call) -> None:
        """Run ``call()`` after all operations given to the stream so far."""
        self._queue.put((True, call))

    def put_wait(self, flag: np.ndarray, number: int) -> None:
        """Block the stream until a flag has a number, or a later one, or until another thread
        closes the stream."""

        def wait():
            while (int(flag[0]) - number) % (1 << 32) >= 1 << 31 and not self._closed:
                time.sleep(_POLL_S)

        self._queue.put((False, wait))

    def check(self) -> None:
        if self._failure is not None:
            raise RuntimeError(
                f"an operation on a stream failed: {self._failure}"
            ) from self._failure

    def record(self, event: HostEvent) -> None:
        event.mark = mark = _Mark(self)
        self._queue.put((False, mark.reach))

    def wait(self, event: HostEvent) -> None:
        if event.mark is not None:
            self._queue.put((False, event.mark.reached.wait))

    def synchronise(self) -> None:
        event = HostEvent()
        self.record(event)
        event.synchronise()

    def close(self) -> None:
        """End the thread once its queue is empty, or after the time limit of an operation."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(_LAST_S)


class HostMemory(Memory):
    def __init__(self, nbytes: int):
        self._memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
        start = self._memory.ctypes.data
        self.address, self.nbytes = start + -start % _ALIGNMENT, nbytes

    def free(self) -> None:
        self._memory = None


class HostDevice(HostElements, Device):
    """A device of NumPy and threads, as described in the module.

    Parameters
    ----------
    seed : int
        Of the delays.
    delay_s : float
        Longest delay before an operation; 0 for none.
    """

    #: Released buffers are filled with NaN.
    poisons = True

    def __init__(self, seed: int = 0, delay_s: float = _DELAY_S):
        self._seed, self._delay_s, self._blas = seed, delay_s, load_blas()
        self._streams: list[HostStream] = []
        self._number = itertools.count()
        info = self._blas.info
        self.info = DeviceInfo("worker threads", info.library, info.kernel, 0, 1)

    # -- memory

    def allocate(self, nbytes: int) -> HostMemory:
        if nbytes > psutil.virtual_memory().available:
            raise OutOfMemory(
                f"{nbytes} bytes were requested, {psutil.virtual_memory().available} are "
                "available. Use smaller matrices."
            )
        return HostMemory(nbytes)

    def allocate_host(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def pin(self, memory: np.ndarray):
        return at_address(memory.ctypes.data, memory.size, memory.dtype)

    def unpin(self, memory: np.ndarray) -> None:
        pass  # nothing was done

    def lend(self, address, shape, dtype, owner) -> np.ndarray:
        size = max(shape[0] * shape[1] * dtype.itemsize, 1)
        memory = (ctypes.c_char * size).from_address(address)
        memory.owner = owner  # kept by every view
        return np.ndarray(shape, dtype, memory)

    def empty(self, shape, dtype) -> np.ndarray:
        return np.empty(shape, dtype)

    def taken(self, array) -> np.ndarray:
        return np.asarray(array)

    def seen(self, array) -> np.ndarray:
        return array

    def free_bytes(self) -> int:
        return psutil.virtual_memory().available

    # -- streams

    def stream(self, name: str, multiplies: bool = False) -> HostStream:
        stream = HostStream(f"{name} {next(self._number)}", self._seed, self._delay_s)
        self._streams.append(stream)
        return stream

    def reserve(self, stream: Stream, sums: bool) -> None:
        """Do nothing: the system schedules threads."""

    def event(self, timed: bool = False) -> HostEvent:
        return HostEvent()

    def synchronise(self) -> None:
        for stream in self._streams:
            stream.synchronise()

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.close()
        self._streams = []

    # -- operations on a stream

    def gemm(self, a, b, c, beta, stream, alpha=1.0) -> None:
        a, b, c = map(_elements, (a, b, c))
        if a.dtype != c.dtype:  # bfloat16 operands: exact in float32
            widened = lambda x: np.ascontiguousarray(x, c.dtype)
            stream.put(lambda: self._blas.gemm(widened(a), widened(b), c, beta, alpha))
        else:
            stream.put(lambda: self._blas.gemm(a, b, c, beta, alpha))

    def copy(self, target, source, stream) -> None:
        target, source = _elements(target), _elements(source)
        if target.shape != source.shape or target.dtype != source.dtype:
            raise ValueError(
                f"cannot copy {source.shape} {source.dtype} to {target.shape} {target.dtype}"
            )
        stream.put(lambda: np.copyto(target, source))

    def accumulate(self, target, value, stream, guard=None) -> None:
        target, value = _elements(target), _elements(value)

        def work():
            with guard or nullcontext():
                np.add(target, value, out=target)

        stream.put(work)

    def add(self, target, value, stream, concurrent=False) -> None:
        self.accumulate(target, value, stream)

    def scale(self, target, factor, stream) -> None:
        target = _elements(target)
        stream.put(lambda: np.multiply(target, factor, out=target) if factor else target.fill(0))

    def zero(self, target, stream) -> None:
        target = _elements(target)
        stream.put(lambda: target.fill(0))

    def poison(self, target, stream) -> None:
        target = _elements(target)
        stream.put(lambda: target.fill(np.nan))

    # -- flags

    def why_no_waits(self) -> None:
        return None

    def write_flag(self, flag, number, stream) -> None:
        flag = _elements(flag)
        stream.put(lambda: flag.fill(number))

    def wait_flag(self, flag, number, stream) -> None:
        stream.put_wait(_elements(flag), number)

    # -- outside the timed region

    def fill(self, target, fill: Fill, matrix: str, row0: int, col0: int) -> None:
        fill.into(_elements(target), matrix, row0, col0)

    def times(self, tile, x: np.ndarray) -> np.ndarray:
        return super().times(_elements(tile), x)

    def all_finite(self, tile, whole: bool = False) -> bool:
        return super().all_finite(_elements(tile), whole)

    def rows_of(self, tile, rows: np.ndarray) -> np.ndarray:
        return _elements(tile)[rows]


def _elements(array) -> np.ndarray:
    """The elements of an array of this device, which are the host's."""
    return array.view(np.ndarray)


@contextmanager
def emulated_gpus():
    """``--backend cupy`` in this process uses such a device, one for each rank."""
    number = itertools.count()

    def device(rank, ranks, compute, blocks):
        made = HostDevice(next(number) * ranks + rank)
        made.bus_id, made.accumulate_blocks = f"threads of rank {rank}", blocks
        return made

    with mock.patch.object(cuda, "cuda_device", device):
        yield
