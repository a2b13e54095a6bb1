"""Whether drbench or stock torch multiplies two DTensors, decided from their specs alone: the same
on every rank."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from drbench.errors import UsageError

from .layouts import layout_text
from .private import MM, in_default_order, spec_like, spec_of, stock_sharding

#: Types of elements that drbench multiplies, as NumPy calls them.
TYPES = {torch.float32: "float32", torch.float64: "float64"}
if find_spec("ml_dtypes") is not None:
    TYPES[torch.bfloat16] = "bfloat16"

#: Why stock keeps a multiplication of local tensors alone.
STILL = "nothing has to move"

#: Placements set by :func:`out`.
_wanted: ContextVar[tuple | None] = ContextVar("placements of results", default=None)


@dataclass(frozen=True)
class Decision:
    """Who multiplies, and how.

    Attributes
    ----------
    who : str
        ``drbench`` or ``stock``.
    why : str
        Why not the other.
    out : DTensorSpec or None
        Of the result; None: as chosen by stock.
    layouts : tuple of str
        Of A, B and C, if drbench multiplies.
    sharding : OutputSharding or None
        What stock would do; None if it cannot multiply.
    local : bool
        Stock would only multiply the local tensors.
    """

    who: str
    why: str
    out: Any = None
    layouts: tuple = ()
    sharding: Any = None
    local: bool = False


@contextlib.contextmanager
def out(*placements: Placement) -> Iterator[None]:
    """A context manager in which multiplications return these placements.

    In a multiplication of more than two dimensions, as of ``torch.nn.Linear``, rows are all
    dimensions but the last. The placements do not apply to the backward pass.

    Parameters
    ----------
    *placements : Placement
        One for each dimension of the mesh.

    Returns
    -------
    context manager
        Of no value.

    Raises
    ------
    UsageError
        By the multiplication, if the placements do not fit its mesh or a matrix.

    Examples
    --------
    >>> import drbench.torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M")
    >>> A = distribute_tensor(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> with drbench.torch.out(Shard(1)):
    ...     C = A @ A
    >>> C.placements
    (Shard(dim=1),)
    >>> drbench.torch.uninstall()
    """
    token = _wanted.set(tuple(placements))
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> tuple | None:
    """The placements that :func:`out` has set in this context."""
    return _wanted.get()


def decide(op: Any, args: tuple, kwargs: dict, placements: tuple | None, when: str) -> Decision:
    """Decide who multiplies the last two of ``args``.

    Parameters
    ----------
    op : OpOverload
        aten.mm or aten.addmm.
    args, kwargs : tuple, dict
        Of the call; only the specs of its DTensors are used.
    placements : tuple of Placement, optional
        Requested for the result.
    when : str
        ``auto``: drbench if stock would move elements; ``always``: whenever drbench can.

    Raises
    ------
    UsageError
        If the requested placements do not fit.
    """
    a, b = args[-2:]
    if not all(isinstance(each, DTensor) for each in args):
        return Decision("stock", "an operand is no DTensor")
    sa, sb = spec_of(a), spec_of(b)
    mesh, meta = sa.mesh, sa.tensor_meta
    if placements is not None:
        placements = _fitting(placements, mesh)
    sharding, why = None, ""
    try:
        sharding = stock_sharding(op, args, kwargs)
    except (RuntimeError, NotImplementedError) as error:  # raised again if stock multiplies
        if placements is None:
            return Decision("stock", f"its result has no placements: {_first_line(error)}")
    spec = sharding.output_spec if sharding is not None else None
    if spec is None:
        shape = torch.Size((sa.tensor_meta.shape[0], sb.tensor_meta.shape[1]))
        spec = type(sa)(mesh, placements, tensor_meta=meta._replace(shape=shape))
    elif placements is not None and placements != tuple(spec.placements):
        spec = spec_like(spec, placements)
    shapes = sa.tensor_meta.shape, sb.tensor_meta.shape, spec.tensor_meta.shape
    layouts: tuple[str, ...] = ()
    if any(spec_of(each).mesh != mesh for each in args):
        why = "operands are on different meshes"
    elif any(spec_of(each).tensor_meta.dtype != meta.dtype for each in args):
        why = "operands have different types"
    elif meta.dtype not in TYPES:
        why = f"{str(meta.dtype).removeprefix('torch.')} is multiplied by torch alone"
    elif mesh.device_type != "cpu":
        why = f"tensors on {mesh.device_type} are multiplied by torch alone"
    elif any(0 in shape for shape in shapes):
        why = "an extent is 0"
    elif not all(map(in_default_order, (sa, sb, spec))):
        why = "mesh dimensions shard in another order than from left to right"
    elif (
        when == "auto"
        and sharding is not None
        and not sharding.needs_redistribute
        and spec.placements == sharding.output_spec.placements
    ):
        why = STILL
    else:
        try:
            layouts = tuple(layout_text(each.placements, mesh.shape) for each in (sa, sb, spec))
        except ValueError as error:
            why = str(error)
    if why == STILL:
        local = op is MM and mesh.get_coordinate() is not None
        return Decision("stock", why, spec, (), sharding, local)
    if why:
        return Decision("stock", why, spec if placements is not None else None, (), sharding)
    why = "operands are read in place, nothing is gathered"
    if sharding is None:
        why = "stock cannot multiply these placements"
    elif not sharding.needs_redistribute:
        why = "stock would redistribute its result"
    return Decision("drbench", why, spec, layouts, sharding)


def _fitting(placements: tuple, mesh: Any) -> tuple:
    """Placements with dimensions counted from the front."""
    if len(placements) != mesh.ndim:
        raise UsageError(
            f"drbench.torch.out has {len(placements)} placements, the mesh of the result has "
            f"{mesh.ndim} dimensions. Give one placement for each."
        )
    found = []
    for each in placements:
        dim = getattr(each, "dim", 0)
        if not -2 <= dim < 2:
            raise UsageError(
                f"drbench.torch.out({each}): the result is a matrix. Use Shard(0) for its rows "
                "(all dimensions but the last), Shard(1) for its columns."
            )
        found.append(type(each)(dim + 2) if dim < 0 else each)
    return tuple(found)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
