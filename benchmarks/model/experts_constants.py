"""Which constant of the H800 model decides Triton-distributed's Tables 4 and 5 (claims T8 to T11).

Each is changed alone, and the overlapping programs of both tables are simulated again: our time
over the paper's, as geometric mean and range. ``docs/reproduction.md`` has the table, made of the
record ``results/simulated/overlap/experts/constants.csv``.

    python -m benchmarks.model.experts_constants               # both numbers of GPUs; some minutes
    python -m benchmarks.model.experts_constants --gpus 8
    python -m benchmarks.model.experts_constants \\
        --csv results/simulated/overlap/experts/constants.csv
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

from launch.cases.machine_models import find_machine
from launch.papers.overlap.study import Benches, experts_of, published, td_experts

#: Path -> values as shares of what the machine's file has, or the values themselves.
CHANGES = {
    "kernel_slowdown": (1.0,),
    "compute.sustained": ("x0.5",),
    "compute.launch_s": ("x4",),
    "compute.memory_bytes_per_s": ("x0.5", "x0.25"),
    "links.nvlink.bandwidth_bytes_per_s": ("x0.5", "x0.25"),
    "links.nic.bandwidth_bytes_per_s": ("x0.25",),
}
TABLES = ("td-table4", "td-table5")


def over_papers(bench, ranks: int) -> list[tuple[float, float, float]]:
    """Of each table: geometric mean, least and most of our time over the paper's."""
    found = []
    for table in TABLES:
        ratios = []
        for row in published(table):
            if row.method == "td" and row.ranks == ranks:
                methods = td_experts(row.product, ranks, experts_of(row.variant))
                ours = bench.fastest(ranks, (row.m, row.n, row.k), methods)
                ratios.append(ours.seconds / row.seconds)
        found.append((geometric_mean(ratios), min(ratios), max(ratios)))
    return found


def changed() -> Iterator[tuple[str, str, dict]]:
    """Each change: the constant, how it is told, and what a bench takes."""
    yield "", "", {}
    for path, values in CHANGES.items():
        for value in values:
            if not isinstance(value, str):
                yield path, f"= {value:g}", {path: value}
                continue
            usual = find_machine("h800").sources
            for name in path.split("."):
                usual = usual[name]
            yield path, f"× {value[1:]}", {path: usual * float(value[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, choices=(8, 16), help="8 or 16; both without it")
    parser.add_argument("--csv", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    rows = []
    for ranks in (8, 16) if given.gpus is None else (given.gpus,):
        print(f"| {ranks} GPUs | Table 4 | Table 5 |\n|---|---|---|")
        for path, told, change in changed():
            found = over_papers(Benches({}).of("h800", **change), ranks)
            cells = [f"{mean:.2f} ({least:.2f} to {most:.2f})" for mean, least, most in found]
            name = f"`{path}` {told}" if path else "as they are"
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            for table, of in zip(TABLES, found):
                keys = {"machine": "h800", "gpus": ranks, "table": table}
                ratios = dict(zip(("ratio", "least", "most"), (f"{x:.5g}" for x in of)))
                rows.append(keys | {"constant": path, "change": told} | ratios)
    if given.csv:
        given.csv.parent.mkdir(parents=True, exist_ok=True)
        with given.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
