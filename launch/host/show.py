"""Output of the command line: tables, the drawing of partitions, bytes and seconds in readable
units."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drbench.clock import COMPUTING
from drbench.host.launcher import launched, started_by_us
from drbench.measure.noise import DOUBTS, cores_text
from drbench.measure.record import FORMULA_STARTS, Record, by_balance, options_of
from drbench.measure.record_file import format_records
from drbench.partitions import CyclicAxis, Partition
from drbench.plan.explain import tile_owners
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from drbench.texts import (
    between,
    bytes_text,
    layouts_text,
    number,
    plural,
    rate_text,
    shape_text,
    time_text,
)

from .streams import FORM

_COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "red", "yellow", "bright_black")
#: Options that the line of the algorithm has in its own words.
_SHOWN_OPTIONS = ("stationary", "dataflow", "mesh", "schedule", "ir_max_compute", "ir_max_comm")
#: The label of bytes that a rank reads in the memory of another.
_MOVED = {"direct_bytes": "read in place"}
#: Character and name of each phase in a bar of text.
_BAR = {
    "gemm": "█ GEMMs",
    "get_wait": "░ waiting for tiles",
    "collective_wait": "▒ waiting for collectives",
    "accumulate": "▓ accumulates",
    "fence": "· waiting in fences",
    "pack": "+ packing",
}
#: Shares of the time below this one are left out.
_LEAST_SHARE = 0.01
#: Lines and characters of the drawing of a matrix.
_MOST_LINES, _MOST_CHARACTERS = 8, 24
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Screen(Console):
    """A console without markup, which prints no blanks at the ends of lines, except on a
    terminal. With ``--format csv`` only tables are printed to standard output."""

    def print(self, *objects, **how) -> None:
        if FORM.get() == "csv":
            self.stderr = not isinstance(objects[0], _Fitted)
        if self.is_terminal:
            return super().print(*objects, **how)
        with self.capture() as printed:
            super().print(*objects, **how)
        self.file.write(re.sub(" +(?=\n)", "", printed.get()))
        self.file.flush()

    def line(self, text: str | Text) -> None:
        """Print a text in one line, also if that is longer than the terminal is wide."""
        self.print(text, soft_wrap=True)


def console(**how) -> Screen:
    """Standard output; 160 columns wide if it is not a terminal, unless COLUMNS is set. That of a
    rank is none: Open MPI's terminals are copied to wherever the launcher writes."""
    here = launched()
    if started_by_us() or (here and (here.size > 1 or here.variable.startswith("OMPI"))):
        how["force_terminal"] = False
    out = Screen(highlight=False, markup=False, **how)
    if FORM.get():
        out.width = 1 << 20  # whole lines
    elif not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = 160
    return out


def csv_text(rows: Iterable[dict]) -> str:
    """Rows, which may have different keys, as CSV, without dictionaries in them."""
    from pandas import DataFrame

    plain = lambda row: {x: _cell(value) for x, value in row.items() if type(value) is not dict}
    return DataFrame(map(plain, rows), dtype=object).to_csv(index=False, lineterminator="\n")


def _cell(value):
    """A value as a record's cell: no text that a spreadsheet would execute.

    Examples
    --------
    >>> _cell("=1+1"), _cell(True), _cell(-1.5), _cell(["row", "S(0)"])
    ("'=1+1", 'true', -1.5, '["row", "S(0)"]')
    """
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    if isinstance(value, list | tuple):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else value


class _Fitted(Table):
    """A table that leaves out its last columns if rows do not fit in one line, and prints their
    names. The first column and those of ``keys``, which distinguish rows, stay, and may wrap."""

    keys: set[int] = set()
    values: Sequence[dict] = ()

    def written(self, form: str) -> str:
        """The whole table as Markdown, or as CSV: its values, if there are any, else its texts.

        Examples
        --------
        >>> print(table("!who|> time", [("a|b", "1 s")]).written("md").strip())
        | who | time |
        | --- | --- |
        | a\\|b | 1 s |
        """
        heads, *lines = zip(*([x.header, *map(str, x.cells)] for x in self.columns))
        if form == "csv":
            return csv_text(self.values or [dict(zip(heads, line)) for line in lines])
        plain = lambda cell: re.sub(r"([\\|*_`<])", r"\\\1", cell).replace("\n", "<br>")
        lines = [heads, ["---"] * len(heads), *lines]
        return "".join(f"\n| {' | '.join(map(plain, line))} |" for line in lines) + "\n"

    def __rich_console__(self, console, options):
        if form := FORM.get():
            yield Text(self.written(form))
            return
        every = self.columns
        fits = lambda widths: sum(widths.values()) + 3 * len(widths) <= options.max_width + 1
        shown = dict(enumerate(map(self._whole_width, every)))
        free = [at for at in shown if at and at not in self.keys]
        while free and not fits(shown):
            del shown[free.pop()]
        self.columns = [every[at] for at in shown]
        yield from super().__rich_console__(console, options)
        if left := [str(column.header) for at, column in enumerate(every) if at not in shown]:
            yield Text(f"Not shown in {options.max_width} columns: {', '.join(left)}.")
        self.columns = every

    @staticmethod
    def _whole_width(column) -> int:
        """Characters of the longest line of a column."""
        texts = [Text(str(column.header)), *column.cells]
        return max((cell_len(line) for text in texts for line in str(text).splitlines()), default=0)


