"""What fused overlap is compared with: chunks of whole ranks, each a product of its own.

``collective`` is the baseline without any overlap.
"""

from collections.abc import Iterator

from algorithms.mesh import check_layout
from algorithms.registry import algorithm
from drbench.options import Option
from drbench.program.problem import Problem
from drbench.program.steps import Fence, Step

from . import ag_gemm, gemm_rs

DATAFLOW = Option(
    "dataflow",
    ("AG", "RS"),
    help="AllGather, then product (AG), or product, then ReduceScatter (RS).",
    says="AG",
    tried=("AG", "RS"),
)


def layout(
    m: int, n: int, k: int, nprocs: int, *, dataflow: str | None = None, **options
) -> tuple[str, str, str]:
    """Of ag_gemm, or of gemm_rs."""
    return (gemm_rs if dataflow == "RS" else ag_gemm).layout(m, n, k, nprocs)


def _settle(name: str):
    def settle(problem: Problem, in_place: bool = True, *, dataflow: str | None = None) -> dict:
        settled = {"dataflow": dataflow or "AG"}
        check_layout(problem, f"{name} {settled['dataflow']}", layout, **settled)
        return settled

    return settle


@algorithm(
    "te_chunks", options=(DATAFLOW,), settle=_settle("te_chunks"), layout=layout, signals=True
)
def te_chunks(problem: Problem, rank: int, *, dataflow: str) -> Iterator[Step]:
    """Chunks as in Transformer Engine: a ring of them (AG), or products written to their owners and
    added at the end (RS)."""
    m = problem.m
    if dataflow == "AG":
        yield from ag_gemm.program(problem, rank, variant="ring", tile=m, part=1, kernel="parts")
        return
    chunks = {"tile": m, "part": 1, "kernel": "parts", "side": False}
    yield from gemm_rs.program(problem, rank, variant="write", **chunks)


@algorithm("async_tp", options=(DATAFLOW,), settle=_settle("async_tp"), layout=layout, signals=True)
def async_tp(problem: Problem, rank: int, *, dataflow: str) -> Iterator[Step]:
    """Chunks as in PyTorch's asynchronous tensor parallelism: pulled after a barrier, the own one
    multiplied first (AG); products kept for their owners, who pull them (RS)."""
    m = problem.m
    if dataflow == "AG":
        yield Fence()  # copied in: everybody's chunk may be read
        yield from ag_gemm.program(problem, rank, variant="pull", tile=m, part=1, kernel="parts")
        return
    chunks = {"tile": m, "part": 1, "kernel": "parts", "side": False}
    yield from gemm_rs.program(problem, rank, variant="pull", **chunks)
