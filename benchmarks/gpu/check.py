"""``launch/gpu_check.sh``: drbench's claims about GPUs, stage by stage, each a process with a time
limit, on all GPUs of the node; a page (:mod:`benchmarks.gpu.page`) and a JSON file at the end."""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from drbench.errors import EXIT_CODES, CaseTimeout, DrbenchError
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.host.mpi import launched
from drbench.launch.host.processes import running
from drbench.measure.record import Record

from .page import (
    CheckLine,
    GpuNode,
    checks_of_node,
    is_ok,
    lines_of,
    name_of,
    read_rows,
    write_page,
)

#: The stages, and the most GPUs that are used.
_STAGES, _MOST_RANKS = Path(__file__).with_name("stages.toml"), 8
#: All stages together, so that the whole ends in eight minutes; a stage is not started for less
#: than this many seconds.
_BUDGET_S, _LEAST_S = 460.0, 3.0
_USED_UP = "the time of all stages together is used up"
#: The GEMM of one of the tiles of one_rank.toml, which is timed by itself.
_TILE = 2048


class Stage(NamedTuple):
    """A process: its name, command, time limit in seconds, the file its records go to, if it makes
    any, and what these show: ``exact`` results, also of ``libraries``, or predictions."""

    name: str
    command: tuple
    limit_s: float
    records: Path | None = None
    kind: str = ""


def stages(out: Path, gpus: int) -> Iterator[Stage]:
    """All stages on a machine of so many GPUs, in order. Their records are in ``out``."""
    most = min(gpus, _MOST_RANKS)
    for stage in read_toml(_STAGES)["stages"]:
        for p in stage.get("others", [most]):
            again = p == most and "others" in stage
            if p >= stage.get("least", 1) and gpus <= stage.get("most", gpus) and not again:
                words = [word.format(p=p, out=out) for word in stage["command"].split()]
                command = (sys.executable, "-m", *words)
                kind, limit_s = stage.get("kind", ""), stage["limit_s"]
                records = Path(words[-1], "records.csv") if kind else None
                yield Stage(stage["name"].format(p=p), command, limit_s, records, kind)


def run_stage(stage: Stage, log: Path, limit_s: float = math.inf) -> dict:
    """Run one stage, at most ``limit_s`` seconds if that is less than its own limit; how it ended,
    and the JSON lines it printed.

    A late stage is ended with all the ranks it started: else they would use the GPU during the next
    stage.
    """
    start, why = time.monotonic(), f": {_USED_UP}" * (limit_s < stage.limit_s)
    limit_s, code, late = min(stage.limit_s, limit_s), EXIT_CODES["timeout"], f"not started{why}"
    with log.open("a+", encoding="utf-8", errors="replace") as file:
        print(f"=== {stage.name}", file=file, flush=True)
        begin, how = file.tell(), {"stdout": file, "stderr": subprocess.STDOUT}
        if limit_s >= _LEAST_S:
            try:
                with running(stage.name, stage.command, **how) as process:
                    code, late = process.wait(limit_s), ""
            except CaseTimeout:
                late = f"ended after {limit_s:.0f} s{why}"
        file.seek(begin)
        text = file.read()
        seconds = round(time.monotonic() - start, 1)
        print(f"{late}\nexit {code}, {seconds} s", file=file)
    lines, words = [], [*text.splitlines(), *filter(None, [late])]
    for line in [*words]:
        with suppress(ValueError):
            value = json.loads(line)
            lines += value if isinstance(value, list) else [value]
            words.remove(line)
    return {
        "name": stage.name,
        "kind": stage.kind,
        "exit": code,
        "seconds": seconds,
        "lines": [line for line in lines if isinstance(line, dict)],
        "without": [line for line in words if line.startswith("Not installed: ")],
        "end": words[-1:] if code else [],
    }


def checks_of(
    ended: list[dict], records: dict[str, list[Record]], node: GpuNode
) -> Iterator[CheckLine]:
    """What each stage showed, with its bar.

    Parameters
    ----------
    ended : list of dict
        Results of :func:`run_stage`.
    records : dict
        Records by stage name.
    node : GpuNode

    Examples
    --------
    >>> line = {"check": ["strided copy / whole copy", "0.93 (1900 GB/s)", ">= 0.9", True]}
    >>> speed = {"name": "speed", "kind": "", "exit": 0, "end": [], "lines": [line]}
    >>> [*checks_of([speed], {}, GpuNode(Path("none"), 1))][1]
    CheckLine(what='strided copy / whole copy', value='0.93 (1900 GB/s)', bar='>= 0.9', ok=True)
    """
    for stage in ended:
        name, kind, rows = stage["name"], stage["kind"], records.get(stage["name"], [])
        end = " ".join(stage["end"])
        fine = stage["exit"] == 0 or end.endswith(_USED_UP)
        if rows and kind in ("exact", "libraries"):
            exact = sum(row.status == "ok" and row.error == 0 for row in rows)
            refused = sum(row.status == "unsupported" for row in rows)
            value = f"{exact} of {len(rows) - refused}, {refused} refused"
            some = exact > 0 or kind == "libraries"  # may all be refused
            right = fine and exact == len(rows) - refused and some
            yield CheckLine(f"{name} rank(s) exact", value, "all", right)
            if name == f"overlap on {node.ranks}":
                yield _of_paths(rows, node)
        elif not (rows and fine):
            value = f"exit {stage['exit']} {end}"[:120].strip()
            missing = end.endswith((_USED_UP, "No module named pytest")) or kind == "libraries"
            check = CheckLine(name, value, "exit 0", fine and kind != "predicted")
            yield check.where(not missing)
        for row in filter(is_ok, rows if name == "speed on 1" else ()):
            yield from _rates_of_one_rank(row, ended)
        findings = [line for line in stage["lines"] if "level" in line]
        right = all(finding["level"] != "missing" for finding in findings)
        for finding in findings:  # of doctor
            verified = right and finding["subject"] == "GPU pairs"
            ok = False if finding["level"] == "missing" else verified or None
            yield CheckLine(finding["subject"], finding["text"], "right bytes" * verified, ok)
        yield from (CheckLine(*line["check"]) for line in stage["lines"] if "check" in line)
    yield from checks_of_node(node, ended)


