"""PyTorch's fused products of tensor parallelism: ``torch.ops.symm_mem.fused_all_gather_matmul``
and ``fused_matmul_reduce_scatter``, on symmetric memory of GPUs."""

import ctypes
import functools
import re

import numpy as np

from drbench.errors import UnsupportedError, UsageError
from drbench.program.problem import Problem

from .base import Availability, Job, Peer, Setting, installed, refuse_alike
from .dtensor import moved_bytes
from .options import PEERS
from .torch_side import GET_TORCH, TorchBlas, device_of

#: Data flow -> how A, B and C are divided: all-gather and product, product and reduce-scatter.
LAYOUTS = {"AG": ("row", "column", "column"), "RS": ("column", "row", "row")}
SETTINGS = [Setting(flow, {"options": {"dataflow": flow}}) for flow in LAYOUTS]


@functools.cache
def devices() -> int:
    """How many GPUs the driver counts, without making any of them this process's."""
    found = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
            return 0
    except (OSError, AttributeError):
        return 0
    return found.value


def with_gpu(found: Availability, count: int | None = None) -> Availability:
    """What is installed, if there is a GPU to run it on.

    Examples
    --------
    >>> with_gpu(Availability(True, "torch 2.13.0"), 0).what
    'torch 2.13.0 is here, and no GPU that its driver counts'
    """
    if found.ok and not (devices() if count is None else count):
        return Availability(
            False,
            f"{found.what} is here, and no GPU that its driver counts",
            "It multiplies on GPUs alone: install it and run on a machine with one GPU a rank.",
        )
    return found


def layout(name: str):
    """The ``layout`` of a peer whose data flow decides how matrices are divided."""

    def chosen(a, b, c, nprocs, dataflow: str = "AG"):
        for text, own in zip((a, b, c), LAYOUTS[dataflow]):
            if text not in (None, own):
                raise UsageError(
                    f"{name} with -o dataflow={dataflow} takes A, B and C by "
                    f"{', '.join(LAYOUTS[dataflow])}; got {text!r}. Leave the partitions out, or "
                    "take the other data flow."
                )
        return LAYOUTS[dataflow]

    return chosen


def check_even(name: str, problem: Problem, dataflow: str, whole: bool = False) -> None:
    """Refuse extents that do not divide evenly over the ranks: what moves, or (``whole``) all.

    Raises
    ------
    UnsupportedError
    """
    extents = {"m": problem.m} | ({"k": problem.k} if dataflow == "RS" else {"n": problem.n})
    if not whole:
        extents = {"m": problem.m}
    for axis, extent in extents.items():
        if extent % problem.nprocs:
            raise UnsupportedError(
                f"{name} divides {axis} evenly over the ranks (its library); {axis} = {extent} on "
                f"{problem.nprocs} ranks. Use a multiple of {problem.nprocs}."
            )


def filled(problem: Problem, topology, fill, name: str) -> np.ndarray:
    """This rank's elements of A or B."""
    operand, rank = problem.operand(name), topology.comm.rank
    local = np.zeros(operand.partition.local_shape(rank), problem.dtype)
    for block in operand.own_tiles(rank):
        fill.into(local, name, block.row0, block.col0)
    return local


def moved(problem: Problem, topology, dataflow: str) -> dict[str, int]:
    """What this rank gathers of A, or sends of its partial sum of C."""
    nbytes, name = problem.tile_bytes(topology.comm.rank)["A"], "all_gather_into_tensor"
    if dataflow == "RS":  # every rank has a partial sum of all of C
        nbytes, name = problem.m * problem.n * problem.itemsize, "reduce_scatter_tensor"
    return {"collective_bytes": moved_bytes(name, nbytes, topology.comm.size)}


_GET = "It needs a CUDA build of torch 2.6 or newer: pip install -U torch."


def _available() -> Availability:
    torch = installed("torch", GET_TORCH)
    if torch.ok and tuple(map(int, re.findall(r"\d+", torch.what)[:2])) < (2, 6):
        return Availability(False, f"{torch.what} has no torch.ops.symm_mem", _GET)
    if torch.ok and "+cpu" in torch.what:
        return Availability(False, f"{torch.what} is built without CUDA", _GET)
    return with_gpu(torch)


class Multiplication(Job):
    """One of the two operations, on this rank's shards."""

    def __init__(self, problem, topology, fill, threads, options):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory  # defines the operations

        from drbench.torch.ranks import start_process_group

        self._torch, self._flow = torch, options.get("dataflow") or "AG"
        check_even("symm_mem", problem, self._flow)
        torch.set_num_threads(threads)
        self._device = device = device_of({"device": "cuda"}, topology)
        transport = "nccl" if device.type == "cuda" else "gloo"
        start_process_group(topology.comm, topology.nodes, transport)
        self._group = dist.group.WORLD.group_name
        self._c = problem.c.own_tiles(topology.comm.rank)
        self.operands = [
            torch.from_numpy(filled(problem, topology, fill, name)).to(device) for name in "AB"
        ]
        self.blas = TorchBlas(device)
        refuse_alike(topology.comm, "symm_mem", self.run)  # symmetric memory is made here
        self.moved = moved(problem, topology, self._flow)
        self.layouts = tuple(problem.texts.values())
        self.resolved = {
            "dataflow": self._flow,
            "transport": "symmetric memory" if device.type == "cuda" else transport,
            "backend": f"torch-{device.type}",
        }

    def run(self) -> None:
        ops, (a, b) = self._torch.ops.symm_mem, self.operands
        if self._flow == "AG":
            _, (self.out,) = ops.fused_all_gather_matmul(a, [b], 0, self._group, return_A=False)
        else:
            self.out = ops.fused_matmul_reduce_scatter(a, b, "sum", 0, self._group)
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def parts(self):
        out = self.out.detach().cpu().numpy()
        return 0, [(block.row0, block.col0, out) for block in self._c]


PEER = Peer(
    "symm_mem",
    "PyTorch's fused all-gather + matmul and matmul + reduce-scatter, on GPUs' symmetric memory",
    _available,
    lambda nprocs: SETTINGS,
    layout("symm_mem"),
    Multiplication,
    options=PEERS["symm_mem"],
)
