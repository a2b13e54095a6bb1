"""The roof: what the same cores reach on the same work with no communication at all."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from .blas import Blas
from .fill import Fill
from .problem import Problem
from .timing import Clock

__all__ = ["Roof", "timed"]

_TRIALS = 3


def timed(comm: MPI.Comm, function) -> float:
    """Seconds from barrier to barrier around ``function()``; the slowest rank counts (collective)."""
    comm.Barrier()
    start = Clock.now()
    function()
    comm.Barrier()
    return comm.allreduce(Clock.now() - start, MPI.MAX)


class Roof:
    """Every rank at once multiplies m·n·k/p of local work (collective to make and to measure).

    Of the local shapes m/p × n × k, m × n/p × k and the near-square blocks the fastest is kept: the best of
    a few trials each.

    Parameters
    ----------
    problem : Problem
    comm : MPI.Comm
    blas : Blas
    fill : Fill
        The operands' fill: the speed of a GEMM may depend on its values.
    """

    def __init__(self, problem: Problem, comm: MPI.Comm, blas: Blas, fill: Fill):
        self._comm, self._blas = comm, blas
        shapes = problem.local_shapes()
        self._memory = [np.empty(size, problem.dtype) for size in roof_sizes(problem)]
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
        self._a, self._b, self._c = a[:m * k].reshape(m, k), b[:k * n].reshape(k, n), c[:m * n].reshape(m, n)
        fill.into(self._a, "A", 0, 0)
        fill.into(self._b, "B", 0, 0)

    def sample(self) -> float:
        """FLOP/s of all ranks together, measured once."""
        m, n, k = self.shape
        seconds = timed(self._comm, lambda: self._blas.gemm(self._a, self._b, self._c, 0.0))
        return 2 * m * n * k * self._comm.size / seconds


def roof_sizes(problem: Problem) -> tuple[int, int, int]:
    """Elements of the three local operands, enough for every local shape."""
    shapes = problem.local_shapes()
    return (max(m * k for m, n, k in shapes), max(k * n for m, n, k in shapes), max(m * n for m, n, k in shapes))
