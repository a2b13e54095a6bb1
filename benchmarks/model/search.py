"""The regret of ``drbench tune``, and its seconds of CPU.

    python -m benchmarks model.search [--effort 120] [--problems NAME,...] [--csv FILE]

Compares the first place of the default search with that of a search by the same model for
``--effort`` seconds of CPU, 0 for all candidates. The regret is the time of the first over that of
the second, less one, where the second is faster. ``--csv`` writes a file, a row a problem, and
keeps the rows of other problems. 45 minutes of CPU.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pandas import read_csv

from benchmarks.__main__ import parser_of
from benchmarks.core import write_rows
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.launch.tune.result import Place


class Layer(NamedTuple):
    """A multiplication on a number of ranks of a machine model."""

    m: int
    n: int
    k: int
    ranks: int
    machine: str
    dtype: str = "bfloat16"
    replication: str = "none"


#: Layers of real models on GPUs and cores, and thin, deep, uneven and replicated ones.
PROBLEMS = {
    "llama-70b up": Layer(8192, 28672, 8192, 64, "dgxh100"),
    "deepseek up 16k": Layer(16384, 18432, 7168, 128, "dgxh100"),
    "qwen-32b up": Layer(10240, 27648, 5120, 40, "dgxh100"),
    "decode": Layer(64, 57344, 8192, 8, "h100x8"),
    "gpt-oss": Layer(11520, 5760, 2880, 24, "dgxh100"),
    "llama-13b down": Layer(32768, 5120, 13824, 16, "mi300x"),
    "llama-70b down": Layer(8192, 8192, 28672, 72, "gb200nvl72"),
    "many tokens": Layer(131072, 1024, 4096, 16, "dgxa100"),
    "square": Layer(8192, 8192, 8192, 16, "dgxh100"),
    "llama-8b up": Layer(4096, 14336, 4096, 32, "dgxa100"),
    "llama-405b up": Layer(16384, 53248, 16384, 128, "dgxh100"),
    "deep": Layer(1024, 1024, 262144, 64, "dgxa100"),
    "thin": Layer(1000000, 64, 64, 64, "dgxa100"),
    "deepseek up 8k": Layer(8192, 18432, 7168, 128, "dgxa100"),
    "llama-7b down": Layer(16384, 4096, 11008, 8, "h200x8"),
    "gpt3 up": Layer(8192, 49152, 12288, 12, "pvc12", "float32"),
    "on cores": Layer(8192, 8192, 8192, 64, "lumic", "float32"),
    "deepseek experts": Layer(4096, 7168, 2048, 48, "h800"),
    "replicated": Layer(8192, 8192, 8192, 16, "dgxh100", "bfloat16", "all"),
    "uneven": Layer(5000, 7000, 3000, 60, "dgxh100"),
}


def regret(name: str, effort: float) -> dict:
    """The row of one problem."""
    layer = PROBLEMS[name]
    m, n, k, ranks, machine, dtype, replication = layer
    case, model = Case(m, n, k, dtype=dtype), find_machine(machine)
    request = TuneRequest.of(case, ranks, replication=replication)
    start = time.process_time()
    first = tune(request, model).ranking[0]
    between = time.process_time()
    long = tune(replace(request, effort=effort or None), model)
    best = min(first, long.ranking[0], key=lambda place: place.cost)
    return {
        "problem": name,
        **layer._asdict(),
        "cpu_s": round(between - start, 1),
        "first": describe(first),
        "first_s": f"{first.cost:.7g}",
        "long_cpu_s": round(time.process_time() - between, 1),
        "best": describe(best),
        "best_s": f"{best.cost:.7g}",
        "regret": round(first.cost / best.cost - 1, 4),
        "left": long.left,
    }


def describe(place: Place) -> str:
    """Algorithm, layouts and options of a place."""
    case = place.case
    return f"{case.algorithm} {case.a} {case.b} {case.c} {case.options} {case.prefetch}"


def main() -> None:
    """Print a row a problem."""
    parser = parser_of(__doc__)
    parser.add_argument("--effort", type=float, default=120.0)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    rows = {}
    if args.csv and args.csv.exists():
        rows = {row["problem"]: row for row in read_csv(args.csv).to_dict("records")}
    for name in args.problems.split(","):
        rows[name] = regret(name, args.effort)
        print(*(f"{key}={value}" for key, value in rows[name].items()), flush=True)
        if args.csv:
            write_rows(args.csv, [rows[each] for each in PROBLEMS if each in rows])


if __name__ == "__main__":
    main()
