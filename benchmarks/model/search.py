"""The regret of ``drbench tune``, and its seconds of CPU.

    python -m benchmarks model.search [PROBLEM...] [--effort 120] [--csv FILE]

Compares the first place of the default search with that of a search by the same model for
``--effort`` seconds of CPU, 0 for all candidates. The regret is the time of the first over that of
the second, less one, where the second is faster. FILE has a row a problem, of layers of real models
on GPUs and cores, and thin, deep, uneven and replicated ones; the other columns are written anew.
45 minutes of CPU.
"""

import time
from dataclasses import replace
from pathlib import Path

from pandas import read_csv

from benchmarks.__main__ import parser_of
from benchmarks.core import write_rows
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.host.files import ROOT
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.launch.tune.result import Place


def regret(row: dict, effort: float) -> dict:
    """The row of a problem, with its other columns made again."""
    case, model = (
        Case(row["m"], row["n"], row["k"], dtype=row["dtype"]),
        find_machine(row["machine"]),
    )
    request = TuneRequest.of(case, row["ranks"], replication=row["replication"])
    start = time.process_time()
    first = tune(request, model).ranking[0]
    between = time.process_time()
    long = tune(replace(request, effort=effort or None), model)
    best = min(first, long.ranking[0], key=lambda place: place.cost)
    return row | {
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
    parser.add_argument("problems", nargs="*", help="default: all")
    parser.add_argument("--effort", type=float, default=120.0)
    parser.add_argument("--csv", type=Path, default=ROOT / "results/simulated/readings/regret.csv")
    args = parser.parse_args()
    rows = read_csv(args.csv).to_dict("records")
    for at, row in enumerate(rows):
        if row["problem"] in (args.problems or [row["problem"]]):
            rows[at] = regret(row, args.effort)
            print(*(f"{key}={value}" for key, value in rows[at].items()), flush=True)
            write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
