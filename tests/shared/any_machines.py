"""Machine models and programs at random, in which GEMMs and transfers take about as long."""

import random

from overlap_programs import ag_traces, rs_traces
from slow_simulator import slow_on, ways

from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.program.steps import Get


def any_machine(seed, **fixed):
    """Rates at which GEMMs and transfers take about as long as each other, in any type of
    network."""
    rng = random.Random(seed)
    links = (
        Link("near", rng.uniform(1, 9), rng.choice([0, 0.5]), within=2, shared="pair"),
        Link(
            "far",
            rng.uniform(0.5, 3),
            rng.choice([0, 1.5]),
            shared=rng.choice(["pair", "device", "node"]),
            node=2,
        ),
    )
    compute = Compute(
        rng.uniform(1, 20),
        rng.uniform(0.5, 1),
        tiles=rng.choice([((1, 1),), ((2, 3), (1, 1))]),
        units=rng.choice([1, 3]),
        memory_bytes_per_s=rng.uniform(20, 90),
        launch_s=rng.choice([0, 0.1]),
        k_ramp=rng.choice([0, 1]),
    )
    fixed = {
        "accumulate_efficiency": rng.choice([1, 0.8]),
        "fence_s": rng.choice([0, 0.7]),
        **fixed,
    }
    return Machine("any", compute, links, **fixed)


def with_lanes(seed, **fixed):
    """A machine on which a rank's transfers keep their order."""
    rng = random.Random(seed)
    links = (
        Link("near", rng.uniform(1, 9), rng.choice([0, 0.5]), within=2),
        Link("far", rng.uniform(0.5, 3), rng.choice([0, 1.5]), shared=rng.choice(["pair", "node"]),
             node=2, lane=rng.choice(["copy", "nic"])),
    )  # fmt: skip
    compute = Compute(rng.uniform(5, 200), memory_bytes_per_s=rng.uniform(20, 90))
    values = {"copy_streams": rng.choice([0, 1, 2, 3]), "signal_s": rng.choice([0, 0.3, 2.0])}
    return Machine("any", compute, links, **values | fixed)


def any_signalled(seed, **options):
    """The traces of a small program with signals."""
    rng = random.Random(seed)
    p, rows = rng.choice([2, 3, 4]), rng.randint(1, 4)
    sizes = p * rows, p * rng.randint(1, 3), p * rng.randint(1, 3), p
    if rng.random() < 0.5:
        mode = rng.choice(["pull", "push", "ring"])
        return ag_traces(*sizes, mode, rng.randint(1, rows), naive=rng.random() < 0.5, **options)
    mode = rng.choice(["write", "pull", "reduce"])
    return rs_traces(*sizes, mode, rng.randint(1, rows), naive=rng.random() < 0.5, **options)


def slow_signalled(machine, traces, orders):
    """Times of programs with signals by the slow simulator, for each order of ranks."""
    link, _ = ways(*machine.links)

    def lane_of(rank, step):
        if not machine.copy_streams:
            return None
        other = step.peer if step.signals else step.block.owner
        reads = isinstance(step, Get) or (step.signals and not step.sends)
        place = (other - rank - 1) % machine.copy_streams
        return rank, reads, link(rank, other).lane, place

    return [
        slow_on(machine, traces, 10**6, list(order), lane_of, machine.signal_s) for order in orders
    ]
