"""A multiplication of local tensors in the heap of a context."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from drbench.arrays import numpy_type
from drbench.errors import DrbenchError, UnsupportedError, UsageError
from drbench.library import Context
from drbench.library.exchange import Exchange
from drbench.library.explain import PlanExplanation
from drbench.library.plan import Multiplication
from drbench.library.spec import Spec
from drbench.plan.explain import traffic

from .blas import tensor_of
from .decision import TYPES

#: m, n, k.
Sizes = tuple[int, int, int]
_NUMPY = {kind: numpy_type(name) for kind, name in TYPES.items()}


class Declined(UnsupportedError):
    """Some rank cannot multiply: raised on all ranks, so that stock multiplies on all of them."""


class DTensorMultiplication:
    """C = beta·C + alpha·A·B of three specs, for any local tensors.

    Parameters
    ----------
    context : Context
        Of the ranks of the mesh.
    shape : (int, int, int)
        m, n, k.
    layouts : (str, str, str)
    dtype : str

    Attributes
    ----------
    a, b, c : Spec
    """

    def __init__(
        self,
        context: Context,
        shape: Sizes,
        layouts: tuple[str, ...],
        dtype: str,
    ):
        m, n, k = shape
        self.context = context
        self.a, self.b, self.c = (
            context.specs.of(extents, text, dtype)
            for extents, text in zip(((m, k), (k, n), (m, n)), layouts)
        )
        self._sums = tuple(
            None if spec.whole is spec else context.redistribution(spec, spec.whole)
            for spec in (self.a, self.b)
        )
        self._plans: dict[bool, Multiplication] = {}

    @property
    def reduces(self) -> bool:
        """Whether an operand is Partial."""
        return self._sums != (None, None)

    def plan(self, update: bool = False) -> Multiplication:
        """The plan; with ``update`` A·B is added to C."""
        plan = self._plans.get(update)
        if plan is None:
            specs = self.a.whole, self.b.whole, self.c
            plan = self._plans[update] = self.context.multiplication(*specs, update=update)
        return plan

    def explain(self) -> PlanExplanation:
        """What the plan moves and does, without the reduction of Partial operands."""
        return PlanExplanation.of(self.plan())

    def own_bytes(self) -> dict[str, int]:
        """Elements and bytes that this rank's steps move, by counter."""
        return traffic(self.plan().trace(self.context.rank)).counters

    def __call__(
        self,
        locals_: tuple[torch.Tensor, torch.Tensor],
        start: Callable[[torch.Tensor], Any] | None = None,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        counts: Counter | None = None,
    ) -> torch.Tensor:
        """The local tensor of C (collective).

        Parameters
        ----------
        locals_ : (Tensor, Tensor)
            This rank's parts of A and B.
        start : callable, optional
            Fills the local tensor of C that ``beta`` scales.

        Raises
        ------
        Declined
            On every rank, if the heap of one is full, or the shape of a local tensor does not fit
            its placements.
        """
        context, fault = self.context, None
        ends: tuple[int, ...]
        update = start is not None
        with context.lock:
            try:
                (ends_a, *held), (ends_b, *more) = (
                    self._place(local, spec, total, counts)
                    for local, spec, total in zip(locals_, (self.a, self.b), self._sums)
                )
                c, ends = new_local(self.c, context)
                if start is not None:
                    start(c)
                ends = *ends_a[-3:], *ends_b[-3:], *ends
            except DrbenchError as error:
                fault, ends, ends_a, ends_b = Declined(str(error)), (), (), ()
            for total, locations in zip(self._sums, (ends_a, ends_b)):
                if total is not None:
                    total.run(locations, fault)
                    if counts is not None:
                        counts["summed"] += 1
            plan = self.plan(update)
            with _of_one_shape(plan.exchange):
                plan.run(ends, fault, alpha=alpha, beta=beta)
            return c

    def agree(self, refusal: str, update: bool) -> None:
        """Agree with the other ranks to multiply by drbench (collective; ranks that do not refuse
        may multiply at once, unless other communication comes before).

        Parameters
        ----------
        refusal : str
            Why this rank leaves the multiplication to stock; empty if it does not.
        update : bool
            C is added to.

        Raises
        ------
        Declined
            On every rank, if one refuses.
        UsageError
            On every rank, if they multiply matrices of different shapes or layouts.
        """
        exchange, fault = self.plan(update).exchange, Declined(refusal) if refusal else None
        with self.context.lock, _of_one_shape(exchange):
            exchange.handshake((), fault)
            exchange.check(fault)

    def _place(self, local: torch.Tensor, spec: Spec, total: Any, counts: Counter | None) -> tuple:
        """The location of a local tensor that other ranks can read and BLAS can multiply (itself,
        or a copy), and of the target of its reduction; then the tensors that must stay alive."""
        if local.shape != spec.local_shape:
            rows, cols = spec.local_shape
            raise UnsupportedError(
                f"the local tensor of {spec} is {'x'.join(map(str, local.shape))}, its placements "
                f"give it {rows}x{cols}."
            )
        copy, location = None, location_of(local, self.context)
        if location is None:
            if counts is not None:
                counts["copied"] += 1
            copy, location = copied(local, self.context)
        if total is None:
            return location, copy
        whole, behind = new_local(spec.whole, self.context)
        return location + behind, copy, whole


@contextmanager
def _of_one_shape(exchange: Exchange) -> Iterator[None]:
    """What only some ranks decline is left to stock; stock cannot multiply different matrices."""
    try:
        yield
    except Declined:
        if exchange.agreed:
            raise
        raise UsageError(
            f"ranks multiply DTensors of different shapes or placements: rank "
            f"{exchange.comm.rank} {exchange.what}. Make them the same on every rank."
        ) from None


def location_of(local: torch.Tensor, context: Context) -> Sizes | None:
    """The start of a local matrix in this rank's part of the heap, and its strides, in bytes; None
    if it cannot be used in place."""
    if local.is_conj() or local.is_neg():  # not what is in memory
        return None
    (by_row, by_col), item = local.stride(), local.itemsize
    offset: int | None = 0
    strides = by_row * item, by_col * item
    if local.numel():
        offset = context.heap.offset_at(local.data_ptr(), local.shape, strides, item)
    return None if offset is None else (offset, *strides)


def new_local(spec: Spec, context: Context) -> tuple[torch.Tensor, Sizes]:
    """An uninitialised local matrix in the heap, and its location."""
    return _new(spec.local_shape, spec.dtype, context)


def copied(local: torch.Tensor, context: Context) -> tuple[torch.Tensor, Sizes]:
    """A copy in the heap, and its location; a transposed matrix stays transposed."""
    (rows, cols), (by_row, by_col) = local.shape, local.stride()
    transposed = by_row == 1 and by_col >= rows and by_col > 1
    shape = (cols, rows) if transposed else (rows, cols)
    tensor, location = _new(shape, _NUMPY[local.dtype], context)
    if transposed:
        tensor, location = tensor.t(), (location[0], location[2], location[1])
    tensor.copy_(local)
    return tensor, location


def _new(shape: tuple[int, int], dtype: np.dtype, context: Context) -> tuple[torch.Tensor, Sizes]:
    array, offset = context.heap.allocate(shape, dtype)
    tensor = tensor_of(array, dtype.itemsize == 2)  # reading its name costs 2 us
    by_row, by_col = array.strides
    return tensor, (offset, by_row, by_col)
