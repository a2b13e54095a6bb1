"""AllGather + GEMM in tiles (FLUX, §3.2 and §4.3; Triton-distributed, §3.2 and §3.6): the rows of A
arrive tile by tile, and each part of one GEMM begins when its rows have arrived."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from drbench.algorithms.mesh import joined
from drbench.options import Option
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Copy, Gemm, Get, Step, Steps

from .rows import (
    KERNEL,
    PART,
    SWIZZLE,
    TILE,
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
    ("pull", "push", "ring"),
    help="who moves tiles of A: their readers (pull), their owners (push), or neighbours of a "
    "ring.",
    default_text="pull",
    tried=("pull", "push", "ring"),
)
ORDER = Option(
    "order",
    ("ranks", "mesh"),
    help="order of copies and parts: rank by rank (ranks), or a tile of every rank at a time "
    "(mesh).",
    default_text="ranks",
    tried=("ranks", "mesh"),
)
#: Of ag_gemm, whose parts are tiles of one rank each.
ORDERS = replace(
    ORDER,
    type=("ranks", "mesh", "interleaved"),
    help="copies: all of a rank (ranks), or a tile of each: own first (mesh) or not (interleaved).",
)

BUFFER = Option(
    "buffer",
    ("operand", "symmetric"),
    help="own rows are sent from A (operand), or first copied to where all ranks read (symmetric).",
    default_text="operand",
)

#: Rows of A; columns of the weights B and of C.
LAYOUT = "row", "column", "column"


@tiled("ag_gemm", LAYOUT, VARIANT, BUFFER, SWIZZLE, ORDERS, TILE, PART, KERNEL)
def program(
    problem: Problem, rank: int, *, tile: int, part: int, kernel: str, **fetching: str
) -> Steps:
    """AllGather + GEMM: tiles of A pulled, pushed or round a ring (FLUX; Triton-distributed)."""
    rows = TiledRows.of(problem.a, tile)
    gathered = yield from fetched(problem, rank, rows, **fetching)
    yield from multiplied(problem, rank, rows, gathered, part, kernel)


class Gathered(NamedTuple):
    """Tiles of A that a rank receives.

    Attributes
    ----------
    have : dict
        Tiles that have arrived, by their rows.
    source : callable
        The rank that pushes another tile.
    order_key : callable
        Sorts tiles by arrival.
    flagged : bool
        As of :class:`~drbench.program.signal_steps.Await`.
    """

    have: dict[Tile, Step]
    source: Callable[[Tile], int]
    order_key: Callable[[Tile], tuple]
    flagged: bool = False


def multiplied(
    problem: Problem, rank: int, rows: TiledRows, gathered: Gathered, part: int, kernel: str
) -> Steps:
    """The GEMM of gathered rows, part by part, as tiles arrive."""
    b_tile, c_tile = own_tile(problem.b, rank), own_tile(problem.c, rank)
    if b_tile is None or c_tile is None:
        return
    b = yield Get(b_tile)
    launch = kernel_of(kernel, problem.m, c_tile.shape[1], problem.k)
    last = lambda group: max(map(gathered.order_key, group))
    for group in sorted(rows.parts(part), key=last):
        a = yield from awaited(rows, gathered, group)
        into = problem.c.block(span(group), c_tile.cols)
        yield Gemm(a, b, into=into, kernel=launch)  # C[part, :] = A[part, :] · B


def awaited(rows: TiledRows, gathered: Gathered, tiles: list[Tile]) -> Steps:
    """Tiles one below the other, after pushed tiles have arrived."""
    have = gathered.have
    for t in tiles:
        if t not in have:
            have[t] = yield Await(gathered.source(t), t, rows.block(t), gathered.flagged)
    return (yield from joined([have[t] for t in tiles]))


def fetched(
    problem: Problem,
    rank: int,
    rows: TiledRows,
    variant: str = "pull",
    swizzle: str = "ranks",
    order: str = "ranks",
    buffer: str = "operand",
) -> Steps:
    """Start to send a rank's tiles of A, and to fetch those of others."""
    p, needs = problem.nprocs, owners(problem, "C")
    others, own = ring(rank, p, 1)[:-1], rows.tiles[rank]
    receivers = [r for r in reversed(others) if needs[r]]  # first those that use them first
    have: dict[Tile, Step] = {}
    in_place = buffer == "operand"
    if not in_place and own:  # FLUX's copy_local; Triton-distributed, Alg. 2
        copied = yield Copy((yield Get(rows.block(span(own)))))
    for t in own:
        have[t] = (yield Get(rows.block(t))) if in_place else (yield from cut(copied, own, t))
        for r in receivers if variant == "pull" and not in_place else ():
            yield Offer(have[t], r, t)
    if variant == "pull" and needs[rank]:
        for t in copies(rows, others, order):
            at = rows.block(t)
            have[t] = yield Get(at) if in_place else Take(rows.owner(t), t, at)
    elif variant == "push":
        if order == "ranks":
            pushes = [(t, r) for r in receivers for t in rows.tiles[rank]]
        else:
            pushes = [(t, r) for t in rows.tiles[rank] for r in receivers]
        for t, r in pushes:
            yield Push(have[t], r, t)
    elif variant == "ring":
        yield from passed_round(rows, have, ring(rank, p), (rank - 1) % p, (rank + 1) % p)
    order_key = rows.order_key(ring(rank, p) if swizzle == "ranks" else range(p))
    if order == "ranks":
        return Gathered(have, rows.owner, order_key)
    # alternately one tile of every rank
    own_first = lambda t: order == "mesh" and rows.owner(t) == rank
    return Gathered(
        have, rows.owner, lambda t: (0 if own_first(t) else rows.place(t), order_key(t))
    )


def passed_round(
    rows: TiledRows,
    have: dict[Tile, Step],
    owners: Sequence[int],
    before: int,
    after: int,
    flagged: bool = False,
) -> Steps:
    """Send tiles to the neighbour before, those of the first of some owners first, and receive
    those of the others from the neighbour after into ``have``; received ones are forwarded."""
    for here, following in pairwise(owners):
        for t in rows.tiles[here]:
            yield Push(have[t], before, t, flagged)
        for t in rows.tiles[following]:
            have[t] = yield Await(after, t, rows.block(t), flagged)


def copies(rows: TiledRows, ranks: list[int], order: str) -> list[Tile]:
    """The tiles of other ranks in the order they are fetched.

    Examples
    --------
    >>> rows = TiledRows([(0, 2), (2, 4), (4, 6)], 1)
    >>> copies(rows, [1, 2], "mesh")
    [(2, 3), (4, 5), (3, 4), (5, 6)]
    """
    if order == "ranks":
        return rows.of_ranks(ranks)
    most = max((len(rows.tiles[r]) for r in ranks), default=0)
    return [rows.tiles[r][x] for x in range(most) for r in ranks if x < len(rows.tiles[r])]
