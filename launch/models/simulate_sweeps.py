"""Predict many cases: those of a sweep on one machine, those of the paper's figures on several."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from drbench.errors import UsageError
from drbench.host.cores import usable_cores
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import model_version
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.sweeps.progress import SweepProgress
from drbench.launch.sweeps.rounds import Job
from drbench.launch.sweeps.store import Store
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.partitions import LayoutError

from .predict import predict_with, programs_of, simulated_keys

#: Batch sizes of the paper (§5.2.1).
BATCHES = (1024, 2048, 4096, 8192)
#: Cases that a process predicts per task.
_CHUNK = 16


def legend_cases(
    layer: str, ranks: int, batches: Sequence[int] = BATCHES, options: dict | None = None
) -> Iterator[Case]:
    """The cases from which a figure selects its points: the sweeps ``mlp1`` and ``mlp1-dtensor``,
    or those of ``mlp2``, as they are simulated. ``options`` replace the paper's.

    Examples
    --------
    >>> cases = list(legend_cases("mlp2", 12))
    >>> len(cases), next(case for case in cases if case.preset == "block").a
    (1736, 'block:4x3')
    """
    given = [("m", str(batch)) for batch in batches]
    for sweep, more in ((layer, options or {}), (f"{layer}-dtensor", {})):
        for case in load_sweep(sweep, ranks, overrides=given, simulate=True).cases:
            yield replace(case, gemm_only=False, options=case.options | more)


@contextmanager
def simulated(machine: Machine, store: Store, watch: SweepProgress) -> Iterator[Callable]:
    """A context whose function predicts a job, like ``supervised`` of the supervisor for runs."""
    yield partial(_predicted, machine)


def _predicted(machine: Machine, job: Job) -> Record:
    """The record of one case, with its interval; an inconsistent case gives a row with the
    reason."""
    ranks, case = job.ranks, job.case
    try:
        record, _ = predict_with(case, machine, ranks, interval=True)
    except (UsageError, LayoutError) as error:
        record = Record(**simulated_keys(case, machine, ranks), status="failed", reason=str(error))
    return replace(record, environment=model_version(machine))


def predict_on(
    machines: Sequence[Machine], cases: Iterable[Case], ranks: int
) -> list[list[Record]]:
    """Predict all cases on each machine, in a process per usable core. A case is traced once, and
    again only if its program depends on the constants that differ.

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
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> machine = find_machine("h100x8")
    >>> slower = machine.vary("links.nvlink.bandwidth_bytes_per_s", 0.1)
    >>> cases = [Case(1024, 1024, 1024, "row", "row", "row")]
    >>> (base,), (slow,) = predict_on([machine, slower], cases, 8)
    >>> base.get_bytes == slow.get_bytes, base.best_s < slow.best_s
    (True, True)
    """
    with ProcessPoolExecutor(usable_cores()) as pool:
        rows = pool.map(partial(_on_each, machines, ranks), cases, chunksize=_CHUNK)
        return [list(records) for records in zip(*rows)]


def _on_each(machines: Sequence[Machine], ranks: int, case: Case) -> list[Record]:
    programs = programs_of(case, machines[0], ranks)
    return [
        predict_with(case, machine, ranks, programs=programs.on(case, machine))[0]
        for machine in machines
    ]
