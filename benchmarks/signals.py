"""The cost of a Push and its Await, in seconds of a core: a bar of ``benchmarks/core.py signals``.
On two ranks of one thread; prints JSON."""

import json
from time import process_time

from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.topology import Topology
from drbench.launch.ranks.run_case import MPI, world
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Get
from drbench.program.trace import trace


def cost(count: int, topology: Topology, *transport) -> float:
    """Seconds of this process's core for one Push and one Await of 16 elements, of ``count`` each
    way between two ranks; the best of several runs, on the rank that took less."""
    comm = topology.comm
    problem = Problem(4 * comm.size, 1, 4, comm.size, "row", "R", "row")
    own, other = problem.a.own_tiles(comm.rank)[0], 1 - comm.rank

    def program():
        token = yield Get(own)
        for x in range(count):
            yield Push(token, other, x)
        for x in range(count):
            yield Await(other, x, own)

    best = float("inf")
    with distributed(problem, topology, *transport) as matrices:
        traced = trace(program(), problem, comm.rank, fresh=False)
        with Executor(traced, matrices, prefetch="all") as executor:
            for _ in range(9):
                executor.prepare()
                comm.Barrier()
                start = process_time()
                executor.run()
                best = min(best, process_time() - start)
                comm.Barrier()
    return comm.allreduce(best, MPI.MIN) / count


if __name__ == "__main__":
    comm = world()  # MPI begins as it does for a case
    with Topology(comm) as topology:
        cost_s = cost(300, topology)
    if comm.rank == 0:
        print(json.dumps(cost_s))
