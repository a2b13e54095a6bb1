"""The cheapest choice of all variables together, by dynamic programming over the costs of each
operation.

Costs are *labels*: seconds of operations in sequence and of links, of the forward and the backward
pass, bytes held for the whole chain, and bytes of receive buffers. Seconds and bytes held add up
along a chain, the largest receive buffers count, and a pass takes the longer of both seconds. The variables are eliminated one
after another (Bertelè and Brioschi, Nonserial Dynamic Programming, 1972): for every choice of the
variables that share an operation with it, only the Pareto-optimal choices of a variable are kept.
No optimum is lost, and a chain of n operations with L layouts needs n·L³ labels instead of L to the
n.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple


#: Labels whose seconds differ by no more than this share of a known choice are equal.
EQUAL = 1e-4


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
    back_s, back_link_s : float
        Seconds of the backward pass.
    """

    serial_s: float = 0.0
    link_s: float = 0.0
    nbytes: int = 0
    pool: int = 0
    how: tuple = ()
    chosen: tuple[tuple[str, Any], ...] = ()
    back_s: float = 0.0
    back_link_s: float = 0.0

    def then(self, other: Label) -> Label:
        """The label of both in sequence."""
        return Label(
            self.serial_s + other.serial_s,
            self.link_s + other.link_s,
            self.nbytes + other.nbytes,
            max(self.pool, other.pool),
            self.how + other.how,
            self.chosen + other.chosen,
            self.back_s + other.back_s,
            self.back_link_s + other.back_link_s,
        )

    @property
    def time_s(self) -> float:
        """Seconds of both passes, each overlapped with its links."""
        return max(self.serial_s, self.link_s) + max(self.back_s, self.back_link_s)

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


def best(labels: Iterable[Label], limit: float = inf, equal_s: float = 0.0) -> list[Label]:
    """The Pareto-optimal labels that fit; of those that differ by no more than ``equal_s`` the
    first. Without a limit only seconds are compared.

    Examples
    --------
    >>> one, two, three = Label(1.0, 0.0, 5), Label(2.0, 0.0, 3), Label(3.0, 0.0, 4)
    >>> best([one, two, three], limit=9) == [one, two], best([one, two, three]) == [one]
    (True, True)
    """
    labels, kept = list(labels), []
    few = limit == inf
    for each in sorted(labels, key=_seconds):
        one, two = each.serial_s + equal_s, each.link_s + equal_s
        three, four = each.back_s + equal_s, each.back_link_s + equal_s
        held, pool = each.nbytes, each.pool
        if each.memory <= limit and not any(
            other.serial_s <= one
            and other.link_s <= two
            and other.back_s <= three
            and other.back_link_s <= four
            and (few or (other.nbytes <= held and other.pool <= pool))
            for other in kept
        ):
            kept.append(each)
    return kept


def search(
    domains: Mapping[str, Sequence[Any]],
    factors: Sequence[Factor],
    limit: float = inf,
    known_s: float = inf,
) -> Label | None:
    """The label of the fastest choice of all variables that fits; None if nothing does.

    Parameters
    ----------
    domains : dict of str to sequence
        Choices of each variable.
    factors : sequence of Factor
    limit : float
        Bytes that a rank may hold.
    known_s : float
        Seconds of a known choice: slower ones are left out.

    Examples
    --------
    >>> pair = Factor(("x", "y"), {(a, b): [Label(float(a != b))] for a in "rc" for b in "rc"})
    >>> end = Factor(("y",), {("r",): [Label(2.0)], ("c",): [Label(0.5)]})
    >>> found = search({"x": "r", "y": "rc"}, [pair, end])
    >>> found.time_s, sorted(found.chosen)
    (1.5, [('x', 'r'), ('y', 'c')])
    """
    if limit < inf:  # without a limit only times are compared: enough, if the result then fits
        found = search(domains, factors, inf, known_s)
        if found is None or found.memory <= limit:
            return found
    factors = _promising(factors, limit, known_s)
    labels = [Label()]
    for each in eliminate(list(domains), domains, factors, limit, known_s):
        labels = best((one.then(two) for one in labels for two in each.table.get((), ())), limit)
    return min(labels, key=lambda each: each.time_s, default=None)


