"""DTensor and DTensor on drbench, interleaved in one process: a tensor-parallel MLP, forward and
backward, and the cost of a call. Needs a quiet machine and the extra ``torch``.

    python -m benchmarks dtensor [mlp] [calls] [--out FOLDER]

Stock runs with torch's own styles (ColwiseParallel, RowwiseParallel, rows of the batch divided) and
without drbench's handlers; the other side with drbench's styles and adopted parameters. Both
compute the same, which is checked, with torch's BLAS. ``mlp`` takes about a minute, ``calls`` half
of one; rows are written to FOLDER/mlp.csv and calls.csv. Multiplications by placements:
``drbench sweep placements``.
"""

# ruff: noqa: E402

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import mpi4py

mpi4py.rc.thread_level = "multiple"

import torch
from mpi4py import MPI
from pandas import DataFrame
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import drbench.torch
from benchmarks.__main__ import parser_of
from benchmarks.core import write_rows
from benchmarks.dtensor_rows import call_costs, steps
from drbench.clock import Clock
from drbench.launch.studies.libraries import OURS, STOCK
from drbench.launch.sweeps.rounds import rotate_order
from drbench.measure.decision import over
from drbench.measure.noise import enough
from drbench.measure.roof import timed
from drbench.program.trace import no_collection
from drbench.torch.private import handlers, local_of

COMM = MPI.COMM_WORLD
#: Rows of the batch, width, hidden.
LAYERS = ((256, 512, 2048), (1024, 512, 2048), (1024, 1024, 4096))
#: Rounds of ``mlp`` at least, after those to warm up; of ``calls``, and calls in each.
LEAST, WARM_UP, ROUNDS, REPEATS = 20, 3, 11, 100
#: Torch's styles, and those of drbench.
STYLES = {
    STOCK: (ColwiseParallel, RowwiseParallel),
    OURS: (drbench.torch.ColumnParallel, drbench.torch.RowParallel),
}


def drbench_under_torch() -> dict:
    """Install drbench; return the contexts with its handlers, and without them."""
    table = handlers()
    alone = dict(table)
    drbench.torch.install(COMM, heap="512M")
    sides = {STOCK: alone, OURS: dict(table)}
    return {name: patch.dict(table, entries, clear=True) for name, entries in sides.items()}


# --- the MLP


def steps_of(model: nn.Module, x: DTensor, gradient: DTensor) -> dict[str, Callable]:
    """The steps of a model to time, which wait for collectives that may still write results."""

    def forward():
        with torch.no_grad():
            local_of(model(x))

    def train():
        for tensor in (x, *model.parameters()):
            tensor.grad = None
        out = model(x)
        out.backward(gradient)
        for tensor in (*(tensor.grad for tensor in (x, *model.parameters())), out):
            local_of(tensor)
        return out

    return {"forward": forward, "forward and backward": train}


def mlp(sides: dict, budget_s: float) -> Iterator[dict]:
    """Every layer, its forward pass and its training step, by both sides, alternating."""
    mesh = init_device_mesh("cpu", (COMM.size,))
    for batch, width, hidden in LAYERS:
        torch.manual_seed(4)
        shards = [distribute_tensor(torch.randn(batch, width), mesh, [Shard(0)]) for _ in range(2)]
        work_of, results = {}, {}
        for name, (column, row) in STYLES.items():
            torch.manual_seed(3)  # the same weights for both sides
            up, down = (
                nn.Linear(*sizes, bias=False) for sizes in ((width, hidden), (hidden, width))
            )
            plan = {
                "0": column(input_layouts=Shard(0)),
                "2": row(output_layouts=Shard(0), use_local_output=False),
            }
            model = parallelize_module(nn.Sequential(up, nn.ReLU(), down), mesh, plan)
            x = shards[0].detach().clone().requires_grad_()
            with sides[name]:
                if name == OURS:
                    drbench.torch.adopt(model)
                work_of[name] = steps_of(model, x, shards[1])
                out = work_of[name]["forward and backward"]()
                gradients = (tensor.grad for tensor in (x, *model.parameters()))
                results[name] = [tensor.full_tensor() for tensor in (out, *gradients)]
        torch.testing.assert_close(results[OURS], results[STOCK], rtol=1e-3, atol=1e-3)
        for what in ("forward", "forward and backward"):
            description = {"batch": batch, "width": width, "hidden": hidden, "what": what}
            timed_of = {name: work_of[name][what] for name in sides}
            yield from (description | row for row in interleaved(timed_of, sides, budget_s))


