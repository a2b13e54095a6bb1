"""Run one benchmark case under MPI: lay out, fill, warm up, repeat until the median is known,
measure GEMM-only speed between repeats, verify, record."""

import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import threadpoolctl

from drbench.errors import (
    EXIT_CODES,
    DrbenchError,
    MissingError,
    OutOfMemory,
    UnsupportedError,
    UsageError,
)

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise MissingError(
        f"no MPI library can be loaded ({' '.join(str(error).split())}). Install one "
        "(from a checkout: pip install '.[mpich]'), or point MPI4PY_LIBMPI at your system's libmpi."
    ) from None

from drbench.algorithms import get_algorithm
from drbench.algorithms.collective import BASELINES, baseline_of
from drbench.clock import COMPUTING, PHASES, Clock
from drbench.host.fill import Fill
from drbench.host.topology import Topology, mpi_version, start_mpi
from drbench.launch.cases.case import (
    DESCRIPTION_FIELDS,
    Case,
    bind_case,
    bind_on_nodes,
    blocks_in_place,
    case_keys,
    check_case,
    check_rounding,
    in_place_on,
    refuse_our_options,
    resolved_keys,
)
from drbench.launch.cases.machine_models import find_planning_model
from drbench.launch.cases.peaks import Peaks, compute_column, with_peak
from drbench.launch.host.files import check_csv, check_output, output_record, write_output
from drbench.launch.host.leftovers import mapped_files
from drbench.launch.host.mpi import STRANGERS, launched, started_by_us
from drbench.launch.host.streams import diverted
from drbench.launch.libraries import LIBRARIES, get_library, require_library
from drbench.launch.libraries.base import host_type
from drbench.measure.noise import Timed, nearest_to_median, ratio_columns, turn_of
from drbench.measure.record import HEADER, Record
from drbench.measure.roof import GemmOnly, HostWork, timed
from drbench.measure.samples import sample
from drbench.measure.timeline import chrome_trace
from drbench.measure.verify import Verification, verify
from drbench.plan.explain import balance, events_of
from drbench.plan.schedule import pool_bytes
from drbench.plan.signals import inbox_bytes
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from drbench.transport import parse_transport

from .backends import call_together, open_backend
from .group_memory import GroupMemory, Need

_PATIENCE_S = 5.0
#: Overlap efficiency needs the median of the baseline, not a ratio for each repeat.
_BASELINE_EVERY = 6
#: A repeat that takes longer is as fast without a warm-up in its turn: on two cores of Sapphire
#: Rapids the CPU time of one of 16 ms was equal, after 11 other cases.
_WARM_S = 0.01


def run_here(
    case_of: Callable[[int], Case],
    csv_path: str | None,
    as_json: str | None,
    peaks_of: Callable[[Case], Peaks],
) -> int:
    """Run one case, ``case_of(ranks)``, on the ranks of this process, and return the exit code, the
    same on every rank. ``peaks_of(case)`` gives the peaks for percent of peak."""
    comm = world()
    case = case_of(comm.size)
    peaks = peaks_of(case)
    check = lambda: (check_csv(csv_path), check_output("--timeline", case.timeline))
    call_together(comm, lambda: comm.rank or check())
    if case.backend == "cupy":
        from drbench.device.gpu.cuda import require_gpu

        require_gpu()
    timelines: list[str] = []
    record = with_peak(run_case(case, comm, timelines=timelines), peaks)
    call_together(comm, lambda: comm.rank or output_record(record, csv_path, as_json))
    if case.timeline:  # last, so that the result is printed even if this fails
        call_together(comm, lambda: write_timeline(case, timelines))
    return EXIT_CODES[record.status]


def write_timeline(case: Case, timelines: list[str]) -> None:
    """Write the timeline of :func:`run_case` on rank 0; other ranks write nothing.

    Raises
    ------
    UsageError
        If it cannot be written.
    """
    for text in timelines:
        write_output("--timeline", str(case.timeline), text)


def world() -> MPI.Comm:
    """The communicator of all ranks; exits if launcher and library belong to different MPIs."""
    comm = start_mpi()
    if launched() is None and started_by_us() > 1 and comm.size == 1:
        sys.exit(STRANGERS)  # none knows whether it is rank 0: their starter reports it
    _forget_names(comm)
    return comm


def _forget_names(comm) -> None:
    """Unlink MPICH's start-up segment, which all ranks have mapped, so that killed ranks do not
    leave it behind."""
    comm.Barrier()
    names = {path for path in mapped_files() if path.startswith("/dev/shm/mpich_shm_")}
    comm.Barrier()
    for name in names:
        with suppress(FileNotFoundError):  # another rank of this node was first
            os.unlink(name)


