"""GEMM + ReduceScatter in tiles (FLUX, §3.1; Triton-distributed, §3.3 and §3.6): each part of one
GEMM is sent to the owner of its rows as soon as it is done, and reduced during the others; and
GEMM + AllReduce, which sends the sums to all ranks."""

from collections.abc import Sequence

from drbench.algorithms.mesh import joined
from drbench.errors import UnsupportedError
from drbench.options import Option
from drbench.partitions import part as share
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Accumulate, Add, Copy, Fence, Gemm, Get, Step, Steps, Zero

from .rows import (
    KERNEL,
    PART,
    SWIZZLE,
    TILE,
    UNITS,
    Tile,
    TiledRows,
    cut,
    kernel_of,
    own_tile,
    owners,
    ring,
    span,
    tiled,
)

VARIANT = Option(
    "variant",
    ("write", "reduce", "pull", "ring"),
    help="partial sums are written to slots, accumulated (reduce), pulled, or sent round a ring.",
    default_text="write",
    tried=("write", "reduce", "pull", "ring"),
)
ADDITIONS = Option(
    "additions",
    ("tiles", "end"),
    help="the partial sums of others are added tile by tile during the GEMM (tiles), or together "
    "when all have arrived (end); round a ring each rank adds to what it passes on.",
    default_text="tiles",
)


#: Columns of A, rows of the weights B; rows of C.
LAYOUT = "column", "row", "row"


def check_ring(name: str, problem: Problem, options: dict) -> None:
    """Refuse a ring of ranks some of which have no share of k, and sums at the end where results
    are accumulated."""
    if options.get("additions") == "end" and options["variant"] == "reduce":
        raise UnsupportedError(
            f"{name} -o variant=reduce accumulates each result (algorithm requirement), got "
            "-o additions=end. Leave it out, or use -o variant=write."
        )
    if options["variant"] == "ring" and not all(owners(problem, "A")):
        raise UnsupportedError(
            f"{name} -o variant=ring needs a share of k on every rank (algorithm requirement); "
            f"k = {problem.k} on {problem.nprocs} ranks. Use -o variant=write."
        )


@tiled(
    "gemm_rs", LAYOUT, VARIANT, ADDITIONS, SWIZZLE, TILE, PART, KERNEL, UNITS, checks=[check_ring]
)
def program(
    problem: Problem,
    rank: int,
    *,
    variant: str,
    swizzle: str,
    tile: int,
    part: int,
    additions: str = "tiles",
    **launch,
) -> Steps:
    """GEMM + ReduceScatter: tiles of C written, accumulated, pulled or round a ring (FLUX)."""
    rows = TiledRows.of(problem.c, tile)
    order = own_last(rank, problem.nprocs, swizzle)
    # tiles of FLUX's kernels on Hopper are of one rank (src/reduce_scatter/sm90_..._utils.hpp)
    parts = ordered(rows, order, part, variant != "pull")
    own = () if variant == "reduce" else rows.tiles[rank]
    gemms = PartialGemms(problem, rank, parts, own, **launch)
    if variant == "ring":  # whose ranks send tiles in one order, however parts are cut
        gemms.tiles.sort(key=rows.order_key(order))
    yield from scattered(problem, rank, rows, gemms, variant, additions)


def ordered(rows: TiledRows, order: Sequence[int], part: int, across: bool) -> list[list[Tile]]:
    """Parts of at least ``part`` rows in the order in which the tiles of ranks are requested; with
    ``across`` a part may have tiles of several ranks."""
    order_key = rows.order_key(order)
    shares = [None] if across else [[rank] for rank in order]
    parts = [tiles for ranks in shares for tiles in rows.parts(part, ranks)]
    return sorted(parts, key=lambda tiles: min(map(order_key, tiles)))


class PartialGemms:
    """A rank's partial sums of each tile of rows: parts of one GEMM over its share of k, each run
    when the first of its tiles is requested.

    Parameters
    ----------
    problem : Problem
    rank : int
    parts : list of list of (int, int)
        The tiles of each part, in order.
    own : sequence of (int, int)
        Tiles that are computed in C, in separate parts.
    kernel, units
        As of :func:`~drbench.algorithms.overlap.rows.kernel_of`.

    Attributes
    ----------
    tiles : list of (int, int)
        In the order in which to request them; none if the rank has no share of k.
    """

    def __init__(
        self,
        problem: Problem,
        rank: int,
        parts: list[list[Tile]],
        own: Sequence[Tile],
        kernel: str = "fused",
        units: int | None = None,
    ):
        self._problem, self._b, self._k = problem, None, own_tile(problem.a, rank)
        self._b_tile = own_tile(problem.b, rank)
        if self._k is None or self._b_tile is None:
            parts = []
        else:
            self._kernel = kernel_of(kernel, problem.m, problem.n, self._k.shape[1], units)
        self.tiles = [t for part in parts for t in part]
        self._part = {t: part for part in parts for t in part}
        self._own = {part[0] for part in parts if set(part) <= set(own)}
        self._made: dict[Tile, Step] = {}

    def of(self, tile: Tile) -> Steps:
        """A tile's rows of the partial sum; None if they are in C already."""
        problem, part = self._problem, self._part[tile]
        if part[0] not in self._made:
            self._b = self._b or (yield Get(self._b_tile))
            a = yield Get(problem.a.block(span(part), self._k.cols))
            own = part[0] in self._own
            into = problem.c.block(span(part), (0, problem.n)) if own else None
            self._made[part[0]] = yield Gemm(a, self._b, into=into, kernel=self._kernel)
        if part[0] in self._own:
            return None
        return (yield from cut(self._made[part[0]], part, tile))


