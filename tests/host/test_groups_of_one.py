"""Group steps of a rank that is alone in its group: nothing is sent, the value is the same."""

import numpy as np
from mpi4py import MPI

from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.topology import Topology
from drbench.program.group_steps import Broadcast, Fragment
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, Group
from drbench.program.trace import trace


def test_a_broadcast_block_with_gaps_is_packed_in_a_group_of_one():
    problem, alone = Problem(4, 3, 8, 1), Group("row", (0,), 0)
    fragment = Fragment(problem.a.tile_block((0, 0)), cols=((0, 2), (4, 6)))

    def program():
        a = yield Broadcast(fragment, alone)
        b = yield Get(problem.b.block((0, 4), (0, 3)))
        yield Gemm(a, b, into=problem.c.tile_block((0, 0)))

    with Topology(MPI.COMM_SELF) as topology, distributed(problem, topology) as matrices:
        a, b, c = (matrices[name].own_blocks()[0][1] for name in "ABC")
        a[...], b[...] = np.arange(32).reshape(4, 8), np.arange(24).reshape(8, 3)
        expected = a[:, [0, 1, 4, 5]] @ b[:4]
        with Executor(trace(program(), problem, 0), matrices) as executor:
            executor.run()
        found = c.copy()
        del a, b, c
    assert (found == expected).all()
