"""GEMM + ReduceScatter in tiles (FLUX, §3.1; Triton-distributed, §3.3 and §3.6): each part of one
product leaves for the owner of its rows as soon as it is done, and is added up beside the rest; and
GEMM + AllReduce, which gives the sums to all."""

from collections.abc import Callable, Iterator, Sequence

from algorithms.mesh import check_layout
from algorithms.registry import algorithm
from drbench.errors import UnsupportedError
from drbench.options import Option
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
            "tile": tile_rows(problem.m, problem.nprocs, tile, in_place),
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
    rows, order = Rows.of(problem.c, tile), own_last(rank, problem.nprocs, swizzle)
    # sums of a ring meet the products of each rank in one order: its parts are of one rank
    how = {"across": variant != "ring", "in_place": variant != "reduce"}
    products = Products(problem, rank, rows, order, part, kernel, units, **how)
    yield from scattered(problem, rank, rows, products, variant, side)


class Products:
    """What a rank's share of k makes of each tile of rows: parts of one product, each made when the
    first of its tiles is asked for.

    Parameters
    ----------
    rows : Rows
    order : sequence of int
        In which the tiles of ranks are asked for.
    part : int
        Least rows of a part.
    kernel, units
        As of :func:`~algorithms.overlap.rows.kernel_of`.
    across : bool
        Whether a part may have tiles of several ranks.
    in_place : bool
        Whether parts of own rows alone are made in C.

    Attributes
    ----------
    tiles : list of (int, int)
        In the order in which they are to be asked for; none if the rank has no share of k.
    """

    def __init__(
        self,
        problem: Problem,
        rank: int,
        rows: Rows,
        order: Sequence[int],
        part: int,
        kernel: str,
        units: int | None = None,
        across: bool = True,
        in_place: bool = True,
    ):
        self._problem, self._b, self._k = problem, None, own_tile(problem.a, rank)
        self._b_tile, groups, turn = own_tile(problem.b, rank), [], rows.turn(order)
        if self._k is not None and self._b_tile is not None:
            self._launch = kernel_of(kernel, problem.m, problem.n, self._k.shape[1], units)
            shares = [None] if across else [[r] for r in order]
            groups = [group for ranks in shares for group in rows.parts(part, ranks)]
        groups.sort(key=lambda group: min(map(turn, group)))
        self.tiles = [t for group in groups for t in group]
        self._group = {t: group for group in groups for t in group}
        own = lambda group: in_place and {rows.owner(t) for t in group} == {rank}
        self._own = {group[0] for group in groups if own(group)}
        self._made: dict[Tile, Step] = {}

    def of(self, tile: Tile) -> Iterator[Step]:
        """A tile's rows of the product; None if they are in C already."""
        problem, group = self._problem, self._group[tile]
        if group[0] not in self._made:
            self._b = self._b or (yield Get(self._b_tile))
            a = yield Get(problem.a.block(span(group), (self._k.col0, self._k.col1)))
            own = group[0] in self._own
            into = problem.c.block(span(group), (0, problem.n)) if own else None
            self._made[group[0]] = yield Gemm(a, self._b, into=into, kernel=self._launch)
        if group[0] in self._own:
            return None
        return (yield from cut(self._made[group[0]], group, tile))


def scattered(
    problem: Problem, rank: int, rows: Rows, products, variant: str, side: bool = True
) -> Iterator[Step]:
    """Each tile that a rank makes goes to the owner of its rows, which adds up what all have made;
    ``products`` are :class:`Products`, or those of experts."""
    target = lambda t: problem.c.block(t, (0, problem.n))  # C[t, :]
    if variant == "reduce":
        for own in problem.c.own_tiles(rank):
            yield Zero(own)
        yield Fence()
    for t in products.tiles:
        piece = yield from products.of(t)
        if piece is not None:
            owner = rows.owner(t)
            yield from delivered(piece, t, target(t), owner, rank, problem.nprocs, variant)
    yield from received(problem, rank, rows, variant, side)


def received(
    problem: Problem, rank: int, rows: Rows, variant: str, side: bool = True
) -> Iterator[Step]:
    """Add up what others have made of a rank's rows of C."""
    if variant == "reduce":
        yield Fence()
        return
    p, target = problem.nprocs, lambda t: problem.c.block(t, (0, problem.n))
    makes = owners(problem, "A")
    others = ring(rank, p, 1)[:-1]
    sources = [each for each in (others[:1] if variant == "ring" else others[::-1]) if makes[each]]
    tiles, sums = rows.tiles[rank] if sources else (), {}
    if variant != "pull":  # slots of one source lie together, so that one product may fill them
        for source in sources:
            for t in tiles:
                sums[source, t] = yield Await(source, t, target(t).shape)
    for t in tiles:
        for source in sources if variant == "pull" else ():
            sums[source, t] = yield Take(source, t, target(t).shape)
        partial = [sums[source, t] for source in sources]
        yield Add(partial, into=target(t), side=side)  # C[t, :] += what all others have made


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
        "tile": tile_rows(problem.m, problem.nprocs, tile, in_place),
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
    order = own_last(rank, p, swizzle)
    products = Products(problem, rank, rows, order, part, kernel, units, in_place=False)
    for t in products.tiles:
        piece = yield from products.of(t)
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