def everyone_is_here(comm: MPI.Comm | None = None) -> bool:
    """True if all ranks call this within a few seconds; False if this rank is alone, and has to end
    the others."""
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return True
    comm = comm or MPI.COMM_WORLD
    if comm.size == 1:
        return True
    arrived, deadline = comm.Ibarrier(), time.monotonic() + _PATIENCE_S
    while not arrived.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def run_case(
    case: Case,
    comm: MPI.Comm = MPI.COMM_WORLD,
    topology: Topology | None = None,
    mem_limit: int | None = None,
    timelines: list[str] | None = None,
    memory: GroupMemory | None = None,
    turn: int | None = None,
) -> Record:
    """Run one case on all ranks of ``comm`` (collective); returns the same Record on every rank.

    ``topology`` saves the search for it in each of many cases, and has the local GEMMs of
    GEMM-only speed, which equal problems share; ``mem_limit`` is the most memory, in bytes, of
    the ranks of a node together. The text of the timeline, if the case requests one, is appended
    to ``timelines`` on rank 0. ``turn`` is the round, from 0, in which the case runs with only some
    of its repeats; what it needs is prepared in the first and then ``kept``, with what other cases
    of its group need. The result is verified in each turn.

    Raises
    ------
    UsageError
        If the case is inconsistent. Other refusals and failures give a Record with status and
        reason, except an error on one rank alone (a crash), which ends all ranks.
    """
    keys = case_keys(case) | {
        "mode": "measured",
        "ranks": comm.size,
        "timestamp": comm.bcast(Clock.date()),
        "mpi": mpi_version(),
    }
    columns: dict = {}
    try:
        with Topology(comm) if topology is None else nullcontext(topology) as topology:
            prepare = _prepare_library if case.algorithm in LIBRARIES else _prepare_program
            with (
                _memory_of_group(case, memory) as memory,
                memory.keep_open(
                    repr(case), partial(prepare, case, topology, columns, mem_limit, memory)
                ) as ready,
            ):
                measured = _measure(ready, turn)
                if case.timeline and timelines is not None and not turn:
                    timelines += _timeline(ready.executor, comm, keys | ready.columns)
                verdict = Verification()
                if case.check:
                    what = ready.result, ready.problem, ready.fill, ready.copies
                    verdict = verify(*what, memory.expected)
                keys |= ready.columns | measured | ready.peak()
    except UsageError:
        raise
    except DrbenchError as error:
        if not everyone_is_here(comm):
            raise RuntimeError(
                "a case was refused on one rank alone; it must be on all ranks or none"
            ) from error
        return Record(**keys | columns | {"status": error.status, "reason": str(error)})
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    keys |= {
        "peak_rss_bytes": comm.allreduce(resident, MPI.MAX),
        "status": "ok" if verdict.ok else "wrong",
        "reason": verdict.reason or keys.get("reason"),
        "error": verdict.error,
    }
    return Record(**keys)


@dataclass
class PreparedCase:
    """A case on this rank, ready to be measured and verified, any number of times.

    Attributes
    ----------
    case : Case
    problem : Problem
    topology : Topology
    fill : Fill
    columns : dict
        Of the record.
    executor : Executor or Library
        Runs the multiplication.
    roof : GemmOnly or None
    result : DistributedMatrix or Library
        Has this rank's tiles of C.
    copies : int
        Replicas that have the complete C.
    due : float or None
        The share of a core that a rank can have.
    baseline : Executor or None
        Runs the algorithm without overlap.
    begin : callable
        Called before the runs of each turn: other cases may have set other threads.
    peak : callable
        Columns of the record that are known after the runs.
    last_s : float
        Time in the last turn; 0 before the first.
    """

    case: Case
    problem: Problem
    topology: Topology
    fill: Fill
    columns: dict
    executor: Any
    roof: GemmOnly | None
    result: Any
    copies: int
    due: float | None
    baseline: Any = None
    begin: Callable[[], Any] = dict
    peak: Callable[[], dict] = dict
    last_s: float = 0.0


@contextmanager
def _memory_of_group(case: Case, memory: GroupMemory | None) -> Iterator[GroupMemory]:
    """A context with the memory of the group of a case. A case that runs alone, a library and a
    case on devices store nothing in it, and get the memory of all others (collective)."""
    if memory is not None:
        if case.backend == "numpy" and case.algorithm not in LIBRARIES:
            yield memory
            return
        memory.close()
    with GroupMemory() as own:
        yield own


