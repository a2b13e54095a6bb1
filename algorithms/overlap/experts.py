"""A layer of experts: each token is multiplied by the matrices of ``topk`` of its experts.

A token and one of its experts are a *pair*; m tokens make m·topk pairs. B holds the experts'
matrices one below the other.

==============  =================  ============  =================  ==============================
layer           A                  B             C                  row of C
==============  =================  ============  =================  ==============================
first           m×k, tokens        (E·k)×n       (m·topk)×n, pairs  A[token] · B[expert]
second          (m·topk)×k, pairs  (E·k)×n       m×n, tokens        Σ A[pair] · B[expert]
==============  =================  ============  =================  ==============================

(Zheng et al., Triton-distributed, 2025, §4.1.) Pairs of the second layer are already multiplied by
the weights of experts. Pairs are in order of experts, those of one expert in order of ranks.

The number of a rank's tokens for each expert is random. The tokens are not: the pairs of a rank, in
order of experts, use its tokens cyclically. So an expert has one range of a rank's tokens, or the
last and the first of them, and its GEMM reads and writes blocks; each round has every token once,
and the sum of the rounds is the sum over the experts of each token. GEMMs and bytes are the same
for any other tokens.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

from drbench.algorithms.mesh import joined
from drbench.algorithms.registry import Option
from drbench.errors import UsageError
from drbench.partitions import part as share
from drbench.program.problem import Problem
from drbench.program.steps import (
    Add,
    Block,
    FilledScratch,
    Gemm,
    Get,
    Kernel,
    OperationEnd,
    Part,
    Scratch,
    Step,
    Steps,
)

from .rows import Tile, own_tile

#: How tokens choose experts: all alike, or the more popular the more often (Zipf).
ROUTINGS = ("uniform", "skewed")


def _routing(text: str) -> str:
    """A routing's text, checked: ``skewed:7`` has the seed 7; the default seed is 0.

    Examples
    --------
    >>> _routing("Skewed:7"), _routing("uniform:0")
    ('skewed:7', 'uniform')
    """
    match = re.fullmatch(rf"({'|'.join(ROUTINGS)})(?::0*(\d{{0,9}}))?", text.strip().lower())
    if not match:
        raise UsageError(
            f"must be {' or '.join(ROUTINGS)}, with a seed as skewed:7 if need be, got {text!r}."
        )
    return ":".join(filter(None, match.groups()))


EXPERTS = Option(
    "experts",
    int,
    least=1,
    help="matrices in B, one for each expert; m counts tokens.",
    default_text="8",
)
TOPK = Option(
    "topk",
    int,
    least=1,
    help="experts that each token goes to.",
    default_text="2, or all experts if fewer",
)
ROUTING = Option(
    "routing",
    metavar="uniform|skewed[:SEED]",
    check=_routing,
    help="experts are chosen all alike, or some more often (Zipf).",
    default_text="uniform",
)
#: Options of every program of this kind.
OF_EXPERTS = (EXPERTS, TOPK, ROUTING)


class Batch(NamedTuple):
    """The tokens of a rank, or of all ranks, for one expert: the rows of one GEMM.

    Attributes
    ----------
    expert : int
    pairs : (int, int)
        Rows [start, stop) among all pairs.
    tokens : list of (int, int, int)
        (round, start, stop): tokens [start, stop), in the order of their pairs.
    """

    expert: int
    pairs: Tile
    tokens: list[tuple[int, int, int]]


@lru_cache(maxsize=8)
def _batches(m: int, nprocs: int, experts: int, topk: int, routing: str) -> list[list[Batch]]:
    """For each expert its batch of each rank's tokens, empty ones included."""
    counts, given = _counts(m, nprocs, experts, topk, routing), [0] * nprocs
    batches, row = [], 0
    for expert in range(experts):
        batches.append([])
        for rank in range(nprocs):
            (start, stop), tokens, first = share(m, rank, nprocs), [], row
            end = given[rank] + counts[rank][expert]
            while given[rank] < end:
                cycle, at = divmod(given[rank], stop - start)
                count = min(end - given[rank], stop - start - at)
                tokens.append((cycle, start + at, start + at + count))
                given[rank] += count
                row += count
            batches[-1].append(Batch(expert, (first, row), tokens))
    return batches


def _counts(m: int, nprocs: int, experts: int, topk: int, routing: str) -> list[list[int]]:
    """The number of each rank's tokens for each expert, from the seed of the routing: the same on
    every rank."""
    kind, _, seed = routing.partition(":")
    chance, popularity = Random(int(seed or 0)), [1.0] * experts
    if kind == "skewed":
        for place, expert in enumerate(sorted(range(experts), key=lambda _: chance.random())):
            popularity[expert] = 1 / (1 + place)
    below, counts = list(accumulate(popularity)), []
    for rank in range(nprocs):
        counts.append([0] * experts)
        for _ in range(*share(m, rank, nprocs)):
            chosen: set[int] = set()
            while len(chosen) < topk:
                expert = min(bisect_right(below, chance.random() * below[-1]), experts - 1)
                if expert not in chosen:
                    chance.random()  # unused, but committed records depend on it
                    chosen.add(expert)
                    counts[-1][expert] += 1
    return counts


