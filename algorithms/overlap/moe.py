"""Products of experts that overlap (Triton-distributed, §4.1): tokens are gathered and multiplied
by the matrices of their experts, or the experts' results are weighted, summed up and scattered.

Each expert's rows are products of their own, all parts of one kernel. What an expert multiplies of
a communication tile is a range of rows of pairs (:mod:`partitions.mixture`), so a part is one
of its tiles, or as many as make it high enough.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from algorithms.mesh import Tiles, check_layout
from algorithms.registry import algorithm
from drbench.program.group_steps import AllGather, Piece, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Block, Combine, Copy, Fence, Gemm, Get, Group, Part, Step, Zero
from partitions.mixture import Mixture

from . import ag_gemm, gemm_rs
from .ag_gemm import ORDER, awaited, fetched
from .baselines import DATAFLOW
from .gemm_rs import delivered, own_last, received
from .rows import (
    KERNEL,
    LEAST,
    PART,
    SWIZZLE,
    TILE,
    Rows,
    Tile,
    joined,
    kernel_of,
    own_tile,
    ring,
)


class ExpertPart(NamedTuple):
    """One product: an expert's pairs of some tiles.

    Attributes
    ----------
    turn : tuple
        When it comes.
    expert : int
    tiles : list of (int, int)
        Tiles of tokens, each of which has pairs.
    rows : (int, int)
        The rows of the pairs.
    """

    turn: tuple
    expert: int
    tiles: list[Tile]
    rows: tuple[int, int]


def expert_parts(
    problem: Problem, tiles: list[Tile], least: int, turn: Callable[[list[Tile]], tuple]
) -> list[ExpertPart]:
    """The products of all experts in the order of their turns: of tiles of tokens, joined to at
    least so many pairs; ``turn(tiles)`` says when one comes.

    Examples
    --------
    >>> problem = Problem(8, 4, 4, 2, "row", "column", "column", mixture=Mixture(3, 2))
    >>> for part in expert_parts(problem, [(0, 4), (4, 8)], 3, max):
    ...     print(part.expert, part.tiles, part.rows)
    1 [(0, 4)] (3, 7)
    2 [(0, 4)] (10, 13)
    0 [(0, 4), (4, 8)] (0, 3)
    1 [(4, 8)] (7, 10)
    2 [(4, 8)] (13, 16)
    """
    routes, found = problem.routes, []
    for expert in range(problem.mixture.experts):
        parts: list[list[tuple[Tile, int]]] = []
        for tile in sorted(tiles):
            first, last = routes.rows(expert, *tile)
            if first == last:
                continue
            if not parts or sum(rows for _, rows in parts[-1]) >= least:
                parts.append([])
            parts[-1].append((tile, last - first))
        if len(parts) > 1 and sum(rows for _, rows in parts[-1]) < least:
            rest = parts.pop()
            parts[-1] += rest
        for part in parts:
            inside = [tile for tile, _ in part]
            rows = routes.rows(expert, inside[0][0], inside[-1][1])
            found.append(ExpertPart(turn(inside), expert, inside, rows))
    return sorted(found)


def matrix_of(problem: Problem, expert: int, k: Tile, n: Tile) -> Block:
    """Rows and columns of an expert's matrix."""
    top = expert * problem.k
    return problem.b.block((top + k[0], top + k[1]), n)


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
    p, rows = problem.nprocs, Rows.of(problem.a, tile)
    have = yield from fetched(problem, rank, rows, variant, order)
    own = own_tile(problem.c, rank)
    if own is None:
        return
    cols, tiles = (own.col0, own.col1), [t for each in rows.tiles for t in each]
    launch = kernel_of(kernel, problem.rows, own.shape[1], problem.k)
    place = {r: x for x, r in enumerate(ring(rank, p) if swizzle == "ranks" else range(p))}

    def turn(t: Tile) -> tuple:  # as tiles come; of a mesh one of every rank at a time
        owner = rows.owner(t)
        return rows.place(t) * (order == "mesh" and owner != rank), place[owner], t

    weights: dict[int, Step] = {}
    for _, expert, inside, pairs in expert_parts(
        problem, tiles, part, lambda tiles: max(map(turn, tiles))
    ):
        yield from awaited(problem, rows, have, inside)
        a = yield from joined([have[t] for t in inside])
        if expert not in weights:
            weights[expert] = yield Get(matrix_of(problem, expert, (0, problem.k), cols))
        # C[pairs, :] = A[their tokens, :] · B[expert]
        yield Gemm(
            a,
            weights[expert],
            into=problem.c.block(pairs, cols),
            kernel=launch,
            rows=tokens_of(problem, expert, inside),
        )


