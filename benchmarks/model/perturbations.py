"""Does anything get slower when a link, products or latencies get better? It should not.

``python -m benchmarks.model.perturbations --save results/simulated/readings/perturbations.csv``
simulates random cases of the universal algorithm on random machines, each again with one constant
better, under both rules of sharing links, and tells how often that slowed the run by more than
2 %, and what did:
``order`` where the run is as long again if steps that were ready at the same time may not overtake
each other (look-ahead 0, nothing overlaps), else ``overlap``. Minutes.
"""

import argparse
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pandas

from algorithms import get_algorithm
from drbench.errors import DrbenchError
from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.trace import no_collection
from partitions import divisors

#: A slow-down above this is counted.
LIMIT = 1.02


def any_machine(rng: random.Random) -> Machine:
    """Products and transfers take about as long as each other, on nodes of any width."""
    per = rng.choice([2, 4, 8])
    near = Link(
        "near",
        10 ** rng.uniform(9.5, 11.5),
        rng.choice([0, 2e-6, 1e-5]),
        within=per,
        shared=rng.choice(["pair", "device"]),
    )
    far = Link(
        "far",
        10 ** rng.uniform(9, 10.7),
        rng.choice([0, 5e-6, 2e-5]),
        shared=rng.choice(["pair", "device", "node"]),
        node=per,
    )
    compute = Compute(
        10 ** rng.uniform(11, 13), memory_bytes_per_s=1e12, launch_s=rng.choice([0, 5e-6])
    )
    return Machine(
        "any",
        compute,
        (near, far),
        fence_s=rng.choice([0, 2e-5]),
        accumulate_efficiency=rng.choice([1, 0.8]),
        accumulate_slowdown=rng.choice([0, 0.5]),
    )


def any_traces(rng: random.Random) -> tuple[list, int | str]:
    """The programs of a random case, and how far they look ahead."""
    p = rng.randint(2, 13)
    kinds = ["row", "column", "block"]
    texts = [f"{rng.choice(kinds)}/c{rng.choice(divisors(p))}" for _ in "ABC"]
    m, n, k = (rng.randint(16, 512) for _ in "mnk")
    options = {"stationary": rng.choice("ABC"), "chunk": rng.choice([None, 64, 128])}
    problem = Problem(m, n, k, p, *texts)
    universal = get_algorithm("universal")
    traces = [universal.trace(problem, rank, **options) for rank in range(p)]
    return traces, rng.choice([0, 1, 1, 2, "all"])


def better(machine: Machine, rng: random.Random) -> tuple[str, Machine]:
    """One constant better, by 1 % to twice."""
    by = rng.choice([1.01, 1.1, 1.5, 2.0])
    kind = rng.choice(["link", "product", "latency"])
    if kind == "product":
        compute = replace(machine.compute, peak_flops=machine.compute.peak_flops * by)
        return kind, replace(machine, compute=compute)
    at = rng.randrange(2)
    links = list(machine.links)
    if kind == "link":
        links[at] = replace(links[at], bandwidth_bytes_per_s=by * links[at].bandwidth_bytes_per_s)
    else:
        links[at] = replace(links[at], latency_s=links[at].latency_s / by)
    return kind, replace(machine, links=tuple(links))


def why(traces: list, before: Machine, after: Machine) -> str:
    """Whether the slow-down is there without any overlap too."""
    alone = [simulate(traces, each, prefetch=0).time_s for each in (before, after)]
    return "order" if alone[1] > alone[0] * (1 + 1e-9) else "overlap"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", type=Path)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    tried: Counter = Counter()
    slower: dict = defaultdict(list)
    with no_collection():
        for seed in range(chosen.seed, chosen.seed + chosen.cases):
            rng = random.Random(seed)
            try:
                traces, ahead = any_traces(rng)
            except DrbenchError:
                continue
            machine = any_machine(rng)
            kind, other = better(machine, rng)
            for rule in ARBITRATIONS:
                pair = [replace(each, arbitration=rule) for each in (machine, other)]
                times = [simulate(traces, each, prefetch=ahead).time_s for each in pair]
                tried[rule, kind] += 1
                if times[1] > LIMIT * times[0]:
                    ratio = times[1] / times[0]
                    slower[rule, kind].append((ratio, seed, why(traces, *pair), ahead))
    rows = []
    for rule, kind in sorted(tried):
        found = sorted(slower[rule, kind], reverse=True)
        causes = Counter(each[2] for each in found)
        rows.append(
            {
                "arbitration": rule,
                "better": kind,
                "cases": tried[rule, kind],
                "slower": len(found),
                "worst_percent": f"{100 * (found[0][0] - 1):.1f}" if found else "",
                "by_order": causes["order"],
                "by_overlap": causes["overlap"],
                "worst_seed": found[0][1] if found else "",
            }
        )
        print(rows[-1])
    if chosen.save:
        pandas.DataFrame(rows).to_csv(chosen.save, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
