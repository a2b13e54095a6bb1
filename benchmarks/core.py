"""The bars of the core, measured: one table a section. Not a test: it takes minutes and wants a
quiet machine.

    python benchmarks/core.py [fast] [remote] [overlap] [planning] [executor] [--size 4096] [--csv
    FILE]

Every ratio is the median of interleaved pairs of the same run (``drbench run --roof``).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REMOTE = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
PRESETS = {
    "row": ("row", "row", "row"),
    "column": ("column", "column", "column"),
    "inner": ("row", "column", "column"),
    "outer": ("column", "row", "row"),
    "block": ("block", "block", "block"),
    "misaligned": ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block"),
    "column, column, row": ("column", "column", "row"),
}


def run(ranks: int, *arguments: str, env: dict | None = None) -> dict:
    """One ``drbench run --json``; its record."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        environ.pop(name, None)
    command = [sys.executable, "-m", "drbench", "run", "-p", str(ranks), "--json", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def case(sizes, layout: str, stationary: str, *more: str, pairs: int = 5, env=None) -> dict:
    """A two-rank, one-thread fp32 case with the roof."""
    m, n, k = sizes
    a, b, c = (f"--{name}={text}" for name, text in zip("abc", PRESETS[layout]))
    words = f"-m {m} -n {n} -k {k} --stationary {stationary} --threads 1 --iters {pairs} --roof"
    return run(2, *words.split(), a, b, c, *more, env=env)


#: Of :func:`ratio_row`.
RATIO_COLUMNS = "case,status,ratio,range,bar,met,best ms,roof GF/s,copied B".split(",")


class Lines:
    """A table printed row by row, so that an interrupted run loses nothing."""

    def __init__(self, title: str, *columns: str):
        print(f"\n{title}", flush=True)
        self.add_row(*columns)

    def add_row(self, first: str, *cells: str) -> None:
        print(f"{first:44}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


def ratio_row(to: Lines, name: str, bar: float, record: dict) -> None:
    ratio = record["percent_of_roof"] / 100 if record["status"] == "ok" else float("nan")
    moved = record["get_bytes"] or 0
    to.add_row(
        name,
        record["status"],
        f"{ratio:.3f}",
        f"{record['percent_of_roof_min'] / 100:.3f}-{record['percent_of_roof_max'] / 100:.3f}",
        f"{bar:.2f}",
        "yes" if ratio >= bar else "no",
        f"{record['best_s'] * 1e3:.1f}",
        f"{record['roof_gflops']:.0f}",
        str(moved),
    )


def fast(size: int, pairs: int) -> None:
    """Ratios to the roof on one node."""
    cube, h = (size,) * 3, size // 2
    t = Lines(
        f"2 ranks x 1 thread, fp32, ratio to the no-communication roof (median of {pairs} pairs)",
        *RATIO_COLUMNS,
    )
    for layout in ("row", "column", "inner", "outer", "misaligned"):
        ratio_row(t, f"{size}^3 {layout}, S-C", 0.97, case(cube, layout, "C", pairs=pairs))
    for layout in ("row", "column", "inner", "outer", "misaligned", "column, column, row"):
        ratio_row(t, f"{size}^3 {layout}, S-B", 0.93, case(cube, layout, "B", pairs=pairs))
    for name, sizes in (("MLP-1", (1024, 4 * h, h)), ("MLP-2", (1024, h, 4 * h))):
        for layout in ("row", "column", "inner", "outer", "block"):
            for stationary in "CB":
                ratio_row(
                    t,
                    f"{name} h={h} m=1024 {layout}, S-{stationary}",
                    0.93,
                    case(sizes, layout, stationary, pairs=pairs),
                )
    for layout in ("row", "column", "inner", "outer", "misaligned"):
        for stationary in "CB":
            found = case(cube, layout, stationary, "--transport", "rma", pairs=pairs)
            ratio_row(t, f"{size}^3 {layout}, S-{stationary}, --transport rma", 0.85, found)


def remote(size: int, pairs: int) -> None:
    """Ratios with every rank remote (TCP), by progress engine."""
    t = Lines(
        f"2 ranks, all remote over TCP, {size}^3 fp32 (median of {pairs} pairs)",
        *RATIO_COLUMNS,
    )
    for layout, stationaries in (
        ("row", "CB"),
        ("column", "C"),
        ("outer", "CB"),
        ("column, column, row", "B"),
    ):
        for stationary in stationaries:
            for progress in ("poll", "none", "thread"):
                record = case(
                    (size,) * 3, layout, stationary, "--progress", progress, pairs=pairs, env=REMOTE
                )
                ratio_row(
                    t,
                    f"{layout}, S-{stationary}, progress {progress}",
                    0.80 if progress == "poll" else 0.0,
                    record,
                )


def overlap(size: int, pairs: int) -> None:
    """Throttled transfers against max(compute, communication) and against their sum."""
    t = Lines(
        f"throttled, 2 ranks, {size}^3 fp32: time against compute and communication",
        "case",
        "comm/compute",
        "prefetch",
        "time ms",
        "compute ms",
        "comm ms",
        "time/max",
        "time/sum",
    )
    for layout, stationary in (("column", "C"), ("row", "C"), ("column, column, row", "B")):
        for share in (0.3, 0.7, 1.0):
            for prefetch in (1, 0):
                throttled = lambda gbps, *more: case(
                    (size,) * 3,
                    layout,
                    stationary,
                    f"--transport=throttled:{gbps},0",
                    "--no-check",
                    *more,
                    pairs=pairs,
                )
                free = throttled("1e6")
                moved = free["direct_bytes"] + free["get_bytes"] + free["accumulate_bytes"]
                compute_s = free["median_s"]
                gbps = moved / 2 / (share * compute_s) / 1e9
                found = throttled(f"{gbps:.6f}", f"--prefetch={prefetch}")
                time_s, comm_s = found["median_s"], share * compute_s
                t.add_row(
                    f"{layout}, S-{stationary}",
                    f"{share:.1f}",
                    str(prefetch),
                    f"{time_s * 1e3:.1f}",
                    f"{compute_s * 1e3:.1f}",
                    f"{comm_s * 1e3:.1f}",
                    f"{time_s / max(compute_s, comm_s):.3f}",
                    f"{time_s / (compute_s + comm_s):.3f}",
                )


def planning(size: int, pairs: int) -> None:
    """Time to plan one rank of p = 4096."""
    sys.path.insert(0, str(ROOT))
    from algorithms import get_algorithm
    from drbench.program.problem import Problem

    t = Lines(
        "planning one rank of p = 4096, m = n = k = 262144 (best of 5)",
        "tiles",
        "steps",
        "ms",
        "bar ms",
    )
    for grid, bar in ((64, 20), (512, 300)):
        text = f"tiles:{262144 // grid}x{262144 // grid}@64x64"
        problem = Problem(262144, 262144, 262144, 4096, text, text, text)
        for stationary in "CBA":
            times = []
            for _ in range(5):
                start = time.perf_counter()
                trace = get_algorithm("universal").trace(problem, 77, stationary=stationary)
                times.append(time.perf_counter() - start)
            t.add_row(
                f"{grid}x{grid} tiles, S-{stationary}",
                str(len(trace.steps)),
                f"{min(times) * 1e3:.1f}",
                str(bar),
            )


def executor(size: int, pairs: int) -> None:
    """Own cost of the executor: products of next to no work."""
    t = Lines(
        "executor: one rank, 16^2 tiles of 8x8 (4096 products), time a step (best)",
        "case",
        "steps",
        "us a step",
        "bar us",
    )
    tiles = "-m 128 -n 128 -k 128 --a tiles:8x8 --b tiles:8x8 --c tiles:8x8 --iters 20 --no-check"
    for ranks, stationary, case, more in (
        (1, "C", "S-C", ""),
        (1, "B", "S-B", ""),
        (
            2,
            "B",
            "S-B, 2 ranks, every transfer a step",
            "--transport throttled:1000,0 --chunk none",
        ),
    ):
        r = run(ranks, *f"{tiles} --stationary {stationary} {more}".split())
        us = r["best_s"] / (r["steps"] / ranks) * 1e6
        t.add_row(case, str(r["steps"]), f"{us:.2f}", "20")


def main() -> None:
    sections = {each.__name__: each for each in (fast, remote, overlap, planning, executor)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", help=f"of {', '.join(sections)}; all if none is named"
    )
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    for name in chosen.sections:
        if name not in sections:
            parser.error(f"no section {name!r}; there are {', '.join(sections)}")
    for name in chosen.sections or sections:
        sections[name](chosen.size, chosen.pairs)


if __name__ == "__main__":
    main()
