"""What ``drbench tune`` finds, in how many seconds of CPU, and what it misses.

    python benchmarks/model/search.py [--ranks 8,64,512] [--effort 10] [--replication none]
    python benchmarks/model/search.py --regret [--machines dgxh100,dgxa100]
        [--meshes 2x4,8x1,3x8,8x8] [--shapes NAME,...] [--random 300] [--csv FILE]

The first form searches the MLP-1 of "Slicing Is All You Need" at batch 8192 on nodes of eight H100
that are joined by InfiniBand of 50 GB/s a GPU and direction.

``--regret`` holds the first place of real layers against alternatives that the search is not told
of: random candidates of the universal algorithm, and every other family over a dense grid of its
options, with each look-ahead and communication tile. An alternative whose lower bound is above the
first place cannot beat it and is not simulated. The regret is the time of the first place over that
of the best alternative, less one, where that is faster. ``--csv`` adds to a file: a row a machine,
mesh and shape.
"""

# ruff: noqa: E402

import argparse
import csv
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from drbench.errors import DrbenchError
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.candidates import (
    REPLICATION,
    TuneRequest,
    on_triple,
    others,
    pushed,
    texts,
    variants,
    ways,
    with_copies,
)
from launch.models.predict import planning_model, predict_with, programs_of, seen_by
from launch.models.tune import tune

SIZES = 8192, 49152, 12288
#: m (tokens), n, k of layers: their papers and model cards.
SHAPES = {
    "gpt3-mlp1": (8192, 49152, 12288),
    "gpt3-mlp2": (8192, 12288, 49152),
    "llama3-405b-qkv": (8192, 18432, 16384),
    "llama3-405b-down": (8192, 16384, 53248),
    "llama3-70b-gate-up": (16384, 57344, 8192),
    "llama3-8b-down": (4096, 4096, 14336),
    "deepseek-v3-up": (8192, 18432, 7168),
    "deepseek-v3-down": (8192, 7168, 18432),
    "deepseek-v3-kv": (8192, 576, 7168),
    "square": (16384, 16384, 16384),
    "tall": (1000000, 64, 64),
    "k-heavy": (1024, 1024, 262144),
}
MESHES = "2x4", "8x1", "3x8", "8x8", "16x8", "64x8"
MACHINES = "dgxh100", "dgxa100"


def nodes_of_eight(ranks: int) -> Machine:
    """The model h100x8, several of them joined by a card of 50 GB/s a GPU."""
    model = find_machine("h100x8")
    if ranks <= 8:
        return model
    near = model.sources["links"]["nvlink"] | {"within": 8}
    card = {"shared": "device", "bandwidth_bytes_per_s": 50e9, "latency_s": 5e-6}
    changes = {"devices": ranks, "links": {"nvlink": near, "ib": card}}
    return Machine.from_dict(model.sources | changes, f"h100x8, {ranks // 8} nodes")


def machine_of(name: str, node: int) -> Machine:
    """A machine model with so many GPUs a node."""
    model = find_machine(name)
    links = {
        key: link | {each: node for each in ("within", "rails") if each in link}
        for key, link in model.sources["links"].items()
    }
    collectives = {
        key: each | ({"node": node} if "node" in each else {})
        for key, each in model.sources["collectives"].items()
    }
    return Machine.from_dict(model.sources | {"links": links, "collectives": collectives}, name)


def alternatives(request: TuneRequest, count: int, rng: random.Random) -> list[Case]:
    """So many random candidates of the universal algorithm, and all of the other families."""
    tried, how = texts(request), ways(("auto", "none"), True)
    found = []
    while len(found) < count:
        triple = [rng.choice(tried[name]) for name in "ABC"]
        if REPLICATION[request.replication or "all"](*(factor for _, factor in triple)):
            names = [text for text, _ in triple]
            found.append(on_triple(request.case, names, rng.choice("ABC"), rng.choice(how)))
    return found + list(others(request, ("auto", "none"), True))


def fastest(cases: list[Case], machine: Machine, ranks: int, than_s: float):
    """(seconds, case) of the fastest of some cases that is faster than that, over their variants;
    the time itself and None if there is none."""
    best_s, best, seen = than_s, None, seen_by(cases[0], machine)
    for case in cases:
        try:
            case, algorithm, problem, options = with_copies(case, ranks)
            resolved = algorithm.resolve(problem, False, **options)
            case, resolved = pushed(case, resolved)
            trace = algorithm.trace(problem, 0, planning_model(seen, resolved), **resolved)
            if bound_of([trace], seen).seconds >= best_s:
                continue
            made = key = None
            for each in variants(case, device=True):
                if key != repr(each.options):
                    made, key = programs_of(each, machine, ranks), repr(each.options)
                how = {"pool": True, "within_s": best_s, "made": made}
                try:
                    record, _ = predict_with(each, machine, ranks, **how)
                except Beyond:
                    continue
                if record.status == "ok" and record.best_s < best_s:
                    best_s, best = record.best_s, each
        except DrbenchError:
            continue
    return best_s, best


