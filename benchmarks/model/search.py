"""The regret of ``drbench tune``, and its seconds of CPU.

    python -m benchmarks model.search [--machines dgxh100,dgxa100] [--meshes 2x4,8x1,3x8,8x8]
        [--shapes NAME,...] [--csv FILE]

Compares the first place of real layers with alternatives outside the search: random
candidates of the universal algorithm, and every other family over a dense grid of its options, with
each look-ahead and communication tile. An alternative whose lower bound is above the first place
cannot beat it and is not simulated. The regret is the time of the first place over that of the best
alternative, less one, where that is faster. ``--csv`` writes a file: a row a machine, mesh and
shape.
"""

import itertools
import random
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.__main__ import parser_of
from benchmarks.core import write_rows
from drbench.errors import DrbenchError
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.candidates import (
    TuneRequest,
    changed,
    data_movements,
    look_aheads,
    on_triple,
    others,
    replicated,
    settings,
    texts,
    with_copies,
)
from launch.models.predict import planning_model, predict_with, programs_of, seen_by
from launch.models.tune import tune

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
#: Random alternatives of the universal algorithm.
RANDOM = 300


def machine_of(name: str, node: int) -> Machine:
    """A machine model with a number of GPUs a node."""
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
    """Random candidates of the universal algorithm, and all of the other families."""
    tried, how = texts(request), data_movements(True, in_place=False)
    found = []
    while len(found) < count:
        triple = [rng.choice(tried[name]) for name in "ABC"]
        if replicated(request, [factor for _, factor in triple]):
            names = [text for text, _ in triple]
            found.append(on_triple(request.case, names, rng.choice("ABC"), rng.choice(how)))
    return found + list(others(request, how))


def fastest(cases: list[Case], machine: Machine, ranks: int, than_s: float):
    """(seconds, case) of the fastest of some cases that is faster than that, over their variants;
    the time itself and None if there is none."""
    best_s, best, seen = than_s, None, seen_by(cases[0], machine)
    for case in cases:
        try:
            case, algorithm, problem, options = with_copies(case, ranks)
            resolved = algorithm.resolve(problem, False, **options)
            if resolved.get("sums") == "push":
                case = replace(case, options=case.options | {"sums": "push"})
                resolved = resolved | {"chunk": None}
            trace = algorithm.trace(problem, 0, planning_model(seen, resolved), **resolved)
            if bound_of([trace], seen).seconds >= best_s:
                continue
            made = key = None
            tiles = [changed(case, each) for each in settings(case, None) if "chunk" in each]
            for each in (each for cut in (case, *tiles) for each in look_aheads(cut, True)):
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


def regret(machine_name: str, mesh: str, shape: str) -> dict:
    """The row of one layer on one machine."""
    nodes, node = map(int, mesh.split("x"))
    ranks, machine = nodes * node, machine_of(machine_name, node)
    case = Case(*SHAPES[shape], dtype="bfloat16")
    request = TuneRequest(case, ranks, replication="none", effort=10.0, refine=3)
    start = time.process_time()
    found = tune(request, machine)
    cpu_s = time.process_time() - start
    first = found.ranking[0]
    rng = random.Random(f"{machine_name} {mesh} {shape}")
    tried = alternatives(request, RANDOM, rng)
    best_s, best = fastest(tried, machine, ranks, first.record.best_s)
    return {
        "machine": machine_name,
        "mesh": mesh,
        "shape": shape,
        "cpu_s": round(cpu_s, 1),
        "judged": found.judged,
        "first": describe(first.case),
        "first_s": f"{first.record.best_s:.7g}",
        "best_s": f"{best_s:.7g}",
        "regret": round(first.record.best_s / best_s - 1, 4),
        "gap": round(found.gap, 4),
        "tried": len(tried),
        "better": best and f"{describe(best)} {best.prefetch}",
    }


def describe(case: Case) -> str:
    """Algorithm, layouts and options of a case."""
    return f"{case.algorithm} {case.a} {case.b} {case.c} {case.options}"


def main() -> None:
    """Print a row a machine, mesh and shape."""
    parser = parser_of(__doc__)
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--meshes", default=",".join(MESHES))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    asked = (each.split(",") for each in (args.machines, args.meshes, args.shapes))
    rows: list[dict] = []
    for names in itertools.product(*asked):
        rows.append(regret(*names))
        print(*(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
        if args.csv:
            write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
