"""Products of experts: what an expert multiplies of some communication tiles is a range of rows of
pairs (:mod:`partitions.mixture`), so a part is one of its tiles, or as many as make it high enough;
all parts are of one kernel."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from drbench.program.problem import Problem
from drbench.program.steps import Block, Combine, Gemm, Get, Part, Step

from .ag_gemm import Gathered, awaited
from .rows import Rows, Tile, kernel_of, own_tile


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
    >>> from partitions.mixture import Mixture
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


def multiplied(
    problem: Problem, rank: int, rows: Rows, gathered: Gathered, part: int, kernel: str
) -> Iterator[Step]:
    """The experts' products of gathered tokens, part by part, as tiles come."""
    own = own_tile(problem.c, rank)
    if own is None:
        return
    cols, tiles = (own.col0, own.col1), [t for each in rows.tiles for t in each]
    launch = kernel_of(kernel, problem.rows, own.shape[1], problem.k)
    weights: dict[int, Step] = {}
    last = lambda inside: max(map(gathered.turn, inside))
    for _, expert, inside, pairs in expert_parts(problem, tiles, part, last):
        a = yield from awaited(problem, gathered, inside)
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
    >>> from partitions.mixture import Mixture
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


class Sums:
    """What a rank's share of k makes of each tile of tokens: products of the experts, each made
    when the first of its tiles is asked for, weighted and summed up.

    Parameters
    ----------
    problem : Problem
    rank : int
    tiles : sequence of (int, int)
        In the order in which they are asked for.
    part : int
        Least pairs of a product.
    kernel : str
        ``fused`` or ``parts``.

    Attributes
    ----------
    tiles : list of (int, int)
        The same; none if the rank has no share of k.
    """

    def __init__(self, problem: Problem, rank: int, tiles: Sequence[Tile], part: int, kernel: str):
        self._problem, own = problem, own_tile(problem.a, rank)
        self.tiles = list(tiles) if own is not None else []
        if own is not None:
            self._k = own.col0, own.col1
            self._launch = kernel_of(kernel, problem.rows, problem.n, own.shape[1])
        self._turn = {t: x for x, t in enumerate(self.tiles)}
        first = lambda inside: (min(self._turn[t] for t in inside),)
        self._left = iter(expert_parts(problem, self.tiles, part, first))
        self._next = next(self._left, None)
        self._weights: dict[int, Step] = {}
        #: Of each tile: (rows of an expert's product, expert).
        self._pieces: dict[Tile, list[tuple[Step, int]]] = {t: [] for t in self.tiles}

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
