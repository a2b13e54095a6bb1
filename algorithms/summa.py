"""SUMMA (van de Geijn & Watts, 1997; MeshSlice, §2.3.3, Figure 2a): broadcasts of panels, and
reduces where C moves."""

from drbench.options import Option
from drbench.program.group_steps import Broadcast
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, Steps

from .mesh import (
    DATAFLOW,
    MESH,
    UNROLL,
    Mesh,
    gemm_reduced,
    joined,
    mesh_layout,
    on_mesh,
    panels,
)
from .registry import algorithm
from .rings import batches


def congruent(problem: Problem, *, dataflow: str, **resolved) -> tuple[str, ...]:
    """In LS the chips of a row unpack their panels of C, which have row padding, one after another;
    in RS panels have none."""
    return ("column",) if dataflow == "LS" else ("row", "column")


PANEL = Option(
    "panel",
    int,
    least=1,
    unit="elements",
    help="width of a panel.",
    default_text="as wide as tiles allow",
)


@algorithm(
    "summa",
    options=(DATAFLOW, MESH, PANEL, UNROLL),
    resolve=on_mesh("summa", panel=None, unroll=1),
    layout=mesh_layout,
    congruent=congruent,
)
def program(
    problem: Problem,
    rank: int,
    *,
    dataflow: str,
    mesh: str,
    panel: int | None = None,
    unroll: int = 1,
) -> Steps:
    """Panels broadcast along process rows and columns, or reduced where C moves (van de Geijn &
    Watts)."""
    yield from summa(Mesh(problem, rank, mesh), dataflow, panel, unroll)


def summa(chip: Mesh, dataflow: str, panel: int | None, unroll: int = 1) -> Steps:
    """The program of one chip."""
    a, b, c = chip.a, chip.b, chip.c
    i, j, row, column, in_row, in_column = chip.place
    if dataflow == "OS":
        for batch in batches(
            panels([a.cols(l) for l in in_row], [b.rows(l) for l in in_column], panel), unroll
        ):
            left, right = [], []
            for k0, k1, x, y in batch:
                # A[i, kp] along process row i
                left.append((yield Broadcast(a.block(i, x, a.rows(i), (k0, k1)), row)))
                # B[kp, j] along process column j
                right.append((yield Broadcast(b.block(y, j, (k0, k1), b.cols(j)), column)))
            # C[i, j] += A[i, kp] · B[kp, j]
            yield Gemm((yield from joined(left, 1)), (yield from joined(right)), into=c.tile(i, j))
    elif dataflow == "LS":
        own = yield Get(a.tile(i, j))
        for batch in batches(
            panels([b.cols(l) for l in in_column], [c.cols(l) for l in in_row], panel), unroll
        ):
            right, targets = [], []
            for n0, n1, x, y in batch:
                # B[j, np] along process column j
                right.append((yield Broadcast(b.block(j, x, b.rows(j), (n0, n1)), column)))
                targets.append(c.block(i, y, c.rows(i), (n0, n1)))
            # C[i, np] = Σ A[i, j] · B[j, np]
            yield from gemm_reduced(own, (yield from joined(right, 1)), targets, row, axis=1)
    else:
        own = yield Get(b.tile(i, j))
        for batch in batches(
            panels([a.rows(l) for l in in_row], [c.rows(l) for l in in_column], panel), unroll
        ):
            left, targets = [], []
            for m0, m1, x, y in batch:
                # A[mp, i] along process row i
                left.append((yield Broadcast(a.block(x, i, (m0, m1), a.cols(i)), row)))
                targets.append(c.block(y, j, (m0, m1), c.cols(j)))
            # C[mp, j] = Σ A[mp, i] · B[i, j]
            yield from gemm_reduced((yield from joined(left)), own, targets, column, axis=0)