@dataclass(frozen=True)
class ExpertProblem(Problem):
    """The GEMMs of a layer of experts.

    Parameters
    ----------
    experts, topk, routing
        As in the options.
    second : bool
        The second layer, which adds up the result rows of each token.

    Examples
    --------
    Two experts for each of the four tokens of rank 0. The second expert has the last three tokens,
    and the first one in the next round:

    >>> problem = ExpertProblem(8, 3, 5, 2, "row", "column", "column", experts=3)
    >>> problem.shapes()
    {'A': (8, 5), 'B': (15, 3), 'C': (16, 3)}
    >>> for batch in problem.batches(0):
    ...     print(*batch)
    0 (0, 1) [(0, 0, 1)]
    1 (3, 7) [(0, 1, 4), (1, 0, 1)]
    2 (10, 13) [(1, 1, 4)]
    """

    experts: int = 8
    topk: int = 2
    routing: str = "uniform"
    second: bool = False
    plain = False

    @property
    def baseline(self) -> tuple[str, dict]:
        own = {option.name: getattr(self, option.name) for option in OF_EXPERTS}
        return "moe_collective", {"dataflow": "RS" if self.second else "AG", **own}

    def shapes(self) -> dict[str, tuple[int, int]]:
        pairs = self.m * self.topk
        rows = (pairs, self.m) if self.second else (self.m, pairs)
        return {
            "A": (rows[0], self.k),
            "B": (self.experts * self.k, self.n),
            "C": (rows[1], self.n),
        }

    def batches(self, rank: int | None = None) -> list[Batch]:
        """The non-empty batches of a rank's tokens, or of all tokens, one for each expert."""
        every = _batches(self.m, self.nprocs, self.experts, self.topk, self.routing)
        whole = lambda of: Batch(
            of[0].expert,
            (of[0].pairs[0], of[-1].pairs[1]),
            [span for batch in of for span in batch.tokens],
        )
        batches = [whole(of) if rank is None else of[rank] for of in every]
        return [batch for batch in batches if batch.tokens]

    def gemms(self) -> list[tuple[Tile, Tile, int]]:
        gemms = []
        for expert, (row, _), tokens in self.batches():
            for _, start, stop in tokens:
                rows = (row, row + stop - start), (start, stop)
                gemms.append((*(rows[::-1] if self.second else rows), expert))
                row += stop - start
        return gemms

    def matrix(self, expert: int, k: Tile, cols: Tile) -> Block:
        """Rows and columns of an expert's matrix."""
        top = expert * self.k
        return self.b.block((top + k[0], top + k[1]), cols)


def bound(second: bool) -> Callable[..., Problem]:
    """A function that makes the problem of a first or second layer from sizes and options.

    Raises
    ------
    UsageError
        If a token is to choose more experts than there are.
    """

    def bind(
        *given,
        transpose: str = "",
        experts: int = 8,
        topk: int | None = None,
        routing: str = "uniform",
        **options,
    ) -> Problem:
        most = min(2, experts) if topk is None else topk
        if most > experts:
            raise UsageError(
                f"-o topk must be 1 to {experts}, the number of experts, got {most}: a token "
                "chooses an expert once."
            )
        known = {"experts": experts, "topk": most, "routing": routing, "second": second}
        return ExpertProblem(*given, transpose=transpose, **known)

    return bind


def batches_of(problem: ExpertProblem, source: int | None, held: Block | None) -> list[Batch]:
    """The batches of a rank's tokens, or of all tokens, whose pairs are rows of a tile."""
    batches = problem.batches(source) if held else []
    return [batch for batch in batches if held.row0 <= batch.pairs[0] < held.row1]


def tokens_of(batches: Iterable[Batch]) -> dict[int, Tile]:
    """The range of tokens that batches have in each round: the pairs of one rank, or of all, with
    neighbouring experts.

    Examples
    --------
    >>> problem = ExpertProblem(8, 3, 5, 2, "row", "column", "column", experts=3)
    >>> tokens_of(problem.batches(0)[:2])
    {0: (0, 4), 1: (0, 1)}
    """
    rounds: dict[int, Tile] = {}
    for x, start, stop in (span for batch in batches for span in batch.tokens):
        low, high = rounds.get(x, (start, stop))
        rounds[x] = min(low, start), max(high, stop)
    return rounds


