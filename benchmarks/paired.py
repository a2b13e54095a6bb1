"""Contenders that run in alternating order in one process a rank, on the same matrices: what
``benchmarks/signals.py``, ``small.py`` and ``sockets.py`` share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from algorithms import get_algorithm
from algorithms.collective import baseline_of
from drbench.common import Clock, parse_transport
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.fill import Fill
from drbench.host.matrix import distributed
from drbench.host.throttle import Throttle
from drbench.host.topology import Topology
from drbench.measure.noise import Timed, median_interval, undisturbed
from drbench.measure.roof import HostWork, timed
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection
from launch.ranks.run_case import MPI

#: Bytes a second of a network that takes no time.
FREE = 1e15


class Contender(NamedTuple):
    """A program, its options, and what its time is held against: the ``larger`` of compute and
    transfers, or their ``sum``, from ``least`` times to ``most`` times that; ``label`` for its
    name."""

    algorithm: str
    options: dict[str, Any] = {}
    least: float | None = None
    most: float | None = None
    against: str = "larger"
    label: str | None = None

    @property
    def name(self) -> str:
        variant = self.options.get("variant")
        return self.label or (f"{self.algorithm} {variant}" if variant else self.algorithm)


class Ground:
    """Matrices, links and executors on which programs take turns.

    Parameters
    ----------
    comm : MPI.Comm
    problem : Problem
    matrices : dict of str to DistributedMatrix
        A and B filled.
    in_place : bool
        What programs are told of the transport.
    """

    def __init__(self, comm: MPI.Comm, problem: Problem, matrices: dict, in_place: bool):
        self.comm, self.problem, self.matrices = comm, problem, matrices
        self.in_place, self.blas = in_place, load_blas()
        self.fill = Fill("integer", 0, problem.k)
        for name in "AB":
            for block, tile in matrices[name].own_blocks():
                self.fill.into(tile, name, block.row0, block.col0)
        self._result: list | None = None

    def executor(self, contender: Contender, throttled: bool) -> Executor:
        """Of a program, after a first run."""
        algorithm = get_algorithm(contender.algorithm)
        options = contender.options
        if contender.algorithm == "collective":
            _, options = baseline_of(self.problem)
        resolved = algorithm.resolve(self.problem, self.in_place, **options)
        found = algorithm.trace(self.problem, self.comm.rank, **resolved)
        link = Throttle(FREE, 0.0) if throttled else None
        depth = "all" if found.signals else 1
        how = {"prefetch": depth, "throttle": link, "blas": self.blas}
        executor = Executor(found, self.matrices, **how)
        executor.yields = False
        self.time(executor)
        self._compare(contender)
        return executor

    def _compare(self, contender: Contender) -> None:
        """Raise if the result is not that of the first program."""
        tiles = [tile.copy() for _, tile in self.matrices["C"].own_blocks()]
        self._result = self._result or tiles
        if not all(map(np.array_equal, tiles, self._result)):
            raise RuntimeError(f"{contender.name} computes something else than the first program")

    def time(self, executor: Executor, bandwidth: float | None = None) -> Timed:
        """Of one run, with links of so many bytes a second."""
        if bandwidth is not None:
            executor.throttle.bandwidth_bytes_per_s = bandwidth
        executor.spoil()
        executor.clock.reset()
        return timed(self.comm, executor.run)

    def compute(self, executor: Executor) -> Timed:
        """Of one run on a free network, less what MPI's own collectives take there: on a slow one
        that is hidden in the transfer."""
        found = self.time(executor, FREE)
        hidden = self.comm.allreduce(executor.clock.seconds["collective_wait"], MPI.MAX)
        return found._replace(seconds=found.seconds - hidden)

    def moved(self, executor: Executor) -> int:
        """Bytes that the busiest rank moves in a run."""
        return self.comm.allreduce(sum(executor.bytes[name] for name in COUNTERS), MPI.MAX)

    def product(self, rows: int) -> Callable[[], Timed]:
        """Times the rank's work as one local product, cut into so many rows at a time."""
        m, n, k = shape_of(self.problem)
        arrays = [HostWork(self.blas).empty(size, np.dtype("f4")) for size in (m * k, k * n, m * n)]
        a, b, c = (x.reshape(s) for x, s in zip(arrays, ((m, k), (k, n), (m, n))))
        for name, array in (("A", a), ("B", b)):
            self.fill.into(array, name, 0, 0)
        c.fill(0)

        def multiply(rows: int) -> Timed:
            def parts() -> None:
                for row in range(0, m, rows):
                    self.blas.gemm(a[row : row + rows], b, c[row : row + rows], 0.0)

            return timed(self.comm, parts)

        return multiply


def shape_of(problem: Problem) -> tuple[int, int, int]:
    """m, n and k of a rank's work, which holds a share of B."""
    rows, columns = problem.b.own_tiles(0)[0].shape
    return problem.m, columns, rows


@contextmanager
def ground(
    size: int,
    layout: tuple[str, str, str],
    in_place: bool,
    transport: str = "auto",
    padded: str = "",
) -> Iterator[Ground]:
    """A cube dealt out, with ``padded`` as of Problem (collective)."""
    with Topology(MPI.COMM_WORLD) as topology, no_collection():
        problem = Problem(size, size, size, topology.comm.size, *layout, padded=padded)
        with distributed(problem, topology, parse_transport(transport)) as matrices:
            yield Ground(topology.comm, problem, matrices, in_place)


def rounds(comm: MPI.Comm, repeat: Callable[[int], dict], least: int, budget_s: float) -> list:
    """What ``repeat(turn)`` gives, times by name, for ``budget_s`` seconds, and ``least`` times at
    least (collective)."""
    found: list[dict] = []
    start = Clock.now()
    while comm.bcast(len(found) < least or Clock.now() - start < budget_s):
        found.append(repeat(len(found)))
    return found


def undisturbed_times(taken: list[dict], least: int, *names) -> list[tuple[float, ...]]:
    """The seconds of some times of each round in which every rank had its core for all of them; of
    all rounds if fewer than ``least`` are left."""
    found = [tuple(each[name] for name in names) for each in taken]
    return [tuple(t.seconds for t in found[place]) for place in undisturbed(found, least)]


def ratio(samples: list[float]) -> dict:
    """The median of paired ratios, and its interval."""
    low, high = median_interval(samples) or (min(samples), max(samples))
    return {"ratio": median(samples), "low": low, "high": high, "rounds": len(samples)}
