"""The registry: algorithms by name, found by importing every module of this package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from drbench.errors import UsageError, did_you_mean
from drbench.program.problem import Problem
from drbench.program.steps import Step
from drbench.program.trace import Trace, trace

__all__ = ["Algorithm", "algorithm", "algorithms", "get_algorithm", "pick_options"]

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
        One line for ``drbench list``: the first line of the program's docstring.
    settle : callable
        ``settle(problem, in_place=True, **options)`` -> dict: the options as they will be run
        (``auto`` decided), the same on every rank; ``in_place`` says that every rank reads every
        tile in place. Raises UsageError for options that make no sense, UnsupportedError if the
        algorithm does not take the problem.
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
    settle: Callable[..., dict]
    layout: Callable[..., tuple[str, str, str]]
    congruent: Callable[..., tuple[str, ...]]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options it takes.

        Examples
        --------
        >>> get_algorithm("universal").options
        ('stationary', 'chunk', 'replicate_result', 'schedule', 'ir_max_compute', 'ir_max_comm')
        """
        return tuple(inspect.signature(self.settle).parameters)[2:]

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
        return trace(self.program(problem, rank, **options), problem, rank)


def pick_options(name: str, known: tuple[str, ...], options: dict) -> dict:
    """Those of the options that are set; a UsageError if ``name`` does not know one of them."""
    picked = {option: value for option, value in options.items() if value is not None}
    for option in picked:
        if option not in known:
            takes = (
                ", ".join(f"--{each.replace('_', '-')}" for each in known)
                or "no options of its own"
            )
            raise UsageError(f"{name} takes no --{option.replace('_', '-')}. It takes {takes}.")
    return picked


def _blocks(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    return "block", "block", "block"


def _unknown(problem: Problem, **settled) -> tuple[str, ...]:
    return ()


def algorithm(
    name: str,
    *,
    settle: Callable[..., dict],
    layout: Callable[..., tuple[str, str, str]] = _blocks,
    congruent: Callable[..., tuple[str, ...]] = _unknown,
):
    """Register a program under a name.

    Examples
    --------
    >>> "universal" in algorithms()
    True
    """

    def register(program):
        _REGISTRY[name] = Algorithm(
            name,
            program,
            (program.__doc__ or "").strip().splitlines()[0],
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
