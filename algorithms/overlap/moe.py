"""Layers of experts that overlap (Triton-distributed, §4.1 and §4.2): tokens are gathered and
multiplied by the matrices of their experts, or the experts' rows of each token are added up and
scattered; within a node or over several. Transfers and their order are those of ag_gemm, gemm_rs,
ag2 and rs2; a tile is all tokens of a rank."""

from collections.abc import Callable, Sequence

from drbench.algorithms.mesh import Tiles
from drbench.algorithms.registry import Option, Texts
from drbench.errors import UnsupportedError
from drbench.program.group_steps import AllGather, Fragment, ReduceScatter
from drbench.program.steps import Copy, Gemm, Get, Group, Kernel, Steps

from . import ag_gemm, gemm_rs, two_level
from .baselines import DATAFLOW
from .experts import OF_EXPERTS, ExpertProblem, PairGemms, Sums, bound, cut
from .rows import KERNEL, PER_NODE, Tile, TiledRows, own_tile, owners, tiled

PHASES = Option(
    "phases",
    ("overlapped", "separate"),
    help="GEMMs, the sum of each token, and the ReduceScatter overlap, or follow each other.",
    default_text="overlapped",
    tried=("overlapped", "separate"),
)


def second_layout(*sizes: int, experts: int = 8, **options) -> Texts:
    """Columns of the pairs, rows of every expert's matrix; rows of the tokens."""
    return "column", f"_S(0,{experts})", "row"


def of_experts(name: str, problem: ExpertProblem, options: dict) -> None:
    """Add the undecided options of experts."""
    options |= {option.name: getattr(problem, option.name) for option in OF_EXPERTS}


def layer(name: str, second: bool, options: Sequence[Option], *checks: Callable):
    """Register a program of a first or second layer, with some options and those of experts."""
    return tiled(
        name,
        second_layout if second else ag_gemm.LAYOUT,
        *options,
        *OF_EXPERTS,
        checks=(*checks, of_experts),
        bind=bound(second),
    )


@layer("ag_moe", False, [ag_gemm.VARIANT])
def ag_moe(problem: ExpertProblem, rank: int, *, variant: str, **experts) -> Steps:
    """AllGather of tokens + GEMMs with their experts (Triton-distributed 4.1)."""
    rows = TiledRows.of(problem.a, problem.m)
    gathered = yield from ag_gemm.fetched(problem, rank, rows, variant)
    yield from multiplied(problem, rank, rows, gathered)


@layer("moe_rs", True, [gemm_rs.VARIANT], gemm_rs.check_ring)
def moe_rs(problem: ExpertProblem, rank: int, *, variant: str, **experts) -> Steps:
    """GEMMs of token-expert pairs + sum of each token + ReduceScatter (Triton-distributed 4.1)."""
    rows = TiledRows.of(problem.c, problem.m)
    sums = Sums(problem, rank, owned(rows, gemm_rs.own_last(rank, problem.nprocs)))
    yield from gemm_rs.scattered(problem, rank, rows, sums, variant)


@layer("ag2_moe", False, [PER_NODE], two_level.check_nodes)
def ag2_moe(problem: ExpertProblem, rank: int, *, per_node: int, **experts) -> Steps:
    """AllGather of tokens over nodes + GEMMs with their experts (Triton-distributed 4.2)."""
    rows = TiledRows.of(problem.a, problem.m)
    gathered = yield from two_level.fetched_over_nodes(problem, rank, rows, per_node)
    yield from multiplied(problem, rank, rows, gathered)


@layer("moe_rs2", True, [PHASES, PER_NODE], two_level.check_nodes)
def moe_rs2(problem: ExpertProblem, rank: int, *, phases: str, per_node: int, **experts) -> Steps:
    """GEMMs of token-expert pairs + sum of each token + ReduceScatter over nodes (4.2)."""
    rows, overlaps = TiledRows.of(problem.c, problem.m), phases == "overlapped"
    order = two_level.own_node_last(rank, problem.nprocs, per_node)
    sums = Sums(problem, rank, owned(rows, order), side=overlaps)
    if not overlaps:
        yield from sums.finish()
    yield from two_level.scattered_over_nodes(problem, rank, rows, sums, per_node)


