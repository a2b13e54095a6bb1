"""``drbench bandwidth`` on the ranks: the time of each type of transfer at each size, measured with
the executor of runs and verified."""

from dataclasses import replace
from functools import partial

import numpy as np

from drbench.errors import CaseFailed, UnsupportedError, UsageError
from drbench.host.fill import Fill, HostElements
from drbench.host.topology import Topology, mpi_version
from drbench.launch.cases.case import Case, check_case
from drbench.measure.noise import Timed, median_interval
from drbench.measure.roof import timed
from drbench.measure.samples import sample
from drbench.plan.schedule import pool_bytes
from drbench.program.problem import ITEMSIZES
from drbench.transport import parse_transport

from .backends import call_together, open_backend
from .group_memory import Need, check_memory
from .run_case import found_transport, world
from .transfers import LocalRows, trace_of

#: Transfers of one run: as many as OSU's, with fewer bytes than this in total.
_MOST_TRANSFERS, _MOST_BYTES = 64, 4 << 20
#: Repeats of one point: at least this number, then until the median is known or these seconds are
#: spent.
_LEAST, _BUDGET_S = 7, 0.25


def measure_here(case: Case, sizes: list[int], names: list[str]) -> tuple[dict, list[dict]]:
    """Measure on the ranks of this process (collective). Returns the setup (resolved ``auto``
    choices, and whether this rank is the ``first``), and a row per type of transfer and size, the
    same on every rank.

    Parameters
    ----------
    case : Case
        Transport, backend and element type.
    sizes : list of int
        Bytes.
    names : list of str
        Of :data:`drbench.launch.ranks.transfers.PROGRAMS`.

    Returns
    -------
    dict, list of dict
        A row has ``operation``, ``nbytes``, ``times`` (transfers per repeat), ``samples_s`` (of
        one transfer, slowest rank) with the ``interval`` of their median, ``noisy`` and
        ``core_share``, or the ``reason`` for their absence.

    Raises
    ------
    UsageError
        On one rank.
    CaseFailed
        If the received data is wrong.
    """
    comm = world()
    check_case(case)
    if comm.size < 2:
        raise UsageError("bandwidth needs at least 2 ranks, got 1. Use -p 2.")
    rows: list[dict] = []
    transport = case.transport
    with Topology(comm) as topology:
        for nbytes in sizes:
            transport, of_size = _of_size(case, nbytes, names, topology)
            rows += of_size
        description = {"ranks": comm.size, "nodes": topology.nodes, "mpi": mpi_version()}
    return description | {"transport": transport, "first": comm.rank == 0}, rows


def _of_size(
    case: Case, nbytes: int, names: list[str], topology: Topology
) -> tuple[str, list[dict]]:
    """Measure all types of transfers of one size on the same windows; also return the transport."""
    comm, columns = topology.comm, max(topology.comm.size, nbytes // ITEMSIZES[case.dtype])
    rows = LocalRows.of(columns, comm.size, comm.rank, case.dtype)
    case = replace(case, m=2 * comm.size, n=columns, k=1, get="copy")  # a view would move no data
    choice = parse_transport(case.transport)
    times = max(1, min(_MOST_TRANSFERS, _MOST_BYTES // nbytes))
    traces = {name: trace_of(name, rows, times) for name in names}
    out = []
    with open_backend(case, choice, topology) as backend:
        pools = [pool_bytes(trace, 1, lambda block: False) for trace in traces.values()]
        need = Need.of(rows.problem, comm.rank, False, max(pools, default=0))
        check_memory(topology, need, device_free=backend.free_bytes())
        with backend.distributed(rows.problem) as matrices:
            auto = choice.kind == "auto"
            transport = found_transport(comm, matrices["C"]) if auto else case.transport
            for name, trace in traces.items():
                row = {"operation": name, "nbytes": _moved(name, rows), "times": times}
                try:
                    make = partial(backend.executor, trace, matrices, 1)
                    executor = call_together(comm, make)
                except UnsupportedError as error:
                    out.append(row | {"reason": str(error)})
                    continue
                with executor:
                    columns = _sampled(comm, rows, backend, matrices["C"], executor, name)
                samples = [seconds / times for seconds in columns["samples_s"]]
                text = {name: columns[name] for name in ("noisy", "core_share")}
                text |= {"samples_s": samples, "interval": median_interval(samples)}
                out.append(row | text)
    return transport, out


def _moved(name: str, rows: LocalRows) -> int:
    """Bytes of one transfer, as nccl-tests count them: for scatter and gather the whole array."""
    columns, parts = rows.problem.n, name in ("allgather", "reducescatter")
    columns = columns // rows.ranks * rows.ranks if parts else columns
    return columns * rows.problem.itemsize


def _sampled(comm, rows: LocalRows, backend, c, executor, name: str) -> dict:
    """The columns of the times of the repeats. One more repeat, with other elements, is verified,
    so that old data cannot pass."""

    def fill(seed: int) -> Fill:
        values = Fill("integer", seed, 1)
        for block, tile in c.own_blocks():
            backend.work.fill(tile, values, "A", block.row0)
        return values

    def once(place: int) -> tuple[Timed]:
        executor.prepare()
        return (timed(comm, executor.run),)

    fill(1)
    executor.run()  # pages, connections, protocols
    columns, _, _ = sample(comm, once, _LEAST, _BUDGET_S, backend.core_due)
    last = fill(2)
    once(0)
    _verify(comm, rows, c, executor, name, last)
    return columns


def _verify(comm, rows: LocalRows, c, executor, name: str, fill: Fill) -> None:
    """Compare the data received on this rank with the sent data, element by element (collective).

    Raises
    ------
    CaseFailed
        On every rank.
    """
    elements = getattr(c, "device", None) or HostElements
    steps, target = executor.trace.steps, rows.ranks + rows.rank
    row = lambda number: fill.rows("A", number, number + 1, rows.problem.n)
    source = lambda rank: row(rank % rows.ranks)
    transfers = sum(step.counter is not None for step in steps)
    expected = _expected(name, rows, source, row(target), transfers - 1)
    if steps[-1].shape is not None:  # the step has a value
        received = executor.values[steps[-1].index]
    else:
        received = next(tile for block, tile in c.own_blocks() if block.row0 == target)
    actual = elements.rows_of(received, np.arange(len(expected)))
    wrong = comm.allreduce(int((actual[:, : expected.shape[1]] != expected).sum()))
    if wrong:
        raise CaseFailed(
            f"{name} of {expected.nbytes} bytes: {wrong} received elements are wrong. Please "
            "report it, with the output of drbench doctor."
        )


def _expected(name: str, rows: LocalRows, source, before: np.ndarray, times: int) -> np.ndarray:
    """The expected data after a transfer, in float64: 1 × columns, for a gather one row per
    rank."""
    rank, ranks = rows.rank, rows.ranks
    part = rows.problem.n // ranks
    match name:
        case "get":
            return source(rank + 1)
        case "put" | "shift":
            return source(rank - 1)
        case "copy":
            return source(rank)
        case "broadcast":
            return source(0)
        case "allgather":
            return np.concatenate([source(rank)[:, :part] for rank in range(ranks)])
        case "accumulate":
            return before + times * source(rank - 1)
    total = sum(source(rank) for rank in range(ranks))
    if name == "reduce":
        return total if rank == 0 else before
    return total[:, rank * part : (rank + 1) * part]
