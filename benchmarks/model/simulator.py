"""How many events a second the simulator works off, and where the rest of a prediction's time goes.
Seconds of CPU; each is the best of ``--times``.

    python -m benchmarks model.simulator [--times 3] [--large]

Machines are those of benchmarks/model/search.py. Products come first, then crowds of reads of any
sizes, all asked for at once, where links are shared by many: all ranks of one owner, each of the
next one, each of all others. ``--large`` adds cases of half a million events and more.
"""

import argparse
import random
import sys
import time
from itertools import chain

from search import SIZES, nodes_of_eight

from drbench.model.links import ARBITRATIONS
from drbench.model.simulate import Simulator, _Run
from drbench.program.steps import Block, Get
from drbench.program.trace import no_collection, trace
from launch.cases.case import Case
from launch.models.predict import programs_of

TILES = "tiles:512x512@8x16"
CASES = (
    (8, ("row", "column", "block"), "C"),
    (64, ("row", "column", "block"), "C"),
    (64, ("block", "block", "block"), "B"),
    (512, ("block", "block", "block"), "C"),
)
LARGE = ((128, (TILES, TILES, TILES), "C"),)
#: What a rank of how many reads: (owner, times).
CROWDS = {
    "a hub": (512, lambda rank, ranks: [(0, 8)] if rank else []),
    "a ring": (512, lambda rank, ranks: [((rank + 1) % ranks, 16)]),
    "all to all": (64, lambda rank, ranks: [(each, 1) for each in range(ranks) if each != rank]),
}
LARGE_CROWDS = {
    "all to all": (512, lambda rank, ranks: [(each, 1) for each in range(ranks) if each != rank]),
}


def best(times, work):
    """Seconds of CPU, and what the work gave."""
    found = []
    for _ in range(times):
        start = time.process_time()
        result = work()
        found.append(time.process_time() - start)
    return min(found), result


def products(large):
    """(name, traces, machine, look-ahead, seconds of tracing) of each."""
    for ranks, layouts, stationary in CASES + (LARGE if large else ()):
        case = Case(*SIZES, *layouts, options={"stationary": stationary})
        for arbitration in ARBITRATIONS:
            machine = nodes_of_eight(ranks).with_value("arbitration", arbitration)
            trace_s, made = best(1, lambda: programs_of(case, machine, ranks))
            name = f"{ranks:4} ranks, {', '.join(layouts)}, Stationary {stationary}, {arbitration}"
            yield name, made.traces, made.machine, made.ahead, trace_s


def crowds(large):
    """The same of the crowds."""
    for kind, (ranks, reads) in [*CROWDS.items(), *(LARGE_CROWDS.items() if large else ())]:
        rng = random.Random(ranks)

        def program(rank):
            for owner, times in reads(rank, ranks):
                for _ in range(times):
                    rows = rng.randrange(1, 512)
                    yield Get(Block("A", owner, 0, (0, 0), 0, rows, 0, 512))

        trace_s, made = best(
            1, lambda: [trace(program(rank), None, rank, fresh=False) for rank in range(ranks)]
        )
        for arbitration in ARBITRATIONS:
            machine = nodes_of_eight(ranks).with_value("arbitration", arbitration)
            yield f"{ranks:4} ranks, {kind}, {arbitration}", made, machine, "all", trace_s


def main() -> int:
    """Print a line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    with no_collection():
        cases = chain(products(args.large), crowds(args.large))
        for name, traces, machine, ahead, trace_s in cases:
            simulator = Simulator(traces, machine)
            first_s, _ = best(1, lambda: simulator.run(ahead))  # prices the steps
            run = _Run(simulator, ahead, False)
            run.run(float("inf"))
            again_s, _ = best(args.times, lambda: simulator.run(ahead))
            print(
                f"{name}: {run.order} events, {run.order / again_s / 1e6:.3f} million/s; traces "
                f"{1e3 * trace_s:.0f} ms, first simulation {1e3 * first_s:.0f}, another "
                f"{1e3 * again_s:.0f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
