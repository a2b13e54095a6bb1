"""``launch/gpu_check.sh``: drbench's claims about GPUs, stage by stage, each a process with a time
limit, on all GPUs of the node; a page (:mod:`benchmarks.gpu.page`) and a JSON file at the end."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from drbench.errors import EXIT_CODES, CaseTimeout, DrbenchError
from drbench.launch.host.mpi import launched, mpiexec_command
from drbench.launch.host.processes import running
from drbench.launch.views.findings import pair_findings
from drbench.measure.record import Record

from .page import MODEL, NODE, Check, Node, checks_of_node, lines_of, read_rows, write_page

#: Ranks that check results; on a node of more GPUs as many as there are, too.
_RANKS, _MOST_RANKS = (1, 2, 4), 8
#: All stages together, so that the whole ends in eight minutes; a stage is not started for less
#: than this many seconds.
_BUDGET_S, _LEAST_S = 460.0, 3.0
_USED_UP = "the time of all stages together is used up"
#: A case that hangs ends after these seconds, and its sweep continues.
_CASE_S = 30
#: Cases that time one rank: (label, m, n, k, further words).
_TILES = "--a {0} --b {0} --c {0} --stationary C -o chunk=none"
_TIMED = [
    ("8192 cubed, 64 tiles", 8192, 8192, 8192, _TILES),
    ("mlp1 h=12288 m=8192", 8192, 49152, 12288, "--preset block --stationary C"),
    ("mlp2 h=12288 m=8192", 8192, 12288, 49152, "--preset block --stationary C"),
]
#: The GEMM of one of those tiles, timed by itself.
_TILE = (2048, 2048, 2048)
_ARITHMETIC = {"fp32": "", "tf32": "-o compute=tf32", "bf16": "--dtype bfloat16:float32"}
#: Bytes of the transfers between all ranks.
_SIZES = "64KiB,1MiB,16MiB,256MiB"


class Stage(NamedTuple):
    """A process: its name, command, time limit in seconds, the file its records go to, if it makes
    any, and what these show: ``exact`` results, also of ``libraries``, the speed of ``one rank``,
    or predictions."""

    name: str
    command: tuple
    limit_s: float
    records: Path | None = None
    kind: str = ""


def stages(out: Path, gpus: int) -> list[Stage]:
    """All stages on a machine of so many GPUs, in order: the cheapest proofs first, so that they
    are made if the time is used up. Their records are in ``out``."""
    most = min(gpus, _MOST_RANKS)
    return [
        Stage("report", _module("drbench.launch.ranks.gpu_report"), 30),
        Stage("pairs", (*mpiexec_command(max(most, 2)), *_module(_PAIRS)), 90),
        *_exact(out, most, True),
        *(_of_all_gpus(out, most) if most > 1 else ()),
        Stage("speed", _module("benchmarks.gpu.speed"), 90),
        Stage("tests", _module(_CONTRACT), 90),
        *_of_one_rank(out),
        *(stage for ranks in _RANKS if ranks != most for stage in _exact(out, ranks, most == 1)),
    ]


_PAIRS = "mpi4py -m drbench.launch.ranks.gpu_pairs"
_CONTRACT = "pytest -q -p no:cacheprovider tests/device/gpu/test_contract.py"


def _module(words: str, *more) -> tuple:
    """The command that runs a Python module with some words."""
    return (sys.executable, "-m", *words.split(), *map(str, more))


def _sweep(name: str, words: str, folder: Path, limit_s: float, *more) -> Stage:
    """A stage that runs or predicts a sweep anew; ``more`` words may have blanks."""
    command = _module(f"drbench sweep {words} --fresh", *more, "--out", folder)
    kind = "predicted" if "--simulate" in words else "exact"
    return Stage(name, command, limit_s, folder / "records.csv", kind)


def _exact(out: Path, ranks: int, algorithms: bool) -> Iterator[Stage]:
    """Small cases of layouts and programs on some ranks; with ``algorithms`` also of all others,
    which takes longest."""
    case = f"-p {ranks} --timeout {_CASE_S}"
    yield _sweep(f"universal on {ranks}", f"gpu-exact {case}", out / f"exact-p{ranks}", 90)
    if ranks > 1:  # flags that streams wait for, where every rank has a GPU; else hosts signal
        folder = out / f"overlap-p{ranks}"
        yield _sweep(f"overlap on {ranks}", f"gpu-overlap {case}", folder, 60)
    if algorithms:
        small = "-o m=768 -o n=640 -o k=896 -o iters=1 -o budget=0 -o backend=cupy"
        words, folder = f"same-tiles {small} {case}", out / f"algorithms-p{ranks}"
        yield _sweep(f"algorithms on {ranks}", words, folder, 90)


def _of_all_gpus(out: Path, ranks: int) -> list[Stage]:
    """Stages that need several GPUs: their speed, libraries, and a model of this machine."""
    on, here = f"-p {ranks} --timeout {_CASE_S}", out / "here.toml"
    words = f"drbench bandwidth -p {ranks} --backend cupy --sizes {_SIZES} --json --csv"
    predict = f"{NODE} -p {ranks} --simulate"
    calibrate = f"drbench calibrate -p {ranks} --backend cupy --rounds 3 --save"
    libraries = _sweep(f"libraries on {ranks}", f"gpu-libraries {on}", out / "libraries", 60)
    return [
        Stage("bandwidth", _module(words, out / "bandwidth.csv"), 60),
        _sweep(f"timed on {ranks}", f"{NODE} {on}", out / "node", 150),
        _sweep("predicted", predict, out / "predicted", 60, "--machine", MODEL),
        libraries._replace(kind="libraries"),
        Stage("calibrate", _module(calibrate, here), 90),
        _sweep("predicted here", predict, out / "predicted-here", 30, "--machine", here),
    ]


def _of_one_rank(out: Path) -> Iterator[Stage]:
    """The speed of one rank, next to an unsplit GEMM."""
    for label, m, n, k, words in _TIMED:
        for arithmetic, more in _ARITHMETIC.items():
            # its own: a stage that made no record shows none
            path = out / f"one-rank-{arithmetic}-{label.split()[0]}.csv"
            layout = words.format(f"tiles:{_TILE[0]}x{_TILE[0]}@1x1")
            case = f"run -p 1 -m {m} -n {n} -k {k} {layout} {more} --backend cupy -o get=copy"
            command = _module(f"drbench {case} --iters 5 --csv", path)
            yield Stage(f"{label}, {arithmetic}", command, 40, path, "one rank")


def run_stage(stage: Stage, log: Path, limit_s: float = math.inf) -> dict:
    """Run one stage, at most ``limit_s`` seconds if that is less than its own limit; how it ended,
    and the JSON lines it printed.

    A late stage is ended with all the ranks it started: else they would use the GPU during the next
    stage.
    """
    start, why = time.monotonic(), f": {_USED_UP}" * (limit_s < stage.limit_s)
    limit_s = min(stage.limit_s, limit_s)
    if limit_s < _LEAST_S:
        code, text = EXIT_CODES["timeout"], f"not started{why}"
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
                code, late = EXIT_CODES["timeout"], f"\nended after {limit_s:.0f} s{why}"
            output.seek(0)
            text = output.read() + late
    with log.open("a", encoding="utf-8") as file:
        file.write(f"=== {stage.name}: exit {code}, {time.monotonic() - start:.1f} s\n{text}\n")
    lines = []
    for line in text.splitlines():
        with suppress(ValueError):
            found = json.loads(line)
            lines += found if isinstance(found, list) else [found]
    return {
        "name": stage.name,
        "kind": stage.kind,
        "exit": code,
        "seconds": round(time.monotonic() - start, 1),
        "lines": [line for line in lines if isinstance(line, dict)],
        "without": [line for line in text.splitlines() if line.startswith("Not installed: ")],
        "end": text.strip().splitlines()[-1:] if code else [],
    }


def checks_of(ended: list[dict], records: dict[str, list[Record]], node: Node) -> list[Check]:
    """What each stage showed, with its bar.

    Parameters
    ----------
    ended : list of dict
        Results of :func:`run_stage`.
    records : dict
        Records by stage name.
    node : Node

    Examples
    --------
    >>> speed = {
    ...     "name": "speed",
    ...     "kind": "",
    ...     "exit": 0,
    ...     "end": [],
    ...     "lines": [
    ...         {"kind": "copy", "what": "half of each row", "gb_per_s": 1900.0, "of_plain": 0.93}
    ...     ],
    ... }
    >>> checks_of([speed], {}, Node(Path("none"), 1))[1]
    Check(what='strided copy / whole copy', value='0.93 (1900 GB/s)', bar='>= 0.9', ok=True)
    """
    found = []
    for stage in ended:
        name, kind, rows = stage["name"], stage["kind"], records.get(stage["name"], [])
        end = " ".join(stage["end"])
        fine = stage["exit"] == 0 or end.endswith(_USED_UP)
        if rows and kind == "one rank":
            found += _rates_of_one_rank(name, rows[-1], ended)
        elif rows and kind in ("exact", "libraries"):
            exact = sum(row.status == "ok" and row.error == 0 for row in rows)
            refused = sum(row.status == "unsupported" for row in rows)
            value = f"{exact} of {len(rows) - refused}, {refused} refused"
            some = exact > 0 or kind == "libraries"  # may all be refused
            right = fine and exact == len(rows) - refused and some
            found.append(Check(f"{name} rank(s) exact", value, "all", right))
            if name == f"overlap on {node.ranks}":
                found.append(_of_paths(rows, node))
        elif end.endswith(_USED_UP):
            found.append(Check(name, end, "", None))
        elif kind == "libraries":
            found.append(
                Check(name, "none is installed" if stage["without"] else _end(stage), "", None)
            )
        elif end.endswith("No module named pytest"):
            found.append(Check(name, "not run: pytest is not installed", "", None))
        elif not (rows and fine):
            found.append(Check(name, _end(stage), "exit 0", fine and kind != "predicted"))
        for line in stage["lines"]:
            found += _of_line(line)
    return [*found, *checks_of_node(node, ended)]


def _end(stage: dict) -> str:
    """How a stage ended."""
    return f"exit {stage['exit']} {' '.join(stage['end'])}"[:120].strip()


def _rates_of_one_rank(name: str, row: Record, ended: list[dict]) -> Iterator[Check]:
    """The rate next to an unsplit GEMM, and that of tiles next to the GEMM of one."""
    if row.status != "ok" or row.error != 0:
        yield Check(f"{name} exact", row.reason or row.status, "exact", False)
        return
    rate = (row.gflops or 0) / 1e3
    found = [("unsplit gemmEx", (row.percent_of_gemm_only or 0.0) / 100, rate)]
    tile = _rate_of_a_tile(ended, name.rpartition(" ")[2])
    if "tiles" in name and tile:
        found.append(("local GEMMs of one tile", rate / tile, tile))
    for what, ratio, tflops in found:
        value = f"{ratio:.3f} ({tflops:.1f} TFLOP/s)"
        yield Check(f"{name} / {what}", value, ">= 0.95", ratio >= 0.95)


def _of_paths(rows: list[Record], node: Node) -> Check:
    """How ranks of different GPUs reach each other and signal; the bar is for GPUs that all reach
    each other, with NCCL."""
    ok = [row for row in rows if row.status == "ok"]
    columns = "transport", "collectives", "progress"
    kinds = ({getattr(row, name) for row in ok} - {None, "poll"} for name in columns)
    value = ", ".join("/".join(sorted(kind)) for kind in kinds)
    connected = node.report.get("nccl") and not node.report.get("no_peer_access")
    bar = "direct, nccl, streams"
    what = f"transport, collectives and signals on {node.ranks} rank(s)"
    return Check(what, value, bar, value == bar).where(bool(connected and ok))


def _rate_of_a_tile(ended: list[dict], arithmetic: str) -> float | None:
    """TFLOP/s of one tile's GEMM behind others, from the stage on speed."""
    found = lines_of(ended, kind="product", arithmetic=arithmetic, **dict(zip("mnk", _TILE)))
    return found[0]["tflops"] if found else None


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
        yield Check(what, value, ">= 0.8 hidden", hidden >= 0.8).where(few)
    if kind == "host":
        yield Check(f"host: {line['what']}", f"{line['us']:.1f} us", "", None)
    if kind == "pairs":
        findings = [*pair_findings(line)]
        right = all(each.level != "missing" for each in findings)
        for each in findings:
            verified = right and each.subject == "GPU pairs"
            ok = False if each.level == "missing" else verified or None
            yield Check(each.subject, each.text, "right bytes" * verified, ok)


