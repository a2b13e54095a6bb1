"""Predict many cases: those of a sweep on one machine, those of the paper's figures on several."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from algorithms import algorithms
from drbench.errors import DrbenchError, UsageError
from drbench.measure.record import Record
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import model_version
from launch.cases.sweep_file import load_sweep
from launch.sweeps.progress import SweepProgress
from launch.sweeps.rounds import Job
from launch.sweeps.store import Store
from partitions import LayoutError

from .intervals import alternatives
from .predict import predict_with, programs_of, simulated_keys, with_interval

#: Hidden size, its multiple, and batch sizes of the paper (§5.2.1).
HIDDEN, RATIO, BATCHES = 12288, 4, (1024, 2048, 4096, 8192)

#: n and k of the two layers.
LAYERS = {"mlp1": (RATIO * HIDDEN, HIDDEN), "mlp2": (HIDDEN, RATIO * HIDDEN)}
#: The options of the program that PyTorch's DTensor runs.
DTENSOR = "dtensor_mm"
#: Cases that a process predicts per task.
_CHUNK = 16


def dtensor_case(m: int, n: int, k: int, by: str) -> Case:
    """The case of PyTorch's DTensor with all matrices by ``row`` or by ``column``."""
    return Case(m, n, k, by, by, by, algorithm=DTENSOR)


def legend_cases(
    layer: str, ranks: int, batches: Sequence[int] = BATCHES, options: dict | None = None, **fields
) -> Iterator[Case]:
    """The cases from which a figure selects its points: the sweep ``mlp1`` or ``mlp2`` as the
    paper's program, and DTensor by rows and by columns. ``options`` replace the paper's, ``fields``
    are other fields of :class:`Case`.

    Examples
    --------
    >>> cases = list(legend_cases("mlp2", 12))
    >>> len(cases), next(case for case in cases if case.preset == "block").a
    (1736, 'block:4x3')
    """
    given = [("m", str(batch)) for batch in batches]
    for case in load_sweep(layer, ranks, overrides=given, simulate=True).cases:
        options_of = case.options | (options or {})
        yield replace(case, **{"roof": False, "options": options_of, **fields})
    n, k = LAYERS[layer]
    for batch, by in itertools.product(batches, ("row", "column")):
        yield replace(dtensor_case(batch, n, k, by), **fields)


@contextmanager
def simulated(machine: Machine, store: Store, watch: SweepProgress) -> Iterator[Callable]:
    """A context whose function predicts a job, like ``supervised`` of the supervisor for runs."""
    yield partial(_predicted, machine, alternatives(machine))


def _predicted(machine: Machine, others: list, job: Job) -> Record:
    """The record of one case, with its interval; an inconsistent case gives a row with the reason.
    Its ranks are traced once."""
    _, ranks, case = job
    keys = simulated_keys(case, machine, ranks) | {"environment": model_version(machine)}
    if case.algorithm not in algorithms():
        return Record(
            **keys,
            status="unsupported",
            reason=f"{case.algorithm} is not an algorithm of drbench, and only these can be "
            "simulated",
        )
    try:
        made = programs_of(case, machine, ranks)
        record, _ = predict_with(case, machine, ranks, made=made)
        record = replace(record, environment=keys["environment"])
        return with_interval(record, case, machine, ranks, made, others)
    except (UsageError, LayoutError) as error:
        return Record(**keys, status="failed", reason=str(error))
    except DrbenchError as error:
        return Record(**keys, status=error.status, reason=str(error))


def predict_on(
    machines: Sequence[Machine], cases: Iterable[Case], ranks: int, processes: int | None = None
) -> list[list[Record]]:
    """Predict all cases on each machine. A case is traced once, and again only if its program
    depends on the constants that differ.

    Parameters
    ----------
    processes : int, optional
        By default the number of cores of this process.

    Returns
    -------
    list of list of Record
        One list per machine, in the order of the cases.

    Raises
    ------
    DrbenchError
        If a case is refused.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> machine = find_machine("h100x8")
    >>> slower = machine.vary("links.nvlink.bandwidth_bytes_per_s", 0.1)
    >>> cases = [Case(1024, 1024, 1024, "row", "row", "row")]
    >>> (base,), (slow,) = predict_on([machine, slower], cases, 8, 1)
    >>> base.get_bytes == slow.get_bytes, base.best_s < slow.best_s
    (True, True)
    """
    predicted = partial(_on_each, machines, ranks)
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        rows = list(map(predicted, cases))
    else:
        with ProcessPoolExecutor(processes) as pool:
            rows = list(pool.map(predicted, cases, chunksize=_CHUNK))
    return [list(records) for records in zip(*rows)]


def _on_each(machines: Sequence[Machine], ranks: int, case: Case) -> list[Record]:
    made = programs_of(case, machines[0], ranks)
    return [predict_with(case, each, ranks, made=made.on(case, each))[0] for each in machines]