@contextmanager
def _prepare_program(
    case: Case, topology: Topology, columns: dict, mem_limit: int | None, memory: GroupMemory
) -> Iterator[PreparedCase]:
    """A context with a case of our algorithms: planned, laid out and filled, freed at the end
    (collective). ``columns`` gets the columns of its record."""
    check_case(case)
    comm = topology.comm
    choice = parse_transport(case.transport)
    algorithm, problem, options = bind_on_nodes(case, topology.node_of)
    columns.update(problem.texts)
    terms = problem.c.partition.terms
    fill = Fill(case.fill, case.seed, problem.summands, *case.scalars, case.dtype, terms)
    values = case.fill, case.seed, fill.bound, fill.levels
    with open_backend(case, choice, topology) as backend:
        problem = replace(problem, padded=backend.pads)
        columns.update(backend.keys, nodes=topology.nodes)
        need_of = lambda **planned: Need.of(
            problem,
            comm.rank,
            gemm_only=case.gemm_only and _kind_of_gemms(case, problem) not in memory.roofs,
            names=memory.missing(problem, choice, values),
            **planned,
        )
        check = partial(memory.check, topology, device=backend.free_bytes())
        check(need_of, None, mem_limit, planned=False)  # a plan of what fits nowhere may be long
        baseline = _baseline(case, problem, comm.rank)
        other_pool = pool_bytes(baseline, 1) if baseline else 0
        attempts = [options, *algorithm.lighter(options)]
        for asked in attempts:
            resolved, trace, ahead, pool, plan_s = _planned(case, topology, problem, asked)
            columns.update(resolved_keys(case, resolved))
            inboxes = sum(
                inbox_bytes(program, program.element_types(problem.itemsizes))
                for program in filter(None, (trace, baseline))
            )
            need = partial(need_of, arena=pool, baseline=other_pool, inboxes=inboxes)
            try:
                check(need, case.pool, mem_limit)
                break
            except OutOfMemory:
                if asked is attempts[-1]:
                    raise
        if case.backend == "numpy":
            grouped = any(len(group) > 1 for group in trace.groups)
            columns["collectives"] = "mpi" if comm.allreduce(grouped, MPI.LOR) else None
        with ExitStack() as stack:
            of = partial(_fill, backend, fill=fill)
            if case.backend == "numpy":
                matrices = memory.matrices(problem, topology, choice, of, values)
            else:
                matrices = stack.enter_context(backend.distributed(problem))
                for name in "AB":
                    of(matrices[name])
            if choice.kind == "auto":
                columns["transport"] = found_transport(comm, matrices["C"])
            executor = stack.enter_context(backend.executor(trace, matrices, ahead))
            other = baseline and stack.enter_context(backend.executor(baseline, matrices, 1))
            columns.update(backend.record_columns(executor))
            for program in filter(None, (executor, other)):
                program.alpha, program.beta = fill.alpha, fill.beta
                if problem.uses_old_c(comm.rank):
                    program.restore = partial(of, matrices["C"])
            mine = plan_s, len(trace.steps), executor.arena_bytes, trace.panel_bytes, trace.flops
            plans, steps, pools, panels, flops = zip(*comm.allgather(mine))
            columns.update(plan_s=max(plans), steps=sum(steps), pool_bytes=max(pools))
            columns.update(panel_bytes=sum(panels), balance_limit=balance(flops))
            copies = problem.c.partition.copies() if resolved.get("replicate_result") else [0]
            yield PreparedCase(
                case,
                problem,
                topology,
                fill,
                columns,
                executor,
                _roof_of(case, problem, topology, backend.work, fill, memory),
                matrices["C"],
                len(copies),
                backend.core_due,
                other,
                backend.begin,
                backend.peak,
            )


def _planned(case: Case, topology: Topology, problem: Problem, options: dict) -> tuple:
    """(resolved options, trace of this rank, look-ahead, bytes of its pool, seconds of planning),
    from the requested options (collective)."""
    comm = topology.comm
    algorithm = get_algorithm(case.algorithm)
    resolved = algorithm.resolve(problem, in_place_on(case, topology.nodes), **options)
    if resolved.get("units"):
        raise UnsupportedError(
            f"{algorithm.name} -o units is for machine models: a library's GEMM uses all cores or "
            "multiprocessors. Leave -o units out, or use "
            "drbench simulate."
        )
    ahead, machine = case.ahead(resolved), None
    if case.machine or case.backend == "numpy":
        machine = find_planning_model(case.machine, resolved, case.transport, case.dtype)
    start = Clock.now()
    # the search may be refused on one rank alone, for a part that is too large
    trace = call_together(comm, lambda: algorithm.trace(problem, comm.rank, machine, **resolved))
    plan_s = Clock.now() - start
    views = blocks_in_place(case, topology.node_of, comm.rank)
    return resolved, trace, ahead, pool_bytes(trace, ahead, views), plan_s


