"""Small problems, whose repeats take tens of milliseconds: rows of section ``small`` of
``benchmarks/core.py``, which starts it.

    python -m benchmarks small [--size 4096] [--iters 5] [--budget 1]

The layers of an MLP with h = size / 2 and a batch of h / 8, every preset and stationary matrix, in
place on a node. Each is held against three things, in turn with it:

``ratio``
    against the roof, which is the work in the fastest shape that divides it;
``products_ratio``
    against the products of its own trace, of the same shapes, one after the other in memory of the
    rank's own. What is missing to 1 there is not BLAS: fences, sums, pages, Python. What is
    missing to 1 above and not here are the shapes that the layout gives;
``without_gaps``
    against itself on rows without padding (:func:`drbench.program.problem.row_bytes`):
    how much longer that takes.

Prints JSON, a row a case.
"""

import argparse
import json
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.core import PRESETS
from benchmarks.paired import Contender, Ground, ratio, rounds, undisturbed_times
from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.topology import Topology
from drbench.measure.roof import HostWork, Roof, timed
from drbench.program.problem import Problem
from drbench.program.steps import Gemm
from drbench.program.trace import no_collection
from launch.ranks.run_case import world

LAYOUTS = ("row", "column", "inner", "outer", "block")


def products_of(executor: Executor) -> list:
    """(product, beta) of each Gemm of a trace, in memory of the rank's own."""
    found, copies = [], {}
    work = HostWork(executor.blas)

    def private(array: np.ndarray) -> np.ndarray:
        key = array.__array_interface__["data"][0], array.shape
        if key not in copies:
            apart = array.strides[0] // array.itemsize  # rows, here as there
            memory = work.empty(array.shape[0] * apart, array.dtype)
            memory.fill(1)
            copies[key] = memory.reshape(-1, apart)[:, : array.shape[1]]
        return copies[key]

    for step in executor.trace.steps:
        if type(step) is Gemm:
            a, b = (executor.values[value.index] for value in step.inputs[:2])
            arrays = map(private, (a, b, executor.values[step.index]))
            found.append((executor.blas.prepared(*arrays), step.beta))
    return found


def measured(
    here: Ground, plain: Ground, name: str, least: int, budget_s: float, shapes: list
) -> list[dict]:
    """Rows of one layout: every stationary matrix, and the same without row padding (``plain``).
    ``shapes`` has the roof's once it is known."""
    comm, rows = here.comm, []
    roof = Roof(here.problem, comm, HostWork(here.blas), here.fill, *shapes)
    shapes[:] = [roof.shape]
    for stationary in "CBA":
        contender = Contender("universal", {"stationary": stationary}, label=f"S-{stationary}")
        executor, other = (each.executor(contender, throttled=False) for each in (here, plain))
        products = products_of(executor)

        def multiply(products=products) -> None:
            for product, beta in products:
                product(beta, 1.0)

        what = {
            "roof": roof.sample,
            "run": lambda executor=executor: here.time(executor),
            "products": lambda multiply=multiply: timed(comm, multiply),
            "plain": lambda other=other: plain.time(other),
        }
        turn = lambda turn, what=what: {name: what[name]() for name in [*what][:: 1 - turn % 2 * 2]}
        taken = rounds(comm, turn, least, budget_s)
        times = undisturbed_times(taken, least, *("run", "roof", "products", "plain"))
        own = ratio([products_s / run_s for run_s, _, products_s, _ in times])
        gained = ratio([plain_s / run_s for run_s, _, _, plain_s in times])
        rows.append(
            {
                "case": f"{name}, S-{stationary}",
                "steps": len(executor.trace.steps),
                "median_s": median(run_s for run_s, *_ in times),
                **ratio([roof_s / run_s for run_s, roof_s, *_ in times]),
                **{f"products_{name}": value for name, value in own.items()},
                **{f"without_gaps_{name}": value for name, value in gained.items()},
            }
        )
        executor.close()
        other.close()
    return rows


def main() -> None:
    comm = world()  # MPI begins as it does for a case
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--budget", type=float, default=1)
    chosen = parser.parse_args()
    h, rows = chosen.size // 2, []
    with Topology(comm) as topology, no_collection():
        for layer, sizes in (("MLP-1", (h // 8, 4 * h, h)), ("MLP-2", (h // 8, h, 4 * h))):
            shapes: list = []
            for layout in LAYOUTS:
                plain = Problem(*sizes, topology.comm.size, *PRESETS[layout])
                with ExitStack() as stack:
                    found = [
                        Ground(
                            topology.comm,
                            problem,
                            stack.enter_context(distributed(problem, topology)),
                            in_place=True,
                        )
                        for problem in (replace(plain, padded="ABC"), plain)
                    ]
                    name = f"{layer} {layout}"
                    rows += measured(*found, name, chosen.iters, chosen.budget, shapes)
    if comm.rank == 0:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