class PairGemms:
    """A rank's pairs of a first layer: the GEMMs of tokens with its experts, or with its columns of
    all of them, as parts of one kernel."""

    def __init__(self, problem: ExpertProblem, rank: int):
        self._problem, self.own = problem, own_tile(problem.c, rank)
        self._kernel = Kernel(*(self.own.shape if self.own else (0, 0)), problem.k)
        self._weights: dict[int, Step] = {}

    def of(self, source: int, pieces: Mapping[int, tuple[Step, int]]) -> Steps:
        """The pairs of a rank's tokens, which are given as :func:`cut` takes them."""
        problem, weights = self._problem, self._weights
        for expert, pairs, spans in batches_of(problem, source, self.own):
            a, cols = (yield from cut(pieces, spans)), self.own.cols
            if expert not in weights:
                weights[expert] = yield Get(problem.matrix(expert, (0, problem.k), cols))
            into = problem.c.block(pairs, cols)
            yield Gemm(a, weights[expert], into=into, kernel=self._kernel)


def cut(pieces: Mapping[int, tuple[Step, int]], spans: list[tuple[int, int, int]]) -> Steps:
    """The rows of a batch, out of a value for each round and the token with which it begins."""
    parts = []
    for x, start, stop in spans:
        value, top = pieces[x]
        parts.append((yield Part(value, 0, start - top, stop - top)))
    return (yield from joined(parts))


class Sums:
    """A rank's partial sums of a second layer: the GEMMs of its share of k, or of its experts, and
    for each token the sum of its experts' rows.

    Parameters
    ----------
    problem : ExpertProblem
    rank : int
    tiles : dict of (int, int) to int
        Tile -> rank that owns its tokens (None: all), in the order in which sums are requested.
    fused : bool
        Whether the GEMMs are parts of one kernel.
    side : bool
        Whether sums are added up during GEMMs.

    Attributes
    ----------
    tiles : sequence of (int, int)
        The same; none if the rank has no share.
    """

    def __init__(
        self,
        problem: ExpertProblem,
        rank: int,
        tiles: dict[Tile, int | None],
        fused: bool = True,
        side: bool = True,
    ):
        self._problem, self._own, self._side = problem, own_tile(problem.a, rank), side
        self.tiles = tiles if self._own else {}
        self._weights: dict[int, Step] = {}
        self._finished: Step | None = None
        rows, depth = self._own.shape if self._own else (0, 0)
        self._kernel = Kernel(rows, problem.n, depth) if fused else None

    def of(self, tile: Tile) -> Steps:
        """The partial sums of a tile's tokens, all of which have pairs here."""
        if self._finished is not None:
            return (yield Part(self._finished, 0, *tile))
        return (yield from self.by_tokens([self.tiles[tile]]))[tile]

    def finish(self) -> Steps:
        """All sums, before any is requested: one addition after all GEMMs."""
        if self.tiles:
            self._finished = (yield from self.by_tokens(self.tiles.values()))[0, self._problem.m]

    def by_tokens(self, sources: Iterable[int | None], ends: bool = False) -> Steps:
        """Tokens of ranks -> their partial sums: each round of pairs in separate memory, then the
        rounds added up; ``ends`` makes the GEMMs the end of an operation."""
        problem, pieces, width = self._problem, {}, (0, self._problem.n)
        batches = [batch for rank in sources for batch in batches_of(problem, rank, self._own)]
        tokens = tokens_of(batches)
        filled: dict[int, list[Step]] = {x: [] for x in tokens}
        for x, (start, stop) in tokens.items():
            pieces[x] = (yield Scratch((stop - start, problem.n))), start
        for expert, pairs, spans in batches:
            k = self._own.cols
            if expert not in self._weights:
                self._weights[expert] = yield Get(problem.matrix(expert, k, width))
            a = yield Get(problem.a.block(pairs, k))
            into = yield from cut(pieces, spans)
            c = yield Gemm(a, self._weights[expert], into=into, kernel=self._kernel)
            for x, *_ in spans:
                filled[x].append(c)
        if ends:
            yield OperationEnd()
        for x, gemms in filled.items():
            scratch, top = pieces[x]
            pieces[x] = (yield FilledScratch(scratch, gemms)), top
        sums = {}
        for tile in pieces_of(tokens.values()):
            terms = []
            for x, (start, stop) in tokens.items():
                if start <= tile[0] < stop:
                    whole = tile == (start, stop)
                    terms.append(pieces[x][0] if whole else (yield from cut(pieces, [(x, *tile)])))
            first, *others = terms
            sums[tile] = (yield Add(others, into=first, concurrent=self._side)) if others else first
        return sums


def pieces_of(ranges: Collection[Tile]) -> list[Tile]:
    """Ranges cut where another one begins or ends.

    Examples
    --------
    >>> pieces_of([(2, 6), (0, 4)]), pieces_of([(5, 6), (0, 4)])
    ([(0, 2), (2, 4), (4, 6)], [(0, 4), (5, 6)])
    """
    cuts = sorted({end for tile in ranges for end in tile})
    return [
        tile for tile in pairwise(cuts) if any(start <= tile[0] < stop for start, stop in ranges)
    ]
