"""Values in sweep and machine files: numbers, texts, ranges. Each error names the file and the key
it was found at."""

import re
import tomllib
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from drbench.errors import DrbenchError, UsageError, shown
from drbench.options import Option, read_as_any
from partitions import LayoutError, parse

#: More cases than this from one range is a slip of the pen.
_MOST = 100_000
_DATA = Path(__file__).parents[1] / "data"


def shipped(kind: str) -> dict[str, Path]:
    """The files of a kind that come with drbench, by name in alphabetical order.

    Examples
    --------
    >>> "exhaustive" in shipped("sweeps"), "pvc12" in shipped("machines")
    (True, True)
    """
    found = {path.stem: path for path in (_DATA / kind).glob("*.toml")}
    return dict(sorted(found.items()))


def read_toml(
    path: Path,
    way_out: str = "Use a file that can be read.",
    parse: Callable[[str], Any] = tomllib.loads,
) -> Any:
    """What a TOML file holds.

    Raises
    ------
    UsageError
        If it cannot be read, with the way out; or is not TOML.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}. {way_out}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path.name} is not TOML: {error}.") from None


def require(holds: Any, where: str, what: str, value: Any) -> None:
    """A UsageError that says what a value must be, unless it is."""
    if not holds:
        raise UsageError(f"{where}: must be {what}; got {shown(value)}.")


def check_keys(table: dict, known: Iterable[str], where: str) -> None:
    """A UsageError for a key of a table that there is not."""
    for key in table:
        if key not in known:
            raise UsageError(f"{where}{key}: there is no such key. There are {', '.join(known)}.")


def read_at(where: str, options: Iterable[Option], value: Any) -> Any:
    """A value as one of these descriptions takes it.

    Examples
    --------
    >>> read_at("m", [Option("m", int, unit="elements")], "48Ki")
    49152
    """
    try:
        return read_as_any(options, value)
    except DrbenchError as error:
        raise UsageError(f"{where}: {error}") from None


def scale_of(text, where: str = "") -> Fraction:
    """A factor on all extents, as ``1/16``, ``0.25`` or ``2/1``.

    Raises
    ------
    UsageError
        If it is none, or a bare whole number above 1: it once divided in some commands and
        multiplied in others.

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
        factor = Fraction(given) if not isinstance(text, bool) else Fraction(0)
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if factor <= 0:
        raise UsageError(
            f"{where}{shown(text)} is no scale. Use a factor such as 1/16, 0.25 or 2/1."
        )
    if (
        factor > 1
        and factor.denominator == 1
        and "/" not in given
        and not isinstance(text, Fraction)
    ):
        number = shown(factor.numerator)
        raise UsageError(
            f"{where}{given:.40}: write 1/{number} to divide by {number} or {number}/1 to "
            "multiply by it."
        )
    return factor


def scaled_size(size: int, scale: Fraction) -> int:
    """An extent times a scale, rounded down, at least 1.

    Raises
    ------
    UsageError
        If no extent is as large.

    Examples
    --------
    >>> scaled_size(12288, Fraction(1, 16)), scaled_size(3, Fraction(1, 16))
    (768, 1)
    """
    found = max(1, int(size * scale))
    if found >= 1 << 63:
        raise UsageError(
            f"{size} times the scale {shown(str(scale))} is too large. Use a lower one."
        )
    return found


