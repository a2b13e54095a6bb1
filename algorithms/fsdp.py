"""Fully sharded data parallelism as a product (Zhao et al., 2023; MeshSlice, §4.3): every chip has
its rows of A, and gathers the weights B."""

from collections.abc import Iterator

from drbench.program.problem import Problem
from drbench.program.steps import Step

from .mesh import UNROLL, Mesh, check_layout, everywhere
from .registry import algorithm
from .wang import wang


def layout(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    """Everything in rows: the batch of A and C, and the shards of the weights B."""
    return "row", "row", "row"


def settle(problem: Problem, in_place: bool = True, *, unroll: int | None = None) -> dict:
    """Check the layout."""
    check_layout(problem, "fsdp", layout)
    return {"unroll": unroll or 1}


@algorithm("fsdp", options=(UNROLL,), settle=settle, layout=layout, congruent=everywhere)
def program(problem: Problem, rank: int, *, unroll: int = 1) -> Iterator[Step]:
    """The weights pass by along one ring, overlapped with the products of the own rows (FSDP)."""
    # C[i, :] += A[i, l] · B[l, :]
    yield from wang(Mesh(problem, rank, f"{problem.nprocs}x1"), "OS", "column", unroll)
