"""Collective 2-D GEMM (MeshSlice, §2.3.4, Figure 2b): one AllGather or ReduceScatter a direction,
no overlap."""

from drbench.errors import UnsupportedError
from drbench.partitions import divisors
from drbench.program.group_steps import AllGather
from drbench.program.problem import Problem
from drbench.program.steps import Block, Gemm, Get, Steps

from .mesh import (
    DATAFLOW,
    DATAFLOWS,
    MESH,
    Mesh,
    all_groups,
    gemm_reduce_scattered,
    mesh_layout,
    on_mesh,
    resolve_mesh,
)
from .registry import algorithm, get_algorithm

#: The algorithms without any overlap, that efficiency is measured against.
BASELINES = ("collective", "moe_collective")


def baseline_of(problem: Problem) -> tuple[str, dict] | None:
    """Name and resolved options of the algorithm without any overlap that runs on the problem's own
    layout, or None if there is none: the baseline of overlap efficiency.

    Examples
    --------
    >>> baseline_of(Problem(8, 8, 8, 6, a="block:2x3", b="block:3x2:col", c="block:2x3"))
    ('collective', {'dataflow': 'LS', 'mesh': '2x3'})
    >>> baseline_of(Problem(8, 8, 8, 6, a="row", b="column", c="block:2x3"))
    """
    p = problem.nprocs
    if not problem.plain:
        name, options = problem.baseline
        try:
            return name, get_algorithm(name).resolve(problem, **options)
        except UnsupportedError:
            return None
    for dataflow in DATAFLOWS:
        for rows in divisors(p):
            try:
                mesh = f"{rows}x{p // rows}"
                return "collective", resolve_mesh(problem, "collective", dataflow, mesh)
            except UnsupportedError:
                continue  # another dataflow or mesh may fit
    return None


@algorithm(
    "collective",
    options=(DATAFLOW, MESH),
    resolve=on_mesh("collective"),
    layout=mesh_layout,
    congruent=all_groups,
)
def program(problem: Problem, rank: int, *, dataflow: str, mesh: str) -> Steps:
    """One AllGather or ReduceScatter in each direction of the mesh, one GEMM, no overlap (MeshSlice
    §2.3.4)."""
    chip = Mesh(problem, rank, mesh)
    yield from multiply_gathered(chip, dataflow, *moving_tiles(chip, dataflow))


def moving_tiles(chip: Mesh, dataflow: str) -> tuple[list[Block], list[Block]]:
    """The tiles that members of the chip's row, and of its column, gather or scatter."""
    a, b, c = chip.a.tile, chip.b.tile, chip.c.tile
    i, j, _, _, in_row, in_column = chip.place
    if dataflow == "OS":
        return [a(i, l) for l in in_row], [b(l, j) for l in in_column]
    if dataflow == "LS":
        return [c(i, l) for l in in_row], [b(j, l) for l in in_column]
    return [a(l, i) for l in in_row], [c(l, j) for l in in_column]


def multiply_gathered(chip: Mesh, dataflow: str, across: list, down: list) -> Steps:
    """One collective in each direction of the mesh, and one GEMM. ``across`` and ``down`` are the
    tiles that move, or slices of them."""
    i, j, row, column, *_ = chip.place
    if dataflow == "OS":
        a = yield AllGather(across, row, axis=1)  # A[i, :]
        b = yield AllGather(down, column, axis=0)  # B[:, j]
        yield Gemm(a, b, into=chip.c.tile(i, j))  # C[i, j] += A[i, :] · B[:, j]
    elif dataflow == "LS":
        a = yield Get(chip.a.tile(i, j))
        b = yield AllGather(down, column, axis=1)  # B[j, :]
        # C[i, :] = Σ A[i, j] · B[j, :]
        yield from gemm_reduce_scattered(a, b, across, row, axis=1)
    else:
        a = yield AllGather(across, row, axis=0)  # A[:, i]
        b = yield Get(chip.b.tile(i, j))
        # C[:, j] = Σ A[:, i] · B[i, j]
        yield from gemm_reduce_scattered(a, b, down, column, axis=0)