def _fill(backend, matrix, fill: Fill) -> None:
    """Fill this rank's tiles with the values of a matrix."""
    for block, tile in matrix.own_blocks():
        backend.work.fill(tile, fill, matrix.operand.name, block.row0, block.col0)


def _baseline(case: Case, problem, rank: int):
    """The trace of the algorithm without overlap on the same layout, the reference of overlap
    efficiency; None without one."""
    if not case.gemm_only or case.algorithm in BASELINES or not (known := baseline_of(problem)):
        return None
    name, options = known
    return get_algorithm(name).trace(problem, rank, **options)


@contextmanager
def _prepare_library(
    case: Case, topology: Topology, columns: dict, mem_limit: int | None, memory: GroupMemory
) -> Iterator[PreparedCase]:
    """A context with a case of a library, with the same fill, clock, repeats, GEMM-only
    speed and verification (collective). ``columns`` gets the columns of its record."""
    library, comm = get_library(case.algorithm), topology.comm
    refuse_our_options(case)
    check_rounding(case)
    if library.launch:
        raise UsageError(
            f"{library.name} is a separate program: start it with drbench run -p {comm.size}, "
            "not under mpirun."
        )
    call_together(comm, lambda: require_library(library))
    _, problem, options = bind_case(case, comm.size)
    columns.update(problem.texts, **dict.fromkeys(("transport", "prefetch", "get", "progress")))
    fill = Fill(case.fill, case.seed, case.k, dtype=case.dtype)
    threads = case.threads or topology.cores_per_rank
    columns.update(threads=threads, nodes=topology.nodes)
    columns["oversubscribed"] = shared = topology.oversubscribed(threads)
    threadpoolctl.threadpool_limits(threads)
    asked, problem = problem, replace(problem, dtype=host_type(problem.dtype))  # as verified
    memory.check(topology, partial(Need.of, problem, comm.rank, case.gemm_only), None, mem_limit)
    with diverted():
        job = library(asked, topology, fill, threads, options, case.compute)
    try:
        threadpoolctl.threadpool_limits(threads)  # also those that the library has loaded meanwhile
        columns.update(
            blas=job.blas.info.library,
            blas_kernel=job.blas.info.kernel,
        )
        columns.update({name: value for name, value in job.resolved.items() if name in HEADER})
        columns["dtype"] = job.work.dtype
        if job.on_gpu(options):
            columns["compute"] = compute_column(case.dtype, case.compute)
        unknown = {*COUNTERS}.difference(comm.bcast([*job.moved]))
        yield PreparedCase(
            case,
            problem,
            topology,
            fill,
            columns,
            job,
            _roof_of(case, problem, topology, HostWork(job.blas), fill, memory),
            job,
            problem.c.partition.replicas,
            None if shared else 1.0,  # threads of libraries may sleep
            peak=lambda: dict.fromkeys(unknown),
        )
    finally:
        job.close()


def _kind_of_gemms(case: Case, problem: Problem) -> tuple:
    """What GEMM-only speed depends on: cases of the same kind share it."""
    return (
        tuple(problem.local_shapes()),
        case.dtype,
        case.compute,
        problem.transpose,
        problem.updates,
        case.backend,
        case.threads,
        case.algorithm in LIBRARIES and case.algorithm,
    )


def _roof_of(case, problem, topology, work, fill, memory: GroupMemory) -> GemmOnly | None:
    """What measures GEMM-only speed, if the case asks for it (collective to make)."""
    if not case.gemm_only:
        return None
    kind = _kind_of_gemms(case, problem)
    if kind not in memory.roofs:
        memory.roofs[kind] = GemmOnly(
            problem, topology.comm, work, fill, topology.fastest_gemms.get(kind)
        )
        topology.fastest_gemms[kind] = memory.roofs[kind].gemms
    return memory.roofs[kind]


def _timeline(executor, comm, keys: dict) -> list[str]:
    """Run one more repeat with the times of every step; on rank 0 return the text of the
    timeline."""
    executor.timeline = []
    executor.poison()
    comm.Barrier()
    zero = Clock.now()
    executor.run()
    events_by_rank = comm.gather(events_of(executor.trace, executor.timeline, zero))
    executor.timeline = None
    if comm.rank:
        return []
    description = {name: keys.get(name) for name in DESCRIPTION_FIELDS}
    return [chrome_trace((event for events in events_by_rank for event in events), description)]


