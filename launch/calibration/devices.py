"""``drbench calibrate --backend``: measure GEMMs, copies, accumulates and collectives of this
node's devices, on all ranks at once."""

from math import inf

import numpy as np
from mpi4py import MPI

from drbench.device.address import at_address
from drbench.errors import CaseFailed, UnsupportedError
from drbench.host.topology import Topology
from drbench.launch.cases.case import Case
from drbench.launch.ranks.backends import open_backend
from drbench.launch.ranks.transfers import LocalRows, trace_of
from drbench.model.fit import fit_collective, fit_line
from drbench.program.problem import Problem
from drbench.transport import TransportChoice

from .cores import best_of, compute_section, find_ranges
from .programs import MEASURED

#: Local GEMMs, (m, n, k).
_SHAPES = MEASURED["devices"]["gemms"]
#: Transfers, in bytes.
_SIZES = [1 << s for s in range(16, 29, 3)]
_REPEATS = 10


def measure_devices(topology: Topology, trials: int) -> tuple[str, dict]:
    """Measure the devices of this node (collective), without normalisation by the speed of cores.

    Raises
    ------
    UnsupportedError
        If the devices cannot access each other's memory.
    CaseFailed
        If larger GEMMs or transfers did not take longer.
    """
    comm = topology.comm
    case = Case(8, 8, 8, backend="cupy")
    with open_backend(case, TransportChoice("auto"), topology) as opened:
        gemms, rates = _gemms(comm, opened, trials), _transfers(comm, opened, trials)
        (latency_s, rate), keys = rates["get"], opened.keys
        where = f"{keys['device']}, {keys['blas']}, {keys['ranks_per_device']} rank(s) per device"
        return where, {
            "calibrated": {"dtypes": ["float32"]} | find_ranges(_SHAPES, _SIZES, _SIZES),
            "accumulate_efficiency": (
                min(1.0, rates["add"][1] / rate),
                "accumulate over copy, both between ranks; at most 1",
            ),
            "compute": compute_section(gemms, [], (rates["memory"], "add inside the device")),
            "links": {
                "peer": {
                    "shared": "device",
                    "bandwidth_bytes_per_s": (rate, "copy from the next rank, all at once"),
                    "latency_s": latency_s,
                }
            },
            "collectives": _collectives(comm, opened, trials),
        }


def _best(comm, stream, trials: int, enqueue) -> float:
    """Seconds of one of ten consecutive calls on a stream (collective)."""

    def several():
        for _ in range(_REPEATS):
            enqueue()
        stream.synchronise()

    return best_of(comm, several, trials) / _REPEATS


def _gemms(comm, backend, trials: int) -> list[tuple[int, int, int, float]]:
    """Time GEMMs on all ranks at once."""
    device, dtype = backend.device, np.dtype(np.float32)
    memory = [
        backend.work.empty(max(shape[x] * shape[y] for shape in _SHAPES), dtype)
        for x, y in ((0, 2), (2, 1), (0, 1))
    ]
    stream = device.stream("calibrate", multiplies=True)
    for array in memory:
        device.zero(array.reshape(1, -1), stream)
    times = []
    for m, n, k in _SHAPES:
        a, b, c = (
            array[: rows * cols].reshape(rows, cols)
            for array, rows, cols in zip(memory, (m, k, m), (k, n, n))
        )
        multiply = lambda: device.gemm(a, b, c, 1.0, stream)
        times.append((m, n, k, _best(comm, stream, trials, multiply)))
    return times


def _transfers(comm, backend, trials: int) -> dict:
    """Time copies from, and accumulates into, the next rank's memory, and an add inside the device:
    (latency, bytes per second), bytes per second."""
    device, largest = backend.device, _SIZES[-1] // 4
    problem = Problem(comm.size, largest, 1, comm.size, a="row", b="row", c="row")
    memory = device.allocate(4 * largest)
    own, stream = (
        at_address(memory.address, largest, np.float32).reshape(1, largest),
        device.stream("calibrate"),
    )
    device.zero(own, stream)
    with backend.distributed(problem) as matrices:
        c, right = matrices["C"], (comm.rank + 1) % comm.size
        if comm.allreduce(c.window.in_reach[right] is None, MPI.LOR):
            memory.free()
            raise UnsupportedError(
                "the devices of this node cannot access each other's memory, so there is no link "
                "to measure. See drbench doctor."
            )
        device.zero(c.storage.reshape(1, -1), stream)
        stream.synchronise()
        samples: dict[str, list] = {"get": [], "add": []}
        for nbytes in _SIZES:
            block = problem.c.block((right, right + 1), (0, nbytes // 4))
            here, there = own[:, : nbytes // 4], c.view(block)

            for kind, move in (
                ("get", lambda: device.copy(here, there, stream)),
                ("add", lambda: device.accumulate(there, here, stream, c.guard(block))),
            ):
                samples[kind].append((nbytes, _best(comm, stream, trials, move)))
        inside = lambda: device.add(own, c.storage.reshape(1, -1), stream)
        local = 3 * 4 * largest / _best(comm, stream, trials, inside)
    memory.free()
    return fit_transfers(samples) | {"memory": local}


def fit_transfers(samples: dict[str, list[tuple[float, float]]]) -> dict:
    """Latency and bytes per second of each kind of transfer, ``(bytes, seconds)``.

    Raises
    ------
    CaseFailed
        If more bytes did not take longer: other work disturbed the transfers of few.

    Examples
    --------
    >>> (latency_s, rate), *_ = fit_transfers({"get": [(1000, 2e-6), (2000, 3e-6)]}).values()
    >>> f"{latency_s:.2g} {rate:.2g}"
    '1e-06 1e+09'
    >>> fit_transfers({"get": [(1000, 2e-6), (2000, 3e-6)], "add": [(1000, 3e-6), (2000, 2e-6)]})
    Traceback (most recent call last):
        ...
    drbench.errors.CaseFailed: transfers (add) of more bytes did not take longer, so no rate can \
be fitted. Measure when the machine is quiet, or with more --rounds.
    """
    fits = {kind: fit_line(points) for kind, points in samples.items()}
    flat = ", ".join(kind for kind, (_, rate) in fits.items() if rate == inf)
    if flat:
        raise CaseFailed(
            f"transfers ({flat}) of more bytes did not take longer, so no rate can be fitted. "
            "Measure when the machine is quiet, or with more --rounds."
        )
    return fits


def _collectives(comm, backend, trials: int) -> dict:
    """Time one step on all ranks, through the executor of programs."""
    by_kind: dict[str, list] = {}
    for nbytes in _SIZES:
        for name in ("allgather", "reducescatter", "shift"):
            shards = 1 if name == "shift" else comm.size
            rows = LocalRows.of(shards * nbytes // 4, comm.size, comm.rank)
            with (
                backend.distributed(rows.problem) as matrices,
                backend.executor(trace_of(name, rows), matrices, 1) as executor,
            ):
                sample = comm.size, nbytes, best_of(comm, executor.run, trials)
            by_kind.setdefault(name, []).append(sample)
    description = (
        f"{backend.keys['collectives']}, on {comm.size} ranks: launch and sync cannot be separated"
    )
    return {name: fit_collective(samples) | {"#": description} for name, samples in by_kind.items()}
