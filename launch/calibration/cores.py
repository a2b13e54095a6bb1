"""What the products, transfers and collectives of cores take, all ranks of a node at once."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np
import threadpoolctl
from mpi4py import MPI

from algorithms import get_algorithm
from algorithms.chains.functions import function_seconds
from drbench.common import parse_transport
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.host.matrix import DistributedMatrix, distributed
from drbench.host.topology import Topology
from drbench.measure.roof import timed
from drbench.model.fit import fit_collective, fit_gemm, fit_line, fit_transposed
from drbench.program.problem import Problem

from .programs import in_rounds
from .speed import SpeedNormalisation

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
    (2048, 2048, 512),
    (256, 2048, 2048),
    (2048, 256, 2048),
]
#: Those of them that are measured with one operand stored transposed, too.
_TRANSPOSED = [
    (1024, 1024, 1024),
    (512, 512, 512),
    (256, 256, 4096),
    (256, 2048, 2048),
    (2048, 1024, 256),
    (1024, 256, 2048),
]
#: Transfers, in bytes.
SIZES = [1 << s for s in range(14, 25, 2)]
#: Elements of a row of the tiles that transfers go to.
COLS = 2048
#: Blocks whose rows lie apart: rows, and their elements.
_APART = [(rows, width) for rows in (256, 2048) for width in (64, 256, 512, 1024)]
#: Bytes that a rank reads between two transfers, so that these find nothing in caches.
_SWEPT = 1 << 26
#: Shards of collectives, in bytes.
SHARDS = [1 << s for s in range(13, 23, 3)]


def cores(
    topology: Topology,
    trials: int,
    speed: SpeedNormalisation,
    threads: int | None,
    everyone: Topology | None = None,
) -> tuple[str, dict]:
    """What the cores of this node take, on so many BLAS threads a rank (collective): in words, and
    the tables. On one rank there are no links and no collectives. ``everyone`` are the ranks of
    all nodes, which measure their products at once."""
    comm, everyone = topology.comm, everyone or topology
    threads = threads or everyone.cores_per_rank
    threadpoolctl.threadpool_limits(threads)
    memory = _memory(everyone.comm, trials), "add of 16 MiB"
    spent = lambda make: speed.seconds(lambda: timed(everyone.comm, make).seconds, trials)
    found = {}
    for name, code in (("float32", "f4"), ("float64", "f8")):
        gemms = _gemms(everyone.comm, trials, code, speed)
        functions = {"#": "seconds an element (drbench chain)"} | function_seconds(spent, code)
        found[name] = compute_section(*gemms, memory) | {"functions": functions}
    compute, several = found.pop("float32"), comm.size > 1
    rings = collective_samples(comm, comm.rank // 2, trials) if several else {}
    return f"{threads} threads a rank, {os.uname().machine}", {
        "calibrated": {"threads": threads, "dtypes": ["float32", "float64"]}
        | ranges(_SHAPES, SIZES, SHARDS),
        "adds_on_core": True,
        "gemm_per_fragment": True,
        "step_s": (
            _overhead(topology, compute, trials),
            "executor, products of 8x8x8 in place, less the product",
        ),
        "compute": compute,
        "dtypes": found,
        **({"transports": _local_transports(topology, trials)} if several else {}),
        "collectives": {
            name: fit_collective(samples) | {"#": collective_comment(comm.size)}
            for name, samples in rings.items()
        },
    }


def ranges(shapes, sizes: list[int], shards: list[int]) -> dict:
    """What was measured, from the least to the most: what a file says of it.

    Examples
    --------
    >>> ranges([(8, 2, 3), (4, 5, 6)], [16, 64], [32])
    {'m': [4, 8], 'n': [2, 5], 'k': [3, 6], 'bytes': [16, 64], 'shards': [32, 32]}
    """
    found = dict(zip("mnk", zip(*shapes))) | {"bytes": sizes, "shards": shards}
    return {name: [min(values), max(values)] for name, values in found.items()}


def _local_transports(topology: Topology, trials: int) -> dict:
    """The tables of transports between ranks that share memory."""
    _, adds = transfers(topology, "direct", trials)
    (get_s, *gets), rma_adds = transfers(topology, "rma", trials)
    where = f"of the next rank, not in caches, fit over {SIZES[0]} to {SIZES[-1]} bytes"
    return {
        "direct": {
            "#": "in place: a get is a view",
            "shared": "initiator",
            "reads_in_place": True,
            "bandwidth_bytes_per_s": inf,
            **core_constants("core_add", adds[1:], f"locked add into the tile {where}"),
        },
        "rma": {
            "shared": "initiator",
            "bandwidth_bytes_per_s": (inf, "on one node the core that gets makes the copy:"),
            **core_constants("core", gets, "MPI_Rget, likewise"),
            "latency_s": get_s,
            **core_constants("core_add", rma_adds[1:], "MPI_Raccumulate and flush, likewise"),
        },
    }


def core_constants(kind: str, found: Iterable[float], description: str) -> dict:
    """The constants of a link that say what gets (``core``) or adds (``core_add``) take of the
    core, of what was ``found`` for them.

    Examples
    --------
    >>> list(core_constants("core", (1e9, 5e8, 1e-7), "MPI_Rget"))
    ['core_bytes_per_s', 'core_apart_bytes_per_s', 'core_row_s']
    """
    names = "bytes_per_s", "apart_bytes_per_s", "row_s"
    abouts = description, "of rows that lie apart", "more, for each such row"
    return {f"{kind}_{name}": (value, text) for name, value, text in zip(names, found, abouts)}


def best_of(comm, function, trials: int, repeats: int = 1) -> float:
    """Seconds of one call, the slowest rank, the best trial (collective)."""

    def several():
        for _ in range(repeats):
            function()

    several()
    return min(timed(comm, several).seconds for _ in range(trials)) / repeats


def _gemms(
    comm, trials: int, code: str, speed: SpeedNormalisation
) -> tuple[list[tuple], list[tuple]]:
    """All ranks multiply elements of NumPy's type ``code`` at once: ``(m, n, k, seconds)``, and
    ``(m, n, k, operand, seconds)`` of those with an operand stored transposed.

    Trials of different shapes take turns. The median trial counts, at the usual pace: programs are
    not the fastest there can be either, and whose turn it is where ranks share cores is no
    disturbance. Operands lie in huge pages, as tiles and panels do."""
    blas, rng = load_blas(), np.random.default_rng(0)

    def matrix(rows: int, cols: int, transposed: bool) -> np.ndarray:
        made = empty_in_huge_pages(rows * cols, np.dtype(code))
        made[:] = rng.random(rows * cols, code)
        return made.reshape(cols, rows).T if transposed else made.reshape(rows, cols)

    cases = [(shape, "") for shape in _SHAPES]
    cases += [(shape, operand) for shape in _TRANSPOSED for operand in "ab" if shape in _SHAPES]
    operands = {}
    for (m, n, k), operand in cases:
        extents = (("a", m, k), ("b", k, n), ("c", m, n))
        matrices = [matrix(rows, cols, name == operand) for name, rows, cols in extents]
        operands[(m, n, k), operand] = matrices

    def run(case: tuple) -> float:
        a, b, c = operands[case]
        repeats = max(1, int(2e8 / (2 * a.size * b.shape[1] + 2e5)))

        def several():
            for _ in range(repeats):
                blas.gemm(a, b, c, 1.0)

        return timed(comm, several).seconds / repeats

    for case in cases:  # what is touched for the first time does not count
        run(case)
    seconds = list(zip(cases, in_rounds(cases, trials, run, speed)))
    return (
        [(*shape, took_s) for (shape, operand), took_s in seconds if not operand],
        [(*shape, operand, took_s) for (shape, operand), took_s in seconds if operand],
    )


def _memory(comm, trials: int) -> float:
    """Bytes a second of an add (two reads, one write) of 16 MiB, all ranks at once."""
    a, b = np.ones(1 << 22, "f4"), np.ones(1 << 22, "f4")
    return 3 * a.nbytes / best_of(comm, lambda: np.add(a, b, out=a), trials)


@contextmanager
def rows_of_ranks(topology: Topology, kind: str) -> Iterator[tuple[DistributedMatrix, int]]:
    """A matrix of rows of ``COLS`` elements, and how many of them each rank has (collective)."""
    size, rows = topology.comm.size, SIZES[-1] // 4 // COLS
    c = Problem(rows * size, COLS, 8, size, c="row").c
    matrix = DistributedMatrix.open(c, topology, "float32", parse_transport(kind))
    try:
        for _, tile in matrix.own_blocks():
            tile.fill(1)
        yield matrix, rows
    finally:
        matrix.close()


def transfers(
    topology, kind: str, trials: int, hop: int = 1, alone: bool = False
) -> tuple[tuple | None, tuple]:
    """Gets (RMA only: in place they cost nothing) and accumulates, each rank to the one ``hop``
    ranks on, or only the first (``alone``): of each the latency, bytes a second, those of blocks
    whose rows lie apart, and seconds of such a row. Nothing of them is in caches, as in a product,
    whose tiles were last touched in the one before; the best of ``trials``."""
    comm = topology.comm
    # rows, columns, and how many of the rows lie apart
    shapes = [(nbytes // 4 // COLS, COLS, 0) for nbytes in SIZES]
    shapes += [(high, width, high) for high, width in _APART]
    gets, adds, again, swept = [], [], [], np.ones(_SWEPT // 4, "f4")
    idle = alone and comm.rank > 0

    def cold(function) -> float:
        def once() -> float:
            swept.sum()
            return timed(comm, function).seconds

        once()
        return min(once() for _ in range(trials))

    def get():
        if not idle:
            matrix.rget(value, block).Wait()

    def add():
        if idle:
            return
        if kind == "rma":
            matrix.raccumulate(value, block).Wait()
            matrix.window.flush()
        else:
            matrix.add(value, block)

    with rows_of_ranks(topology, kind) as (matrix, rows):
        first = rows * ((comm.rank + hop) % comm.size)
        for high, width, apart in shapes:
            block = matrix.operand.block((first, first + high), (0, width))
            value = np.ones(block.shape, "f4")
            if kind == "rma":
                gets.append((value.nbytes, apart, cold(get)))
                if not apart and value.nbytes < 1 << 20:  # what one costs beside its bytes
                    small = best_of(comm, get, trials, (1 << 20) // value.nbytes)
                    again.append((value.nbytes, small))
            adds.append((value.nbytes, apart, cold(add)))
    found = (fit_line(again)[0], *fit_line(gets)[1:]) if gets else None
    return found, fit_line(adds)


def _overhead(topology, compute: dict, trials: int) -> float:
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
        executor.yields = False
        seconds = best_of(comm, executor.run, trials)
    gemms = sum(step.computes for step in trace.steps)
    own = compute["launch_s"][0] + 1024 / compute["peak_flops"][0] + 64 * sum(compute["pack_s"])
    return comm.allreduce(max(0.0, seconds / max(1, gemms) - own), MPI.MAX)


def collective_samples(comm, colour: int, trials: int) -> dict[str, list[tuple[int, int, float]]]:
    """(ranks, bytes of a shard, seconds) of each collective on the ranks of each colour, if they
    are several and not all, and on all ranks."""
    samples: dict[str, list] = {}
    part = comm.Split(colour, comm.rank)
    try:
        for group in (part, comm) if 1 < part.size < comm.size else (comm,):
            for nbytes in SHARDS:
                repeats = max(1, (1 << 18) // nbytes)
                for name, call in _calls(group, nbytes // 4).items():
                    seconds = best_of(group, call, trials, repeats)
                    samples.setdefault(name, []).append((group.size, nbytes, seconds))
    finally:
        part.Free()
    return samples


def collective_comment(ranks: int) -> str:
    """The comment beside what was fitted to collectives of so many ranks at most."""
    apart = "; launch and sync cannot be told apart on 2 ranks" if ranks == 2 else ""
    return f"fit over shards of {SHARDS[0]} to {SHARDS[-1]} bytes{apart}"


def _calls(comm, count: int) -> dict[str, Callable]:
    """Each collective on shards of so many elements."""
    mine, theirs, everyone = (np.ones(size, "f4") for size in (count, count, count * comm.size))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return {
        "allgather": lambda: comm.Allgather(mine, everyone),
        "reducescatter": lambda: comm.Reduce_scatter_block(everyone, mine),
        "shift": lambda: comm.Sendrecv(mine, right, 0, theirs, left, 0),
    }


def compute_section(plain: list, transposed: list, memory: tuple[float, str]) -> dict:
    """The table ``[model.compute]`` that fits products (:func:`fit_gemm`), those with an operand
    stored transposed if there are any (:func:`fit_transposed`), and the bytes a second of an
    add."""
    gemm, error = fit_gemm(plain)
    rate = f"fitted rate of {len(plain)} local products; median error {100 * error:.1f} %"
    return {
        "peak_flops": (gemm["peak_flops"], rate),
        "peak_measured": True,
        "launch_s": (gemm["launch_s"], "fitted, likewise pack_s (an element of A, B and C)"),
        "pack_s": list(gemm["pack_s"]),
        **({"transposed_element_s": fit_transposed(plain, transposed)} if transposed else {}),
        "k_block": (float(gemm["k_block"]), "of those tried the one with the best fit"),
        "memory_bytes_per_s": memory,
    }
