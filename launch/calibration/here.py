"""``drbench calibrate`` on the ranks: what this machine's products, transfers and collectives take,
all ranks at once."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf

import numpy as np
import threadpoolctl
from mpi4py import MPI

from algorithms import get_algorithm
from algorithms.chains.functions import function_seconds
from drbench.common import parse_transport
from drbench.errors import UsageError
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.huge_pages import empty_in_huge_pages
from drbench.host.matrix import DistributedMatrix, distributed
from drbench.host.topology import Topology
from drbench.measure.roof import timed
from drbench.model.fit import fit_collective, fit_gemm, fit_line, fit_turned
from drbench.model.machine import Machine
from drbench.program.problem import Problem
from launch.cases.case import Case
from launch.cases.machine_models import read_document, write_model
from launch.host.environment import processor_name
from launch.ranks.backends import call_together
from launch.ranks.run_case import run_case

from .pace import Pace
from .programs import everywhere_known, measured, residuals

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
_TURNED = [
    (1024, 1024, 1024),
    (512, 512, 512),
    (256, 256, 4096),
    (256, 2048, 2048),
    (2048, 1024, 256),
    (1024, 256, 2048),
]
#: Transfers, in bytes.
SIZES = [1 << s for s in range(14, 25, 2)]
#: Blocks whose rows lie apart, of a tile with rows of 2048 elements: rows, and their elements.
_APART = [(rows, width) for rows in (256, 2048) for width in (64, 256, 512, 1024)]
#: Bytes that a rank reads between two transfers, so that these find nothing in caches.
_SWEPT = 1 << 26
#: Shards of collectives, in bytes.
SHARDS = [1 << s for s in range(13, 23, 3)]


def calibrate_here(
    out: str,
    name: str,
    trials: int,
    measure: Callable[[Topology, int, Pace], tuple[str, dict]],
    programs: dict[str, list[Case]],
    predict: Callable[[Case, Machine, int], float | None],
    nodes: bool = False,
) -> int:
    """Measure on the ranks this process belongs to, in so many trials. Then whole programs are
    measured and predicted by what was found, and rank 0 writes the ``[model]`` section of the file,
    with their ratios as ``[model.residuals]``. On a machine that drifted meanwhile these are
    widened, and rank 0 says so.

    Parameters
    ----------
    measure : callable
        ``measure(topology, trials, pace)`` -> what was measured, in words, and its tables
        (collective).
    programs : dict of str to list of Case
        Whole programs, by the name of the residuals (:func:`whole_programs`).
    predict : callable
        ``predict(case, machine, ranks)``: seconds; None where the machine refuses the case.
    nodes : bool
        The ranks are on several nodes, and the links between them are measured too.

    Raises
    ------
    UsageError
        If links cannot be measured here: on one rank; on several nodes without ``nodes``, or on one
        with it; if nodes have different numbers of ranks.
    CaseFailed
        If the ranks lacked their cores (:meth:`Pace.refuse_other_work`); the file is as before.
    """
    comm = _by_nodes(MPI.COMM_WORLD)
    read_document(out)  # what cannot be kept is refused before anything is measured
    with Topology(comm) as topology:
        if comm.size < 2:
            raise UsageError("calibrate needs at least 2 ranks, got 1. Use -p 2.")
        if topology.nodes > 1 and not nodes:
            raise UsageError(
                f"calibrate measures one node, got {topology.nodes}. Start it on one, or measure "
                "the links between nodes too with --nodes."
            )
        if topology.nodes == 1 and nodes:
            raise UsageError(
                f"--nodes measures links between nodes, and the {comm.size} ranks are on one. "
                "Start it on two (srun -N 2, mpiexec -hosts), or leave --nodes out."
            )
        sizes = sorted(Counter(topology.node_of).values())
        if sizes[0] < sizes[-1]:
            raise UsageError(
                f"--nodes needs as many ranks on every node, got {sizes[0]} to {sizes[-1]}. Start "
                f"{sizes[0]} on each."
            )
        pace = Pace.of_cores(comm, topology.core_due(1))
        where, tables = measure(topology, trials, pace)
        pace.refuse_other_work()
        # of all ranks
        fence_s = best_of(comm, lambda: comm.Ibarrier().Wait(), trials, 100)
        model = {
            "#": f"measured by drbench calibrate -p {comm.size}{' --nodes' * nodes}, {where}, "
            f"{datetime.now(UTC):%Y-%m-%d}; {trials} trials, all ranks at once: products and "
            "functions the median at one pace, the rest the best. Seconds, bytes, FLOP/s.",
            "name": name,
            "fence_s": (fence_s, "Ibarrier"),
            **tables,
            "calibrated": tables.get("calibrated", {})
            | {
                "ranks": comm.size,
                "nodes": topology.nodes,
                "node": comm.size // topology.nodes,
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "processor": processor_name(),
            },
        }
        with tempfile.TemporaryDirectory(prefix="drbench-model-") as folder:
            draft = os.path.join(folder, "model.toml")
            call_together(comm, lambda: comm.rank or write_model(draft, model))
            machine = Machine.load(draft) if comm.rank == 0 else None
            with everywhere_known(comm, draft) as path:
                threads = model["calibrated"].get("threads")  # of cores
                ran = measured(programs, path, topology, trials, run_case, pace, threads)
        pace.refuse_other_work()
    if machine is not None:
        drift = pace.drift()
        told = drift_text(drift)
        model["residuals"] = {"#": f"measured over predicted times of whole programs{told}"} | {
            kind: widened(found, drift)
            for kind, cases in programs.items()
            if len(found := residuals(cases, ran[kind], machine, comm.size, predict)) > 1
        }
        print(write_model(out, model), flush=True)
        if told:
            print(f"drbench: every interval is wider{told}", file=sys.stderr, flush=True)
    return 0


def drift_text(drift: tuple[float, float]) -> str:
    """What is said of a machine that drifted (:meth:`Pace.drift`); empty if it did not.

    Examples
    --------
    >>> drift_text((1.0, 1.0)), drift_text((0.96, 1.3))
    ('', '; the machine drifted meanwhile: times were 0.96 to 1.30 of the usual')
    """
    low, high = drift
    if low == high:
        return ""
    return f"; the machine drifted meanwhile: times were {low:.2f} to {high:.2f} of the usual"


def widened(found: list[float], drift: tuple[float, float]) -> list[float]:
    """Residuals as they would have been at both ends of a drift.

    Examples
    --------
    >>> widened([1.0, 1.02], (1.0, 1.0)), widened([1.0, 2.0], (0.5, 1.5))
    ([1.0, 1.02], [0.5, 1.0, 1.5, 3.0])
    """
    low, high = drift
    return found if low == high else [each * end for end in drift for each in found]


def _by_nodes(comm):
    """The same ranks in blocks: those of a node are neighbours, as machine models count them."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    first, place = node.bcast(comm.rank), node.rank
    node.Free()
    return comm.Split(0, key=first * comm.size + place)