def _measure(ready: PreparedCase, turn: int | None) -> dict:
    """Warm up, then repeat, with a sample of GEMM-only speed after each and, unless this is a
    later turn, one of the baseline after some, so that drift of the machine affects all."""
    case, problem, roof, executor = ready.case, ready.problem, ready.roof, ready.executor
    baseline = None if turn else ready.baseline
    clock, comm, least, budget_s = executor.clock, ready.topology.comm, case.iters, case.budget
    if turn is not None:
        least, budget_s = turn_of(least, budget_s)
    phases, alone_s, collective_s = [], [], []
    ready.begin()
    for _ in range(0 if turn and ready.last_s > _WARM_S else case.warmup):
        for program in filter(None, (baseline, executor)):
            program.poison()
            comm.Barrier()
            program.run()

    def once(place: int) -> tuple[Timed, ...]:
        if baseline and place % _BASELINE_EVERY == 0:
            baseline.prepare()  # before the repeat, so that C is the algorithm's when verified
            collective_s.append(timed(comm, baseline.run).seconds)
        # the local GEMMs run first every other time, so that drift affects both alike
        alone = [roof.sample()] if roof and (place + (turn or 0)) % 2 else []
        executor.poison()
        if clock is not None:  # on a device the host cannot see idle times
            clock.reset()
        run = timed(comm, executor.run)
        phases.append(clock and dict(clock.seconds))
        if roof and not alone:
            alone = [roof.sample()]
        alone_s.extend(sample.seconds for sample in alone)
        return run, *alone

    percent = lambda run, alone: 100 * problem.flops / run.seconds * alone.seconds / roof.flops
    measured, counted, ratios = sample(
        comm, once, least, budget_s, ready.due, percent if roof else None
    )
    time_s = ready.last_s = measured["median_s"]
    phase = phases[counted[nearest_to_median(measured["samples_s"])]]
    measured["gflops"] = problem.flops / time_s / 1e9
    counts = {name: executor.bytes[name] for name in COUNTERS}
    if phase is not None:
        counts |= {f"phase_{name}_s": phase[name] / comm.size for name in PHASES}
        busy_s = comm.allgather(sum(phase[name] for name in COMPUTING))
        slowest = max(range(comm.size), key=busy_s.__getitem__)
        measured |= {"slowest_rank": slowest, "slowest_rank_s": busy_s[slowest]}
    # one message for all counters: float64 is exact up to 2**53 bytes
    sums = np.array(list(counts.values()), dtype=float)
    comm.Allreduce(MPI.IN_PLACE, sums)
    measured |= zip(counts, sums)
    measured |= {name: int(measured[name]) for name in COUNTERS}
    if roof:
        roof_flops = statistics.median(roof.flops / alone_s[place] for place in counted)
        measured |= {"gemm_only_gflops": roof_flops / 1e9} | ratio_columns(ratios)
        if case.algorithm in BASELINES:
            collective_s = measured["samples_s"]
        other_s = statistics.median(collective_s) if collective_s else None
        measured |= overlap(time_s, problem.flops / roof_flops, other_s)
    return measured


def overlap(time_s: float, local_gemm_s: float, collective_s: float | None) -> dict:
    """Effective communication time and overlap efficiency of a case (FLUX, §2.3, Eq. 1 and 2); may
    be negative.

    Parameters
    ----------
    time_s, local_gemm_s, collective_s : float
        Median seconds of the case, of the same work as local GEMMs alone, and of ``collective``
        on the same layout (None if it cannot run there).

    Examples
    --------
    >>> overlap(1.125, 1.0, 1.5)
    {'local_gemm_s': 1.0, 'effective_communication_s': 0.125, 'overlap_efficiency': 0.75}
    >>> overlap(0.75, 1.0, None)["effective_communication_s"]
    -0.25
    """
    columns = {"local_gemm_s": local_gemm_s, "effective_communication_s": time_s - local_gemm_s}
    if collective_s is not None and collective_s != local_gemm_s:
        columns["overlap_efficiency"] = 1 - (time_s - local_gemm_s) / (collective_s - local_gemm_s)
    return columns


def found_transport(comm, matrix) -> str:
    """The transport that ``auto`` chose: direct (all memory is shared), rma, or mixed."""
    reached = sum(memory is not None for memory in matrix.window.in_reach) - 1
    total = comm.allreduce(reached)
    return "direct" if total == comm.size * (comm.size - 1) else "mixed" if total else "rma"
