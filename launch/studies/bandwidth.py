"""``drbench bandwidth``: its sizes, its transfers and its table."""

from collections.abc import Sequence

from rich.table import Table

from drbench.errors import UsageError
from drbench.launch.cases.sweep_values import values_of
from drbench.launch.host.show import table
from drbench.options import Option
from drbench.texts import bytes_text, marked, plural, span, time_text

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
    >>> sizes_of("1MiB,64KiB"), sizes_of("4KiB:64KiB:*4")
    ([65536, 1048576], [4096, 16384, 65536])
    """
    words = map(str.strip, text.split(","))
    sizes = sorted({size for word in words for size in values_of(word, "--sizes", [_SIZE])})
    if len(sizes) > _MOST_SIZES:
        raise UsageError(f"{text!r} has more than {_MOST_SIZES} sizes. Use a larger factor.")
    return sizes


def operations_of(text: str | None) -> list[str]:
    """The types of transfers of a comma-separated list, in that order; by default all. The copy,
    with which others are compared, is always measured.

    Examples
    --------
    >>> operations_of("shift,get"), operations_of(None)[-2:]
    (['get', 'shift', 'copy'], ['shift', 'copy'])
    """
    from drbench.plots.select.bandwidth_rows import COPY, OPERATIONS

    names = [word.strip() for word in text.split(",")] if text else OPERATIONS
    for name in names:
        if name not in OPERATIONS:
            raise UsageError(f"--only: {name!r} is none of {', '.join(OPERATIONS)}.")
    return [*(name for name in OPERATIONS if name in names), COPY]


def bandwidth_answer(rows: Sequence) -> str:
    """The rate of the largest get, or else of the first operation, and its doubt, in one line."""
    from drbench.plots.select.bandwidth_rows import COPY

    timed = [row for row in rows if row.median_s is not None and row.operation != COPY]
    if not timed:
        return "No transfer could be measured."
    gets = [row for row in timed if row.operation == "get"]
    most = max(gets or timed, key=lambda row: row.nbytes)
    copies = [row for row in rows if row.operation == COPY and row.median_s is not None]
    near = min(copies, key=lambda row: abs(row.nbytes - most.nbytes), default=None)
    share = f", {100 * most.bus_gbps / near.bus_gbps:.0f} % of a copy in memory" if near else ""
    noisy, doubt = sum(bool(row.noisy) for row in rows), ""
    if most.noisy or (near and near.noisy):
        doubt = " NOT USABLE: noisy, measure on a quiet machine."
    elif noisy:
        doubt = f" Not usable: {noisy} of {len(rows)} rows, which are noisy (~)."
    return f"{most.operation} of {bytes_text(most.nbytes)}: {most.bus_gbps:.3g} GB/s{share}.{doubt}"


def bandwidth_table(rows: Sequence) -> Table:
    """A table with a row per type of transfer and size: bandwidths, time, the percentage of that of
    a copy, and the interval of the median."""
    from drbench.plots.select.bandwidth_rows import COPY, OPERATIONS

    copies = {row.nbytes: row.bus_gbps for row in rows if row.operation == COPY}
    lines = []
    for row in sorted(rows, key=lambda row: [*OPERATIONS, COPY].index(row.operation)):
        if row.median_s is None:
            lines.append((row.operation, bytes_text(row.nbytes), row.reason))
            continue
        # sizes may be rounded down to divide evenly
        copy = copies[min(copies, key=lambda nbytes: abs(nbytes - row.nbytes))]
        share = "" if row.operation == COPY else f"{100 * row.bus_gbps / copy:.0f} %"
        lines.append(
            (
                row.operation,
                bytes_text(row.nbytes),
                marked(f"{row.bus_gbps:.2f}", "~" if row.noisy else ""),
                time_text(row.median_s),
                share,
                span(row.median_low_s, row.median_high_s, row.median_s),
                f"{row.algorithm_gbps:.2f}",
            )
        )
    columns = "operation|>!size|>!bus GB/s|>!time|>vs. memcpy|>95 % interval|>algorithm GB/s"
    return table(columns, lines, [row._asdict() for row in rows])


def bandwidth_notes(rows: Sequence) -> list[str]:
    """What ran, and what the mark means."""
    first = rows[0]
    nodes = f" on {first.nodes} nodes" if first.nodes > 1 else ""
    described = (
        f"{plural(first.ranks, 'rank')}{nodes}, transport {first.transport}, {first.backend}, "
        f"{first.dtype}, {first.mpi}; every transfer was verified"
    )
    noisy = any(row.noisy for row in rows)
    return [described, *["~ noisy: not usable, measure on a quiet machine"] * noisy]
