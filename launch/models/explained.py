"""One run as plain data for its page: the steps over time, from a simulation or from the timeline
of a run, and texts."""

from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from drbench.algorithms import get_algorithm
from drbench.algorithms.lowering.op_costs import BALANCE
from drbench.clock import StepTime
from drbench.errors import UsageError
from drbench.launch.cases.case import FIELDS, Case, bind_case, resolved_keys
from drbench.launch.cases.command_line import describe
from drbench.launch.cases.machine_models import find_planning_model
from drbench.launch.cases.peaks import arithmetic
from drbench.launch.host.show import multiplication_text
from drbench.measure.record import OPTION_COLUMNS, Record, read_options
from drbench.measure.timeline import read_chrome_trace
from drbench.model.bounds import carried_by_links
from drbench.model.machine import Machine
from drbench.model.simulate import Simulator
from drbench.plan.explain import loads
from drbench.program.trace import no_collection
from drbench.texts import layouts_text

from .predict import (
    Programs,
    planning_model,
    predict_with,
    programs_of,
    refuse_failed,
    simulated_keys,
)
from .run_description import describe_run

#: Number of links that the page names, the busiest first.
_MOST_LINKS = 24


def explained(case: Case, machine: Machine | None, ranks: int) -> dict[str, Any]:
    """Describe a case on a machine: :func:`.run_description.describe_run`, extended.

    Parameters
    ----------
    case : Case
    machine : Machine or None
        None: 100 FLOPs take as long as one byte, so that only percentages of the run are
        meaningful, and ``timed`` is false.
    ranks : int

    Returns
    -------
    dict
        The same, with ``name``, ``description`` and ``multiplication``: texts; ``timed``;
        ``facts``: ``[name, value, unit]``; ``links``: ``[class, which, bytes, seconds]`` of the
        busiest; ``interval``: (low, high) of the expected seconds, and ``percent_of_peak``; None
        if unknown.

    Raises
    ------
    DrbenchError
        If the machine or the algorithm refuses the case.

    Examples
    --------
    >>> described = explained(Case(64, 64, 64, "column", "column", "column"), None, 2)
    >>> described["name"], described["timed"], described["multiplication"]
    ('universal S-C chunk 256', False, '64 × 64 × 64 (m × n × k)')
    """
    model = machine or replace(BALANCE, dtype=arithmetic(case.dtype, case.compute))
    if machine is None and case.transport != "auto":
        raise UsageError(
            f"--transport {case.transport} needs a machine model. Give a --machine, or "
            "leave it out."
        )
    with no_collection():
        programs = programs_of(case, model, ranks, everyone=True)
        known = machine is not None
        record, simulation = predict_with(
            case, model, ranks, timeline=True, programs=programs, interval=known
        )
        refuse_failed(record)
        described = _describe_case(case, model, programs, simulation.timeline, known)
    if known:
        ends = [record.median_low_s, record.median_high_s]
        described["interval"] = None if None in ends else ends
        described["percent_of_peak"] = record.percent_of_peak
    return described


def explained_timeline(text: str, machine: Machine | None) -> dict[str, Any]:
    """The same for a timeline of ``drbench run`` or ``simulate``, which contains its case.

    ``machine`` gives the links between ranks; without one no links are named.

    Raises
    ------
    UsageError
        If the text is not a timeline, or its steps are not those of its case.
    """
    try:
        events, description = read_chrome_trace(text)
    except ValueError as error:
        raise UsageError(
            f"--timeline: {error}. Give a file that drbench run or simulate wrote."
        ) from None
    if not events:
        raise UsageError("--timeline: it has no steps. Give a file that drbench run wrote.")
    ranks, case = description["ranks"], case_of_timeline(description)
    with no_collection():
        algorithm, problem, options = bind_case(case, ranks)
        measured = description.get("mode") == "measured"
        uncut = measured or description.get("chunk") is None
        in_place = case.transport in ("auto", "direct") and uncut
        resolved = algorithm.resolve(problem, in_place, **options)
        if measured and case.backend == "numpy":  # as its ranks planned it
            planned_by = find_planning_model(None, resolved, case.transport, case.dtype)
        else:
            planned_by = machine and planning_model(machine, resolved)
        trace = partial(algorithm.trace, problem, machine=planned_by, **resolved)
        traces = [trace(rank) for rank in range(ranks)]
        model = machine or replace(BALANCE, links=())
        simulator = Simulator(traces, model)
        programs = Programs(problem, resolved, simulator)
        described = _describe_case(case, model, programs, events, True)
    where = f"{description.get('mode') or 'traced'} on {description.get('label') or 'a machine'}"
    return described | {"description": [*described["description"][:-1], where]}


