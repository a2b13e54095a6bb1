"""``drbench calibrate`` on the ranks: measure this machine, then compare whole programs with their
predictions."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from mpi4py import MPI

from drbench.errors import UsageError
from drbench.host.topology import Topology
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import read_document, write_model
from drbench.launch.host.kernels import processor_name
from drbench.launch.ranks.run_case import run_case, world
from drbench.measure.noise import Timed
from drbench.model.machine import Machine

from .cores import best_of, measure_cores
from .devices import measure_devices
from .nodes import measure_nodes
from .programs import in_rounds, whole_programs
from .speed import SpeedNormalisation


def calibrate_here(
    out: str,
    name: str,
    trials: int,
    backend: str,
    threads: int | None,
    nodes: bool,
    predict: Callable[[Case, Machine, int], float | None],
) -> int:
    """Measure on the ranks of this process, with ``trials`` trials; return the exit code. Then
    whole programs are measured and predicted with the results, and rank 0 writes the ``[model]``
    section of the file, with their ratios as ``[model.residuals]``. If the machine drifted
    meanwhile, these are widened, and rank 0 reports it.

    Parameters
    ----------
    threads : int or None
        BLAS threads per rank on cores.
    nodes : bool
        The ranks are on several nodes, and the links between them are measured too.
    predict : callable
        ``predict(case, machine, ranks)``: seconds; None if the machine refuses the case.

    Raises
    ------
    UsageError
        If links cannot be measured: on one rank; on several nodes without ``nodes``, on one node
        with it, or with different numbers of ranks on nodes.
    CaseFailed
        If the ranks lacked their cores (:meth:`SpeedNormalisation.refuse_other_work`); the file is
        unchanged.
    """
    comm = _by_nodes(world())
    read_document(out)  # refuse an unreadable file before measuring
    with Topology(comm) as topology:
        _check_ranks(topology, nodes)
        speed = SpeedNormalisation.of_cores(comm, topology.core_due(1))
        if nodes:
            where, tables = measure_nodes(topology, trials, speed, threads)
        elif backend == "numpy":
            where, tables = measure_cores(topology, trials, speed, threads)
        else:
            where, tables = measure_devices(topology, trials)
        speed.refuse_other_work()
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        model = {
            "#": f"measured by drbench calibrate -p {comm.size}{' --nodes' * nodes}, {where}, "
            f"{today}; {trials} trials, all ranks at once: GEMMs and functions "
            "are medians at normalised speed, others the best. Seconds, bytes, FLOP/s.",
            "name": name,
            # of all ranks
            "fence_s": (best_of(comm, lambda: comm.Ibarrier().Wait(), trials, 100), "Ibarrier"),
            **tables,
        }
        model["calibrated"] |= {
            "ranks": comm.size,
            "nodes": topology.nodes,
            "node": comm.size // topology.nodes,
            "date": today,
            "processor": processor_name(),
        }
        model = comm.bcast(model)  # nodes have measured different links
        programs = whole_programs(backend, nodes)
        with tempfile.TemporaryDirectory(prefix="drbench-model-") as folder:
            draft = os.path.join(folder, "model.toml")
            write_model(draft, model)
            machine = Machine.load(draft)

            def run(case: Case) -> float | None:
                """Run a case; its schedule uses the new model."""
                planned_by = None if case.options.get("pack") == "never" else draft
                on = model["calibrated"].get("threads")  # of cores
                asked = replace(case, iters=1, machine=planned_by, threads=on)
                record = run_case(asked, comm, topology)
                return record.time_s if record.status == "ok" else None

            # GEMMs of cores do not measure the speed of GPUs, so GPU programs are not normalised
            usual = speed if backend != "cupy" else SpeedNormalisation(lambda: Timed(1.0, 0.0))
            # split by type below
            took = iter(in_rounds([*chain(*programs.values())], trials, run, usual))
        speed.refuse_other_work()
    if comm.rank:
        return 0
    drift = speed.drift()
    drifted = drift_text(drift)
    model["residuals"] = {"#": f"measured over predicted times of whole programs{drifted}"}
    for kind, cases in programs.items():
        pairs = [(s, predict(case, machine, comm.size)) for case, s in zip(cases, took) if s]
        ratios = [took_s / predicted_s for took_s, predicted_s in pairs if predicted_s]
        if len(ratios) > 1:
            model["residuals"][kind] = widen_ratios(ratios, drift)
    print(write_model(out, model), flush=True)
    if drifted:
        print(f"drbench: all intervals are wider{drifted}", file=sys.stderr, flush=True)
    return 0


def _check_ranks(topology: Topology, nodes: bool) -> None:
    """Refuse ranks without links to measure."""
    size, count = topology.comm.size, topology.nodes
    if size < 2:
        raise UsageError("calibrate needs at least 2 ranks, got 1. Use -p 2.")
    if count > 1 and not nodes:
        raise UsageError(
            f"calibrate measures one node, got {count}. Start it on one, or use --nodes to measure "
            "the links between nodes too."
        )
    if count == 1 and nodes:
        raise UsageError(
            f"--nodes measures links between nodes, but the {size} ranks are on one. Start it on "
            "two (srun -N 2, mpiexec -hosts), or leave --nodes out."
        )
    sizes = Counter(topology.node_of).values()
    if min(sizes) < max(sizes):
        raise UsageError(
            f"--nodes needs equal numbers of ranks on all nodes, got {min(sizes)} to {max(sizes)}. "
            f"Start {min(sizes)} on each."
        )


def drift_text(drift: tuple[float, float]) -> str:
    """The note about a machine that drifted (:meth:`SpeedNormalisation.drift`); empty if it did
    not.

    Examples
    --------
    >>> drift_text((1.0, 1.0)), drift_text((0.96, 1.3))
    ('', '; the machine drifted meanwhile: times were 0.96 to 1.30 of the usual')
    """
    low, high = drift
    if low == high:
        return ""
    return f"; the machine drifted meanwhile: times were {low:.2f} to {high:.2f} of the usual"


def widen_ratios(ratios: list[float], drift: tuple[float, float]) -> list[float]:
    """The residuals at both ends of a drift.

    Examples
    --------
    >>> widen_ratios([1.0, 1.02], (1.0, 1.0)), widen_ratios([1.0, 2.0], (0.5, 1.5))
    ([1.0, 1.02], [0.5, 1.0, 1.5, 3.0])
    """
    low, high = drift
    return ratios if low == high else [ratio * end for end in drift for ratio in ratios]


def _by_nodes(comm):
    """A communicator with the ranks of each node next to each other, as machine models number
    them."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    first, place = node.bcast(comm.rank), node.rank
    node.Free()
    return comm.Split(0, key=first * comm.size + place)