def table(columns: str, rows: Iterable[Iterable], values: Sequence[dict] = ()) -> Table:
    """A table of texts, printed without markup.

    Parameters
    ----------
    columns : str
        Names separated by ``|``, the most important first: a narrow terminal shows only the first
        ones. ``>`` marks a column of numbers, ``~`` one of words, which may wrap, ``!`` one that
        identifies the row and is never left out; no names for no header.
    rows : iterable
        Rows of str and :class:`rich.text.Text`.
    values : sequence of dict
        What ``--format csv`` prints instead of the texts.

    Examples
    --------
    >>> [column.justify for column in table("who|> time", [("a", "1 s")]).columns]
    ['left', 'right']
    >>> from io import StringIO
    >>> narrow = Console(width=28, file=StringIO())
    >>> narrow.print(table(">time|!~how|memory", [("1.5 s", "rows of A and B once", "12 MiB")]))
    >>> print("\\n".join(map(str.rstrip, narrow.file.getvalue().splitlines()[1:])))
      time   how
     ──────────────────────────
     1.5 s   rows of A and B
             once
    <BLANKLINE>
    Not shown in 28 columns:
    memory.
    """
    fitted = _Fitted(
        box=SIMPLE_HEAD,
        show_header=bool(columns.strip("|~!>")),
        pad_edge=False,
    )
    fitted.values = values
    fitted.keys = {at for at, name in enumerate(columns.split("|")) if name.strip(">~")[:1] == "!"}
    for name in columns.split("|"):
        text = name.lstrip(">~! ")
        how = name.removesuffix(text)
        justify = "right" if ">" in how else "left"
        fitted.add_column(text, justify=justify, no_wrap="~" not in how, overflow="fold")
    for cells in rows:
        fitted.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return fitted


def result_text(record: Record) -> str:
    """Whether C is right, in a word or two.

    Examples
    --------
    >>> run = dict(mode="measured", status="ok", best_s=1.0)
    >>> [result_text(Record(**run, error=error)) for error in (0.0, 1e-7, None)]
    ['exact', 'correct (error 1e-07)', 'not verified']
    """
    if record.error is None:
        return "not verified" if record.mode == "measured" else "predicted"
    return f"correct (error {record.error:.2g})" if record.error else "exact"


def answer_text(record: Record) -> str:
    """Whether a case is correct, whether its time can be used, its time, share of GEMM-only speed
    and rate; or its status.

    Examples
    --------
    >>> run = dict(status="ok", best_s=0.25, gflops=1234.5, percent_of_gemm_only=94.06)
    >>> answer_text(Record(**run, mode="measured", error=0.0))
    'Result exact: 250 ms, 94 % of GEMM-only speed, 1.23 TFLOP/s.'
    >>> answer_text(Record(**run, mode="measured", error=1e-7, noisy=True, core_share=0.21))[:80]
    'Result correct (error 1e-07). TIME NOT USABLE (the ranks had 21 % of their cores'
    >>> answer_text(Record(**run, mode="simulated", median_low_s=0.2, median_high_s=0.5))
    'Predicted: 250 ms (200-500), 94 % of GEMM-only speed, 1.23 TFLOP/s.'
    >>> answer_text(Record(mode="measured", status="timeout", reason="after 60 s"))
    'timeout: after 60 s'
    """
    if record.status != "ok" or record.best_s is None:
        return f"{record.status}: {record.reason}"
    percent = record.percent_of_gemm_only
    known = [] if percent is None else [f"{percent:.0f} % of GEMM-only speed"]
    known += [rate_text(record.gflops)] * (record.gflops is not None)
    if record.mode == "simulated":
        verdict, time = "Predicted:", predicted_text(record)
    else:
        verdict = f"Result {result_text(record)}"
        why = cores_text(record)
        if record.noisy:
            verdict += f". TIME NOT USABLE{f' ({why})' if why else ''}:"
            known = ["measure on a quiet machine"]
        elif record.oversubscribed:
            verdict += ". RANKS SHARE CORES, compare only with such runs:"
        else:
            verdict += ":"
        time = time_text(record.time_s) + (" now" if record.noisy else _interval(record))
    return f"{verdict} {', '.join([time, *known])}."


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


