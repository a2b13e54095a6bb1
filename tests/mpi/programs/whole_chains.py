"""Chains of products, each run whole on all ranks: ``whole_chains.py CASES`` answers which matrices
differ from what NumPy makes of the whole ones.

A case is [tokens, widths, between, backward, seed]; layouts of all matrices and the ways of all
products are drawn at random from those there are.
"""

import itertools
import json
import random
import sys

import numpy as np
from harness import TRANSPORT, answer, ranks
from mpi4py import MPI

from chains.costs import EVERYTHING, Costs
from chains.description import Product, layers
from chains.program import Bound, traces
from chains.search import search
from drbench.host.executor import Executor
from drbench.host.kernels.elementwise import apply
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology
from drbench.measure.verify_chain import product_error
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine

TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9),
    (Link("wire", 1e8, latency_s=1e-6),),
    memory_bytes=1e9,
    collectives={name: Collective() for name in ("allgather", "reducescatter", "shift")},
)


def drawn(chain, costs, rng):
    """Layouts of all variables, and one of the ways of each product."""
    domains = costs.domains(chain)
    layouts = {name: rng.choice(found) for name, found in domains.items()}
    ways = {}
    for each in chain.products:
        found = []
        key = [layouts[chain.variable(name)] for name in (each.a, each.b, each.c)]
        for inner in itertools.product(costs.layouts, costs.layouts, (*costs.layouts, "P")):
            here = costs._products_in(chain, each, inner, EVERYTHING)
            moves = [
                costs._moved(chain, name, *ends, EVERYTHING)
                for name, ends in zip(
                    (each.a, each.b, each.c),
                    ((key[0], inner[0]), (key[1], inner[1]), (inner[2], key[2])),
                )
            ]
            if here and all(moves):
                ((_, way),) = rng.choice(here).notes
                a, b, c = (rng.choice(labels).notes for labels in moves)
                found.append(way._replace(a=a, b=b, c=c))
        ways[each.c] = rng.choice(found)
    return layouts, ways


def chosen(chain, costs, seed):
    """Layouts and ways: the best, or drawn. That takes long, so one rank does it for all."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        label, layouts = search(costs.domains(chain), costs.factors(chain))
        return layouts, dict(label.notes)
    return drawn(chain, costs, rng)


def by_numpy(chain, values):
    for each in chain.operations:
        c, taken = chain.matrices[each.c], [values[name] for name in each.takes]
        if isinstance(each, Product):
            a, b = (x.T if t in each.transpose else x for x, t in zip(taken, "ab"))
            values[each.c] = a @ b
        else:
            values[each.c] = np.empty((c.rows, c.cols))
            apply(each.function, values[each.c], taken)
    return values


def run(comm, topology, costs, case):
    tokens, widths, between, backward, seed = case
    chain = layers(tokens, widths, between, backward=backward)
    rng = random.Random(seed)
    layouts, ways = comm.bcast(None if comm.rank else chosen(chain, costs, seed))
    ahead = rng.choice([0, 1, "all"])
    bound = Bound(chain, comm.size, layouts, ways, "float64")
    numbers = np.random.default_rng(seed)
    values = {
        name: numbers.integers(-2, 3, (each.rows, each.cols)).astype(float)
        for name, each in chain.matrices.items()
        if each.kind != "made"
    }
    wanted = by_numpy(chain, dict(values))
    matrices = {
        name: DistributedMatrix.open(operand, topology, "float64", TRANSPORT)
        for name, operand in bound.operands.items()
    }
    for name, value in values.items():
        for block, tile in matrices[name].own_blocks():
            tile[...] = value[block.row0 : block.row1, block.col0 : block.col1]
    wrong = []
    with Executor(traces(bound)[comm.rank], matrices, prefetch=ahead) as executor:
        for _ in range(2):
            for name in bound.written:
                matrices[name].spoil()
            executor.prepare()
            comm.Barrier()
            for matrix in matrices.values():
                matrix.window.sync()
            executor.run()
            comm.Barrier()
            for matrix in matrices.values():
                matrix.window.sync()
            for name in chain.matrices:
                for block, tile in matrices[name].own_blocks():
                    part = wanted[name][block.row0 : block.row1, block.col0 : block.col1]
                    if not np.array_equal(tile, part):
                        wrong.append(name)
    # the verification agrees, and sees one element that is wrong
    seen = []
    if not comm.allreduce(len(wrong)):
        each = rng.choice(chain.products)
        c, a, b = (matrices[name] for name in (each.c, each.a, each.b))
        for exact in (True, False):
            check = lambda exact=exact: product_error(
                comm, c, a, b, each.transpose, a.partition.shape["a" not in each.transpose], exact
            )
            before = check()
            seen.append(before == 0 if exact else before <= 1)
        own = [tile for _, tile in c.own_blocks() if tile.size]
        if comm.rank == 0 and own:
            own[0][...] += 1.0
        comm.Barrier()
        moved = comm.bcast(bool(own))
        seen.append(not moved or product_error(comm, c, a, b, each.transpose, 1, False) > 1)
    for matrix in matrices.values():
        matrix.close()
    told = [layouts, {name: str(way) for name, way in ways.items()}, ahead]
    return sorted(set(wrong)) or ([] if all(seen) else ["verification"]), told


def main():
    cases = json.loads(sys.argv[1])
    found = []
    with ranks() as comm, Topology(comm) as topology:
        costs = Costs(TOY, comm.size, "float64", ("row", "column", "block", "R"))
        for case in cases:
            wrong, told = run(comm, topology, costs, case)
            wrong = sorted({name for each in comm.allgather(wrong) for name in each})
            if wrong:
                found.append([case, wrong, told])
        answer(comm, found)


main()
assert MPI
