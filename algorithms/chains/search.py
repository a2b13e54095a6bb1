"""The cheapest choice of all variables together, by dynamic programming over the costs of each
operation.

Costs are *labels*: seconds of operations in sequence, seconds of links, bytes held for the whole
chain, and bytes of receive buffers. Seconds and bytes held add up along a chain, the largest
receive buffers count, and the time is the longer of both seconds. The variables are eliminated one
after another (Bertelè and Brioschi, Nonserial Dynamic Programming, 1972): for every choice of the
variables that share an operation with it, only the Pareto-optimal choices of a variable are kept.
No optimum is lost, and a chain of n operations with L layouts needs n·L³ labels instead of L to the
n.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple


class Label(NamedTuple):
    """The costs of choices.

    Attributes
    ----------
    serial_s : float
        Of operations in sequence.
    link_s : float
        Of links, overlapped with those.
    nbytes : int
        That a rank holds for the whole chain.
    pool : int
        That a rank needs for one operation.
    how : tuple
        The caller's note on each operation, such as its program.
    chosen : tuple of (str, str)
        The choices of variables.
    """

    serial_s: float
    link_s: float = 0.0
    nbytes: int = 0
    pool: int = 0
    how: tuple = ()
    chosen: tuple[tuple[str, str], ...] = ()

    def then(self, other: Label) -> Label:
        """The label of both in sequence."""
        return Label(
            self.serial_s + other.serial_s,
            self.link_s + other.link_s,
            self.nbytes + other.nbytes,
            max(self.pool, other.pool),
            self.how + other.how,
            self.chosen + other.chosen,
        )

    @property
    def time_s(self) -> float:
        """Seconds of both, overlapped."""
        return max(self.serial_s, self.link_s)

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


def best(labels: Iterable[Label], limit: float = inf) -> list[Label]:
    """The Pareto-optimal labels that fit; of equal ones the first. Without a limit only seconds are
    compared.

    Examples
    --------
    >>> one, two, three = Label(1.0, 0.0, 5), Label(2.0, 0.0, 3), Label(3.0, 0.0, 4)
    >>> best([one, two, three], limit=9) == [one, two], best([one, two, three]) == [one]
    (True, True)
    """
    labels, kept = list(labels), []
    if len(labels) < 2:
        return [each for each in labels if each.memory <= limit]
    for each in sorted(labels, key=_in_order):
        if limit == inf:
            if not kept or each.link_s < kept[-1].link_s:
                kept.append(each)
        elif each.memory <= limit and not any(
            other.link_s <= each.link_s and other.nbytes <= each.nbytes and other.pool <= each.pool
            for other in kept
        ):
            kept.append(each)
    return kept


def search(
    domains: Mapping[str, Sequence[str]], factors: Sequence[Factor], limit: float = inf
) -> Label | None:
    """The label of the fastest choice of all variables that fits; None if nothing does.

    Parameters
    ----------
    domains : dict of str to sequence of str
        Choices of each variable.
    factors : sequence of Factor
    limit : float
        Bytes that a rank may hold.

    Examples
    --------
    >>> pair = Factor(("x", "y"), {(a, b): [Label(float(a != b))] for a in "rc" for b in "rc"})
    >>> end = Factor(("y",), {("r",): [Label(2.0)], ("c",): [Label(0.5)]})
    >>> found = search({"x": "r", "y": "rc"}, [pair, end])
    >>> found.time_s, sorted(found.chosen)
    (1.5, [('x', 'r'), ('y', 'c')])
    """
    if limit < inf:  # without a limit only times are compared: enough, if the result then fits
        factors = _fitting(factors, limit)
        found = search(domains, factors)
        if found is None or found.memory <= limit:
            return found
    labels = [Label(0.0)]
    for each in eliminate(list(domains), domains, factors, limit):
        labels = best((one.then(two) for one in labels for two in each.table.get((), ())), limit)
    return min(labels, key=lambda each: each.time_s, default=None)


def eliminate(
    names: Sequence[str],
    domains: Mapping[str, Sequence[str]],
    factors: Sequence[Factor],
    limit: float = inf,
) -> list[Factor]:
    """Factors in which some variables are eliminated, with their best choices."""
    left, names = list(factors), list(names)
    while names:
        name = min(names, key=lambda each: _degree(each, left))
        names.remove(name)
        touching = [each for each in left if name in each.scope]
        left = [each for each in left if name not in each.scope]
        left.append(_eliminated(name, touching, domains, limit))
    return left


def _in_order(label: Label) -> tuple:
    return label[:4]


def _fitting(factors: Sequence[Factor], limit: float) -> list[Factor]:
    """The factors without labels that do not fit even with the smallest labels of the others."""
    least = [
        min((label.nbytes for labels in each.table.values() for label in labels), default=0)
        for each in factors
    ]
    return [
        Factor(
            each.scope,
            {
                key: [label for label in labels if label.memory + sum(least) - own <= limit]
                for key, labels in each.table.items()
            },
        )
        for each, own in zip(factors, least)
    ]


def _degree(name: str, factors: Sequence[Factor]) -> int:
    """The number of other variables that share a factor with one."""
    return len({other for each in factors if name in each.scope for other in each.scope})


def _eliminated(
    name: str, factors: Sequence[Factor], domains: Mapping[str, Sequence[str]], limit: float
) -> Factor:
    """One factor of the other variables, with the best choices of a variable."""
    scope = tuple(dict.fromkeys(x for each in factors for x in each.scope if x != name))
    table: dict[tuple, list[Label]] = {}
    for key in itertools.product(*(domains[other] for other in scope)):
        known = dict(zip(scope, key))
        found: list[Label] = []
        for choice in domains[name]:
            known[name] = choice
            labels = [Label(0.0, chosen=((name, choice),))]
            for each in factors:
                more = each.table.get(tuple(known[x] for x in each.scope), ())
                labels = best((one.then(two) for one in labels for two in more), limit)
            found += labels
        if found:
            table[key] = best(found, limit)
    return Factor(scope, table)
