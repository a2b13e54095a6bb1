"""The page of ``launch/gpu_check.sh``: what held and what did not, and measured next to predicted
times on all GPUs of the node."""

import time
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from drbench.errors import DrbenchError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine, model_version
from drbench.launch.cases.peaks import compute_column
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.models.intervals import doubted
from drbench.launch.sweeps.store import case_id
from drbench.launch.views.findings import pair_tables
from drbench.measure.record import Record, RecordError
from drbench.measure.record_file import read_csv
from drbench.plots.select.cases import shape_name
from drbench.texts import bytes_text

#: The sweep that is measured and predicted, and the machine model of its predictions.
NODE, MODEL = "gpu-node", "h100x8measured"
#: Of 20 measured times this number is expected in its interval.
_INSIDE = 0.95
#: Least share of GEMM-only speed of the better layout in float32; the model predicts
#: 0.92 to 0.98.
_BOUND = 0.9


class Check(NamedTuple):
    """One line of the result: what, the figure, the bar (empty: none is set), and whether it holds
    (None: not decided)."""

    what: str
    value: str
    bar: str
    ok: bool | None

    @property
    def is_wrong(self) -> bool:
        """Whether a result or an end is wrong; a rate below its bar is not."""
        return self.ok is False and not self.bar.startswith(">=")

    def where(self, decided: bool) -> "Check":
        """The line, without its bar where that is of something else."""
        return self if decided else self._replace(bar="", ok=None)


class Compared(NamedTuple):
    """A case with its measured and its predicted record; None for one that does not exist."""

    case: Case
    measured: Record | None
    predicted: Record | None

    @property
    def ratio(self) -> float | None:
        """The measured time over the predicted one, if there are both."""
        both = _ok(self.measured) and _ok(self.predicted)
        return self.measured.time_s / self.predicted.time_s if both else None

    @property
    def inside(self) -> bool | None:
        """Whether the measured time is in the interval of the prediction."""
        if self.ratio is None or self.predicted.median_low_s is None:
            return None
        return self.predicted.median_low_s <= self.measured.time_s <= self.predicted.median_high_s


def _ok(record: Record | None) -> bool:
    return record is not None and record.status == "ok"


class Node(NamedTuple):
    """The node of a check.

    Attributes
    ----------
    out : Path
        The folder with the records.
    ranks : int
        One for each GPU that is used.
    report : dict
        What ``drbench.launch.ranks.gpu_report`` printed; empty if it did not end well.
    """

    out: Path
    ranks: int
    report: dict = {}

    @property
    def names(self) -> list[str]:
        """The names of the GPUs, each once."""
        return sorted({device["name"] for device in self.report.get("devices", ())})

    @property
    def is_modelled(self) -> bool:
        """Whether the predictions of :data:`MODEL` are of such a node."""
        machine = find_machine(MODEL)
        same = [machine.sources["calibrated"]["processor"]] == self.names
        return same and self.ranks == machine.devices

    def compared(self, machine: str, folder: str) -> list[Compared]:
        """The cases with their records, and those of predictions on a machine in a folder; empty if
        there is no such machine.

        Examples
        --------
        >>> [each.ratio for each in Node(Path("none"), 8).compared(MODEL, "none")][:2]
        [None, None]
        """
        try:
            model = find_machine(machine)
        except (DrbenchError, OSError):
            return []
        runs = load_sweep(NODE, self.ranks).cases
        models = load_sweep(NODE, self.ranks, label=model.name, simulate=True).cases
        code, found = model_version(model), []
        measured, predicted = (
            {row.case: row for row in read_rows(self.out / each / "records.csv")}
            for each in ("node", folder)
        )
        for run, modelled in zip(runs, models, strict=True):
            ids = case_id(run, self.ranks), case_id(modelled, self.ranks, code)
            found.append(Compared(run, measured.get(ids[0]), predicted.get(ids[1])))
        return found


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


def checks_of_node(node: Node, ended: Iterable[dict]) -> Iterator[Check]:
    """Bars of the cases on all GPUs, each with a source: intervals of predictions, and numbers that
    were published or predicted for such a node. On another node the same lines have no bar."""
    lines = [line for stage in ended if stage["name"] == "bandwidth" for line in stage["lines"]]
    yield from _of_transfers(lines, node.is_modelled)
    known = node.compared(MODEL, "predicted")
    here = node.compared(str(node.out / "here.toml"), "predicted-here")
    for cases, machine, decided in ((known, MODEL, node.is_modelled), (here, "here.toml", True)):
        inside = [each.inside for each in cases if each.inside is not None]
        if inside:
            share = sum(inside) / len(inside)
            what, bar = f"times in the interval of {machine}", f">= {_INSIDE} (intervals)"
            value = f"{share:.2f} ({sum(inside)} of {len(inside)})"
            yield Check(what, value, bar, share >= _INSIDE).where(decided)
    yield from _of_layers([each.measured for each in known if _ok(each.measured)], node.is_modelled)


