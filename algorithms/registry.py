"""The registry: algorithms by name, found by importing every module of this package, and what they
take: a value that somebody gives is described once, as an :class:`Option`.

Algorithms and peers declare their options so, a case its fields; command line, sweep files, records
and figures go by the description.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from drbench.errors import DrbenchError, UsageError, did_you_mean
from drbench.program.problem import Problem
from drbench.program.steps import Step
from drbench.program.trace import Trace, trace
from partitions import partition

_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
#: How a number of each unit may be written.
_MOST = 1 << 63  # what a record's column holds
_EXAMPLES = {"elements": ", such as 4096 or 48Ki", "bytes": ", such as 64MiB"}


def whole_number(text: str, unit: str = "elements") -> int | None:
    """A whole number with an optional binary prefix; None if the text is none.

    Examples
    --------
    >>> [whole_number(text) for text in ("4096", "48Ki", "1.5Ki", "1.3", "-1")]
    [4096, 49152, 1536, None, None]
    >>> whole_number("2GiB", "bytes"), whole_number("1.0", "")
    (2147483648, None)
    """
    point, suffix = r"(?:\.\d{1,9})?" if unit else "", "b?" if unit == "bytes" else ""
    found = re.fullmatch(
        rf"(\d{{1,19}}{point})\s*(ki|mi|gi|ti)?{suffix}",
        text.strip().lower(),
        re.ASCII,
    )
    value = Fraction(found[1]) * _BINARY[found[2] or ""] if found else Fraction(1, 2)
    return int(value) if value.denominator == 1 else None


@dataclass(frozen=True)
class Option:
    """One option of an algorithm or a peer, or one field of a case.

    Attributes
    ----------
    name : str
        In programs and files; on the command line ``--name``, with dashes.
    type : type or tuple of str
        ``int``, ``float``, ``bool``, ``str``, or the words to choose from.
    default : object
        None: decided when it is run; ``says`` tells how.
    help, says : str
        What it is for, and the default in words where it is None.
    least : int, optional
        The smallest number.
    unit : str
        ``elements`` or ``bytes`` of a number that may be written as 48Ki or 64MiB.
    words : tuple of str
        What may stand for a number.
    check : callable, optional
        ``check(value)`` -> the value, or UsageError.
    tried : tuple, or callable
        Values that ``drbench tune`` tries, or ``tried(nprocs)`` -> those; none: left open.
    metavar, group : str
        What the help shows for the value, and under which heading.
    called : str
        The name on the command line, if it is another than that of the field.
    old : tuple of str
        What it was called on the command line: accepted with a warning for one release.

    Examples
    --------
    >>> slices = Option("slices", int, least=1)
    >>> slices.read("8"), Option("chunk", int, unit="elements", words=("auto",)).read("auto")
    (8, 'auto')
    >>> slices.read(0)
    Traceback (most recent call last):
    drbench.errors.UsageError: must be a whole number of at least 1, got 0.
    """

    name: str = ""
    type: Any = str
    default: Any = None
    help: str = ""
    says: str = ""
    least: int = 0
    unit: str = ""
    words: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    tried: Any = ()
    metavar: str | None = None
    group: str = "Algorithm"
    called: str = ""
    old: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """What it is called on the command line."""
        return self.called or f"--{self.name.replace('_', '-')}"

    @property
    def about(self) -> str:
        """What it may be, in words."""
        if isinstance(self.type, tuple):
            return f"one of {', '.join(self.type)}"
        kind = {
            bool: "true or false",
            int: f"a whole number of at least {self.least}{_EXAMPLES.get(self.unit, '')}",
            float: "a number",
            str: "a text on one line, without control characters",
        }[self.type]
        return ", or ".join([kind, *self.words])

    def read(self, value: Any) -> Any:
        """A value as the command line, a sweep file or a record has it, checked.

        Raises
        ------
        UsageError
            Without the name, which callers put before it.
        """
        if value in self.words and isinstance(value, str):
            return value
        found = self._typed(value)
        if found is None:
            hint = did_you_mean(str(value), self.type) if isinstance(self.type, tuple) else ""
            shown = repr(value) if len(repr(value)) < 100 else f"{repr(value)[:60]}..."
            if self.type is int and _too_large(value, self.unit):
                raise UsageError(f"must be below 2**63, got {shown}.")
            raise UsageError(f"must be {self.about}, got {shown}.{hint}")
        return found if self.check is None else self.check(found)

    def _typed(self, value: Any) -> Any:
        """The value as its type; None if it is not of it."""
        if isinstance(self.type, tuple):
            return value if value in self.type else None
        if isinstance(value, str):
            value = _READ[self.type](value, self.unit)
        if self.type is float and type(value) is int:
            value = float(value)
        fits = type(value) is self.type
        if self.type is int:
            fits = fits and self.least <= value < _MOST
        return value if fits else None


def _float(text: str, unit: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


#: How a text is read as each type; None if it is none.
def _too_large(value: Any, unit: str) -> bool:
    """Whether a value is a whole number that no column of a record holds."""
    if isinstance(value, str):
        if re.fullmatch(r"\d{20,}", value.strip(), re.ASCII):
            return True
        value = whole_number(value, unit)
    return type(value) is int and value >= _MOST


_READ: dict[type, Callable[[str, str], Any]] = {
    str: lambda text, unit: text if text.strip() and text.isprintable() else None,
    bool: lambda text, unit: {"true": True, "false": False}.get(text),
    int: whole_number,
    float: _float,
}


def named(*options: Option) -> dict[str, Option]:
    """Options by name."""
    return {option.name: option for option in options}


def read_as_any(options: Iterable[Option], value: Any) -> Any:
    """A value as the first of these descriptions that takes it; the last one's error otherwise."""
    refusal = None
    for option in options:
        try:
            return option.read(value)
        except DrbenchError as error:
            refusal = error
    raise refusal


