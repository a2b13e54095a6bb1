"""The registry: algorithms by name, found by importing every module of this package."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod
from typing import Any

from drbench.errors import UnsupportedError, UsageError, did_you_mean
from drbench.model.machine import Machine
from drbench.options import Option, check_options, named, pick_options
from drbench.partitions import partition, summed
from drbench.program.problem import Problem
from drbench.program.steps import Steps
from drbench.program.trace import MOST_STEPS, Trace, trace

#: Text forms of the partitions of A, B and C.
Texts = tuple[str, str, str]
#: The layout of an algorithm: the same for all sizes, or ``layout(m, n, k, nprocs, **options)``.
Layout = Texts | Callable[..., Texts]


def texts_of(layout: Layout, *sizes: int, **options) -> Texts:
    """Return the text forms of a layout for m, n, k and a number of ranks, and options.

    Examples
    --------
    >>> texts_of(("row", "column", "row"), 8, 8, 8, 4)
    ('row', 'column', 'row')
    """
    return layout(*sizes, **options) if callable(layout) else layout


def needs_model(resolved: dict) -> bool:
    """Whether a program depends on a performance model: a schedule by cost, the order of pushed
    partial sums, packing, the offset with replicas.

    Examples
    --------
    >>> needs_model({"schedule": "cost"}), needs_model({"sums": "push"}), needs_model({})
    (True, True, False)
    """
    by_cost = resolved.get("schedule", "").startswith(("cost", "exhaustive"))
    pushes = resolved.get("sums", "accumulate") != "accumulate"
    open_ = resolved.get("pack", "never") != "never" or resolved.get("offset") == "auto"
    return by_cost or pushes or open_


_REGISTRY: "dict[str, Algorithm]" = {}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its program, options and layout.

    Attributes
    ----------
    name : str
        For ``--algorithm``.
    program : callable
        ``program(problem, rank, **options)``, a generator of steps; with options that need a
        performance model (:func:`needs_model`) ``program(problem, rank, machine=machine,
        **options)``.
    options : dict of str to Option
        By name, for the command line, sweep files, records and plots.
    resolve : callable
        ``resolve(problem, in_place=True, **options)`` -> the options as they will be run (``auto``
        decided), the same on every rank; with ``in_place`` every rank reads every tile in place.
        Raises UsageError if an option is invalid, UnsupportedError if the algorithm does not
        support the problem.
    layout : tuple of str, or callable
        Text forms of the partitions of A, B and C that the algorithm runs on where the user names
        none, or ``layout(m, n, k, nprocs, **options)``, which returns them.
    signals : bool, or callable
        Its ranks signal each other (:mod:`drbench.program.signal_steps`), or
        ``signals(**options)`` -> whether they do.
    congruent : callable, optional
        Of an algorithm on a mesh: ``congruent(problem, **resolved)`` -> names of the groups
        (``row``, ``column``) all of whose members run congruent programs
        (:mod:`drbench.model.symmetry`) if all tiles are alike, so that a simulation of one member
        is valid for all.
    bind : callable, optional
        Of an algorithm for another problem than C = A·B: ``bind(m, n, k, nprocs, a, b, c,
        transpose=, **options)`` -> that problem, with its shapes and GEMMs.
    dispatches : callable, optional
        Of a program that models a library which Python dispatches: ``dispatches(problem,
        **resolved)`` -> how often the device waits for its host, ``dispatch_s`` of the machine
        model each time.

    Examples
    --------
    >>> get_algorithm("meshslice").resolve(Problem(8, 8, 8, 2, "block", "block", "block"))
    {'dataflow': 'OS', 'mesh': '1x2', 'slices': 8, 'block': 1}
    """

    name: str
    program: Callable[..., Steps]
    options: dict[str, Option]
    resolve: Callable[..., dict]
    layout: Layout = ("block", "block", "block")
    signals: bool | Callable[..., bool] = False
    congruent: Callable[..., tuple[str, ...]] | None = None
    bind: Callable[..., Problem] | None = None
    dispatches: Callable[..., int] | None = None

    @property
    def description(self) -> str:
        """One line for ``drbench list``: the first paragraph of the program's docstring."""
        return " ".join((self.program.__doc__ or "").partition("\n\n")[0].split())

    def lighter(self, options: dict) -> list[dict]:
        """The options to run in place of these if these do not fit in memory: undecided ones,
        decided for less memory.

        Examples
        --------
        >>> universal = get_algorithm("universal")
        >>> universal.lighter({}), universal.lighter({"pack": "always", "sums": "push"})
        ([{'sums': 'accumulate', 'pack': 'never'}], [])
        """
        least = {"sums": "accumulate", "pack": "never"}
        open_ = {
            name: value
            for name, value in least.items()
            if name in self.options and options.get(name, "auto") == "auto"
        }
        return [options | open_] if open_ else []

    def signalling(self, **options) -> bool:
        """Whether ranks signal each other with these options."""
        return self.signals(**options) if callable(self.signals) else self.signals

    def prefetch(self, **options) -> int | str:
        """The look-ahead without ``-o prefetch``: unlimited where ranks signal each other, since a
        GEMM that needs a value of another rank waits for its signal anyway; else 1.

        Examples
        --------
        >>> universal = get_algorithm("universal")
        >>> universal.prefetch(), universal.prefetch(sums="push")
        (1, 'all')
        """
        return "all" if self.signalling(**options) else 1

    def pick(self, options: dict) -> dict:
        """The options that are not None; UsageError for one that the algorithm does not have.

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
        *given: str | None,
        transpose: str = "",
        **options,
    ) -> Problem:
        """The problem in float32, on the algorithm's own layout where no partition is given.

        ``given`` partitions, of A, B and C in this order, describe the matrices as they are stored.
        An algorithm's own describe op(A), op(B) and C, so that it moves the same data whichever
        matrix is stored transposed.

        Examples
        --------
        >>> get_algorithm("universal").problem(64, 64, 64, 4, "row").texts
        {'a': 'row', 'b': 'block', 'c': 'block'}
        >>> get_algorithm("fsdp").problem(64, 64, 64, 4, transpose="b").texts
        {'a': 'row', 'b': 'column', 'c': 'row'}
        """
        options = self.pick(options)
        check_options(self.options, options)
        bind = self.bind or (lambda *known, transpose="", **_: Problem(*known, transpose=transpose))
        own, stored = texts_of(self.layout, m, n, k, nprocs, **options), []
        shapes = bind(m, n, k, nprocs, *own, **options).shapes() if transpose else {}
        for name, text, own_text in zip_longest("ABC", given, own):
            if text is None and name.lower() in transpose:
                stored.append(partition(own_text, shapes[name], nprocs, role=name).transposed())
            else:
                stored.append(text or own_text)
        return bind(m, n, k, nprocs, *stored, transpose=transpose, **options)

    def trace(
        self, problem: Problem, rank: int, machine: Machine | None = None, **options
    ) -> Trace:
        """The traced program of one rank with resolved options; ``machine`` is the performance
        model, for options with which the program depends on one."""
        steps = self.steps(problem, rank, machine, **options)
        return trace(steps, problem, rank, signals=self.signalling(**options))

    def steps(
        self, problem: Problem, rank: int, machine: Machine | None = None, **options
    ) -> Steps:
        """The program of one rank, which yields its steps; as for :meth:`trace`."""
        check_options(self.options, options)
        model = {} if machine is None else {"machine": machine}
        return self.program(problem, rank, **model, **options)


def algorithm(
    name: str,
    *,
    options: tuple[Option, ...] = (),
    resolve: Callable[..., dict] | None = None,
    **more: Any,
):
    """Register a program under a name, with its options and a function that resolves them.

    Parameters
    ----------
    name : str
        What ``--algorithm`` and records call it.
    options : tuple of Option
        What ``-o`` sets: keyword arguments of the program.
    resolve : callable, optional
        ``resolve(problem, in_place, **options)`` returns the options of the program, all decided,
        and refuses what it cannot run (:attr:`Algorithm.resolve`). It gets checked options with
        their defaults; problems with a Partial A or B are refused before. By default options stay
        as they are.
    **more
        Attributes of :class:`Algorithm`, such as ``layout``.

    Raises
    ------
    UsageError
        If another program has that name.

    Examples
    --------
    >>> "universal" in algorithms()
    True
    """
    known = named(*options)
    defaults = {  # a switch that is off is left out
        option.name: option.default
        for option in options
        if option.default is not None and option.default is not False
    }
    decide = resolve or (lambda problem, in_place, **given: given)

    def resolve(problem: Problem, in_place: bool = True, **given) -> dict:
        for operand in (problem.a, problem.b):
            if operand.partition.terms > 1:
                raise UnsupportedError(
                    f"{operand.name} as {operand.partition.text} is Partial: its sum is pending "
                    "(our implementation). Redistribute it first, for example to "
                    f"{summed(operand.partition).text}; C may be Partial."
                )
        for operand in problem.operands:
            tiles = prod(operand.partition.grid_shape) // problem.nprocs
            if tiles > MOST_STEPS:
                raise UnsupportedError(
                    f"{operand.name} as {operand.partition.text} has {tiles} tiles on each rank, "
                    f"too many to plan (our implementation: {MOST_STEPS}). Use larger tiles."
                )
        given = defaults | given
        check_options(known, given)
        return decide(problem, in_place, **given)

    def register(program):
        there = _REGISTRY.get(name)
        if there and there.program.__module__ != program.__module__:
            raise UsageError(
                f"{program.__module__} registers {name!r}, which {there.program.__module__} has. "
                "Give it another name."
            )
        _REGISTRY[name] = Algorithm(name, program, known, resolve, **more)
        return program

    return register


def algorithms(*, plain: bool | None = None) -> dict[str, Algorithm]:
    """All algorithms by name, in alphabetical order; or those of C = A·B, or of other problems.

    Examples
    --------
    >>> list(algorithms(plain=False))
    ['ag2_moe', 'ag_moe', 'dispatch_moe', 'moe_collective', 'moe_combine', 'moe_rs', 'moe_rs2']
    """
    package = importlib.import_module(__package__)
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return {
        name: entry
        for name, entry in sorted(_REGISTRY.items())
        if plain in (None, entry.bind is None)
    }


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises
    ------
    UsageError
        If no algorithm has that name; the message lists all names.
    """
    known = _REGISTRY if name in _REGISTRY else algorithms()
    if name not in known:
        raise UsageError(
            f"no algorithm {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return known[name]


def check_layout(problem: Problem, who: str, layout: Layout, **resolved) -> None:
    """Refuse partitions other than an algorithm's layout. Another text for the same tiles and
    owners is accepted, but not another grid, where ranks without tiles have other coordinates.

    Parameters
    ----------
    problem : Problem
    who : str
        The algorithm, for the message.
    layout : tuple of str, or callable
        Text forms of the partitions of A, B and C, or the function that returns them.
    **resolved
        Options that such a function takes.

    Raises
    ------
    UnsupportedError
        With the layout that is needed.
    """
    sizes = problem.m, problem.n, problem.k, problem.nprocs
    texts = texts_of(layout, *sizes, **resolved)
    needed = replace(problem, transpose="", **dict(zip("abc", texts)))
    for operand, other in zip(problem.operands, needed.operands):
        placed = operand.partition
        if placed != other.partition or placed.places != other.partition.places:
            stored = other.partition.transposed() if operand.transposed else other.partition
            raise UnsupportedError(
                f"{who} needs {operand.name} as {stored.text} (algorithm requirement); got "
                f"{operand.stored.text}. "
                f"Leave --{operand.name.lower()} out, or use --algorithm universal."
            )
