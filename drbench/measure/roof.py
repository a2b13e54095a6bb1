"""GEMM-only speed: what the same cores reach on the same work without any communication."""

import os
import resource
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from statistics import median
from threading import get_native_id
from time import process_time, thread_time
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.arrays import numpy_type
from drbench.clock import Clock
from drbench.device.address import at_address
from drbench.host.blas import Blas
from drbench.host.fill import Fill
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.program.problem import Problem, product_flops, row_bytes

from .noise import Timed

#: The argument of getrusage, and a replacement of its result where it has no such argument.
_OF_THREAD, _UNKNOWN = getattr(resource, "RUSAGE_THREAD", None), count()
#: Rounds of trials of local GEMMs: at least, at most, and seconds after which no round beyond the
#: least begins. One slower than the fastest by this factor in every round is dropped.
_TRIALS, _MOST_TRIALS, _TRIALS_S, _BEHIND = 3, 15, 1.0, 1.15


def timed(comm: MPI.Comm, function) -> Timed:
    """Seconds from barrier to barrier around ``function()``, the largest share of them in which a
    rank had no core, and the mean CPU seconds of the ranks (collective).

    A rank that polls or computes is always ready to run: the difference of wall clock and thread
    clock is time in which other processes or the hypervisor used its core. If the thread slept in
    between (the system counts that), it is the time that the thread waited for a core by the
    system's count; 0 if the system has no such count.
    """
    comm.Barrier()
    slept, waited_s = _sleeps(), _waited_s()
    cpu_s, on_core, start = process_time(), thread_time(), Clock.now()
    function()
    comm.Barrier()
    seconds = Clock.now() - start
    on_core = thread_time() - on_core
    cpu_s = process_time() - cpu_s
    if _sleeps() == slept:
        lost = 1 - on_core / seconds
    else:
        lost = min(1.0, (_waited_s() - waited_s) / seconds)
    gathered = np.empty((comm.size, 3))
    comm.Allgather(np.array((seconds, lost, cpu_s)), gathered)
    return Timed(*gathered[:, :2].max(axis=0).tolist(), float(gathered[:, 2].mean()))


def _sleeps() -> int:
    """How often this thread has slept; a new number each time if the system does not count it."""
    if _OF_THREAD is None:
        return next(_UNKNOWN)
    return resource.getrusage(_OF_THREAD).ru_nvcsw


def _waited_s() -> float:
    """Seconds in which this thread was ready to run and had no core; 0 if the system does not
    count them."""
    file = _schedule_of(os.getpid(), get_native_id())
    return 0.0 if file is None else 1e-9 * int(os.pread(file, 80, 0).split()[1])


