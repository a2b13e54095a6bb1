"""Output of the command line: tables, the drawing of partitions, bytes and seconds in readable
units."""

import os
import re
from collections.abc import Iterable
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drbench.common import PHASES
from drbench.host.launcher import launched, started_by_us
from drbench.measure.noise import DOUBTS, cores_text
from drbench.measure.record import Record, by_balance, options_of
from drbench.plan.explain import picture
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from drbench.texts import between, bytes_text, number, plural, time_text
from partitions import Dealt, Partition

_COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "red", "yellow", "bright_black")
#: Options that the line of the algorithm has in its own words.
_SHOWN_OPTIONS = ("stationary", "dataflow", "mesh", "schedule", "ir_max_compute", "ir_max_comm")
#: Characters to which a column of words may be narrowed, if its words are not longer.
_WRAPPED = 18
#: The label of bytes that a rank reads in the memory of another.
_MOVED = {"direct_bytes": "read in place"}
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class _Screen(Console):
    """A console that prints no blanks at the ends of lines, except on a terminal."""

    def print(self, *objects, **how) -> None:
        if self.is_terminal:
            return super().print(*objects, **how)
        with self.capture() as printed:
            super().print(*objects, **how)
        self.file.write(re.sub(" +(?=\n)", "", printed.get()))
        self.file.flush()


def console(**how) -> Console:
    """Standard output; 160 columns wide if it is not a terminal, unless COLUMNS is set. That of a
    rank is none: Open MPI's terminals are copied to wherever the launcher writes."""
    here = launched()
    if started_by_us() or (here and (here.size > 1 or here.variable.startswith("OMPI"))):
        how["force_terminal"] = False
    out = _Screen(highlight=False, **how)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = 160
    return out


class _Fitted(Table):
    """A table that leaves out its last columns if not all fit the width, and prints their names.
    The first column and those of ``keys``, which distinguish rows, stay."""

    keys: set[int] = set()

    def __rich_console__(self, console, options):
        every = self.columns
        kept = dict(enumerate(map(self._least_width, every)))
        free = [at for at in kept if at and at not in self.keys]
        while free and sum(kept.values()) + 3 * len(kept) > options.max_width + 1:
            del kept[free.pop()]
        self.columns = [every[at] for at in kept]
        yield from super().__rich_console__(console, options)
        if left := [str(column.header) for at, column in enumerate(every) if at not in kept]:
            yield Text(f"Not shown in {options.max_width} columns: {', '.join(left)}.")
        self.columns = every

    @staticmethod
    def _least_width(column) -> int:
        """Characters that a column needs: if it may wrap, those of its longest word, at least
        ``_WRAPPED``; else those of its longest line."""
        texts = [Text(str(column.header)), *column.cells]
        whole = max(
            (cell_len(line) for text in texts for line in str(text).splitlines()), default=0
        )
        if column.no_wrap:
            return whole
        words = (cell_len(word) for text in texts for word in str(text).split())
        return min(whole, max(_WRAPPED, *words, 0))


