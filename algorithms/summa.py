"""SUMMA (van de Geijn & Watts, 1997; MeshSlice, §2.3.3, Figure 2a): broadcasts of panels, and
reduces where C moves."""

from drbench.options import Option
from drbench.program.group_steps import Broadcast
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, Steps

from .mesh import DATAFLOW, MESH, Mesh, gemm_reduced, mesh_layout, on_mesh, panels
from .registry import algorithm


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
    options=(DATAFLOW, MESH, PANEL),
    resolve=on_mesh("summa", panel=None),
    layout=mesh_layout,
    congruent=congruent,
)
def program(
    problem: Problem, rank: int, *, dataflow: str, mesh: str, panel: int | None = None
) -> Steps:
    """Panels broadcast along process rows and columns, or reduced where C moves (van de Geijn &
    Watts)."""
    yield from summa(Mesh(problem, rank, mesh), dataflow, panel)


def summa(chip: Mesh, dataflow: str, panel: int | None) -> Steps:
    """The program of one chip."""
    a, b, c = chip.a, chip.b, chip.c
    i, j, row, column, in_row, in_column = chip.place
    if dataflow == "OS":
        for k0, k1, x, y in panels(
            [a.cols(l) for l in in_row], [b.rows(l) for l in in_column], panel
        ):
            # A[i, kp] along process row i
            left = yield Broadcast(a.block(i, x, a.rows(i), (k0, k1)), row)
            # B[kp, j] along process column j
            right = yield Broadcast(b.block(y, j, (k0, k1), b.cols(j)), column)
            yield Gemm(left, right, into=c.tile(i, j))  # C[i, j] += A[i, kp] · B[kp, j]
    elif dataflow == "LS":
        left = yield Get(a.tile(i, j))
        for n0, n1, x, y in panels(
            [b.cols(l) for l in in_column], [c.cols(l) for l in in_row], panel
        ):
            # B[j, np] along process column j
            right = yield Broadcast(b.block(j, x, b.rows(j), (n0, n1)), column)
            # C[i, np] = Σ A[i, j] · B[j, np]
            yield from gemm_reduced(left, right, c.block(i, y, c.rows(i), (n0, n1)), row)
    else:
        right = yield Get(b.tile(i, j))
        for m0, m1, x, y in panels(
            [a.rows(l) for l in in_row], [c.rows(l) for l in in_column], panel
        ):
            # A[mp, i] along process row i
            left = yield Broadcast(a.block(x, i, (m0, m1), a.cols(i)), row)
            # C[mp, j] = Σ A[mp, i] · B[i, j]
            yield from gemm_reduced(left, right, c.block(y, j, (m0, m1), c.cols(j)), column)
