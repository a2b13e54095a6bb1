"""One benchmark case under MPI: lay out, fill, warm up, repeat, measure the roof between repeats, verify, record."""

from __future__ import annotations

import gc
import os
import resource
import statistics
from contextlib import contextmanager
from datetime import datetime, timezone

import threadpoolctl
from mpi4py import MPI

from algorithms import get_algorithm
from drbench.blas import load_blas
from drbench.errors import DrbenchError, UsageError
from drbench.executor import PROGRESS, Executor
from drbench.fill import Fill
from drbench.matrix import DistributedMatrix
from drbench.memory import plan_arena
from drbench.record import Record
from drbench.roof import Roof, timed
from drbench.schedule import Windows
from drbench.steps import COUNTERS
from drbench.timing import PHASES, Clock
from drbench.transports import RangeLocks, Throttle, Topology, parse_transport
from drbench.verify import verify

from .case_fields import Case, case_keys, recorded
from .memory import Need, check_memory
from .peer_case import run_peer
from .peers import PEERS
from .together import everyone_is_here

__all__ = ["Case", "run_case"]

#: Repeats of the roof a ratio needs at least.
_PAIRS = 5


def run_case(case: Case, comm: MPI.Comm = MPI.COMM_WORLD) -> Record:
    """Run one case on all ranks of ``comm`` (collective); the same Record on every rank.

    Raises
    ------
    UsageError
        If the case makes no sense. Everything else a case can be refused or fail for is a Record with its status
        and reason, except what strikes one rank alone (a crash), which ends all ranks.
    """
    keys = _keys(case, comm)
    try:
        if case.algorithm in PEERS:
            return run_peer(case, comm, keys, _measure)
        return _run(case, comm, keys)
    except UsageError:
        raise
    except DrbenchError as error:
        if not everyone_is_here(comm):
            raise RuntimeError("one rank alone was refused; all have to be, or none") from error
        return Record(**keys, status=error.status, reason=str(error))


def _keys(case: Case, comm: MPI.Comm) -> dict:
    """The key fields of the record, as far as they are known before the run."""
    return case_keys(case) | {"mode": "measured", "ranks": comm.size, "timestamp": _now(comm), "mpi": _mpi_version()}


def _run(case: Case, comm: MPI.Comm, keys: dict) -> Record:
    for name, least in (("iters", 1), ("warmup", 0), ("prefetch", 0)):
        if getattr(case, name) < least:
            raise UsageError(f"{name} must be at least {least}, got {getattr(case, name)}.")
    if case.progress not in PROGRESS or case.get not in ("view", "copy"):
        raise UsageError(f"progress must be one of {', '.join(PROGRESS)} and get view or copy, got {case.progress!r}, {case.get!r}.")
    choice = parse_transport(case.transport)
    algorithm = get_algorithm(case.algorithm)
    options = algorithm.pick(case.options)
    problem = algorithm.problem(case.m, case.n, case.k, comm.size, case.a, case.b, case.c, case.dtype, **options)
    keys.update({name: problem.operand(name).partition.text for name in "abc"})
    fill = Fill(case.fill, case.seed, case.k)
    clock, plan_clock = Clock(), Clock()
    with Topology(comm) as topology:
        threads = case.threads or default_threads(topology)
        threadpoolctl.threadpool_limits(threads)
        blas = load_blas()
        keys.update(threads=threads, nodes=topology.nodes, blas=blas.info.library, blas_kernel=blas.info.kernel)
        settled = algorithm.settle(problem, choice.kind in ("auto", "direct") and case.get == "view" and topology.nodes == 1, **options)
        keys.update(recorded(settled))
        start = plan_clock.now()
        trace = algorithm.trace(problem, comm.rank, **settled)
        plan_s = comm.allreduce(plan_clock.now() - start, MPI.MAX)
        announced = plan_arena(Windows(trace, case.prefetch), problem.itemsize, views=lambda owner: _on_node(topology, owner, case, choice))
        check_memory(topology, Need.of(problem, comm.rank, announced.size * problem.itemsize, case.roof), case.pool)
        oversubscribed = topology.node.size * threads > cores(topology)
        with _distributed(problem, topology, choice) as matrices:
            if choice.kind == "auto":
                keys["transport"] = _found_transport(comm, matrices["C"])
            for name in "AB":
                for block, tile in matrices[name].own_blocks():
                    fill.into(tile, name, block.row0, block.col0)
            throttle = None
            if choice.kind == "throttled":
                throttle = Throttle(choice.bandwidth_bytes_per_s, choice.latency_s)
            executor = Executor(trace, matrices, blas=blas, clock=clock, prefetch=case.prefetch, get=case.get,
                                throttle=throttle, progress=case.progress, yields=oversubscribed)
            with executor:
                measured = _measure(case, problem, comm, executor, clock, blas, fill)
            verdict = None
            if case.check:
                everywhere = problem.c.partition.replicas if settled.get("replicate_result") else 1
                verdict = verify(matrices["C"], problem, fill, everywhere)
    steps = comm.allreduce(len(trace.steps))
    rss = comm.allreduce(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, MPI.MAX)
    keys.update(measured, plan_s=plan_s, steps=steps, peak_rss_bytes=rss)
    if verdict is None:
        return Record(**keys, status="ok")
    if verdict.ok:
        return Record(**keys, status="ok", error=verdict.error)
    return Record(**keys, status="wrong", reason=verdict.reason, error=verdict.error)


