"""Products of DTensors by drbench, by name: ``products.py WHAT [ARGUMENTS]``."""

import gc
import itertools
import random

import torch
from harness import TRANSPORT, dtensor, integers, main, placements, whole_of
from mpi4py import MPI
from torch.distributed.tensor import init_device_mesh

import drbench.torch

COMM = MPI.COMM_WORLD


def every(mesh_shape, letters, shapes, outs, heaps, dtype="float32", sample=None):
    """Products of all (or a sample of) operand placements with all outputs ("" for stock's)."""
    drbench.torch.install(heap="16M", when="always", transport=TRANSPORT)
    mesh, kind = init_device_mesh("cpu", tuple(mesh_shape)), getattr(torch, dtype)
    options = ["".join(each) for each in itertools.product(letters, repeat=len(mesh_shape))]
    wrong, cases = [], 0
    for m, k, n in shapes:
        A, B = integers((m, k), m, kind), integers((k, n), n + 1, kind)
        C = (A @ B).double()
        for heap in heaps:
            made = [
                {each: dtensor(whole, mesh, placements(each), heap, seed) for each in options}
                for seed, whole in ((1, A), (2, B))
            ]
            triples = [(a, b, c) for a in options for b in options for c in outs(options)]
            if sample:
                triples = random.Random(m).sample(triples, sample)
            for a, b, c in triples:
                cases += 1
                if c:
                    with drbench.torch.out(*placements(c)):
                        got = made[0][a] @ made[1][b]
                else:
                    got = made[0][a] @ made[1][b]
                right = not c or got.placements == placements(c)
                found = whole_of(got, mesh)
                right = right and found is not None and torch.equal(found, C)
                if not COMM.allreduce(right, op=MPI.LAND):
                    wrong.append([m, k, n, heap, a, b, c, str(got.placements)])
            made = got = None
    counts = drbench.torch.counts()
    state = drbench.torch.dispatch.installed()
    gc.collect()
    left = sum(ctx.heap.taken for ctx in state._contexts.values())
    drbench.torch.uninstall()
    return {
        "cases": cases,
        "wrong": wrong[:10],
        "drbench": counts.drbench,
        "stock": counts.stock,
        "left": COMM.allreduce(left),
    }


def all_outputs(*arguments):
    mesh_shape, letters, shapes, heaps, *rest = arguments
    return every(mesh_shape, letters, shapes, lambda options: ["", *options], heaps, *rest)


def default_output(*arguments):
    mesh_shape, letters, shapes, heaps, *rest = arguments
    return every(mesh_shape, letters, shapes, lambda options: [""], heaps, *rest)


if __name__ == "__main__":
    main({each.__name__: each for each in (all_outputs, default_output)})
