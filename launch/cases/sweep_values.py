"""Values in sweep and machine files: numbers, texts, ranges. Each error names the file and the
key."""

import re
import tomllib
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import count, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

from drbench.errors import DrbenchError, UsageError, shown
from drbench.options import Option, read_as_any

#: More values than this from one range are taken for a mistake.
_MOST = 100_000
_DATA = Path(__file__).parents[1] / "data"


def shipped(kind: str) -> dict[str, Path]:
    """The files of a kind that come with drbench: name → path, in alphabetical order.

    Examples
    --------
    >>> "exhaustive" in shipped("sweeps"), "pvc12" in shipped("machines")
    (True, True)
    """
    paths = sorted((_DATA / kind).glob("*.toml"), key=attrgetter("stem"))
    return {path.stem: path for path in paths}


def read_toml(
    path: Path,
    remedy: str = "Use a file that can be read.",
    parse: Callable[[str], Any] = tomllib.loads,
) -> Any:
    """The content of a TOML file.

    Raises
    ------
    UsageError
        If the file cannot be read (with a remedy), or is not TOML.
    """
    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path.name} is not TOML: {error}.") from None


def require(holds: Any, where: str, what: str, value: Any) -> None:
    """Raise a UsageError with the requirement and the value, unless it ``holds``."""
    if not holds:
        raise UsageError(f"{where}: must be {what}; got {shown(value)}.")


def check_keys(table: dict, known: Iterable[str], where: str) -> None:
    """Raise a UsageError for an unknown key of a table."""
    for key in table:
        if key not in known:
            raise UsageError(f"{where}{key}: there is no such key. There are {', '.join(known)}.")


def read_table(table: Any, options: dict[str, Option], where: str) -> dict:
    """The values of a table, checked by their descriptions; a UsageError for an unknown key."""
    require(isinstance(table, dict), where, "a table", table)
    check_keys(table, options, f"{where}: ")
    return {key: read_at(f"{where}: {key}", [options[key]], table[key]) for key in table}


def read_at(where: str, options: Iterable[Option], value: Any) -> Any:
    """A value, converted and checked by the first description that fits.

    Examples
    --------
    >>> read_at("m", [Option("m", int, unit="elements")], "48Ki")
    49152
    """
    try:
        return read_as_any(options, value)
    except DrbenchError as error:
        raise UsageError(f"{where}: {error}") from None


def scale_of(text: Any, where: str = "") -> Fraction:
    """A factor on all extents, as ``1/16``, ``0.25`` or ``2/1``.

    Raises
    ------
    UsageError
        If the text is not a factor, or is a bare integer above 1, which earlier versions used both
        to divide and to multiply.

    Examples
    --------
    >>> scale_of("1/16"), scale_of(0.25), scale_of("2/1"), scale_of(1)
    (Fraction(1, 16), Fraction(1, 4), Fraction(2, 1), Fraction(1, 1))
    >>> scale_of(16, "--scale")
    Traceback (most recent call last):
    drbench.errors.UsageError: --scale 16: write 1/16 to divide by 16 or 16/1 to multiply by it.
    """
    where, given = f"{where} " if where else "", str(text)
    try:
        factor = Fraction(given)
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if factor <= 0:
        raise UsageError(
            f"{where}{shown(text)} is not a scale. Use a factor such as 1/16, 0.25 or 2/1."
        )
    if factor > 1 and factor.denominator == 1 and "/" not in given:
        number = shown(factor.numerator)
        raise UsageError(
            f"{where}{given:.40}: write 1/{number} to divide by {number} or {number}/1 to "
            "multiply by it."
        )
    return factor


def scaled_size(size: int, scale: Fraction, where: str = "") -> int:
    """An extent times a scale, rounded down, at least 1.

    Raises
    ------
    UsageError
        If the result is too large; begins with ``where``.

    Examples
    --------
    >>> scaled_size(12288, Fraction(1, 16)), scaled_size(3, Fraction(1, 16))
    (768, 1)
    """
    extent = max(1, int(size * scale))
    if extent >= 1 << 63:
        raise UsageError(
            f"{where}{size} times the scale {shown(str(scale))} is too large. Use a lower one."
        )
    return extent