def _rates_of_one_rank(row: Record, ended: list[dict]) -> Iterator[CheckLine]:
    """The rate next to an unsplit GEMM, and that of tiles next to the GEMM of one behind others,
    from the stage on speed."""
    rate = (row.gflops or 0) / 1e3
    shares = {"unsplit gemmEx": (row.percent_of_gemm_only or 0.0) / 100}
    for line in lines_of(ended, kind="product", arithmetic=row.compute, n=_TILE):
        if row.preset is None:
            shares["local GEMMs of one tile"] = rate / line["tflops"]
    for what, share in shares.items():
        value = f"{share:.3f} ({rate:.1f} TFLOP/s)"
        yield CheckLine(f"{name_of(row)} / {what}", value, ">= 0.95", share >= 0.95)


def _of_paths(rows: list[Record], node: GpuNode) -> CheckLine:
    """How ranks of different GPUs reach each other and signal; the bar is for GPUs that all reach
    each other, with NCCL."""
    ok, columns = list(filter(is_ok, rows)), ("transport", "collectives", "progress")
    kinds = ({getattr(row, name) for row in ok} - {None, "poll"} for name in columns)
    value = ", ".join("/".join(sorted(kind)) for kind in kinds)
    connected = node.report.get("nccl") and not node.report.get("no_peer_access")
    bar = "direct, nccl, streams"
    what = f"transport, collectives and signals on {node.ranks} rank(s)"
    return CheckLine(what, value, bar, value == bar).where(bool(connected and ok))


def check(todo: list[Stage], node: GpuNode, print_line: Callable[[str], None]) -> int:
    """Run all stages, write the page and ``gpu_check.json`` after each of them, print the page, and
    return the exit code: 1 if anything is wrong, and not merely slow."""
    node.out.mkdir(parents=True, exist_ok=True)
    paths = [stage.records for stage in todo if stage.records]
    for path in (*paths, node.out / "here.toml"):  # of an earlier check
        path.unlink(missing_ok=True)
    log, ended, records, begin = node.out / "log.txt", [], {}, time.monotonic()
    log.write_text("", encoding="utf-8")
    for stage in todo:
        ended.append(run_stage(stage, log, _BUDGET_S - (time.monotonic() - begin)))
        print_line(f"{stage.name}: exit {ended[-1]['exit']}, {ended[-1]['seconds']} s")
        for report in lines_of(ended, kind="pairs"):
            node = node._replace(report=report)
        if stage.records is not None:
            records[stage.name] = read_rows(stage.records)
        # an interrupted check keeps its results so far
        checks = list(checks_of(ended, records, node))
        page = write_page(node, ended, checks)
        result = {
            "seconds": round(time.monotonic() - begin, 1),
            "host": os.uname().machine,
            "stages": ended,
            "checks": [check._asdict() for check in checks],
        }
        text = json.dumps(result, indent=1) + "\n"
        (node.out / "gpu_check.json").write_text(text, encoding="utf-8")
    print_line(f"\n{page}\n{node.out / 'node.md'}, {node.out / 'gpu_check.json'}")
    return EXIT_CODES["wrong"] if any(check.is_wrong for check in checks) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="launch/gpu_check.sh")
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    from drbench.device.gpu.cuda import require_gpu

    here = launched()
    if here is not None and here.size > 1:
        print("gpu_check: it starts its own ranks. Run it once, without srun.", file=sys.stderr)
        return EXIT_CODES["usage"]
    for name in ("SLURM_STEP_ID", "SLURM_STEPID"):  # a shell of srun --pty is no rank
        os.environ.pop(name, None)
    try:
        _, gpus = require_gpu()
        todo = list(stages(out, gpus))
    except DrbenchError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return error.exit_code
    print_line = lambda text: print(text, flush=True)
    return check(todo, GpuNode(out, min(gpus, _MOST_RANKS)), print_line)


if __name__ == "__main__":
    sys.exit(main())
