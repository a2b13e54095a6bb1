"""The cheapest choice of all variables together, by dynamic programming over the costs of each
operation.

Costs are *labels*: seconds of operations in sequence, of links between nodes and of links inside a
node, for the forward and the backward pass, bytes held for the whole chain, and bytes of receive
buffers. Seconds and bytes held add up along a chain, the largest receive buffers count, and a pass
takes the longest of its three seconds.

A weighted mean of these is no longer than the longest. So the least weighted sum over all choices
is a lower bound of the time, and its choice is a candidate; the next weights are those for which
the least sum over all candidates so far is largest (Lagrangian relaxation:
Everett, 1963). Memory has a price, likewise. The least sum is found exactly: variables are
eliminated one after another (Bertelè and Brioschi, Nonserial Dynamic Programming, 1972). At last
candidates are improved by changes of one variable, and of the alternatives of two operations.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from operator import add
from typing import Any, NamedTuple

import numpy as np

#: Weights that are tried, steps of the bisection of the price of memory, and of gradients.
_STEPS, _GRADIENTS = 14, 400
#: The share of the largest possible bound that is enough.
_ENOUGH = 1 - 1e-3
#: Weights with which only operations in sequence count.
_SERIAL = np.array([[1.0, 0, 0], [1.0, 0, 0]])


class Label(NamedTuple):
    """The costs of choices.

    Attributes
    ----------
    seconds : tuple of 6 floats
        Of the forward pass: of operations in sequence; of links between nodes (of a single node,
        all its links); of links inside a node of several. Then those of the backward pass.
    nbytes : int
        That a rank holds for the whole chain.
    pool : int
        That a rank needs for one operation.
    how : tuple
        The caller's note on each operation, such as its program.
    chosen : tuple of (str, Any)
        The choices of variables.
    """

    seconds: tuple[float, ...] = (0.0,) * 6
    nbytes: int = 0
    pool: int = 0
    how: tuple = ()
    chosen: tuple[tuple[str, Any], ...] = ()

    def then(self, other: "Label") -> "Label":
        """The label of both in sequence."""
        return Label(
            tuple(map(add, self.seconds, other.seconds)),
            self.nbytes + other.nbytes,
            max(self.pool, other.pool),
            self.how + other.how,
            self.chosen + other.chosen,
        )

    @property
    def time_s(self) -> float:
        """Seconds of both passes, each overlapped with its links."""
        return max(self.seconds[:3]) + max(self.seconds[3:])

    @property
    def memory(self) -> int:
        return self.nbytes + self.pool


class Factor(NamedTuple):
    """The costs of an operation, by the choices of its variables.

    Attributes
    ----------
    scope : tuple of str
        Variables.
    table : dict
        Choice of each, in order -> alternative labels; a missing choice is not possible.
    """

    scope: tuple[str, ...]
    table: Mapping[tuple, Sequence[Label]]


class Optimum(NamedTuple):
    """The fastest choice that was found, and a lower bound in seconds of all choices."""

    label: Label
    least_s: float


def best(labels: Iterable[Label]) -> list[Label]:
    """The Pareto-optimal labels; of equal ones the first.

    Examples
    --------
    >>> fast, small, neither = (Label((x, 0, 0, 0, 0, 0), y) for x, y in ((1, 5), (2, 3), (3, 4)))
    >>> best([neither, small, fast]) == [fast, small]
    True
    """
    front: list[tuple[tuple, Label]] = []
    for candidate in sorted(labels, key=lambda label: label.time_s):
        mine = *candidate.seconds, candidate.nbytes, candidate.pool
        if not any(all(a <= b for a, b in zip(other, mine)) for other, _ in front):
            front.append((mine, candidate))
    return [label for _, label in front]


def search(
    domains: Mapping[str, Sequence[Any]], factors: Sequence[Factor], limit: float = inf
) -> Optimum | None:
    """The fastest choice of all variables that fits; None if nothing does.

    Parameters
    ----------
    domains : dict of str to sequence
        Choices of each variable.
    factors : sequence of Factor
    limit : float
        Bytes that a rank may hold.

    Examples
    --------
    >>> of = lambda seconds: [Label((seconds, 0, 0, 0, 0, 0))]
    >>> pair = Factor(("x", "y"), {(a, b): of(float(a != b)) for a in "rc" for b in "rc"})
    >>> end = Factor(("y",), {("r",): of(2.0), ("c",): of(0.5)})
    >>> found = search({"x": "r", "y": "rc"}, [pair, end])
    >>> found.label.time_s, found.least_s, sorted(found.label.chosen)
    (1.5, 1.5, [('x', 'r'), ('y', 'c')])
    """
    problem = _Problem(domains, factors, limit)
    problem.weigh(0.0)
    if problem.fastest is None or not (problem.fastest.memory <= limit or problem.shrink()):
        return None
    if problem.fastest.memory > limit:
        low, high, price = 0.0, inf, problem.fastest.time_s / max(limit, 1.0)
        for _ in range(_STEPS):
            low, high = (low, price) if problem.weigh(price) else (price, high)
            price = (low + high) / 2 if high < inf else 2 * price
            if problem.least_s >= _ENOUGH * problem.best.time_s:
                break
    problem.improve()
    return Optimum(problem.best, min(problem.least_s, problem.best.time_s))


class _Problem:
    """The tables of factors as arrays, all candidates so far, and the best that fits."""

    def __init__(self, domains, factors: Sequence[Factor], limit: float):
        self.domains, self.factors, self.limit = domains, factors, limit
        self.best: Label | None = None  # that fits
        self.fastest: Label | None = None
        self.least_s, self.of, self.found = 0.0, _SERIAL, []
        self._places = {
            name: {choice: x for x, choice in enumerate(of)} for name, of in domains.items()
        }
        self._tables = [self._array(factor) for factor in factors]

    def consider(self, label: Label) -> bool:
        """Keep a choice if it is the fastest; whether it fits."""
        if self.fastest is None or label.time_s < self.fastest.time_s:
            self.fastest = label
        fits = label.memory <= self.limit
        if fits and (self.best is None or label.time_s < self.best.time_s):
            self.best = label
        return fits

    def shrink(self) -> bool:
        """Find the choice with the fewest bytes that fits, without buffers that fit with no
        choice; whether there is one."""
        while (smallest := self.choose((*[0.0] * 6, 1.0))) is not None:
            if self.consider(smallest):
                return True
            for labels, table in self._tables:
                for key, alternatives in labels.items():
                    for x, label in enumerate(alternatives):
                        if label.pool > self.limit - smallest.nbytes:
                            table[(*key, x)] = inf
        return False

    def _array(self, factor: Factor):
        """The labels by the indices of choices, and their numbers in one array."""
        places = [self._places[name] for name in factor.scope]
        labels = {
            tuple(place[choice] for place, choice in zip(places, key)): alternatives
            for key, alternatives in factor.table.items()
            if all(choice in place for place, choice in zip(places, key))
        }
        most = max(map(len, labels.values()), default=1) or 1
        table = np.full((*map(len, places), most, 7), inf)
        for key, alternatives in labels.items():
            if alternatives:
                table[key][: len(alternatives)] = [
                    (*label.seconds, label.nbytes) for label in alternatives
                ]
        return labels, table

    def weigh(self, price: float) -> bool:
        """Try weights of sequence and links with a price of memory, until no others have a larger
        bound; whether the price is high enough: the last choice has no more bytes than the
        limit."""
        bound_s, self.of = -inf, _SERIAL
        for _ in range(_STEPS):
            if self.found:
                seconds = np.array([label.seconds for label in self.found]).reshape(-1, 2, 3)
                extra_s = np.array([self._paid_s(label, price) for label in self.found])
                self.of = _weights(seconds, extra_s)
                most_s = ((seconds * self.of).sum(axis=(1, 2)) + extra_s).min()
                if bound_s >= _ENOUGH * most_s:
                    break
            label = self.choose((*self.of.ravel(), price))
            if label is None:
                return False
            self.found.append(label)
            paid_s = self._paid_s(label, price)
            bound_s = max(bound_s, float(self.of.ravel() @ label.seconds) + paid_s)
            self.consider(label)
        self.least_s = max(self.least_s, bound_s)
        return self.found[-1].nbytes <= self.limit

    def _paid_s(self, label: Label, price: float) -> float:
        """Seconds that memory above the limit counts as; below it, they are negative."""
        return price * (label.nbytes - self.limit) if price else 0.0

    def choose(self, weights: Sequence[float]) -> Label | None:
        """The label of the least weighted sum; None if no choice is possible."""
        of = np.array(weights)
        with np.errstate(invalid="ignore"):
            sums = [np.where(np.isinf(t[..., 0]), inf, t @ of) for _, t in self._tables]
        picked = [costs.argmin(axis=-1) for costs in sums]
        tables = [(f.scope, costs.min(axis=-1)) for f, costs in zip(self.factors, sums)]
        at = _least(list(self.domains), [len(x) for x in self.domains.values()], tables)
        if at is None:
            return None
        keys = [tuple(at[name] for name in factor.scope) for factor in self.factors]
        return self._total(at, [int(way[key]) for way, key in zip(picked, keys)])

    def _total(self, at: Mapping[str, int], ways: Sequence[int]) -> Label:
        """The label of choices, and of an alternative of each factor."""
        total = Label(chosen=tuple((n, self.domains[n][x]) for n, x in at.items()))
        for factor, (labels, _), way in zip(self.factors, self._tables, ways):
            total = total.then(labels[tuple(at[name] for name in factor.scope)][way])
        return total

    def improve(self) -> None:
        """Find the fastest alternatives for the choices of each candidate; then change one variable
        of the best at a time, as long as that is faster."""
        at_of = lambda label: {name: self._places[name][choice] for name, choice in label.chosen}
        for label in self.found:
            self._choose_alternatives(at_of(label))
        before = None
        while before is not self.best:
            before, at = self.best, at_of(self.best)
            for name, choices in self.domains.items():
                for x in range(len(choices)):
                    self._choose_alternatives(at | {name: x})

    def _choose_alternatives(self, at: Mapping[str, int]) -> None:
        """Consider choices of all variables with the alternatives that, those of two factors at a
        time, make them fastest."""
        keys = [tuple(at[name] for name in factor.scope) for factor in self.factors]
        options = [table[key] for key, (_, table) in zip(keys, self._tables)]
        options.append(np.zeros((2, 7)))  # next to these, one factor changes alone
        of = self.of.ravel()
        if any(np.isinf(costs[:, 0]).all() for costs in options):
            return
        ways = [int((costs[:, :6] @ of).argmin()) for costs in options]
        total = sum(costs[way] for costs, way in zip(options, ways))
        if total[:6] @ of >= self.best.time_s * (1 - 1e-9):  # no alternatives are faster
            return
        several = [x for x, costs in enumerate(options) if len(costs) > 1]
        for x, y in combinations(several, 2):
            first, second = options[x], options[y]
            sums = total - first[ways[x]] - second[ways[y]] + first[:, None] + second
            times = sums[..., :3].max(axis=-1) + sums[..., 3:6].max(axis=-1)
            times += 1e-2 * (sums[..., :6] @ of)  # also where the other links are longer
            times[sums[..., 6] > self.limit] = inf
            if np.isinf(times).all():  # none fits: those of the fewest bytes
                times = sums[..., 6]
            ways[x], ways[y] = map(int, np.unravel_index(times.argmin(), times.shape))
            total = sums[ways[x], ways[y]]
        self.consider(self._total(at, ways))


def _weights(seconds: np.ndarray, extra_s: np.ndarray) -> np.ndarray:
    """Weights of the three seconds of each pass for which the least sum over candidates is largest,
    by exponentiated gradients (Kivinen and Warmuth, 1997).

    Parameters
    ----------
    found : ndarray, shape (candidates, 2, 3)
    extra_s : ndarray, shape (candidates,)
        Seconds that have no weight.

    Examples
    --------
    >>> one, two, back = [1.0, 3.0, 0.0], [3.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    >>> _weights(np.array([[one, back], [two, back]]), np.zeros(2))[0].round(1)
    array([0.5, 0.5, 0. ])
    """
    logs, total = np.zeros((2, 3)), np.zeros((2, 3))
    most = 2 * seconds.max(axis=2).sum(axis=1).min() or 1.0  # larger ones do not matter
    seconds, extra_s = np.minimum(seconds, most) / most, extra_s / most
    for step in range(1, _GRADIENTS + 1):
        of = np.exp(logs - logs.max(axis=1, keepdims=True))
        of /= of.sum(axis=1, keepdims=True)
        total += of * (step > _GRADIENTS // 2)
        least = seconds[((seconds * of).sum(axis=(1, 2)) + extra_s).argmin()]
        logs += 8 * least / step**0.5
    return total / total.sum(axis=1, keepdims=True)


def _least(
    names: list[str], sizes: list[int], tables: list[tuple[tuple[str, ...], np.ndarray]]
) -> dict[str, int] | None:
    """The choice of every variable with the least sum of tables; None if all sums are infinite."""
    size, decided, left = dict(zip(names, sizes)), [], list(names)
    while left:
        degree = lambda name: len({x for scope, _ in tables if name in scope for x in scope})
        name = min(left, key=degree)
        left.remove(name)
        touching = [table for table in tables if name in table[0]]
        tables = [table for table in tables if name not in table[0]]
        scope = tuple(dict.fromkeys(x for variables, _ in touching for x in variables if x != name))
        whole = (*scope, name)
        total = np.zeros([size[x] for x in whole])
        for variables, table in touching:
            order = [variables.index(x) for x in whole if x in variables]
            shape = [size[x] if x in variables else 1 for x in whole]
            total = total + table.transpose(order).reshape(shape)
        decided.append((name, scope, total.argmin(axis=-1)))
        tables.append((scope, total.min(axis=-1)))
    if not np.isfinite(sum(float(table) for _, table in tables)):
        return None
    choices: dict[str, int] = {}
    for name, scope, choice in reversed(decided):
        choices[name] = int(choice[tuple(choices[x] for x in scope)])
    return choices