def _of_transfers(lines: list[dict], decided: bool) -> Iterator[Check]:
    """The rates of the largest transfers, all GPUs at once."""
    lines = [line for line in lines if line["nbytes"] == max(each["nbytes"] for each in lines)]
    rates = {line["operation"]: line["bus_gbps"] for line in lines if line["bus_gbps"]}
    machine = find_machine(MODEL)
    _, slower = doubted(machine)
    link = slower.link(0, 1)
    for name, rate in rates.items():
        nbytes = lines[0]["nbytes"]
        time_s = nbytes / link.bandwidth_bytes_per_s + link.latency_s + slower.fence_s
        least = nbytes / time_s / 1e9
        what = f"{name} of {bytes_text(nbytes)}, all GPUs at once"
        bar = f">= {least:.0f} (slower end of {MODEL})"
        found = Check(what, f"{rate:.0f} GB/s", bar, rate >= least)
        yield found.where(name == "get" and decided)
    if {"get", "accumulate"} <= rates.keys():
        share, least = rates["accumulate"] / rates["get"], machine.accumulate_efficiency
        bar = f">= {least} (the paper, 5.1)"
        yield Check("accumulate / get", f"{share:.2f}", bar, share >= least).where(decided)


def _of_layers(rows: list[Record], decided: bool) -> Iterator[Check]:
    """Of the largest batch of each layer in float32: the share of the bound with each stationary
    matrix."""
    rows = [row for row in rows if row.algorithm == "universal" and row.compute == "fp32"]
    rows = [row for row in rows if row.m == max(each.m for each in rows)]
    for shape in sorted({(row.m, row.n, row.k) for row in rows}, key=lambda shape: shape[::-1]):
        mine = [row for row in rows if (row.m, row.n, row.k) == shape]
        for stationary in "BC":
            shares = [row.percent_of_gemm_only or 0 for row in mine if row.stationary == stationary]
            if shares:
                share = max(shares) / 100
                bar = f">= {_BOUND} (predicted 0.92 to 0.98)"
                what = f"{shape_name(shape)}, fp32, S-{stationary} / GEMM-only speed"
                yield Check(what, f"{share:.2f}", bar, share >= _BOUND).where(decided)


# -- the page ----------------------------------------------------------------------------------


def write_page(node: Node, ended: list[dict], checks: list[Check]) -> str:
    """Write the page into ``node.md``, and return its text."""
    text = "\n".join(_parts(node, ended, checks))
    (node.out / "node.md").write_text(text, encoding="utf-8")
    return text


def _parts(node: Node, ended: list[dict], checks: list[Check]) -> Iterator[str]:
    report, bad = node.report, [check for check in checks if check.ok is False]
    bad.sort(key=lambda check: not check.is_wrong)
    devices = report.get("devices", ())
    name = ", ".join(node.names) or "unknown GPUs"
    yield f"# GPU check: {len(devices) or node.ranks} x {name}, {time.strftime('%Y-%m-%d')}\n"
    driver = report.get("driver", 0)
    words = [f"CuPy {report.get('cupy')}", report.get("cublas"), report.get("nccl")]
    words.append(f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}")
    yield f"{', '.join(filter(None, words))}; {sum(each['seconds'] for each in ended):.0f} s.\n"
    good = sum(check.ok is True for check in checks)
    late = sum(check.value.startswith("not started") for check in checks)
    rest = f"; {late} stages were not started, because the time was used up" if late else ""
    yield f"{good} of {good + len(bad)} bars are met{rest}.\n"
    for check in checks:
        if check.what.startswith("times in the interval"):
            yield f"{check.what[0].upper()}{check.what[1:]}: {check.value}.\n"
    yield "## Not met\n"
    yield _table(["what", "measured", "bar"], [check[:3] for check in bad]) if bad else "Nothing.\n"
    if node.ranks > 1:
        for probe in lines_of(ended, kind="pairs"):
            yield f"## Pairs of GPUs\n\n```text\n{_text(*pair_tables(probe)).rstrip()}\n```\n"
        yield from _predictions(node)
        yield from _libraries(node, ended)
    yield "## Met, or without a bar\n"
    rest = [check for check in checks if check.ok is not False]
    met = {True: "met", None: ""}
    yield _table(["what", "measured", "bar", ""], [(*each[:3], met[each.ok]) for each in rest])
    yield "## Stages\n"
    lines = [(each["name"], each["exit"], each["seconds"], *each["end"][:1]) for each in ended]
    yield _table(["stage", "exit", "seconds", "last line of a failure"], lines)


