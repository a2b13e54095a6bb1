"""GEMM + ReduceScatter in tiles (FLUX, §3.1; Triton-distributed, §3.3 and §3.6): each part of one
product leaves for the owner of its rows as soon as it is done, and is added up beside the rest; and
GEMM + AllReduce, which gives the sums to all."""

from collections.abc import Callable, Iterator

from algorithms.mesh import check_layout
from algorithms.registry import Option, algorithm
from drbench.errors import UnsupportedError
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Accumulate, Add, Block, Copy, Fence, Gemm, Get, Step, Zero
from partitions import part as share

from .rows import (
    KERNEL,
    LEAST,
    PART,
    SWIZZLE,
    TILE,
    UNITS,
    Rows,
    Tile,
    cut,
    kernel_of,
    own_tile,
    owners,
    ring,
    span,
    tile_rows,
    units_of,
)

VARIANT = Option(
    "variant",
    ("write", "reduce", "pull", "ring"),
    help="how products reach the owners of their rows: written into slots and added there, added "
    "by who made them, read by the owners, or as sums that grow from neighbour to neighbour.",
    says="write",
    tried=("write", "reduce", "pull", "ring"),
)


def layout(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    """Columns of A, rows of the weights B; rows of C."""
    return "column", "row", "row"


def settling(name: str, layout: Callable) -> Callable[..., dict]:
    """Check the layout of a program that sums up in tiles; decide the tile."""

    def settle(
        problem: Problem,
        in_place: bool = True,
        *,
        variant: str = "write",
        swizzle: str = "ranks",
        tile: int | None = None,
        part: int = LEAST,
        kernel: str = "fused",
        units: int | None = None,
    ) -> dict:
        check_layout(problem, name, layout)
        if variant == "ring" and not all(owners(problem, "A")):
            raise UnsupportedError(
                f"{name} --variant ring needs a share of k on every rank (algorithm requirement); "
                f"k = {problem.k} on {problem.nprocs} ranks. Use --variant write."
            )
        return {
            "variant": variant,
            "swizzle": swizzle,
            "tile": tile_rows(problem.m, problem.nprocs, tile),
            "part": part,
            "kernel": kernel,
            **units_of(name, kernel, units),
        }

    return settle


@algorithm(
    "gemm_rs",
    options=(VARIANT, SWIZZLE, TILE, PART, KERNEL, UNITS),
    settle=settling("gemm_rs", layout),
    layout=layout,
    signals=True,
)
def program(
    problem: Problem,
    rank: int,
    *,
    variant: str = "write",
    swizzle: str = "ranks",
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
    units: int | None = None,
    side: bool = True,
) -> Iterator[Step]:
    """GEMM + ReduceScatter in tiles, written, added, pulled or round a ring (FLUX;
    Triton-distributed)."""
    p, rows = problem.nprocs, Rows.of(problem.c, tile)
    target = lambda t: problem.c.block(t, (0, problem.n))  # C[t, :]
    if variant == "reduce":
        for own in problem.c.own_tiles(rank):
            yield Zero(own)
        yield Fence()
    a_tile, b_tile = own_tile(problem.a, rank), own_tile(problem.b, rank)
    if a_tile is not None and b_tile is not None:
        k, b = (a_tile.col0, a_tile.col1), (yield Get(b_tile))
        launch = kernel_of(kernel, problem.m, problem.n, a_tile.shape[1], units)
        # sums of a ring meet the products of each rank in one order: its parts are of one rank
        order = own_last(rank, p, swizzle)
        for group in rows.ordered(order, part, min, across=variant != "ring"):
            a = yield Get(problem.a.block(span(group), k))
            if variant != "reduce" and {rows.owner(t) for t in group} == {rank}:
                yield Gemm(a, b, into=target(span(group)), kernel=launch)
                continue
            c = yield Gemm(a, b, kernel=launch)
            for t in group:
                piece = yield from cut(c, group, t)
                yield from delivered(piece, t, target(t), rows.owner(t), rank, p, variant)
    yield from received(problem, rank, rows, variant, side)


def received(
    problem: Problem, rank: int, rows: Rows, variant: str, side: bool = True
) -> Iterator[Step]:
    """Add up what others have made of a rank's rows of C."""
    if variant == "reduce":
        yield Fence()
        return
    p, target = problem.nprocs, lambda t: problem.c.block(t, (0, problem.n))
    makes, coming = owners(problem, "A"), Take if variant == "pull" else Await
    sources = reversed(ring(rank, p, 1)[:-1]) if variant != "ring" else ring(rank, p, 1)[:-1][:1]
    for source in sources:
        for t in rows.tiles[rank] if makes[source] else ():
            brought = yield coming(source, t, target(t).shape)
            yield Add(brought, into=target(t), side=side)  # C[t, :] += what the source has made


def delivered(
    piece: Step, t: Tile, target: Block, owner: int, rank: int, nprocs: int, variant: str
) -> Iterator[Step]:
    """A tile's rows of a product on their way to their owner."""
    before, after = (rank - 1) % nprocs, (rank + 1) % nprocs
    if variant == "reduce":
        yield Accumulate(piece, target)  # FLUX's Reduce
    elif owner == rank:
        yield Copy(piece, into=target)  # of a part that other ranks' rows share
    elif variant == "write":
        yield Push(piece, owner, t)  # FLUX's Write; Triton-distributed, Alg. 3
    elif variant == "pull":
        yield Offer(piece, owner, t)  # FLUX on Hopper
    else:
        if owner != after:  # the sum that has come so far
            grown = yield Await(after, t, target.shape)
            piece = yield Add(grown, into=piece, side=True)
        yield Push(piece, before, t)


def own_last(rank: int, nprocs: int, swizzle: str) -> list[int]:
    """Whose rows are multiplied when: the own last, or as they lie."""
    return ring(rank, nprocs, 1) if swizzle == "ranks" else list(range(nprocs))


def layout_ar(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    """As of a reduce-scatter, C being everybody's."""
    return "column", "row", "R"


def settle_ar(
    problem: Problem,
    in_place: bool = True,
    *,
    swizzle: str = "ranks",
    tile: int | None = None,
    part: int = LEAST,
    kernel: str = "fused",
    units: int | None = None,
) -> dict:
    """Check the layout; decide the tile."""
    check_layout(problem, "gemm_ar", layout_ar)
    if problem.updates:
        raise UnsupportedError(
            "gemm_ar makes C anew (our implementation); got beta other than 0. Use gemm_rs, or "
            "--algorithm universal."
        )
    return {
        "swizzle": swizzle,
        "tile": tile_rows(problem.m, problem.nprocs, tile),
        "part": part,
        "kernel": kernel,
        "replicate_result": True,
        **units_of("gemm_ar", kernel, units),
    }


@algorithm(
    "gemm_ar",
    options=(SWIZZLE, TILE, PART, KERNEL, UNITS),
    settle=settle_ar,
    layout=layout_ar,
    signals=True,
)
def program_ar(
    problem: Problem,
    rank: int,
    *,
    swizzle: str = "ranks",
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
    units: int | None = None,
    replicate_result: bool = True,
) -> Iterator[Step]:
    """GEMM + AllReduce in tiles: each sum goes to all ranks as soon as it is complete."""
    p, n = problem.nprocs, problem.n
    rows = Rows([share(problem.m, r, p) for r in range(p)], tile)
    others, makes = ring(rank, p, 1)[:-1], owners(problem, "A")
    sums: dict[Tile, Step] = {}
    a_tile, b_tile = own_tile(problem.a, rank), own_tile(problem.b, rank)
    if a_tile is not None and b_tile is not None:
        k, b = (a_tile.col0, a_tile.col1), (yield Get(b_tile))
        launch = kernel_of(kernel, problem.m, n, a_tile.shape[1], units)
        for group in rows.ordered(own_last(rank, p, swizzle), part, min):
            a = yield Get(problem.a.block(span(group), k))
            c = yield Gemm(a, b, kernel=launch)
            for t in group:
                piece = yield from cut(c, group, t)
                if rows.owner(t) == rank:
                    sums[t] = piece
                else:
                    yield Push(piece, rows.owner(t), t)
    for source in reversed(others):
        for t in rows.tiles[rank] if makes[source] else ():
            brought = yield Await(source, t, (t[1] - t[0], n))
            sums[t] = (yield Add(brought, into=sums[t], side=True)) if t in sums else brought
    for t in rows.tiles[rank]:
        for r in others:
            yield Push(sums[t], r, ("sum", t))
    for owner in ring(rank, p):
        for t in rows.tiles[owner]:
            if owner != rank:
                sums[t] = yield Await(owner, ("sum", t), (t[1] - t[0], n))
            replica = problem.c.partition.replica_of(rank)
            yield Copy(sums[t], into=problem.c.block(t, (0, n), replica))