def eliminate(
    names: Sequence[str],
    domains: Mapping[str, Sequence[Any]],
    factors: Sequence[Factor],
    limit: float = inf,
    known_s: float = inf,
) -> list[Factor]:
    """Factors in which some variables are eliminated, with their best choices."""
    left, names = list(factors), list(names)
    while names:
        name = min(names, key=lambda each: _degree(each, left))
        names.remove(name)
        touching = [each for each in left if name in each.scope]
        left = [each for each in left if name not in each.scope]
        others = Label()
        for each in left if known_s < inf else ():
            others = others.then(_least(each))
        left.append(_eliminated(name, touching, domains, limit, others, known_s))
    return left


def _seconds(label: Label) -> tuple:
    return label.serial_s + label.back_s, label.link_s + label.back_link_s, *label[2:4]


def _promising(factors: Sequence[Factor], limit: float, known_s: float) -> list[Factor]:
    """The factors without labels that neither fit, nor are faster than a known choice, even with
    the smallest labels of the others."""
    if limit == known_s == inf:
        return list(factors)
    least = [_least(each) for each in factors]
    whole = Label()
    for each in least:
        whole = whole.then(each)
    found = []
    for each, own in zip(factors, least):
        others = [x - y for x, y in zip(_numbers(whole), _numbers(own))]
        table = {}
        for key, labels in each.table.items():
            kept = []
            for label in labels:
                one, two, three, four, held = map(float.__add__, _numbers(label), others)
                if held + label.pool <= limit and max(one, two) + max(three, four) <= known_s:
                    kept.append(label)
            if kept:
                table[key] = kept
        found.append(Factor(each.scope, table))
    return found


def _numbers(label: Label) -> tuple[float, ...]:
    """What adds up."""
    held = float(label.nbytes)
    return label.serial_s, label.link_s, label.back_s, label.back_link_s, held


def _least(factor: Factor) -> Label:
    """The smallest number of each kind."""
    labels = [_numbers(label) for labels in factor.table.values() for label in labels]
    one, two, three, four, held = map(min, zip(*labels)) if labels else (0.0,) * 5
    return Label(one, two, int(held), back_s=three, back_link_s=four)


def _degree(name: str, factors: Sequence[Factor]) -> int:
    """The number of other variables that share a factor with one."""
    return len({other for each in factors if name in each.scope for other in each.scope})


def _eliminated(
    name: str,
    factors: Sequence[Factor],
    domains: Mapping[str, Sequence[Any]],
    limit: float,
    others: Label,
    known_s: float,
) -> Factor:
    """One factor of the other variables, with the best choices of a variable that, with the least
    labels of the ``others``, are as fast as a known choice."""
    scope = tuple(dict.fromkeys(x for each in factors for x in each.scope if x != name))
    table: dict[tuple, list[Label]] = {}
    equal_s = EQUAL * known_s if known_s < inf else 0.0
    for key in itertools.product(*(domains[other] for other in scope)):
        known = dict(zip(scope, key))
        found: list[Label] = []
        for choice in domains[name]:
            known[name] = choice
            labels = [Label(chosen=((name, choice),))]
            for each in factors:
                more = each.table.get(tuple(known[x] for x in each.scope), ())
                if not more:
                    labels = []
                    break
                labels = [one.then(two) for one in labels for two in more]
                if len(labels) > 1 or limit < inf:
                    labels = best(labels, limit, equal_s)
            found += labels
        if known_s < inf:
            found = [each for each in found if each.then(others).time_s <= known_s]
        if found:
            table[key] = best(found, limit, equal_s)
    return Factor(scope, table)
