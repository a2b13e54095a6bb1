"""Fused overlap on this machine, all contenders in turn in one process a rank: rows of sections of
``benchmarks/core.py`` (gather, reduce, sums, signals, signals_remote), which starts it.

    python -m benchmarks signals throttled gather        # or reduce; sums: the universal algorithm
    python -m benchmarks signals roof gather [--tiles 512,1024]   # or reduce, sums; MPI as the
                                                         # environment says, or --transport rma
    python -m benchmarks signals cost                    # of a Push and its Await

``throttled``: the network is as slow as transfers shall take of compute, which is the same program
with a network that takes no time, run right before and after. ``roof``: against local products, and
against the universal algorithm on the same layouts. Ratios are of times of the same round. Prints
JSON, a row a case; what programs compute is compared in passing, exactly.
"""

import argparse
import json
import sys
from statistics import median
from time import process_time

import threadpoolctl

from benchmarks.paired import (
    Contender,
    Ground,
    ground,
    ratio,
    rounds,
    undisturbed_times,
)
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.topology import Topology
from drbench.measure.roof import HostWork, Roof
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Get
from drbench.program.trace import trace
from launch.cases.sweep_values import scale_of, scaled_size
from launch.ranks.run_case import MPI, world
from launch.sweeps.rounds import turned

#: What transfers take of compute.
SHARES = (0.3, 0.7, 1.0)
#: Which are also compared with each other.
PAIR = ("ag_gemm push", "ag_gemm pull")


LAYOUTS = {
    "gather": ("row", "column", "column"),
    "reduce": ("column", "row", "row"),
    "row": ("row", "row", "row"),
    "column, column, row": ("column", "column", "row"),
    "outer": ("column", "row", "row"),
    "block": ("block", "block", "block"),
    "misaligned": ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block"),
}
#: Of these the sums of Stationary B move, by rows, by columns or both.
SUMS = ("row", "outer", "column, column, row", "block", "misaligned")
VARIANTS = {
    "gather": ("ag_gemm", ("pull", "push", "ring"), 1.20),
    "reduce": ("gemm_rs", ("write", "reduce", "pull", "ring"), 1.25),
}


def throttled(kind: str, *how) -> list[dict]:
    """Times on slow networks over the larger of compute and transfers, and over their sum."""
    if kind == "sums":
        return [row for layout in ("row", "column, column, row") for row in sums(layout, *how)]
    algorithm, variants, most = VARIANTS[kind]
    tile = {"tile": how[1]}
    contenders = [Contender("collective", {}, 0.95, 1.05, "sum")]
    contenders += [Contender(algorithm, {"variant": v} | tile, None, most) for v in variants]
    return on_slow_networks(LAYOUTS[kind], contenders, *how)


def sums(layout: str, *how) -> list[dict]:
    """Of the universal algorithm where sums move: accumulated, and pushed with signals."""
    plain = {"stationary": "B", "sums": "accumulate"}
    pushed = plain | {"sums": "push", "tile": how[1]}
    name = f"universal, {layout}"
    contenders = [
        Contender("universal", plain, label=f"{name}, accumulated"),
        Contender("universal", pushed, None, 1.20, label=f"{name}, signals"),
    ]
    return on_slow_networks(LAYOUTS[layout], contenders, *how)


def on_slow_networks(
    layout: tuple[str, str, str],
    contenders: list[Contender],
    size: int,
    tile: int,
    least: int,
    budget_s: float,
) -> list[dict]:
    """Rows of contenders, each next to itself on a free network."""
    with ground(size, layout, in_place=False) as here:
        return rows_of(here, contenders, tile, least, budget_s)


def rows_of(
    here: Ground, contenders: list[Contender], tile: int, least: int, budget_s: float
) -> list[dict]:
    """The columns of each contender and share of transfers."""
    executors = {each.name: here.executor(each, throttled=True) for each in contenders}
    moved = {name: here.moved(each) for name, each in executors.items()}
    multiply = here.product(tile)
    multiply(here.problem.m)

    def repeat(turn: int) -> dict:
        found = {"whole": multiply(here.problem.m), "parts": multiply(tile)}
        for contender in turned(contenders, turn):
            name = contender.name
            executor = executors[name]
            free = found[name, "before"] = here.compute(executor)
            for share in turned(SHARES, turn):
                found[name, share] = here.time(executor, moved[name] / (share * free.seconds))
            found[name, "after"] = here.compute(executor)
            if name == PAIR[1]:  # both on the same network, one right after the other
                for share in SHARES:
                    for one in turned(PAIR, turn):
                        bandwidth = moved[name] / (share * free.seconds)
                        found[PAIR, one, share] = here.time(executors[one], bandwidth)
        return found

    taken = rounds(here.comm, repeat, least, budget_s * len(contenders) * len(SHARES))
    rows: list[dict] = []
    pieces = undisturbed_times(taken, least, "whole", "parts")
    cut = median(parts / whole for whole, parts in pieces)
    for contender in contenders:
        name = contender.name
        for share in SHARES:
            samples, times, computes = [], [], []
            names = (name, "before"), (name, share), (name, "after")
            for before, slow, after in undisturbed_times(taken, least, *names):
                compute, comm_s = (before + after) / 2, share * before
                over = {"larger": max(compute, comm_s), "sum": compute + comm_s}
                samples.append(slow / over[contender.against])
                times.append(slow)
                computes.append(compute)
            rows.append(
                {
                    "case": name,
                    "transfers_over_compute": share,
                    "against": contender.against,
                    "bar_low": contender.least,
                    "bar": contender.most,
                    **ratio(samples),
                    "median_s": median(times),
                    "compute_s": median(computes),
                    "gbps": moved[name] / (share * median(computes)) / 1e9,
                    "whole_s": median(whole for whole, _ in pieces),
                    "cut": cut,
                    "tile": tile,
                    "algorithm": contender.algorithm,
                    "options": contender.options,
                }
            )
    if PAIR[1] in executors:
        for share in SHARES:
            names = ((PAIR, one, share) for one in PAIR)
            pairs = [one / other for one, other in undisturbed_times(taken, least, *names)]
            rows.append(
                {
                    "case": "ag_gemm push over pull",
                    "transfers_over_compute": share,
                    "against": "pull",
                    "bar_low": 0.95,
                    "bar": 1.05,
                    **ratio(pairs),
                }
            )
    for executor in executors.values():
        executor.close()
    return rows


