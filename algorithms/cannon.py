"""Cannon's algorithm (1969; MeshSlice, §2.3.2): a skew, then shifts of both moving matrices around
the rows and columns of a square mesh.

At step s chip (i, j) works with index q = i + j + s (mod p) of the axis along which both moving
matrices are divided.
"""

from drbench.errors import UnsupportedError
from drbench.program.group_steps import Shift
from drbench.program.problem import Problem
from drbench.program.steps import Copy, Gemm, Get, Step, Steps

from .mesh import DATAFLOW, MESH, Mesh, mesh_layout, parse_mesh, resolve_mesh
from .registry import Texts, algorithm


def resolve(
    problem: Problem, in_place: bool = True, *, dataflow: str | None = None, mesh: str | None = None
) -> dict:
    """Decide the dataflow; refuse a mesh that is not square, and another layout."""
    rows, cols = parse_mesh(mesh, problem.nprocs, square=True)
    if rows != cols:
        raise UnsupportedError(
            f"cannon needs a square process mesh (algorithm requirement); got {rows}x{cols}. Use "
            "4, 9 or 16 ranks, or --algorithm summa."
        )
    return resolve_mesh(problem, "cannon", dataflow, mesh)


def layout(m: int, n: int, k: int, nprocs: int, *, mesh: str | None = None, **options) -> Texts:
    """The layout of a mesh; an error suggests square meshes."""
    rows, cols = parse_mesh(mesh, nprocs, square=True)
    return mesh_layout(m, n, k, nprocs, mesh=f"{rows}x{cols}", **options)


@algorithm("cannon", options=(DATAFLOW, MESH), resolve=resolve, layout=layout)
def program(problem: Problem, rank: int, *, dataflow: str, mesh: str) -> Steps:
    """A skew, then p - 1 shifts of both moving matrices on a square p x p mesh (Cannon)."""
    chip, transposed = Mesh(problem, rank, mesh), dataflow == "RS"
    if transposed:  # C[q, j] += A[q, i] · B[i, j] is LS of Cᵀ = Bᵀ · Aᵀ, in which rows are columns
        chip = chip.transposed()
    i, j, row, column, *_ = chip.place
    p, a_tile, b_tile, c_tile = chip.nrows, chip.a.tile, chip.b.tile, chip.c.tile
    at = lambda s: (i + j + s) % p
    if dataflow == "OS":  # C[i, j] += A[i, q] · B[q, j]
        a = yield from shifted((yield Get(a_tile(i, j))), row, -i, a_tile(i, at(0)))
        b = yield from shifted((yield Get(b_tile(i, j))), column, -j, b_tile(at(0), j))
        for s in range(p):
            yield Gemm(a, b, into=c_tile(i, j))
            if s < p - 1:
                a = yield Shift(a, row, -1, receives=a_tile(i, at(s + 1)))
                b = yield Shift(b, column, -1, receives=b_tile(at(s + 1), j))
    else:  # C[i, q] += A[i, j] · B[j, q]
        a, c = (yield Get(a_tile(i, j))), None
        b = yield from shifted((yield Get(b_tile(j, i))), column, -j, b_tile(j, at(0)))
        for s in range(p):
            c = yield Gemm(*((b, a) if transposed else (a, b)), into=c)
            if s < p - 1:
                b = yield Shift(b, column, -1, receives=b_tile(j, at(s + 1)))
                c = yield Shift(c, row, -1, receives=c_tile(i, at(s + 1)))
        c = yield from shifted(
            c, row, i - 1, c_tile(i, j)
        )  # the partial sums return to their owners
        yield Copy(c, c_tile(i, j))


def shifted(token: Step, group, by: int, receives) -> Steps:
    """A shift of the skew; none if its distance is the length of the ring."""
    return (yield Shift(token, group, by, receives=receives)) if by % len(group) else token
