"""Products of experts that overlap (Triton-distributed, §4.1 and §4.2): tokens are gathered and
multiplied by the matrices of their experts, or the experts' results are weighted, summed up and
scattered; within a node or over several. What moves, and when, is as in ag_gemm, gemm_rs, ag2 and
rs2."""

from collections.abc import Iterator

from algorithms.mesh import Tiles, check_layout
from algorithms.registry import algorithm
from drbench.program.group_steps import AllGather, Piece, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Combine, Copy, Gemm, Get, Group, Step
from partitions.mixture import Mixture

from . import ag_gemm, gemm_rs, two_level
from .ag_gemm import ORDER
from .baselines import DATAFLOW
from .experts import Sums, expert_parts, matrix_of, multiplied, tokens_of
from .rows import KERNEL, LEAST, PART, PER_NODE, SWIZZLE, TILE, Rows, kernel_of, own_tile


def gathers_layout(
    m: int, n: int, k: int, nprocs: int, *, mixture: Mixture, **options
) -> tuple[str, str, str]:
    """Rows of the tokens; columns of every expert's weights and of C."""
    return ag_gemm.layout(m, n, k, nprocs)


def combines_layout(
    m: int, n: int, k: int, nprocs: int, *, mixture: Mixture, **options
) -> tuple[str, str, str]:
    """Columns of the pairs, rows of every expert's weights; rows of C."""
    return "column", f"_S(0,{mixture.experts})", "row"


@algorithm(
    "ag_moe",
    options=(ag_gemm.VARIANT, SWIZZLE, ORDER, TILE, PART, KERNEL),
    settle=ag_gemm.settling("ag_moe", gathers_layout),
    layout=gathers_layout,
    signals=True,
    combines=lambda **options: False,
)
def ag_moe(
    problem: Problem,
    rank: int,
    *,
    variant: str = "pull",
    swizzle: str = "ranks",
    order: str = "ranks",
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
) -> Iterator[Step]:
    """AllGather of tokens in tiles + products of the experts they go to (Triton-distributed
    4.1)."""
    rows = Rows.of(problem.a, tile)
    gathered = yield from ag_gemm.fetched(problem, rank, rows, variant, swizzle, order)
    yield from multiplied(problem, rank, rows, gathered, part, kernel)


@algorithm(
    "moe_rs",
    options=(gemm_rs.VARIANT, SWIZZLE, TILE, PART, KERNEL),
    settle=gemm_rs.settling("moe_rs", combines_layout),
    layout=combines_layout,
    signals=True,
    combines=lambda **options: True,
)
def moe_rs(
    problem: Problem,
    rank: int,
    *,
    variant: str = "write",
    swizzle: str = "ranks",
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
) -> Iterator[Step]:
    """Products of experts + weighted sums of a token's + ReduceScatter in tiles
    (Triton-distributed 4.1)."""
    rows, order = Rows.of(problem.c, tile), gemm_rs.own_last(rank, problem.nprocs, swizzle)
    sums = Sums(problem, rank, rows.of_ranks(order), part, kernel)
    yield from gemm_rs.scattered(problem, rank, rows, sums, variant)


@algorithm(
    "ag2_moe",
    options=(PER_NODE, TILE, PART, KERNEL),
    settle=two_level.settling("ag2_moe", gathers_layout),
    layout=gathers_layout,
    signals=True,
    combines=lambda **options: False,
)
def ag2_moe(
    problem: Problem,
    rank: int,
    *,
    per_node: int,
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
) -> Iterator[Step]:
    """AllGather of tokens over nodes + products of the experts they go to (Triton-distributed
    4.2)."""
    rows = Rows.of(problem.a, tile)
    gathered = yield from two_level.fetched_over_nodes(problem, rank, rows, per_node)
    yield from multiplied(problem, rank, rows, gathered, part, kernel)


@algorithm(
    "moe_rs2",
    options=(PER_NODE, TILE, PART, KERNEL),
    settle=two_level.settling("moe_rs2", combines_layout),
    layout=combines_layout,
    signals=True,
    combines=lambda **options: True,
)
def moe_rs2(
    problem: Problem,
    rank: int,
    *,
    per_node: int,
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
) -> Iterator[Step]:
    """Products of experts + weighted sums of a token's + ReduceScatter over nodes
    (Triton-distributed 4.2)."""
    rows = Rows.of(problem.c, tile)
    order = two_level.own_node_last(rank, problem.nprocs, per_node)
    sums = Sums(problem, rank, rows.of_ranks(order), part, kernel)
    yield from two_level.scattered_over_nodes(problem, rank, rows, sums, per_node)


def settle_baseline(
    problem: Problem, in_place: bool = True, *, dataflow: str = "AG", kernel: str = "fused"
) -> dict:
    """Check the layout."""
    layout = combines_layout if problem.mixture.combines else gathers_layout
    check_layout(problem, f"moe_collective {dataflow}", layout)
    return {"dataflow": dataflow, "kernel": kernel}


def baseline_layout(
    m: int, n: int, k: int, nprocs: int, *, mixture: Mixture, **options
) -> tuple[str, str, str]:
    """Of ag_moe, or of moe_rs."""
    layout = combines_layout if mixture.combines else gathers_layout
    return layout(m, n, k, nprocs, mixture=mixture)


def baseline_dispatches(problem: Problem, *, dataflow: str, kernel: str = "fused") -> int:
    """A loop over experts selects the rows of each by a mask, which its host waits for (``for i in
    range(experts): mask = ids == i; if mask.sum(): out[mask] = x[mask] @ w[i]``:
    test_ag_moe.py and test_moe_reduce_rs.py of github.com/ByteDance-Seed/Triton-distributed)."""
    return problem.mixture.experts if kernel == "parts" else 0


@algorithm(
    "moe_collective",
    options=(DATAFLOW, KERNEL),
    settle=settle_baseline,
    layout=baseline_layout,
    combines=lambda dataflow="AG", **options: dataflow == "RS",
    dispatches=baseline_dispatches,
)
def moe_collective(
    problem: Problem, rank: int, *, dataflow: str, kernel: str = "fused"
) -> Iterator[Step]:
    """AllGather, then products of experts, or products, then ReduceScatter: no overlap (the
    baseline of Triton-distributed 4.1: a loop over experts with --kernel parts)."""
    p = problem.nprocs
    everyone = Group("column", tuple(range(p)), rank)
    if dataflow == "AG":
        tiles = Tiles(problem.a)
        a = yield AllGather([tiles.tile(r, 0) for r in range(p)], everyone, axis=0)
        own = own_tile(problem.c, rank)
        if own is None:
            return
        launch = kernel_of(kernel, problem.rows, own.shape[1], problem.k)
        cols, whole = (own.col0, own.col1), (0, problem.m)
        for part in expert_parts(problem, [whole], 1, lambda tiles: ()):
            b = yield Get(matrix_of(problem, part.expert, (0, problem.k), cols))
            into, rows = problem.c.block(part.rows, cols), tokens_of(problem, part.expert, [whole])
            yield Gemm(a, b, into=into, kernel=launch, rows=rows)
        return
    whole, c = (0, problem.m), Tiles(problem.c)
    if own_tile(problem.a, rank) is not None:
        sums = yield from Sums(problem, rank, [whole], 1, kernel).of(whole, side=False)
    else:  # no share of k
        sums = yield Combine([], [], [], problem.m, problem.n)
    if p == 1:
        yield Copy(sums, into=problem.c.block(whole, (0, problem.n)))
    else:
        yield ReduceScatter(sums, [Piece(c.tile(r, 0)) for r in range(p)], everyone, axis=0)
