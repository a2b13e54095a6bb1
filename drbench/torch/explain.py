"""Whether drbench or stock torch would multiply two DTensors, why, and what moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed.tensor import DTensor

from drbench.errors import UsageError

from . import private
from .costs import received_bytes
from .decision import DispatchDecision
from .dispatch import installed


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
        Of all ranks together; None if stock cannot multiply.
    stationary : str
        The matrix whose tiles do not move; empty for stock.
    own_bytes : dict of str to int
        Moved by this rank's steps, by counter; empty for stock.
    plan : str
        The plan as text (:class:`drbench.library.explain.PlanExplanation`); empty for stock.
    seconds : (float, float), or None
        Predicted of drbench and of stock, if that decides; None if not.
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
    seconds: tuple[float, float] | None = None

    def __str__(self) -> str:
        out = "" if self.placements is None else f", result {_placements_text(self.placements)}"
        lines = [f"{self.who}: {self.why}{out}"]
        if self.seconds:
            ours, stock = (f"{1e3 * seconds:.3g} ms" for seconds in self.seconds)
            lines.append(f"predicted: drbench {ours}, stock {stock}")
        if self.moved_bytes is not None:
            lines.append(f"drbench moves {self.moved_bytes} bytes")
        moves = "; ".join(self.stock_moves) or "nothing"
        size = "" if self.stock_bytes is None else f" ({self.stock_bytes} bytes)"
        lines.append(f"stock moves {moves}{size}")
        return "\n".join([*lines, *self.plan.splitlines()])


def explain(A: DTensor, B: DTensor, bias: DTensor | None = None) -> Explanation:
    """Explain who would multiply A·B, or add it to a bias, which bytes move, and why; nothing is
    multiplied (collective over the mesh the first time that its ranks are used).

    Parameters
    ----------
    A, B : DTensor
        m×k and k×n, on one mesh. Inside ``with drbench.torch.out(...)`` the result has the
        placements given there.
    bias : DTensor, optional
        The first argument of ``torch.addmm``, whose own transfers by drbench are not counted.

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
    for tensor in (A, B):
        if not isinstance(tensor, DTensor) or tensor.ndim != 2:
            raise UsageError(
                f"explain needs DTensors of two dimensions, got {type(tensor).__name__}."
            )
    state = installed()
    op, args = (private.MM, (A, B)) if bias is None else (private.ADDMM, (bias, A, B))
    decision = state.decision(op, args, {})
    moved, stationary, own, plan = None, "", {}, ""
    if decision.who == "drbench":
        multiplication = state.multiplication(decision, (A, B))
        if multiplication is not None:
            explanation = multiplication.explain()
            moved, plan = sum(explanation.moved_bytes), str(explanation)
            stationary, own = explanation.stationary, multiplication.own_bytes()
    moves, nbytes = _stock_moves(decision)
    return Explanation(
        decision.who,
        decision.why,
        None if decision.out is None else tuple(decision.out.placements),
        moved,
        moves,
        nbytes,
        stationary,
        own,
        plan,
        decision.seconds,
    )


def _stock_moves(decision: DispatchDecision) -> tuple[tuple, int | None]:
    """What stock would redistribute, and its bytes."""
    text, nbytes = [], 0.0
    changes = decision.changes
    if changes is None:
        return (), None
    for name, (old, new) in zip(("bias", *"ABC")[-len(changes) :], changes):
        steps = private.stock_steps(old, new)
        if steps:
            text.append(
                f"{name} from {_placements_text(old.placements)} to "
                f"{_placements_text(new.placements)}"
            )
            nbytes += received_bytes(steps, old) * old.mesh.size()
    return tuple(text), round(nbytes)


def _placements_text(placements: Sequence) -> str:
    return "(" + ", ".join(map(str, placements)) + ")"
