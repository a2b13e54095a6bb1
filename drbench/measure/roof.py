"""The roof: what the same cores reach on the same work with no communication at all."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from statistics import median
from threading import get_native_id
from time import process_time, thread_time
from typing import Any

import numpy as np
from mpi4py import MPI

from drbench.common import Clock, numpy_type
from drbench.device.address import at_address
from drbench.host.blas import Blas
from drbench.host.fill import Fill
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.program.problem import Problem

from .noise import Timed

#: The argument of getrusage, and a replacement of its result where it has no such argument.
_OF_THREAD, _UNKNOWN = getattr(resource, "RUSAGE_THREAD", None), count()
#: Rounds of trials of the shapes: at least, at most, and seconds after which no round beyond the
#: least begins. A shape slower than the fastest by this factor in every round is dropped.
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
    found = np.empty((comm.size, 3))
    comm.Allgather(np.array((seconds, lost, cpu_s)), found)
    return Timed(*found[:, :2].max(axis=0).tolist(), float(found[:, 2].mean()))


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


@dataclass(frozen=True)
class HostWork:
    """Local GEMMs of a rank on its cores."""

    blas: Blas

    def empty(self, size: int, dtype) -> np.ndarray:
        return empty_in_huge_pages(size, dtype)

    def fill(self, array, fill: Fill, matrix: str, row0: int = 0, col0: int = 0) -> None:
        fill.into(array, matrix, row0, col0)

    def multiply(self, a, b, c, beta: float) -> None:
        """c = a·b + beta·c, finished when this returns."""
        self.blas.gemm(a, b, c, beta)


class DeviceWork:
    """Local GEMMs of a rank on its device."""

    def __init__(self, device):
        self._device, self._stream, self._memory = device, device.stream("roof"), []

    def empty(self, size: int, dtype):
        memory = self._device.allocate(max(1, size * dtype.itemsize))
        self._memory.append(memory)
        return at_address(memory.address, size, dtype)

    def fill(self, array, fill: Fill, matrix: str, row0: int = 0, col0: int = 0) -> None:
        self._device.fill(array, fill, matrix, row0, col0)

    def multiply(self, a, b, c, beta: float) -> None:
        self._device.gemm(a, b, c, beta, self._stream)
        self._stream.synchronise()

    def close(self) -> None:
        for memory in self._memory:
            memory.free()


class Roof:
    """All ranks at once compute m·n·k/p of local work (collective to make and to measure), with
    operands stored as those of the problem; C is read if it is updated.

    The fastest of the problem's local shapes is used; they are tried alternately before the first
    measurement, unless the shape is given.

    Parameters
    ----------
    problem : Problem
    comm : MPI.Comm
    work : HostWork or DeviceWork
    fill : Fill
        The operands' fill: the speed of a GEMM may depend on its values.
    shape : tuple, optional
        The local shape, if it is known; the same on every rank.

    Attributes
    ----------
    shape : tuple
        (rows, n, k) of a rank's GEMMs, run one after another: ``rows`` lists those of each.
    """

    def __init__(
        self,
        problem: Problem,
        comm: MPI.Comm,
        work: HostWork | DeviceWork,
        fill: Fill,
        shape: tuple | None = None,
    ):
        self._comm, self._work = comm, work
        self._transposed, self._beta = problem.transpose, float(problem.updates)
        shapes = [shape] if shape else problem.local_shapes()
        self._memory = [
            work.empty(size, numpy_type(problem.type_of(name)))
            for name, size in zip("ABC", roof_sizes(shapes))
        ]
        for place, name in enumerate("AB"):  # the shape with the largest operand fills all of it
            largest = max(shapes, key=lambda shape: _operands(shape)[place][0])
            work.fill(self._whole(largest)[place], fill, name)
        if shape:  # tried before in other memory: the pages of this one are still untouched
            self._seconds(shape)
        self.shape = shape or fastest(shapes, self._seconds)
        self._operands = self._views(self.shape)

    def _whole(self, shape) -> list:
        """A, B and C of the local GEMMs, in the memory of the largest."""
        found = []
        for name, memory, (size, rows, columns) in zip("abc", self._memory, _operands(shape)):
            transposed = name in self._transposed
            view = memory[:size].reshape((columns, rows) if transposed else (rows, columns))
            found.append(view.T if transposed else view)
        return found

    def _views(self, shape) -> list[tuple]:
        """A, B and C of each local GEMM."""
        (a, b, c), (rows, _, k), top, found = self._whole(shape), shape, 0, []
        for x, m in enumerate(rows):
            found.append((a[top : top + m], b[x * k : (x + 1) * k], c[top : top + m]))
            top += m
        return found

    def _seconds(self, shape) -> float:
        """Seconds of the GEMMs on every rank."""
        return self._time_gemms(self._views(shape)).seconds

    def _time_gemms(self, gemms: list[tuple]) -> Timed:
        def multiply():
            for operands in gemms:
                self._work.multiply(*operands, self._beta)

        return timed(self._comm, multiply)

    @property
    def flops(self) -> int:
        """FLOPs of one sample, all ranks together."""
        return 2 * _work(self.shape) * self._comm.size

    def sample(self) -> Timed:
        """Run and time the GEMMs on every rank."""
        return self._time_gemms(self._operands)


def roof_sizes(shapes: list[tuple]) -> list[int]:
    """Elements of A, B and C of the local GEMMs, enough for each of the shapes.

    Examples
    --------
    >>> roof_sizes([((2,), 8, 8), ((4,), 4, 8)])
    [32, 64, 16]
    """
    return [max(size for size, _, _ in each) for each in zip(*map(_operands, shapes))]


def _operands(shape: tuple) -> list[tuple[int, int, int]]:
    """Elements, rows and columns of A, B and C; those of several GEMMs are stacked."""
    rows, n, k = shape
    every = (sum(rows), k), (len(rows) * k, n), (sum(rows), n)
    return [(height * columns, height, columns) for height, columns in every]


def _work(shape: tuple) -> int:
    """Multiply-adds of a shape."""
    rows, n, k = shape
    return sum(rows) * n * k


def fastest(shapes: list, seconds_of: Callable[[Any], float]) -> Any:
    """The shape that needs the least time for its work, in rounds over all shapes, forwards and
    backwards. Much slower shapes are dropped early. The same on every rank if the times are.

    Shapes are compared within a round, and the median over rounds decides: if the machine changes
    its speed, it does so for all of a round, or for one round of many.

    Examples
    --------
    >>> shapes = [((2,), 8, 8), ((4,), 4, 8), ((8,), 8, 2)]
    >>> fastest(shapes, lambda shape: 3.0 if shape[2] == 2 else 4.0)
    ((8,), 8, 2)
    """
    left: dict = {shape: [] for shape in shapes}
    for shape in shapes:
        seconds_of(shape)  # warms pages and caches
    spent_s, trials = 0.0, 0
    while trials < _TRIALS or (spent_s < _TRIALS_S and trials < _MOST_TRIALS):
        for shape in list(left)[:: -1 if trials % 2 else 1]:
            found = seconds_of(shape)
            left[shape].append(found / _work(shape))
            spent_s += found
        trials += 1
        if trials > 1:
            behind = _behind(left)
            left = {shape: left[shape] for shape in left if min(behind[shape]) <= _BEHIND}
    behind = _behind(left)
    return min(left, key=lambda shape: median(behind[shape]))


def _behind(found: dict) -> dict:
    """The time of each shape over the least of its round, for each round."""
    least = [min(times) for times in zip(*found.values())]
    return {shape: [one / best for one, best in zip(mine, least)] for shape, mine in found.items()}