def tokens_of(problem: Problem, expert: int, tiles: list[Tile]) -> list[int] | None:
    """Which rows of tiles one below the other go to an expert; None if all do.

    Examples
    --------
    >>> problem = Problem(8, 4, 4, 2, "row", "column", "column", mixture=Mixture(3, 2))
    >>> problem.routes.tokens[0], tokens_of(problem, 0, [(0, 4), (6, 8)])
    ([3, 4, 7], [3, 5])
    """
    routes, found, above = problem.routes, [], 0
    first = routes.first[expert]
    for start, stop in tiles:
        low, high = routes.rows(expert, start, stop)
        tokens = routes.tokens[expert][low - first : high - first]
        found += [above + token - start for token in tokens]
        above += stop - start
    return found if len(found) < above else None


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
    p, rows = problem.nprocs, Rows.of(problem.c, tile)
    target = lambda t: problem.c.block(t, (0, problem.n))  # C[t, :]
    if variant == "reduce":
        for own in problem.c.own_tiles(rank):
            yield Zero(own)
        yield Fence()
    if own_tile(problem.a, rank) is not None:
        tiles = [t for r in own_last(rank, p, swizzle) for t in rows.tiles[r]]
        sums = Sums(problem, rank, tiles, part, kernel)
        for t in tiles:
            c = yield from sums.of(t)
            yield from delivered(c, t, target(t), rows.owner(t), rank, p, variant)
    yield from received(problem, rank, rows, variant)


class Sums:
    """What a rank's share of k makes of each tile of tokens: products of the experts, each made
    when the first of its tiles is asked for, weighted and summed up.

    Parameters
    ----------
    problem : Problem
    rank : int
    tiles : list of (int, int)
        In the order in which they are asked for.
    part : int
        Least pairs of a product.
    kernel : str
        ``fused`` or ``parts``.
    """

    def __init__(self, problem: Problem, rank: int, tiles: list[Tile], part: int, kernel: str):
        self._problem, own = problem, own_tile(problem.a, rank)
        self._k = own.col0, own.col1
        self._launch = kernel_of(kernel, problem.rows, problem.n, own.shape[1])
        self._turn = {t: x for x, t in enumerate(tiles)}
        parts = expert_parts(
            problem, tiles, part, lambda inside: (min(self._turn[t] for t in inside),)
        )
        self._left = iter(parts)
        self._next = next(self._left, None)
        self._weights: dict[int, Step] = {}
        #: Of each tile: (rows of an expert's product, expert).
        self._pieces: dict[Tile, list[tuple[Step, int]]] = {t: [] for t in tiles}

    def of(self, tile: Tile, side: bool = True) -> Iterator[Step]:
        """The sums of a tile."""
        while self._next is not None and self._next.turn <= (self._turn[tile],):
            yield from self._multiply(self._next)
            self._next = next(self._left, None)
        routes, (start, stop) = self._problem.routes, tile
        places, weights = [], []
        for _, expert in self._pieces[tile]:
            first = routes.first[expert]
            low, high = (row - first for row in routes.rows(expert, start, stop))
            places.append([token - start for token in routes.tokens[expert][low:high]])
            weights.append(routes.weights[expert][low:high])
        tokens = [token for token, _ in self._pieces.pop(tile)]
        return (yield Combine(tokens, places, weights, stop - start, self._problem.n, side))

    def _multiply(self, part: ExpertPart) -> Iterator[Step]:
        """An expert's rows of some tiles, times its matrix."""
        problem, expert, (first, last) = self._problem, part.expert, part.rows
        if expert not in self._weights:
            block = matrix_of(problem, expert, self._k, (0, problem.n))
            self._weights[expert] = yield Get(block)
        a = yield Get(problem.a.block((first, last), self._k))
        c = yield Gemm(a, self._weights[expert], kernel=self._launch)
        for tile in part.tiles:
            low, high = problem.routes.rows(expert, *tile)
            piece = c if (low, high) == part.rows else (yield Part(c, 0, low - first, high - first))
            self._pieces[tile].append((piece, expert))


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


@algorithm(
    "moe_collective",
    options=(DATAFLOW, KERNEL),
    settle=settle_baseline,
    layout=baseline_layout,
    combines=lambda dataflow="AG", **options: dataflow == "RS",
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
