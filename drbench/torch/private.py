"""All private names of torch that multiplications of DTensors need, and a check that this torch
has them. No other module of drbench uses a name of torch with an underscore.

DTensor's operations are dispatched in C++, which first looks up a Python handler of the operation
in a plain dict. After 2.15 torch has a hook for other algorithms, too (:func:`answer_hook`).
:func:`probe` reports what a version lacks.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from drbench.errors import MissingError

_lacking: ImportError | None = None
try:
    from torch.distributed.tensor._redistribute import (
        _gen_transform_infos,
        redistribute_local_tensor,
    )
    from torch.distributed.tensor._utils import ExplicitRedistributionContext
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.utils._debug_mode import DebugMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
except ImportError as error:  # another torch; probe() reports it
    _lacking = error

#: What pip installs of the versions with which all tests were run.
TESTED = "torch>=2.13,<2.16"

MM, ADDMM = torch.ops.aten.mm.default, torch.ops.aten.addmm.default
BMM, BADDBMM = torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default
#: Operations that inference mode does not decompose into mm and addmm.
UNDIVIDED = (torch.ops.aten.matmul.default, torch.ops.aten.linear.default)


def handlers() -> dict:
    """The dict operation -> Python handler of DTensor's dispatch."""
    return DTensor._op_dispatcher._custom_op_handlers


@contextlib.contextmanager
def handling(handled: dict) -> Iterator[None]:
    """A context manager in which DTensor calls these handlers."""
    table = handlers()
    before = {op: table[op] for op in handled if op in table}
    table.update(handled)
    try:
        yield
    finally:
        for op in handled:
            table.pop(op, None)
        table.update(before)


def answer_hook(answer: Callable) -> bool:
    """Let torch's own hook for algorithms ask ``answer(op, args, kwargs)`` for the result of mm and
    addmm on CPUs, a DTensor in torch's placements, or None to let torch multiply.

    Returns
    -------
    bool
        False if this torch has no hook: up to 2.15.
    """
    try:
        from torch.distributed.tensor import _op_algorithm
        from torch.distributed.tensor._op_schema import OpAlgorithm
    except ImportError:
        return False
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    for op in (MM, ADDMM):
        _register(_op_algorithm, op, OpAlgorithm(f"drbench.{op}"), answer)
    _clear_sharding_prop_cache()  # it has the choices made before
    return True


def _register(hook: Any, op: Any, algorithm: Any, answer: Callable) -> None:
    other = hook._op_algorithm_selectors.get(op)  # there is one selector an operation
    other = getattr(other, "other", other)

    def select(schema: Any, strategy: Any) -> Any:
        if schema.args_spec[0].mesh.device_type == "cpu":
            return algorithm
        return other and other(schema, strategy)  # torch's own, on GPUs

    def run(info: Any, _: Any) -> Any:
        args = map(wrapped, info.local_args, info.flat_args_schema)
        result = answer(op, tuple(args), info.local_kwargs)
        return hook.not_implemented if result is None else local_of(result)

    select.other = other  # type: ignore[attr-defined]
    hook.register_op_algorithm_selector(op)(select)
    hook.register_op_algorithm_impl(algorithm.name)(run)


@contextlib.contextmanager
def placing(place: Callable[[torch.Tensor, Any], torch.Tensor]) -> Iterator[None]:
    """A context manager in which ``place(local, spec)`` returns the local tensor of each new
    DTensor, but of those that ``from_local`` makes: their memory is the caller's."""
    make, from_local = DTensor.__new__, DTensor.from_local

    def new(cls: Any, local: torch.Tensor, spec: Any, **how: Any) -> DTensor:
        return make(cls, place(local, spec), spec, **how)

    def keep(*args: Any, **kwargs: Any) -> DTensor:
        DTensor.__new__ = make
        try:
            return from_local(*args, **kwargs)
        finally:
            DTensor.__new__ = new

    DTensor.__new__, DTensor.from_local = new, staticmethod(keep)
    try:
        yield
    finally:
        DTensor.__new__, DTensor.from_local = make, staticmethod(from_local)


def spec_of(tensor: DTensor) -> Any:
    """Mesh, placements, shape, strides and type; equal for tensors that are laid out alike."""
    return tensor._spec


def local_of(tensor: DTensor) -> torch.Tensor:
    """The local tensor itself, after a wait for a collective that still writes it."""
    local = tensor._local_tensor
    return local.wait() if type(local) is not torch.Tensor and hasattr(local, "wait") else local


def holders(local: torch.Tensor) -> int:
    """How many tensors use the memory of a local tensor, itself included."""
    storage = local.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) - 1  # and ``storage``