def regrets(args) -> None:
    """A line a case, and what all of them come to."""
    rows = []
    for machine_name in args.machines.split(","):
        for mesh in args.meshes.split(","):
            nodes, node = map(int, mesh.split("x"))
            ranks, machine = nodes * node, machine_of(machine_name, node)
            for shape in args.shapes.split(",") if args.shapes else SHAPES:
                case = Case(*SHAPES.get(shape) or map(int, shape.split("x")), dtype="bfloat16")
                request = TuneRequest(
                    case, ranks, replication=args.replication, effort=args.effort, refine=3
                )
                start = time.process_time()
                found = tune(request, machine)
                cpu_s = time.process_time() - start
                first = found.ranking[0]
                told_s = first.record.best_s
                rng = random.Random(f"{machine_name} {mesh} {shape}")
                tried = alternatives(request, args.random, rng)
                best_s, best = fastest(tried, machine, ranks, told_s)
                row = {
                    "machine": machine_name,
                    "mesh": mesh,
                    "shape": shape,
                    "cpu_s": round(cpu_s, 1),
                    "judged": found.judged,
                    "first": f"{first.case.algorithm} {first.case.a} {first.case.b} "
                    f"{first.case.c} {first.case.options}",
                    "first_s": f"{told_s:.7g}",
                    "best_s": f"{best_s:.7g}",
                    "regret": round(told_s / best_s - 1, 4),
                    "gap": round(found.gap, 4),
                    "tried": len(tried),
                    "better": best
                    and f"{best.algorithm} {best.a} {best.b} {best.c} "
                    f"{best.options} {best.prefetch}",
                }
                rows.append(row)
                if args.csv:
                    write(Path(args.csv), row)
                print(
                    f"{machine_name} {mesh:5} {shape:18} {cpu_s:5.1f} s of CPU  "
                    f"{1e3 * told_s:9.4f} ms  regret {100 * row['regret']:5.1f} %  told: at most "
                    f"{100 * found.gap:.0f} %  {row['better'] or ''}",
                    flush=True,
                )
    share = lambda most: sum(row["regret"] <= most for row in rows) / len(rows)
    covered = sum(row["regret"] <= row["gap"] + 1e-9 for row in rows)
    print(
        f"{len(rows)} cases: regret at most 2 % in {100 * share(0.02):.0f} %, at most 5 % in "
        f"{100 * share(0.05):.0f} %, the largest {100 * max(row['regret'] for row in rows):.1f} %; "
        f"the told gap covers {covered} of {len(rows)}; at most "
        f"{max(row['cpu_s'] for row in rows)} s of CPU"
    )


def write(path: Path, row: dict) -> None:
    """Put a row into a file of rows, in place of that of the same machine, mesh and shape."""
    key = "machine", "mesh", "shape"
    found = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            found = {tuple(each[name] for name in key): each for each in csv.DictReader(file)}
    found[tuple(row[name] for name in key)] = row
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found[each] for each in sorted(found))


def main() -> None:
    """Search once a number of ranks, and print a line each; or with ``--regret`` what is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="8,64,512")
    parser.add_argument("--effort", type=float, default=10.0)
    parser.add_argument("--replication", choices=REPLICATION, default="none")
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--meshes", default=",".join(MESHES))
    parser.add_argument("--shapes")
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--csv")
    args = parser.parse_args()
    if args.regret:
        regrets(args)
        return
    for ranks in map(int, args.ranks.split(",")):
        request = TuneRequest(
            Case(*SIZES), ranks, replication=args.replication, effort=args.effort or None
        )
        start = time.process_time()
        found = tune(request, nodes_of_eight(ranks))
        seconds = time.process_time() - start
        best = found.ranking[0]
        layouts = ", ".join(filter(None, (best.case.a, best.case.b, best.case.c))) or "its own"
        print(
            f"{ranks} ranks: {seconds:.1f} s of CPU, {found.tried} candidates, {found.merged} "
            f"merged, {found.judged} simulated; {1e3 * best.record.best_s:.3f} ms, "
            f"{best.case.algorithm} on {layouts}; at most {100 * found.gap:.1f} % faster among "
            f"{found.left} left",
            flush=True,
        )


if __name__ == "__main__":
    main()