def multiplied(
    problem: ExpertProblem, rank: int, rows: TiledRows, gathered: ag_gemm.Gathered
) -> Steps:
    """GEMMs of gathered tokens with the experts' matrices, rank after rank."""
    gemms = PairGemms(problem, rank)
    tiles = [t for tiles in rows.tiles for t in tiles] if gemms.own else []
    for tile in sorted(tiles, key=gathered.order_key):
        tokens = yield from ag_gemm.awaited(rows, gathered, [tile])
        yield from gemms.of(rows.owner(tile), dict.fromkeys(range(problem.topk), (tokens, tile[0])))


def owned(rows: TiledRows, order: Sequence[int]) -> dict[Tile, int]:
    """The tiles of ranks in this order, with their owners."""
    return {tile: rank for rank in order for tile in rows.tiles[rank]}


def baseline_layout(*sizes: int, dataflow: str | None = None, **options) -> Texts:
    """The layout of ag_moe, or of moe_rs."""
    return second_layout(**options) if dataflow == "RS" else ag_gemm.LAYOUT


def check_share(name: str, problem: ExpertProblem, options: dict) -> None:
    """Refuse a ReduceScatter with ranks that have no share of k."""
    if problem.second and not all(owners(problem, "A")):
        raise UnsupportedError(
            f"{name} RS needs a share of k on every rank (algorithm requirement); k = {problem.k} "
            f"on {problem.nprocs} ranks. Use --algorithm moe_rs."
        )


def baseline_dispatches(problem: ExpertProblem, *, kernel: str, **options) -> int:
    """A loop over experts selects the rows of each by a mask, for which its host waits (``for i in
    range(experts): mask = ids == i; if mask.sum(): out[mask] = x[mask] @ w[i]``:
    test_ag_moe.py and test_moe_reduce_rs.py of github.com/ByteDance-Seed/Triton-distributed)."""
    return problem.experts if kernel == "parts" else 0


@tiled(
    "moe_collective",
    baseline_layout,
    DATAFLOW,
    KERNEL,
    *OF_EXPERTS,
    checks=(check_share, of_experts),
    signals=False,
    bind=lambda *given, dataflow=None, **options: bound(dataflow == "RS")(*given, **options),
    dispatches=baseline_dispatches,
)
def moe_collective(problem: ExpertProblem, rank: int, *, kernel: str, **options) -> Steps:
    """Expert layers without overlap, AG or RS; with -o kernel=parts a loop over experts (4.1)."""
    p, whole, fused = problem.nprocs, (0, problem.m), kernel == "fused"
    everyone = Group("column", tuple(range(p)), rank)
    if problem.second:
        sums = yield from Sums(problem, rank, {whole: None}, fused, side=False).of(whole)
        if p == 1:
            yield Copy(sums, into=problem.c.block(whole, (0, problem.n)))
        else:
            c = Tiles(problem.c)
            yield ReduceScatter(sums, [Fragment(c.tile(r, 0)) for r in range(p)], everyone, axis=0)
        return
    tiles = Tiles(problem.a)
    tokens = yield AllGather([tiles.tile(r, 0) for r in range(p)], everyone, axis=0)
    own = own_tile(problem.c, rank)
    if own is None:
        return
    cols = own.cols
    launch = Kernel(problem.rows, own.shape[1], problem.k) if fused else None
    for expert, pairs, spans in problem.batches():
        b = yield Get(problem.matrix(expert, (0, problem.k), cols))
        a = yield from cut(dict.fromkeys(range(problem.topk), (tokens, 0)), spans)
        if not fused:
            a = yield Copy(a)  # the rows that the mask selects
        yield Gemm(a, b, into=problem.c.block(pairs, cols), kernel=launch)
