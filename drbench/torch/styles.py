"""Tensor-parallel styles in which the multiplication moves the data."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from torch.distributed.tensor.placement_types import Placement

from .decision import out
from .private import strided_shard


class _Written(ParallelStyle):
    """A style whose multiplication writes the output layout."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        applied = super()._apply(module, device_mesh)
        return _set_result_layouts(applied, self.output_layouts, device_mesh)


class ColumnParallel(_Written, ColwiseParallel):
    """As torch's ``ColwiseParallel``, but the input is not gathered before the multiplication: each
    rank reads it in place.

    Parameters
    ----------
    input_layouts, output_layouts : Placement, optional
        The placements of the input and of the output, as for ``ColwiseParallel``.
    use_local_output : bool
        Whether the output is a local tensor, not a DTensor.

    Examples
    --------
    >>> ColumnParallel(input_layouts=Shard(0), output_layouts=Shard(-1)).input_layouts
    (Shard(dim=0),)
    """

    @staticmethod
    def _prepare_input_fn(
        layouts: Sequence, desired: Sequence, module: nn.Module, inputs: tuple, mesh: DeviceMesh
    ) -> Any:
        prepare = ColwiseParallel._prepare_input_fn
        x = prepare(layouts, layouts, module, inputs, mesh)
        if isinstance(module, nn.Linear) and _are_rows(layouts, x.shape, mesh):
            return x
        return prepare(layouts, desired, module, (x,), mesh)


class RowParallel(_Written, RowwiseParallel):
    """As torch's ``RowwiseParallel``, but the multiplication writes the output layout itself: no
    reduction is pending, and nothing is scattered afterwards.

    Parameters
    ----------
    input_layouts, output_layouts : Placement, optional
        The placements of the input and of the output, as for ``RowwiseParallel``.
    use_local_output : bool
        Whether the output is a local tensor, not a DTensor.

    Examples
    --------
    >>> RowParallel(input_layouts=Shard(-1), output_layouts=Shard(0)).output_layouts
    (Shard(dim=0),)
    """


def _set_result_layouts(
    module: nn.Module, layouts: Sequence[Placement], mesh: DeviceMesh
) -> nn.Module:
    """The module, whose multiplications return the layouts of its output; where they cannot, torch
    redistributes the output afterwards."""
    if not isinstance(module, nn.Linear):
        return module
    forward = module.forward

    def run(x: torch.Tensor) -> torch.Tensor:
        if not _are_rows(layouts, x.shape, mesh):
            return forward(x)
        with out(*(_of_matrix(layout, x.shape) for layout in layouts)):
            return forward(x)

    module.forward = run
    return module


def _are_rows(layouts: Sequence[Placement], shape: Sequence[int], mesh: DeviceMesh) -> bool:
    """Whether placements of a tensor are placements of the matrix of all rows and the last
    dimension: what is sharded before that is sharded evenly. Not while torch.compile traces the
    program, whose multiplications are torch's."""
    if torch.compiler.is_compiling():
        return False
    return len(shape) == 2 or all(
        not layout.is_shard()
        or layout.dim % len(shape) == len(shape) - 1
        or shape[layout.dim] % mesh.size(x) == 0
        for x, layout in enumerate(layouts)
    )


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