@cache
def _schedule_of(process: int, thread: int) -> int | None:
    """Linux's open file of a thread's times: on a core, and waiting for one; None without it."""
    try:
        file = os.open(f"/proc/{process}/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        os.pread(file, 80, 0).split()[1]
    except (OSError, IndexError):
        return None
    return file


class LocalGemms(NamedTuple):
    """The local GEMMs of a rank, run one after another, and how they are stored.

    Attributes
    ----------
    rows : tuple of int
        Rows of A and C of each GEMM; all have n columns, and k columns of A.
    n, k : int
    padded : bool
        Rows of the stored matrices are padded (:func:`drbench.program.problem.row_bytes`).
    """

    rows: tuple[int, ...]
    n: int
    k: int
    padded: bool = False

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return sum(self.rows) * self.n * self.k


class HostWork(NamedTuple):
    """Local GEMMs of a rank on its cores; ``pads``: their rows may be padded."""

    blas: Blas
    pads: bool = True

    def empty(self, size: int, dtype) -> np.ndarray:
        return empty_in_huge_pages(size, dtype)

    def fill(self, array, fill: Fill, matrix: str, row0: int = 0, col0: int = 0) -> None:
        fill.into(array, matrix, row0, col0)

    def set(self, array, value: float) -> None:
        """Set all elements of a flat array."""
        array.fill(value)

    def prepare_gemms(self, gemms: list[tuple], beta: float) -> Callable[[], None]:
        """A function that runs c = a·b + beta·c for each (a, b, c), finished when it returns."""
        calls = [self.blas.prepare_gemm(*operands) for operands in gemms]

        def multiply() -> None:
            for call in calls:
                call(beta, 1.0)

        return multiply


class DeviceWork:
    """Local GEMMs of a rank on its device."""

    pads = False

    def __init__(self, device):
        self._device, self._stream, self._memory = device, device.stream("gemm-only"), []

    def empty(self, size: int, dtype):
        memory = self._device.allocate(max(1, size * dtype.itemsize))
        self._memory.append(memory)
        return at_address(memory.address, size, dtype)

    def fill(self, array, fill: Fill, matrix: str, row0: int = 0, col0: int = 0) -> None:
        self._device.fill(array, fill, matrix, row0, col0)

    def set(self, array, value: float) -> None:
        if np.isnan(value):  # the values of a sum do not change its time on a device
            self._device.poison(array, self._stream)
            self._stream.synchronise()

    def prepare_gemms(self, gemms: list[tuple], beta: float) -> Callable[[], None]:
        def multiply() -> None:
            for operands in gemms:
                self._device.gemm(*operands, beta, self._stream)
            self._stream.synchronise()

        return multiply

    def close(self) -> None:
        for memory in self._memory:
            memory.free()


class GemmOnly:
    """All ranks at once compute m·n·k/p of local work (collective to make and to measure), stored
    as the matrices of the problem are; C is read if it is updated.

    The fastest of the problem's local shapes, each with padded rows and without, is used; they are
    tried alternately before the first measurement, unless it is given. As in a repeat of a program,
    calls are prepared, and C is written before the clock starts.

    Parameters
    ----------
    problem : Problem
    comm : MPI.Comm
    work : HostWork or DeviceWork
    fill : Fill
        The operands' fill: the speed of a GEMM may depend on its values.
    gemms : LocalGemms, optional
        If the fastest are known; the same on every rank.

    Attributes
    ----------
    gemms : LocalGemms
        Of each rank.
    """

    def __init__(
        self,
        problem: Problem,
        comm: MPI.Comm,
        work: HostWork | DeviceWork,
        fill: Fill,
        gemms: LocalGemms | None = None,
    ):
        self._problem, self._comm, self._work = problem, comm, work
        self._beta = float(problem.updates)
        tried = [gemms] if gemms else gemms_to_try(problem, work.pads)
        self._memory = {
            name: work.empty(size, numpy_type(problem.type_of(name)))
            for name, size in elements(problem, tried).items()
        }
        for name in "AB":  # all of the memory, of which all read parts
            height, _, line = max((stored(problem, shape, name) for shape in tried), key=_size)
            work.fill(self._memory[name].reshape(height, line), fill, name)
        prepared = {shape: self._prepare(shape) for shape in tried}
        self.gemms = gemms or fastest(tried, lambda shape: self._time(*prepared[shape]).seconds)
        self._prepared = prepared[self.gemms]
        if gemms:  # tried before in other memory: the pages of this one are still untouched
            self._time(*self._prepared)

    def _prepare(self, gemms: LocalGemms) -> tuple:
        """The memory of C, and a function that runs the GEMMs."""
        views = []
        for name, memory in self._memory.items():
            height, width, line = stored(self._problem, gemms, name)
            memory = memory[: height * line]
            view = memory.reshape(height, line)[:, :width]
            views.append(view.T if name.lower() in self._problem.transpose else view)
        (a, b, c), k, top, operands = views, gemms.k, 0, []
        for x, rows in enumerate(gemms.rows):
            operands.append((a[top : top + rows], b[x * k : (x + 1) * k], c[top : top + rows]))
            top += rows
        return memory, self._work.prepare_gemms(operands, self._beta)

    def _time(self, c, multiply: Callable[[], None]) -> Timed:
        self._work.set(c, 0.0 if self._beta else np.nan)
        return timed(self._comm, multiply)

    @property
    def flops(self) -> int:
        """FLOPs of one sample, all ranks together."""
        return product_flops(self._problem.dtype) * self.gemms.work * self._comm.size

    def sample(self) -> Timed:
        """Run and time the GEMMs on every rank."""
        return self._time(*self._prepared)


def gemms_to_try(problem: Problem, pads: bool = True) -> list[LocalGemms]:
    """The local shapes of a problem, each with padded rows, where that changes a matrix, and
    without.

    Examples
    --------
    >>> [gemms[1:] for gemms in gemms_to_try(Problem(1024, 512, 64, 2))]
    [(512, 64, False), (512, 64, True), (256, 64, False), (256, 64, True)]
    """
    tried = []
    for shape in problem.local_shapes():
        plain, padded = (LocalGemms(*shape, padded) for padded in (False, True))
        differ = any(
            stored(problem, plain, name) != stored(problem, padded, name) for name in "ABC"
        )
        tried += [plain, padded] if pads and differ else [plain]
    return tried


def elements(problem: Problem, tried: Sequence[LocalGemms]) -> dict[str, int]:
    """Elements of the memory for A, B and C, enough for each of some local GEMMs.

    Examples
    --------
    >>> elements(Problem(8, 8, 8, 2), [LocalGemms((2,), 8, 8), LocalGemms((4,), 4, 8)])
    {'A': 32, 'B': 64, 'C': 16}
    """
    return {name: max(_size(stored(problem, gemms, name)) for gemms in tried) for name in "ABC"}


def stored(problem: Problem, gemms: LocalGemms, name: str) -> tuple[int, int, int]:
    """(height, width, elements from one row to the next) of A, B or C of local GEMMs, as the
    problem stores it; the matrices of several GEMMs are stacked.

    Examples
    --------
    >>> problem, gemms = Problem(10, 512, 600, 2), LocalGemms((2, 3), 512, 300, padded=True)
    >>> [stored(problem, gemms, name) for name in "ABC"]
    [(5, 300, 304), (600, 512, 528), (5, 512, 528)]
    """
    rows, n, k = sum(gemms.rows), gemms.n, gemms.k
    height, width = {"A": (rows, k), "B": (len(gemms.rows) * k, n), "C": (rows, n)}[name]
    if name.lower() in problem.transpose:
        height, width = width, height
    item = problem.itemsizes[name]
    return height, width, row_bytes(width * item, gemms.padded) // item


def _size(place: tuple[int, int, int]) -> int:
    """Elements of the memory of a stored matrix."""
    return place[0] * place[2]


def fastest(tried: Sequence[LocalGemms], seconds_of: Callable[[LocalGemms], float]) -> LocalGemms:
    """The local GEMMs that need the least time for their work, in rounds over all, forwards and
    backwards. Much slower ones are dropped early. The same on every rank if the times are.

    They are compared within a round, and the median over rounds decides: if the machine changes
    its speed, it does so for all of a round, or for one round of many.

    Examples
    --------
    >>> tried = [LocalGemms((2,), 8, 8), LocalGemms((4,), 4, 8), LocalGemms((8,), 8, 2)]
    >>> fastest(tried, lambda gemms: 3.0 if gemms.k == 2 else 4.0).rows
    (8,)
    """
    left: dict[LocalGemms, list[float]] = {gemms: [] for gemms in tried}
    for gemms in tried:
        seconds_of(gemms)  # warms pages and caches
    spent_s, trials = 0.0, 0
    while trials < _TRIALS or (spent_s < _TRIALS_S and trials < _MOST_TRIALS):
        for gemms in list(left)[:: -1 if trials % 2 else 1]:
            seconds = seconds_of(gemms)
            left[gemms].append(seconds / gemms.work)
            spent_s += seconds
        trials += 1
        if trials > 1:
            behind = _behind(left)
            left = {gemms: left[gemms] for gemms in left if min(behind[gemms]) <= _BEHIND}
    behind = _behind(left)
    return min(left, key=lambda gemms: median(behind[gemms]))


def _behind(seconds: dict) -> dict:
    """The time of each over the least of its round, for each round."""
    least = [min(times) for times in zip(*seconds.values())]
    return {
        gemms: [time / best for time, best in zip(mine, least)] for gemms, mine in seconds.items()
    }
