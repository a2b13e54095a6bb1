"""What the ranks of ``drbench doctor`` try: windows in reach, and one get, put and accumulate.
Prints one line of JSON."""

import json

import numpy as np
from mpi4py import MPI

from drbench.host.matrix import Place, Window
from drbench.host.topology import Topology, mpi_version, tcp_settings


def main() -> None:
    comm = MPI.COMM_WORLD
    right = (comm.rank + 1) % comm.size
    with Topology(comm) as topology:
        window = Window(topology, 256)
        local = window.local.view(np.float32)
        local[:] = comm.rank
        comm.Barrier()
        value, one = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
        corner = Place(0, 32, 4)
        window.rget(value, right, corner).Wait()
        works = bool((value == right).all())
        comm.Barrier()
        window.rput(one, right, corner).Wait()
        window.flush()
        comm.Barrier()
        for target in range(comm.size):
            window.raccumulate(one, target, corner).Wait()
        window.flush()
        window.sync()
        comm.Barrier()
        window.sync()
        works = works and bool((local[[0, 1, 2, 8, 9, 10]] == 1 + comm.size).all())
        on_node = [
            rank
            for rank in range(comm.size)
            if topology.node_of[rank] == topology.node_of[comm.rank]
        ]
        direct = all(window.in_reach[rank] is not None for rank in on_node)
        allocation = window.allocation
        window.close()
    found = comm.gather((works, direct))
    if comm.rank == 0:
        print(
            json.dumps(
                {
                    "size": comm.size,
                    "library": mpi_version(),
                    "standard": ".".join(map(str, MPI.Get_version())),
                    "rma": all(w for w, _ in found),
                    "direct": all(d for _, d in found),
                    "allocation": allocation,
                    "tcp": tcp_settings(),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
