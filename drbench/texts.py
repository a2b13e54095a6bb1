"""How numbers, shapes and layouts are written, the same in every output, figure and page: three
digits that count, a unit that fits, m × n × k."""

from collections.abc import Sequence
from decimal import Decimal
from math import isfinite


def number(value: float, digits: int = 3) -> str:
    """A number with at most this many digits that count, never in powers of ten.

    Examples
    --------
    >>> number(1234567.0), number(0.05), number(20.0), number(2.345), number(12345.6, 4)
    ('1230000', '0.05', '20', '2.35', '12350')
    """
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def marked(text: str, marks: str | None) -> str:
    """A number in a table with the marks of its row before it, so that numbers stay in line.

    Examples
    --------
    >>> marked("12 ms", "±="), marked("12 ms", "")
    ('±= 12 ms', '12 ms')
    """
    return f"{worth(marks)} {text}" if marks else text


def worth(marks: str) -> str:
    """The marks that say something: of a noisy row (~) the others do not.

    Examples
    --------
    >>> worth("~±?"), worth("±?")
    ('~', '±?')
    """
    return "~" if "~" in marks else marks


def plural(count: int, what: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "case"), plural(0, "case"), plural(12, "row")
    ('1 case', '0 cases', '12 rows')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def bytes_text(count: float) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> bytes_text(0), bytes_text(1023), bytes_text(1536), bytes_text(-1024)
    ('0 B', '1023 B', '1.5 KiB', '-1 KiB')
    >>> bytes_text(64 * 2**20), bytes_text(5 * 2**30), bytes_text(3000 * 2**40)
    ('64 MiB', '5 GiB', '3000 TiB')
    """
    return _scaled(count, 1024, ["TiB", "GiB", "MiB", "KiB", "B"], 4)


def _scaled(value: float, by: int, units: list[str], digits: int = 3) -> str:
    """A number in the first of some units, the largest first, that divides it."""
    while abs(value) >= by and units[1:]:
        value /= by
        units.pop()
    return f"{number(value, digits)} {units[-1]}"


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time is a readable number: its length in seconds and its name.

    Examples
    --------
    >>> time_unit(0.02), time_unit(3.0), time_unit(2e-5)
    ((0.001, 'ms'), (1.0, 's'), (1e-06, 'µs'))
    """
    return (1.0, "s") if seconds >= 1 else (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "µs")


def time_text(seconds: float | None) -> str:
    """A time in µs, ms or s; ``-`` for an unknown one.

    Examples
    --------
    >>> time_text(0.0123), time_text(2.5), time_text(999e-6), time_text(1e-9), time_text(0)
    ('12.3 ms', '2.5 s', '999 µs', '0.001 µs', '0 s')
    >>> time_text(None), time_text(29924.0)
    ('-', '29924 s')
    """
    if seconds is None:
        return "-"
    if seconds >= 1000:
        return f"{seconds:.0f} s"
    length, unit = time_unit(seconds) if seconds else (1.0, "s")
    return f"{number(seconds / length)} {unit}"


def duration_text(seconds: float) -> str:
    """A long time in a unit that fits.

    Examples
    --------
    >>> [duration_text(seconds) for seconds in (12.3, 75, 2280, 29924, 400000)]
    ['12 s', '75 s', '38 min', '8.3 h', '4.6 days']
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds:.0f} s"


def between(seconds: float, low: float | None, high: float | None) -> str:
    """A time with the ends of its interval, if any, all in the unit of the time.

    Examples
    --------
    >>> between(0.0123, 0.0119, 0.0131), between(0.0123, None, None)
    ('12.3 ms (11.9-13.1)', '12.3 ms')
    """
    text = time_text(seconds)
    if low is None or high is None:
        return text
    return f"{text} ({span(low, high, seconds)})"


def span(low: float, high: float, seconds: float) -> str:
    """The ends of an interval in the unit of a time.

    Examples
    --------
    >>> span(0.0119, 0.0131, 0.0123), span(682e-6, 1152e-6, 794e-6)
    ('11.9-13.1', '682-1150')
    """
    length, _ = time_unit(seconds)
    return f"{number(low / length)}-{number(high / length)}"


def rate_text(gflops: float) -> str:
    """A rate in GFLOP/s, or from a thousand of them on in TFLOP/s.

    Examples
    --------
    >>> rate_text(392.84), rate_text(106200.0), rate_text(0.5), rate_text(999.96)
    ('393 GFLOP/s', '106 TFLOP/s', '0.5 GFLOP/s', '1 TFLOP/s')
    """
    if not isfinite(gflops) or gflops < 999.5:
        return f"{number(gflops)} GFLOP/s"
    return f"{number(gflops / 1e3)} TFLOP/s"


def flops_text(flops: float) -> str:
    """A number of floating-point operations.

    Examples
    --------
    >>> flops_text(536870912), flops_text(1.154e13), flops_text(48)
    ('537 MFLOP', '11.5 TFLOP', '48 FLOP')
    """
    return _scaled(flops, 1000, ["PFLOP", "TFLOP", "GFLOP", "MFLOP", "kFLOP", "FLOP"])


def shape_text(m: int, n: int, k: int) -> str:
    """The sizes of a multiplication: C is m × n, and k is the axis that is summed.

    Examples
    --------
    >>> shape_text(1024, 49152, 12288)
    '1024 × 49152 × 12288'
    """
    return f"{m} × {n} × {k}"


def layouts_text(texts: Sequence[str | None]) -> str:
    """The layouts of A, B and C, equal ones together; one text if all have the same.

    Examples
    --------
    >>> layouts_text(["row", "column", "column"]), layouts_text(["row"] * 3)
    ('A row · BC column', 'row')
    >>> layouts_text(["row", "column", "block"]), layouts_text([None] * 3)
    ('A row · B column · C block', '?')
    """
    names: dict[str, str] = {}
    for name, text in zip("ABC", texts, strict=True):
        names[text or "?"] = names.get(text or "?", "") + name
    if len(names) == 1:
        return next(iter(names))
    return " · ".join(f"{name} {text}" for text, name in names.items())
