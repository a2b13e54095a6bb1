"""Executor, planning and simulation of two checkouts, or their speed over the no-communication
bound, in alternating order: what a change cost.

    python -m benchmarks old_new OLD [NEW] [--rounds 5]
    python -m benchmarks old_new OLD [NEW] --speed cube rma ... [--size 3072] [--out FILE.csv]

Both are asked through the command line, the one thing they have in common whatever their modules
are called. In each round every case runs once in each checkout, the other one first every second
round; a case's time is the best of its repeats. Exit code 1 if a median ratio is above ``--bar``.
With ``--speed`` the cases are those of the named groups; compared are their shares of the
no-communication bound of the same run (``run``), which a busy machine moves less than times.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from benchmarks import core

ROOT = Path(__file__).resolve().parent.parent

CUBE = "-m {0} -n {0} -k {0}"
TILES = (
    f"{CUBE.format(128)} --a tiles:8x8 --b tiles:8x8 --c tiles:8x8 --iters 20 -o check=false --json"
)
GRID = "tiles:1024x1024@64x64"
PLAN = f"plan -p 4096 {CUBE.format('256Ki')} --a {GRID} --b {GRID} --c {GRID} --rank 77 --json"
SIMULATE = f"simulate {CUBE.format('24Ki')} --json"
#: Measured by the run itself; seconds a step.
RUNS = {
    "executor, S-C": f"run -p 1 {TILES} --stationary C",
    "executor, S-B": f"run -p 1 {TILES} --stationary B",
    "executor, 2 ranks, S-B, every transfer a step": f"run -p 2 {TILES} --stationary B "
    "-o chunk=none --transport throttled:1000,0",
}
#: Called here once all is imported; seconds of the processor, which others disturb less.
CALLS = {
    **{f"planning, 256x256 tiles, S-{s}": f"{PLAN} --stationary {s}" for s in "CBA"},
    "simulation, block on pvc12": f"{SIMULATE} --machine pvc12 --preset block --stationary C",
    "simulation, replicated outer on h100x8": f"{SIMULATE} --machine h100x8 -p 8 --a "
    "column/c2 --b row/c2 --c block/c2 --stationary B",
    "simulation, meshslice on 256 of tpuv4": f"{SIMULATE} --machine tpuv4-16x16 --algorithm "
    "meshslice -o slices=8",
}
LAYERS = {"MLP-1": "-n 8192 -k 2048", "MLP-2": "-n 2048 -k 8192"}
#: Six repeats of each run, each next to one of the bound.
REPEATS = "--threads 1 --iters 6 --budget 0"


def spelled(words: list[str], root: Path) -> list[str]:
    """The words as a checkout takes them: before there was ``-o NAME=VALUE``, options of the
    algorithm were ``--NAME VALUE``."""
    if "def pairs_option" in (root / "launch" / "commands" / "options.py").read_text():
        return words
    text = f" {shlex.join(words)} ".replace(" -o check=false ", " --no-check ")
    return shlex.split(re.sub(r" -o ([\w-]+)=", r" --\1 ", text))


def speed_cases(size: int) -> dict[str, list[tuple[str, int, str, dict]]]:
    """By group: (case, ranks, words of ``drbench run``, environment)."""
    cube, half = CUBE.format(size), CUBE.format(size // 2)
    names = ("row", "column", "inner", "outer", "misaligned")
    return {
        "cube": [_case(x, s, cube) for s in "CB" for x in names]
        + [_case("column, column, row", "B", cube)],
        "mlp": [
            _case(x, s, f"-m 1024 {shape}", name=layer)
            for layer, shape in LAYERS.items()
            for x in ("row", "inner", "outer")
            for s in "CB"
        ],
        "few_rows": [
            _case(x, "C", f"-m 256 {shape}", name=f"m = 256, {layer}")
            for layer, shape in LAYERS.items()
            for x in ("row", "inner", "column")
        ],
        "rma": [_case(x, s, f"{cube} --transport rma") for s in "CB" for x in names],
        "remote": [
            _case(x, s, cube, env=core.REMOTE)
            for x, s in (
                ("row", "C"),
                ("row", "B"),
                ("column", "C"),
                ("outer", "C"),
                ("outer", "B"),
            )
        ],
        "nodes": [
            _case(x, s, half, 4, core.CLIQUES, core.MIXED_TILES if x == "misaligned" else None)
            for x, s in (
                *(("row", s) for s in "ABC"),
                ("column", "B"),
                ("block", "C"),
                ("misaligned", "C"),
            )
        ],
        "two_d": [
            (f"{a} {d}", 2, f"--algorithm {a} -o dataflow={d} --mesh {mesh} {cube} {REPEATS}", {})
            for a in ("collective", "summa", "meshslice", "wang")
            for d, mesh in (("LS", "1x2"), ("RS", "2x1"))
        ]
        + [("cannon", 4, f"--algorithm cannon {cube} {REPEATS}", {})],
        "fused": [
            (
                f"{a} {tile}".strip(),
                2,
                f"--algorithm {a} -m 2048 -n 4096 -k 2048 {tile} {REPEATS}",
                {},
            )
            for a in ("ag_gemm", "gemm_rs")
            for tile in ("", "-o tile=512")
        ],
        "cyclic": [
            _case("block-cyclic", "C", f"{cube} --transport {t}", layout=CYCLIC, name=t)
            for t in ("auto", "rma")
        ],
    }


CYCLIC = ("tiles:256x256@2x1", "tiles:256x256@1x2", "block")


def _case(preset, stationary, words, ranks=2, env=None, layout=None, name=""):
    case = ", ".join(filter(None, (name, preset, f"S-{stationary}")))
    layout = " ".join(f"--{x} {y}" for x, y in zip("abc", layout or core.PRESETS[preset]))
    return case, ranks, f"{words} {layout} --stationary {stationary} {REPEATS}", env or {}


def compare_speed(old: Path, new: Path, groups: list, size: int, rounds: int, only: str = ""):
    """Yield a row a case whose name has the text ``only``: medians of shares of the bound in both,
    and of their ratio by round."""
    commits = [
        subprocess.check_output(["git", "-C", str(x), "rev-parse", "--short", "HEAD"], text=True)
        for x in (old, new)
    ]
    for group in groups:
        for case, ranks, words, env in speed_cases(size)[group]:
            if only not in case:
                continue
            found: tuple[list, list] = ([], [])
            for number in range(rounds):
                for which in (0, 1) if number % 2 == 0 else (1, 0):
                    root = (old, new)[which]
                    given = spelled(shlex.split(words), root)
                    record = core.run(ranks, *given, env=env, root=root)
                    if record["status"] != "ok":
                        raise SystemExit(f"{case}: {record['status']}: {record.get('reason')}")
                    found[which].append(record["percent_of_roof"] / 100)
            ratios = sorted(b / a for a, b in zip(*found))
            yield {
                "group": group,
                "case": case,
                "old": round(statistics.median(found[0]), 4),
                "new": round(statistics.median(found[1]), 4),
                "ratio": round(statistics.median(ratios), 4),
                "low": round(ratios[0], 4),
                "high": round(ratios[-1], 4),
                "rounds": rounds,
                "command": record["command"],
                "date": date.today().isoformat(),
                "old_commit": commits[0].strip(),
                "commit": commits[1].strip(),
            }


def print_speed(rows, out: Path | None) -> None:
    """Print each row when it is there, and append it to a CSV file."""
    print(f"{'case':44}{'old':>7}{'new':>7}{'new/old':>9}   (shares of the bound; range of ratios)")
    for row in rows:
        print(
            f"{row['group'] + ': ' + row['case']:44}{row['old']:7.3f}{row['new']:7.3f}"
            f"{row['ratio']:9.3f}   {row['low']:.3f}-{row['high']:.3f}",
            flush=True,
        )
        if out:
            first = not out.exists()
            with open(out, "a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, row, lineterminator="\n")
                if first:
                    writer.writeheader()
                writer.writerow(row)


def measure(checkout: Path, repeats: int) -> dict[str, float]:
    """Seconds of every case; this process imports the packages of that checkout alone."""
    sys.path[0] = str(checkout)
    os.environ["PYTHONPATH"] = str(checkout)
    os.chdir(tempfile.gettempdir())  # not a checkout
    words = lambda command: spelled(command.split(), checkout)
    return {name: _run(words(command)) for name, command in RUNS.items()} | {
        name: min(_call(words(command)) for _ in range(repeats + 1))
        for name, command in CALLS.items()
    }


def _run(words: list[str]) -> float:
    done = subprocess.run([sys.executable, "-m", "drbench", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"drbench {' '.join(words)}\n{done.stderr}")
    record = json.loads(done.stdout)
    return record["best_s"] / record["steps"] * int(words[2])  # ranks


def _call(words: list[str]) -> float:
    from drbench.__main__ import main

    sys.argv, said, start = ["drbench", *words], io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(said):
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise SystemExit(f"drbench {' '.join(words)}: exit {ended.code}") from None
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=Path(__file__).parents[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="calls of a case in a round")
    parser.add_argument("--bar", type=float, default=1.05, help="largest median ratio [1.05]")
    parser.add_argument("--speed", nargs="+", choices=speed_cases(64), help="groups of cases")
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--size", type=int, default=3072, help="of cubes with --speed [3072]")
    parser.add_argument("--out", type=Path, help="append the rows of --speed to this CSV file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.old.resolve(), given.repeats)))
        return 0
    if given.speed:
        rows = compare_speed(
            given.old, given.new, given.speed, given.size, given.rounds, given.only
        )
        print_speed(rows, given.out)
        return 0
    places, found = (given.old, given.new), ([], [])
    for number in range(given.rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            command = [
                sys.executable,
                "-m",
                "benchmarks",
                "old_new",
                str(places[which].resolve()),
                "--measure",
            ]
            command += [str(places[which].resolve()), "--measure", "--repeats"]
            command += [str(given.repeats)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            found[which].append(json.loads(told.stdout))
    print(f"{'case':48}{'old':>12}{'new':>12}{'ratio':>8}   (median of {given.rounds}; range)")
    worst = 0.0
    for name in found[0][0]:
        olds, news = ([each[name] for each in side] for side in found)
        ratios = sorted(new / old for old, new in zip(olds, news))
        ratio = statistics.median(ratios)
        worst = max(worst, ratio)
        old, new = (f"{statistics.median(side) * 1e6:.2f}us" for side in (olds, news))
        print(f"{name:48}{old:>12}{new:>12}{ratio:8.3f}   {ratios[0]:.3f}-{ratios[-1]:.3f}")
    return int(worst > given.bar)


if __name__ == "__main__":
    sys.exit(main())