def _predictions(node: Node) -> Iterator[str]:
    """Measured next to predicted times, on the model and on the machine that was calibrated."""
    here = str(node.out / "here.toml")
    yield f"## Measured and predicted: {MODEL}\n"
    if not node.is_modelled:
        machine = find_machine(MODEL)
        yield (
            f"The prediction is of another machine: {MODEL} is {machine.devices} x "
            f"{machine.sources['calibrated']['processor']}, this node is {node.ranks} x "
            f"{', '.join(node.names) or 'unknown'}.\n"
        )
    yield from _times(node.compared(MODEL, "predicted"))
    yield "## Measured and predicted: this node, as calibrated now\n"
    yield from _times(node.compared(here, "predicted-here"))


_COLUMNS = ["case", "predicted, ms", "measured, ms", "ratio", "in interval", "% of the bound"]


def _times(cases: list[Compared]) -> Iterator[str]:
    shown = [each for each in cases if _ok(each.predicted)]
    if not shown:
        yield "There is no prediction: its stage did not end, or was not started.\n"
        return
    yield _table(_COLUMNS, map(_line, shown))
    if refused := [each.predicted for each in cases if each.predicted and not _ok(each.predicted)]:
        reasons = "; ".join(sorted({row.reason.partition(". ")[0] for row in refused}))
        yield f"{len(refused)} of {len(cases)} cases are not predicted: {reasons}.\n"


def _line(each: Compared) -> tuple:
    predicted, row = each.predicted, each.measured
    interval = ""
    if predicted.median_low_s is not None:
        low, high = predicted.median_low_s, predicted.median_high_s
        interval = f" ({_ms(low)} to {_ms(high)})"
    measured = "not measured" if row is None else _ms(row.time_s) if _ok(row) else row.status
    percent = row.percent_of_gemm_only if _ok(row) else None
    return (
        name_of(each.case),
        f"{_ms(predicted.time_s)}{interval}",
        measured + " (noisy)" * bool(row and row.noisy),
        "" if each.ratio is None else f"{each.ratio:.2f}",
        {True: "yes", False: "NO", None: ""}[each.inside],
        "" if percent is None else f"{percent:.0f}",
    )


def _ms(seconds: float) -> str:
    """
    Examples
    --------
    >>> _ms(0.0234), _ms(0.00046), _ms(1.5e-5)
    ('23.4', '0.46', '0.015')
    """
    return f"{1e3 * seconds:.3g}"


def name_of(case: Case) -> str:
    """A case in short.

    Examples
    --------
    >>> cases = load_sweep(NODE, 8).cases
    >>> name_of(cases[0]), name_of(cases[-1])
    ('MLP-1, m = 8192, fp32, column S-B', 'MLP-2, m = 8192, bf16, outer S-C')
    >>> name_of(next(case for case in cases if case.algorithm != "universal"))
    'MLP-1, m = 8192, bf16, ag_gemm ring'
    """
    how = f"{case.algorithm} {case.options.get('variant', '')}"
    if case.algorithm == "universal":
        how = f"{case.preset} S-{case.options['stationary']}"
    return (
        f"{shape_name((case.m, case.n, case.k))}, {compute_column(case.dtype, case.compute)}, {how}"
    )


def _libraries(node: Node, ended: list[dict]) -> Iterator[str]:
    """Times of libraries next to the fastest of drbench on the same problem and arithmetic; C may
    have another type."""
    yield "## Libraries\n"
    yield "".join(f"- {line}\n" for each in ended for line in each["without"])
    problem = lambda row: ((row.m, row.n, row.k), compute_column(row.dtype, row.compute))
    ours = [row for row in read_rows(node.out / "node" / "records.csv") if _ok(row)]
    lines = []
    for row in read_rows(node.out / "libraries" / "records.csv"):
        times = [each.time_s for each in ours if problem(each) == problem(row)]
        fastest, (shape, arithmetic) = min(times, default=None), problem(row)
        words = [row.algorithm, row.dataflow, row.preset]
        words.append("(C in bfloat16)" if row.dtype == "bfloat16" else None)
        lines.append(
            (
                f"{shape_name(shape)}, {arithmetic}",
                " ".join(filter(None, words)),
                _ms(row.time_s) if _ok(row) else f"{row.status}: {row.reason}"[:80],
                f"{row.gflops / 1e3:.0f}" if _ok(row) else "",
                "" if fastest is None else _ms(fastest),
                f"{row.time_s / fastest:.2f}" if fastest and _ok(row) else "",
            )
        )
    header = ["problem", "library", "ms", "TFLOP/s", "fastest drbench, ms", "library / drbench"]
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
    made = Table(*header, box=MARKDOWN)
    for line in lines:
        made.add_row(*(str(cell).replace("|", "/") for cell in line))
    return _text(made).strip(" \n") + "\n"


def _text(*parts: object) -> str:
    """What rich prints, as it is."""
    out = Console(file=StringIO(), width=10**4, markup=False, emoji=False, highlight=False)
    out.print(*parts, sep="\n")
    return out.file.getvalue()
