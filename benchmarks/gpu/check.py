"""``launch/gpu_check.sh``: drbench's claims about GPUs, stage by stage, each a process with a time
limit; a table and a JSON file at the end."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from drbench.errors import EXIT_CODES, CaseTimeout, DrbenchError
from drbench.measure.record import Record, RecordError
from drbench.measure.record_file import read_csv
from launch.host.mpi import mpiexec_command
from launch.host.processes import running
from launch.host.show import table
from launch.views.findings import pair_findings

#: Ranks that check results; on a node of more GPUs as many as there are, too.
_RANKS, _MOST_RANKS = (1, 2, 4), 8
#: All stages together, so that the whole ends in eight minutes; a stage is not started for less
#: than this many seconds.
_BUDGET_S, _LEAST_S = 460.0, 3.0
#: Cases that time one rank: (label, m, n, k, further words).
_TILES = "--a {0} --b {0} --c {0} --stationary C -o chunk=none".format("tiles:2048x2048@1x1")
_TIMED = [
    ("8192 cubed, 64 tiles", 8192, 8192, 8192, _TILES),
    ("mlp1 h=12288 m=8192", 8192, 49152, 12288, "--preset block --stationary C"),
    ("mlp2 h=12288 m=8192", 8192, 12288, 49152, "--preset block --stationary C"),
]
#: The GEMM of one of those tiles, timed by itself.
_TILE = (2048, 2048, 2048)
_ARITHMETIC = {"fp32": "", "tf32": "-o compute=tf32", "bf16": "--dtype bfloat16:float32"}


class Stage(NamedTuple):
    """A process: its name, command, time limit in seconds, and the file its records go to, if it
    makes any."""

    name: str
    command: tuple
    limit_s: float
    records: Path | None = None


class Check(NamedTuple):
    """One line of the table: what, the figure, the bar (None: none is set), and whether it holds
    (None: not decided)."""

    what: str
    value: str
    bar: str
    ok: bool | None


def stages(out: Path, gpus: int) -> list[Stage]:
    """All stages on a machine of so many GPUs, in order."""
    module = lambda words: (sys.executable, "-m", *words.split())
    contract = "pytest -q -p no:cacheprovider tests/device/gpu/test_contract.py"
    peers = (*mpiexec_command(2), *module("mpi4py -m benchmarks.gpu.speed peers"))
    found = [
        Stage("report", module("launch.ranks.gpu_report"), 60),
        Stage("speed", module("benchmarks.gpu.speed"), 90),
        Stage("peers", peers, 60),
        Stage("tests", module(contract), 90),
    ]

    small = "-o m=768 -o n=640 -o k=896 -o iters=1 -o budget=0 -o backend=cupy"
    for p in sorted({*_RANKS, min(gpus, _MOST_RANKS)}):
        for what, sweep, limit_s in (
            ("universal", "gpu-exact", 70),
            ("algorithms", f"same-tiles {small}", 60),
            # flags that streams wait for, where every rank has a GPU; else hosts signal
            *[("overlap", "gpu-overlap", 60)] * (p > 1),
        ):
            folder = out / f"{what}-p{p}"
            command = *module(f"drbench sweep {sweep} -p {p} --fresh --out"), str(folder)
            found.append(Stage(f"{what} on {p}", command, limit_s, folder / "records.csv"))
    for label, m, n, k, words in _TIMED:
        for arithmetic, more in _ARITHMETIC.items():
            # its own: a stage that made no record shows none
            path = out / f"one-rank-{arithmetic}-{label.split()[0]}.csv"
            case = f"run -p 1 -m {m} -n {n} -k {k} {words} {more} --backend cupy -o get=copy"
            command = *module(f"drbench {case} --iters 5 --csv"), str(path)
            found.append(Stage(f"{label}, {arithmetic}", command, 40, path))
    return found


def run_stage(stage: Stage, log: Path, limit_s: float = math.inf) -> dict:
    """Run one stage, at most ``limit_s`` seconds if that is less than its own limit; how it ended,
    and the JSON lines it printed.

    A late stage is ended with all the ranks it started: else they would use the GPU during the next
    stage.
    """
    start, limit_s = time.monotonic(), min(stage.limit_s, limit_s)
    if limit_s < _LEAST_S:
        code = EXIT_CODES["timeout"]
        text = "not started: the time of all stages together is used up"
    else:
        with tempfile.TemporaryFile(
            "w+", encoding="utf-8", errors="replace"
        ) as output:  # no pipe: a remaining rank would keep it open
            late = ""
            try:
                with running(
                    stage.name, stage.command, stdout=output, stderr=subprocess.STDOUT
                ) as process:
                    code = process.wait(limit_s)
            except CaseTimeout:
                code, late = EXIT_CODES["timeout"], f"\ngpu_check: ended after {limit_s:.0f} s"
            output.seek(0)
            text = output.read() + late
    with log.open("a", encoding="utf-8") as file:
        file.write(f"=== {stage.name}: exit {code}, {time.monotonic() - start:.1f} s\n{text}\n")
    lines = []
    for line in text.splitlines():
        with suppress(ValueError):
            lines.append(json.loads(line))
    return {
        "name": stage.name,
        "exit": code,
        "seconds": round(time.monotonic() - start, 1),
        "lines": [line for line in lines if isinstance(line, dict)],
        "end": text.strip().splitlines()[-1:] if code else [],
    }


def checks_of(ended: list[dict], records: dict[str, list[Record]]) -> list[Check]:
    """The table: what each stage showed, against its bar.

    Parameters
    ----------
    ended : list of dict
        What :func:`run_stage` gave.
    records : dict
        Records by stage name.

    Examples
    --------
    >>> speed = {
    ...     "name": "speed",
    ...     "exit": 0,
    ...     "lines": [
    ...         {"kind": "copy", "what": "half of each row", "gb_per_s": 1900.0, "of_plain": 0.93}
    ...     ],
    ... }
    >>> checks_of([speed], {})[1]
    Check(what='strided copy / whole copy', value='0.93 (1900 GB/s)', bar='>= 0.9', ok=True)
    """
    found = []
    for stage in ended:
        name, lines, rows = stage["name"], stage["lines"], records.get(stage["name"], [])
        fine = stage["exit"] == 0
        if rows and not name.endswith(tuple(_ARITHMETIC)):
            exact = sum(row.status == "ok" and row.error == 0 for row in rows)
            refused = sum(row.status == "unsupported" for row in rows)
            value = f"{exact} of {len(rows) - refused}, {refused} refused"
            right = fine and exact == len(rows) - refused and exact > 0
            found.append(Check(f"{name} rank(s) exact", value, "all", right))
        elif rows:
            row = rows[-1]
            ratio = (row.percent_of_roof or 0.0) / 100
            found.append(
                Check(
                    f"{name} / unsplit gemmEx",
                    f"{ratio:.3f} ({(row.gflops or 0) / 1e3:.1f} TFLOP/s)"
                    if row.status == "ok"
                    else row.reason,
                    ">= 0.95",
                    row.status == "ok" and row.error == 0 and ratio >= 0.95,
                )
            )
            tile = _rate_of_a_tile(ended, name.rpartition(" ")[2])
            if "tiles" in name and tile and row.status == "ok":
                ratio = (row.gflops or 0) / 1e3 / tile
                what = f"{name} / local GEMMs of one tile"
                bound = f"{ratio:.3f} ({tile:.1f} TFLOP/s)"
                found.append(Check(what, bound, ">= 0.95", ratio >= 0.95))
        else:
            value = f"exit {stage['exit']} {' '.join(stage.get('end', []))}"[:120].strip()
            found.append(Check(name, value, "exit 0", fine))
        for line in lines:
            found += _of_line(line)
    return found


def _rate_of_a_tile(ended: list[dict], arithmetic: str) -> float | None:
    """TFLOP/s of one tile's GEMM behind others, from the stage on speed."""
    wanted = dict(zip("mnk", _TILE), kind="product", arithmetic=arithmetic).items()
    lines = (line for stage in ended for line in stage["lines"])
    return next((line["tflops"] for line in lines if wanted <= line.items()), None)


