"""``drbench bandwidth``: its sizes, its transfers and its table."""

from collections.abc import Sequence

from rich.table import Table

from drbench.errors import DrbenchError, UsageError
from drbench.measure.noise import LEAST_SHARE
from drbench.options import Option
from drbench.texts import bytes_text, plural, time_text
from launch.host.show import table

_SIZE = Option(type=int, least=8, unit="bytes")
#: More sizes are taken for a mistake.
_MOST_SIZES = 64


def sizes_of(text: str) -> list[int]:
    """The sizes of ``--sizes``, in bytes, sorted.

    Raises
    ------
    UsageError

    Examples
    --------
    >>> sizes_of("1MiB,64KiB"), sizes_of("4KiB:64KiB:4"), sizes_of("1KiB:3KiB:2")
    ([65536, 1048576], [4096, 16384, 65536], [1024, 2048])
    """
    remedy = "Use sizes as 64KiB,1MiB, or FIRST:LAST:FACTOR as 4KiB:64MiB:2."
    try:
        if ":" not in text:
            return sorted({_SIZE.read(word.strip()) for word in text.split(",")})
        first, last, by = text.split(":")
        size, largest, factor = _SIZE.read(first), _SIZE.read(last), int(by)
    except (DrbenchError, ValueError) as error:
        described = f"{error} " if isinstance(error, DrbenchError) else ""
        raise UsageError(f"{text!r}: {described}{remedy}") from None
    found = []
    while size <= largest and factor > 1 and len(found) <= _MOST_SIZES:
        found.append(size)
        size *= factor
    if not 0 < len(found) <= _MOST_SIZES:
        raise UsageError(f"{text!r} is not a range of 1 to {_MOST_SIZES} sizes. {remedy}")
    return found


def operations_of(text: str | None) -> list[str]:
    """The types of transfers of a comma-separated list, in that order; by default all. The copy,
    which is the roof, is always measured.

    Examples
    --------
    >>> operations_of("shift,get"), operations_of(None)[-2:]
    (['get', 'shift', 'copy'], ['shift', 'copy'])
    """
    from plots.select.bandwidth_rows import COPY, OPERATIONS

    names = [word.strip() for word in text.split(",")] if text else OPERATIONS
    for name in names:
        if name not in OPERATIONS:
            raise UsageError(f"--only: {name!r} is none of {', '.join(OPERATIONS)}.")
    return [*(name for name in OPERATIONS if name in names), COPY]


def bandwidth_table(rows: Sequence) -> Table:
    """A table with a row per type of transfer and size: time with the interval of its median,
    bandwidths, and the percentage of that of a copy."""
    from plots.select.bandwidth_rows import COPY, OPERATIONS

    first = rows[0]
    copies = {row.nbytes: row.bus_gbps for row in rows if row.operation == COPY}
    lines = []
    for row in sorted(rows, key=lambda row: [*OPERATIONS, COPY].index(row.operation)):
        if row.median_s is None:
            lines.append((row.operation, bytes_text(row.nbytes), "", "", "", row.reason))
            continue
        # sizes may be rounded down to divide evenly
        copy = copies[min(copies, key=lambda nbytes: abs(nbytes - row.nbytes))]
        spread = f"{time_text(row.median_low_s)} - {time_text(row.median_high_s)}"
        share = "" if row.operation == COPY else f"{100 * row.bus_gbps / copy:.0f} %"
        lines.append(
            (
                row.operation,
                bytes_text(row.nbytes),
                f"{row.bus_gbps:.2f}",
                time_text(row.median_s),
                share,
                _doubt(row),
                spread,
                f"{row.algorithm_gbps:.2f}",
            )
        )
    columns = "operation|>size|>bus GB/s|>time|>of a copy|~note|95 % of the median|>algorithm GB/s"
    return table(
        columns,
        lines,
        f"{first.ranks} ranks on {plural(first.nodes, 'node')}, transport {first.transport}, "
        f"{first.backend}, {first.dtype}, {first.mpi}; every transfer was verified",
    )


def _doubt(row) -> str:
    if not row.noisy:
        return ""
    lacking = row.core_share is not None and row.core_share < LEAST_SHARE
    return f"noisy: {100 * row.core_share:.0f} % of the cores" if lacking else "noisy"
