"""Bytes and seconds as readable texts."""

from drbench.common import bytes_text, number


def format_bytes(count: int) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> format_bytes(0), format_bytes(1023), format_bytes(1536), format_bytes(-1024)
    ('0 B', '1023 B', '1.5 KiB', '-1 KiB')
    >>> format_bytes(64 * 2**20), format_bytes(5 * 2**30), format_bytes(3000 * 2**40)
    ('64 MiB', '5 GiB', '3000 TiB')
    """
    return bytes_text(count, 4)


def plural(count: int, what: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "case"), plural(0, "case"), plural(12, "row")
    ('1 case', '0 cases', '12 rows')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(value: float) -> str:
    """A long time in a suitable unit.

    Examples
    --------
    >>> duration(12.3), duration(75), duration(2280), duration(29924), duration(400000)
    ('12 s', '75 s', '38 min', '8.3 h', '4.6 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{value:.0f} s"


def seconds(value: float | None) -> str:
    """Time with a unit.

    Examples
    --------
    >>> seconds(0.0123), seconds(2.5), seconds(999e-6), seconds(4e-6), seconds(1e-9)
    ('12.3 ms', '2.5 s', '999 us', '4 us', '0.001 us')
    >>> seconds(None), seconds(0), seconds(1)
    ('-', '0 us', '1 s')
    """
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f} s"
    scale, unit = _unit(value)
    return f"{number(value / scale)} {unit}"


def _unit(value: float) -> tuple[float, str]:
    """The unit of a time, in seconds, and its name."""
    return (1.0, "s") if value >= 1 else (1e-3, "ms") if value >= 1e-3 else (1e-6, "us")


def between(value: float, low: float | None, high: float | None) -> str:
    """A time with the ends of its interval, if any, all in the unit of the time.

    Examples
    --------
    >>> between(0.0123, 0.0119, 0.0131), between(0.0123, None, None)
    ('12.3 ms (11.9-13.1)', '12.3 ms')
    """
    text = seconds(value)
    if low is None or high is None:
        return text
    return f"{text} ({span(low, high, value)})"


def span(low: float, high: float, value: float) -> str:
    """The ends of an interval in the unit of a time of ``value`` seconds.

    Examples
    --------
    >>> span(0.0119, 0.0131, 0.0123), span(682e-6, 1152e-6, 794e-6)
    ('11.9-13.1', '682-1150')
    """
    scale, _ = _unit(value)
    return f"{number(low / scale)}-{number(high / scale)}"
