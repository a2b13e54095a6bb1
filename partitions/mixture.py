"""A product of experts: each row of A is multiplied by the matrices of the experts it is routed to,
as in a mixture of experts.

A *token* goes to ``topk`` of the experts, so m tokens make m·topk *pairs*. B holds the experts'
matrices one below the other. Pairs lie in order of experts, and of one expert in order of tokens,
as the operands of a grouped product do: what an expert multiplies is a range of rows, and so is the
part of it that a range of tokens has.

========  =================  ============  =================  ==================================
          A                  B             C                  row of C
========  =================  ============  =================  ==================================
gathers   m×k, tokens        (E·k)×n       (m·topk)×n, pairs  A[token] · B[expert]
combines  (m·topk)×k, pairs  (E·k)×n       m×n, tokens        Σ weight · A[pair] · B[expert]
========  =================  ============  =================  ==================================

The former is the first product of a layer of experts, the latter the second. (Zheng et al.,
Triton-distributed, 2025, §4.1.)
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

from .errors import LayoutError

#: How tokens choose experts: all alike, or the more popular the more often (Zipf).
ROUTINGS = ("uniform", "skewed")
#: Weights of choices are whole numbers up to this, so that sums of integers are exact.
MOST_WEIGHT = 4
#: Draws in a row that bring nothing new, for each expert, before the most popular is taken.
_PATIENCE = 4


class Routing(NamedTuple):
    """A routing's text, read: ``skewed:7`` is of the seed 7, without a seed it is 0."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}" if self.seed else self.kind


def parse_routing(text: str) -> Routing:
    """Read the text form of a routing.

    Raises
    ------
    LayoutError
        Without the name of the option, which callers put before it.

    Examples
    --------
    >>> str(parse_routing("Skewed:7")), str(parse_routing("uniform:0"))
    ('skewed:7', 'uniform')
    """
    found = re.fullmatch(rf"({'|'.join(ROUTINGS)})(?::(\d{{1,9}}))?", text.strip().lower())
    if not found:
        raise LayoutError(
            f"must be {' or '.join(ROUTINGS)}, with a seed as skewed:7 if need be, got {text!r}."
        )
    return Routing(found[1], int(found[2] or 0))


@dataclass(frozen=True)
class Mixture:
    """What makes a product one of experts.

    Parameters
    ----------
    experts : int
        At least 1.
    topk : int
        Experts of a token, all different; at most ``experts``.
    routing : str
        Text form of :func:`parse_routing`: who chooses whom, drawn from a seed.
    combines : bool
        Rows of C are sums over the choices of a token; else rows of A are gathered for them.

    Raises
    ------
    LayoutError
        If a number is out of range, or the routing cannot be read.
    """

    experts: int
    topk: int = 1
    routing: str = "uniform"
    combines: bool = False

    def __post_init__(self):
        if self.experts < 1:
            raise LayoutError(f"--experts must be at least 1, got {self.experts}.")
        if not 1 <= self.topk <= self.experts:
            raise LayoutError(
                f"--topk must be 1 to {self.experts}, the number of experts, got {self.topk}: a "
                "token chooses an expert once."
            )
        try:
            object.__setattr__(self, "routing", str(parse_routing(self.routing)))
        except LayoutError as error:
            raise LayoutError(f"--routing {error}") from None


def shapes(m: int, n: int, k: int, mixture: Mixture | None = None) -> dict[str, tuple[int, int]]:
    """Rows and columns of op(A), op(B) and C by name.

    Examples
    --------
    >>> shapes(8, 3, 5)
    {'A': (8, 5), 'B': (5, 3), 'C': (8, 3)}
    >>> shapes(8, 3, 5, Mixture(4, 2)), shapes(8, 3, 5, Mixture(4, 2, combines=True))["A"]
    ({'A': (8, 5), 'B': (20, 3), 'C': (16, 3)}, (16, 5))
    """
    if mixture is None:
        return {"A": (m, k), "B": (k, n), "C": (m, n)}
    rows = {mixture.combines: m, not mixture.combines: m * mixture.topk}
    return {"A": (rows[False], k), "B": (mixture.experts * k, n), "C": (rows[True], n)}


class Routes:
    """Who is routed to whom: the pairs of a product of experts.

    Attributes
    ----------
    choices : list of tuple
        For each token its experts with the weights of their results, as (expert, weight).
    tokens, weights : list of list of int
        For each expert the tokens of its pairs, rising, and the weights.
    first : list of int
        The first row of each expert's pairs, and the number of all pairs.

    Examples
    --------
    >>> routes = routes_of(4, Mixture(3, 2))
    >>> routes.tokens, routes.first
    ([[3], [0, 1, 2, 3], [0, 1, 2]], [0, 1, 5, 8])
    >>> routes.rows(1, 2, 4), routes.pair(7)[:2]
    ((3, 5), (2, 2))
    """

    def __init__(self, choices: list[tuple[tuple[int, int], ...]], experts: int):
        self.choices = choices
        self.tokens: list[list[int]] = [[] for _ in range(experts)]
        self.weights: list[list[int]] = [[] for _ in range(experts)]
        for token, chosen in enumerate(choices):
            for expert, weight in chosen:
                self.tokens[expert].append(token)
                self.weights[expert].append(weight)
        self.first = [0, *accumulate(map(len, self.tokens))]

    def rows(self, expert: int, start: int, stop: int) -> tuple[int, int]:
        """The rows [first, last) of the pairs that an expert has of tokens [start, stop)."""
        tokens, first = self.tokens[expert], self.first[expert]
        return first + bisect_left(tokens, start), first + bisect_left(tokens, stop)

    def pair(self, row: int) -> tuple[int, int, int]:
        """Expert, token and weight of a row of pairs."""
        expert = bisect_right(self.first, row) - 1
        x = row - self.first[expert]
        return expert, self.tokens[expert][x], self.weights[expert][x]

    @property
    def counts(self) -> list[int]:
        """Pairs of each expert."""
        return [len(tokens) for tokens in self.tokens]


@lru_cache(maxsize=16)
def routes_of(m: int, mixture: Mixture) -> Routes:
    """The routes of m tokens, drawn from the seed of the routing: the same on every rank."""
    kind, seed = parse_routing(mixture.routing)
    chance = Random(seed)
    popularity = [1.0] * mixture.experts
    if kind == "skewed":
        order = sorted(range(mixture.experts), key=lambda _: chance.random())
        for place, expert in enumerate(order):
            popularity[expert] = 1 / (1 + place)
    below = list(accumulate(popularity))
    return Routes(
        [
            tuple(
                (expert, 1 + int(chance.random() * MOST_WEIGHT))
                for expert in _chosen(chance, popularity, below, mixture.topk)
            )
            for _ in range(m)
        ],
        mixture.experts,
    )


def _chosen(
    chance: Random, popularity: list[float], below: list[float], topk: int
) -> Iterator[int]:
    """Different experts, drawn one after another; who stays unlikely for long is not waited for."""
    taken: set[int] = set()
    vain = 0
    while len(taken) < topk:
        if vain < _PATIENCE * len(below):
            expert = min(bisect_right(below, chance.random() * below[-1]), len(below) - 1)
        else:
            expert = max(set(range(len(below))) - taken, key=lambda each: (popularity[each], -each))
        if expert in taken:
            vain += 1
        else:
            taken.add(expert)
            vain = 0
            yield expert