def pick_options(name: str, known: dict[str, Option], options: dict) -> dict:
    """Those of the options that are set, meaning not None; a UsageError if ``name`` does not know
    one of them."""
    picked = {option: value for option, value in options.items() if value is not None}
    for option in picked:
        if option not in known:
            takes = ", ".join(each.flag for each in known.values()) or "no options of its own"
            raise UsageError(f"{name} takes no {Option(option).flag}. It takes {takes}.")
    return picked


def check_options(known: dict[str, Option], options: dict) -> None:
    """A UsageError that names the option if a value is none of those it may have; None and what is
    not known are left alone."""
    for name, option in known.items():
        if options.get(name) is not None:
            try:
                option.read(options[name])
            except DrbenchError as error:
                raise UsageError(f"{name} {error}") from None


def _blocks(m: int, n: int, k: int, nprocs: int, **options) -> tuple[str, str, str]:
    return "block", "block", "block"


def _as_given(problem: Problem, in_place: bool, **options) -> dict:
    return options


def _unknown(problem: Problem, **settled) -> tuple[str, ...]:
    return ()


def _nothing(problem: Problem, in_place: bool, **options) -> list[str]:
    return []


def _never(problem: Problem, **settled) -> int:
    return 0


def _plain(*given, **options) -> Problem:
    return Problem(*given)