def interleaved(timed_of: dict, sides: dict, budget_s: float) -> Iterator[dict]:
    """Rounds of one repeat each, until the ratio of their times is known or the budget is spent."""
    times: dict[str, dict[int, float]] = {name: {} for name in timed_of}
    start, round_index, done = Clock.now(), -WARM_UP, False
    with no_collection():
        while not done:
            for name in rotate_order(list(timed_of), round_index):
                with sides[name]:
                    sample = timed(COMM, timed_of[name])
                if round_index >= 0:
                    times[name][round_index] = sample.seconds
                    row = {"side": name, "round": round_index + 1}
                    yield row | {
                        "seconds": round(sample.seconds, 9),
                        "cpu_s": round(sample.cpu_s, 9),
                    }
            round_index += 1
            if round_index > 0:
                samples, spent_s = list(times[OURS].values()), Clock.now() - start
                ratios = over(times[STOCK], times[OURS])
                done = COMM.bcast(enough(samples, spent_s, LEAST, budget_s, ratios))


# --- the cost of a call


def median_s(call: Callable) -> float:
    """Median seconds of a call, of the slowest rank."""
    COMM.Barrier()
    times = []
    for _ in range(REPEATS):
        start = Clock.now()
        call()
        times.append(Clock.now() - start)
    return max(COMM.allgather(statistics.median(times)))


def calls(sides: dict, budget_s: float) -> Iterator[dict]:
    """Microseconds of a call, round by round: the median of each round, of the slowest rank."""
    n, mesh, divided = 16, init_device_mesh("cpu", (COMM.size,)), [Shard(0)]
    part = n // COMM.size
    a, b = (drbench.torch.empty((n, n), mesh, divided) for _ in range(2))
    for operand in (a, b):
        operand.to_local().fill_(1)
    c, d = (distribute_tensor(torch.ones(n, n), mesh, divided) for _ in range(2))
    whole = distribute_tensor(torch.ones(n, n), mesh, [Replicate()])
    pairs = [(torch.ones(part, part), torch.ones(part, n)) for _ in range(COMM.size)]
    result = torch.zeros(part, n)

    def multiply():
        for number, (left, right) in enumerate(pairs):
            torch.addmm(result, left, right, beta=float(number > 0), out=result)

    measured = {
        "the local GEMMs alone": (STOCK, multiply),
        "S(0) · S(0), stock": (STOCK, lambda: c @ d),
        "S(0) · S(0), on drbench": (OURS, lambda: a @ b),
        "S(0) · S(0), operands copied, on drbench": (OURS, lambda: c @ d),
        "S(0) · R, stock": (STOCK, lambda: c @ whole),
        "S(0) · R, kept by stock, on drbench": (OURS, lambda: c @ whole),
    }
    for round_index in range(ROUNDS):
        row = {"round": round_index + 1}
        for name in rotate_order(list(measured), round_index):
            side, call = measured[name]
            with sides[side], no_collection():
                call()
                yield row | {"call": name, "us": round(1e6 * median_s(call), 3)}
        shape = 64 + round_index, 64 + round_index
        with sides[OURS]:
            x, y = (distribute_tensor(torch.ones(shape), mesh, divided) for _ in range(2))
            seconds = timed(COMM, lambda x=x, y=y: x @ y).seconds
        yield row | {"call": "first call of a layout, on drbench", "us": round(1e6 * seconds, 3)}


def main() -> int:
    parser = parser_of(__doc__)
    tables = {"mlp": (mlp, steps), "calls": (calls, call_costs)}
    parser.add_argument("what", nargs="*", choices=tables, help="default: both")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of a step of mlp [8]")
    parser.add_argument("--out", type=Path, help="folder for a CSV file each")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sides = drbench_under_torch()
    for name in given.what or tables:
        measure, compare = tables[name]
        rows = list(measure(sides, given.budget))
        if COMM.rank == 0:
            print(DataFrame(compare(DataFrame(rows))).to_string(), flush=True)
            if given.out:
                write_rows(given.out / f"{name}.csv", rows)
    drbench.torch.uninstall()
    return 0


if __name__ == "__main__":
    sys.exit(main())