def show_record(record: Record, verbose: bool = False) -> None:
    """Print the result of ``drbench run`` or ``drbench simulate``: the answer, then what was
    multiplied and what takes the time; with ``verbose`` everything that is known."""
    out, simulated = console(), record.mode == "simulated"
    fine = record.status == "ok"
    doubtful = record.noisy or record.oversubscribed
    colour = "red" if not fine else "" if simulated else "yellow" if doubtful else "green"
    out.line(Text(answer_text(record), colour))
    if FORM.get() == "csv":
        print(format_records(record))  # with the empty line after tables
        return
    rows = table("|!~", ())
    rows.columns[0].style = "bold"

    def add(name: str, *values: str | Text | None, detail: bool = False) -> None:
        """Add a row with the values that are known; no row if there are none."""
        described = list(filter(None, values))
        if described and (verbose or not detail):
            rows.add_row(name, Text(", ").join(map(Text.assemble, described)))

    _add_problem(record, add)
    if record.best_s is not None:
        _add_times(record, add)
        _add_details(record, add)
    out.print(rows)
    if words := next_command(record):
        out.line(f"Are other layouts faster? {words}")


def next_command(record: Record) -> str:
    """The command that looks for faster layouts of a multiplication; empty if there is none.

    Examples
    --------
    >>> run = dict(status="ok", best_s=1.0, m=8, n=8, k=8, ranks=2, a="row", b="row", c="S(0)")
    >>> next_command(Record(mode="simulated", machine="pvc12", **run))
    "drbench tune -m 8 -n 8 -k 8 -p 2 --a row --b row --c 'S(0)' --machine pvc12"
    >>> next_command(Record(mode="measured", preset="row", **run))
    'drbench tune -m 8 -n 8 -k 8 -p 2 --preset row --measure'
    """
    if record.status != "ok" or not record.a or record.experts or (record.ranks or 1) == 1:
        return ""
    words = [
        "drbench",
        "tune",
        *(f"-{x} {getattr(record, x)}" for x in "mnk"),
        f"-p {record.ranks}",
    ]
    texts = {name: shlex.quote(getattr(record, name) or "") for name in "abc"}
    named = [f"--preset {record.preset}"] * bool(record.preset)
    words += named or [f"--{name} {text}" for name, text in texts.items()]
    if record.mode == "simulated":
        words.append(f"--machine {shlex.quote(record.machine or '')}")
    else:
        words.append("--measure")
    return " ".join(words)


def _add_problem(record: Record, add: Callable) -> None:
    """The rows of what was multiplied, how and where."""
    simulated = record.mode == "simulated"
    where = plural(record.ranks, "rank") if record.ranks else ""
    if simulated:
        where += f" of {record.machine}"
    else:
        where += f" × {plural(record.threads, 'thread')}" if (record.threads or 1) > 1 else ""
        where += f" on {record.nodes} nodes" if (record.nodes or 1) > 1 else ""
    add("problem", multiplication_text(record), record.dtype, where)
    add("", record.fill and f"{record.fill} fill", detail=True)
    add("layouts", record.a and layouts_text((record.a, record.b, record.c)))
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
        record.schedule not in (None, "direct")
        and f"lowered ({record.schedule}, at most {record.ir_max_compute} computes and "
        f"{record.ir_max_comm} transfers at a time)",
    )
    add("", f"prefetch {record.prefetch}" if record.prefetch is not None else "", detail=True)
    add("", record.beyond and Text(f"beyond the calibration: {record.beyond}", "yellow"))
    add(
        "transport",
        record.transport if not simulated else None,
        f"collectives {record.collectives}" if record.collectives and not record.device else "",
        detail=True,
    )
    add(
        "device",
        record.device and f"{record.device}, {record.ranks_per_device} rank(s) each",
        record.device and record.compute,
        _concurrency_text(record),
        record.device and record.collectives and f"collectives {record.collectives}",
    )
    reason = record.status == "ok" and record.reason
    add("", reason and Text(f"through the host: {reason}", "yellow"))


