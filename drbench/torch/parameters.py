"""Tensors allocated in the heap, so that multiplications copy nothing."""

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from drbench.errors import DrbenchError, UsageError
from drbench.library import Context

from . import private
from .decision import TYPES
from .dispatch import installed
from .layouts import layout_text
from .multiplication import copied, location_of, new_local

#: How long a tensor of a collective that has ended may still be in use.
_RELEASED_S = 1.0


def empty(
    shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    dtype: torch.dtype = torch.float32,
) -> DTensor:
    """An uninitialised DTensor whose local tensor is in the heap, so that a multiplication copies
    nothing (collective over the mesh the first time that its ranks are used).

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the whole matrix.
    mesh : DeviceMesh
        Of ranks of torch.distributed, on CPUs.
    placements : sequence of Placement
        One for each dimension of the mesh.
    dtype : torch.dtype
        float32, float64, or bfloat16.

    Returns
    -------
    DTensor
        Uninitialised.

    Raises
    ------
    UsageError
        If type or placements are not allowed.
    OutOfMemory
        If this rank's part of the heap is full.

    Examples
    --------
    >>> import drbench.torch
    >>> from torch.distributed.tensor import Shard, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M")
    >>> drbench.torch.empty((4, 6), init_device_mesh("cpu", (1,)), [Shard(1)]).shape
    torch.Size([4, 6])
    >>> drbench.torch.uninstall()
    """
    if dtype not in TYPES:
        raise UsageError(f"the heap stores {', '.join(map(str, TYPES))}; got {dtype}.")
    if len(placements) != mesh.ndim or len(tuple(shape)) != 2:
        raise UsageError(
            f"drbench.torch.empty makes a matrix with a placement for each of the {mesh.ndim} "
            f"dimensions of the mesh, got shape {tuple(shape)} and {len(placements)} placements."
        )
    try:
        text = layout_text(placements, mesh.shape)
    except ValueError as error:
        raise UsageError(f"drbench.torch.empty: {error}.") from None
    context = installed().context(mesh)
    if context is None:
        local = torch.empty(0, dtype=dtype)
    else:
        local, _ = new_local(context.specs.of(tuple(shape), text, TYPES[dtype]), context)
    size = torch.Size(shape)
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=size, stride=(size[1], 1)
    )


@contextlib.contextmanager
def symmetric() -> Iterator[None]:
    """A context manager in which new DTensors have their local tensors in the heap, so that
    multiplications copy nothing: those of ``distribute_tensor``, and with it of
    ``parallelize_module``, and of ``torch.distributed.tensor.zeros`` and its like (collective over
    a mesh the first time that its ranks are used).

    ``DTensor.from_local`` keeps the memory of its caller. Tensors that drbench does not multiply
    are not moved: of other types, on GPUs, or of less than two dimensions.

    Returns
    -------
    context manager
        Of no value.

    Raises
    ------
    UsageError
        If drbench is not installed.
    OutOfMemory
        By what makes a DTensor, if this rank's part of the heap is full.

    Examples
    --------
    >>> import drbench.torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M", when="always")
    >>> with drbench.torch.symmetric():
    ...     A = distribute_tensor(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> (A @ A).to_local().tolist(), drbench.torch.counts().copied
    ([[2.0, 2.0], [2.0, 2.0]], 0)
    >>> drbench.torch.uninstall()
    """
    state = installed()

    def place(local: torch.Tensor, spec: Any) -> torch.Tensor:
        if local.ndim < 2 or local.dtype not in TYPES or private.other_memory(local):
            return local
        context = state.context(spec.mesh)
        rows = local.detach().flatten(0, -2)
        if context is None or location_of(rows, context) is not None:
            return local
        new, _ = copied(rows.contiguous(), context)
        return new.view(local.shape).requires_grad_(local.requires_grad)

    with private.placing(place):
        yield


def adopt(module: torch.nn.Module) -> torch.nn.Module:
    """Move a module's DTensor parameters of two dimensions into the heap (collective over their
    meshes).

    Parameters and their local tensors stay the same objects, so that optimizers and tied weights
    keep working. Parameters that drbench does not multiply are not moved.

    Parameters
    ----------
    module : torch.nn.Module
        Parallelised already.

    Returns
    -------
    torch.nn.Module
        The module itself.

    Raises
    ------
    UsageError, OutOfMemory
        On every rank, if a parameter shares its memory with another tensor, which would keep the
        old memory (``fully_shard``, one buffer for all parameters, a view), or the heap of one rank
        is too small; then no parameter was moved.

    Examples
    --------
    >>> import drbench.torch
    >>> from torch.distributed.tensor import distribute_module, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M")
    >>> layer = distribute_module(torch.nn.Linear(4, 2), init_device_mesh("cpu", (1,)))
    >>> drbench.torch.adopt(layer) is layer
    True
    >>> drbench.torch.uninstall()
    """
    state = installed()
    moved: list[tuple] = []
    meshes: dict[int, Context] = {}
    fault: DrbenchError | None = None
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, DTensor) or parameter.ndim != 2:
            continue
        if parameter.dtype not in TYPES or private.other_memory(private.local_of(parameter)):
            continue
        context = state.context(parameter.device_mesh)
        if context is None:
            continue
        meshes[id(context)] = context
        local = private.local_of(parameter)
        if location_of(local, context) is not None:
            continue
        try:
            if _is_shared(local):
                raise UsageError(
                    f"{name} shares its memory with another tensor, which would keep the old one. "
                    "Delete that tensor, or adopt before it is made; parameters of fully_shard "
                    "cannot be adopted, and need not be: each step gathers them anew."
                )
            moved.append((local, copied(local.detach().contiguous(), context)[0]))
        except DrbenchError as error:
            fault = error
            break
    for context in meshes.values():
        faults = context.comm.allgather(fault)
        for rank, refusal in enumerate(faults):
            if refusal is not None:
                raise type(refusal)(f"adopt, rank {rank}: {refusal}")
    for local, new in moved:
        local.data = new
    return module


def _is_shared(local: torch.Tensor) -> bool:
    """Whether another tensor uses the memory of a local tensor; threads of a collective that has
    ended may release theirs a moment later."""
    deadline = time.monotonic() + _RELEASED_S
    while private.holders(local) > 1:
        if time.monotonic() > deadline:
            return True
        gc.collect()
        time.sleep(0.001)
    return False