def goes_by_model(settled: dict) -> bool:
    """Whether a program of ours decides by what a machine takes for its steps: a schedule by cost,
    the order of pushed partial sums, what is packed.

    Examples
    --------
    >>> goes_by_model({"schedule": "cost"}), goes_by_model({"sums": "push"}), goes_by_model({})
    (True, True, False)
    """
    by_cost = settled.get("schedule", "").startswith(("cost", "exhaustive"))
    pushes = settled.get("sums", "accumulate") != "accumulate"
    return by_cost or pushes or settled.get("pack", "never") != "never"


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
        members run congruent programs (:mod:`drbench.model.symmetry`) if all tiles are alike, so
        that one member can stand for all in a simulation.
    signals : bool, or callable
        Its ranks signal each other (:mod:`drbench.program.signal_steps`), or
        ``signals(**options)`` says whether they do.
    why : callable
        ``why(problem, in_place, **options)`` -> lines on what was decided, and why, that ``drbench
        plan`` shows; the options as they are asked for.
    bind : callable
        ``bind(m, n, k, nprocs, a, b, c, dtype, transpose, updates, **options)`` -> the problem;
        another than C = A·B has its shapes and products.
    one_sided : bool
        Its programs have no steps of process rows and columns, which want tiles without gaps.
    dispatches : callable
        Of a program that stands for a library which Python dispatches: ``dispatches(problem,
        **settled)`` -> how often the device waits for its host, ``dispatch_s`` of the machine model
        each time.
    """

    name: str
    program: Callable[..., Iterator[Step]]
    about: str
    options: dict[str, Option]
    decide: Callable[..., dict]
    layout: Callable[..., tuple[str, str, str]] = _blocks
    congruent: Callable[..., tuple[str, ...]] = _unknown
    signals: bool | Callable[..., bool] = False
    why: Callable[..., list[str]] = _nothing
    bind: Callable[..., Problem] = _plain
    one_sided: bool = False
    dispatches: Callable[..., int] = _never

    def lighter(self, options: dict) -> list[dict]:
        """The options that take less memory and may be run in place of these, if these do not fit:
        what was left to be decided, decided so.

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
        """The look-ahead without ``--prefetch``: where values come with signals nothing else holds
        a product.

        Examples
        --------
        >>> universal = get_algorithm("universal")
        >>> universal.prefetch(), universal.prefetch(sums="push")
        (1, 'all')
        """
        return "all" if self.signalling(**options) else 1

    def prefetches(self, **options) -> tuple[int | str, ...]:
        """Look-aheads that ``drbench tune`` tries with these options, that without ``--prefetch``
        first."""
        return ("all", 1) if self.signalling(**options) else (1,)

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
        transpose: str = "",
        updates: bool = False,
        **options,
    ) -> Problem:
        """The problem, on the algorithm's own layout where a partition is None.

        Partitions that are given are those of the matrices as they are stored. An algorithm's own
        are of op(A), op(B) and C, so that it moves the same whatever is stored transposed.

        Examples
        --------
        >>> get_algorithm("universal").problem(64, 64, 64, 4, a="row").texts
        {'a': 'row', 'b': 'block', 'c': 'block'}
        >>> get_algorithm("fsdp").problem(64, 64, 64, 4, transpose="b").texts
        {'a': 'row', 'b': 'column', 'c': 'row'}
        """
        own, stored = self.layout(m, n, k, nprocs, **options), []
        shapes = self.bind(m, n, k, nprocs, *own, dtype, **options).shapes() if transpose else {}
        for name, given, text in zip("ABC", (a, b, c), own):
            if given is None and name.lower() in transpose:
                stored.append(partition(text, shapes[name], nprocs, role=name).transposed())
            else:
                stored.append(given or text)
        return self.bind(m, n, k, nprocs, *stored, dtype, transpose, updates, **options)

    def trace(self, problem: Problem, rank: int, **options) -> Trace:
        """The traced program of one rank."""
        check_options(self.options, options)
        program = self.program(problem, rank, **options)
        return trace(program, problem, rank, signals=self.signalling(**options))


def algorithm(
    name: str,
    *,
    options: tuple[Option, ...] = (),
    settle: Callable[..., dict] = _as_given,
    **more: Any,
):
    """Register a program under a name, with the options it takes; ``layout``, ``congruent``,
    ``signals`` and ``why`` are those of :class:`Algorithm`.

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
            **more,
        )
        return program

    return register


def algorithms(*, plain: bool | None = None) -> dict[str, Algorithm]:
    """All algorithms by name, in alphabetical order; or those of C = A·B, or of other problems.

    Examples
    --------
    >>> list(algorithms(plain=False))
    ['ag2_moe', 'ag_moe', 'moe_collective', 'moe_rs', 'moe_rs2']
    """
    package = importlib.import_module(__package__)
    for module in pkgutil.walk_packages(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return {
        name: found
        for name, found in sorted(_REGISTRY.items())
        if plain in (None, found.bind is _plain)
    }


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises
    ------
    UsageError
        If there is none; the message lists those there are.
    """
    known = _REGISTRY if name in _REGISTRY else algorithms()
    if name not in known:
        raise UsageError(
            f"no algorithm {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    return known[name]
