"""The cheapest choice of all variables together, by dynamic programming over what each operation
costs with its own.

Costs are *labels*: seconds of what follows each other, seconds of links, bytes that are held for
the whole chain, and bytes of receive buffers. Seconds and bytes held add up along a chain, of
receive buffers the largest counts, and the time is the longer of both seconds. The variables are
eliminated one after another (Bertelè and Brioschi, Nonserial Dynamic Programming, 1972): of a
variable only the choices are kept that no other beats in all of these, for every choice of those it
meets in some operation. Nothing that could be best is lost, and a chain of n operations takes n
times L³ of them, not L to the n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf
from typing import NamedTuple


class Label(NamedTuple):
    """What choices cost.

    Attributes
    ----------
    serial_s : float
        Of operations that follow each other.
    link_s : float
        Of links, overlapped with those.
    nbytes : int
        That a rank holds for the whole chain.
    pool : int
        That a rank needs for one operation.
    how : tuple
        What the caller says of how it is done, of each operation.
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
        """Both, one after the other."""
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
        """Of both, overlapped."""
        return max(self.serial_s, self.link_s)

    @property
    def memory(self) -> int:
        return self.nbytes + self.pool


class Factor(NamedTuple):
    """What an operation costs, by the choices of the variables it touches.

    Attributes
    ----------
    scope : tuple of str
        Variables.
    table : dict
        Choice of each, in order -> labels, any of which may be taken; what is missing cannot be.
    """

    scope: tuple[str, ...]
    table: Mapping[tuple, Sequence[Label]]


def best(labels: Iterable[Label], limit: float = inf) -> list[Label]:
    """Those that fit and that no other beats; of equal ones the first. Without a limit only seconds
    are compared.

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
    if limit < inf:  # without a limit only times are compared: enough, if what is found then fits
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
    """Factors without some of the variables, with the best choices of these."""
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
    """The factors without labels that do not fit, whatever the smallest of the others are."""
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
    """How many other variables one meets."""
    return len({other for each in factors if name in each.scope for other in each.scope})


def _eliminated(
    name: str, factors: Sequence[Factor], domains: Mapping[str, Sequence[str]], limit: float
) -> Factor:
    """The factors of a variable as one of the others, with its best choices."""
    scope = tuple(dict.fromkeys(x for each in factors for x in each.scope if x != name))
    table: dict[tuple, list[Label]] = {}
    for key in product(*(domains[other] for other in scope)):
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
