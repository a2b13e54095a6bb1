"""Whether drbench or stock torch multiplies two DTensors, decided from their specs alone: the same
on every rank."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.placement_types import Placement

from drbench.errors import UsageError

from .costs import predict_drbench, predict_stock, redistribution_s
from .layouts import layout_text
from .private import (
    BMM,
    MM,
    handlers,
    handling,
    in_default_order,
    spec_like,
    spec_of,
    split_factor,
    stock_sharding,
    stock_steps,
)

#: Types of elements that drbench multiplies, as NumPy calls them.
TYPES = {torch.float32: "float32", torch.float64: "float64"}
TYPES |= {torch.complex64: "complex64", torch.complex128: "complex128"}
if find_spec("ml_dtypes") is not None:
    TYPES[torch.bfloat16] = "bfloat16"

#: Why stock multiplies where that needs only local tensors.
NOTHING_MOVES = "nothing has to move"

#: Placements set by :func:`out`.
_wanted: ContextVar[tuple | None] = ContextVar("placements of results", default=None)


@dataclass(frozen=True)
class DispatchDecision:
    """Who multiplies, and how.

    Attributes
    ----------
    who : str
        ``drbench`` or ``stock``.
    why : str
        Why not the other.
    out : DTensorSpec or None
        Of the result; None if it is not known.
    layouts : tuple of str
        Of A, B and C, if drbench can multiply. Then all ranks agree who does: shapes may differ
        between ranks, which torch does not check, and with them what is cheaper.
    changes : tuple of (DTensorSpec, DTensorSpec), or None
        What stock would redistribute: the specs of addmm's first argument, A, B and C, each before
        and after, equal if it does not move; None if stock cannot multiply.
    bias : tuple
        Of addmm's first argument: the placements that drbench reads it in, and whether each rank
        then has just the part that its part of C needs.
    local : bool
        Stock would only multiply the local tensors.
    seconds : (float, float), or None
        Predicted of drbench and of stock, where they were compared.
    """

    who: str
    why: str
    out: Any = None
    layouts: tuple = ()
    changes: tuple | None = None
    bias: tuple = ()
    local: bool = False
    seconds: tuple[float, float] | None = None


@contextlib.contextmanager
def out(*placements: Placement) -> Iterator[None]:
    """A context manager in which multiplications return these placements.

    In a multiplication of more than two dimensions, as of ``torch.nn.Linear``, rows are all
    dimensions but the last. What counts is where a multiplication is called: a backward pass that
    is called inside the context manager returns its gradients in these placements, one after it in
    torch's.

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
    owner = getattr(handlers().get(BMM), "__self__", None)
    with handling(getattr(owner, "requested", {})):
        token = _wanted.set(tuple(placements))
        try:
            yield
        finally:
            _wanted.reset(token)


def wanted() -> tuple | None:
    """The placements that :func:`out` has set in this context."""
    return _wanted.get()


