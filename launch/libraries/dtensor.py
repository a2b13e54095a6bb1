"""PyTorch DTensor: ``torch.matmul`` of two DTensors, then ``redistribute()`` of a partial result
(§5.2 of the paper); and the same ``torch.matmul`` of the same placements with the same BLAS,
executed by :mod:`drbench.torch`."""

import functools
import re
from dataclasses import replace
from math import prod

from .meshes import find_placements, share_mesh
from .torch_side import TorchLibrary

#: Operations that wait for, or wrap, a collective, and move no data themselves.
_SILENT = ("wait_tensor", "_wrap_tensor_autograd")


class DTensorLibrary(TorchLibrary):
    """torch.matmul of two DTensors."""

    name = "dtensor"
    description = "PyTorch DTensor: torch.matmul on placements, gloo or NCCL"
    transposes = True

    @staticmethod
    def layout(nprocs, given, **options):
        """The given partitions; by default all by row."""
        a, b, c = given
        return a or "row", b or a or "row", c or a or "row"

    @staticmethod
    def settings(nprocs):
        """The paper's Row (default) and Column, and other layouts that DTensor supports."""
        replicated = f"row/c{nprocs}"
        triples = ["row row row", "column column column", "row column column", "column row row"]
        triples += [f"{replicated} column column", f"row {replicated} row"]
        triples += ["block block block"] * (nprocs > 3)
        return [dict(zip("abc", triple.split())) for triple in triples]

    def prepare(self, options):
        """Make operands on one mesh; then multiply twice, and record the second."""
        super().prepare(options)
        from torch.distributed.tensor import Replicate, Shard

        from drbench.torch.layouts import layout_text

        device, texts, self.placed = self.torch_device.type, [], []
        own = [find_placements(operand.stored) for operand in self.work.operands]
        for dims, mesh in share_mesh(own):
            placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
            self.placed.append((_mesh(device, mesh), placements))
            # chunks of chunks, as torch splits on a finer mesh
            texts.append(layout_text(placements, mesh))
        self.work = replace(self.work, **dict(zip("abc", texts)))
        self._begin()
        self.operands = []
        for operand, local, where in zip(self.work.operands, self.filled(), self.placed):
            tensor = self._make_operand(self.load(local), *where, operand.stored.shape)
            self.operands.append(tensor.t() if operand.transposed else tensor)  # a view
        self.resolved |= {"mesh": "x".join(map(str, self.placed[0][0].shape))}
        self._inspect()

    def _begin(self) -> None:
        """Runs before operands are made (collective)."""

    def _make_operand(self, local, mesh, placements, shape):
        """An operand from a local tensor."""
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1)
        )

    def _inspect(self) -> None:
        """Multiply twice untimed: in the first DTensor plans, in the second the moved bytes are
        recorded."""
        seen = _watch()

        def twice():
            self.run()
            with seen:
                self.run()

        self.attempt(twice)
        work = self.topology.comm.allreduce(seen.multiplied) / (self.work.flops // 2)
        # ranks that repeat the work of others
        multiplication = "mm" if work < 1.001 else f"{work:.3g}x mm"
        steps = [multiplication if step == "mm" else step for step in seen.steps]
        self.resolved |= {"dataflow": ", ".join(steps)}
        if None not in seen.nbytes:
            self.moved = {"collective_bytes": sum(seen.nbytes)}

    def run(self) -> None:
        """Call torch.matmul, and redistribute C to its placements."""
        self.out, (mesh, placements) = self.torch.matmul(*self.operands), self.placed[2]
        if self.out.placements != tuple(placements) or self.out.device_mesh != mesh:
            self.out = self.out.redistribute(mesh, placements)
        self._elements()
        self.wait()

    def _elements(self):
        """This rank's part of C, after the end of any pending collective."""
        local = self.out.to_local()
        return local.wait() if hasattr(local, "wait") else local

    def result(self):
        """This rank's part of C as an array."""
        return self.to_numpy(self._elements())


class Served(DTensorLibrary):
    """The same call, executed by drbench."""

    name = "dtensor+drbench"
    description = "PyTorch DTensor multiplied by drbench: torch.matmul on placements, read in place"

    def _begin(self) -> None:
        from mpi4py import MPI

        import drbench.torch

        shapes = [operand.partition.local_shape(self.rank) for operand in self.work.operands]
        # two results at once, aligned; and partial sums of replicas and operands of a
        # multiplication
        nbytes = 2 * self.work.itemsize * sum(map(prod, shapes))
        nbytes = self.topology.comm.allreduce(nbytes, op=MPI.MAX) + (1 << 20)
        self._served = drbench.torch
        drbench.torch.install(self.topology.comm, heap=nbytes, when="always")

    def _make_operand(self, local, mesh, placements, shape):
        tensor = self._served.empty(shape, mesh, placements, local.dtype)
        tensor.to_local().copy_(local)
        return tensor

    def _inspect(self) -> None:
        self.run()
        self.run()
        with self._served.out(*self.placed[2][1]):
            plan = self._served.explain(*self.operands)
        stock = ", ".join(self._served.counts().stock)
        dataflow = f"stock: {stock}" if stock else f"one-sided S-{plan.stationary}"
        self.resolved |= {"dataflow": dataflow, "transport": "one-sided"}
        self.moved = plan.own_bytes

    def run(self) -> None:
        """Call torch.matmul, with C computed in its placements."""
        with self._served.out(*self.placed[2][1]):
            self.out = self.torch.matmul(*self.operands)

    def close(self) -> None:
        """Release the heap, too (collective)."""
        super().close()
        self._served.uninstall()


@functools.cache
def _mesh(device: str, extents: tuple):
    """A device mesh over all ranks, made once per process, because each makes process groups."""
    from torch.distributed.tensor import init_device_mesh

    return init_device_mesh(device, extents)


def _watch():
    """A dispatch mode that records the collectives of DTensor, with this rank's bytes, and its
    local GEMMs."""
    from torch.distributed.distributed_c10d import _resolve_process_group
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.steps, self.nbytes, self.multiplied = [], [], 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # let DTensor call its local operations, and record those
            namespace, _, name = func._schema.name.partition("::")
            if namespace in ("_c10d_functional", "c10d", "_dtensor") and name not in _SILENT:
                group = isinstance(args[-1], str) and _resolve_process_group(args[-1])
                self.nbytes.append(
                    moved_bytes(name, args[0].nbytes, group.size()) if group else None
                )
                self.steps.append(re.sub("(_into)?(_tensor)?(_single)?$", "", name))
            elif name == "mm":
                self.steps.append(name)
                self.multiplied += args[0].numel() * args[1].shape[1]
            return func(*args, **(kwargs or {}))

    return Watch()


def moved_bytes(collective: str, nbytes: int, ranks: int) -> int | None:
    """Payload of one rank in one collective: received bytes of a gather or all-to-all, sent bytes
    of a reduction.

    Parameters
    ----------
    collective : str
        Name of the functional collective.
    nbytes : int
        Bytes of this rank's input.
    ranks : int
        Ranks of the group.

    Examples
    --------
    >>> (
    ...     moved_bytes("all_gather_into_tensor", 100, 4),
    ...     moved_bytes("reduce_scatter_tensor", 100, 4),
    ...     moved_bytes("all_reduce", 100, 4),
    ... )
    (300, 75, 150)
    >>> moved_bytes("something_new", 100, 4) is None
    True
    """
    share = nbytes * (ranks - 1) // ranks
    return {
        "all_gather_into_tensor": nbytes * (ranks - 1),
        "reduce_scatter_tensor": share,
        "all_reduce": 2 * share,
        "all_to_all_single": share,
        "shard_dim_alltoall": share,
        "broadcast": share,
    }.get(collective)


LIBRARY, ON_DRBENCH = DTensorLibrary, Served