def _measure(case, problem, comm, executor, clock, blas, fill) -> dict:
    """Warm up, then repeat; the roof is sampled after each repeat, so that a drifting machine hurts both alike."""
    roof = Roof(problem, comm, blas, fill) if case.roof else None
    for _ in range(case.warmup):
        executor.prepare()
        comm.Barrier()
        executor.run()
    samples, ratios, roofs, phases = [], [], [], []
    gc.disable()
    try:
        for pair in range(max(case.iters, _PAIRS) if roof else case.iters):
            executor.prepare()
            clock.reset()
            seconds = timed(comm, executor.run)
            if pair < case.iters:
                samples.append(seconds)
                phases.append(dict(clock.seconds))
            if roof:
                roofs.append(roof.sample())
                ratios.append(100 * problem.flops / seconds / roofs[-1])
    finally:
        gc.enable()
    best = min(samples)
    phase = phases[samples.index(best)]
    measured = {
        "samples_s": samples, "best_s": best, "median_s": statistics.median(samples), "gflops": problem.flops / best / 1e9,
        "pool_bytes": comm.allreduce(executor.arena_bytes, MPI.MAX),
    }
    measured |= {name: comm.allreduce(executor.bytes[name]) for name in COUNTERS}
    measured |= {f"phase_{name}_s": comm.allreduce(phase[name]) / comm.size for name in PHASES}
    if roof:
        measured |= {"roof_gflops": max(roofs) / 1e9, "percent_of_roof": statistics.median(ratios),
                     "percent_of_roof_min": min(ratios), "percent_of_roof_max": max(ratios)}
    return measured


def cores(topology: Topology) -> int:
    """Cores the ranks of this node may use together: the union of their affinities."""
    return len(set().union(*topology.node.allgather(os.sched_getaffinity(0))))


def default_threads(topology: Topology) -> int:
    """Cores of the node // ranks on it, at least 1; the smallest over the nodes."""
    return topology.comm.allreduce(max(1, cores(topology) // topology.node.size), MPI.MIN)


def _on_node(topology, owner, case, choice) -> bool:
    """Whether that rank's tiles will be read in place, as far as the plan can tell before windows exist."""
    mine = topology.node_of[topology.comm.rank] == topology.node_of[owner]
    return case.get == "view" and choice.kind != "rma" and mine


def _found_transport(comm, matrix) -> str:
    """What ``auto`` came to: direct, rma, or mixed."""
    reached = sum(peer is not None for peer in matrix.window.peers) - 1
    total = comm.allreduce(reached)
    return "direct" if total == comm.size * (comm.size - 1) else "mixed" if total else "rma"


@contextmanager
def _distributed(problem, topology, choice):
    """A, B and C in windows, by name. Freed at the end, also after an error that all ranks found alike; if one rank alone
    broke, they are not: freeing is collective and the others are elsewhere."""
    locks = RangeLocks(topology.node)
    matrices: dict[str, DistributedMatrix] = {}

    def close():
        for matrix in matrices.values():
            matrix.close()
        locks.close()

    try:
        for operand in problem.operands:
            matrices[operand.name] = DistributedMatrix(operand, topology, problem.dtype, choice, locks)
        yield matrices
    except DrbenchError:
        close()
        raise
    close()


def _now(comm: MPI.Comm) -> str:
    return comm.bcast(datetime.now(timezone.utc).isoformat(timespec="seconds"))


def _mpi_version() -> str:
    """Name and version of the MPI library, short."""
    words = MPI.Get_library_version().replace("\t", " ").split("\n")[0].replace("Version:", "").replace(",", " ").split()
    return " ".join(words[:3])[:40]