def against_roof(kind: str, tiles: list[int], *how) -> list[dict]:
    """Programs on the transport that MPI gives, against local products and against the universal
    algorithm."""
    if kind == "sums":
        plain = {"stationary": "B", "sums": "accumulate"}
        pushed = [plain | {"sums": "push"} | ({"tile": tile} if tile else {}) for tile in tiles]
        return [
            row
            for name in SUMS
            for row in beside_roof(
                LAYOUTS[name],
                [
                    Contender("universal", plain, label=f"{name}, accumulated"),
                    *(Contender("universal", each, label=f"{name}, signals") for each in pushed),
                ],
                *how,
            )
        ]
    algorithm, variants, _ = VARIANTS[kind]
    contenders = [Contender("universal")] + [
        Contender(algorithm, {"variant": v, "tile": tile}) for v in variants for tile in tiles
    ]
    return beside_roof(LAYOUTS[kind], contenders, *how)


def beside_roof(
    layout: tuple[str, str, str],
    contenders: list[Contender],
    size: int,
    least: int,
    budget_s: float,
    transport: str,
) -> list[dict]:
    """Rows of contenders, the first of which the others are held against."""
    with ground(size, layout, True, transport) as here:
        here.in_place = not any(each.uses_rma for each in here.matrices.values())
        executors = [here.executor(each, throttled=False) for each in contenders]
        roof = Roof(here.problem, here.comm, HostWork(here.blas), here.fill)

        def repeat(turn: int) -> dict:
            found = {"roof": roof.sample()} if turn % 2 else {}
            for place in turned(range(len(contenders)), turn):
                found[place] = here.time(executors[place])
            return found if turn % 2 else found | {"roof": roof.sample()}

        taken = rounds(here.comm, repeat, least, budget_s * len(contenders))
        rows = []
        for place, contender in enumerate(contenders):
            scale = here.problem.flops / roof.flops
            times = undisturbed_times(taken, least, place, "roof")
            others = undisturbed_times(taken, least, place, 0)
            beside = ratio([universal_s / seconds for seconds, universal_s in others])
            rows.append(
                {
                    "case": contender.name,
                    "tile": contender.options.get("tile"),
                    **ratio([scale * roof_s / seconds for seconds, roof_s in times]),
                    "of_universal": beside["ratio"],
                    "of_universal_low": beside["low"],
                    "of_universal_high": beside["high"],
                    "median_s": median(seconds for seconds, _ in times),
                }
            )
        for executor in executors:
            executor.close()
        return rows


def cost(count: int, topology: Topology, *transport) -> float:
    """Seconds of this process's core for one Push and one Await of 16 elements, of ``count`` each
    way between two ranks; the best of several runs, on the rank that took less."""
    comm = topology.comm
    problem = Problem(4 * comm.size, 1, 4, comm.size, "row", "R", "row")
    own, other = problem.a.own_tiles(comm.rank)[0], 1 - comm.rank

    def program():
        token = yield Get(own)
        for x in range(count):
            yield Push(token, other, x)
        for x in range(count):
            yield Await(other, x, own)

    best = float("inf")
    with distributed(problem, topology, *transport) as matrices:
        found = trace(program(), problem, comm.rank, fresh=False)
        with Executor(found, matrices, prefetch="all") as executor:
            for _ in range(9):
                executor.prepare()
                comm.Barrier()
                start = process_time()
                executor.run()
                best = min(best, process_time() - start)
                comm.Barrier()
    return comm.allreduce(best, MPI.MIN) / count


def main() -> None:
    comm = world()  # MPI begins as it does for a case
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("throttled", "roof", "cost"))
    parser.add_argument("kind", nargs="?", choices=(*VARIANTS, "sums"), default="gather")
    parser.add_argument("--scale", default="1", help="of 4096 cubed, as 1/4")
    parser.add_argument(
        "--tiles", default="512", help="rows of a communication tile; 0: left open (sums)"
    )
    parser.add_argument("--transport", default="auto", help="of roof: auto or rma")
    parser.add_argument("--iters", type=int, default=5, help="least rounds")
    parser.add_argument("--budget", type=float, default=8, help="seconds of a case")
    chosen = parser.parse_args()
    tiles = [int(each) for each in chosen.tiles.split(",")]
    limits = chosen.iters, chosen.budget
    size = scaled_size(4096, scale_of(chosen.scale, "--scale"))
    load_blas()
    threadpoolctl.threadpool_limits(1)
    if chosen.table == "throttled":
        rows = throttled(chosen.kind, size, tiles[0], *limits)
    elif chosen.table == "roof":
        rows = against_roof(chosen.kind, tiles, size, *limits, chosen.transport)
    else:
        with Topology(comm) as topology:
            rows = [{"case": "Push and Await", "cost_s": cost(300, topology), "bar": 20e-6}]
    if comm.rank == 0:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
