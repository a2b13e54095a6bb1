"""Programs on a device of worker threads, again and again with other delays; answer how many runs
were exact.

``devices.py FILE``: a list of cases, each a table with ``algorithm``, ``options``, ``shape``,
``texts``, ``transport``, ``direct`` (MPI reads device memory), ``get``, ``prefetch``, ``gemms``,
``accumulates``, ``seeds`` and ``without``, the edges left out.
"""

import json
import sys
from dataclasses import replace

import numpy as np
from harness import answer, ranks
from mpi4py import MPI

from algorithms import get_algorithm
from drbench.common import parse_transport
from drbench.device.base import Resources
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import device_matrices
from drbench.device.threads import HostDevice
from drbench.host.fill import Fill
from drbench.host.topology import Topology
from drbench.plan.explain import traffic


def run(comm, topology, case):
    """How many seeds gave exactly A·B, and whether bytes were as planned."""
    algorithm = get_algorithm(case.get("algorithm", "universal"))
    m, n, k = case["shape"]
    options = algorithm.pick(case["options"])
    problem = algorithm.problem(m, n, k, comm.size, *case.get("texts", ()), **options)
    problem = replace(problem, dtype=case.get("dtype", "float32"))
    found = algorithm.trace(problem, comm.rank, **algorithm.resolve(problem, False, **options))
    first = HostDevice(0, 0)
    transport = parse_transport(case.get("transport", "auto"))
    with device_matrices(
        problem, topology, first, transport, case.get("direct", False)
    ) as matrices:
        fill = Fill("integer", 0, k)
        for name in "AB":
            for block, tile in matrices[name].own_blocks():
                first.fill(tile, fill, name, block.row0, block.col0)
        product = fill.rows("A", 0, m, k) @ fill.rows("B", 0, k, n)
        exact, as_planned = 0, True
        replicas = problem.c.partition.replicas if case["options"].get("replicate_result") else 1
        for seed in range(case.get("seeds", 3)):
            device = HostDevice(seed * comm.size + comm.rank, case.get("delay_s", 4e-4))
            for _, tile in matrices["C"].own_blocks():
                tile.view(np.ndarray).fill(np.nan)
            comm.Barrier()
            for matrix in matrices.values():
                matrix.device = device
            kind = type("Mutant", (DeviceExecutor,), {"without": case.get("without", ())})
            with kind(
                found,
                matrices,
                prefetch=case.get("prefetch", 1),
                get=case.get("get", "copy"),
                resources=Resources(case.get("gemms", 1), case.get("accumulates", 1)),
            ) as executor:
                executor.run()
                comm.Barrier()
                counted, planned = dict(executor.bytes), traffic(found).counters
            counted["get_bytes"] += counted.pop("direct_bytes")
            planned.pop("direct_bytes")
            as_planned &= counted == planned
            right = matrices["C"].replica >= replicas or all(
                (
                    first.rows_of(tile, np.arange(tile.shape[0]))
                    == product[block.row0 : block.row1, block.col0 : block.col1]
                ).all()
                for block, tile in matrices["C"].own_blocks()
            )
            exact += comm.allreduce(right, MPI.LAND)
            device.close()
    first.close()
    return {"exact": exact, "as_planned": comm.allreduce(as_planned, MPI.LAND)}


def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    with ranks() as comm, Topology(comm) as topology:
        answer(comm, [run(comm, topology, case) for case in cases])


if __name__ == "__main__":
    main()
