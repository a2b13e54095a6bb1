"""How many events a second the simulator works off, compiled and in Python, and where the rest of a
prediction's time goes. Seconds of CPU; each is the best of ``--times``.

    python benchmarks/simulator.py [--times 3] [--large]

Machines are those of benchmarks/search.py. Both loops make the same events and must find the same
time. ``--large`` adds a case of half a million events, which takes Python minutes.
"""

import argparse
import sys
import time

from search import SIZES, nodes_of_eight

from drbench.model.native.loop import Loop, build
from drbench.model.native.tables import tables_of
from drbench.model.simulate import _Run
from drbench.program.trace import no_collection
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


def best(times, work):
    """Seconds of CPU, and what the work gave."""
    found = []
    for _ in range(times):
        start = time.process_time()
        result = work()
        found.append(time.process_time() - start)
    return min(found), result


def main() -> int:
    """Print a line a case; 1 if the loops differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    loop, equal = Loop(build()), True
    for ranks, layouts, stationary in CASES + (LARGE if args.large else ()):
        for arbitration in ("fifo", "fair"):
            machine = nodes_of_eight(ranks).with_value("arbitration", arbitration)
            case = Case(*SIZES, *layouts, options={"stationary": stationary})
            with no_collection():
                trace_s, made = best(args.times, lambda: programs_of(case, machine, ranks))
                lower_s, tables = best(args.times, lambda: tables_of(made.traces, made.machine))
                loop_s, ran = best(args.times, lambda: loop.run(tables, made.ahead))
                run = _Run(made.traces, made.machine, made.ahead, False, ())
                python_s, simulated = best(1, lambda: run.run(float("inf")))
            same = abs(ran.time_s / simulated.time_s - 1) <= 1e-9 and ran.events == run.order
            equal &= same
            print(
                f"{ranks:4} ranks, {', '.join(layouts)}, Stationary {stationary}, {arbitration}: "
                f"{ran.events} events; compiled {ran.events / loop_s / 1e6:.2f} million/s, with "
                f"its tables {ran.events / (loop_s + lower_s) / 1e6:.2f}, Python "
                f"{ran.events / python_s / 1e6:.3f}; traces {1e3 * trace_s:.0f} ms, tables "
                f"{1e3 * lower_s:.0f}, loop {1e3 * loop_s:.1f}; {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
