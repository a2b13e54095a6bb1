"""Large windows: every rank writes its storage by stores, and reads that of other ranks by loads
and by RMA."""

import numpy as np
from harness import answer, ranks
from mpi4py import MPI

from drbench.host.huge_pages import LEAST_BYTES
from drbench.host.matrix import Location, Window
from drbench.host.topology import Topology


def areas() -> int:
    with open("/proc/self/maps") as file:
        return sum("rw-s" in line for line in file)


with ranks() as comm, Topology(comm) as topology:
    before, found = areas(), []
    for extra in (-64, 12_345):  # just too small to be mapped again, and larger
        size = LEAST_BYTES // 4 + extra * (comm.rank + 1)
        window = Window(topology, 4 * size)
        local = window.local.view("f4")
        zero = extra < 0 or not local.any()  # MPI promises nothing
        local[:] = np.arange(size) + comm.rank
        window.sync()
        comm.Barrier()
        other = (comm.rank + 1) % comm.size
        sizes = comm.allgather(size)
        out = np.empty((1, sizes[other]), "f4")
        window.rget(out, other, Location(0, 4 * sizes[other], 4)).Wait()
        right = np.arange(sizes[other], dtype="f4") + other
        seen = window.in_reach[other] is None or (window.in_reach[other].view("f4") == right).all()
        found.append(bool(zero and (out[0] == right).all() and seen))
        comm.Barrier()
        window.close()
    answer(
        comm,
        {"right": comm.allreduce(all(found), MPI.LAND), "left": comm.allreduce(areas() - before)},
    )
