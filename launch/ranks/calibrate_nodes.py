"""``drbench calibrate --nodes``: what lies between nodes. A transfer takes the network of its rank,
as one pair of ranks alone finds it, and the uplink of its node, which all ranks of a node share."""

from math import ceil, inf

import numpy as np

from drbench.common import parse_transport
from drbench.host.blas import load_blas
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology
from drbench.model.fit import fit_collective
from drbench.program.problem import Problem

from .calibrate import (
    SIZES,
    about_collective,
    add_samples,
    best_of,
    cores,
    ring_samples,
    transfers,
)

#: Less of a transfer's time than this is none: timing knows no better.
_LEAST = 0.02
#: Edge of the products beside a transfer, one a poll, and how many times as long they all take.
_EDGE, _TIMES = 384, 3


def nodes(topology: Topology, trials: int, threads: int | None) -> tuple[str, dict]:
    """What the cores of several nodes take, all at once, and what lies between them (collective):
    in words, and the tables."""
    size = topology.comm.size // topology.nodes
    with Topology(topology.node) as near:
        threads = threads or topology.cores_per_rank
        about, tables = cores(near, trials, threads, topology.comm)
        tables["links"] = between(topology, size, trials)
        tables["collectives"] = collectives(topology, near.comm, trials)
    for table in tables.get("transports", {}).values():
        table["within"] = size
    return f"{about}, {topology.nodes} nodes", tables


def between(topology: Topology, size: int, trials: int) -> dict:
    """The tables of links between nodes of ``size`` ranks (collective)."""
    alone = transfers(topology, "rma", trials, hop=size, alone=True)
    together = transfers(topology, "rma", trials, hop=size)
    latency_s, rate, apart, row_s = alone["get"]
    core = _core_share(topology, size, trials) / rate  # seconds of the core a byte
    link = _rate(1 / rate - core, 1 / rate)
    uplink = _rate((1 / together["get"][1] - core) / size, 1 / rate / size)
    add, add_apart, add_row_s = 1 / together["add"][1], 1 / together["add"][2], together["add"][3]
    add_core = max(add - (1 / link if link < inf else 0.0), _LEAST * add)
    network = {
        "#": "between nodes, by MPI_Rget",
        "shared": "device",
        "bandwidth_bytes_per_s": (link, "one pair of ranks alone, less what the core does"),
        "latency_s": latency_s,
        "core_bytes_per_s": (_rate(core, 1 / rate), "what products beside it lose"),
        "core_apart_bytes_per_s": (
            _rate(core + 1 / apart - 1 / rate, 1 / apart),
            "of rows that lie apart",
        ),
        "core_row_s": (row_s, "more, for each such row"),
        "core_add_bytes_per_s": (
            1 / add_core,
            "MPI_Raccumulate and flush, all ranks at once, less what the link takes",
        ),
        "core_add_apart_bytes_per_s": (
            1 / (add_core + add_apart - add),
            "of rows that lie apart",
        ),
        "core_add_row_s": (add_row_s, "more, for each such row"),
    }
    if uplink == inf:
        return {"network": network}
    shared = {
        "#": "of a node, which its ranks share",
        "within": 1,
        "shared": "node",
        "node": size,
        "bandwidth_bytes_per_s": (uplink, "all ranks at once, both ways, less what the core does"),
    }
    return {"network": network | {"through": ["uplink"]}, "uplink": shared}


def collectives(topology: Topology, near, trials: int) -> dict:
    """The tables of collectives: of ranks of one node, if there are several there, and of groups
    over nodes (collective). ``near`` is the communicator of this rank's node."""
    comm, size = topology.comm, near.size
    over: dict[str, list] = {}
    same = comm.Split(comm.rank % size, comm.rank)  # a rank of each node
    try:
        for group in (same, comm) if size > 1 else (comm,):
            add_samples(over, group, trials)
    finally:
        same.Free()
    inside = ring_samples(near, trials) if size > 1 else {}
    found = {}
    for name, samples in over.items():
        across, about = fit_collective(samples), {"#": about_collective(max(size, 2))}
        if name not in inside:
            found[name] = across | about
            continue
        across = {f"across_{constant}": value for constant, value in across.items()}
        found[name] = fit_collective(inside[name]) | {"node": size} | across | about
    return found


def _rate(per_byte: float, whole: float) -> float:
    """Bytes a second of what takes so long a byte; inf if that is next to nothing of the whole.

    Examples
    --------
    >>> _rate(2**-30, 2e-9), _rate(1e-12, 2e-9), _rate(-1e-9, 2e-9)
    (1073741824.0, inf, inf)
    """
    return 1 / per_byte if per_byte > _LEAST * whole else inf


def _core_share(topology: Topology, hop: int, trials: int) -> float:
    """Which share of a get from another node its rank's core is kept from products: products with
    a get under way, MPI being asked after each, beside the same products alone (collective)."""
    comm, blas = topology.comm, load_blas()
    elements = SIZES[-1] // 4
    problem = Problem(comm.size, elements, 1, comm.size, a="row", b="row", c="row")
    matrix = DistributedMatrix(problem.c, topology, "float32", parse_transport("rma"))
    a, b, c = (np.ones((_EDGE, _EDGE), "f4") for _ in range(3))
    there = (comm.rank + hop) % comm.size
    block, value = problem.c.block((there, there + 1), (0, elements)), np.ones((1, elements), "f4")

    def get():
        matrix.window.rget(value, block).Wait()

    def multiply(request=None):
        for _ in range(count):
            blas.gemm(a, b, c, 1.0)
            if request is not None:
                request.Test()

    def both():
        request = matrix.window.rget(value, block)
        multiply(request)
        request.Wait()

    try:
        for _, tile in matrix.own_blocks():
            tile.fill(1)
        count = 1
        one_s, get_s = best_of(comm, multiply, trials, 8), best_of(comm, get, trials)
        count = comm.bcast(ceil(_TIMES * get_s / one_s))
        lost_s = best_of(comm, both, trials) - best_of(comm, multiply, trials)
    finally:
        matrix.close()
    return min(1.0, max(0.0, comm.bcast(lost_s / get_s)))
