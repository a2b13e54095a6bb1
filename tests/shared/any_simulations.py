"""Programs and machines at random for both event loops: all partitionings, replication, options and
look-aheads, one tier and two, every way in which machines differ."""

import random
from math import inf

from any_machines import any_signalled
from oracles import any_case, traces_of

from drbench.errors import UnsupportedError
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine

DEPTHS = (0, 1, 2, "all")


def any_simulation(seed):
    """(traces of all ranks, machine): one in six a program with signals, one in ten lowered."""
    rng = random.Random(seed)
    machine = _machine(rng)
    if rng.random() < 1 / 6:
        return any_signalled(seed, split=rng.random() < 0.8), machine
    problem, options = any_case(seed)
    if rng.random() < 0.1:
        options = {"stationary": options["stationary"], "schedule": "greedy"}
    elif rng.random() < 0.3:
        options = {"stationary": options["stationary"], "signals": "always"}
    try:
        return traces_of(problem, **options), machine
    except UnsupportedError:  # signals, on layouts that cannot have them
        return traces_of(problem, stationary=options["stationary"]), machine


def _machine(rng):
    some = lambda *values: rng.choice(values)
    shared = some("pair", "device", "node", "fabric")
    rate = rng.uniform(0.5, 3)
    far = Link(
        "far", rate, some(0, 1.5), shared=shared, node=2, lane=some("copy", "nic"),
        core_bytes_per_s=some(inf, inf, inf, 2.0), core_row_s=some(0.0, 0.2),
        through=some((), ("port",)), carries_bytes_per_s=some(0.0, 2 * rate),
        reads_in_place=some(False, False, True),
    )  # fmt: skip
    port = Link("port", rate * rng.uniform(1, 4), within=1)
    near = Link("near", rng.uniform(1, 9), some(0, 0.5), within=2, shared=some("pair", "device"))
    free = Link("near", inf, within=2, reads_in_place=True)
    own = Link("own", rate, some(0, 0.5), shared="initiator", core_add_bytes_per_s=some(inf, 5.0))
    links = some((port, far), (near, port, far), (near, port, far), (free, port, far), (own,))
    compute = Compute(
        rng.uniform(1, 50), sustained=rng.uniform(0.5, 1), units=some(1, 3),
        tiles=some(((1, 1),), ((2, 3), (1, 1))),
        memory_bytes_per_s=rng.uniform(20, 90), launch_s=some(0, 0.1), k_ramp=some(0, 1),
    )  # fmt: skip
    return Machine(
        "any", compute, links,
        arbitration=some("fair", "fifo"),
        fence_s=some(0, 0.7), fence_round_s=some(0, 0.1), step_s=some(0, 0.01),
        accumulate_efficiency=some(1, 0.8), accumulate_slowdown=some(0, 0.3),
        owner_slowdown=some(0, 0.2), transfer_slowdown=some(0, 0.1),
        memory_shared=some(False, False, True), copy_engines=some(0, 0, 1, 2),
        copy_engine_bytes_per_s=some(inf, 0.7 * rate), copy_streams=some(0, 1, 2, 3),
        signal_s=some(0, 0.3), pull_efficiency=some(1, 0.9),
        side_units=min(some(0, 1), compute.units - 1), adds_on_core=rng.random() < 0.3,
    )  # fmt: skip