def table(columns: str, rows: Iterable[Iterable], title: str | None = None) -> Table:
    """A table of texts, printed without markup.

    Parameters
    ----------
    columns : str
        Names separated by ``|``, the most important first: a narrow terminal shows only the first
        ones. ``>`` marks a column of numbers, ``~`` one of words, which may wrap, ``!`` one that
        identifies the row and is never left out; no names for no header.
    rows : iterable
        Rows of str and :class:`rich.text.Text`.

    Examples
    --------
    >>> [column.justify for column in table("who|> time", [("a", "1 s")]).columns]
    ['left', 'right']
    >>> from io import StringIO
    >>> narrow = Console(width=28, file=StringIO())
    >>> narrow.print(table(">time|~how|memory", [("1.5 s", "rows of A and B once", "12 MiB")]))
    >>> print("\\n".join(map(str.rstrip, narrow.file.getvalue().splitlines()[1:])))
      time   how
     ──────────────────────────
     1.5 s   rows of A and B
             once
    <BLANKLINE>
    Not shown in 28 columns:
    memory.
    """
    made = _Fitted(
        box=SIMPLE_HEAD,
        show_header=bool(columns.strip("|~!>")),
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    made.keys = {at for at, name in enumerate(columns.split("|")) if name.strip(">~")[:1] == "!"}
    for name in columns.split("|"):
        text = name.lstrip(">~! ")
        how = name.removesuffix(text)
        justify = "right" if ">" in how else "left"
        made.add_column(text, justify=justify, no_wrap="~" not in how, overflow="fold")
    for cells in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return made


def answer_text(record: Record) -> str:
    """Whether a case is correct, its time, rate and share of GEMM-only speed; or its status.

    Examples
    --------
    >>> run = dict(status="ok", best_s=0.25, gflops=1234.5, percent_of_gemm_only=94.06)
    >>> answer_text(Record(**run, mode="measured", error=0.0))
    'ok, exact: 250 ms, 1234 GFLOP/s, 94.1 % of GEMM-only speed'
    >>> answer_text(Record(**run, mode="simulated", median_low_s=0.2, median_high_s=0.5))
    'predicted: 250 ms (200-500), 1234 GFLOP/s, 94.1 % of GEMM-only speed'
    >>> answer_text(Record(mode="measured", status="timeout", reason="after 60 s"))
    'timeout: after 60 s'
    """
    if record.status != "ok" or record.best_s is None:
        return f"{record.status}: {record.reason}"
    simulated = record.mode == "simulated"
    error = "not verified" if record.error is None else f"error {record.error:.3g}"
    verdict = "predicted" if simulated else f"ok, {error if record.error != 0 else 'exact'}"
    time = predicted_text(record) if simulated else time_text(record.time_s)
    roof = record.percent_of_gemm_only
    bound = "" if roof is None else f", {roof:.1f} % of GEMM-only speed"
    return f"{verdict}: {time}, {number(record.gflops, 4)} GFLOP/s{bound}"


#: Columns of a record that ``--brief`` prints, in this order, before the others of its case.
_BRIEF = (
    "mode status time_s gflops percent_of_gemm_only moved_bytes error noisy m n k dtype ranks a b c"
)


def brief_record(record: Record) -> str:
    """The line of ``--brief`` for a record.

    Examples
    --------
    >>> brief_record(Record(mode="measured", status="ok", best_s=0.25, m=8, n=8, k=8))[:51]
    'drbench mode=measured status=ok time_s=0.25 gflops='
    """
    values = {name: getattr(record, name) for name in [*_BRIEF.split(), "algorithm"]}
    return brief(values | options_of(record) | ({"reason": record.reason} if record.reason else {}))


def brief(values: dict) -> str:
    """One line of ``NAME=VALUE``, in the units of the names; ``-`` for an unknown value and ``_``
    for a space.

    Examples
    --------
    >>> brief({"time_s": 1.5e-05, "noisy": None, "a": "S(0), R@2x2", "exact": True})
    'drbench time_s=1.5e-05 noisy=- a=S(0),_R@2x2 exact=true'
    """
    text = lambda value: (
        "-"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value).replace(" ", "_")
    )
    return " ".join(["drbench", *(f"{name}={text(value)}" for name, value in values.items())])