def other_memory(local: torch.Tensor) -> str:
    """What a local tensor is if it is no plain memory of this process, else nothing."""
    if type(local) not in (torch.Tensor, torch.nn.Parameter):
        return type(local).__name__
    plain = local.device.type == "cpu" and local.layout is torch.strided
    return "" if plain else f"{local.layout} on {local.device}"


def watched() -> bool:
    """Whether the program observes redistributions or collectives of torch, which drbench's
    transfers are not."""
    explicit = getattr(ExplicitRedistributionContext._local, "_active", None)
    return (explicit is not None and explicit._enable) or any(
        isinstance(mode, (CommDebugMode, DebugMode)) for mode in _get_current_dispatch_mode_stack()
    )


def stock_steps(old: Any, new: Any) -> list[tuple[int, float, Any, Any]]:
    """The communication in which torch redistributes a tensor: for each step the ranks, the share
    of all elements that each of them has (while it is replicated between them), and the placements
    before and after. The same on every rank."""
    if old.placements == new.placements or old.mesh.get_coordinate() is None:
        return []
    steps, share = [], 1.0
    sizes = old.mesh.shape
    for size, placement in zip(sizes, old.placements):
        share /= size if _is_cut(placement) else 1
    for step in _gen_transform_infos(old, new):
        ranks, (before, after) = sizes[step.mesh_dim], step.src_dst_placements
        share *= ranks if _is_cut(before) else 1
        if ranks > 1 and (_is_cut(before) or before.is_partial() and not after.is_partial()):
            steps.append((ranks, share, before, after))
        share /= ranks if _is_cut(after) else 1
    return steps


def _is_cut(placement: Any) -> bool:
    return not (placement.is_replicate() or placement.is_partial())


def is_traced(tensor: DTensor) -> bool:
    """Whether a DTensor is a placeholder while torch.compile traces the program."""
    local = tensor._local_tensor
    local = getattr(local, "elem", local)  # what a collective still writes
    return type(local).__name__ in ("FakeTensor", "FunctionalTensor")


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


def redistributed(tensor: DTensor, spec: Any) -> DTensor:
    """A DTensor in the placements of a spec; also in Partial, which ``redistribute`` refuses."""
    pairs = zip(tensor.placements, spec.placements)
    tensor = tensor.redistribute(
        placements=[y if x == y or not y.is_partial() else Replicate() for x, y in pairs]
    )
    return wrapped(redistribute_local_tensor(local_of(tensor), spec_of(tensor), spec), spec)


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
    seen = []
    try:
        if _lacking:
            raise _lacking
        ones = torch.ones(1, 1)
        tensor = DTensor.from_local(ones, mesh, [Replicate()] * mesh.ndim, run_check=False)
        sharding = stock_sharding(MM, (tensor, tensor), {})
        spec = sharding.output_spec
        other = spec_like(spec, (Shard(0), *[Partial()] * (mesh.ndim - 1)))
        good = (
            not sharding.needs_redistribute
            and in_default_order(spec)
            and spec_of(tensor).tensor_meta.shape == (1, 1)
            and split_factor(strided_shard(0, 2)) == 2
            and split_factor(Shard(0)) is None
            and spec_of(wrapped(ones, other)).placements == other.placements
            and hash(spec_of(tensor)) is not None
            and not (is_traced(tensor) or other_memory(ones) or watched())
            and holders(ones.clone()) == 1
            and len(stock_steps(other, spec)) == (mesh.size(0) > 1)
        )

        def handler(op: Any, args: tuple, kwargs: dict) -> DTensor:
            seen.append(op)
            return wrapped(ones, spec)

        with handling({MM: handler}):
            tensor @ tensor
        good = good and seen == [MM] and local_of(wrapped(ones, spec)) is ones
    except (AttributeError, TypeError, ImportError, KeyError, RuntimeError) as error:
        raise _refusal(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None
    if not good:
        raise _refusal("DTensor does not call the handlers of operations, or changes their results")


def _refusal(what: str) -> MissingError:
    return MissingError(
        f"drbench.torch needs private functions of DTensor that torch {torch.__version__} lacks or "
        f"has changed: {what}. Install a torch that has them: pip install '{TESTED}'"
    )


def reduction(placement: Any) -> str | None:
    """The operation of a pending reduction: ``sum``, or another; None for other placements."""
    if not placement.is_partial():
        return None
    kind = getattr(placement, "reduce_op", None)
    return kind if type(placement) is Partial and isinstance(kind, str) else repr(placement)
