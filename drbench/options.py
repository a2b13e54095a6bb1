"""Options: each value that a user can set is described once, as an :class:`Option`.

Algorithms and libraries declare their options so, a case its fields; command line, sweep files,
records and figures use the description.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .errors import DrbenchError, UsageError, did_you_mean, shown

_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
#: Whole numbers are below this limit of a record's columns.
_MOST = 1 << 63
#: How a number of each unit may be written.
_EXAMPLES = {"elements": ", such as 4096 or 48Ki", "bytes": ", such as 64MiB"}


def whole_number(text: str, unit: str = "elements") -> int | None:
    """A whole number with an optional binary prefix; None if the text is not one.

    Examples
    --------
    >>> [whole_number(text) for text in ("4096", "48Ki", "1.5Ki", "1.3", "-1")]
    [4096, 49152, 1536, None, None]
    >>> whole_number("2GiB", "bytes"), whole_number("1.0", "")
    (2147483648, None)
    """
    point, suffix = r"(?:\.\d{1,9})?" if unit else "", "b?" if unit == "bytes" else ""
    match = re.fullmatch(
        rf"(\d{{1,99}}{point})\s*(ki|mi|gi|ti)?{suffix}",
        text.strip().lower(),
        re.ASCII,
    )
    value = Fraction(match[1]) * _BINARY[match[2] or ""] if match else Fraction(1, 2)
    return int(value) if value.denominator == 1 else None


@dataclass(frozen=True)
class Option:
    """One option of an algorithm or a library, or one field of a case.

    Attributes
    ----------
    name : str
        In programs, files and ``-o name=value`` of the command line.
    type : type or tuple of str
        ``int``, ``float``, ``bool``, ``str``, or the words to choose from.
    default : object
        None: decided when it is run, as ``default_text`` describes.
    help, default_text : str
        What the option is for, and the default in words where it is None.
    least : int, optional
        The smallest number.
    unit : str
        ``elements`` or ``bytes`` of a number that may be written as 48Ki or 64MiB.
    words : tuple of str
        Words allowed in place of a number.
    check : callable, optional
        ``check(value)`` -> the value, or UsageError.
    tried : tuple, or callable
        Values that ``drbench tune`` tries, or ``tried(nprocs)`` -> values; empty: not varied.
    metavar, group : str
        What the help shows for the value, and the heading of an option ``--name``; an option
        without a heading is set by ``-o name=value``.
    called : str
        The name on the command line, if it differs from that of the field.

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
    default_text: str = ""
    least: int = 0
    unit: str = ""
    words: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    tried: Any = ()
    metavar: str | None = None
    group: str = ""
    called: str = ""

    @property
    def flag(self) -> str:
        """The option as it is written on the command line.

        Examples
        --------
        >>> Option("chunk").flag, Option("timeline", group="Output").flag
        ('-o chunk', '--timeline')
        """
        if not self.group:
            return f"-o {self.name}"
        return self.called or f"--{self.name.replace('_', '-')}"

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if isinstance(self.type, tuple):
            return f"one of {', '.join(self.type)}"
        kind = {
            bool: "true or false",
            int: f"a whole number of at least {self.least}{_EXAMPLES.get(self.unit, '')}",
            float: "a number",
            str: "a text on one line, without control characters",
        }[self.type]
        return ", or ".join([kind, *self.words])

    @property
    def values(self) -> tuple[str, ...]:
        """The values as help and tables show them.

        Examples
        --------
        >>> Option("width", int, words=("all",)).values, Option("k", ("a", "b")).values
        (('N', 'all'), ('a', 'b'))
        """
        if self.metavar:
            return tuple(self.metavar.split("|"))
        words = self.type if isinstance(self.type, tuple) else self.words
        kinds = {int: ("SIZE",) if self.unit else ("N",), float: ("NUMBER",), str: ("TEXT",)}
        kinds |= {bool: ("true", "false")}
        return (*(() if isinstance(self.type, tuple) else kinds[self.type]), *words)

    @property
    def shown_default(self) -> str:
        """The default in words; empty if there is no default.

        Examples
        --------
        >>> (
        ...     Option("deep", bool, False).shown_default,
        ...     Option("chunk", default_text="all").shown_default,
        ... )
        ('false', 'all')
        """
        return self.default_text or ("" if self.default is None else str(self.default).lower())

    def read(self, value: Any) -> Any:
        """The checked value of what the command line, a sweep file or a record contains.

        Raises
        ------
        UsageError
            Without the name of the option, which callers prepend.
        """
        if value in self.words and isinstance(value, str):
            return value
        converted = self._convert(value)
        if converted is None:
            hint = did_you_mean(str(value), self.type) if isinstance(self.type, tuple) else ""
            raise UsageError(f"must be {self.allowed}, got {shown(value)}.{hint}")
        return converted if self.check is None else self.check(converted)

    def _convert(self, value: Any) -> Any:
        """The value in the option's type; None if it cannot be converted. A UsageError if the
        number is too large for a column of a record."""
        if isinstance(self.type, tuple):
            return value if value in self.type else None
        if isinstance(value, str):
            value = _READ[self.type](value, self.unit)
        if self.type is float and type(value) is int:
            value = float(value)
        fits = type(value) is self.type
        if self.type is int and fits:
            if value >= _MOST:
                raise UsageError(f"must be below 2**63, got {shown(value)}.")
            fits = self.least <= value
        return value if fits else None


def _float(text: str, unit: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


#: Functions that read a text as each type; they return None if it is not of the type.
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
    """The value as read by the first of the options that accepts it; else raise the error of the
    last."""
    refusal: DrbenchError = UsageError("no value is taken.")
    for option in options:
        try:
            return option.read(value)
        except DrbenchError as error:
            refusal = error
    raise refusal


def pick_options(name: str, known: dict[str, Option], options: dict) -> dict:
    """The options that are set (not None); a UsageError if ``name`` does not know one of them."""
    picked = {option: value for option, value in options.items() if value is not None}
    for option in picked:
        if option not in known:
            takes = ", ".join(known) or "no options of its own"
            hint = did_you_mean(option, known)
            raise UsageError(f"{name} takes no {option}. It takes {takes}.{hint}")
    return picked


def check_options(known: dict[str, Option], options: dict) -> None:
    """Raise a UsageError that names the option if a value is not allowed; None and unknown options
    are not checked."""
    for name, option in known.items():
        if options.get(name) is not None:
            try:
                option.read(options[name])
            except DrbenchError as error:
                raise UsageError(f"{name} {error}") from None
