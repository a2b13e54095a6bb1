"""Dictionaries of what belongs to a key: groups of items, and values that are made once."""

from collections.abc import Callable, Iterable
from typing import Any


def grouped(items: Iterable, key: Callable) -> dict[Any, list]:
    """Items by what a function gives for each, in the order of the first of each group.

    Examples
    --------
    >>> grouped([3, 1, 4, 5], lambda number: number % 2)
    {1: [3, 1, 5], 0: [4]}
    """
    groups: dict[Any, list] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def remembered(known: dict, key: Any, make: Callable) -> Any:
    """What is known under a key, made the first time."""
    if key not in known:
        known[key] = make()
    return known[key]
