"""What a prediction needs beyond the calibration of its machine model: more ranks, other GEMM
sizes, shorter or longer messages."""

from collections.abc import Iterable
from math import ceil

from drbench.model.costs import Costs, gemms_of
from drbench.model.machine import Machine
from drbench.model.rank import free_steps
from drbench.program.problem import Problem
from drbench.program.trace import Trace
from drbench.texts import bytes_text, plural

#: The ranges in the table ``[model.calibrated]`` of the file, and their descriptions.
_RANGES = {
    "m": "GEMMs with m of {}",
    "n": "GEMMs with n of {}",
    "k": "GEMMs with k of {}",
    "bytes": "transfers of {}",
    "shards": "collectives on shards of {}",
}
_OF_BYTES = ("bytes", "shards")


def describe_uncalibrated(
    machine: Machine,
    ranks: int,
    traces: Iterable[Trace],
    problem: Problem | None,
    threads: int | None = None,
) -> str | None:
    """Describe what a prediction of these traces needs outside the ranges of the calibration, as
    far as the machine's file has them; None if nothing, or if it was not calibrated.

    Parameters
    ----------
    machine : Machine
        As the case sees it, of its element type and through its transport.
    ranks : int
    traces : iterable of Trace
    problem : Problem
    threads : int, optional
        BLAS threads per rank, if given.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> machine = replace(find_machine("pvc12"), calibrated={"ranks": 2, "threads": 1})
    >>> describe_uncalibrated(machine, 4, [], None, 2), describe_uncalibrated(machine, 2, [], None)
    ('4 ranks (calibrated on 2); 2 threads per rank (1)', None)
    """
    known = machine.calibrated
    if not known:
        return None
    needs = []
    if ranks > known.get("ranks", ranks):
        needs.append(f"{plural(ranks, 'rank')} (calibrated on {known['ranks']})")
    size = known.get("node")
    if size and ceil(ranks / size) > known.get("nodes", 1):
        needs.append(f"{plural(ceil(ranks / size), 'node')} ({known.get('nodes', 1)})")
    if threads and threads != known.get("threads", threads):
        needs.append(f"{plural(threads, 'thread')} per rank ({known['threads']})")
    if machine.dtype not in known.get("dtypes", [machine.dtype]):
        needs.append(f"{machine.dtype} ({', '.join(known['dtypes'])})")
    if any(name in known for name in _RANGES):
        needed = _needed(machine, traces, Costs.of(machine, problem))
        needs += [
            _describe_range(name, needed[name], known[name]) for name in _RANGES if name in known
        ]
    return "; ".join(filter(None, needs)) or None


def _describe_range(name: str, needed: set[int], known: list) -> str:
    """Describe how far needed values are below and above the known range; empty if none is. Zeros
    need nothing.

    Examples
    --------
    >>> _describe_range("m", {4, 9, 4096}, [8, 2048]), _describe_range("k", {0, 9}, [8, 2048])
    ('GEMMs with m of 4 and 4096 (8 to 2048)', '')
    >>> _describe_range("bytes", {2**16, 2**26}, [2**14, 2**24])
    'transfers of 64 MiB (16 KiB to 16 MiB)'
    """
    low, high = known
    below = sorted(value for value in needed if 0 < value < low)
    above = sorted(value for value in needed if value > high)
    out = below[:1] + above[-1:]
    written = bytes_text if name in _OF_BYTES else str
    described = _RANGES[name].format(" and ".join(map(written, out)))
    return f"{described} ({written(low)} to {written(high)})" if out else ""


def _needed(machine: Machine, traces: Iterable[Trace], costs: Costs) -> dict[str, set[int]]:
    """The values of each range that the traces need."""
    values: dict[str, set[int]] = {name: set() for name in _RANGES}
    for trace in traces:
        for extents in gemms_of(trace, machine):
            for name, extent in zip("mnk", extents):
                values[name].add(extent)
        free = set(free_steps(trace, machine))
        for step in trace.steps:
            if step.grouped:
                values["shards"].add(costs.item(step) * step.shard())
            elif step.index not in free:
                item = costs.item(step)
                values["bytes"].update(item * count for _, count in step.moved(trace.rank))
    return values
