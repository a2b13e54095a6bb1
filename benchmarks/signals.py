"""Fused overlap on this machine, all contenders interleaved in one process a rank: rows of sections
of ``benchmarks/core.py`` (gather, reduce, sums, signals, signals_remote), which starts it.

    python -m benchmarks signals throttled gather        # or reduce; sums: the universal algorithm
    python -m benchmarks signals roof gather [--tiles 512,1024]   # or reduce; MPI by the
                                                         # environment
    python -m benchmarks signals cost                    # of a Push and its Await

``throttled``: the network's speed gives transfers a set share of the compute time, which is that of
the same program with an infinitely fast network, run right before and after. ``roof``: compared
with local GEMMs, and with the universal algorithm on the same layouts. Ratios are of times of the
same round. Prints JSON, a row a case; results of programs are also compared, exactly.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from benchmarks.__main__ import parser_of
from drbench.algorithms import get_algorithm
from drbench.algorithms.collective import baseline_of
from drbench.clock import Clock
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.fill import Fill
from drbench.host.matrix import distributed
from drbench.host.throttle import Throttle
from drbench.host.topology import Topology
from drbench.launch.cases.sweep_values import scale_of, scaled_size
from drbench.launch.ranks.run_case import MPI, world
from drbench.launch.sweeps.rounds import rotated
from drbench.measure.noise import Timed, median_interval, undisturbed
from drbench.measure.roof import HostWork, Roof, timed
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import COUNTERS, Get
from drbench.program.trace import no_collection, trace

#: Bytes a second of a network that takes no time.
FREE = 1e15
#: What transfers take of compute.
SHARES = (0.3, 0.7, 1.0)
#: Which are also compared with each other.
PUSH, PULL = "ag_gemm push", "ag_gemm pull"
LAYOUTS = {
    "gather": ("row", "column", "column"),
    "reduce": ("column", "row", "row"),
    "row": ("row", "row", "row"),
    "column, column, row": ("column", "column", "row"),
}
#: Algorithm, its variants, and the most of the larger of compute and transfers that each may take.
VARIANTS = {
    "gather": ("ag_gemm", ("pull", "push", "ring"), 1.20),
    "reduce": ("gemm_rs", ("write", "reduce", "pull", "ring"), 1.25),
}


class Contender(NamedTuple):
    """A named program, its options, and what its time is compared with: the ``larger`` of compute
    and transfers, or their ``sum``, from ``least`` times to ``most`` times that."""

    name: str
    algorithm: str
    options: dict[str, Any] = {}
    least: float | None = None
    most: float | None = None
    against: str = "larger"


def fused(kind: str, tiles: list[int]) -> list[Contender]:
    """The variants of fused overlap, each with every tile."""
    algorithm, variants, most = VARIANTS[kind]
    return [
        Contender(f"{algorithm} {v}", algorithm, {"variant": v, "tile": tile}, most=most)
        for v in variants
        for tile in tiles
    ]


class Ground:
    """Matrices, links and executors that contenders share.

    Parameters
    ----------
    comm : MPI.Comm
    problem : Problem
    matrices : dict of str to DistributedMatrix
        A and B are filled.
    """

    def __init__(self, comm: MPI.Comm, problem: Problem, matrices: dict):
        self.comm, self.problem, self.matrices = comm, problem, matrices
        self.blas, self.fill = load_blas(), Fill("integer", 0, problem.k)
        for name in "AB":
            for block, tile in matrices[name].own_blocks():
                self.fill.into(tile, name, block.row0, block.col0)
        self._result: list | None = None

    def executor(self, contender: Contender, throttled: bool) -> Executor:
        """The executor of a contender, after a first run.

        Raises
        ------
        RuntimeError
            If the result is not that of the first contender.
        """
        algorithm = get_algorithm(contender.algorithm)
        options = contender.options
        if contender.algorithm == "collective":
            _, options = baseline_of(self.problem)
        in_place = not (throttled or any(each.uses_rma for each in self.matrices.values()))
        resolved = algorithm.resolve(self.problem, in_place, **options)
        program = algorithm.trace(self.problem, self.comm.rank, **resolved)
        link = Throttle(FREE, 0.0) if throttled else None
        depth = "all" if program.signals else 1
        executor = Executor(program, self.matrices, prefetch=depth, throttle=link, blas=self.blas)
        executor.yields = False
        self.time(executor)
        tiles = [tile.copy() for _, tile in self.matrices["C"].own_blocks()]
        self._result = self._result or tiles
        if not all(map(np.array_equal, tiles, self._result)):
            raise RuntimeError(f"{contender.name} computes something else than the first program")
        return executor

    def time(self, executor: Executor, bandwidth: float | None = None) -> Timed:
        """The time of one run, with links of so many bytes a second."""
        if bandwidth is not None:
            executor.throttle.bandwidth_bytes_per_s = bandwidth
        executor.poison()
        executor.clock.reset()
        return timed(self.comm, executor.run)

    def compute(self, executor: Executor) -> Timed:
        """The time of one run on a free network, less what MPI's own collectives take there: on a
        slow one that is hidden in the transfer."""
        found = self.time(executor, FREE)
        hidden = self.comm.allreduce(executor.clock.seconds["collective_wait"], MPI.MAX)
        return found._replace(seconds=found.seconds - hidden)

    def moved(self, executor: Executor) -> int:
        """Bytes that the busiest rank moves in a run."""
        return self.comm.allreduce(sum(executor.bytes[name] for name in COUNTERS), MPI.MAX)

    def rounds(self, repeat: Callable[[int], dict], least: int, budget_s: float) -> list[dict]:
        """What ``repeat(round_index)`` gives, times by name, for ``budget_s`` seconds, and
        ``least`` times at least (collective)."""
        found: list[dict] = []
        start = Clock.now()
        while self.comm.bcast(len(found) < least or Clock.now() - start < budget_s):
            found.append(repeat(len(found)))
        return found


@contextmanager
def ground(size: int, layout: tuple[str, str, str]) -> Iterator[Ground]:
    """The ground of a cube (collective)."""
    with Topology(MPI.COMM_WORLD) as topology, no_collection():
        problem = Problem(size, size, size, topology.comm.size, *layout)
        with distributed(problem, topology) as matrices:
            yield Ground(topology.comm, problem, matrices)


def undisturbed_times(taken: list[dict], least: int, *names) -> list[tuple[float, ...]]:
    """The seconds of some times of each round in which every rank had its core for all of them; of
    all rounds if fewer than ``least`` are left."""
    found = [tuple(each[name] for name in names) for each in taken]
    return [tuple(t.seconds for t in found[place]) for place in undisturbed(found, least)]


def ratio(samples: list[float]) -> dict:
    """The median of paired ratios, and its interval."""
    low, high = median_interval(samples) or (min(samples), max(samples))
    return {"ratio": median(samples), "low": low, "high": high, "rounds": len(samples)}


def throttled(kind: str, tiles: list[int], size: int, least: int, budget_s: float) -> list[dict]:
    """Times on slow networks over the larger of compute and transfers, and over their sum; of
    ``sums``: the universal algorithm where partial sums move, accumulated and pushed."""
    (tile,) = tiles
    if kind != "sums":
        base = Contender("collective", "collective", {}, 0.95, 1.05, "sum")
        contenders = [base, *fused(kind, tiles)]
        return on_slow_networks(LAYOUTS[kind], contenders, size, least, budget_s)
    rows = []
    for layout in ("row", "column, column, row"):
        name, plain = f"universal, {layout}", {"stationary": "B", "sums": "accumulate"}
        pushed = plain | {"sums": "push", "chunk": tile}
        contenders = [
            Contender(f"{name}, accumulated", "universal", plain),
            Contender(f"{name}, signals", "universal", pushed, most=1.20),
        ]
        rows += on_slow_networks(LAYOUTS[layout], contenders, size, least, budget_s)
    return rows


def on_slow_networks(
    layout: tuple[str, str, str],
    contenders: list[Contender],
    size: int,
    least: int,
    budget_s: float,
) -> list[dict]:
    """A row a contender and share of transfers."""
    with ground(size, layout) as here:
        executors = {each.name: here.executor(each, throttled=True) for each in contenders}
        moved = {name: here.moved(each) for name, each in executors.items()}

        def repeat(round_index: int) -> dict:
            found = {}
            for name in rotated(list(executors), round_index):
                executor = executors[name]
                free = found[name, "before"] = here.compute(executor)
                for share in rotated(SHARES, round_index):
                    found[name, share] = here.time(executor, moved[name] / (share * free.seconds))
                found[name, "after"] = here.compute(executor)
            return found

        taken = here.rounds(repeat, least, budget_s * len(contenders) * len(SHARES))
        for executor in executors.values():
            executor.close()
    rows: list[dict] = []
    for contender in contenders:
        name = contender.name
        for share in SHARES:
            times = undisturbed_times(
                taken, least, (name, "before"), (name, share), (name, "after")
            )
            samples = []
            for before, slow, after in times:
                compute, comm_s = (before + after) / 2, share * before
                over = {"larger": max(compute, comm_s), "sum": compute + comm_s}
                samples.append(slow / over[contender.against])
            rows.append(
                {
                    "case": name,
                    "transfers_over_compute": share,
                    "against": contender.against,
                    "bar_low": contender.least,
                    "bar": contender.most,
                    **ratio(samples),
                    "median_s": median(slow for _, slow, _ in times),
                }
            )
    for share in SHARES if PUSH in executors else ():
        pairs = undisturbed_times(taken, least, (PUSH, share), (PULL, share))
        row = {"case": "ag_gemm push over pull", "transfers_over_compute": share}
        row |= {"against": "pull", "bar_low": 0.95, "bar": 1.05}
        rows.append(row | ratio([push / pull for push, pull in pairs]))
    return rows


def against_roof(kind: str, tiles: list[int], size: int, least: int, budget_s: float) -> list[dict]:
    """Programs on the transport that MPI gives, against local GEMMs and against the first of them,
    the universal algorithm."""
    contenders = [Contender("universal", "universal"), *fused(kind, tiles)]
    with ground(size, LAYOUTS[kind]) as here:
        executors = [here.executor(each, throttled=False) for each in contenders]
        roof = Roof(here.problem, here.comm, HostWork(here.blas), here.fill)
        timed_of = {"roof": roof.sample}
        timed_of |= {at: partial(here.time, each) for at, each in enumerate(executors)}
        repeat = lambda round_index: {
            name: timed_of[name]() for name in rotated(list(timed_of), round_index)
        }
        taken = here.rounds(repeat, least, budget_s * len(contenders))
        for executor in executors:
            executor.close()
    rows, scale = [], here.problem.flops / roof.flops
    for place, contender in enumerate(contenders):
        times = undisturbed_times(taken, least, place, "roof")
        others = undisturbed_times(taken, least, place, 0)
        of_universal = ratio([universal_s / seconds for seconds, universal_s in others])
        rows.append(
            {
                "case": contender.name,
                "tile": contender.options.get("tile"),
                **ratio([scale * roof_s / seconds for seconds, roof_s in times]),
                "of_universal": of_universal["ratio"],
                "of_universal_low": of_universal["low"],
                "of_universal_high": of_universal["high"],
                "median_s": median(seconds for seconds, _ in times),
            }
        )
    return rows


def cost(count: int, topology: Topology, *transport) -> float:
    """Seconds of this process's core for one Push and one Await of 16 elements, of ``count`` each
    way between two ranks; the best of several runs, on the rank that took less."""
    comm = topology.comm
    problem = Problem(4 * comm.size, 1, 4, comm.size, "row", "R", "row")
    own, other = problem.a.own_tiles(comm.rank)[0], 1 - comm.rank

    def program():
        token = yield Get(own)
        for x in range(count):
            yield Push(token, other, x)
        for x in range(count):
            yield Await(other, x, own)

    best = float("inf")
    with distributed(problem, topology, *transport) as matrices:
        found = trace(program(), problem, comm.rank, fresh=False)
        with Executor(found, matrices, prefetch="all") as executor:
            for _ in range(9):
                executor.prepare()
                comm.Barrier()
                start = process_time()
                executor.run()
                best = min(best, process_time() - start)
                comm.Barrier()
    return comm.allreduce(best, MPI.MIN) / count


def main() -> None:
    comm = world()  # MPI begins as it does for a case
    parser = parser_of(__doc__)
    parser.add_argument("table", choices=("throttled", "roof", "cost"))
    parser.add_argument("kind", nargs="?", choices=(*VARIANTS, "sums"), default="gather")
    parser.add_argument("--scale", default="1", help="of 4096 cubed, as 1/4")
    parser.add_argument("--tiles", default="512", help="rows of a communication tile")
    parser.add_argument("--iters", type=int, default=5, help="least rounds")
    parser.add_argument("--budget", type=float, default=8, help="seconds of a case")
    chosen = parser.parse_args()
    tiles = [int(each) for each in chosen.tiles.split(",")]
    how = scaled_size(4096, scale_of(chosen.scale, "--scale")), chosen.iters, chosen.budget
    load_blas()
    threadpoolctl.threadpool_limits(1)
    if chosen.table == "cost":
        with Topology(comm) as topology:
            rows = [{"case": "Push and Await", "cost_s": cost(300, topology), "bar": 20e-6}]
    else:
        measure = throttled if chosen.table == "throttled" else against_roof
        rows = measure(chosen.kind, tiles, *how)
    if comm.rank == 0:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
