"""The page of ``launch/gpu_check.sh``: which bars are met, and measured next to predicted
times on all GPUs of the node."""

import re
import time
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.peaks import compute_column
from drbench.launch.models.intervals import vary_assumed
from drbench.launch.views.findings import pair_tables
from drbench.measure.record import Record, RecordError
from drbench.measure.record_file import read_csv
from drbench.plots.select.cases import shape_name
from drbench.texts import between, bytes_text, time_text

#: The sweep that is measured and predicted, and the machine model of its predictions.
NODE, MODEL = "gpu-node", "h100x8measured"
#: Of 20 measured times this number is expected in its interval.
_INSIDE = 0.95
#: Least share of GEMM-only speed of the better layout in float32; the model predicts
#: 0.92 to 0.98.
_BOUND = 0.9


class CheckLine(NamedTuple):
    """One line of the result: what, the figure, the bar (empty: none is set), and whether it holds
    (None: not decided)."""

    what: str
    value: str
    bar: str = ""
    ok: bool | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether a result or an end is wrong; a rate below its bar is not."""
        return self.ok is False and not self.bar.startswith(">=")

    def where(self, decided: bool) -> "CheckLine":
        """The line, without its bar where that is of something else."""
        return self if decided else CheckLine(self.what, self.value)


def is_ok(record: Record | None) -> bool:
    """Whether there is a record, and its case ran."""
    return record is not None and record.status == "ok"


class GpuNode(NamedTuple):
    """The node of a check.

    Attributes
    ----------
    out : Path
        The folder with the records.
    ranks : int
        One for each GPU that is used.
    report : dict
        The GPUs, as ``drbench doctor --json`` has them; empty if it did not end well.
    """

    out: Path
    ranks: int
    report: dict = {}

    @property
    def names(self) -> str:
        """The names of the GPUs, each once."""
        names = {device["name"] for device in self.report.get("devices", ())}
        return ", ".join(sorted(names)) or "unknown GPUs"

    @property
    def is_modelled(self) -> bool:
        """Whether the predictions of :data:`MODEL` are of such a node."""
        machine = find_machine(MODEL)
        same = machine.sources["calibrated"]["processor"] == self.names
        return same and self.ranks == machine.devices

    def rows(self, folder: str) -> list[Record]:
        """The records of a folder; none if they do not exist or are damaged."""
        return read_rows(self.out / folder / "records.csv")

    def compared(self, folder: str) -> list[tuple[Record, Record | None]]:
        """The predictions of a folder, each with the measured record of the case, if there is
        one."""
        measured = {name_of(row): row for row in self.rows("node")}
        return [(row, measured.get(name_of(row))) for row in self.rows(folder)]


def is_inside(predicted: Record, measured: Record | None) -> bool | None:
    """Whether a measured time is in the interval of its prediction; None without both."""
    if measured is None or not is_ok(measured) or predicted.median_low_s is None:
        return None
    return predicted.median_low_s <= measured.time_s <= predicted.median_high_s


def lines_of(ended: Iterable[dict], **values) -> list[dict]:
    """The lines of all stages that have these values."""
    lines = (line for stage in ended for line in stage["lines"])
    return [line for line in lines if values.items() <= line.items()]


def read_rows(path: Path) -> list[Record]:
    """The records of a file; none if it does not exist or is damaged."""
    try:
        return read_csv(path)
    except (OSError, RecordError):
        return []


# -- checks ------------------------------------------------------------------------------------


def checks_of_node(node: GpuNode, ended: Iterable[dict]) -> Iterator[CheckLine]:
    """Bars of the cases on all GPUs, each with a source: intervals of predictions, and numbers that
    were published or predicted for such a node. On another node the same lines have no bar."""
    yield from _of_transfers(
        [line for stage in ended if stage["name"] == "bandwidth" for line in stage["lines"]],
        node.is_modelled,
    )
    for folder, machine in (("predicted", MODEL), ("predicted-here", "here.toml")):
        inside = [is_inside(*pair) for pair in node.compared(folder)]
        count = len(inside) - inside.count(None)
        if count:
            share = inside.count(True) / count
            what, bar = f"times in the interval of {machine}", f">= {_INSIDE} (intervals)"
            check = CheckLine(what, f"{share:.2f} ({inside.count(True)} of {count})", bar)
            decided = node.is_modelled or machine != MODEL
            yield check._replace(ok=share >= _INSIDE).where(decided)
    yield from _of_layers(list(filter(is_ok, node.rows("node"))), node.is_modelled)


def _of_transfers(lines: list[dict], decided: bool) -> Iterator[CheckLine]:
    """The rates of the largest transfers, all GPUs at once."""
    nbytes = max((line["nbytes"] for line in lines), default=0)
    of_most = [line for line in lines if line["nbytes"] == nbytes and line["bus_gbps"]]
    rates = {line["operation"]: line["bus_gbps"] for line in of_most}
    machine = find_machine(MODEL)
    _, slower = vary_assumed(machine)
    link = slower.link(0, 1)
    time_s = nbytes / link.bandwidth_bytes_per_s + link.latency_s + slower.fence_s
    least = nbytes / time_s / 1e9
    for name, rate in rates.items():
        what = f"{name} of {bytes_text(nbytes)}, all GPUs at once"
        bar = f">= {least:.0f} (slower end of {MODEL})"
        check = CheckLine(what, f"{rate:.0f} GB/s", bar, rate >= least)
        yield check.where(name == "get" and decided)
    if {"get", "accumulate"} <= rates.keys():
        share, least = rates["accumulate"] / rates["get"], machine.accumulate_efficiency
        bar = f">= {least} (the paper, 5.1)"
        yield CheckLine("accumulate / get", f"{share:.2f}", bar, share >= least).where(decided)


def _of_layers(rows: list[Record], decided: bool) -> Iterator[CheckLine]:
    """Of the largest batch of each layer in float32: the share of the bound with each stationary
    matrix."""
    rows = [row for row in rows if row.algorithm == "universal" and row.compute == "fp32"]
    best: dict[tuple, float] = {}
    for row in sorted(rows, key=lambda row: (row.k, row.stationary)):
        if row.m == max(other.m for other in rows):
            key = shape_name((row.m, row.n, row.k)), row.stationary
            best[key] = max(best.get(key, 0.0), (row.percent_of_gemm_only or 0.0) / 100)
    for (shape, stationary), share in best.items():
        what, bar = f"{shape}, fp32, S-{stationary} / GEMM-only speed", f">= {_BOUND} (predicted)"
        yield CheckLine(what, f"{share:.2f}", bar, share >= _BOUND).where(decided)


# -- the page ----------------------------------------------------------------------------------


def write_page(node: GpuNode, ended: list[dict], checks: list[CheckLine]) -> str:
    """Write the page into ``node.md``, and return its text."""
    text = "\n".join(_parts(node, ended, checks))
    (node.out / "node.md").write_text(text, encoding="utf-8")
    return text


def _parts(node: GpuNode, ended: list[dict], checks: list[CheckLine]) -> Iterator[str]:
    bad = sorted((check for check in checks if check.ok is False), key=lambda bad: not bad.is_wrong)
    yield f"# GPU check: {node.ranks} x {node.names}, {time.strftime('%Y-%m-%d')}\n"
    good = sum(check.ok is True for check in checks)
    late = sum("not started" in check.value for check in checks)
    rest = f"; {late} stages were not started, because the time was used up" if late else ""
    yield f"{good} of {good + len(bad)} bars are met{rest}.\n"
    for check in checks:
        if check.what.startswith("times in the interval"):
            yield f"{check.what[0].upper()}{check.what[1:]}: {check.value}.\n"
    yield "## Not met\n"
    yield _table(["what", "measured", "bar"], [check[:3] for check in bad]) if bad else "Nothing.\n"
    if node.ranks > 1:
        for report in lines_of(ended, kind="pairs"):
            yield f"## Pairs of GPUs\n\n```text\n{_text(*pair_tables(report)).rstrip()}\n```\n"
        yield f"## Measured and predicted: {MODEL}\n"
        if not node.is_modelled:
            yield f"The prediction is of another machine: this is {node.ranks} x {node.names}.\n"
        yield from _times(node.compared("predicted"))
        yield "## Measured and predicted: this node, as calibrated now\n"
        yield from _times(node.compared("predicted-here"))
        yield from _libraries(node, ended)
    yield "## Met, or without a bar\n"
    met = {True: "met", None: ""}
    good = [(*check[:3], met[check.ok]) for check in checks if check.ok is not False]
    yield _table(["what", "measured", "bar", ""], good)
    yield "## Stages\n"
    lines = [(stage["name"], stage["exit"], stage["seconds"], *stage["end"]) for stage in ended]
    yield _table(["stage", "exit", "seconds", "last line of a failure"], lines)


def _times(cases: list[tuple[Record, Record | None]]) -> Iterator[str]:
    lines = [_line(*pair) for pair in cases if is_ok(pair[0])]
    if lines:
        header = ["case", "predicted", "measured", "ratio", "in interval", "% of the bound"]
        yield _table(header, lines)
    else:
        yield "There is no prediction: its stage did not end, or was not started.\n"
    reasons = {row.reason.partition(". ")[0] for row, _ in cases if not is_ok(row)}
    if reasons:
        yield f"Cases that are not predicted: {'; '.join(sorted(reasons))}.\n"


def _line(predicted: Record, measured: Record | None) -> tuple:
    time = between(predicted.time_s, predicted.median_low_s, predicted.median_high_s)
    if measured is None or not is_ok(measured):
        return name_of(predicted), time, measured.status if measured else "not measured"
    return (
        name_of(predicted),
        time,
        time_text(measured.time_s) + " (noisy)" * bool(measured.noisy),
        f"{measured.time_s / predicted.time_s:.2f}",
        {True: "yes", False: "NO", None: ""}[is_inside(predicted, measured)],
        f"{measured.percent_of_gemm_only or 0:.0f}",
    )


def problem_of(row: Record) -> str:
    """Shape and arithmetic of a record; its C may have another type."""
    return f"{shape_name((row.m, row.n, row.k))}, {compute_column(row.dtype, row.compute)}"


def name_of(row: Record) -> str:
    """A record in short.

    Examples
    --------
    >>> shape = {"mode": "measured", "status": "ok", "m": 8192, "n": 49152, "k": 12288}
    >>> how = {"algorithm": "universal", "preset": "column", "stationary": "B"}
    >>> name_of(Record(**shape, best_s=1.0, dtype="float32", **how))
    'MLP-1, m = 8192, fp32, column S-B'
    >>> how = {"algorithm": "ag_gemm", "options": "variant=ring;tile=128"}
    >>> name_of(Record(**shape, best_s=1.0, dtype="bfloat16:float32", **how))
    'MLP-1, m = 8192, bf16, ag_gemm ring'
    """
    variant = re.search(r"variant=(\w+)", row.options or "")
    how = f"{row.algorithm} {variant[1] if variant else ''}"
    if row.algorithm == "universal":
        how = f"{row.preset or row.a} S-{row.stationary}"
    return f"{problem_of(row)}, {how}"


def _libraries(node: GpuNode, ended: list[dict]) -> Iterator[str]:
    """Times of libraries next to the fastest of drbench on the same problem and arithmetic."""
    yield "## Libraries\n"
    yield "".join(f"- {line}\n" for stage in ended for line in stage["without"])
    ours, lines = [row for row in node.rows("node") if is_ok(row)], []
    for row in node.rows("libraries"):
        times = [case.time_s for case in ours if problem_of(case) == problem_of(row)]
        words = [row.algorithm, row.dataflow, row.preset]
        words.append("(C in bfloat16)" if row.dtype == "bfloat16" else None)
        cells = [f"{row.status}: {row.reason}"[:80]]
        if is_ok(row):
            cells = [time_text(row.time_s), f"{row.gflops / 1e3:.0f}"]
            if times:
                cells += [time_text(min(times)), f"{row.time_s / min(times):.2f}"]
        lines.append((problem_of(row), " ".join(filter(None, words)), *cells))
    header = ["problem", "library", "time", "TFLOP/s", "fastest drbench", "library / drbench"]
    yield _table(header, lines) if lines else "No library ran.\n"


def _table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Markdown whose columns are aligned, so that it is readable as text.

    Examples
    --------
    >>> print(_table(["case", "ms"], [["a", 1.5], ["longer"]]), end="")
    | case   | ms  |
    |--------|-----|
    | a      | 1.5 |
    | longer |     |
    """
    table = Table(*header, box=MARKDOWN)
    for line in lines:
        table.add_row(*(str(cell).replace("|", "/") for cell in line))
    return _text(table).strip(" \n") + "\n"


def _text(*parts: object) -> str:
    """What rich prints, as it is."""
    out = Console(file=StringIO(), width=10**4, markup=False, emoji=False, highlight=False)
    out.print(*parts, sep="\n")
    return out.file.getvalue()
