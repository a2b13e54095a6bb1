"""``drbench calibrate`` on the ranks: what this machine's products, transfers and collectives take,
all ranks at once."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf

import numpy as np
import threadpoolctl
from mpi4py import MPI

from algorithms import get_algorithm
from drbench.common import parse_transport
from drbench.errors import UsageError
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.matrix import DistributedMatrix, distributed
from drbench.host.topology import Topology
from drbench.measure.roof import timed
from drbench.model.fit import fit_collective, fit_gemm, fit_line
from drbench.program.problem import Problem
from launch.cases.machine_models import read_document, write_model
from launch.host.environment import processor_name

#: Local products, (m, n, k): thick and thin along each axis, down to single tiles.
_SHAPES = [
    (1024, 1024, 1024),
    (2048, 1024, 512),
    (64, 2048, 1024),
    (256, 2048, 1024),
    (512, 2048, 1024),
    (1024, 64, 2048),
    (1024, 256, 2048),
    (1024, 512, 2048),
    (2048, 1024, 64),
    (2048, 1024, 256),
    (512, 512, 512),
    (256, 256, 256),
    (128, 128, 128),
    (256, 256, 4096),
    (16, 2048, 1024),
    (1024, 16, 1024),
    (1024, 2048, 128),
    (512, 4096, 512),
    (32, 32, 32),
    (8, 8, 8),
]
#: Transfers, in bytes.
_SIZES = [1 << s for s in range(14, 25, 2)]
#: Widths of blocks of columns, in elements.
_WIDTHS = (64, 256, 1024, 4096, 16384)
#: Shards of collectives, in bytes.
_SHARDS = [1 << s for s in range(13, 23, 3)]


def calibrate_here(
    out: str, name: str, trials: int, measure: Callable[[Topology, int], tuple[str, dict]]
) -> int:
    """Measure on the ranks this process belongs to, the best of so many trials; rank 0 writes the
    ``[model]`` section of the file.

    Parameters
    ----------
    measure : callable
        ``measure(topology, trials)`` -> what was measured, in words, and its tables (collective).

    Raises
    ------
    UsageError
        If links cannot be measured here: on one rank, or on several nodes.
    """
    comm = MPI.COMM_WORLD
    read_document(out)  # what cannot be kept is refused before anything is measured
    with Topology(comm) as topology:
        if comm.size < 2:
            raise UsageError("calibrate needs at least 2 ranks, got 1. Use -p 2.")
        if topology.nodes > 1:
            raise UsageError(
                f"calibrate measures one node, got {topology.nodes}. Start it on one, and add the "
                "links between nodes to the file by hand."
            )
        where, tables = measure(topology, trials)
        # of all ranks
        fence_s = best_of(comm, lambda: comm.Ibarrier().Wait(), trials, 100)
    if comm.rank == 0:
        model = {
            "#": f"measured by drbench calibrate -p {comm.size}, {where}, "
            f"{datetime.now(UTC):%Y-%m-%d}; best of {trials}, all ranks at once. Seconds, bytes, "
            "FLOP/s.",
            "name": name,
            "fence_s": (fence_s, "Ibarrier"),
            **tables,
            "calibrated": tables.get("calibrated", {})
            | {
                "ranks": comm.size,
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "processor": processor_name(),
            },
        }
        print(write_model(out, model), flush=True)
    return 0


def cores(topology: Topology, trials: int, threads: int | None) -> tuple[str, dict]:
    """What the cores of this node take, on so many BLAS threads a rank (collective)."""
    comm, threads = topology.comm, threads or topology.cores_per_rank
    threadpoolctl.threadpool_limits(threads)
    gemm, double = (fit_gemm(_products(comm, trials, code)) for code in ("f4", "f8"))
    memory, about = _memory(comm, trials), "add of 16 MiB"
    compute = compute_section(gemm, memory, len(_SHAPES), about)
    double_compute = compute_section(double, memory, len(_SHAPES), about)
    direct, rma = (_transfers(topology, kind, trials) for kind in ("direct", "rma"))
    get_s, get_rate, row_s = rma["get"]
    return f"{threads} threads a rank, {os.uname().machine}", {
        "calibrated": {"threads": threads},
        "adds_on_core": True,
        "pieces_apart": True,
        "step_s": (
            _overhead(topology, gemm[0], trials),
            "executor, products of 8x8x8 in place, less the product",
        ),
        "compute": compute,
        "dtypes": {"float64": double_compute},
        "transports": {
            "direct": {
                "#": "in place: a get is a view",
                "shared": "initiator",
                "reads_in_place": True,
                "bandwidth_bytes_per_s": inf,
                "core_add_bytes_per_s": (
                    direct["add"][1],
                    "locked add into the next rank's tile, fit over "
                    f"{_SIZES[0]} to {_SIZES[-1]} bytes",
                ),
            },
            "rma": {
                "shared": "initiator",
                "bandwidth_bytes_per_s": (
                    inf,
                    "on one node the core that gets makes the copy:",
                ),
                "core_bytes_per_s": (get_rate, "MPI_Rget, likewise"),
                "core_row_s": (
                    row_s,
                    "more, for each row of a block of columns; widths of "
                    f"{_WIDTHS[0]} to {_WIDTHS[-1]} elements",
                ),
                "latency_s": get_s,
                "core_add_bytes_per_s": (rma["add"][1], "MPI_Raccumulate and flush, likewise"),
            },
        },
        "collectives": _collectives(comm, trials),
    }


def best_of(comm, function, trials: int, repeats: int = 1) -> float:
    """Seconds of one call, the slowest rank, the best trial (collective)."""

    def several():
        for _ in range(repeats):
            function()

    several()
    return min(timed(comm, several).seconds for _ in range(trials)) / repeats


def _products(comm, trials: int, code: str) -> list[tuple[int, int, int, float]]:
    """All ranks multiply elements of NumPy's type ``code`` at once; trials of different shapes take
    turns, so that a drifting machine hurts all alike."""
    blas, rng = load_blas(), np.random.default_rng(0)
    operands = {
        (m, n, k): (rng.random((m, k), code), rng.random((k, n), code), np.zeros((m, n), code))
        for m, n, k in _SHAPES
    }
    best = dict.fromkeys(_SHAPES, inf)
    for trial in range(trials + 1):
        for (m, n, k), (a, b, c) in operands.items():
            repeats = max(1, int(2e8 / (2 * m * n * k + 2e5)))

            def several():
                for _ in range(repeats):
                    blas.gemm(a, b, c, 1.0)

            seconds = timed(comm, several).seconds / repeats
            if trial:
                best[m, n, k] = min(best[m, n, k], seconds)
    return [(*shape, seconds) for shape, seconds in best.items()]


def _memory(comm, trials: int) -> float:
    """Bytes a second of an add (two reads, one write) of 16 MiB, all ranks at once."""
    a, b = np.ones(1 << 22, "f4"), np.ones(1 << 22, "f4")
    return 3 * a.nbytes / best_of(comm, lambda: np.add(a, b, out=a), trials)


def _transfers(topology, kind: str, trials: int) -> dict:
    """Gets (RMA only: in place they cost nothing) and accumulates, each rank to the next: (latency,
    bytes a second)."""
    comm = topology.comm
    cols = _SIZES[-1] // 4 // 64
    problem = Problem(64 * comm.size, cols, 8, comm.size, a="row", b="row", c="row")
    matrix = DistributedMatrix(problem.c, topology, "float32", parse_transport(kind))
    # rows, columns, and how many of the rows lie apart
    shapes = [(max(1, nbytes // 4 // cols), min(cols, nbytes // 4), 0) for nbytes in _SIZES]
    if kind == "rma":
        shapes += [(64, width, 64) for width in _WIDTHS]
    gets, adds = [], []

    def get():
        matrix.window.rget(value, block).Wait()

    def add():
        if kind == "rma":
            matrix.window.raccumulate(value, block).Wait()
            matrix.window.flush()
        else:
            matrix.add(value, block)

    try:
        for _, tile in matrix.own_blocks():
            tile.fill(1)
        first = 64 * ((comm.rank + 1) % comm.size)
        for rows, width, apart in shapes:
            block = problem.c.block((first, first + rows), (0, width))
            value = np.ones(block.shape, "f4")
            repeats = max(1, (1 << 20) // value.nbytes)
            if kind == "rma":
                gets.append((value.nbytes, apart, best_of(comm, get, trials, repeats)))
            if not apart:
                adds.append((value.nbytes, best_of(comm, add, trials, repeats)))
    finally:
        matrix.close()
    return {"get": fit_line(gets) if gets else None, "add": fit_line(adds)}


def _overhead(topology, gemm: dict, trials: int) -> float:
    """The executor's own time a product: 4096 products of 8³ in place, less what the model says of
    such a product."""
    comm = topology.comm
    text = "tiles:8x8"
    problem = Problem(128, 128, 128, comm.size, text, text, text)
    trace = get_algorithm("universal").trace(problem, comm.rank, stationary="C")
    with (
        distributed(problem, topology, parse_transport("direct")) as matrices,
        Executor(trace, matrices) as executor,
    ):
        seconds = best_of(comm, executor.run, trials)
    products = sum(step.computes for step in trace.steps)
    own = gemm["launch_s"] + 1024 / gemm["peak_flops"] + 64 * sum(gemm["pack_s"])
    return comm.allreduce(max(0.0, seconds / max(1, products) - own), MPI.MAX)


def _collectives(comm, trials: int) -> dict:
    """Rings on 2 ranks, and on all if there are more."""
    samples: dict[str, list] = {}
    about = f"fit over shards of {_SHARDS[0]} to {_SHARDS[-1]} bytes" + (
        "; launch and sync cannot be told apart on 2 ranks" if comm.size == 2 else ""
    )
    pairs = comm.Split(comm.rank // 2 if comm.rank < comm.size // 2 * 2 else MPI.UNDEFINED)
    try:
        for group in (pairs, comm) if comm.size > 2 else (comm,):
            for nbytes in _SHARDS if group != MPI.COMM_NULL else ():
                repeats = max(1, (1 << 18) // nbytes)
                for name, call in _calls(group, nbytes // 4).items():
                    sample = group.size, nbytes, best_of(group, call, trials, repeats)
                    samples.setdefault(name, []).append(sample)
    finally:
        if pairs != MPI.COMM_NULL:
            pairs.Free()
    return {name: fit_collective(found) | {"#": about} for name, found in samples.items()}


def _calls(comm, count: int) -> dict[str, Callable]:
    """Each collective on shards of so many elements."""
    mine, theirs, everyone = (np.ones(size, "f4") for size in (count, count, count * comm.size))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return {
        "allgather": lambda: comm.Allgather(mine, everyone),
        "reducescatter": lambda: comm.Reduce_scatter_block(everyone, mine),
        "shift": lambda: comm.Sendrecv(mine, right, 0, theirs, left, 0),
    }


def compute_section(fitted: tuple[dict, float], memory: float, shapes: int, about: str) -> dict:
    """The table ``[model.compute]`` of what was fitted to products, and of the bytes a second of an
    add."""
    gemm, error = fitted
    rate = f"fitted rate of {shapes} local products; median error of the fit {100 * error:.1f} %"
    return {
        "peak_flops": (gemm["peak_flops"], rate),
        "peak_measured": True,
        "launch_s": (gemm["launch_s"], "fitted, likewise pack_s (an element of A, B and C)"),
        "pack_s": list(gemm["pack_s"]),
        "k_block": (float(gemm["k_block"]), "of those tried the one with the best fit"),
        "memory_bytes_per_s": (memory, about),
    }
