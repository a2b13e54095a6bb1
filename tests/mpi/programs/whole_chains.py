"""Chains of multiplications, each run whole on all ranks by the library: ``whole_chains.py CASES``
answers which matrices differ from those of NumPy.

A case is [tokens, widths, between, backward, seed]; the mesh, the layouts of all matrices and the
ways of multiplications are drawn at random from all possible ones.
"""

import json
import random
import sys

import numpy as np
from chains_by_numpy import by_numpy
from harness import TRANSPORT, answer, ranks
from layer_chains import layers
from mpi4py import MPI

import drbench
from drbench.chains.model.choose import Solution, choose
from drbench.chains.model.costs import LayoutCosts
from drbench.chains.model.mesh import meshes
from drbench.chains.model.programs import LIBRARY
from drbench.chains.order import Asked, order_of
from drbench.chains.ranks.run import ChainRun
from drbench.chains.ranks.verify import multiplication_error
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine

TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9),
    (Link("wire", 1e8, latency_s=1e-6),),
    memory_bytes=1e9,
)


def chosen(chain, nprocs, seed):
    """Layouts and multiplications: the best, or drawn. One rank chooses for all, to save time."""
    rng = random.Random(seed)
    found = [mesh for mesh in meshes(nprocs, nprocs) if len(mesh.extents) > 1]
    mesh = rng.choice(found + [next(meshes(nprocs, nprocs))])
    costs = LayoutCosts(TOY, mesh, "float64", programs=LIBRARY)
    if rng.random() < 0.2:
        one = choose(chain, [costs], effort_s=2).best
    else:
        layouts = {name: rng.choice(found) for name, found in costs.domains(chain).items()}
        ways = []
        for each in chain.multiplications:
            stored = [layouts[chain.variable(name)] for name in (*each.takes, each.c)]
            ways.append(rng.choice(costs.ways(chain, each, stored)))
        one = Solution("drawn", chain, costs, layouts, tuple(ways))
    order = order_of(one, Asked("drawn", ""), "toy", "integer")
    return order.layouts, order.multiplications


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
