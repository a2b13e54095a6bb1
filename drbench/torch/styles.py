"""Tensor-parallel styles in which the multiplication moves the data."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.distributed.tensor.placement_types import Placement

from .decision import out
from .private import strided_shard


class ColumnParallel(ColwiseParallel):
    """As torch's ``ColwiseParallel``, but the input is not gathered before the multiplication: each
    rank reads it in place.

    Parameters
    ----------
    input_layouts, output_layouts, use_local_output
        As of ``ColwiseParallel``.

    Examples
    --------
    >>> style = ColumnParallel(input_layouts=Shard(0), output_layouts=Shard(-1))
    >>> style.desired_input_layouts
    (Shard(dim=0),)
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.desired_input_layouts = self.input_layouts

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return _set_result_layouts(super()._apply(module, device_mesh), self.output_layouts)


class RowParallel(RowwiseParallel):
    """As torch's ``RowwiseParallel``, but the multiplication writes the output layout itself: no
    reduction is pending, and nothing is scattered afterwards.

    Parameters
    ----------
    input_layouts, output_layouts, use_local_output
        As of ``RowwiseParallel``.

    Examples
    --------
    >>> RowParallel(input_layouts=Shard(-1), output_layouts=Shard(0)).output_layouts
    (Shard(dim=0),)
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return _set_result_layouts(super()._apply(module, device_mesh), self.output_layouts)


def _set_result_layouts(module: nn.Module, layouts: Sequence[Placement]) -> nn.Module:
    """The module, whose multiplications return the layouts of its output."""
    if not isinstance(module, nn.Linear):
        return module
    forward = module.forward

    def run(x: torch.Tensor) -> torch.Tensor:
        with out(*(_of_matrix(each, x.shape) for each in layouts)):
            return forward(x)

    module.forward = run
    return module


def _of_matrix(placement: Placement, shape: Sequence[int]) -> Placement:
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
