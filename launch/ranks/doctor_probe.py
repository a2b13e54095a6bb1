"""What the ranks of ``drbench doctor`` try: windows in reach, and gets, puts and accumulates by
RMA, verified. Prints one line of JSON."""

import json

from mpi4py import MPI

from drbench.errors import CaseFailed
from drbench.host.matrix import Window
from drbench.host.topology import Topology, mpi_version, tcp_settings
from launch.cases.case import Case

from .bandwidth import measure_here


def main() -> None:
    comm = MPI.COMM_WORLD
    with Topology(comm) as topology:
        window, here = Window(topology, 256), topology.node_of[comm.rank]
        near = [rank for rank, node in enumerate(topology.node_of) if node == here]
        direct = all(window.in_reach[rank] is not None for rank in near)
        allocation = window.allocation
        window.close()
    direct = comm.allreduce(direct, MPI.LAND)
    rma = comm.size == 1 or _rma_moves_right()
    if comm.rank == 0:
        found = {
            "size": comm.size,
            "library": mpi_version(),
            "standard": ".".join(map(str, MPI.Get_version())),
            "rma": rma,
            "direct": direct,
            "allocation": allocation,
            "tcp": tcp_settings(),
        }
        print(json.dumps(found), flush=True)


def _rma_moves_right() -> bool:
    """The same on every rank."""
    try:
        measure_here(Case(1, 1, 1, transport="rma"), [4096], ["get", "put", "accumulate"])
    except CaseFailed:
        return False
    return True


if __name__ == "__main__":
    main()
