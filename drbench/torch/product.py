"""One product of local tensors that lie in the heap of a context."""

from __future__ import annotations

import numpy as np
import torch

from drbench.common import numpy_type
from drbench.errors import DrbenchError, UnsupportedError
from drbench.library import Context
from drbench.library.explain import Explanation
from drbench.library.plan import Multiplication, moved_bytes
from drbench.library.spec import Spec

from .blas import tensor_of
from .decision import TYPES


class Declined(UnsupportedError):
    """Some rank cannot: raised by all, so that all of them let stock multiply."""


class Product:
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

    def __init__(self, context: Context, shape, layouts, dtype: str):
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

    def plan(self, update: bool = False) -> Multiplication:
        """What ranks do; with ``update`` C is added to."""
        found = self._plans.get(update)
        if found is None:
            specs = self.a.whole, self.b.whole, self.c
            found = self._plans[update] = self.context.multiplication(*specs, update=update)
        return found

    def explain(self) -> Explanation:
        """What it moves and does; sums of Partial operands are beside that."""
        return Explanation.of(self.plan())

    def own_bytes(self) -> dict[str, int]:
        """What this rank's steps move, by counter."""
        return moved_bytes(self.plan(), self.context.rank)

    def __call__(self, locals_, start=None, alpha=1.0, beta=0.0, counts=None) -> torch.Tensor:
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
            On every rank, if one of them has no room, or a local tensor of another shape than its
            placements give it.
        """
        context, fault = self.context, None
        places, made, c = [], [], None
        with context.lock:
            try:
                for local, spec, total in zip(locals_, (self.a, self.b), self._sums):
                    held = self._placed(local, spec, counts)
                    made.append(held)
                    places.append(place_of(held, context))
                    if total is not None:
                        held = new_local(spec.whole, context)
                        made.append(held)
                        places[-1] += place_of(held, context)
                c = new_local(self.c, context)
                if start is not None:
                    start(c)
            except DrbenchError as error:
                fault = Declined(str(error))
            if fault is not None:
                places = [(), ()]
            for x, total in enumerate(self._sums):
                if total is not None:
                    total.run(places[x], fault)
                    places[x] = places[x][3:]
                    if counts is not None:
                        counts["summed"] += 1
            ends = (*places[0], *places[1], *place_of(c, context)) if fault is None else ()
            self.plan(start is not None).run(ends, fault, alpha=alpha, beta=beta)
        return c

    def _placed(self, local: torch.Tensor, spec: Spec, counts) -> torch.Tensor:
        """The local tensor where peers can read it and BLAS multiply it: itself, or a copy."""
        if tuple(local.shape) != spec.local_shape:
            rows, cols = spec.local_shape
            raise UnsupportedError(
                f"the local tensor of {spec} is {'x'.join(map(str, local.shape))}, its placements "
                f"give it {rows}x{cols}."
            )
        if not local.numel() or holds(local, self.context):
            return local
        if counts is not None:
            counts["copied"] += 1
        return copied(local, self.context)


def holds(local: torch.Tensor, context: Context) -> bool:
    """Whether a local matrix can be used where it lies."""
    (rows, cols), (by_row, by_col) = local.shape, local.stride()
    fits = (by_col == 1 and by_row >= cols) or (by_row == 1 and by_col >= rows)
    return fits and 0 <= local.data_ptr() - context.heap.base < context.heap.nbytes


def place_of(local: torch.Tensor, context: Context) -> tuple[int, int, int]:
    """Where a local matrix begins in this rank's part of the heap, and its strides, in bytes."""
    item, (by_row, by_col) = local.element_size(), local.stride()
    offset = local.data_ptr() - context.heap.base if local.numel() else 0
    return offset, by_row * item, by_col * item


def new_local(spec: Spec, context: Context) -> torch.Tensor:
    """A local matrix in the heap, with whatever that holds."""
    return _new(spec.local_shape, spec.dtype, context)


def copied(local: torch.Tensor, context: Context) -> torch.Tensor:
    """A copy in the heap; a transposed matrix stays transposed."""
    (rows, cols), (by_row, by_col) = local.shape, local.stride()
    turned = by_row == 1 and by_col >= rows and by_col > 1
    shape = (cols, rows) if turned else (rows, cols)
    made = _new(shape, numpy_type(TYPES[local.dtype]), context)
    made = made.t() if turned else made
    with torch.no_grad():
        made.copy_(local)
    return made


def _new(shape, dtype: np.dtype, context: Context) -> torch.Tensor:
    array, bits = context.heap.array(shape, dtype), dtype.itemsize == 2  # its name takes 2 us
    if not torch.is_inference_mode_enabled():
        return tensor_of(array, bits)
    with torch.inference_mode(False):  # else it could not be written outside of it
        return tensor_of(array, bits)
