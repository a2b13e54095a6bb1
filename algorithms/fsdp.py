"""Fully sharded data parallelism as a multiplication (Zhao et al., 2023; MeshSlice, §4.3): every
chip has its rows of A, and gathers the weights B."""

from drbench.program.problem import Problem
from drbench.program.steps import Steps

from .mesh import UNROLL, Mesh, all_groups
from .registry import algorithm, check_layout
from .wang import wang

#: Everything in rows: the batch of A and C, and the shards of the weights B.
LAYOUT = "row", "row", "row"


def resolve(problem: Problem, in_place: bool = True, *, unroll: int | None = None) -> dict:
    """Check the layout."""
    check_layout(problem, "fsdp", LAYOUT)
    return {"unroll": unroll or 1}


@algorithm("fsdp", options=(UNROLL,), resolve=resolve, layout=LAYOUT, congruent=all_groups)
def program(problem: Problem, rank: int, *, unroll: int = 1) -> Steps:
    """Weights shift around one ring, overlapped with GEMMs of each rank's rows (FSDP)."""
    # C[i, :] += A[i, l] · B[l, :]
    yield from wang(Mesh(problem, rank, f"{problem.nprocs}x1"), "OS", "column", unroll)
