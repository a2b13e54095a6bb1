"""How long ``drbench tune`` searches, in seconds of CPU, and what it finds: 8, 64 and 512 H100.

    python benchmarks/search.py [--ranks 8,64,512] [--effort 50000] [--replication none]

The problem is the MLP-1 of "Slicing Is All You Need" at batch 8192. Nodes of eight are joined by
InfiniBand of 50 GB/s a device and direction, as the audit of predictions assumed.
"""

# ruff: noqa: E402

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.candidates import REPLICATION, TuneRequest
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


def main() -> None:
    """Search once a number of ranks, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="8,64,512")
    parser.add_argument("--effort", type=int, default=50_000)
    parser.add_argument("--replication", choices=REPLICATION, default=None)
    args = parser.parse_args()
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
