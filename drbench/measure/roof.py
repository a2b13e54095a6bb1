"""The roof: what the same cores reach on the same work with no communication at all."""

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from drbench.common import Clock, numpy_type
from drbench.device.address import at_address
from drbench.host.blas import Blas
from drbench.host.fill import Fill
from drbench.program.problem import Problem

_TRIALS = 3


def timed(comm: MPI.Comm, function) -> float:
    """Seconds from barrier to barrier around ``function()``; the slowest rank counts
    (collective)."""
    comm.Barrier()
    start = Clock.now()
    function()
    comm.Barrier()
    return comm.allreduce(Clock.now() - start, MPI.MAX)


@dataclass(frozen=True)
class HostWork:
    """Where a rank's local products run: on its cores."""

    blas: Blas

    def empty(self, size: int, dtype) -> np.ndarray:
        return np.empty(size, dtype)

    def fill(self, array, fill: Fill, matrix: str) -> None:
        fill.into(array, matrix, 0, 0)

    def multiply(self, a, b, c) -> None:
        """c = a·b, finished when this returns."""
        self.blas.gemm(a, b, c, 0.0)


class DeviceWork:
    """Where a rank's local products run: on its device."""

    def __init__(self, device):
        self._device, self._stream, self._memory = device, device.stream("roof"), []

    def empty(self, size: int, dtype):
        memory = self._device.allocate(max(1, size * dtype.itemsize))
        self._memory.append(memory)
        return at_address(memory.address, size, dtype)

    def fill(self, array, fill: Fill, matrix: str) -> None:
        self._device.fill(array, fill, matrix, 0, 0)

    def multiply(self, a, b, c) -> None:
        self._device.gemm(a, b, c, 0.0, self._stream)
        self._stream.synchronise()

    def close(self) -> None:
        for memory in self._memory:
            memory.free()


class Roof:
    """Every rank at once multiplies m·n·k/p of local work (collective to make and to measure).

    Of the local shapes m/p × n × k, m × n/p × k and the near-square blocks the fastest is kept: the
    best of a few trials each.

    Parameters
    ----------
    problem : Problem
    comm : MPI.Comm
    work : HostWork or DeviceWork
    fill : Fill
        The operands' fill: the speed of a GEMM may depend on its values.
    """

    def __init__(self, problem: Problem, comm: MPI.Comm, work: HostWork | DeviceWork, fill: Fill):
        self._comm, self._work = comm, work
        shapes = problem.local_shapes()
        self._memory = [
            work.empty(size, numpy_type(problem.type_of(name)))
            for name, size in zip("ABC", problem.roof_sizes())
        ]
        self.shape = shapes[0]
        rates = {}
        for shape in shapes:
            self._lay_out(shape, fill)
            self.sample()
            rates[shape] = max(self.sample() for _ in range(_TRIALS))
        best = max(rates, key=rates.get)
        if best != self.shape:
            self._lay_out(best, fill)
            self.sample()

    def _lay_out(self, shape, fill) -> None:
        self.shape = m, n, k = shape
        a, b, c = self._memory
        self._a, self._b, self._c = (
            a[: m * k].reshape(m, k),
            b[: k * n].reshape(k, n),
            c[: m * n].reshape(m, n),
        )
        self._work.fill(self._a, fill, "A")
        self._work.fill(self._b, fill, "B")

    def sample(self) -> float:
        """FLOP/s of all ranks together, measured once."""
        m, n, k = self.shape
        seconds = timed(self._comm, lambda: self._work.multiply(self._a, self._b, self._c))
        return 2 * m * n * k * self._comm.size / seconds