def _of_line(line: dict) -> Iterator[Check]:
    kind = line.get("kind")
    if kind == "peaks":
        for name, value in line.items():
            if name != "kind":
                yield Check(f"peak {name}", f"{value:.1f} TFLOP/s", "", None)
    if "gb_per_s" in line:
        speed = f"{line['gb_per_s']:.0f} GB/s"
    if kind == "copy" and "of_plain" in line:
        of_plain = line["of_plain"]
        value = f"{of_plain:.2f} ({speed})"
        yield Check("strided copy / whole copy", value, ">= 0.9", of_plain >= 0.9)
    if kind in ("accumulate", "add") and line["what"] == "vectors":
        bar, of_memory = 0.8 if kind == "accumulate" else 0.9, line["of_memory"]
        what, value = "memory, reading two and writing one", f"{of_memory:.2f} ({speed})"
        yield Check(f"{kind} / {what}", value, f">= {bar}", of_memory >= bar)
    if kind == "overlap":
        what = f"{line['arithmetic']} GEMM with {line['what']}"
        what += f", {line['blocks']} blocks" if line["blocks"] else ""
        hidden, longer = line["hidden"], line["both_ms"] / line["product_alone_ms"]
        value = f"{hidden:.2f} hidden, {longer:.2f} of the GEMM alone ({speed})"
        few = line["what"] == "accumulates" and line["blocks"] == 8
        yield Check(what, value, ">= 0.8 hidden" * few, hidden >= 0.8 if few else None)
    if kind == "host":
        yield Check(f"host: {line['what']}", f"{line['us']:.1f} us", "", None)
    if kind == "pairs":
        for each in pair_findings(line):
            yield Check(each.subject, each.text, "", False if each.level == "missing" else None)