def decide(
    op: Any,
    args: tuple,
    kwargs: dict,
    placements: tuple | None,
    when: str,
    ranks: int,
    in_place: bool,
) -> DispatchDecision:
    """Decide who multiplies the last two of ``args``.

    Parameters
    ----------
    op : OpOverload
        aten.mm or aten.addmm.
    args, kwargs : tuple of DTensor, dict
        Of the call; only the specs of its DTensors are used.
    placements : tuple of Placement, optional
        Requested for the result.
    when : str
        ``auto``: drbench if stock would move elements, and drbench is predicted to take no longer;
        ``always``: whenever drbench can; ``never``.
    ranks : int
        Ranks that MPI has started.
    in_place : bool
        Ranks read each other's memory.

    Raises
    ------
    UsageError
        If the requested placements do not fit.
    """
    specs = *terms, sa, sb = [spec_of(arg) for arg in args]
    mesh, meta = sa.mesh, sa.tensor_meta
    if any(spec.mesh != mesh for spec in specs):
        return DispatchDecision("stock", "operands are on different meshes")
    shapes = [tuple(spec.tensor_meta.shape) for spec in specs]
    if not _fit(*shapes):
        return DispatchDecision("stock", "the shapes of operands do not fit")
    if placements is not None:
        placements = _fitting(placements, mesh)
    sharding, why = None, ""
    try:
        sharding = stock_sharding(op, args, kwargs)
    except Exception as error:  # raised again if stock multiplies
        if placements is None:
            line = next(iter(str(error).splitlines()), type(error).__name__)
            return DispatchDecision("stock", f"its result has no placements: {line}")
    *_, (m, k), (_, n) = shapes
    if sharding is not None:
        spec = natural = sharding.output_spec
        if placements is not None:
            spec = spec_like(natural, placements)
        new = sharding.redistribute_schema.args_schema if sharding.needs_redistribute else specs
        changes = *zip(specs, new), (natural, spec)
    else:
        spec = type(sa)(mesh, placements, tensor_meta=meta._replace(shape=torch.Size((m, n))))
        changes = None
    layouts: tuple[str, ...] = ()
    if any(spec.tensor_meta.dtype != meta.dtype for spec in specs):
        why = "operands have different types"
    elif meta.dtype not in TYPES:
        why = f"{str(meta.dtype).removeprefix('torch.')} is multiplied by torch alone"
    elif mesh.device_type != "cpu":
        why = f"tensors on {mesh.device_type} are multiplied by torch alone"
    elif int(mesh.mesh.max()) >= ranks:
        why = f"MPI has started {ranks} ranks, the mesh has others"
    elif not all(map(in_default_order, (sa, sb, spec))):
        why = "mesh dimensions shard in another order than from left to right"
    elif when == "never":
        why = "when is never"
    moves = changes is None or any(stock_steps(*change) for change in changes)
    if when == "auto" and not (why or moves):
        unchanged = all(old.placements == new.placements for old, new in changes or ())
        local = op is MM and unchanged and mesh.get_coordinate() is not None
        return DispatchDecision("stock", NOTHING_MOVES, spec, (), changes, (), local)
    bias = bias_layout(terms[0], spec) if terms and not why else ()
    if not why:
        try:
            layouts = tuple(layout_text(spec.placements, mesh.shape) for spec in (sa, sb, spec))
        except ValueError as error:
            why = str(error)
    seconds = None
    if changes and when == "auto" and not why and 0 not in (m, n, k):
        ours_s = predict_drbench((m, n, k), layouts, TYPES[meta.dtype], mesh.size(), in_place)
        if bias:
            ours_s += redistribution_s(terms[0], spec_like(terms[0], bias[0]))
        seconds = ours_s, predict_stock(changes, TYPES[meta.dtype])
        if ours_s > seconds[1]:
            why = "drbench is predicted to take longer"
    who = "stock"
    if not why:
        who, why = "drbench", "operands are read in place, nothing is gathered"
        if changes is None:
            why = "stock cannot multiply these placements"
        elif not moves:
            why = "nothing has to move, but drbench is to multiply always"
        elif not any(stock_steps(*change) for change in changes[:-1]):
            why = "stock would redistribute its result"
    return DispatchDecision(who, why, spec, layouts, changes, bias, seconds=seconds)


def _fit(*shapes: tuple) -> bool:
    """Whether A and B can be multiplied, and the term before them expands to C."""
    *terms, (m, k), (also_k, n) = shapes
    try:
        return k == also_k and all(
            torch.broadcast_shapes(shape, (m, n)) == (m, n) for shape in terms
        )
    except RuntimeError:
        return False


def bias_layout(term: Any, spec: Any) -> tuple[tuple, bool]:
    """The placements in which drbench reads addmm's first argument, and whether each rank then has
    just the part that its part of C needs.

    A pending sum may stay pending where C has one in the same mesh dimension; then it is no
    part of what the first rank of that dimension adds for all. Everything else is replicated.
    """
    shape, extents = tuple(term.tensor_meta.shape), spec.tensor_meta.shape

    def is_alike(mine: Any, of_c: Any) -> bool:
        if of_c.is_partial() and mine == of_c:
            return True
        if of_c.is_partial() or of_c.is_replicate():
            return mine.is_replicate()
        if split_factor(of_c) is not None:
            return False
        dim = of_c.dim - 2 + len(shape)
        cut = dim >= 0 and shape[dim] == extents[of_c.dim]
        return mine.is_shard(dim) if cut else mine.is_replicate()

    pairs = list(zip(term.placements, spec.placements))
    if all(is_alike(*pair) for pair in pairs):
        return tuple(term.placements), True
    return tuple(x if x.is_partial() and x == y else Replicate() for x, y in pairs), False


def _fitting(placements: tuple, mesh: Any) -> tuple:
    """Placements with dimensions counted from the front."""
    if len(placements) != mesh.ndim:
        raise UsageError(
            f"drbench.torch.out has {len(placements)} placements, the mesh of the result has "
            f"{mesh.ndim} dimensions. Give one placement for each."
        )
    checked = []
    for placement in placements:
        dim = getattr(placement, "dim", 0)
        if not -2 <= dim < 2:
            raise UsageError(
                f"drbench.torch.out({placement}): the result is a matrix. Use Shard(0) for its "
                "rows (all dimensions but the last), Shard(1) for its columns."
            )
        checked.append(type(placement)(dim + 2) if dim < 0 else placement)
    return tuple(checked)
