"""The registry: algorithms by name, found by importing every module of this package."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Callable, Iterator

from drbench.errors import UsageError
from drbench.problem import Problem
from drbench.steps import Step
from drbench.trace import Trace, trace

__all__ = ["Algorithm", "algorithm", "algorithms", "get_algorithm"]

_REGISTRY: dict[str, "Algorithm"] = {}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the rest of the suite sees it.

    Attributes
    ----------
    name : str
        What ``--algorithm`` takes.
    program : callable
        ``program(problem, rank, **options)``, a generator of steps.
    about : str
        One line for ``drbench list``: the first line of the program's docstring.
    settle : callable
        ``settle(problem, in_place=True, **options)`` -> dict: the options as they will be run (``auto`` decided), the
        same on every rank; ``in_place`` says that every rank reads every tile in place. Raises UsageError for options
        that make no sense, UnsupportedError if the algorithm does not take the problem.
    """

    name: str
    program: Callable[..., Iterator[Step]]
    about: str
    settle: Callable[..., dict]

    def trace(self, problem: Problem, rank: int, **options) -> Trace:
        """The traced program of one rank."""
        return trace(self.program(problem, rank, **options), problem, rank)


def algorithm(name: str, *, settle: Callable[..., dict]):
    """Register a program under a name.

    Examples
    --------
    >>> "universal" in algorithms()
    True
    """
    def register(program):
        _REGISTRY[name] = Algorithm(name, program, (program.__doc__ or "").strip().splitlines()[0], settle)
        return program
    return register


def algorithms() -> dict[str, Algorithm]:
    """All algorithms by name, in alphabetical order."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return dict(sorted(_REGISTRY.items()))


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises
    ------
    UsageError
        If there is none; the message lists those there are.
    """
    known = algorithms()
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UsageError(f"no algorithm {name!r}; there are {', '.join(known)}.{hint}")
    return known[name]
