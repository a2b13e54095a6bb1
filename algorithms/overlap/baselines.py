"""Baselines of fused overlap: chunks of whole ranks, each with its own GEMM.

``collective`` is the baseline without any overlap.
"""

from drbench.algorithms.registry import Texts
from drbench.options import Option
from drbench.program.problem import Problem
from drbench.program.steps import Fence, Steps

from . import ag_gemm, gemm_rs
from .rows import tiled

DATAFLOW = Option(
    "dataflow",
    ("AG", "RS"),
    help="AllGather, then GEMM (AG), or GEMM, then ReduceScatter (RS).",
    default_text="AG",
    tried=("AG", "RS"),
)


def layout(*sizes: int, dataflow: str | None = None, **options) -> Texts:
    """The layout of ag_gemm, or of gemm_rs."""
    return (gemm_rs if dataflow == "RS" else ag_gemm).LAYOUT


@tiled("te_chunks", layout, DATAFLOW)
def te_chunks(problem: Problem, rank: int, *, dataflow: str) -> Steps:
    """Chunks as in Transformer Engine: a ring (AG), or partial sums written to owners (RS)."""
    yield from _chunks(problem, rank, dataflow, "ring" if dataflow == "AG" else "write")


@tiled("async_tp", layout, DATAFLOW)
def async_tp(problem: Problem, rank: int, *, dataflow: str) -> Steps:
    """Chunks as in PyTorch's async tensor parallelism: pulled after a barrier (AG), or by owners
    (RS)."""
    if dataflow == "AG":
        yield Fence()  # the chunks of all ranks may be read
    yield from _chunks(problem, rank, dataflow, "pull")


def _chunks(problem: Problem, rank: int, dataflow: str, variant: str) -> Steps:
    """All rows of each rank as one tile, and a GEMM of each; no sum during a GEMM."""
    whole = problem.m
    if dataflow == "AG":
        yield from ag_gemm.program(
            problem, rank, variant=variant, tile=whole, part=1, kernel="parts"
        )
        return
    yield from gemm_rs.program(
        problem,
        rank,
        variant=variant,
        swizzle="ranks",
        tile=whole,
        part=1,
        additions="end",
        kernel="parts",
    )
