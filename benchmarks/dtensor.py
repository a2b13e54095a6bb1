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
from benchmarks.dtensor_rows import CALLS, call_us, steps
from drbench.clock import Clock
from drbench.launch.studies.libraries import OURS, STOCK
from drbench.launch.sweeps.rounds import rotated
from drbench.measure.decision import over
from drbench.measure.noise import enough
from drbench.measure.roof import timed
from drbench.program.trace import no_collection
from drbench.torch.private import handlers, local_of

COMM = MPI.COMM_WORLD
#: Rows of the batch, width, hidden.
LAYERS = ((256, 512, 2048), (1024, 512, 2048), (1024, 1024, 4096))
#: Rounds of ``mlp`` at least; of ``calls``, and calls in each.
LEAST, ROUNDS, REPEATS = 20, 11, 100


def drbench_under_torch() -> dict:
    """Install drbench; return the contexts with its handlers, and without them."""
    table = handlers()
    alone = dict(table)
    drbench.torch.install(COMM, heap="512M")
    sides = {STOCK: alone, OURS: dict(table)}
    return {name: patch.dict(table, entries, clear=True) for name, entries in sides.items()}


# --- the MLP


class MLP(nn.Module):
    """up, relu, down."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def model_of(width: int, hidden: int, mesh, column, row) -> nn.Module:
    """The same weights for both sides; divided by the styles."""
    torch.manual_seed(3)
    model = MLP(width, hidden)
    plan = {
        "up": column(input_layouts=Shard(0)),
        "down": row(output_layouts=Shard(0), use_local_output=False),
    }
    return parallelize_module(model, mesh, plan)


def finished(tensor: DTensor) -> DTensor:
    """The tensor, once a collective that may still write it has ended."""
    local_of(tensor)
    return tensor


def steps_of(model: nn.Module, x: DTensor, gradient: DTensor) -> dict[str, Callable]:
    """The steps of a model to time."""

    def forward():
        with torch.no_grad():
            return finished(model(x))

    def train():
        for each in (x, *model.parameters()):
            each.grad = None
        out = model(x)
        out.backward(gradient)
        for each in (x, *model.parameters()):
            finished(each.grad)
        return finished(out)

    return {"forward": forward, "forward and backward": train}


def mlp(sides: dict, budget_s: float) -> Iterator[dict]:
    """Every layer, its forward pass and its training step, by both sides, alternating."""
    mesh = init_device_mesh("cpu", (COMM.size,))
    for batch, width, hidden in LAYERS:
        torch.manual_seed(4)
        shards = [distribute_tensor(torch.randn(batch, width), mesh, [Shard(0)]) for _ in range(2)]
        sides_of = {}
        for name, styles in (
            (STOCK, (ColwiseParallel, RowwiseParallel)),
            (OURS, (drbench.torch.ColumnParallel, drbench.torch.RowParallel)),
        ):
            model = model_of(width, hidden, mesh, *styles)
            x = shards[0].detach().clone().requires_grad_()
            with sides[name]:
                if name == OURS:
                    drbench.torch.adopt(model)
                sides_of[name] = steps_of(model, x, shards[1])
                made = sides_of[name]["forward and backward"]()
                gradients = (each.grad for each in (x, *model.parameters()))
                found = [each.full_tensor() for each in (made, *gradients)]
            if name == STOCK:
                right = found
        for one, two in zip(found, right, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)
        description = {"batch": batch, "width": width, "hidden": hidden}
        for what in ("forward", "forward and backward"):
            for row in interleaved({name: sides_of[name][what] for name in sides}, sides, budget_s):
                yield description | {"what": what} | row


def interleaved(timed_of: dict, sides: dict, budget_s: float) -> Iterator[dict]:
    """Rounds of one repeat each, until the ratio of their times is known or the budget is spent."""
    for _ in range(3):
        for name, step in timed_of.items():
            with sides[name]:
                step()
    times: dict[str, dict[int, float]] = {name: {} for name in timed_of}
    start, round_index, done = Clock.now(), 0, False
    with no_collection():
        while not done:
            for name in rotated(list(timed_of), round_index):
                with sides[name]:
                    found = timed(COMM, timed_of[name])
                times[name][round_index] = found.seconds
                yield {
                    "side": name,
                    "round": round_index + 1,
                    "seconds": round(found.seconds, 9),
                    "cpu_s": round(found.cpu_s, 9),
                }
            round_index += 1
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
    n, mesh = 16, init_device_mesh("cpu", (COMM.size,))
    S0, R = [Shard(0)], [Replicate()]
    a, b = (drbench.torch.empty((n, n), mesh, S0) for _ in range(2))
    for each in (a, b):
        each.to_local().fill_(1)
    c, d = (distribute_tensor(torch.ones(n, n), mesh, S0) for _ in range(2))
    whole = distribute_tensor(torch.ones(n, n), mesh, R)
    local = [torch.ones(n // COMM.size, n // COMM.size) for _ in range(COMM.size)]
    rows = [torch.ones(n // COMM.size, n) for _ in range(COMM.size)]
    result = torch.zeros(n // COMM.size, n)

    def multiply():
        for number, (left, right) in enumerate(zip(local, rows)):
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
        for name in rotated(list(measured), round_index):
            side, call = measured[name]
            with sides[side], no_collection():
                call()
                us = 1e6 * median_s(call)
                yield {"call": name, "round": round_index + 1, "us": round(us, 3)}
    with sides[OURS]:
        for round_index in range(ROUNDS):
            shape = 64 + round_index, 64 + round_index
            x, y = (distribute_tensor(torch.ones(shape), mesh, S0) for _ in range(2))
            found = timed(COMM, lambda x=x, y=y: x @ y)
            yield {
                "call": "first call of a layout, on drbench",
                "round": round_index + 1,
                "us": round(1e6 * found.seconds, 3),
            }


def main() -> int:
    parser = parser_of(__doc__)
    tables = {each.__name__: each for each in (mlp, calls)}
    parser.add_argument("what", nargs="*", choices=tables, help="default: both")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds of a step of mlp [8]")
    parser.add_argument("--out", type=Path, help="folder for a CSV file each")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sides = drbench_under_torch()
    for name in given.what or tables:
        rows = list(tables[name](sides, given.budget))
        if COMM.rank:
            continue
        found = DataFrame(rows)
        if name == "mlp":
            print(*steps(found), sep="\n", flush=True)
        else:
            for call, beyond, bar in CALLS:
                print(call, "beyond", beyond, "us", call_us(found, call, beyond), "bar", bar)
        if given.out:
            write_rows(given.out / f"{name}.csv", rows)
    drbench.torch.uninstall()
    return 0


if __name__ == "__main__":
    sys.exit(main())
