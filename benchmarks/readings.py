"""What the claims P7 and P10 rest on: MLP-1 and MLP-2 simulated again under other readings of the
paper and with other constants.

    python benchmarks/readings.py [--out results/simulated/readings]

Writes lines.csv, a row a line of the figures, stationary matrix and batch size, with the best
replication factor, and verdicts.csv, a row a claim. Three minutes on one core.
"""

# ruff: noqa: E402

import argparse
import csv
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pandas import concat

from benchmarks.core import commit
from launch.cases.machine_models import find_machine
from launch.models.simulate_sweeps import legend_cases, run_simulations
from launch.studies.slicing_claims import Figures, check_claims
from plots.select.records import frame

STACK = ("links.stack.bandwidth_bytes_per_s", 20e9)
SHARED = ("links.xe.shared", "device")
#: Machine, what is read otherwise, the changed constants, and the most replicas of A and B.
READINGS = [
    ("pvc12", "as it is", (), (12, 6, 4, 1)),
    ("pvc12", "one Xe Link a tile", (SHARED,), (12,)),
    ("pvc12", "replicas across GPUs", (STACK,), (12,)),
    ("pvc12", "both", (SHARED, STACK), (12, 6)),
    ("h100x8", "as it is", (), (8, 1)),
    ("h100x8", "accumulates at a fifth of a copy", (("accumulate_efficiency", 0.2),), (8, 1)),
    ("h100x8", "products three times as slow", (("accumulate_slowdown", 2.0),), (8, 1)),
    ("h100x8", "products five times as slow", (("accumulate_slowdown", 4.0),), (8, 1)),
]


def simulated(name: str, changes) -> object:
    """Records of both layers on a machine with changed constants, all factors that figures choose
    from."""
    machine = find_machine(name)
    for path, value in changes:
        machine = machine.with_value(path, value)
    cases = [case for layer in ("mlp1", "mlp2") for case in legend_cases(layer, machine.devices)]
    return frame(run_simulations(cases, machine, machine.devices, None))


def lines_of(found, about: dict):
    """The rows of lines.csv."""
    for (_, layer), figure in Figures(found).items():
        for name, line in figure.lines.items():
            for stationary in "BC":
                best = figure.best(name, stationary=stationary)
                for m, case in best.dropna(subset="percent_of_peak").iterrows():
                    yield about | {
                        "layer": layer,
                        "line": name,
                        "stationary": stationary,
                        "drawn": line.stationary == stationary,
                        "m": m,
                        "percent_of_peak": round(case.percent_of_peak, 4),
                        "factor_a": case.factors[0],
                        "factor_c": case.factors[2],
                    }


def write(path: Path, rows: list[dict]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results/simulated/readings")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    made = {"command": "python benchmarks/readings.py", "date": date.today(), "commit": commit()}
    lines, verdicts = [], []
    default = {name: simulated(name, ()) for name in ("pvc12", "h100x8")}
    for machine, reading, changes, most in READINGS:
        found = simulated(machine, changes) if changes else default[machine]
        for replicas in most:
            about = {"machine": machine, "reading": reading, "most_replicas": replicas}
            kept = found[[a <= replicas for a, _, _ in found.factors]]
            lines += [row | made for row in lines_of(kept, about)]
            other = [each for name, each in default.items() if name != machine]
            for verdict in check_claims(concat([kept, *other], ignore_index=True)):
                verdicts.append(about | {"claim": verdict.claim, "holds": verdict.holds} | made)
            print(f"{machine}, {reading}, at most {replicas} replicas", flush=True)
    write(out / "lines.csv", lines)
    write(out / "verdicts.csv", verdicts)


if __name__ == "__main__":
    main()