def check_text(value: Any, where: str) -> str:
    """Check that a text is one line without control characters (for records, file names and job
    scripts), and return it."""
    return value if value == "" else read_at(where, [Option()], value)


def check_name(text: str) -> str:
    """Check the name of a sweep, which names folders and jobs: letters, digits, - and _, at most
    60."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", text):
        raise UsageError(f"must be letters, digits, - and _ only, at most 60; got {shown(text)}.")
    return text


def is_range(item: Any, options: Iterable[Option]) -> bool:
    """Whether a value is meant as a range: it is for a whole number, and has a colon."""
    return ":" in str(item) and any(option.type is int for option in options)


def values_of(item: Any, where: str, options: list[Option]) -> list:
    """The values of an item of a sweep's list: one, or for whole numbers those of a range, with its
    last value.

    Examples
    --------
    >>> size = [Option("m", int, least=1, unit="elements")]
    >>> [values_of(text, "m", size) for text in ("1Ki:9Ki:*2", "3:9:+3", "48Ki")]
    [[1024, 2048, 4096, 8192], [3, 6, 9], [49152]]
    """
    if not is_range(item, options):
        return [read_at(where, options, item)]
    parts = re.fullmatch(r"([^:]+):([^:]+):([*+])([^:]+)", str(item))
    require(parts, where, "FIRST:LAST:*FACTOR or FIRST:LAST:+STEP, as 512:8192:*2", item)
    (first, last), by_factor = (
        (read_at(where, options, x) for x in parts.group(1, 2)),
        parts[3] == "*",
    )
    move = read_at(where, [Option(type=int, least=1 + by_factor)], parts[4])
    is_number = type(first) is type(last) is int  # no word, as all
    require(
        is_number and first >= by_factor, where, "a range of numbers, by a factor from 1 on", item
    )
    values = range(first, last + 1, move)
    if by_factor:
        values = list(takewhile(last.__ge__, (first * move**power for power in count())))
    require(values and not values[_MOST:], where, f"a range of 1 to {_MOST} values", item)
    return [*values]


def overrides_of(
    pairs: Iterable[tuple[str, str]], described: Callable[[str], list[Option]]
) -> dict[str, list]:
    """Keys of a sweep file and lists of their values, from pairs of ``KEY=VALUE``. Several values
    are separated by commas (unless the whole text is one value), in brackets as in a sweep file, or
    in several pairs with the same key.

    Parameters
    ----------
    described : callable
        ``described(key)`` -> descriptions of its values; UsageError for an unknown key.

    Examples
    --------
    >>> known = {"m": Option("m", int), "a": Option("a", check=str), "x": Option("x")}
    >>> pairs = [("m", "1,2"), ("a", "S(0),R@2x3"), ("x", "[1, 2]"), ("x", "y")]
    >>> overrides_of(pairs, lambda key: [known[key]])
    {'m': ['1', '2'], 'a': ['S(0),R@2x3'], 'x': [1, 2, 'y']}
    """
    lists: dict[str, list] = {}
    for key, text in pairs:
        options, text = described(key), str(text)
        if text[:1] in ("[", "{"):
            try:
                value = tomllib.loads(f"x = {text}")["x"]
            except ValueError as error:
                raise UsageError(f"-o {key}={text} is not TOML: {error}.") from None
            words = value if isinstance(value, list) else [value]
        else:
            words = [text] if is_one(text, options) else map(str.strip, text.split(","))
        lists.setdefault(key, []).extend(words)
    return lists


def is_one(text: str, options: list[Option]) -> bool:
    """Whether a text with commas is one value, by the check of an option.

    Examples
    --------
    >>> layout = [Option("a", check=str)]
    >>> is_one("R@2x3,S(0)", layout), is_one("1,2", [Option(type=int)]), is_one("a,b", [Option()])
    (True, False, False)
    """
    try:
        return bool(read_as_any([option for option in options if option.check], text))
    except (DrbenchError, TypeError):  # TypeError: no option has a check
        return False
