"""Predict one case: trace all its ranks, run them in virtual time, and make the record of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import inf

from drbench.algorithms import get_algorithm
from drbench.algorithms.registry import needs_model
from drbench.clock import PHASES, Clock
from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError, UsageError
from drbench.launch.cases.case import (
    Case,
    bind_case,
    bind_on_nodes,
    case_keys,
    refuse_library,
    resolved_keys,
)
from drbench.launch.cases.peaks import arithmetic
from drbench.launch.cases.sweep_file import CONCURRENT
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.model.rank import Concurrency
from drbench.model.simulate import Simulated, Simulator
from drbench.model.symmetry import even, fits_torus
from drbench.plan.explain import balance
from drbench.plan.schedule import buffer_elements, pool_bytes
from drbench.plan.signals import plan_inbox
from drbench.program.problem import Problem
from drbench.program.trace import Trace, no_collection
from drbench.texts import bytes_text
from drbench.transport import parse_transport

from .beyond import describe_uncalibrated
from .intervals import alternatives, combine_errors, residuals_of

#: Columns that have no meaning without real matrices.
UNREAL = ("fill", "seed", "get", "progress", "iters", "budget_s", "warmup", "backend")


def predict(case: Case, machine: Machine, ranks: int | None = None) -> Record:
    """The record of a case on a machine model: mode ``simulated``, times in virtual seconds.

    Parameters
    ----------
    case : Case
        ``transport`` is one that the machine has a model of; ``throttled:GBps,us`` is exact by
        definition.
    machine : Machine
    ranks : int, optional
        By default the machine's devices.

    Raises
    ------
    UsageError
        If the case is inconsistent. Other refusals are a record with a status and reason.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> record = predict(
    ...     Case(1024, 4096, 1024, "column", "column", "column", options={"stationary": "C"}),
    ...     find_machine("pvc12"),
    ... )
    >>> record.status, record.ranks, record.get_bytes == 11 * 1024 * 1024 * 4
    ('ok', 12, True)
    """
    return predict_with(case, machine, ranks)[0]


@no_collection()
def predict_with(
    case: Case,
    machine: Machine,
    ranks: int | None = None,
    *,
    timeline: bool = False,
    pool: bool = False,
    within_s: float = inf,
    programs: "Programs | None" = None,
    interval: bool = False,
) -> tuple[Record, Simulated | None]:
    """(record of :func:`predict`, simulation); the latter is None if the case was refused.

    ``timeline`` keeps a bar for each step; ``pool`` also plans the receive memory, which takes as
    long as the rest. A simulation stops where the case exceeds ``within_s``
    (:class:`drbench.model.simulate.TimeLimitExceeded`). ``programs``: its own, if known from
    another look-ahead. ``interval`` adds the interval (:func:`with_interval`).
    """
    ranks = ranks_on(machine, ranks)
    keys = simulated_keys(case, machine, ranks)
    try:
        programs = programs or programs_of(case, machine, ranks, timeline)
        keys |= programs.problem.texts | resolved_keys(case, programs.resolved)
        record, simulation = _simulated(case, programs, keys, timeline, pool, within_s)
    except UsageError:
        raise
    except DrbenchError as error:
        return Record(**keys, status=error.status, reason=str(error)), None
    return with_interval(record, case, machine, ranks, programs) if interval else record, simulation


def with_interval(
    record: Record, case: Case, machine: Machine, ranks: int, programs: "Programs | None" = None
) -> Record:
    """A simulated record with the interval of its time, in the columns of the interval of a
    measured median, and with its times under other assumptions (:func:`.intervals.alternatives`)
    behind its own in ``samples_s``; unchanged if the interval is unknown.

    Parameters
    ----------
    record : Record
        From :func:`drbench.launch.models.predict.predict` for the same case, machine and ranks.
    case, machine, ranks
        As there.
    programs : Programs, optional
        The programs of the case on this machine, if known.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> case, machine = Case(1024, 1024, 1024, "row", "row", "row"), find_machine("h100x8")
    >>> record = with_interval(predict(case, machine, 4), case, machine, 4)
    >>> record.median_low_s < record.best_s < record.median_high_s
    True
    """
    if record.status != "ok":
        return record
    time_s, percent = record.best_s, record.percent_of_gemm_only
    simulate = lambda other: (
        predict_with(  # None: refused
            case, other, ranks, programs=programs and programs.on(case, other)
        )[0].best_s
    )
    times = [[*map(simulate, changed)] for changed in alternatives(machine)]
    known = ([*filter(None, group)] for group in times)
    factors = combine_errors(residuals_of(machine, case.transport), time_s, known)
    if factors is None:
        return record
    samples = [time_s, *chain(*times)]
    return replace(
        record,
        median_low_s=time_s * factors.low,
        median_high_s=time_s * factors.high,
        samples_s=record.samples_s if None in samples else samples,
        percent_of_gemm_only_low=percent / factors.high,
        percent_of_gemm_only_high=percent / factors.low,
    )


def refuse_failed(record: Record) -> None:
    """Raise the OutOfMemory or UnsupportedError of a simulated record that is not ok."""
    if record.status != "ok":
        error = OutOfMemory if record.status == OutOfMemory.status else UnsupportedError
        raise error(record.reason)


def ranks_on(machine: Machine, ranks: int | None = None) -> int:
    """The number of ranks, by default the machine's devices; a UsageError if it has fewer, or no
    fixed number."""
    ranks = ranks or machine.devices
    if not ranks:
        raise UsageError(f"machine {machine.name} has no fixed number of devices. Give -p.")
    if machine.devices and ranks > machine.devices:
        raise UsageError(
            f"machine {machine.name} has {machine.devices} devices, got {ranks} ranks. Use at "
            f"most {machine.devices}, or a machine of several nodes (drbench list machines)."
        )
    return ranks


def simulated_keys(case: Case, machine: Machine, ranks: int) -> dict:
    """The key columns of a case on a machine model."""
    return (
        case_keys(case)
        | dict.fromkeys(UNREAL)
        | {
            "mode": "simulated",
            "label": case.label or machine.name,
            "machine": machine.name,
            "ranks": ranks,
            "arbitration": machine.arbitration,
        }
    )


def seen_by(case: Case, machine: Machine) -> Machine:
    """The machine as a case uses it, with its transport and its element type.

    Raises
    ------
    UsageError
        If the machine has no model of the transport.
    UnsupportedError
        If it has no peak for the element type.
    """
    if case.compute == "tf32" and case.dtype != "float32":
        raise UsageError(
            f"-o compute=tf32 is arithmetic for float32, but the element type is {case.dtype}. "
            "Use --dtype float32, or leave it out."
        )
    for name in CONCURRENT:
        if getattr(case, name) and not machine.runs_kernels:
            raise UsageError(f"-o {name} is for GPUs; {machine.name} is not one. Leave it out.")
    seen = machine.for_dtype(arithmetic(case.dtype, case.compute))
    return seen.for_transport(parse_transport(case.transport))


def reads_in_place(machine: Machine, ranks: int) -> bool:
    """Whether every get between this many ranks is a view.

    Examples
    --------
    One node of a cluster, and two:

    >>> from drbench.launch.cases.machine_models import find_machine
    >>> seen = find_machine("lumic").for_transport(parse_transport("auto"))
    >>> reads_in_place(seen, 8), reads_in_place(seen, 16)
    (True, False)
    """
    links = {machine.link(0, rank) for rank in range(ranks)} if machine.links else ()
    return bool(links) and all(
        link.reads_in_place and (not link.own_timer or link.free) for link in links
    )


def nodes_on(machine: Machine, ranks: int) -> list[int]:
    """For each rank the first rank on its node, if ranks compute on cores; otherwise all are on one
    node. ``machine`` is that of :func:`seen_by`.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> nodes_on(find_machine("lumic").for_transport(parse_transport("auto")), 16)
    [0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8]
    >>> nodes_on(find_machine("h100x8"), 16) == [0] * 16
    True
    """
    if not machine.adds_on_core or ranks == 1:
        return [0] * ranks
    inside = {"throttled", *machine.sources.get("transports", ())}
    nodes, first = [0], {0: None}
    for rank in range(1, ranks):
        node = next((other for other in first if machine.link(other, rank).name in inside), rank)
        nodes.append(node)
        first[node] = None
    return nodes


def placed_on(case: Case, machine: Machine, ranks: int) -> tuple:
    """(algorithm, problem, options, whether all tiles are read in place) of a case on the machine
    of :func:`seen_by`."""
    return *bind_on_nodes(case, nodes_on(machine, ranks)), reads_in_place(machine, ranks)


@dataclass(frozen=True)
class Programs:
    """The programs of a case on a machine, for any look-ahead: its problem and resolved options,
    the simulator of the traces of all ranks or of their representatives, and the seconds of
    tracing."""

    problem: Problem
    resolved: dict
    simulator: Simulator
    plan_s: float = 0.0

    @property
    def machine(self) -> Machine:
        """The machine as the case uses it."""
        return self.simulator.machine

    @property
    def traces(self) -> Sequence[Trace]:
        """The traces that are simulated."""
        return self.simulator.traces

    @cached_property
    def most_bytes(self) -> int:
        """Bytes of tiles, buffers and inbox of the largest rank, if no buffers share memory."""
        most = 0
        for trace in self.traces:
            widths = trace.element_types(self.problem.itemsizes)
            buffers = (
                width * buffer_elements(step, trace.rank)
                for step, width in zip(trace.steps, widths)
            )
            stored = sum(self.problem.tile_bytes(trace.rank).values()) + sum(buffers)
            most = max(most, stored + plan_inbox(trace, widths).nbytes)
        return most

    def receive_bytes(self, ahead: int | str) -> int:
        """The planned receive memory of the largest rank; an error if it does not fit."""
        problem, machine, most = self.problem, self.machine, 0
        for trace in self.traces:
            tiles, arena = sum(problem.tile_bytes(trace.rank).values()), pool_bytes(trace, ahead)
            most = max(most, arena)
            if tiles + arena > machine.memory_bytes:
                copies = max(operand.partition.replicas for operand in problem.operands) > 1
                raise OutOfMemory(
                    f"rank {trace.rank} needs {bytes_text(tiles + arena)} (tiles "
                    f"{bytes_text(tiles)}, pool {bytes_text(arena)}); a device of "
                    f"{machine.name} has {bytes_text(machine.memory_bytes)}. Use more ranks"
                    f"{', or a smaller replication factor' if copies else ''}."
                )
        return most

    def on(self, case: Case, machine: Machine) -> "Programs | None":
        """The same programs on a machine with other constants or arbitration; None if they depend
        on the constants that differ. (Programs do not depend on arbitration.)"""
        seen = seen_by(case, machine)
        same = replace(seen, arbitration=self.machine.arbitration) == self.machine
        ranks = self.problem.nprocs
        in_place = reads_in_place(seen, ranks) == reads_in_place(self.machine, ranks)
        if not same and (needs_model(self.resolved) or not in_place):
            return None
        return replace(self, simulator=Simulator(self.traces, seen))


@no_collection()
def programs_of(case: Case, machine: Machine, ranks: int, everyone: bool = False) -> Programs:
    """The programs of a case, as a simulation on this machine runs them; ``everyone`` traces every
    rank instead of representatives.

    Raises
    ------
    DrbenchError
        If the machine or the algorithm refuses the case.
    """
    start = Clock.now()
    ranks_on(machine, ranks)
    machine = seen_by(case, machine)
    _refuse_out_of_reach(case, machine, ranks)
    refuse_library(case.algorithm)
    algorithm, problem, options, in_place = placed_on(case, machine, ranks)
    resolved = algorithm.resolve(problem, in_place, **options)
    _, traces = traces_of(algorithm, problem, resolved, machine, everyone)
    return Programs(problem, resolved, Simulator(traces, machine), Clock.now() - start)


def _refuse_out_of_reach(case: Case, machine: Machine, ranks: int) -> None:
    """Raise an UnsupportedError if transport is "direct" and some rank is on another node."""
    if case.transport == "direct":
        remote = [rank for rank in range(ranks) if not machine.link(0, rank).reads_in_place]
        if remote:
            raise UnsupportedError(
                f"--transport direct needs shared memory of all ranks, but on {machine.name} rank "
                f"{remote[0]} is on another node than rank 0. Use --transport auto, or at most "
                f"{remote[0]} ranks."
            )


def _simulated(
    case: Case, programs: Programs, keys: dict, timeline: bool, pool: bool, within_s: float
) -> tuple[Record, Simulated]:
    machine, problem, traces = programs.machine, programs.problem, programs.traces
    ranks, ahead = problem.nprocs, case.ahead(programs.resolved)
    ranks_per_trace = ranks // len(traces)
    might_not_fit, received = programs.most_bytes > machine.memory_bytes, None
    if might_not_fit:  # refuse it before the simulation
        received = programs.receive_bytes(ahead)
    algorithm = get_algorithm(case.algorithm)
    waits = algorithm.dispatches(problem, **programs.resolved) if algorithm.dispatches else 0
    host_s = machine.dispatch_s * waits  # the device waits
    blocks = case.accumulate_blocks or 0
    gemms = (case.max_gemms or 1) if ahead else 1  # without look-ahead nothing overlaps
    most = Concurrency(gemms, case.max_accumulates or inf, blocks)
    within = {"timeline": timeline, "within_s": within_s - host_s}
    simulation = programs.simulator.run(ahead, most=most, **within)
    time_s = host_s + simulation.time_s
    if pool and not might_not_fit:
        received = programs.receive_bytes(ahead)
    local_s = min(_local_s(problem, machine, *shape) for shape in problem.local_shapes())
    record = Record(
        **keys,
        status="ok",
        best_s=time_s,
        median_s=time_s,
        samples_s=[time_s],
        gflops=problem.flops / time_s / 1e9,
        gemm_only_gflops=problem.flops / local_s / 1e9,
        percent_of_gemm_only=100 * local_s / time_s,
        **_of_peak(machine, problem.flops / time_s, ranks),
        local_gemm_s=local_s,
        effective_communication_s=time_s - local_s,
        plan_s=programs.plan_s,
        steps=ranks_per_trace * sum(len(trace.steps) for trace in traces),
        pool_bytes=received,
        panel_bytes=ranks_per_trace * sum(trace.panel_bytes for trace in traces),
        balance_limit=balance([trace.flops for trace in traces]),
        beyond=describe_uncalibrated(machine, ranks, traces, problem, case.threads),
        **simulation.counters,
        **{f"phase_{name}_s": simulation.phases[name] for name in PHASES},
    )
    return record, simulation


def _local_s(problem: Problem, machine: Machine, rows: tuple[int, ...], n: int, k: int) -> float:
    """Seconds of the local GEMMs of a rank, one after another, with ``rows`` rows."""
    compute = machine.compute
    transposed_s = sum(compute.transposed_s(m, n, k, problem.transpose) for m in rows)
    return compute.grouped_s(rows, n, k, problem.itemsize, machine.adds_on_core) + transposed_s


def _of_peak(machine: Machine, flops_per_s: float, ranks: int) -> dict:
    """The columns of a rate as percent of a peak; none if the model's peak was measured from
    GEMMs."""
    if machine.compute.peak_measured:
        return {}
    peak_flops = machine.compute.peak_flops * ranks
    return {
        "percent_of_peak": 100 * flops_per_s / peak_flops,
        "peak_gflops": peak_flops / 1e9,
        "peak_source": f"machine model {machine.name}",
    }


def trace_of(case: Case, ranks: int, rank: int = 0) -> Trace:
    """The trace of one rank in a case, on a machine whose gets are copies."""
    algorithm, problem, options = bind_case(case, ranks)
    return algorithm.trace(problem, rank, **algorithm.resolve(problem, False, **options))


def planning_model(machine: Machine, resolved: dict) -> Machine | None:
    """The machine, if a program with these options depends on its times."""
    return machine if needs_model(resolved) else None


def traces_of(
    algorithm,
    problem: Problem,
    resolved: dict,
    machine: Machine,
    everyone: bool = False,
) -> tuple[tuple, list[Trace]]:
    """The groups of ranks with one representative on this machine, and the traces to simulate: all,
    the first row's, or one."""
    trace = partial(algorithm.trace, problem, machine=planning_model(machine, resolved), **resolved)
    if not everyone and even(problem) and algorithm.congruent:
        folded = algorithm.congruent(problem, **resolved)
        first = trace(0) if folded else None
        if folded and fits_torus(first, machine, folded):
            rows = [group.members for group in first.groups if group.name == "row"]
            others = rows[0][1:] if rows and "row" not in folded else ()
            return folded, [first, *map(trace, others)]
    return (), [trace(rank) for rank in range(problem.nprocs)]