def scattered(
    problem: Problem, rank: int, rows: TiledRows, gemms, variant: str, additions: str = "tiles"
) -> Steps:
    """Send each tile of partial sums to the owner of its rows, which adds up those of all ranks;
    ``gemms`` are :class:`PartialGemms`, or those of experts."""
    if variant == "reduce":
        for own in problem.c.own_tiles(rank):
            yield Zero(own)
        yield Fence()
    stays: list[tuple[Step, Tile]] = []
    for t in gemms.tiles:
        partial_sum = yield from gemms.of(t)
        if partial_sum is not None and variant != "reduce" and rows.owner(t) == rank:
            stays.append((partial_sum, t))  # of a part with rows of several ranks
        elif partial_sum is not None:
            yield from delivered(partial_sum, t, rows, rank, variant)
    for partial_sum, t in stays:  # a copy between its GEMMs would end a fused kernel
        yield Copy(partial_sum, into=rows.block(t))
    yield from received(problem, rank, rows, variant, additions)


def received(
    problem: Problem, rank: int, rows: TiledRows, variant: str, additions: str = "tiles"
) -> Steps:
    """Add the other ranks' partial sums to a rank's rows of C."""
    if variant == "reduce":
        yield Fence()
        return
    makes, others = owners(problem, "A"), ring(rank, problem.nprocs, 1)[:-1]
    sources = [
        source for source in (others[:1] if variant == "ring" else others[::-1]) if makes[source]
    ]
    tiles, terms = rows.tiles[rank] if sources else (), {}
    if variant != "pull":  # slots of one source are contiguous, so that one GEMM may fill them
        for source in sources:
            for t in tiles:
                terms[source, t] = yield Await(source, t, rows.block(t).shape)
    for t in tiles:
        for source in sources if variant == "pull" else ():
            terms[source, t] = yield Take(source, t, rows.block(t).shape)
        if additions == "tiles":
            partial = [terms[source, t] for source in sources]
            yield Add(partial, into=rows.block(t), concurrent=True)  # C[t, :] += others' sums
    if additions != "tiles" and tiles:
        partial = []
        for source in sources:
            partial.append((yield from joined([terms[source, t] for t in tiles])))
        yield Add(partial, into=problem.c.own_tiles(rank)[0])


def delivered(partial_sum: Step, t: Tile, rows: TiledRows, rank: int, variant: str) -> Steps:
    """Send a tile's rows of partial sums to their owner."""
    target, owner, nprocs = rows.block(t), rows.owner(t), len(rows.tiles)
    before, after = (rank - 1) % nprocs, (rank + 1) % nprocs
    if variant == "reduce":
        yield Accumulate(partial_sum, target)  # FLUX's Reduce
    elif variant == "write":
        yield Push(partial_sum, owner, t)  # FLUX's Write; Triton-distributed, Alg. 3
    elif variant == "pull":
        yield Offer(partial_sum, owner, t)  # FLUX on Hopper
    else:
        yield from passed_on(
            partial_sum, t, target.shape, before, None if owner == after else after
        )


def passed_on(partial_sum: Step, t: Tile, shape: tuple, before: int, after: int | None) -> Steps:
    """Send a tile's partial sum to the neighbour before, with that of the neighbour after, if there
    is one."""
    if after is not None:
        grown = yield Await(after, t, shape)
        partial_sum = yield Add(grown, into=partial_sum, concurrent=True)
    yield Push(partial_sum, before, t)


def own_last(rank: int, nprocs: int, swizzle: str = "ranks") -> list[int]:
    """The order in which ranks' rows are multiplied: own rows last, or in row order."""
    return ring(rank, nprocs, 1) if swizzle == "ranks" else list(range(nprocs))


def decide_copies(name: str, problem: Problem, options: dict) -> None:
    """Make every copy of C hold the result; refuse beta other than 0."""
    if problem.updates:
        raise UnsupportedError(
            f"{name} overwrites C (our implementation); got beta other than 0. Use gemm_rs, or "
            "--algorithm universal."
        )
    options["replicate_result"] = True


@tiled("gemm_ar", (*LAYOUT[:2], "R"), SWIZZLE, TILE, PART, KERNEL, UNITS, checks=[decide_copies])
def program_ar(
    problem: Problem,
    rank: int,
    *,
    swizzle: str,
    tile: int,
    part: int,
    replicate_result: bool = True,
    **launch,
) -> Steps:
    """GEMM + AllReduce: each reduced tile of C is sent to all ranks as soon as it is complete."""
    p, n = problem.nprocs, problem.n
    rows = TiledRows([share(problem.m, r, p) for r in range(p)], tile)
    others, makes = ring(rank, p, 1)[:-1], owners(problem, "A")
    sums: dict[Tile, Step] = {}
    parts = ordered(rows, own_last(rank, p, swizzle), part, across=True)
    gemms = PartialGemms(problem, rank, parts, (), **launch)
    for t in gemms.tiles:
        partial_sum = yield from gemms.of(t)
        if rows.owner(t) == rank:
            sums[t] = partial_sum
        else:
            yield Push(partial_sum, rows.owner(t), t)
    for source in reversed(others):
        for t in rows.tiles[rank] if makes[source] else ():
            arrived = yield Await(source, t, (t[1] - t[0], n))
            sums[t] = (yield Add(arrived, into=sums[t], concurrent=True)) if t in sums else arrived
    for t in rows.tiles[rank]:
        for r in others:
            yield Push(sums[t], r, ("sum", t))
    for owner in ring(rank, p):
        for t in rows.tiles[owner]:
            if owner != rank:
                sums[t] = yield Await(owner, ("sum", t), (t[1] - t[0], n))
            replica = problem.c.partition.replica_of(rank)
            yield Copy(sums[t], into=problem.c.block(t, (0, n), replica))