def _concurrency_text(record: Record) -> str:
    """What may run at the same time on a device, as far as it was asked for.

    Examples
    --------
    >>> _concurrency_text(Record(mode="measured", status="ok", best_s=1.0, max_gemms=2))
    'at most 2 GEMMs at a time'
    """
    most = {"GEMMs": record.max_gemms, "accumulates": record.max_accumulates}
    parts = [f"at most {count} {what} at a time" for what, count in most.items() if count]
    blocks = record.accumulate_blocks
    return ", ".join([*parts, *[f"{blocks} thread blocks an accumulate"] * bool(blocks)])


def _add_times(record: Record, add: Callable) -> None:
    """The rows of what takes the time."""
    simulated, local_s = record.mode == "simulated", record.local_gemm_s
    if record.phase_gemm_s is not None:
        bar, *shares = time_bar(record)
        add("time spent", f"{bar}  {', '.join(shares)}")
    if local_s and record.phase_gemm_s and record.phase_gemm_s > 1.02 * local_s:
        slower = 100 * (record.phase_gemm_s / local_s - 1)
        add("", f"these GEMMs take {slower:.0f} % longer than one large GEMM per rank")
    if record.slowest_rank is not None and (record.ranks or 1) > 1:
        mean_s = sum(getattr(record, f"phase_{name}_s") or 0 for name in COMPUTING)
        longer = 100 * (record.slowest_rank_s / mean_s - 1) if mean_s else 0
        by = f"{longer:.0f}" if longer >= 1 else "less than 1"
        add("slowest rank", f"{record.slowest_rank}, computes {by} % longer than the mean")
    beyond, overlap = record.effective_communication_s, record.overlap_efficiency
    spread = record.time_s - (record.median_low_s or record.time_s)
    if not simulated and beyond is not None and beyond > spread:
        hidden = (
            "" if overlap is None else f"{100 * overlap:.0f} % hidden (a plain collective: 0 %)"
        )
        add("communication", f"{time_text(beyond)} not hidden", hidden)
    if not simulated:
        low, limit = record.percent_of_gemm_only_min, record.balance_limit
        high = by_balance(record) and f"; by load balance at most {100 * limit:.1f} %"
        add(
            "GEMM-only",
            low
            and f"{rate_text(record.gemm_only_gflops)} without communication; this run "
            f"{low_high(record)} % of it{high}",
            detail=not high,
        )
        add(
            "repeats",
            f"{len(record.samples_s)}, best {time_text(record.best_s)}",
            record.disturbed and f"{record.disturbed} disturbed",
            detail=True,
        )
        for name, value, _, remedy in DOUBTS:
            if getattr(record, name) is value and not record.noisy:
                add("", Text(f"{name if value else f'not {name}'}: {remedy}", "yellow"))
    add("peak", _of_peak(record), detail=not simulated)


def _add_details(record: Record, add: Callable) -> None:
    """The rows of bytes, memory and libraries."""
    named = lambda values: ", ".join(
        f"{_MOVED.get(name) or name.removesuffix('_bytes').replace('_', ' ')} {text}"
        for name, text in values
    )
    counts = [(name, getattr(record, name)) for name in COUNTERS]
    nothing = "nothing" if record.moved_bytes is not None else "unknown"
    add("moved", named((name, bytes_text(count)) for name, count in counts if count) or nothing)
    if _all_in_place(record):
        add("", "all tiles were read in place: no transfer, nothing to overlap", detail=True)
    sizes = {
        "buffers": record.pool_bytes,
        "process": record.peak_rss_bytes,
        "on the device": record.peak_device_bytes,
    }
    described = [
        f"{name} {bytes_text(count)}" for name, count in sizes.items() if count is not None
    ]
    if described:
        add("memory", f"{', '.join(described)} (largest rank)")
    if record.mode != "simulated":
        add(
            "library",
            f"{record.blas} ({record.blas_kernel or 'unknown'} kernels)",
            record.mpi or "MPI unknown",
            detail=True,
        )


def time_bar(record: Record, width: int = 24) -> list[str]:
    """The shares of the time of a repeat as a bar, and in percent, the largest first.

    Examples
    --------
    >>> row = dict(mode="measured", status="ok", best_s=1.0, phase_gemm_s=0.7, phase_fence_s=0.25)
    >>> time_bar(Record(**row), 10)
    ['███████··-', '█ GEMMs 70 %', '· waiting in fences 25 %', '- other 5 %']
    """
    total = record.time_s
    shares = {key: (getattr(record, f"phase_{name}_s") or 0) / total for name, key in _BAR.items()}
    rest = 1 - sum(shares.values())
    shares = {key: share for key, share in shares.items() if share >= _LEAST_SHARE}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    ordered += [("- other", rest)] * (rest >= _LEAST_SHARE)
    bar = "".join(key[0] * round(width * share) for key, share in ordered)[:width]
    return [bar, *(f"{key} {100 * share:.0f} %" for key, share in ordered)]


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
    described = f"{percent:.1f} % of the peak of {rate_text(peak)} ({record.peak_source})"
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


