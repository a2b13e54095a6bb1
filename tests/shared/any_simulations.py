"""Programs and machines at random for both event loops: all partitionings, replication, options and
look-aheads, every algorithm on process grids, kernels in parts, one tier and two, every way in
which machines differ."""

import random
from math import inf

from any_machines import any_signalled
from oracles import any_case, traces_of
from overlap_programs import ag_traces, rs_traces

from algorithms import get_algorithm
from drbench.errors import UnsupportedError
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine

DEPTHS = (0, 1, 2, "all")


def any_simulation(seed):
    """(traces of all ranks, machine): one in four an algorithm with group steps, one in eight a
    kernel in parts; of the others one in six a program with signals, one in ten lowered."""
    rng = random.Random(seed)
    machine = _machine(rng)
    kind = rng.random()
    if kind < 1 / 4:
        return _of_groups(rng), machine
    if kind < 3 / 8:
        return _in_parts(rng), machine
    if rng.random() < 1 / 6:
        return any_signalled(seed, split=rng.random() < 0.8), machine
    problem, options = any_case(seed)
    if rng.random() < 0.1:
        options = {"stationary": options["stationary"], "schedule": "greedy"}
    elif rng.random() < 0.3:
        options = {"stationary": options["stationary"], "sums": "push"}
    try:
        return traces_of(problem, **options), machine
    except UnsupportedError:  # signals, on layouts that cannot have them
        return traces_of(problem, stationary=options["stationary"]), machine


def _of_groups(rng):
    """An algorithm on a process grid, or a program of its kinds of steps."""
    name = rng.choice(
        ["cannon", "summa", "collective", "wang", "meshslice", "fsdp", "tensor_parallel_1d"]
    )
    grids = [(1, 1), (1, 4), (3, 1), (2, 2), (2, 3), (3, 4)]
    rows, cols = rng.choice([(q, q) for q in (1, 2, 3)] if name == "cannon" else grids)
    m, n, k = (rng.randint(1, 40) for _ in "mnk")
    options = {}
    if name == "tensor_parallel_1d":
        options["dataflow"] = rng.choice(["AG", "RdS"])
    elif name != "fsdp":
        options = {"mesh": f"{rows}x{cols}", "dataflow": rng.choice(["OS", "LS", "RS"])}
    if name in ("wang", "fsdp", "tensor_parallel_1d"):
        options["unroll"] = rng.randint(1, 4)
    if name == "meshslice":
        options |= {"slices": rng.randint(1, 3), "block": rng.choice([None, 1, 2])}
    algorithm = get_algorithm(name)
    try:
        problem = algorithm.problem(m, n, k, rows * cols, **options)
        settled = algorithm.resolve(problem, **options)
    except UnsupportedError:  # more slices than blocks
        return _of_groups(rng)
    return [algorithm.trace(problem, rank, **settled) for rank in range(rows * cols)]


def _in_parts(rng):
    """A gather before a product, or a product before a sum, in communication tiles."""
    p = rng.choice([2, 3, 4])
    m, n, k = p * rng.choice([4, 6, 8]), p * rng.randint(1, 6), p * rng.randint(1, 5)
    tile, split = rng.choice([1, 2, 3, None]), rng.random() < 0.2
    if rng.random() < 0.5:
        mode, naive = rng.choice(["pull", "push", "ring"]), rng.random() < 0.5
        return ag_traces(m, n, k, p, mode, tile, naive=naive and mode != "ring", split=split)
    mode, side = rng.choice(["write", "pull", "reduce"]), rng.random() < 0.7
    return rs_traces(m, n, k, p, mode, tile, split=split, side=side, own_last=rng.random() < 0.5)


def _machine(rng):
    some = lambda *values: rng.choice(values)
    shared = some("pair", "device", "node", "fabric")
    rate = rng.uniform(0.5, 3)
    far = Link(
        "far", rate, some(0, 1.5), shared=shared, node=2, lane=some("copy", "nic"),
        core_bytes_per_s=some(inf, inf, inf, 2.0), core_row_s=some(0.0, 0.2),
        core_apart_bytes_per_s=some(inf, 1.0), core_add_apart_bytes_per_s=some(inf, 1.5),
        core_add_bytes_per_s=some(inf, 3.0), core_add_row_s=some(0.0, 0.1),
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
    operations = ("allgather", "reducescatter", "broadcast", "reduce", "shift")
    rings = {each: _collective(some) for each in operations if rng.random() < 0.8}
    return Machine(
        "any", compute, links, collectives=rings, packets=some(1, 4),
        pieces_apart=rng.random() < 0.3, kernel_slowdown=some(0, 0.2),
        arbitration=some("fair", "fifo"),
        fence_s=some(0, 0.7), fence_round_s=some(0, 0.1), step_s=some(0, 0.01),
        accumulate_efficiency=some(1, 0.8), accumulate_slowdown=some(0, 0.3),
        owner_slowdown=some(0, 0.2), transfer_slowdown=some(0, 0.1),
        memory_shared=some(False, False, True), copy_engines=some(0, 0, 1, 2),
        copy_engine_bytes_per_s=some(inf, 0.7 * rate), copy_streams=some(0, 1, 2, 3),
        signal_s=some(0, 0.3), pull_efficiency=some(1, 0.9),
        side_units=min(some(0, 1), compute.units - 1), adds_on_core=rng.random() < 0.3,
    )  # fmt: skip


def _collective(some):
    shape = some("ring", "ring", "tree", "fastest")
    return Collective(
        some(0, 0.2), some(0, 0.1), both_ways=some(False, False, True), shape=shape,
        node=some(0, 2), across_sync_s=some(0, 0.1), across_bandwidth_bytes_per_s=some(None, 30.0),
    )  # fmt: skip