def cores(
    topology: Topology,
    trials: int,
    pace: Pace,
    threads: int | None,
    everyone: Topology | None = None,
) -> tuple[str, dict]:
    """What the cores of this node take, on so many BLAS threads a rank (collective): in words, and
    the tables. On one rank there are no links and no collectives. ``everyone`` are the ranks of
    all nodes, which measure their products at once."""
    comm, everyone = topology.comm, everyone or topology
    threads = threads or everyone.cores_per_rank
    threadpoolctl.threadpool_limits(threads)
    gemm, double = (
        (*fit_gemm(plain), fit_turned(plain, turned))
        for plain, turned in (_products(everyone.comm, trials, code, pace) for code in ("f4", "f8"))
    )
    memory, about = _memory(everyone.comm, trials), "add of 16 MiB"
    compute = compute_section(gemm, memory, len(_SHAPES), about)
    double_compute = compute_section(double, memory, len(_SHAPES), about)
    spent = lambda make: pace.seconds(lambda: timed(everyone.comm, make).seconds, trials)
    for table, code in ((compute, "f4"), (double_compute, "f8")):
        table["functions"] = {"#": "seconds an element (drbench chain)"}
        table["functions"] |= function_seconds(spent, code)
    several = comm.size > 1
    return f"{threads} threads a rank, {os.uname().machine}", {
        "calibrated": {"threads": threads, "dtypes": ["float32", "float64"]}
        | ranges(_SHAPES, SIZES, SHARDS),
        "adds_on_core": True,
        "pieces_apart": True,
        "step_s": (
            _overhead(topology, gemm[0], trials),
            "executor, products of 8x8x8 in place, less the product",
        ),
        "compute": compute,
        "dtypes": {"float64": double_compute},
        **({"transports": _near(topology, trials)} if several else {}),
        "collectives": {
            name: fit_collective(found) | {"#": about_collective(comm.size)}
            for name, found in (ring_samples(comm, trials) if several else {}).items()
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


def _near(topology: Topology, trials: int) -> dict:
    """The tables of transports between ranks that share memory."""
    direct, rma = (transfers(topology, kind, trials) for kind in ("direct", "rma"))
    get_s, get_rate, get_apart, row_s = rma["get"]
    sizes, apart = f"fit over {SIZES[0]} to {SIZES[-1]} bytes", "of rows that lie apart"
    return {
        "direct": {
            "#": "in place: a get is a view",
            "shared": "initiator",
            "reads_in_place": True,
            "bandwidth_bytes_per_s": inf,
            "core_add_bytes_per_s": (
                direct["add"][1],
                f"locked add into the next rank's tile, not in caches, {sizes}",
            ),
            "core_add_apart_bytes_per_s": (direct["add"][2], apart),
            "core_add_row_s": (direct["add"][3], "more, for each such row"),
        },
        "rma": {
            "shared": "initiator",
            "bandwidth_bytes_per_s": (inf, "on one node the core that gets makes the copy:"),
            "core_bytes_per_s": (get_rate, "MPI_Rget, likewise"),
            "core_apart_bytes_per_s": (get_apart, apart),
            "core_row_s": (row_s, "more, for each such row"),
            "latency_s": get_s,
            "core_add_bytes_per_s": (rma["add"][1], "MPI_Raccumulate and flush, likewise"),
            "core_add_apart_bytes_per_s": (rma["add"][2], apart),
            "core_add_row_s": (rma["add"][3], "more, for each such row"),
        },
    }


def best_of(comm, function, trials: int, repeats: int = 1) -> float:
    """Seconds of one call, the slowest rank, the best trial (collective)."""

    def several():
        for _ in range(repeats):
            function()

    several()
    return min(timed(comm, several).seconds for _ in range(trials)) / repeats


def _products(comm, trials: int, code: str, pace: Pace) -> tuple[list[tuple], list[tuple]]:
    """All ranks multiply elements of NumPy's type ``code`` at once: ``(m, n, k, seconds)``, and
    ``(m, n, k, operand, seconds)`` of those with an operand stored transposed.

    Trials of different shapes take turns. The median trial counts, at the usual pace: programs are
    not the fastest there can be either, and whose turn it is where ranks share cores is no
    disturbance. Operands lie in huge pages, as tiles and panels do."""
    blas, rng = load_blas(), np.random.default_rng(0)

    def matrix(rows: int, cols: int, turned: bool = False) -> np.ndarray:
        made = empty_in_huge_pages(rows * cols, np.dtype(code))
        made[:] = rng.random(rows * cols, code)
        return made.reshape(cols, rows).T if turned else made.reshape(rows, cols)

    turned = [shape for shape in _TURNED if shape in _SHAPES]
    todo = [(*shape, "") for shape in _SHAPES]
    todo += [(*shape, operand) for shape in turned for operand in "ab"]
    operands = {
        (m, n, k, turned): (matrix(m, k, turned == "a"), matrix(k, n, turned == "b"), matrix(m, n))
        for m, n, k, turned in todo
    }
    took: dict[tuple, list] = {each: [] for each in todo}
    for trial in range(trials + 1):
        pace.begin()
        for each, (a, b, c) in operands.items():
            repeats = max(1, int(2e8 / (2 * a.size * b.shape[1] + 2e5)))

            def several():
                for _ in range(repeats):
                    blas.gemm(a, b, c, 1.0)

            found = pace.around(lambda: timed(comm, several).seconds / repeats)
            if trial:
                took[each].append(found)
    seconds = {each: pace.median(found) for each, found in took.items()}
    return (
        [(m, n, k, took_s) for (m, n, k, turned), took_s in seconds.items() if not turned],
        [(*each, took_s) for each, took_s in seconds.items() if each[-1]],
    )


def _memory(comm, trials: int) -> float:
    """Bytes a second of an add (two reads, one write) of 16 MiB, all ranks at once."""
    a, b = np.ones(1 << 22, "f4"), np.ones(1 << 22, "f4")
    return 3 * a.nbytes / best_of(comm, lambda: np.add(a, b, out=a), trials)


def transfers(topology, kind: str, trials: int, hop: int = 1, alone: bool = False) -> dict:
    """Gets (RMA only: in place they cost nothing) and accumulates, each rank to the one ``hop``
    ranks on, or only the first (``alone``): latency, bytes a second, those of blocks whose rows lie
    apart, and seconds of such a row. Nothing of them is in caches, as in a product, whose tiles
    were last touched in the one before; the best of ``trials``."""
    comm = topology.comm
    cols = 2048
    rows = SIZES[-1] // 4 // cols
    problem = Problem(rows * comm.size, cols, 8, comm.size, a="row", b="row", c="row")
    matrix = DistributedMatrix.open(problem.c, topology, "float32", parse_transport(kind))
    # rows, columns, and how many of the rows lie apart
    shapes = [(nbytes // 4 // cols, cols, 0) for nbytes in SIZES]
    shapes += [(high, width, high) for high, width in _APART]
    gets, adds, again, swept = [], [], [], np.ones(_SWEPT // 4, "f4")
    idle = alone and comm.rank > 0

    def cold(function) -> float:
        best = inf
        for trial in range(trials + 1):
            swept.sum()
            seconds = timed(comm, function).seconds
            best = min(best, seconds) if trial else inf
        return best

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

    try:
        for _, tile in matrix.own_blocks():
            tile.fill(1)
        first = rows * ((comm.rank + hop) % comm.size)
        for high, width, apart in shapes:
            block = problem.c.block((first, first + high), (0, width))
            value = np.ones(block.shape, "f4")
            if kind == "rma":
                gets.append((value.nbytes, apart, cold(get)))
                if not apart and value.nbytes < 1 << 20:  # what one costs beside its bytes
                    small = best_of(comm, get, trials, (1 << 20) // value.nbytes)
                    again.append((value.nbytes, small))
            adds.append((value.nbytes, apart, cold(add)))
    finally:
        matrix.close()
    found = (fit_line(again)[0], *fit_line(gets)[1:]) if gets else None
    return {"get": found, "add": fit_line(adds)}


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
        executor.yields = False
        seconds = best_of(comm, executor.run, trials)
    products = sum(step.computes for step in trace.steps)
    own = gemm["launch_s"] + 1024 / gemm["peak_flops"] + 64 * sum(gemm["pack_s"])
    return comm.allreduce(max(0.0, seconds / max(1, products) - own), MPI.MAX)


def ring_samples(comm, trials: int) -> dict[str, list[tuple[int, int, float]]]:
    """(ranks, bytes of a shard, seconds) of rings on 2 ranks, and on all if there are more."""
    samples: dict[str, list] = {}
    pairs = comm.Split(comm.rank // 2 if comm.rank < comm.size // 2 * 2 else MPI.UNDEFINED)
    try:
        for group in (pairs, comm) if comm.size > 2 else (comm,):
            if group != MPI.COMM_NULL:
                add_samples(samples, group, trials)
    finally:
        if pairs != MPI.COMM_NULL:
            pairs.Free()
    return samples


def add_samples(samples: dict[str, list], group, trials: int) -> None:
    """Measure each collective on a group, at each size."""
    for nbytes in SHARDS:
        repeats = max(1, (1 << 18) // nbytes)
        for name, call in _calls(group, nbytes // 4).items():
            sample = group.size, nbytes, best_of(group, call, trials, repeats)
            samples.setdefault(name, []).append(sample)


def about_collective(ranks: int) -> str:
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


def compute_section(fitted: tuple, memory: float, shapes: int, about: str) -> dict:
    """The table ``[model.compute]`` of what was fitted to products (:func:`fit_gemm`, and if it is
    known :func:`fit_turned`), and of the bytes a second of an add."""
    gemm, error, *turned = fitted
    rate = f"fitted rate of {shapes} local products; median error of the fit {100 * error:.1f} %"
    return {
        "peak_flops": (gemm["peak_flops"], rate),
        "peak_measured": True,
        "launch_s": (gemm["launch_s"], "fitted, likewise pack_s (an element of A, B and C)"),
        "pack_s": list(gemm["pack_s"]),
        **({"turn_s": turned[0]} if turned else {}),
        "k_block": (float(gemm["k_block"]), "of those tried the one with the best fit"),
        "memory_bytes_per_s": (memory, about),
    }
