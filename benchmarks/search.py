"""How long ``drbench tune`` searches, in seconds of CPU, and what it finds: 8, 64 and 512 H100.

    python benchmarks/search.py [--ranks 8,64,512] [--effort 50000] [--replication none]
        [--everyone | --share 300]

The problem is the MLP-1 of "Slicing Is All You Need" at batch 8192. Nodes of eight are joined by
InfiniBand of 50 GB/s a device and direction, as the audit of predictions assumed. ``--everyone``
simulates all ranks also where one could stand for others; ``--share`` says instead of how many of
so many universal candidates, taken at random, one could.
"""

# ruff: noqa: E402

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from drbench.errors import UnsupportedError
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models import predict
from launch.models.candidates import REPLICATION, TuneRequest, everywhere, on_triple, texts, ways
from launch.models.tune import tune

SIZES = 8192, 49152, 12288


def nodes_of_eight(ranks: int) -> Machine:
    """The model h100x8, several of them joined by a card of 50 GB/s a device."""
    model = find_machine("h100x8")
    if ranks <= 8:
        return model
    near = model.sources["links"]["nvlink"] | {"within": 8}
    card = {"shared": "device", "bandwidth_bytes_per_s": 50e9, "latency_s": 5e-6}
    changes = {"devices": ranks, "links": {"nvlink": near, "ib": card}}
    return Machine.from_dict(model.sources | changes, f"h100x8, {ranks // 8} nodes")


def share(ranks: int, count: int, replication: str | None) -> None:
    """Of universal candidates at random: how many are simulated with fewer ranks, and how many of
    these move anything, by each arbitration."""
    rng, found, of = random.Random(ranks), Counter(), 0
    request = TuneRequest(Case(*SIZES), ranks, replication=replication)
    tried, how = texts(request), ways(("auto", "none"), True)
    while of < count:
        triple = [rng.choice(tried[name]) for name in "ABC"]
        if not REPLICATION[replication or "all"](*(factor for _, factor in triple)):
            continue
        names = [text for text, _ in triple]
        case = on_triple(request.case, names, rng.choice("ABC"), rng.choice(how))
        try:
            case = everywhere(case, ranks)[0]
            for rule in ARBITRATIONS:
                machine = nodes_of_eight(ranks).with_value("arbitration", rule)
                made = predict.programs_of(case, machine, ranks)
                moves = any(map(made.traces[0].is_remote, made.traces[0].steps))
                found[rule, moves] += made.folding is not None
        except UnsupportedError:
            continue
        of += 1
    for rule in ARBITRATIONS:
        print(
            f"{ranks} ranks, replication {replication or 'all'}, {rule}: of {of} candidates "
            f"{found[rule, False]} fold that move nothing, {found[rule, True]} that move",
            flush=True,
        )


def main() -> None:
    """Search once a number of ranks, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="8,64,512")
    parser.add_argument("--effort", type=int, default=50_000)
    parser.add_argument("--replication", choices=REPLICATION, default=None)
    parser.add_argument("--everyone", action="store_true")
    parser.add_argument("--share", type=int)
    args = parser.parse_args()
    if args.everyone:
        predict.fold = lambda *on: None
    for ranks in map(int, args.ranks.split(",")):
        if args.share:
            share(ranks, args.share, args.replication)
            continue
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
