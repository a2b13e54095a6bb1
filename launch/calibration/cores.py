"""Measure GEMMs, transfers and collectives of cores, on all ranks of a node at once."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np
import threadpoolctl
from mpi4py import MPI

from drbench.algorithms import get_algorithm
from drbench.chains.model.functions import function_seconds
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.host.matrix import DistributedMatrix, distributed
from drbench.host.topology import Topology
from drbench.measure.roof import timed
from drbench.model.fit import fit_collective, fit_gemm, fit_line, fit_transposed
from drbench.program.problem import Problem
from drbench.transport import parse_transport

from .programs import MEASURED, in_rounds
from .speed import SpeedNormalisation

#: Local GEMMs, (m, n, k); those that are also measured with one operand stored transposed.
_SHAPES, _TRANSPOSED = ([*map(tuple, MEASURED["cores"][kind])] for kind in ("gemms", "transposed"))
#: Transfers, in bytes.
SIZES = [1 << s for s in range(14, 25, 2)]
#: Elements of a row of the tiles that transfers access.
COLS = 2048
#: Blocks with strided rows: rows, and their elements.
_STRIDED = [(rows, width) for rows in (256, 2048) for width in (64, 256, 512, 1024)]
#: Bytes that a rank reads between two transfers to evict their data from caches.
_SWEPT = 1 << 26
#: Shards of collectives, in bytes.
SHARDS = [1 << s for s in range(13, 23, 3)]


def measure_cores(
    topology: Topology,
    trials: int,
    speed: SpeedNormalisation,
    threads: int | None,
    everyone: Topology | None = None,
) -> tuple[str, dict]:
    """Measure the cores of this node with this number of BLAS threads per rank (collective):
    returns a description and the tables. One rank has no links or collectives. ``everyone`` are the
    ranks of all nodes, which measure their GEMMs at once."""
    comm, everyone = topology.comm, everyone or topology
    threads = threads or everyone.cores_per_rank
    threadpoolctl.threadpool_limits(threads)
    memory = _memory(everyone.comm, trials), "add of 16 MiB"
    measure = lambda make: speed.seconds(lambda: timed(everyone.comm, make).seconds, trials)
    tables = {}
    for name, code in (("float32", "f4"), ("float64", "f8")):
        gemms = _gemms(everyone.comm, trials, code, speed)
        functions = {"#": "seconds per element (drbench chain)"} | function_seconds(measure, code)
        tables[name] = compute_section(*gemms, memory) | {"functions": functions}
    compute, several = tables.pop("float32"), comm.size > 1
    rings = collective_samples(comm, comm.rank // 2, trials) if several else {}
    return f"{threads} threads per rank, {os.uname().machine}", {
        "calibrated": {"threads": threads, "dtypes": ["float32", "float64"]}
        | find_ranges(_SHAPES, SIZES, SHARDS),
        "adds_on_core": True,
        "gemm_per_fragment": True,
        "step_s": (
            _overhead(topology, compute, trials),
            "executor, GEMMs of 8x8x8 in place, minus the GEMM",
        ),
        "compute": compute,
        "dtypes": tables,
        **({"transports": _local_transports(topology, trials)} if several else {}),
        "collectives": {
            name: fit_collective(samples) | {"#": collective_comment(comm.size)}
            for name, samples in rings.items()
        },
    }


def find_ranges(shapes, sizes: list[int], shards: list[int]) -> dict:
    """The measured ranges, (minimum, maximum), for the file.

    Examples
    --------
    >>> find_ranges([(8, 2, 3), (4, 5, 6)], [16, 64], [32])
    {'m': [4, 8], 'n': [2, 5], 'k': [3, 6], 'bytes': [16, 64], 'shards': [32, 32]}
    """
    measured = dict(zip("mnk", zip(*shapes))) | {"bytes": sizes, "shards": shards}
    return {name: [min(values), max(values)] for name, values in measured.items()}


def _local_transports(topology: Topology, trials: int) -> dict:
    """The tables of transports between ranks that share memory."""
    _, adds = measure_transfers(topology, "direct", trials)
    (get_s, *gets), rma_adds = measure_transfers(topology, "rma", trials)
    where = f"of the next rank, not in caches, fitted over {SIZES[0]} to {SIZES[-1]} bytes"
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


def core_constants(kind: str, values: Iterable[float], description: str) -> dict:
    """The constants of a link for the core time of gets (``core``) or accumulates (``core_add``),
    from their ``values``.

    Examples
    --------
    >>> list(core_constants("core", (1e9, 5e8, 1e-7), "MPI_Rget"))
    ['core_bytes_per_s', 'core_apart_bytes_per_s', 'core_row_s']
    """
    names = "bytes_per_s", "apart_bytes_per_s", "row_s"
    comments = description, "of strided rows", "additional, for each such row"
    return {f"{kind}_{name}": (value, text) for name, value, text in zip(names, values, comments)}


def best_of(comm, function, trials: int, repeats: int = 1) -> float:
    """Seconds of one call on the slowest rank, in the best trial (collective)."""

    def several():
        for _ in range(repeats):
            function()

    several()
    return min(timed(comm, several).seconds for _ in range(trials)) / repeats


def _gemms(
    comm, trials: int, code: str, speed: SpeedNormalisation
) -> tuple[list[tuple], list[tuple]]:
    """Time GEMMs of NumPy's type ``code`` on all ranks at once: ``(m, n, k, seconds)``, and
    ``(m, n, k, operand, seconds)`` of those with an operand stored transposed.

    Trials of different shapes are interleaved. The median trial is used, at the usual speed:
    programs do not run at the best speed either, and time slices of shared cores are no
    disturbance. Operands are stored in huge pages, like tiles and packed operands."""
    blas, rng = load_blas(), np.random.default_rng(0)

    def matrix(rows: int, cols: int, transposed: bool) -> np.ndarray:
        array = empty_in_huge_pages(rows * cols, np.dtype(code))
        array[:] = rng.random(rows * cols, code)
        return array.reshape(cols, rows).T if transposed else array.reshape(rows, cols)

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

    for case in cases:  # the first touch of memory does not count
        run(case)
    seconds = list(zip(cases, in_rounds(cases, trials, run, speed)))
    return (
        [(*shape, took_s) for (shape, operand), took_s in seconds if not operand],
        [(*shape, operand, took_s) for (shape, operand), took_s in seconds if operand],
    )


def _memory(comm, trials: int) -> float:
    """Bytes per second of an add (two reads, one write) of 16 MiB, on all ranks at once."""
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


def measure_transfers(
    topology, kind: str, trials: int, hop: int = 1, alone: bool = False
) -> tuple[tuple | None, tuple]:
    """Measure gets (RMA only: in place they cost nothing) and accumulates from each rank to the one
    ``hop`` ranks further, or only from the first (``alone``): of each the latency, bytes per
    second, those of blocks with strided rows, and seconds per such row. Their data is not in
    caches, as in a multiplication, whose tiles were last used in the previous one; the best of
    ``trials``."""
    comm = topology.comm
    # rows, columns, and the number of strided rows
    shapes = [(nbytes // 4 // COLS, COLS, 0) for nbytes in SIZES]
    shapes += [(high, width, high) for high, width in _STRIDED]
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
        for high, width, strided in shapes:
            block = matrix.operand.block((first, first + high), (0, width))
            value = np.ones(block.shape, "f4")
            if kind == "rma":
                gets.append((value.nbytes, strided, cold(get)))
                if not strided and value.nbytes < 1 << 20:  # its cost without that of its bytes
                    small = best_of(comm, get, trials, (1 << 20) // value.nbytes)
                    again.append((value.nbytes, small))
            adds.append((value.nbytes, strided, cold(add)))
    constants = (fit_line(again)[0], *fit_line(gets)[1:]) if gets else None
    return constants, fit_line(adds)


def _overhead(topology, compute: dict, trials: int) -> float:
    """The executor's own time per GEMM: 4096 GEMMs of 8³ in place, minus the modelled time of such
    a GEMM."""
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
    are several but not all, and on all ranks."""
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
    """The comment on constants fitted to collectives of at most this number of ranks."""
    joint = "; launch and sync cannot be separated on 2 ranks" if ranks == 2 else ""
    return f"fitted over shards of {SHARDS[0]} to {SHARDS[-1]} bytes{joint}"


