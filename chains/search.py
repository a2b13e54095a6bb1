"""The cheapest layouts of all variables together, by dynamic programming over what each operation
costs with its own.

Costs are *labels*: seconds, bytes that stay for the whole chain, and bytes that are needed for a
while. Seconds and bytes add up along a chain, of what is needed for a while the most counts. The
variables are eliminated one after another (Bertelè and Brioschi, Nonserial Dynamic Programming,
1972): of a variable only the choices are kept that no other beats in all three, for every choice of
those it meets in some operation. Nothing that could be best is lost, and a chain of n operations
takes n times L³ of them, not L to the n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf
from typing import Any, NamedTuple


class Label(NamedTuple):
    """What a choice costs.

    Attributes
    ----------
    time_s : float
    nbytes : int
        That a rank holds for the whole chain.
    pool : int
        That a rank needs for a while.
    notes : tuple
        How it is done; of several choices, of each.
    """

    time_s: float
    nbytes: int = 0
    pool: int = 0
    notes: tuple = ()

    def then(self, other: Label) -> Label:
        """Both, one after the other."""
        return Label(
            self.time_s + other.time_s,
            self.nbytes + other.nbytes,
            max(self.pool, other.pool),
            self.notes + other.notes,
        )

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
    """Those that fit and that no other beats; of equal ones the first. Without a limit the fastest.

    Examples
    --------
    >>> found = best([Label(1.0, 5), Label(2.0, 3), Label(3.0, 4)], limit=9)
    >>> [(each.time_s, each.nbytes) for each in found]
    [(1.0, 5), (2.0, 3)]
    """
    if limit == inf:
        fastest = min(labels, key=lambda each: each.time_s, default=None)
        return [] if fastest is None else [fastest]
    kept: list[Label] = []
    for each in sorted(labels, key=lambda each: each[:3]):
        if each.memory <= limit and not any(
            other.nbytes <= each.nbytes and other.pool <= each.pool for other in kept
        ):
            kept.append(each)
    return kept


def search(
    domains: Mapping[str, Sequence[str]],
    factors: Sequence[Factor],
    limit: float = inf,
    fixed: Mapping[str, str] | None = None,
) -> tuple[Label, dict[str, str]] | None:
    """The fastest choice of all variables that fits.

    Parameters
    ----------
    domains : dict of str to sequence of str
        Choices of each variable.
    factors : sequence of Factor
    limit : float
        Bytes that a rank may hold.
    fixed : dict of str to str, optional
        Variables whose choice is made.

    Returns
    -------
    (Label, dict) or None
        What it costs and the choices; None if nothing fits.

    Examples
    --------
    >>> pair = Factor(("x", "y"), {(a, b): [Label(float(a != b))] for a in "rc" for b in "rc"})
    >>> end = Factor(("y",), {("r",): [Label(2.0)], ("c",): [Label(0.5)]})
    >>> found, chosen = search({"x": "rc", "y": "rc"}, [pair, end], fixed={"x": "r"})
    >>> found.time_s, chosen
    (1.5, {'x': 'r', 'y': 'c'})
    """
    if limit < inf:  # without a limit only times are compared: enough, if what is found then fits
        factors = _fitting(factors, limit)
        found = search(domains, factors, fixed=fixed)
        if found is None or found[0].memory <= limit:
            return found
    fixed = dict(fixed or {})
    choices = {name: [fixed[name]] if name in fixed else list(domains[name]) for name in domains}
    left = [
        Factor(
            each.scope,
            {
                key: [label._replace(notes=(("how", label.notes),)) for label in labels]
                for key, labels in each.table.items()
                if all(choice in choices[name] for name, choice in zip(each.scope, key))
            },
        )
        for each in factors
    ]
    open_ = list(domains)
    while open_:
        name = min(open_, key=lambda each: (_degree(each, left), open_.index(each)))
        open_.remove(name)
        meet = [each for each in left if name in each.scope]
        left = [each for each in left if name not in each.scope]
        left.append(_eliminated(name, meet, choices, limit))
    labels: list[Label] = [Label(0.0)]
    for each in left:
        labels = best((one.then(two) for one in labels for two in each.table.get((), ())), limit)
    if not labels:
        return None
    found = min(labels, key=lambda each: each.time_s)
    chosen = dict(note for note in found.notes if note[0] != "how")
    how = tuple(each for note in found.notes if note[0] == "how" for each in note[1])
    return found._replace(notes=how), {name: chosen[name] for name in domains}


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
    name: str, factors: Sequence[Factor], choices: Mapping[str, Sequence[str]], limit: float
) -> Factor:
    """The factors of a variable as one of the others, with its best choices."""
    scope = tuple(dict.fromkeys(x for each in factors for x in each.scope if x != name))
    table: dict[tuple, list[Label]] = {}
    for key in product(*(choices[other] for other in scope)):
        known: dict[str, Any] = dict(zip(scope, key))
        found: list[Label] = []
        for choice in choices[name]:
            known[name] = choice
            labels = [Label(0.0, notes=((name, choice),))]
            for each in factors:
                more = each.table.get(tuple(known[x] for x in each.scope), ())
                labels = best((one.then(two) for one in labels for two in more), limit)
            found += labels
        if found:
            table[key] = best(found, limit)
    return Factor(scope, table)