def case_of_timeline(description: dict[str, Any]) -> Case:
    """The case of a timeline, from its description.

    Examples
    --------
    >>> case = case_of_timeline(
    ...     {"algorithm": "universal", "m": 8, "n": 8, "k": 8, "a": "row", "stationary": "B"}
    ... )
    >>> case.a, case.options
    ('row', {'stationary': 'B'})
    """
    known = get_algorithm(description["algorithm"]).options
    words = {name: description.get(name) for name in OPTION_COLUMNS[:-1]}
    words |= read_options(description.get("options"))
    options = {
        name: known[name].read(value)
        for name, value in words.items()
        if value is not None and name in known
    }
    names = FIELDS.keys() - {"label", "machine", "timeline"}
    fields = {name: description[name] for name in names if description.get(name) is not None}
    return Case(**fields | {"options": options})


def case_of(record: Record) -> Case:
    """The case of a record, as a model simulates it."""
    description = {name: getattr(record, name) for name in record.__slots__}
    if record.nodes and record.nodes > 1:  # a model of several nodes chooses the transport
        description |= {"transport": "auto"}
    if record.backend == "cupy":  # a model has one transport and no backends
        description |= {"transport": "auto", "backend": None, "get": None}
        description["compute"] = None
    return case_of_timeline(description)


def _describe_case(
    case: Case, model: Machine, programs: Programs, events: list[StepTime], timed: bool
) -> dict[str, Any]:
    """The run as plain data, with its texts."""
    problem, traces = programs.problem, programs.traces
    run = describe_run(traces, events)
    keys = simulated_keys(case, model, problem.nprocs) | resolved_keys(case, programs.resolved)
    record = Record(**keys | problem.texts, status="ok", best_s=run["time_s"])
    moved = loads(traces)
    gemms_s = [
        sum(bar[3] - bar[2] for bar in bars if bar[1] == "multiply") for bars in run["ranks"]
    ]
    links = carried_by_links(traces, programs.machine) if programs.machine.links else []
    facts = [
        ["time", run["time_s"], "s"],
        ["local GEMMs", max(gemms_s), "s"],
        ["mean of the ranks", sum(gemms_s) / len(gemms_s), "s"],
        ["moved", moved.moved_bytes, "B"],
        ["busiest", moved.busiest_bytes, "B"],
        ["buffers", _most_stored(run["ranks"]), "B"],
    ]
    layouts = layouts_text([*problem.texts.values()])
    where = (
        f"simulated on {model.name}" if timed else "no machine: 100 FLOPs take as long as a byte"
    )
    return run | {
        "name": describe(record, sizes=True),
        "multiplication": multiplication_text(case),
        "description": [layouts, case.dtype, f"{problem.nprocs} ranks", where],
        "timed": timed,
        "facts": facts,
        "interval": None,
        "percent_of_peak": None,
        "links": [[*link[:2], round(link.nbytes), link.seconds] for link in links[:_MOST_LINKS]],
    }


def _most_stored(ranks: list[list]) -> int:
    """The most bytes of values that a rank stores at the same time.

    Examples
    --------
    >>> _most_stored(
    ...     [[[0, "fetch", 0, 1, 3, 8], [1, "fetch", 1, 2, 4, 8], [2, "fetch", 3, 4, 5, 8]]]
    ... )
    16
    """
    sums = []
    for bars in ranks:
        events = [(bar[3], bar[5]) for bar in bars if bar[4]]
        events += [(bar[4], -bar[5]) for bar in bars if bar[4]]
        sums += accumulate(nbytes for _, nbytes in sorted(events))
    return max(sums, default=0)
