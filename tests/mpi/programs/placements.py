"""Products of placements, each with every stationary matrix: exact, in every copy of C.

``placements.py TRIPLES.json``: a list of ((m, n, k), A, B, C), texts of partitions. All run in the
same few windows. A pending sum in A or B is redistributed to the layout it is best summed in; of a
pending C the terms are summed here. Answers the triples that went wrong, and what was run.
"""

import json
import sys

import numpy as np
from harness import TRANSPORT, answer, ranks
from mpi4py import MPI

from algorithms import get_algorithm
from drbench.host.executor import Executor
from drbench.host.matrix import DistributedMatrix, Window, local_places
from drbench.host.topology import Topology
from drbench.program.problem import Operand, Problem
from drbench.program.redistribution import redistribute
from drbench.program.trace import trace
from partitions import partition, summed

UNIVERSAL = get_algorithm("universal")


class Bench:
    """Windows large enough for every case."""

    def __init__(self, topology, cases):
        self.topology, self.comm = topology, topology.comm
        nbytes = 4 * max(max(m * k, k * n, m * n) for (m, n, k), *_ in cases)
        names = ("A", "B", "C", "sum", "sum B")
        self.windows = {name: Window(topology, nbytes, transport=TRANSPORT) for name in names}

    def matrix(self, operand, window):
        places, _ = local_places(operand, 4)
        return DistributedMatrix(operand, self.topology, "float32", self.windows[window], places)

    def filled(self, name, bound, whole):
        """A or B; of a pending sum the first copies hold terms that add up to it."""
        made = self.matrix(Operand(name, bound), name)
        term = bound.term_of(made.replica)
        noise = np.random.default_rng(7).integers(-9, 10, (bound.terms, *whole.shape))
        noise[0] = whole - noise[1:].sum(axis=0)
        for block, tile in made.own_blocks():
            tile[...] = noise[term, block.row0 : block.row1, block.col0 : block.col1]
        return made

    def run(self, steps, matrices, written="C"):
        self.comm.Barrier()  # what is read is there
        with Executor(steps, matrices) as executor:
            executor.run()
        self.comm.Barrier()

    def ready(self, name, text, whole):
        """A or B in a layout that can be multiplied."""
        given = self.filled(name, partition(text, whole.shape, self.comm.size), whole)
        if given.partition.terms == 1:
            return given
        window = "sum" if name == "A" else "sum B"
        old, new = Operand("A", given.partition), Operand("C", summed(given.partition))
        rank = self.comm.rank
        steps = trace(redistribute(old, new, rank), None, rank, fresh=False)
        self.run(steps, {"A": given, "C": self.matrix(new, window)})
        return self.matrix(Operand(name, new.partition), window)

    def right(self, sizes, texts, stationary) -> bool:
        m, n, k = sizes
        rng = np.random.default_rng(m + n + k)
        a, b = rng.integers(-5, 6, (m, k)), rng.integers(-5, 6, (k, n))
        made = {"A": self.ready("A", texts[0], a), "B": self.ready("B", texts[1], b)}
        problem = Problem(
            m, n, k, self.comm.size, *(made[name].partition for name in "AB"), texts[2]
        )
        c = made["C"] = self.matrix(problem.c, "C")
        c.spoil()
        options = {"stationary": stationary, "replicate_result": True}
        self.run(UNIVERSAL.trace(problem, self.comm.rank, **options), made)
        copies = c.partition.copies(c.replica)
        found = np.zeros((len(copies), m, n))
        for block, tile in c.own_blocks():
            rows, cols = slice(block.row0, block.row1), slice(block.col0, block.col1)
            found[copies.index(c.replica), rows, cols] = tile
        self.comm.Allreduce(MPI.IN_PLACE, found, MPI.SUM)
        return bool((found == a @ b).all())


def main(path):
    with open(path) as file:
        cases = json.load(file)
    with ranks() as comm, Topology(comm) as topology:
        bench = Bench(topology, cases)
        wrong, done = [], 0
        for sizes, *texts in cases:
            for stationary in "ABC":
                done += 1
                if not bench.right(sizes, texts, stationary):
                    wrong.append([sizes, *texts, stationary])
        for window in bench.windows.values():
            window.close()
        answer(comm, {"done": done, "wrong": wrong})


if __name__ == "__main__":
    main(sys.argv[1])