def show_record(record: Record) -> None:
    """Print the result of ``drbench run`` or ``drbench simulate``, and a table of its case."""
    out, simulated = console(), record.mode == "simulated"
    fine = record.status == "ok"
    colour = "red" if not fine else "" if simulated else "green"
    out.print(Text(answer_text(record), colour), soft_wrap=True)
    made = table("|~", ())
    made.columns[0].style = "bold"

    def add(name: str, *values: str | Text | None) -> None:
        """Add a row with the values that are known; no row if there are none."""
        described = list(filter(None, values))
        if described:
            made.add_row(name, Text(", ").join(map(Text.assemble, described)))

    named = lambda values: ", ".join(
        f"{_MOVED.get(name) or name.removesuffix('_bytes').replace('_', ' ')} {text}"
        for name, text in values
    )
    add(
        "problem",
        multiplication_text(record),
        record.dtype,
        record.fill and f"{record.fill} fill",
    )
    add("partitions", record.a and f"A {record.a}   B {record.b}   C {record.c}")
    add(
        "algorithm",
        record.algorithm,
        record.stationary and f"Stationary {record.stationary}",
        record.dataflow,
        record.mesh and f"mesh {record.mesh}",
        *(
            f"{name} {value}"
            for name, value in options_of(record).items()
            if name not in _SHOWN_OPTIONS
        ),
        f"prefetch {record.prefetch}" if record.prefetch is not None else "",
        record.schedule not in (None, "direct")
        and f"lowered ({record.schedule}, at most {record.ir_max_compute} computes and "
        f"{record.ir_max_comm} transfers at a time)",
    )
    if simulated:
        add("machine", record.machine, plural(record.ranks, "rank"), "simulated")
        add("", record.beyond and Text(f"beyond the calibration: {record.beyond}", "yellow"))
    else:
        threads = f" x {plural(record.threads, 'thread')}" if record.threads else ""
        add(
            "ranks",
            f"{record.ranks}{threads} on {plural(record.nodes or 1, 'node')}",
            record.transport and f"transport {record.transport}",
            f"collectives {record.collectives}" if record.collectives and not record.device else "",
        )
    add(
        "device",
        record.device and f"{record.device}, {record.ranks_per_device} rank(s) each",
        record.device and record.compute,
        record.max_gemms  # a library's are unknown
        and f"at most {record.max_gemms} GEMMs and {record.max_accumulates} "
        f"accumulates at a time, collectives {record.collectives}",
    )
    add("", record.reason and fine and Text(f"through the host: {record.reason}", "yellow"))
    if record.best_s is not None:
        local = record.local_gemm_s
        add(
            "time",
            f"{predicted_text(record)}, {time_text(local)} as one local GEMM per rank"
            if simulated
            else f"median {time_text(record.time_s)}{_interval(record)} of "
            f"{len(record.samples_s)} repeats, best {time_text(record.best_s)}",
        )
        for name, value, _, remedy in DOUBTS:
            if getattr(record, name) is value:
                why = cores_text(record) if name == "noisy" else ""
                described = "; ".join(filter(None, (why, remedy)))
                add("", Text(f"{name if value else f'not {name}'}: {described}", "yellow"))
        add("peak", _of_peak(record))
        add(
            "GEMM-only",
            record.percent_of_gemm_only_min
            and f"{record.percent_of_gemm_only:.1f} % of {number(record.gemm_only_gflops, 4)} "
            "GFLOP/s, the speed of the same GEMMs without communication "
            f"({low_high(record)} %){_even(record)}",
        )
        beyond, overlap = record.effective_communication_s, record.overlap_efficiency
        spread = record.time_s - (record.median_low_s or record.time_s)
        if not simulated and beyond is not None and beyond > spread:
            add(
                "overlap",
                f"effective communication {time_text(beyond)} beyond one local GEMM",
                "" if overlap is None else f"overlap efficiency {overlap:.2f} (collective: 0)",
            )
        counts = [(name, getattr(record, name)) for name in COUNTERS]
        nothing = "nothing" if record.moved_bytes is not None else "unknown"
        add(
            "moved",
            named((name, bytes_text(count)) for name, count in counts if count) or nothing,
        )
        if _all_in_place(record):
            add("", "all tiles were read in place: no transfer, nothing to overlap")
        if record.phase_gemm_s is not None:
            phases = [(name, getattr(record, f"phase_{name}_s")) for name in PHASES]
            add(
                "mean phases",
                named(
                    (name, time_text(time or 0.0))
                    for name, time in phases
                    if time or name == "gemm"
                ),
            )
        held = {
            "pool": record.pool_bytes,
            "resident": record.peak_rss_bytes,
            "on the device": record.peak_device_bytes,
        }
        described = [
            f"{name} {bytes_text(count)}" for name, count in held.items() if count is not None
        ]
        if simulated or record.peak_rss_bytes is not None:
            add("memory", f"{', '.join(described)} (largest rank)")
        if not simulated:
            add(
                "library",
                f"{record.blas} ({record.blas_kernel or 'unknown'} kernels)",
                record.mpi or "MPI unknown",
            )
    out.print(made)