def integer(value, where: str, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    fits = type(value) is int and least <= value < 1 << 63
    require(fits, where, f"a whole number of at least {least}", value)
    return value


def check_text(value, where: str) -> str:
    """A text on one line without control characters (it goes into records, file names and job
    scripts)."""
    return value if value == "" else read_at(where, [Option()], value)


def name_of(value, file: str) -> str:
    """The name of a sweep: letters, digits, - and _, at most 60 (it names folders and jobs)."""
    fits = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", value)
    require(fits, f"{file}: name", "letters, digits, - and _ only, at most 60", value)
    return value


def values_of(value, where: str, options: Iterable[Option]) -> list:
    """A value, a list of them, or a half-open range.

    Examples
    --------
    >>> size = [Option("m", int, least=1, unit="elements")]
    >>> values_of({"start": 1, "stop": 10, "step": 4}, "m", size)
    [1, 5, 9]
    >>> values_of({"start": "1Ki", "stop": "8Ki", "factor": 2}, "m", size)
    [1024, 2048, 4096]
    """
    if isinstance(value, list):
        require(value, where, "a list that is not empty", value)
        return [read_at(where, options, each) for each in value]
    if not isinstance(value, dict):
        return [read_at(where, options, value)]
    if not any(option.type is int for option in options):
        raise UsageError(f"{where}: takes no range; got {shown(value)}.")
    by = [key for key in ("step", "factor") if key in value]
    if set(value) != {"start", "stop", *by} or len(by) != 1:
        raise UsageError(
            f"{where}: a range has start, stop and either step or factor; got "
            f"{', '.join(value) or 'nothing'}."
        )
    at, stop, move = (
        read_at(where, options, value["start"]),
        read_at(where, options, value["stop"]),
        integer(value[by[0]], where, 1 if by == ["step"] else 2),
    )
    if by == ["factor"] and at < 1:
        raise UsageError(f"{where}: a range with a factor starts at 1 or more, got {at}.")
    found = []
    while at < stop:
        found.append(at)
        if len(found) > _MOST:
            raise UsageError(f"{where}: the range has more than {_MOST} values. Use a larger step.")
        at = at + move if by == ["step"] else at * move
    if not found:
        raise UsageError(
            f"{where}: the range is empty (start {value['start']}, stop {value['stop']}, which "
            "is not in it)."
        )
    return found


def overrides_of(
    pairs: Iterable[tuple[str, str]], takers: Callable[[str], list[Option]]
) -> dict[str, Any]:
    """Keys of a sweep file and their values, of ``KEY=VALUE`` texts. Several values of a key are
    separated by commas, unless it takes the text as one, or stand in brackets as in a sweep file,
    or the key is there several times.

    Parameters
    ----------
    takers : callable
        ``takers(key)`` -> what describes its values; UsageError if there is no such key.

    Examples
    --------
    >>> takers = lambda key: [Option(key, int)] if key == "m" else [Option(key)]
    >>> overrides_of([("m", "1,2"), ("a", "S(0),R@2x3"), ("x", "[1, 2]"), ("x", "y")], takers)
    {'m': ['1', '2'], 'a': 'S(0),R@2x3', 'x': [1, 2, 'y']}
    """
    found: dict[str, Any] = {}
    for key, text in pairs:
        options = takers(key)
        text = str(text)
        if text[:1] in ("[", "{"):
            try:
                value = tomllib.loads(f"x = {text}")["x"]
            except ValueError as error:
                raise UsageError(f"-o {key}={text} is not TOML: {error}.") from None
        else:
            one = "," not in text or _is_one(key, text, options)
            words = [text] if one else [word.strip() for word in text.split(",")]
            words = [{"true": True, "false": False}.get(word, word) for word in words]
            if not options:  # no field and no option: nobody else reads numbers
                words = [int(each) if str(each).isdecimal() else each for each in words]
            value = words[0] if one else words
        if key in found:
            both = (found[key], value)
            value = [each for part in both for each in (part if type(part) is list else [part])]
        found[key] = value
    return found


def _is_one(key: str, text: str, options: list[Option]) -> bool:
    """Whether a text with commas is one value: a partition, or what a check takes."""
    if key in ("a", "b", "c"):
        try:
            return bool(parse(text))
        except LayoutError:
            return False
    checked = [each for each in options if each.check]
    try:
        return bool(checked) and bool(read_as_any(checked, text))
    except DrbenchError:
        return False
