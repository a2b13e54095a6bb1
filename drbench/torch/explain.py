"""Whether drbench or stock torch would multiply two DTensors, why, and what moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.tensor import DTensor

from drbench.errors import UsageError
from partitions import LayoutError, partition
from partitions.redistribution import flows

from . import private
from .decision import Decision
from .dispatch import installed
from .layouts import layout_text


@dataclass(frozen=True)
class Explanation:
    """Whether drbench or stock multiplies two DTensors, and what moves. Made by :func:`explain`.

    Attributes
    ----------
    who : str
        ``drbench`` or ``stock``.
    why : str
        Why not the other.
    placements : tuple of Placement or None
        Of the result; None if not known in advance.
    moved_bytes : int or None
        Of all ranks together, if drbench multiplies, without the reduction of Partial operands.
    stock_moves : tuple of str
        What stock would redistribute, before and after.
    stock_bytes : int or None
        Lower bound for all ranks together: each element that must change its rank moves once.
    stationary : str
        The matrix whose tiles do not move; empty for stock.
    own_bytes : dict of str to int
        Moved by this rank's steps, by counter; empty for stock.
    plan : str
        The plan as text (:class:`drbench.library.explain.Explanation`); empty for stock.
    """

    who: str
    why: str
    placements: tuple | None
    moved_bytes: int | None
    stock_moves: tuple
    stock_bytes: int | None
    stationary: str
    own_bytes: dict
    plan: str

    def __str__(self) -> str:
        out = "" if self.placements is None else f", result {_placements_text(self.placements)}"
        lines = [f"{self.who}: {self.why}{out}"]
        if self.moved_bytes is not None:
            lines.append(f"drbench moves {self.moved_bytes} bytes")
        moves = "; ".join(self.stock_moves) or "nothing"
        size = "" if self.stock_bytes is None else f" ({self.stock_bytes} bytes at least)"
        lines.append(f"stock moves {moves}{size}")
        return "\n".join([*lines, *self.plan.splitlines()])


def explain(A: DTensor, B: DTensor) -> Explanation:
    """Explain who would multiply A·B, which bytes move, and why; nothing is multiplied (collective
    over the mesh the first time that its ranks are used).

    Parameters
    ----------
    A, B : DTensor
        m×k and k×n, on one mesh. Inside ``with drbench.torch.out(...)`` the result has the
        placements given there.

    Returns
    -------
    Explanation
        In numbers; ``str()`` formats it as text.

    Raises
    ------
    UsageError
        If A or B is no DTensor of two dimensions, or drbench is not installed.

    Examples
    --------
    >>> import drbench.torch, torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M", when="always")
    >>> A = distribute_tensor(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> print(drbench.torch.explain(A, A).who)
    drbench
    >>> drbench.torch.uninstall()
    """
    for each in (A, B):
        if not isinstance(each, DTensor) or each.ndim != 2:
            raise UsageError(
                f"explain needs DTensors of two dimensions, got {type(each).__name__}."
            )
    state = installed()
    decision = state.decision(private.MM, (A, B), {})
    moved, stationary, own, plan = None, "", {}, ""
    if decision.who == "drbench":
        multiplication = state.multiplication(decision, (A, B))
        if multiplication is not None:
            found = multiplication.explain()
            moved, plan = sum(found.moved_bytes), str(found)
            stationary, own = found.stationary, multiplication.own_bytes()
    spec = (
        decision.out
        if decision.out is not None
        else getattr(decision.sharding, "output_spec", None)
    )
    moves, nbytes = _stock_moves(decision, (A, B), spec)
    placements = None if spec is None else tuple(spec.placements)
    return Explanation(
        decision.who,
        decision.why,
        placements,
        moved,
        moves,
        nbytes,
        stationary,
        own,
        plan,
    )


def _stock_moves(
    decision: Decision, operands: tuple[DTensor, DTensor], spec: Any
) -> tuple[tuple, int | None]:
    """What stock would redistribute, and a lower bound of its bytes."""
    sharding = decision.sharding
    if sharding is None:
        return (), None
    changes = []
    if sharding.needs_redistribute:
        wanted = sharding.redistribute_schema.args_schema
        for name, tensor, new in zip("AB", operands, wanted):
            changes.append((name, private.spec_of(tensor), new))
    changes.append(("C", sharding.output_spec, spec))
    text: list[str] = []
    nbytes: int | None = 0
    for name, old, new in changes:
        if old.placements == new.placements:
            continue
        text.append(
            f"{name} from {_placements_text(old.placements)} to {_placements_text(new.placements)}"
        )
        if nbytes is not None:
            elements = _least(old, new)
            nbytes = (
                None if elements is None else nbytes + elements * old.tensor_meta.dtype.itemsize
            )
    return tuple(text), nbytes


def _least(old: Any, new: Any) -> int | None:
    """Elements that change their rank between two specs; None if not known."""
    shape, ranks = tuple(old.tensor_meta.shape), old.mesh.size()
    try:
        parts = [
            partition(layout_text(each.placements, each.mesh.shape), shape, ranks)
            for each in (old, new)
        ]
    except (ValueError, LayoutError):
        return None
    return sum(elements for *_, elements in flows(*parts))


def _placements_text(placements: Sequence) -> str:
    return "(" + ", ".join(map(str, placements)) + ")"