def low_high(record: Record) -> str:
    """The interval of the ratio, or its range if there are too few samples."""
    low, high = record.percent_of_gemm_only_low, record.percent_of_gemm_only_high
    if low is None:
        low, high = record.percent_of_gemm_only_min, record.percent_of_gemm_only_max
    return f"{low:.1f}-{high:.1f}"


def multiplication_text(of) -> str:
    """The sizes of a record or a case, and its form if it is not C = A·B.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> run = {"mode": "measured", "status": "ok", "best_s": 1, "m": 8, "n": 6, "k": 4}
    >>> (
    ...     multiplication_text(Record(**run)),
    ...     multiplication_text(Record(**run, transpose="a", beta=2)),
    ... )
    ('8 × 6 × 4 (m × n × k)', '8 × 6 × 4 (m × n × k), C = Aᵀ·B + 2·C')
    >>> multiplication_text(Record(**run, experts=5, topk=2, routing="skewed:3"))
    '8 × 6 × 4 (m × n × k), 8 tokens to 2 of 5 experts each (skewed:3)'
    """
    text, stored = f"{shape_text(of.m, of.n, of.k)} (m × n × k)", of.transpose or ""
    option = of.options.get if isinstance(of.options, dict) else partial(getattr, of)
    scale = f"{of.alpha:g}·" if of.alpha not in (None, 1.0) else ""
    named = "·".join(name + "ᵀ" * (name.lower() in stored) for name in "AB")
    more = f" + {of.beta:g}·C" if of.beta else ""
    if scale or more or stored:
        text += f", C = {scale}{named}{more}"
    if option("experts"):
        tokens = f"{of.m} tokens to {option('topk')} of {option('experts')} experts each"
        text += f", {tokens} ({option('routing')})"
    return text


def drawing(problem: Problem) -> Table:
    """The three matrices next to each other, a character for each tile: the rank that owns it in
    replica 0."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    cells = []
    for operand in (problem.a, problem.b, problem.c):
        p = operand.stored  # as its layout is written
        rows, cols = p.shape
        more = ", multiplied transposed" * operand.transposed
        if p.replicas > 1:
            more += f"\n{p.replicas} replicas of {p.ranks_per_replica} ranks"
        if p.terms > 1:
            more += f"\ntheir sum over {p.terms} terms pending"
        table.add_column(
            f"{operand.name} {rows} × {cols}: {p.text}{more}\n{_tiles_text(p)}{_left_out(p)}"
        )
        cells.append(_raster(tile_owners(p, _MOST_LINES, _MOST_CHARACTERS)))
    table.add_row(*cells)
    return table


def _tiles_text(partition: Partition) -> str:
    """The tiles of a partition, and their distribution.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> print(_tiles_text(partition("block", (8, 8), 4)))
    tiles 4 × 4
    grid 2x2
    >>> print(_tiles_text(partition("S(0),R@2x2", (8, 8), 4)))
    tiles 4 × 8
    ranks of replica 0: 0 2
    >>> print(_tiles_text(partition("_S(0,2)", (9, 8), 2)))
    tiles up to 3 × 8
    grid 2x1
    """
    height, width = partition.tile_shape
    equal = all(isinstance(axis, CyclicAxis) for axis in (partition.rows, partition.cols))
    ranks = partition.members(0)
    first = " ".join(map(str, ranks[:8])) + " ..." * (len(ranks) > 8)
    where = f"grid {partition.grid}" if partition.grid else f"ranks of replica 0: {first}"
    return f"tiles {'' if equal else 'up to '}{height} × {width}\n{where}"


def _left_out(partition) -> str:
    """A line with the tiles of a partition that are drawn; empty if all are.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> _left_out(partition("tiles:1x64@4x1", (64, 64), 4)), _left_out(partition("row", (4, 4), 4))
    ('\\ndrawn: the first 8 of 64 rows of tiles', '')
    """
    described = [
        f"the first {most} of {tiles} {what} of tiles"
        for what, tiles, most in zip(
            ("rows", "columns"), partition.grid_shape, (_MOST_LINES, _MOST_CHARACTERS)
        )
        if tiles > most
    ]
    return f"\ndrawn: {', '.join(described)}" if described else ""


def _raster(owners: list[list[int]]) -> Text:
    point = lambda owner: (_DIGITS[owner % len(_DIGITS)], _COLOURS[owner % len(_COLOURS)])
    return Text("\n").join(Text.assemble(*map(point, row)) for row in owners)