def _write(out: Path, begin: float, ended: list[dict], checks: list[Check]) -> None:
    (out / "gpu_check.json").write_text(
        json.dumps(
            {
                "seconds": round(time.monotonic() - begin, 1),
                "host": os.uname().machine,
                "stages": ended,
                "checks": [check._asdict() for check in checks],
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="launch/gpu_check.sh")
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    from drbench.device.gpu.cuda import require_gpu

    console = Console(width=150)
    try:
        _, gpus = require_gpu()
        todo = stages(out, gpus)
    except DrbenchError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return error.exit_code
    out.mkdir(parents=True, exist_ok=True)
    for stage in todo:
        if stage.records is not None:  # of an earlier check
            stage.records.unlink(missing_ok=True)
    log, ended, records, begin = out / "log.txt", [], {}, time.monotonic()
    log.write_text("", encoding="utf-8")
    for stage in todo:
        ended.append(run_stage(stage, log, _BUDGET_S - (time.monotonic() - begin)))
        console.print(
            f"{stage.name}: exit {ended[-1]['exit']}, {ended[-1]['seconds']} s", markup=False
        )
        if stage.records is not None:
            try:
                records[stage.name] = read_csv(stage.records)
            except (OSError, RecordError):
                records[stage.name] = []
        # an interrupted check keeps its results so far
        _write(out, begin, ended, checks_of(ended, records))
    checks = checks_of(ended, records)
    emit = {True: "ok", False: "NOT MET", None: ""}
    rows = ((check.what, check.value or "", check.bar, emit[check.ok]) for check in checks)
    console.print(table("what|~measured|bar|", rows))
    console.print(f"{out / 'gpu_check.json'}", markup=False)
    return EXIT_CODES["wrong"] if any(check.ok is False for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
