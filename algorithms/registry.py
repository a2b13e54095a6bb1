"""The registry: algorithms by name, found by importing every module of this package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from drbench.errors import UsageError, did_you_mean
from drbench.program.problem import Problem
from drbench.program.steps import Step
from drbench.program.trace import Trace, trace

from .options import Option, check_options, named, pick_options

__all__ = ["Algorithm", "algorithm", "algorithms", "get_algorithm"]

_REGISTRY: dict[str, Algorithm] = {}


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
        One line for ``drbench list``: the first paragraph of the program's docstring.
    options : dict of str to Option
        What it takes, by name: command line, sweep files, records and plots go by it.
    decide : callable
        What :meth:`settle` calls once the options are checked.
    layout : callable
        ``layout(m, n, k, nprocs, **options)`` -> text forms of the partitions of A, B and C that
        the algorithm runs on where the user names none.
    congruent : callable
        ``congruent(problem, **settled)`` -> names of the groups (``row``, ``column``) all of whose
        members run congruent programs (:mod:`drbench.model.folding`) if all tiles are alike, so
        that one member can stand for all in a simulation.
    """

    name: str
    program: Callable[..., Iterator[Step]]
    about: str
    options: dict[str, Option]
    decide: Callable[..., dict]
    layout: Callable[..., tuple[str, str, str]]
    congruent: Callable[..., tuple[str, ...]]

    def settle(self, problem: Problem, in_place: bool = True, **options) -> dict:
        """The options as they will be run (``auto`` decided), the same on every rank; ``in_place``
        says that every rank reads every tile in place.

        Raises
        ------
        UsageError
            If an option makes no sense.
        UnsupportedError
            If the algorithm does not take the problem.

        Examples
        --------
        >>> get_algorithm("meshslice").settle(Problem(8, 8, 8, 2, "block", "block", "block"))
        {'dataflow': 'OS', 'mesh': '1x2', 'slices': 8, 'block': 1}
        """
        check_options(self.options, options)
        return self.decide(problem, in_place, **options)

    def pick(self, options: dict) -> dict:
        """The options that are set, meaning not None; one the algorithm does not take is a
        UsageError.

        Examples
        --------
        >>> get_algorithm("universal").pick({"stationary": "C", "slices": None})
        {'stationary': 'C'}
        """
        return pick_options(self.name, self.options, options)

    def problem(
        self,
        m: int,
        n: int,
        k: int,
        nprocs: int,
        a: str | None = None,
        b: str | None = None,
        c: str | None = None,
        dtype: str = "float32",
        **options,
    ) -> Problem:
        """The problem, on the algorithm's own layout where a partition is None.

        Examples
        --------
        >>> get_algorithm("universal").problem(64, 64, 64, 4, a="row").c.partition.text
        'block'
        """
        own = self.layout(m, n, k, nprocs, **options)
        return Problem(
            m, n, k, nprocs, *(given or text for given, text in zip((a, b, c), own)), dtype
        )

    def trace(self, problem: Problem, rank: int, **options) -> Trace:
        """The traced program of one rank."""
        check_options(self.options, options)
        return trace(self.program(problem, rank, **options), problem, rank)


def _blocks(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    return "block", "block", "block"


def _as_given(problem: Problem, in_place: bool, **options) -> dict:
    return options


def _unknown(problem: Problem, **settled) -> tuple[str, ...]:
    return ()


def algorithm(
    name: str,
    *,
    options: tuple[Option, ...] = (),
    settle: Callable[..., dict] = _as_given,
    layout: Callable[..., tuple[str, str, str]] = _blocks,
    congruent: Callable[..., tuple[str, ...]] = _unknown,
):
    """Register a program under a name, with the options it takes.

    ``settle(problem, in_place, **options)`` is :meth:`Algorithm.settle` without its checks; without
    it the options are as given.

    Examples
    --------
    >>> "universal" in algorithms()
    True
    """

    def register(program):
        _REGISTRY[name] = Algorithm(
            name,
            program,
            " ".join((program.__doc__ or "").partition("\n\n")[0].split()),
            named(*options),
            settle,
            layout,
            congruent,
        )
        return program

    return register


def algorithms() -> dict[str, Algorithm]:
    """All algorithms by name, in alphabetical order."""
    package = importlib.import_module(__package__)
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)
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
        raise UsageError(
            f"no algorithm {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return known[name]