def _all_in_place(record: Record) -> bool:
    """Whether a measured program read tiles of other ranks, and all of them in place.

    Examples
    --------
    >>> run = dict(mode="measured", status="ok", best_s=1.0, direct_bytes=64, transport="direct")
    >>> _all_in_place(Record(**run)), _all_in_place(Record(**run, get_bytes=8))
    (True, False)
    """
    throttled = (record.transport or "").startswith("throttled")
    return (
        record.mode == "measured"
        and not throttled
        and 0 < (record.direct_bytes or 0) == record.moved_bytes
    )


def _of_peak(record: Record) -> str:
    """The percentage of the peak that a record reached, and the peak's source; empty without one.

    Examples
    --------
    >>> run = dict(mode="measured", status="ok", best_s=1.0, gflops=150.0, peak_source="given")
    >>> _of_peak(Record(**run, peak_gflops=200.0, percent_of_peak=75.0))
    '75.0 % of the peak of 200 GFLOP/s (given)'
    >>> _of_peak(Record(**run, peak_gflops=125.0, percent_of_peak=120.0)).partition(": ")[2]
    'the peak was measured at a lower clock or with other work, or given too low'
    """
    percent, peak = record.percent_of_peak, record.peak_gflops
    if percent is None:
        return ""
    if peak is None:  # simulated: the model's
        return f"{percent:.1f} % of peak"
    described = f"{percent:.1f} % of the peak of {number(peak, 4)} GFLOP/s ({record.peak_source})"
    if percent > 100:
        described += ": the peak was measured at a lower clock or with other work, or given too low"
    return described


def _interval(record: Record) -> str:
    """The text of the interval of the median."""
    if record.median_low_s is None:
        return ""
    half = (record.median_high_s - record.median_low_s) / 2
    return f" ± {number(100 * half / record.median_s, 2)} %"


def predicted_text(record: Record) -> str:
    """The time of a prediction with its interval, if any.

    Examples
    --------
    >>> described = dict(mode="simulated", status="ok", best_s=2.0)
    >>> predicted_text(Record(**described, median_low_s=1.5, median_high_s=2.25))
    '2 s (1.5-2.25)'
    """
    return between(record.best_s, record.median_low_s, record.median_high_s)


def _even(record: Record) -> str:
    """The largest possible share of GEMM-only speed, if the load of the ranks is unbalanced."""
    limit = record.balance_limit
    return by_balance(record) and f"; by load balance at most {100 * limit:.1f} %"


def low_high(record: Record) -> str:
    """The interval of the ratio, or its range if there are too few samples."""
    low, high = record.percent_of_gemm_only_low, record.percent_of_gemm_only_high
    if low is None:
        low, high = record.percent_of_gemm_only_min, record.percent_of_gemm_only_max
    return f"{low:.1f}-{high:.1f}"


