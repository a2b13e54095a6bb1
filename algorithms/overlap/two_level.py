"""AllGather + GEMM and GEMM + ReduceScatter over nodes of several ranks (FLUX, §4.3;
Triton-distributed, §2.3, §3.4 and §3.5): a tile crosses between two nodes once, to the rank of the
same number there, which forwards or reduces it."""

from drbench.errors import UnsupportedError
from drbench.options import Option
from drbench.partitions import divisors
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Add, Copy, Get, Step, Steps

from . import ag_gemm, gemm_rs
from .rows import (
    KERNEL,
    PART,
    PER_NODE,
    TILE,
    UNITS,
    Tile,
    TiledRows,
    owners,
    tiled,
)

INSIDE = Option(
    "inside",
    ("direct", "ring"),
    help="inside a node tiles go to each rank directly, or round a ring.",
    default_text="direct",
    tried=("direct", "ring"),
)


def check_nodes(name: str, problem: Problem, options: dict) -> None:
    """Decide the number of ranks on a node; refuse one that does not divide all ranks, and ranks
    without a share."""
    p = problem.nprocs
    per_node = options["per_node"] = options.get("per_node") or (p if p % 2 else p // 2)
    if p % per_node:
        raise UnsupportedError(
            f"{name} needs as many ranks on each node (algorithm requirement); got {p} ranks, "
            f"{per_node} a node. Use -o per_node={', '.join(map(str, divisors(p)))}."
        )
    if not all(all(owners(problem, matrix)) for matrix in "AC"):
        raise UnsupportedError(
            f"{name} needs a share of A and of C on every rank (algorithm requirement); "
            f"{problem.m}x{problem.n}x{problem.k} on {p} ranks leaves some without. Use fewer "
            "ranks."
        )


PROTOCOL = Option(
    "protocol",
    ("signal", "ll"),
    help="a signal follows each tile (signal), or each word has a flag (ll: less latency, twice "
    "the bytes).",
    default_text="signal",
)


@tiled("ag2", ag_gemm.LAYOUT, INSIDE, PER_NODE, PROTOCOL, TILE, PART, KERNEL, checks=[check_nodes])
def ag2(
    problem: Problem,
    rank: int,
    *,
    inside: str,
    per_node: int,
    protocol: str,
    tile: int,
    part: int,
    kernel: str,
) -> Steps:
    """AllGather + GEMM over nodes: each tile crosses once, then is forwarded (FLUX 4.3)."""
    rows, flagged = TiledRows.of(problem.a, tile), protocol == "ll"
    gathered = yield from fetched_over_nodes(problem, rank, rows, per_node, inside, flagged)
    yield from ag_gemm.multiplied(problem, rank, rows, gathered, part, kernel)


def fetched_over_nodes(
    problem: Problem,
    rank: int,
    rows: TiledRows,
    local: int,
    inside: str = "direct",
    flagged: bool = False,
) -> Steps:
    """Push a rank's tiles of A to its node and to the rank of the same number on every other node,
    and forward tiles received from there to its node; ``inside`` it directly or round a ring.
    Tiles may be ``flagged`` as in Triton-distributed's Algorithm 4."""
    nodes, (d, l) = problem.nprocs // local, divmod(rank, local)
    at = lambda node, number: node % nodes * local + number % local
    away = [at(d + e, l) for e in range(1, nodes)]
    node = [at(d, l + i) for i in range(1, local)] if inside == "direct" else []
    have: dict[Tile, Step] = {}
    for t in rows.tiles[rank]:
        have[t] = yield Get(rows.block(t))
    for there in away + node:
        for t in rows.tiles[rank]:
            yield Push(have[t], there, t, flagged, there in node[1:])
    for e in range(nodes):  # forwarded as they arrive
        for t in rows.tiles[at(d - e, l)] if e else ():
            have[t] = yield Await(at(d - e, l), t, rows.block(t), flagged)
            for there in node:
                yield Push(have[t], there, t, flagged, there in node[1:])
        if inside == "ring":
            owners_round = [at(d - e, l + i) for i in range(local)]
            neighbours = at(d, l - 1), at(d, l + 1)
            yield from ag_gemm.passed_round(rows, have, owners_round, *neighbours, flagged)
    # from its owner, or from the rank of this node that received it
    source = lambda t: at(d, rows.owner(t) % local)
    rank_order = [at(d - e, l + i) for e in range(nodes) for i in range(local)]
    return ag_gemm.Gathered(have, source, rows.order_key(rank_order), flagged)


@tiled("rs2", gemm_rs.LAYOUT, INSIDE, PER_NODE, TILE, PART, KERNEL, UNITS, checks=[check_nodes])
def rs2(
    problem: Problem, rank: int, *, inside: str, per_node: int, tile: int, part: int, **launch
) -> Steps:
    """GEMM + ReduceScatter over nodes: each partial sum of a node crosses once (Triton-distributed,
    Alg. 5)."""
    rows, order = TiledRows.of(problem.c, tile), own_node_last(rank, problem.nprocs, per_node)
    parts = gemm_rs.ordered(rows, order, part, across=False)
    gemms = gemm_rs.PartialGemms(problem, rank, parts, rows.tiles[rank], **launch)
    yield from scattered_over_nodes(problem, rank, rows, gemms, per_node, inside)


def own_node_last(rank: int, nprocs: int, local: int) -> list[int]:
    """The order in which ranks' rows are multiplied: node after node, the own node last, in each
    the own number last.

    Examples
    --------
    >>> own_node_last(1, 6, 3)
    [5, 3, 4, 2, 0, 1]
    """
    nodes, (d, l) = nprocs // local, divmod(rank, local)
    return [
        (d + e) % nodes * local + (l + i) % local
        for e in range(1, nodes + 1)
        for i in range(1, local + 1)
    ]


def scattered_over_nodes(
    problem: Problem, rank: int, rows: TiledRows, gemms, local: int, inside: str = "direct"
) -> Steps:
    """Reduce a node's partial sums of a rank's rows on that node's rank of the same number, or on
    the way there round a ring, and send them once; ``gemms`` are requested in the order of
    :func:`own_node_last`."""
    nodes, (d, l) = problem.nprocs // local, divmod(rank, local)
    at = lambda node, number: node % nodes * local + number % local
    before, after = at(d, l - 1), at(d, l + 1)
    senders = [at(d, l - i) for i in range(1, local)]
    if inside == "ring":
        senders = senders[-1:]  # the neighbour after
    for e in range(1, nodes + 1):  # own node last
        home, like = e == nodes, at(d + e, l)
        for i in range(1, local):
            for t in rows.tiles[at(d + e, l + i)]:
                partial_sum, shape = (yield from gemms.of(t)), rows.block(t).shape
                if inside == "direct":
                    yield Push(partial_sum, at(d, l + i), t)
                else:
                    grows = after if i > 1 else None
                    yield from gemm_rs.passed_on(partial_sum, t, shape, before, grows)
        sums: dict[Tile, Step] = {}
        for t in rows.tiles[like]:  # own number last
            sums[t] = yield from gemms.of(t)
            if home and sums[t] is not None:
                yield Copy(sums[t], into=rows.block(t))
        for t in rows.tiles[like]:
            arrived = []
            for sender in senders:
                arrived.append((yield Await(sender, t, rows.block(t).shape)))
            if arrived and home:
                yield Add(arrived, into=rows.block(t), concurrent=True)
            elif arrived:
                sums[t] = yield Add(arrived, into=sums[t], concurrent=True)
            if not home:
                yield Push(sums[t], like, t)
    for e in range(1, nodes):
        for t in rows.tiles[rank]:
            arrived = yield Await(at(d - e, l), t, rows.block(t).shape)
            yield Add(arrived, into=rows.block(t), concurrent=True)
