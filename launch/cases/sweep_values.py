"""Values in sweep files: sizes, ranges, texts. Each error names the file and the key it was found
at."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from drbench.errors import UsageError

__all__ = ["check_text", "integer", "name_of", "scaled_size", "size_of", "values_of"]

_BINARY = {"": 1, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
#: More cases than this from one range is a slip of the pen.
_MOST = 100_000


def size_of(value, where: str, suffix: str = "", least: int = 1) -> int:
    """A whole number, or a text with a binary prefix.

    Examples
    --------
    >>> size_of("48Ki", "m"), size_of(7, "m"), size_of("1.5KiB", "pool", "b")
    (49152, 7, 1536)
    """
    if isinstance(value, str):
        found = re.fullmatch(
            rf"(\d{{1,15}}(?:\.\d{{1,9}})?)\s*(ki|mi|gi|ti)?{suffix}{'?' if suffix else ''}",
            value.strip().lower(),
            re.ASCII,
        )
        exact = Fraction(found[1]) * _BINARY[found[2] or ""] if found else None
        value = int(exact) if exact is not None and exact.denominator == 1 else value
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise UsageError(
            f"{where}: {value!r} is no size. Use a whole number of at least {least}, such as "
            '4096 or "48Ki".'
        )
    return value


def scaled_size(size: int, scale: Fraction) -> int:
    """An extent times a scale, rounded down, at least 1.

    Examples
    --------
    >>> scaled_size(12288, Fraction(1, 16)), scaled_size(3, Fraction(1, 16))
    (768, 1)
    """
    return max(1, int(size * scale))


def integer(value, where: str, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise UsageError(f"{where}: must be a whole number of at least {least}, got {value!r}.")
    return value


def check_text(value, where: str) -> str:
    """A text on one line without control characters (it goes into records, file names and job
    scripts)."""
    if not isinstance(value, str) or not value.isprintable():
        raise UsageError(
            f"{where}: must be a text on one line, without control characters; got {value!r}."
        )
    return value


def name_of(value, file: str) -> str:
    """The name of a sweep: letters, digits, - and _, at most 60 (it names folders and jobs)."""
    if not isinstance(value, str) or not re.fullmatch(
        r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", value, re.ASCII
    ):
        raise UsageError(
            f"{file}: name: must be letters, digits, - and _ only, at most 60; got {value!r}."
        )
    return value


def values_of(value, where: str, convert: Callable) -> list:
    """A value, a list of them, or a half-open range.

    Examples
    --------
    >>> values_of({"start": 1, "stop": 10, "step": 4}, "m", size_of)
    [1, 5, 9]
    >>> values_of({"start": "1Ki", "stop": "8Ki", "factor": 2}, "m", size_of)
    [1024, 2048, 4096]
    """
    if isinstance(value, list):
        if not value:
            raise UsageError(f"{where}: the list is empty. Give at least one value.")
        return [convert(each, where) for each in value]
    if not isinstance(value, dict):
        return [convert(value, where)]
    try:
        convert(1, where)
    except UsageError:  # a text or true/false
        raise UsageError(f"{where}: takes no range; got {value!r}.") from None
    by = [key for key in ("step", "factor") if key in value]
    if set(value) != {"start", "stop", *by} or len(by) != 1:
        raise UsageError(
            f"{where}: a range has start, stop and either step or factor; got "
            f"{', '.join(value) or 'nothing'}."
        )
    at, stop, move = (
        convert(value["start"], where),
        convert(value["stop"], where),
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
