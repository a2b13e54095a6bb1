"""``drbench calibrate --nodes``: measure the links between nodes. A transfer uses the network link
of its rank, measured by one pair of ranks alone, and the uplink that all ranks of a node share."""

import statistics
from collections.abc import Sequence
from math import ceil, inf
from operator import itemgetter

import numpy as np
from mpi4py import MPI

from drbench.host.topology import Topology
from drbench.measure.roof import timed
from drbench.model.fit import fit_collective, nonnegative

from .cores import (
    COLS,
    best_of,
    collective_comment,
    collective_samples,
    core_constants,
    measure_cores,
    measure_transfers,
    rows_of_ranks,
)
from .speed import SpeedNormalisation, square_gemm

#: A smaller share of a transfer's time counts as zero: timing is not more precise.
_LEAST = 0.02
#: Edge of the GEMMs during a transfer, one per poll, and their total time over that of the
#: transfer.
_EDGE, _TIMES = 384, 3
#: Transfers in progress during GEMMs, and elements of the rows that they move.
_TRANSFERS, _WIDTHS = 4, (COLS, 128, 512, 1024)


def measure_nodes(
    topology: Topology, trials: int, speed: SpeedNormalisation, threads: int | None
) -> tuple[str, dict]:
    """Measure the cores of several nodes, all at once, and the links between them (collective):
    returns a description and the tables."""
    comm, size = topology.comm, topology.comm.size // topology.nodes
    with Topology(topology.node) as local_topology:
        description, tables = measure_cores(local_topology, trials, speed, threads, topology)
        tables["links"] = _links(topology, size, trials)
        tables["collectives"] = _collectives(topology, size, tables["collectives"], trials)
    transports = tables.get("transports", {})
    for table in transports.values():
        table["within"] = size
    if size > 1:  # MPI accumulates into all tiles of a matrix or none
        mates = [rank for rank in range(comm.size) if rank // size == comm.rank // size]
        mates.remove(comm.rank)
        added = _lost(topology, mates, "add", trials)
        transports["direct"] |= added
        transports["rma"] |= added
    return f"{description}, {topology.nodes} nodes", tables


def _links(topology: Topology, size: int, trials: int) -> dict:
    """The tables of links between nodes of ``size`` ranks (collective)."""
    comm = topology.comm
    (latency_s, rate, *_), _ = measure_transfers(topology, "rma", trials, hop=size, alone=True)
    (_, together, *_), _ = measure_transfers(topology, "rma", trials, hop=size)
    there = comm.rank // size * size + size  # the first rank of the next node
    others = [(there + (comm.rank + x) % size) % comm.size for x in range(size)]
    gets, adds = (_lost(topology, others, kind, trials) for kind in ("get", "add"))
    core_rate, _ = gets["core_bytes_per_s"]
    link = _rate(1 / rate - 1 / core_rate, 1 / rate)
    uplink = _rate((1 / together - 1 / core_rate) / size, 1 / rate / size)
    network = {
        "#": "between nodes, by MPI_Rget",
        "shared": "device",
        "bandwidth_bytes_per_s": (link, "one pair of ranks alone, without the core's time"),
        "latency_s": latency_s,
        **gets,
        **adds,
    }
    if uplink == inf:
        return {"network": network}
    shared = {
        "#": "of a node, shared by its ranks",
        "within": 1,
        "shared": "node",
        "node": size,
        "bandwidth_bytes_per_s": (
            uplink,
            "all ranks at once, both directions, without the core's time",
        ),
    }
    return {"network": network | {"through": ["uplink"]}, "uplink": shared}


def core_rates(samples: list[tuple[int, int, float]]) -> tuple[float, float, float]:
    """Core time of transfers ``(bytes, strided rows, seconds)``: bytes per second of contiguous and
    of strided rows, and additional seconds per strided row. Without a latency: cores that multiply
    do not wait for it, and a fit with one would include part of the time of bytes.

    Examples
    --------
    >>> whole, strided = [(4096, 0, 4e-6)], [(1024, 8, 3e-6), (2048, 8, 5e-6), (512, 8, 2e-6)]
    >>> [f"{each:.3g}" for each in core_rates(whole + strided)]
    ['1.02e+09', '5.12e+08', '1.25e-07']
    """
    (nbytes, _, seconds), *others = sorted(samples, key=itemgetter(1))
    per_byte = seconds / nbytes
    sizes, rows, took = zip(*others)
    strided, row_s = nonnegative([sizes, rows], took)
    return 1 / per_byte, 1 / max(per_byte, strided), row_s


def _collectives(topology: Topology, size: int, inside: dict, trials: int) -> dict:
    """The tables of collectives: on the ranks of one node, if there are several, and on groups over
    nodes (collective)."""
    comm, tables = topology.comm, {}
    # of a rank of each node, then of all
    for name, samples in collective_samples(comm, comm.rank % size, trials).items():
        across = fit_collective(samples)
        if inside:
            across = {f"across_{constant}": value for constant, value in across.items()}
            across["node"] = size
        tables[name] = {"#": collective_comment(max(size, 2))} | inside.get(name, {}) | across
    return tables


def _rate(per_byte: float, whole: float) -> float:
    """Bytes per second from seconds per byte; inf if that is a negligible part of the whole.

    Examples
    --------
    >>> _rate(2**-30, 2e-9), _rate(1e-12, 2e-9), _rate(-1e-9, 2e-9)
    (1073741824.0, inf, inf)
    """
    return 1 / per_byte if per_byte > _LEAST * whole else inf


def _lost(topology: Topology, others: list[int], kind: str, trials: int) -> dict:
    """The constants of a link for the core time lost to gets or accumulates (``kind``) between this
    rank and ``others``, used cyclically: seconds of GEMMs during transfers, with an MPI poll after
    each GEMM, minus the same GEMMs alone (collective).

    All ranks do it at once, so that the loss includes both ends: the target packs strided rows, and
    accumulates into its tile.
    """
    comm, gemm, samples = topology.comm, square_gemm(_EDGE), []

    def multiply(gemms: int, requests: Sequence = ()):
        for _ in range(gemms):
            gemm()
            MPI.Request.Testall(requests)

    def moved(gemms: int = 0):
        start = matrix.rget if kind == "get" else matrix.raccumulate
        requests = [start(value, block) for block, value in transfers]
        multiply(gemms, requests)
        MPI.Request.Waitall(requests)
        matrix.window.flush()

    with rows_of_ranks(topology, "rma") as (matrix, rows):
        one_s = best_of(comm, lambda: multiply(8), trials) / 8
        for width in _WIDTHS:
            transfers = []
            for x in range(_TRANSFERS):
                first = rows * others[x % len(others)] + rows // _TRANSFERS * x
                block = matrix.operand.block((first, first + rows // _TRANSFERS), (0, width))
                transfers.append((block, np.ones(block.shape, "f4")))
            alone_s = best_of(comm, moved, trials)
            count = comm.bcast(ceil(_TIMES * alone_s / one_s))
            lost_s = statistics.median(
                timed(comm, lambda: moved(count)).seconds
                - timed(comm, lambda: multiply(count)).seconds
                for _ in range(trials)
            )
            strided = rows if width < COLS else 0
            samples.append((4 * rows * width, strided, comm.bcast(max(lost_s, _LEAST * alone_s))))
    name, call = ("core", "Rget") if kind == "get" else ("core_add", "Raccumulate")
    description = f"MPI_{call}: time lost by concurrent GEMMs, at both ends, all ranks at once"
    return core_constants(name, core_rates(samples), description)