def check(todo: list[Stage], node: Node, print_line: Callable[[str], None]) -> int:
    """Run all stages, write the page and ``gpu_check.json`` after each of them, print the page, and
    return the exit code: 1 if anything is wrong, and not merely slow."""
    node.out.mkdir(parents=True, exist_ok=True)
    made = [stage.records for stage in todo if stage.records is not None]
    for path in (*made, node.out / "bandwidth.csv", node.out / "here.toml"):  # of an earlier check
        path.unlink(missing_ok=True)
    log, ended, records, begin = node.out / "log.txt", [], {}, time.monotonic()
    log.write_text("", encoding="utf-8")
    for stage in todo:
        ended.append(run_stage(stage, log, _BUDGET_S - (time.monotonic() - begin)))
        print_line(f"{stage.name}: exit {ended[-1]['exit']}, {ended[-1]['seconds']} s")
        if stage.name == "report":
            node = node._replace(report=next(iter(ended[-1]["lines"]), {}))
        if stage.records is not None:
            records[stage.name] = read_rows(stage.records)
        # an interrupted check keeps its results so far
        checks = checks_of(ended, records, node)
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
        todo = stages(out, gpus)
    except DrbenchError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return error.exit_code
    print_line = lambda text: print(text, flush=True)
    return check(todo, Node(out, min(gpus, _MOST_RANKS)), print_line)


if __name__ == "__main__":
    sys.exit(main())
