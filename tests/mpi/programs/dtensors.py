"""Helpers of the DTensor programs: ranks with a process group, and DTensors of every placement
made from a matrix that every rank has whole."""

import functools
import gc
import json
import logging
import sys

import torch
from harness import SITUATION, answer
from mpi4py import MPI
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import drbench.torch
from drbench.torch.dispatch import installed

TRANSPORT = "rma" if SITUATION == "rma" else "auto"
torch.set_num_threads(1)
for each in ("torch.distributed.tensor", "torch._subclasses.fake_tensor"):  # tests read stderr
    logging.getLogger(each).setLevel(logging.CRITICAL)

#: Placements by the letters that tests use.
LETTERS = {
    "0": Shard(0),
    "1": Shard(1),
    "R": Replicate(),
    "P": Partial(),
    "t": _StridedShard(0, split_factor=2),
    "u": _StridedShard(1, split_factor=2),
    "v": _StridedShard(0, split_factor=3),
}


def placements(letters):
    return tuple(LETTERS[letter] for letter in letters)


def shard(whole, mesh, placed):
    """This rank's part of a matrix, cut by torch's own placements from left to right."""
    local, at = whole, mesh.get_coordinate()
    for x, p in enumerate(placed):
        if isinstance(p, Shard | _StridedShard):
            parts, _ = p._split_tensor(local, mesh.shape[x], with_padding=False, contiguous=True)
            local = parts[at[x]]
    return local.contiguous()


def dtensor(whole, mesh, placed, heap=False, seed=0):
    """A DTensor of a whole matrix; where a sum is pending, of random terms."""
    at = mesh.get_coordinate()
    local = shard(whole, mesh, placed).clone() if at else whole.new_empty(0)
    for x, p in enumerate(placed if at else ()):
        if p.is_partial():  # the term at 0 cancels the others, which copies share
            noise = torch.Generator().manual_seed(100 * x + seed)
            junk = torch.randint(-3, 4, (mesh.shape[x], *whole.shape), generator=noise)
            terms = junk.to(whole.dtype)
            others = [y for y, q in enumerate(placed) if q.is_partial() and y > x]
            first = all(at[y] == 0 for y in others)
            mine = -terms[1:].sum(0) if at[x] == 0 else terms[at[x]]
            if first:
                local += shard(mine, mesh, placed)
            if at[x]:
                local -= shard(whole, mesh, placed) if _carries(placed, at, x) else 0
    if heap:
        made = drbench.torch.empty(whole.shape, mesh, placed, whole.dtype)
        made._local_tensor.copy_(local)
        return made
    return DTensor.from_local(
        local, mesh, placed, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _carries(placed, at, x):
    """Whether this rank's term still contains the whole, which is subtracted once."""
    return all(at[y] == 0 for y, q in enumerate(placed) if q.is_partial() and y < x)


def is_right(tensor, whole, mesh):
    """Whether this rank's part of a DTensor equals that of a matrix; of a pending sum, whether its
    terms add up to the matrix (collective over the mesh then). Torch redistributes nothing."""
    placed, at = tensor.placements, mesh.get_coordinate()
    local = tensor.to_local()
    local = (local.wait() if hasattr(local, "wait") else local).detach()
    wanted = shard(whole, mesh, placed)
    terms = [x for x, p in enumerate(placed) if p.is_partial()]
    if not terms:
        return torch.equal(local, wanted)
    comm = comm_of(mesh)
    wide = torch.complex128 if local.is_complex() else torch.float64  # NumPy has no bfloat16
    heard = comm.allgather((at, local.resolve_conj().to(wide).numpy()))
    alike = [
        torch.from_numpy(theirs)
        for there, theirs in heard
        if all(there[x] == at[x] for x in range(len(placed)) if x not in terms)
    ]
    return torch.equal(sum(alike), wanted.to(wide))


@functools.cache
def comm_of(mesh):
    """An MPI communicator of the ranks of a mesh."""
    group = MPI.COMM_WORLD.group.Incl(mesh.mesh.flatten().tolist())
    return MPI.COMM_WORLD.Create_group(group)


def integers(shape, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    drawn = lambda: torch.randint(-3, 4, shape, generator=generator).to(dtype)
    return drawn() + 1j * drawn() if dtype.is_complex else drawn()


def finish():
    """Bytes of the heaps that are still in use, over all ranks; afterwards torch is as it was."""
    gc.collect()
    contexts = installed()._contexts.values()
    left = sum(context.heap.taken for context in contexts if context is not None)
    drbench.torch.uninstall()
    return MPI.COMM_WORLD.allreduce(left)


def main(*functions):
    """``PROGRAM WHAT ARGUMENTS``: the answer of a function; the arguments are in a JSON file."""
    what, path = sys.argv[1:]
    with open(path) as file:
        arguments = json.load(file)
    answer(MPI.COMM_WORLD, {each.__name__: each for each in functions}[what](*arguments))
