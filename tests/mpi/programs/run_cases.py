"""Run many cases in one process; answer what became of each, what the plan had announced, and how
often ranks slept.

``run_cases.py CASES.json [--delays SEED] [--small-segments]``. A case is a dict of
:class:`drbench.launch.ranks.run_case.Case` fields; the key ``pretend`` replaces functions of
:mod:`drbench.launch.ranks.group_memory` by a constant.
"""

import argparse
import json
import random
import time
from collections import Counter
from contextlib import ExitStack
from unittest import mock

from harness import answer, ranks, restored, wrap_starters
from host_device import emulated_gpus

import drbench.host.blas
import drbench.host.executor
import drbench.launch.ranks.group_memory
from drbench.device.executor import DeviceExecutor
from drbench.errors import UsageError
from drbench.host.executor import Executor
from drbench.host.matrix import Window
from drbench.host.topology import RangeLocks, Topology
from drbench.launch.ranks.run_case import Case, run_case
from drbench.plan.schedule import pool_bytes
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.program.signal_steps import Signal
from drbench.program.steps import Accumulate, Fence, Get

#: What the options change.
CHANGED = [
    (drbench.host.executor, "_SEGMENT_S"),
    *((drbench.host.blas, name) for name in ("_BLOCK_K", "_UNROLLED")),
    *((Executor, name) for name in ("_start", "_arrived", "_STARTERS")),
    (RangeLocks, "release"),
]
COUNTERS = ("get_bytes", "put_bytes", "accumulate_bytes", "collective_bytes", "replica_bytes")


def planned(trace, prefetch, comm) -> dict:
    """Bytes by kind summed over the ranks, the largest arena of a rank with nothing read in place,
    the busiest link. Memory of devices is not planned here (``prefetch`` "device")."""
    itemsize = trace.problem.itemsize
    moved = dict.fromkeys(COUNTERS, 0)
    for step in trace.steps:
        for _, elements in step.moved(comm.rank):
            moved[step.counter] += elements * itemsize
    arena = 0 if prefetch == "device" else pool_bytes(trace, prefetch)
    busiest = max(moved["get_bytes"] + moved["replica_bytes"], moved["accumulate_bytes"])
    of_ranks = zip(*comm.allgather((*moved.values(), arena, busiest)))
    *sums, arenas, links = map(list, of_ranks)
    return dict(zip(moved, map(sum, sums))) | {"arena": max(arenas), "link": max(links)}


def case_of(fields: dict, **defaults) -> Case:
    """A case of fields, the options of its algorithm among them; its repeats are as many as are
    asked for."""
    known = {name: fields[name] for name in fields if name in Case.__dataclass_fields__}
    options = {name: fields[name] for name in fields if name not in known}
    return Case(**{"budget": 0.0} | defaults | known | {"options": options})


def run(fields: dict, comm, topology: Topology | None) -> dict:
    """One case: its record, or the usage errors of all ranks; and what was opened, and not closed,
    on this rank. Without a topology it finds its own, as ``drbench run`` does."""
    pretend, threads = fields.pop("pretend", {}), None if fields.get("backend") == "cupy" else 1
    case = case_of(fields, iters=1, warmup=0, threads=threads)
    opened, closed, traces = Counter(), Counter(), []

    def noted(count, kind, function):
        def wrapped(*args, **kwargs):
            count[kind.__name__] += 1
            return function(*args, **kwargs)

        return wrapped

    def traced(make):
        def wrapped(self, trace, *args, **kwargs):
            traces.append(trace)
            make(self, trace, *args, **kwargs)

        return wrapped

    with ExitStack() as stack:
        for name, value in pretend.items():
            stack.enter_context(
                mock.patch.object(
                    drbench.launch.ranks.group_memory, name, lambda value=value: value
                )
            )
        for kind in (Topology, RangeLocks, Window):
            stack.enter_context(
                mock.patch.object(kind, "__init__", noted(opened, kind, kind.__init__))
            )
            stack.enter_context(mock.patch.object(kind, "close", noted(closed, kind, kind.close)))
        for kind in (Executor, DeviceExecutor):
            stack.enter_context(mock.patch.object(kind, "__init__", traced(kind.__init__)))
        start = time.perf_counter()
        try:
            outcome = run_case(case, comm, topology).to_json_dict()
        except UsageError as error:
            outcome = {"status": "usage", "reason": str(error)}
        seconds = time.perf_counter() - start
    found = comm.gather(outcome)
    if fields.get("backend") == "cupy":  # each rank reports how its own GEMMs are launched
        found = found and [record | {"blas_kernel": None} for record in found]
    outcome["same_on_every_rank"] = comm.rank or all(other == found[0] for other in found)
    outcome |= {
        "seconds": seconds,
        "windows": comm.reduce(opened["Window"]),
        "left_open": opened - closed,
    }
    steps = {type(step).__name__ for trace in traces[:1] for step in trace.steps}
    outcome["steps"] = sorted(set().union(*comm.allgather(steps)))
    if outcome["status"] == "ok" and traces:  # of our algorithms
        pushes = {"sums": "push"} if traces[0].signals else {}
        ahead = "device" if fields.get("backend") == "cupy" else case.ahead(pushes)
        outcome["planned"] = planned(traces[0], ahead, comm)
        if ahead == "device":
            outcome["planned"]["arena"] = outcome["pool_bytes"]
    return outcome


def delay_everything(seed: int, rank: int) -> Counter:
    """Every rank now and then sleeps before it computes, starts or completes something, or while it
    holds a lock.

    Returns the number of sleeps, by what they came before; it grows.
    """
    chance, naps = random.Random(f"{seed} {rank}"), Counter()

    def late(what):
        def wrapper(function):
            def wrapped(*args):
                if chance.random() < 0.1:
                    naps[what] += 1
                    time.sleep(chance.random() * 1e-3)
                return function(*args)

            return wrapped

        return wrapper

    for name in ("_start", "_arrived"):
        setattr(Executor, name, late(name)(getattr(Executor, name)))
    for kind in (
        Get,
        Accumulate,
        Fence,
        Shift,
        Broadcast,
        AllGather,
        Reduce,
        ReduceScatter,
        Signal,
    ):
        wrap_starters(kind, late(kind.__name__))
    RangeLocks.release = late("release")(RangeLocks.release)
    return naps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("--delays", type=int)
    parser.add_argument(
        "--small-segments",
        action="store_true",
        help="poll MPI between very small segments of every Gemm",
    )
    options = parser.parse_args()
    with open(options.cases) as file:
        cases = json.load(file)
    with ranks() as comm, Topology(comm) as topology, restored(*CHANGED), emulated_gpus():
        if options.small_segments:
            drbench.host.executor._SEGMENT_S = 1e-7
            drbench.host.blas._BLOCK_K, drbench.host.blas._UNROLLED = 3, 1
        naps = Counter() if options.delays is None else delay_everything(options.delays, comm.rank)
        answers = [run(case, comm, topology if x % 8 else None) for x, case in enumerate(cases)]
        answer(comm, {"answers": answers, "naps": comm.reduce(naps)})


if __name__ == "__main__":
    main()
