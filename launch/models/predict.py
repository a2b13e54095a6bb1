"""Predict one case: trace all its ranks, run them in virtual time, make the record a run would
make."""

from algorithms import get_algorithm
from algorithms.registry import goes_by_model
from drbench.common import PHASES, Clock, parse_transport
from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.folding import even, fits_torus
from drbench.model.machine import Machine
from drbench.model.simulate import Simulated, simulate
from drbench.plan.schedule import buffer_elements, pool_bytes
from drbench.plan.signals import plan_inbox
from drbench.program.problem import Problem
from drbench.program.trace import Trace, no_collection
from launch.cases.case import Case, bound, case_keys, settled_keys
from launch.host.units import format_bytes

#: Columns that make no sense without real matrices.
UNREAL = ("fill", "seed", "get", "progress", "iters", "budget_s", "warmup", "backend")


def predict(case: Case, machine: Machine, ranks: int | None = None) -> Record:
    """The record of a case on a machine model: mode ``simulated``, times in virtual seconds.

    Parameters
    ----------
    case : Case
        ``transport`` chooses among the transports a machine has models of; ``throttled:GBps,us`` is
        exact by definition.
    machine : Machine
    ranks : int, optional
        By default the machine's devices.

    Raises
    ------
    UsageError
        If the case makes no sense. What is refused otherwise is a record with its status and
        reason.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> record = predict(
    ...     Case(1024, 4096, 1024, "column", "column", "column", options={"stationary": "C"}),
    ...     find_machine("pvc12"),
    ... )
    >>> record.status, record.ranks, record.get_bytes == 11 * 1024 * 1024 * 4
    ('ok', 12, True)
    """
    return predict_with(case, machine, ranks)[0]


def predict_with(
    case: Case,
    machine: Machine,
    ranks: int | None = None,
    *,
    timeline: bool = False,
    pool: bool = False,
) -> tuple[Record, Simulated | None]:
    """:func:`predict`, with the simulation itself (None if the case was refused).

    ``timeline`` keeps a bar for each step; ``pool`` plans the receive memory too, which takes as
    long as the rest.
    """
    ranks = ranks_on(machine, ranks)
    keys = simulated_keys(case, machine, ranks)
    try:
        with no_collection():
            return _predict(case, machine, ranks, keys, timeline, pool)
    except UsageError:
        raise
    except DrbenchError as error:
        return Record(**keys, status=error.status, reason=str(error)), None


def ranks_on(machine: Machine, ranks: int | None = None) -> int:
    """So many ranks, by default the machine's devices; a UsageError if it has none of its own."""
    if not (ranks or machine.devices):
        raise UsageError(f"machine {machine.name} is a model for any number of ranks. Give -p.")
    return ranks or machine.devices


def refuse_more_ranks(machine: Machine, ranks: int) -> None:
    """A UsageError if a machine has fewer devices."""
    if machine.devices and ranks > machine.devices:
        raise UsageError(
            f"machine {machine.name} has {machine.devices} devices, got {ranks} ranks. Use at "
            f"most {machine.devices}."
        )


def simulated_keys(case: Case, machine: Machine, ranks: int) -> dict:
    """The key columns of a case on a machine model."""
    return (
        case_keys(case)
        | dict.fromkeys(UNREAL)
        | {"mode": "simulated", "machine": machine.name, "ranks": ranks, "threads": None}
    )


def seen_by(case: Case, machine: Machine) -> Machine:
    """The machine as a case sees it, through its transport and with its element type.

    Raises
    ------
    UsageError
        If the machine has no model of the transport.
    UnsupportedError
        If it has no peak for the element type.
    """
    if ":" in case.dtype:
        raise UnsupportedError(
            f"machine models count elements of one size (our implementation), got {case.dtype}. "
            "Use --dtype bfloat16 or float32."
        )
    return machine.for_dtype(case.dtype).for_transport(parse_transport(case.transport))


def reads_in_place(machine: Machine) -> bool:
    """Whether every get is a view."""
    return bool(machine.links) and all(
        link.reads_in_place and link.shared != "initiator" for link in machine.links
    )


