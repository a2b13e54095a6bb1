"""Collective 2-D GEMM (MeshSlice, §2.3.4, Figure 2b): one AllGather or ReduceScatter a direction, no overlap."""

from __future__ import annotations

from typing import Iterator

from drbench.group_steps import AllGather
from drbench.problem import Problem
from drbench.steps import Gemm, Get, Step

from .mesh import Mesh, mesh_layout, scattered_product, settle_mesh
from .registry import algorithm

__all__ = ["program"]


def settle(problem: Problem, in_place: bool = True, *, dataflow: str | None = None, mesh: str | None = None) -> dict:
    """Decide dataflow and mesh; refuse another layout."""
    return settle_mesh(problem, "collective", dataflow, mesh)


@algorithm("collective", settle=settle, layout=mesh_layout)
def program(problem: Problem, rank: int, *, dataflow: str, mesh: str) -> Iterator[Step]:
    """One AllGather or ReduceScatter a direction of the mesh, then one product (MeshSlice §2.3.4)."""
    chip = Mesh(problem, rank, mesh)
    a_tile, b_tile, c_tile = chip.a.tile, chip.b.tile, chip.c.tile
    i, j, row, column, in_row, in_column = chip.i, chip.j, chip.row, chip.column, range(chip.ncols), range(chip.nrows)
    if dataflow == "OS":
        a = yield AllGather([a_tile(i, l) for l in in_row], row, axis=1)             # A[i, :]
        b = yield AllGather([b_tile(l, j) for l in in_column], column, axis=0)       # B[:, j]
        yield Gemm(a, b, into=c_tile(i, j))                                          # C[i, j] = A[i, :] · B[:, j]
    elif dataflow == "LS":
        a = yield Get(a_tile(i, j))
        b = yield AllGather([b_tile(j, l) for l in in_column], column, axis=1)       # B[j, :]
        yield from scattered_product(a, b, [c_tile(i, l) for l in in_row], row, axis=1)        # C[i, :] = Σ A[i, j] · B[j, :]
    else:
        a = yield AllGather([a_tile(l, i) for l in in_row], row, axis=0)             # A[:, i]
        b = yield Get(b_tile(i, j))
        yield from scattered_product(a, b, [c_tile(l, j) for l in in_column], column, axis=0)  # C[:, j] = Σ A[:, i] · B[i, j]