def _calls(comm, count: int) -> dict[str, Callable]:
    """A function for each collective on shards of ``count`` elements."""
    mine, theirs, everyone = (np.ones(size, "f4") for size in (count, count, count * comm.size))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return {
        "allgather": lambda: comm.Allgather(mine, everyone),
        "reducescatter": lambda: comm.Reduce_scatter_block(everyone, mine),
        "shift": lambda: comm.Sendrecv(mine, right, 0, theirs, left, 0),
    }


def compute_section(plain: list, transposed: list, memory: tuple[float, str]) -> dict:
    """The table ``[model.compute]`` fitted to GEMMs (:func:`fit_gemm`), to those with an operand
    stored transposed if any (:func:`fit_transposed`), and the bytes per second of an add."""
    gemm, error = fit_gemm(plain)
    rate = f"fitted rate of {len(plain)} local GEMMs; median error {100 * error:.1f} %"
    return {
        "peak_flops": (gemm["peak_flops"], rate),
        "peak_measured": True,
        "launch_s": (gemm["launch_s"], "fitted, like pack_s (per element of A, B and C)"),
        "pack_s": list(gemm["pack_s"]),
        **({"transposed_element_s": fit_transposed(plain, transposed)} if transposed else {}),
        "k_block": (float(gemm["k_block"]), "the tried value with the best fit"),
        "memory_bytes_per_s": memory,
    }
