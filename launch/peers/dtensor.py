"""PyTorch DTensor: ``torch.matmul`` of two DTensors, then ``redistribute()`` of what it left
partial (§5.2 of the paper)."""

import functools
import re
from math import prod

from .base import Availability, Job, Peer, Setting, installed, refuse_alike
from .meshes import on_one_mesh, placed
from .options import PEERS
from .torch_side import GET_TORCH, TorchBlas, device_of

#: Operations that wait for, or wrap, a collective, and move nothing themselves.
_SILENT = ("wait_tensor", "_wrap_tensor_autograd")


def _available() -> Availability:
    torch = installed("torch", GET_TORCH)
    if torch.ok and tuple(map(int, re.findall(r"\d+", torch.what)[:2])) < (2, 5):
        return Availability(
            False,
            f"{torch.what} has no torch.distributed.tensor",
            "It needs 2.5 or newer: pip install -U 'drbench[torch]'.",
        )
    return torch


def _layout(a, b, c, nprocs, **options):
    return a or "row", b or a or "row", c or a or "row"


def _settings(nprocs: int) -> list[Setting]:
    """Row is the default: with Column what the paper ran. The others are what DTensor also
    takes."""
    texts = {
        "row": ("row", "row", "row"),
        "column": ("column", "column", "column"),
        "inner": ("row", "column", "column"),
        "outer": ("column", "row", "row"),
        "megatron": (f"row/c{nprocs}", "column", "column"),
        "sequence": ("row", f"row/c{nprocs}", "row"),
    }
    if nprocs > 3:
        texts["block"] = ("block", "block", "block")
    return [Setting(name, dict(zip("abc", chosen))) for name, chosen in texts.items()]


class Multiplication(Job):
    """torch.matmul of two DTensors."""

    def __init__(self, problem, topology, fill, threads, options):
        import torch
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        from drbench.torch.ranks import start_process_group

        self._torch, self._where = torch, compute_local_shape_and_global_offset
        torch.set_num_threads(threads)
        device = device_of(options, topology)
        transport = "nccl" if device.type == "cuda" else "gloo"
        start_process_group(topology.comm, topology.nodes, transport)
        every = on_one_mesh([placed(operand.stored) for operand in problem.operands])
        self._placed = {
            name: (
                _mesh(device.type, extents),
                tuple(Replicate() if d is None else Shard(d) for d in placements),
            )
            for name, (placements, extents) in zip("ABC", every)
        }
        self.operands, self._device = [], device
        self.blas = TorchBlas(device)
        self._begin(problem, topology)
        for name in "AB":
            mesh, placements = self._placed[name]
            operand = problem.operand(name)
            shape = operand.stored.shape
            local, (row, col) = compute_local_shape_and_global_offset(shape, mesh, placements)
            tensor = torch.empty(local, dtype=getattr(torch, problem.dtype))
            if tensor.numel():
                elements, at = tensor.numpy(), (row, col)
                if operand.transposed:
                    elements, at = elements.T, at[::-1]
                fill.into(elements, name, *at)
            dealt = self._made(tensor, mesh, placements, shape)
            self.operands.append(dealt.t() if operand.transposed else dealt)  # a view
        self.layouts = tuple(problem.texts.values())
        self.resolved = {
            "mesh": "x".join(map(str, every[0][1])),
            "transport": transport,
            "backend": f"torch-{device.type}",
        }
        self._look(topology.comm, problem.flops // 2)

    def _begin(self, problem, topology) -> None:
        """Before the operands are made (collective)."""

    def _made(self, local, mesh, placements, shape):
        """An operand of a local tensor."""
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            local.to(self._device),
            mesh,
            placements,
            run_check=False,
            shape=shape,
            stride=(shape[1], 1),
        )

    def _look(self, comm, multiplies: int) -> None:
        """Multiply twice untimed: the first lets DTensor plan, the second is watched for what it
        moves."""
        seen = _watch()

        def twice():
            self.run()
            with seen:
                self.run()

        refuse_alike(comm, "DTensor", twice)
        work = comm.allreduce(seen.multiplied) / multiplies
        # ranks that do what others do as well
        product = "mm" if work < 1.001 else f"{work:.3g}x mm"
        self.resolved["dataflow"] = ", ".join(
            product if step == "mm" else step for step in seen.steps
        )
        if seen.known:
            self.moved = {"collective_bytes": seen.nbytes}
        self.replicas = prod(size for size, _ in copies(self.out))

    def run(self) -> None:
        out = self._torch.matmul(*self.operands)
        mesh, placements = self._placed["C"]
        if out.placements != placements or out.device_mesh != mesh:
            out = out.redistribute(mesh, placements)
        _elements(out)
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)
        self.out = out

    def parts(self):
        out, replica = self.out, 0
        local, (row, col) = self._where(out.shape, out.device_mesh, out.placements)
        for size, at in copies(out):
            replica = replica * size + at
        elements = _elements(out)
        return replica, [(row, col, elements.detach().cpu().numpy())] if elements.numel() else []


def copies(out) -> list[tuple[int, int]]:
    """The extent, and this rank's coordinate, of each mesh dimension along which a DTensor is
    copied."""
    mesh = out.device_mesh
    return [
        (mesh.size(dim), mesh.get_local_rank(dim))
        for dim, placement in enumerate(out.placements)
        if placement.is_replicate()
    ]


def _elements(out):
    """This rank's part of a DTensor, once a collective that may still be under way has ended."""
    local = out.to_local()
    return local.wait() if hasattr(local, "wait") else local


@functools.cache
def _mesh(device: str, extents: tuple):
    """A device mesh over all ranks, made once a process: each has process groups of its own."""
    from torch.distributed.tensor import init_device_mesh

    return init_device_mesh(device, extents)


def _watch():
    """A dispatch mode that notes the collectives of DTensor and its local products, with this
    rank's bytes."""
    from torch.distributed.distributed_c10d import _resolve_process_group
    from torch.distributed.tensor import DTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        steps: list[str] = []
        nbytes, multiplied, known = 0, 0, True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # let DTensor make its local operations, and see those
            namespace, _, name = func._schema.name.partition("::")
            if namespace in ("_c10d_functional", "c10d", "_dtensor") and name not in _SILENT:
                count = (
                    moved_bytes(name, args[0].nbytes, _resolve_process_group(args[-1]).size())
                    if isinstance(args[-1], str)
                    else None
                )
                self.known = self.known and count is not None
                self.nbytes += count or 0
                self.steps = [*self.steps, re.sub("(_into)?(_tensor)?(_single)?$", "", name)]
            elif name == "mm":
                self.steps = [*self.steps, "mm"]
                self.multiplied += args[0].shape[0] * args[0].shape[1] * args[1].shape[1]
            return func(*args, **(kwargs or {}))

    return Watch()


def moved_bytes(collective: str, nbytes: int, ranks: int) -> int | None:
    """Payload of one rank in one collective: received of a gather or all-to-all, sent of a
    reduction.

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


PEER = Peer(
    "dtensor",
    "PyTorch DTensor: torch.matmul on placements, gloo or NCCL",
    _available,
    _settings,
    _layout,
    Multiplication,
    options=PEERS["dtensor"],
    transposes=True,
)