def multiplication_text(of) -> str:
    """The multiplication of a record or a case, with the matrices as stored.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> run = {"mode": "measured", "status": "ok", "best_s": 1, "m": 8, "n": 6, "k": 4}
    >>> (
    ...     multiplication_text(Record(**run)),
    ...     multiplication_text(Record(**run, transpose="a", beta=2)),
    ... )
    ('C 8x6 = A 8x4 · B 4x6', 'C 8x6 = (A 4x8)ᵀ · B 4x6 + 2·C')
    >>> multiplication_text(Record(**run, experts=5, topk=2, routing="skewed:3"))
    'C = A · B, 8 tokens to 2 of 5 experts each (skewed:3), experts 4x6'
    """
    scale = f"{of.alpha:g} · " if of.alpha not in (None, 1.0) else ""
    more = f" + {of.beta:g}·C" if of.beta else ""
    transposed_text, parts = of.transpose or "", []
    option = of.options.get if isinstance(of.options, dict) else partial(getattr, of)
    if option("experts"):
        named = " · ".join(name + "ᵀ" * (name.lower() in transposed_text) for name in "AB")
        return (
            f"C = {scale}{named}{more}, {of.m} tokens to {option('topk')} of {option('experts')} "
            f"experts each ({option('routing')}), experts {of.k}x{of.n}"
        )
    for name, rows, cols in (("A", of.m, of.k), ("B", of.k, of.n)):
        if name.lower() in transposed_text:
            parts.append(f"({name} {cols}x{rows})ᵀ")
        else:
            parts.append(f"{name} {rows}x{cols}")
    return f"C {of.m}x{of.n} = {scale}{' · '.join(parts)}{more}"


def drawing(problem: Problem) -> Table:
    """The three matrices next to each other: each point shows the rank that owns it in replica
    0."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    longest = max(problem.m, problem.n, problem.k)
    cells = []
    for operand in (problem.a, problem.b, problem.c):
        p = operand.stored  # as its layout is written
        rows, cols = p.shape
        transposed_text = ", multiplied transposed" * operand.transposed
        replicas = (
            f", {p.replicas} replicas of {p.ranks_per_replica} ranks" if p.replicas > 1 else ""
        )
        if p.terms > 1:
            replicas += f",\ntheir sum over {p.terms} terms pending"
        height, width = max(2, round(12 * rows / longest)), max(4, round(30 * cols / longest))
        table.add_column(
            f"{operand.name} {rows}x{cols}{transposed_text}\n{p.text}{replicas}\n{_dealt(p)}"
            f"{_left_out(p, height, width)}"
        )
        cells.append(_raster(picture(p, height, width)))
    table.add_row(*cells)
    return table


def _dealt(partition: Partition) -> str:
    """The tiles of a partition, and their distribution.

    Examples
    --------
    >>> from partitions import partition
    >>> print(_dealt(partition("block", (8, 8), 4)))
    tiles 4x4, grid 2x2
    >>> print(_dealt(partition("S(0),R@2x2", (8, 8), 4)))
    tiles 4x8, ranks of replica 0: 0 2
    >>> print(_dealt(partition("_S(0,2)", (9, 8), 2)))
    tiles up to 3x8, grid 2x1
    """
    height, width = partition.tile_shape
    equal = all(isinstance(axis, Dealt) for axis in (partition.rows, partition.cols))
    ranks = partition.members(0)
    listed = " ".join(map(str, ranks[:8])) + " ..." * (len(ranks) > 8)
    where = f"grid {partition.grid}" if partition.grid else f"ranks of replica 0: {listed}"
    return f"tiles {'' if equal else 'up to '}{height}x{width}, {where}"


def _left_out(partition, height: int, width: int) -> str:
    """A line with the part of a partition that a drawing of ``height`` × ``width`` points shows;
    empty if it shows every tile.

    Examples
    --------
    >>> from partitions import partition
    >>> tiled = partition("tiles:1x64@4x1", (64, 64), 4)
    >>> _left_out(tiled, 12, 30), _left_out(tiled, 64, 30)
    ('\\ndrawn: 12 of 64 rows of tiles', '')
    """
    described = []
    for what, tiles, points in zip(("rows", "columns"), partition.grid_shape, (height, width)):
        if tiles > points:
            described.append(f"{points} of {tiles} {what} of tiles")
    return f"\ndrawn: {', '.join(described)}" if described else ""


def _raster(owners: list[list[int]]) -> Text:
    point = lambda owner: (_DIGITS[owner % len(_DIGITS)], _COLOURS[owner % len(_COLOURS)])
    return Text("\n").join(Text.assemble(*map(point, row)) for row in owners)
