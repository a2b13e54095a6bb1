"""All private names of torch that multiplications of DTensors need, and a check that this torch
has them. No other module of drbench uses a name of torch with an underscore.

DTensor's operations are dispatched in C++, which first looks up a Python handler of the operation
in a plain dict. Tested with torch 2.13; :func:`probe` reports what another version lacks.
"""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from drbench.errors import MissingError

#: The version of torch that all tests use.
TESTED = "2.13.0"

MM, ADDMM = torch.ops.aten.mm.default, torch.ops.aten.addmm.default
BMM, BADDBMM = torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default
#: Operations that inference mode does not decompose into mm and addmm.
UNDIVIDED = (torch.ops.aten.matmul.default, torch.ops.aten.linear.default)


def handlers() -> dict:
    """The dict operation -> Python handler of DTensor's dispatch."""
    return DTensor._op_dispatcher._custom_op_handlers


def spec_of(tensor: DTensor) -> Any:
    """Mesh, placements, shape, strides and type; equal for tensors that are laid out alike."""
    return tensor._spec


def local_of(tensor: DTensor) -> torch.Tensor:
    """The local tensor itself, after a wait for a collective that still writes it."""
    local = tensor._local_tensor
    return local.wait() if type(local) is not torch.Tensor and hasattr(local, "wait") else local


def put_local(tensor: DTensor, local: torch.Tensor) -> None:
    """Give a DTensor another local tensor of the same elements."""
    tensor._local_tensor = local


def is_traced(tensor: DTensor) -> bool:
    """Whether a DTensor is a placeholder while torch.compile traces the program."""
    return type(tensor._local_tensor).__name__ in ("FakeTensor", "FunctionalTensor")


def stock_sharding(op: Any, args: tuple, kwargs: dict) -> Any:
    """What DTensor itself would do: ``output_spec``, ``needs_redistribute``, and with it
    ``redistribute_schema``."""
    dispatcher = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(op, args, kwargs)
    dispatcher.sharding_propagator.propagate(info)
    return info.output_sharding


def wrapped(local: torch.Tensor, spec: Any) -> DTensor:
    """A DTensor of a local tensor. ``__init__`` is left out: it does nothing, in 2 us."""
    return DTensor.__new__(DTensor, local, spec, requires_grad=local.requires_grad)


def spec_like(spec: Any, placements: tuple) -> Any:
    """The spec of the same tensor with other placements."""
    return type(spec)(spec.mesh, placements, tensor_meta=spec.tensor_meta)


def split_factor(placement: Any) -> int | None:
    """The split factor of a _StridedShard; None for every other placement."""
    return getattr(placement, "split_factor", None)


def strided_shard(dim: int, factor: int) -> Any:
    """A _StridedShard."""
    from torch.distributed.tensor.placement_types import _StridedShard

    return _StridedShard(dim, split_factor=factor)


def in_default_order(spec: Any) -> bool:
    """Whether a dimension sharded by several mesh dimensions is sharded from left to right."""
    order = getattr(spec, "shard_order", None)
    return order is None or type(spec).is_default_device_order(order)


def probe(mesh: Any) -> None:
    """Try every name on a mesh of all ranks, without moving data.

    Raises
    ------
    MissingError
        If this torch lacks one, or does not call the handlers.
    """
    seen, table = [], None
    try:
        ones = torch.ones(1, 1)
        one = DTensor.from_local(ones, mesh, [Replicate()] * mesh.ndim, run_check=False)
        sharding = stock_sharding(MM, (one, one), {})
        spec = sharding.output_spec
        other = spec_like(spec, (Shard(0), *[Partial()] * (mesh.ndim - 1)))
        good = (
            not sharding.needs_redistribute
            and in_default_order(spec)
            and spec_of(one).tensor_meta.shape == (1, 1)
            and split_factor(strided_shard(0, 2)) == 2
            and split_factor(Shard(0)) is None
            and spec_of(wrapped(ones, other)).placements == other.placements
            and hash(spec_of(one)) is not None
            and not is_traced(one)
        )
        put_local(one, ones)
        table = handlers()
        before = table.get(MM)

        def handler(op: Any, args: tuple, kwargs: dict) -> DTensor:
            seen.append(op)
            return wrapped(ones, spec)

        table[MM] = handler
        try:
            one @ one
        finally:
            del table[MM]
            if before is not None:
                table[MM] = before
        good = good and seen == [MM] and local_of(one) is ones
    except (AttributeError, TypeError, ImportError, KeyError, RuntimeError) as error:
        raise _refusal(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
    if not good:
        raise _refusal("DTensor does not call the handlers of operations, or changes their results")


def _refusal(what: str) -> MissingError:
    return MissingError(
        f"drbench.torch does not know this torch ({torch.__version__}): {what}. It is tested with "
        f"torch {TESTED}: pip install torch=={TESTED}"
    )


def reduction(placement: Any) -> str | None:
    """The operation of a pending reduction: ``sum``, or another; None for other placements."""
    if not placement.is_partial():
        return None
    kind = getattr(placement, "reduce_op", None)
    return kind if type(placement) is Partial and isinstance(kind, str) else repr(placement)