def _predict(case, machine, ranks, keys, timeline, pool):
    refuse_more_ranks(machine, ranks)
    machine = seen_by(case, machine)
    start = Clock.now()
    get_algorithm(case.algorithm)  # a peer has no program to simulate
    algorithm, problem, options = bound(case, ranks)
    keys.update(problem.texts)
    settled = algorithm.settle(problem, reads_in_place(machine), **options)
    keys.update(settled_keys(case, settled))
    ahead = case.ahead(settled)
    if goes_by_model(settled):
        settled["machine"] = machine  # whose times it goes by
    folded, traces = traces_of(algorithm, problem, settled, machine, everyone=timeline)
    plan_s = Clock.now() - start
    pool_bytes = _memory(problem, traces, machine, ahead, pool)
    found = simulate(traces, machine, prefetch=ahead, timeline=timeline, folded=folded)
    local_s = min(
        machine.compute.grouped_s(*shape, problem.itemsize, machine.adds_on_core)
        for shape in problem.local_shapes()
    )
    record = Record(
        **keys,
        status="ok",
        best_s=found.time_s,
        median_s=found.time_s,
        samples_s=[found.time_s],
        gflops=problem.flops / found.time_s / 1e9,
        roof_gflops=problem.flops / local_s / 1e9,
        percent_of_roof=100 * local_s / found.time_s,
        **_of_peak(machine, problem.flops / found.time_s, ranks),
        local_gemm_s=local_s,
        effective_communication_s=found.time_s - local_s,
        plan_s=plan_s,
        steps=sum(len(trace.steps) for trace in traces) * ranks // len(traces),
        pool_bytes=pool_bytes,
        **found.counters,
        **{f"phase_{name}_s": found.phases[name] for name in PHASES},
    )
    return record, found


def _of_peak(machine: Machine, flops_per_s: float, ranks: int) -> dict:
    """The columns that say percent of which peak a rate is; none where the model's peak is what
    products reached."""
    if machine.compute.peak_measured:
        return {}
    peak_flops = machine.compute.peak_flops * ranks
    return {
        "percent_of_peak": 100 * flops_per_s / peak_flops,
        "peak_gflops": peak_flops / 1e9,
        "peak_source": f"machine model {machine.name}",
    }


def trace_of(case: Case, ranks: int, rank: int = 0) -> Trace:
    """What one rank does in a case, on a machine whose gets are copies."""
    algorithm, problem, options = bound(case, ranks)
    return algorithm.trace(problem, rank, **algorithm.settle(problem, False, **options))


def programs(case: Case, machine: Machine, ranks: int) -> list[Trace]:
    """The traces of a case that a simulation on this machine runs: of all ranks, or of those that
    stand for them; ``machine`` is as the case sees it."""
    algorithm, problem, options = bound(case, ranks)
    settled = algorithm.settle(problem, reads_in_place(machine), **options)
    return traces_of(algorithm, problem, settled, machine)[1]


def traces_of(
    algorithm, problem: Problem, settled: dict, machine: Machine, everyone: bool = False
) -> tuple[tuple, list]:
    """The groups that one member can stand for on this machine, and the traces that are left to
    simulate: all, the first row's, or one."""
    if not everyone and even(problem):
        folded = algorithm.congruent(problem, **settled)
        first = algorithm.trace(problem, 0, **settled) if folded else None
        if folded and fits_torus(first, machine, folded):
            others = (
                ()
                if "row" in folded
                else next((group.members for group in first.groups if group.name == "row"), (0,))[
                    1:
                ]
            )
            return folded, [first, *(algorithm.trace(problem, rank, **settled) for rank in others)]
    return (), [algorithm.trace(problem, rank, **settled) for rank in range(problem.nprocs)]


def _memory(problem: Problem, traces, machine: Machine, ahead: int | str, pool: bool) -> int | None:
    """Receive memory of the largest rank; refuses what does not fit. Planned only if asked for, or
    if it might not fit."""
    item, most = problem.itemsize, 0
    for trace in traces:
        tiles = sum(problem.tile_bytes(trace.rank).values())
        if not pool:
            buffers = item * sum(buffer_elements(step, trace.rank) for step in trace.steps)
            inbox = plan_inbox(trace, [item] * len(trace.steps)).nbytes
            if tiles + buffers + inbox <= machine.memory_bytes:
                continue
        arena = pool_bytes(trace, ahead)
        most = max(most, arena)
        if tiles + arena > machine.memory_bytes:
            copies = max(each.partition.replicas for each in problem.operands) > 1
            raise OutOfMemory(
                f"rank {trace.rank} needs {format_bytes(tiles + arena)} (tiles "
                f"{format_bytes(tiles)}, pool {format_bytes(arena)}); a device of {machine.name} "
                f"has {format_bytes(machine.memory_bytes)}. Use more ranks"
                f"{', or a smaller replication factor' if copies else ''}."
            )
    return most if pool else None
