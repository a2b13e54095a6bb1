"""Expert parallelism: each rank has whole experts, and tokens go to the ranks that have theirs
(dispatch) and return as sums (combine), as with DeepEP's kernels and Triton-distributed's AllToAll
(Zheng et al., 2025, §4.2).

A token goes once to each of those ranks, however many of its experts it has, and one sum of their
results returns. Rank r of p has experts ⌊r·E/p⌋ to ⌊(r+1)·E/p⌋. GEMMs are those of a rank's experts
and of the tokens of one rank, as soon as these have arrived, or before their sums leave.
"""

from drbench.algorithms.registry import Option, Texts
from drbench.partitions import layout_of_blocks
from drbench.partitions import part as share
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Add, Copy, Get, OperationEnd, Steps

from .experts import (
    OF_EXPERTS,
    ExpertProblem,
    PairGemms,
    Sums,
    batches_of,
    bound,
    pieces_of,
    tokens_of,
)
from .moe import of_experts
from .rows import Tile, own_tile, ring, tiled

VARIANT = Option(
    "variant",
    ("push", "pull", "separate"),
    help="rows are sent by their owners (push), read (pull), or sent while no GEMM runs "
    "(separate).",
    default_text="push",
    tried=("push", "pull", "separate"),
)


def layout_of(second: bool):
    """The layout of a first or second layer for sizes and options: matrices and pairs of a rank's
    experts; equal parts of the tokens."""

    def layout(m: int, n: int, k: int, nprocs: int, **options) -> Texts:
        problem = bound(second)(m, n, k, nprocs, "row", "row", "row", **options)
        matrices, pairs, rows = [0] * nprocs, [0] * nprocs, [0] * problem.experts
        for expert, (start, stop), _ in problem.batches():
            rows[expert] = stop - start
        for rank in range(nprocs):
            first, end = (problem.experts * r // nprocs for r in (rank, rank + 1))
            matrices[rank], pairs[rank] = (end - first) * k, sum(rows[first:end])
        b, of_pairs = by_rows(matrices, n), by_rows(pairs, k if second else n)
        return (of_pairs, b, "row") if second else ("row", b, of_pairs)

    return layout


def by_rows(counts: list[int], width: int) -> str:
    """The text of a layout that gives each rank so many rows of a matrix.

    Examples
    --------
    >>> by_rows([3, 3], 5), by_rows([3, 0, 2], 5)
    ('row', 'tiles:3+2x5@0+1x0/on0+2')
    """
    if len({*counts}) == 1:
        return "row"
    ranks = [rank for rank, count in enumerate(counts) if count]
    return layout_of_blocks([counts[rank] for rank in ranks], [width], [[r] for r in ranks])


def layer_of_whole_experts(name: str, second: bool):
    """Register a program of a first or second layer."""
    return tiled(
        name,
        layout_of(second),
        VARIANT,
        *OF_EXPERTS,
        checks=[of_experts],
        bind=bound(second),
    )


def dispatched(problem: ExpertProblem, source: int, rank: int) -> dict[int, Tile]:
    """By round the tokens that one rank sends to another, which is all of them if they are no fewer
    than it has."""
    start, stop = share(problem.m, source, problem.nprocs)
    tokens = tokens_of(batches_of(problem, source, own_tile(problem.c, rank)))
    if sum(end - begin for begin, end in tokens.values()) < stop - start:
        return tokens
    return dict.fromkeys(tokens, (start, stop))


@layer_of_whole_experts("dispatch_moe", False)
def dispatch_moe(problem: ExpertProblem, rank: int, *, variant: str, **experts) -> Steps:
    """Tokens sent to the ranks of their experts + GEMMs there (DeepEP; Triton-distributed)."""
    ranks = ring(rank, problem.nprocs)
    block = lambda tokens: problem.a.block(tokens, (0, problem.k))
    if variant != "pull":
        for to in ranks[:0:-1]:  # first to ranks that use them first
            for t in dict.fromkeys(dispatched(problem, rank, to).values()):
                yield Push((yield Get(block(t))), to, t)
    pieces, have = {}, {}
    for source in ranks:
        tokens = dispatched(problem, source, rank)
        for t in dict.fromkeys(tokens.values()):
            reads = source == rank or variant == "pull"
            have[t] = yield Get(block(t)) if reads else Await(source, t, block(t))
        pieces[source] = {x: (have[t], t[0]) for x, t in tokens.items()}
    if variant == "separate":
        yield OperationEnd()
    gemms = PairGemms(problem, rank)
    for source in ranks:
        yield from gemms.of(source, pieces[source])


@layer_of_whole_experts("moe_combine", True)
def moe_combine(problem: ExpertProblem, rank: int, *, variant: str, **experts) -> Steps:
    """GEMMs of whole experts + sums returned to the tokens' ranks (DeepEP; Triton-distributed)."""
    others, overlaps, leaving = ring(rank, problem.nprocs, 1)[:-1], variant != "separate", []
    sums = Sums(problem, rank, {}, side=overlaps)
    for home in (*others, rank):
        for tokens, partial in (yield from sums.by_tokens([home], not overlaps)).items():
            if home == rank:
                yield Copy(partial, into=problem.c.block(tokens, (0, problem.n)))
            elif overlaps:
                yield (Offer if variant == "pull" else Push)(partial, home, tokens)
            else:
                leaving.append((partial, home, tokens))
    if not overlaps:
        yield OperationEnd()
    for sent in leaving:
        yield Push(*sent)
    for source in reversed(others):
        batches = batches_of(problem, rank, own_tile(problem.a, source))
        for tokens in pieces_of(tokens_of(batches).values()):
            target = problem.c.block(tokens, (0, problem.n))
            come = (Take if variant == "pull" else Await)(source, tokens, target.shape)
            yield Add((yield come), into=target, concurrent=overlaps)
