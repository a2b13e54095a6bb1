"""The same over nodes of several ranks (FLUX, §4.3; Triton-distributed, §2.3, §3.4 and §3.5): what
crosses between nodes goes once, to the rank of the same number there, which hands it on or adds it
up."""

from collections.abc import Iterator

from algorithms.mesh import check_layout
from algorithms.registry import algorithm
from drbench.errors import UnsupportedError
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Add, Gemm, Get, Step
from partitions import divisors

from . import ag_gemm, gemm_rs
from .rows import (
    KERNEL,
    LEAST,
    PART,
    PER_NODE,
    TILE,
    UNITS,
    Rows,
    Tile,
    cut,
    joined,
    kernel_of,
    own_tile,
    owners,
    span,
    tile_rows,
    units_of,
)


def _settle(name: str, layout):
    """``settle`` of both programs: check the layout, decide nodes and tile."""

    def settle(
        problem: Problem,
        in_place: bool = True,
        *,
        per_node: int | None = None,
        tile: int | None = None,
        part: int = LEAST,
        kernel: str = "fused",
        units: int | None = None,
    ) -> dict:
        p = problem.nprocs
        per_node = per_node or (p if p % 2 else p // 2)
        if p % per_node:
            fits = ", ".join(map(str, divisors(p)))
            raise UnsupportedError(
                f"{name} needs as many ranks on each node (algorithm requirement); got {p} ranks, "
                f"{per_node} a node. Use --per-node {fits}."
            )
        check_layout(problem, name, layout)
        if not all(all(owners(problem, each)) for each in "AC"):
            raise UnsupportedError(
                f"{name} needs a share of A and of C on every rank (algorithm requirement); "
                f"{problem.m}x{problem.n}x{problem.k} on {p} ranks leaves some without. Use fewer "
                "ranks."
            )
        tile = tile_rows(problem.m, p, tile)
        found = {"per_node": per_node, "tile": tile, "part": part, "kernel": kernel}
        return found | units_of(name, kernel, units)

    return settle


@algorithm(
    "ag2",
    options=(PER_NODE, TILE, PART, KERNEL),
    settle=_settle("ag2", ag_gemm.layout),
    layout=ag_gemm.layout,
    signals=True,
)
def ag2(
    problem: Problem,
    rank: int,
    *,
    per_node: int,
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
) -> Iterator[Step]:
    """AllGather + GEMM over nodes: tiles cross once and are handed on where they arrive (FLUX 4.3;
    Triton-distributed, Fig. 4)."""
    rows, local = Rows.of(problem.a, tile), per_node
    nodes = problem.nprocs // local
    d, l = divmod(rank, local)
    at = lambda node, number: node % nodes * local + number % local
    block = lambda t: problem.a.block(t, (0, problem.k))
    beside = [at(d, l + i) for i in range(1, local)]
    have: dict[Tile, Step] = {}
    for t in rows.tiles[rank]:
        have[t] = yield Get(block(t))
    for there in [at(d + e, l) for e in range(1, nodes)] + beside:
        for t in rows.tiles[rank]:
            yield Push(have[t], there, t)
    for e in range(1, nodes):  # handed on as they arrive
        for t in rows.tiles[at(d - e, l)]:
            have[t] = yield Await(at(d - e, l), t, block(t))
            for there in beside:
                yield Push(have[t], there, t)
    b_tile, c_tile = own_tile(problem.b, rank), own_tile(problem.c, rank)
    b = yield Get(b_tile)
    launch = kernel_of(kernel, problem.m, c_tile.shape[1], problem.k)
    turns = [at(d - e, l + i) for e in range(nodes) for i in range(local)]
    for group in rows.ordered(turns, part):
        for t in group:
            if t not in have:  # from its owner, or from the one beside it has come to
                have[t] = yield Await(at(d, rows.owner(t) % local), t, block(t))
        a = yield from joined([have[t] for t in group])
        into = problem.c.block(span(group), (c_tile.col0, c_tile.col1))
        yield Gemm(a, b, into=into, kernel=launch)


@algorithm(
    "rs2",
    options=(PER_NODE, TILE, PART, KERNEL, UNITS),
    settle=_settle("rs2", gemm_rs.layout),
    layout=gemm_rs.layout,
    signals=True,
)
def rs2(
    problem: Problem,
    rank: int,
    *,
    per_node: int,
    tile: int,
    part: int = LEAST,
    kernel: str = "fused",
    units: int | None = None,
) -> Iterator[Step]:
    """GEMM + ReduceScatter over nodes: sums of a node cross once, the own node's come last
    (Triton-distributed, Alg. 5 as in its code)."""
    rows, local = Rows.of(problem.c, tile), per_node
    nodes = problem.nprocs // local
    d, l = divmod(rank, local)
    at = lambda node, number: node % nodes * local + number % local
    target = lambda t: problem.c.block(t, (0, problem.n))
    a_tile = own_tile(problem.a, rank)
    k, b = (a_tile.col0, a_tile.col1), (yield Get(own_tile(problem.b, rank)))
    launch = kernel_of(kernel, problem.m, problem.n, a_tile.shape[1], units)
    for e in range(1, nodes + 1):  # own node last
        home = e == nodes
        sums: dict[Tile, Step] = {}
        for i in range(1, local + 1):  # own number last
            owner = at(d + e, l + i)
            for group in rows.parts(part, [owner]):
                a = yield Get(problem.a.block(span(group), k))
                if owner == rank:
                    yield Gemm(a, b, into=target(span(group)), kernel=launch)
                    continue
                c = yield Gemm(a, b, kernel=launch)
                for t in group:
                    piece = yield from cut(c, group, t)
                    if i < local:
                        yield Push(piece, at(d, l + i), t)
                    else:
                        sums[t] = piece
        for t in rows.tiles[at(d + e, l)]:
            for i in range(1, local):
                brought = yield Await(at(d, l - i), t, target(t).shape)
                if home:
                    yield Add(brought, into=target(t), side=True)
                else:
                    sums[t] = yield Add(brought, into=sums[t], side=True)
            if not home:
                yield Push(sums[t], at(d + e, l), t)
    for e in range(1, nodes):
        for t in rows.tiles[rank]:
            brought = yield Await(at(d - e, l), t, target(t).shape)
            yield Add(brought, into=target(t), side=True)
