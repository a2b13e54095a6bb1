"""Chains of multiplications, each run whole on all ranks by the library: ``whole_chains.py CASES``
answers which matrices differ from those of NumPy.

A case is [tokens, widths, between, backward, seed]; layouts of all matrices and of the
multiplications, and the stationary matrices are drawn at random from all possible ones.
"""

import json
import random
import sys

import numpy as np
from chains_by_numpy import by_numpy
from harness import TRANSPORT, answer, ranks
from mpi4py import MPI

import drbench
from algorithms.chains.choose import choose
from algorithms.chains.costs import LIBRARY, Costs
from algorithms.chains.description import layers
from drbench.measure.verify_chain import multiplication_error
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from launch.cases.chains import Asked, order_of
from launch.ranks.chain import ChainRun

TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9),
    (Link("wire", 1e8, latency_s=1e-6),),
    memory_bytes=1e9,
)


def chosen(chain, nprocs, seed):
    """Layouts and multiplications: the best, or drawn. One rank chooses for all, to save time."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        found = choose(chain, Costs(TOY, nprocs, dtype="float64"), programs=LIBRARY)
        order = order_of(found.best, Asked(), "toy", "integer")
        return order.layouts, order.multiplications
    costs = Costs(TOY, nprocs, "float64")
    layouts = {name: rng.choice(found) for name, found in costs.domains(chain).items()}
    multiplications = {}
    for each in chain.multiplications:
        inner = [rng.choice(found) for found in costs.layouts_of_multiplication(each).values()]
        multiplications[each.c] = [*inner, rng.choice("ABC")]
    return layouts, multiplications


def run(context, case):
    comm = context.comm
    tokens, widths, between, backward, seed = case
    chain = layers(tokens, widths, between, backward=backward)
    layouts, multiplications = comm.bcast(None if comm.rank else chosen(chain, comm.size, seed))
    numbers = np.random.default_rng(seed)
    values = {
        name: numbers.integers(-2, 3, (each.rows, each.cols)).astype(float)
        for name, each in chain.matrices.items()
        if each.kind != "made"
    }
    wanted = by_numpy(chain, values)
    found = ChainRun(context, chain, layouts, multiplications, "float64")
    part = lambda name: np.ix_(found.matrices[name].rows, found.matrices[name].columns)
    for name, value in values.items():
        found.matrices[name].local[...] = value[part(name)]
    wrong = []
    for _ in range(2):
        found.poison()
        comm.Barrier()
        found.run()
        for name, matrix in found.matrices.items():
            if not np.array_equal(matrix.local, wanted[name][part(name)]):
                wrong.append(name)
    # the verification agrees, and sees one element that is wrong
    seen = []
    if not comm.allreduce(len(wrong)):
        seen += [found.error(exact, seed, {}) <= (not exact) for exact in (True, False)]
        each = random.Random(seed).choice(chain.multiplications)
        c = found.matrices[each.c]
        a, b = (
            found.matrices[name].T if transposed else found.matrices[name]
            for name, transposed in each.operands
        )
        if comm.rank == 0 and c.local.size:
            c.local[0, 0] += 1.0
        comm.Barrier()
        moved = comm.bcast(bool(c.local.size))
        seen.append(not moved or multiplication_error(comm, c, a, b, False) > 1)
    return sorted(set(wrong)) or ([] if all(seen) else ["verification"]), [layouts, multiplications]


def main():
    cases = json.loads(sys.argv[1])
    found = []
    with ranks() as comm, drbench.init(comm, "64M", transport=TRANSPORT.kind) as context:
        for case in cases:
            wrong, text = run(context, case)
            wrong = sorted({name for each in comm.allgather(wrong) for name in each})
            if wrong:
                found.append([case, wrong, text])
        answer(comm, found)


main()
assert MPI
