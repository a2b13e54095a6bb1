"""Tensor-parallel styles that leave the moving to the product."""

from __future__ import annotations

from math import prod

from torch import nn
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from .decision import out
from .private import strided_shard


class ColumnParallel(ColwiseParallel):
    """As torch's ``ColwiseParallel``, but the input is not gathered before the product: it is read
    where it lies.

    Parameters
    ----------
    input_layouts, output_layouts, use_local_output
        Of ``ColwiseParallel``.
    """

    def __init__(self, **options):
        super().__init__(**options)
        self.desired_input_layouts = self.input_layouts

    def _apply(self, module: nn.Module, device_mesh) -> nn.Module:
        return _asking(super()._apply(module, device_mesh), self.output_layouts)


class RowParallel(RowwiseParallel):
    """As torch's ``RowwiseParallel``, but the product makes the output layout itself: no sum stays
    pending, nothing is reduced or scattered afterwards.

    Parameters
    ----------
    input_layouts, output_layouts, use_local_output
        Of ``RowwiseParallel``.
    """

    def _apply(self, module: nn.Module, device_mesh) -> nn.Module:
        return _asking(super()._apply(module, device_mesh), self.output_layouts)


def _asking(module: nn.Module, layouts) -> nn.Module:
    """The module, whose products have the layouts of its output."""
    if not isinstance(module, nn.Linear):
        return module
    forward = module.forward

    def run(x):
        with out(*(_of_matrix(each, x.shape) for each in layouts)):
            return forward(x)

    module.forward = run
    return module


def _of_matrix(placement, shape):
    """The placement of a tensor as that of the matrix of all rows and the last dimension.

    Examples
    --------
    >>> _of_matrix(Shard(-1), (4, 6, 8)), _of_matrix(Shard(0), (4, 6, 8))
    (Shard(dim=1), Shard(dim=0))
    """
    if not placement.is_shard():
        return placement
    last = len(shape) - 1
    dim = placement.dim % len(shape)
    if dim in (0, last):
        return Shard(1 if dim else 0)
    return strided_shard(0, prod(shape[:dim]))
