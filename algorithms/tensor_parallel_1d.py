"""1-D tensor parallelism in the sequence-parallel style (Korthikanti et al., 2022; MeshSlice,
§4.3): the ring of Wang's algorithm on p chips."""

from drbench.options import Option
from drbench.program.problem import Problem
from drbench.program.steps import Steps

from .mesh import UNROLL, Mesh, all_groups
from .registry import Texts, algorithm, check_layout
from .wang import wang

#: AG: gather the input, then multiply by the rank's columns of the weights; RdS: multiply by the
#: rank's rows of the weights, then reduce-scatter.
_LAYOUTS = {"AG": ("row", "column", "column"), "RdS": ("column", "row", "row")}


def layout(*sizes: int, dataflow: str | None = None, **options) -> Texts:
    """Text forms of the partitions of A, B and C."""
    return _LAYOUTS[dataflow or "AG"]


def resolve(
    problem: Problem,
    in_place: bool = True,
    *,
    dataflow: str | None = None,
    unroll: int | None = None,
) -> dict:
    """Check the layout."""
    dataflow = dataflow or "AG"
    check_layout(problem, f"tensor_parallel_1d {dataflow}", layout, dataflow=dataflow)
    return {"dataflow": dataflow, "unroll": unroll or 1}


DATAFLOW = Option(
    "dataflow",
    tuple(_LAYOUTS),
    help="AllGather, then GEMM (AG), or GEMM, then ReduceScatter (RdS).",
    default_text="AG",
    tried=tuple(_LAYOUTS),
)


@algorithm(
    "tensor_parallel_1d",
    options=(DATAFLOW, UNROLL),
    resolve=resolve,
    layout=layout,
    congruent=all_groups,
)
def program(problem: Problem, rank: int, *, dataflow: str, unroll: int = 1) -> Steps:
    """AllGather + GEMM or GEMM + ReduceScatter along one ring, overlapped (Korthikanti et al.)."""
    if dataflow == "AG":  # C[:, j] = A · B[:, j], A's rows shifting
        yield from wang(Mesh(problem, rank, f"1x{problem.nprocs}"), "RS", "row", unroll)
    else:  # C[i, :] = Σ A[:, i] · B[i, :], partial sums shifting
        yield from wang(Mesh(problem, rank, f"{problem.nprocs}x1"), "RS", "column", unroll)
