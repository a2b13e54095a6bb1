"""Executor, planning and simulation of two checkouts, measured in turn: what a change cost.

    python benchmarks/old_new.py OLD [NEW] [--rounds 5]

Both are asked through the command line, the one thing they have in common whatever their modules
are called. In each round every case runs once in each checkout, the other one first every second
round; a case's time is the best of its repeats. Exit code 1 if a median ratio is above ``--bar``.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CUBE = "-m {0} -n {0} -k {0}"
TILES = f"{CUBE.format(128)} --a tiles:8x8 --b tiles:8x8 --c tiles:8x8 --iters 20 --no-check --json"
GRID = "tiles:1024x1024@64x64"
PLAN = f"plan -p 4096 {CUBE.format('256Ki')} --a {GRID} --b {GRID} --c {GRID} --rank 77 --json"
SIMULATE = f"simulate {CUBE.format('24Ki')} --json"
#: Measured by the run itself; seconds a step.
RUNS = {
    "executor, S-C": f"run -p 1 {TILES} --stationary C",
    "executor, S-B": f"run -p 1 {TILES} --stationary B",
    "executor, 2 ranks, S-B, every transfer a step": f"run -p 2 {TILES} --stationary B --chunk none"
    " --transport throttled:1000,0",
}
#: Called here once all is imported; seconds of the processor, which others disturb less.
CALLS = {
    **{f"planning, 256x256 tiles, S-{s}": f"{PLAN} --stationary {s}" for s in "CBA"},
    "simulation, block on pvc12": f"{SIMULATE} --machine pvc12 --preset block --stationary C",
    "simulation, replicated outer on h100x8": f"{SIMULATE} --machine h100x8 -p 8 --a "
    "column/c2 --b row/c2 --c block/c2 --stationary B",
    "simulation, meshslice on 256 of tpuv4": f"{SIMULATE} --machine tpuv4-16x16 --algorithm "
    "meshslice --slices 8",
}


def measure(checkout: Path, repeats: int) -> dict[str, float]:
    """Seconds of every case; this process imports the packages of that checkout alone."""
    sys.path[0] = str(checkout)
    os.environ["PYTHONPATH"] = str(checkout)
    os.chdir(tempfile.gettempdir())  # not a checkout
    return {name: _run(command.split()) for name, command in RUNS.items()} | {
        name: min(_call(command.split()) for _ in range(repeats + 1))
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
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.old.resolve(), given.repeats)))
        return 0
    places, found = (given.old, given.new), ([], [])
    for number in range(given.rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            command = [sys.executable, __file__, str(places[which].resolve()), "--measure"]
            command += ["--repeats", str(given.repeats)]
            told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
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
