"""Windows where MPI promises less, or a rank is late.

``windows.py separate``: MPI that does not promise the unified memory model; answer which ranks are
in reach of each, and what a get then brings. ``windows.py late``: one rank is late with the huge
pages of a large window; answer what the others wrote meanwhile, as it finds it.
"""

import sys
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
from harness import answer, ranks
from mpi4py import MPI

from drbench.host import matrix
from drbench.host.huge_pages import LEAST_BYTES
from drbench.host.matrix import Location, Window
from drbench.host.topology import Topology

LATE_S = 0.5


def separate(comm, topology):
    names = {name: getattr(MPI, name) for name in dir(MPI)} | {"WIN_UNIFIED": -1}
    with mock.patch.object(matrix, "MPI", SimpleNamespace(**names)):
        window = Window(topology, 16)
    window.local.view("f4")[:] = comm.rank
    window.sync()
    comm.Barrier()
    other, value = (comm.rank + 1) % comm.size, np.full((1, 4), -1, "f4")
    window.rget(value, other, Location(0, 16, 4)).Wait()
    comm.Barrier()
    reach = [memory is not None for memory in window.in_reach]
    window.close()
    return reach == [rank == comm.rank for rank in range(comm.size)] and (value == other).all()


def late(comm, topology):
    in_huge_pages, last = matrix.in_huge_pages, comm.size - 1

    def slowly(memories, own):
        if comm.rank == last:
            time.sleep(LATE_S)
        return in_huge_pages(memories, own)

    with mock.patch.object(matrix, "in_huge_pages", slowly):
        window = Window(topology, LEAST_BYTES + 400)
    if comm.rank != last:
        window.in_reach[last][comm.rank] = 1 + comm.rank
    comm.Barrier()
    right = comm.rank != last or window.local[:last].tolist() == list(range(1, comm.size))
    comm.Barrier()
    window.close()
    return right


def main() -> None:
    way = {"separate": separate, "late": late}[sys.argv[1]]
    with ranks() as comm, Topology(comm) as topology:
        answer(comm, comm.allreduce(bool(way(comm, topology)), MPI.LAND))


if __name__ == "__main__":
    main()
