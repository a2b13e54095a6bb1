"""Backends, which store a case's arrays and run its GEMMs: on the cores (``numpy``) or on GPUs
(``cupy``).
"""

import functools
from collections.abc import Callable
from typing import Any

import threadpoolctl
from mpi4py import MPI

from drbench.errors import DrbenchError, UnsupportedError
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.throttle import Throttle
from drbench.host.topology import ClosedTogether, Topology
from drbench.launch.cases.case import Case
from drbench.launch.cases.peaks import compute_column
from drbench.mappings import remembered
from drbench.measure.roof import DeviceWork, HostWork
from drbench.transport import TransportChoice

from .gpu_awareness import mpi_moves_devices


def open_backend(
    case: Case, choice: TransportChoice, topology: Topology
) -> "HostBackend | DeviceBackend":
    """The backend of a case, closed at the end of ``with``, also after an error that all ranks find
    (collective).

    After any other error this rank ends all ranks; it must not free communicators, which would wait
    for ranks that are elsewhere.

    Raises
    ------
    UnsupportedError
        On every rank, if a rank has no such device.
    """
    return (HostBackend if case.backend == "numpy" else DeviceBackend)(case, choice, topology)


class HostBackend(ClosedTogether):
    """The cores of a rank.

    Attributes
    ----------
    keys : dict
        Columns of the record.
    work : HostWork
        Executes the local GEMMs of GEMM-only speed.
    core_due : float or None
        The share of a core that a rank can have (:meth:`Topology.core_due`).
    pads : bool
        Rows of the matrices are padded.
    begin : callable
        Called before the runs of a case: other cases may have set other threads.
    peak : callable
        Columns of the record that are known after the runs.
    """

    pads, peak = True, dict

    def __init__(self, case: Case, choice: TransportChoice, topology: Topology):
        self._case, self._choice, self._topology = case, choice, topology
        threads = case.threads or topology.cores_per_rank
        self.begin = functools.partial(_pools().limit, limits=threads)
        self.begin()
        self._blas = load_blas()
        self.work = HostWork(self._blas)
        self.keys = {
            "threads": threads,
            "oversubscribed": topology.oversubscribed(threads),
            "blas": self._blas.info.library,
            "blas_kernel": self._blas.info.kernel,
        }
        self.core_due = topology.core_due(threads)

    def free_bytes(self) -> None:
        """None: there is no device memory."""

    def distributed(self, problem):
        """A, B and C in windows, by name."""
        return distributed(problem, self._topology, self._choice)

    def executor(self, trace, matrices, prefetch):
        """The executor of a trace, with its own link if throttled."""
        throttle = None
        if self._choice.kind == "throttled":
            throttle = Throttle(self._choice.bandwidth_bytes_per_s, self._choice.latency_s)
        executor = Executor(
            trace,
            matrices,
            blas=self._blas,
            prefetch=prefetch,
            get=self._case.get,
            throttle=throttle,
        )
        executor.yields = self.keys["oversubscribed"]
        executor.polls = self._case.progress == "poll"
        return executor

    def record_columns(self, executor) -> dict:
        """Further columns of the record that depend on the executor: none."""
        return {}


class DeviceBackend(ClosedTogether):
    """The device of a rank; attributes and methods as of :class:`HostBackend`."""

    pads = False

    def __init__(self, case: Case, choice: TransportChoice, topology: Topology):
        self._case, self._choice, self._topology = case, choice, topology
        self.keys, self.device, self.begin = {}, None, dict
        try:
            call_together(topology.comm, self._find_device)
            self._agree()
        except BaseException:  # no caller has this backend yet to close it
            if self.device is not None:
                self.device.close()
            raise

    def _agree(self) -> None:
        """Choose what all ranks use, and set the columns of the record (collective)."""
        case, topology, info = self._case, self._topology, self.device.info
        # an index identifies no device where every rank sees only its own
        place = self.device.bus_id
        self.device.sharers = sharing = topology.node.allgather(place).count(place)
        most = topology.comm.allreduce(sharing, MPI.MAX)
        why_not = self._why_not(sharing)
        if why_not.get(case.collectives):
            raise UnsupportedError(
                f"-o collectives={case.collectives}: {why_not[case.collectives]}. Use "
                "-o collectives=staged."
            )
        self._nccl, self._direct = (not why_not[kind] for kind in ("nccl", "gpu-aware"))
        self.work = DeviceWork(self.device)
        self.keys |= {
            "blas": info.library,
            "blas_kernel": info.kernel,
            "device": info.name,
            "ranks_per_device": most,
            "oversubscribed": most > 1,
            "compute": compute_column(case.dtype, case.compute),
            "collectives": next((kind for kind in why_not if not why_not[kind]), "staged"),
            "max_gemms": case.max_gemms or 1,
            "max_accumulates": case.max_accumulates or 1,
            "accumulate_blocks": self.device.accumulate_blocks,
            "copy_streams": case.copy_streams or 1,
        }
        self.core_due = None if most > 1 else 1.0  # ranks of one GPU wait for each other

    def _find_device(self) -> None:
        from drbench.device.gpu.cuda import cuda_device
        from drbench.device.gpu.kernels import ACCUMULATE_BLOCKS

        case, node = self._case, self._topology.node
        blocks = case.accumulate_blocks or ACCUMULATE_BLOCKS
        self.device = cuda_device(node.rank, node.size, case.compute or "auto", blocks)

    def _why_not(self, sharing: int) -> dict[str, str | None]:
        """For each implementation other than staging, the better first, why some rank cannot use
        it; None if all can (collective)."""
        asked, comm = self._case.collectives, self._topology.comm
        why: dict[str, str | None] = dict.fromkeys(("nccl", "gpu-aware"), "it is not requested")
        if asked in (None, "nccl"):
            from drbench.device.gpu.nccl import why_no_nccl

            why["nccl"] = _first(comm, why_no_nccl(sharing))
        # on one node with NCCL a GPU-aware MPI has no work, and its test takes seconds
        if asked != "staged" and (why["nccl"] or self._topology.nodes > 1):
            node = self._topology.node  # its first rank tests it
            able, described = node.bcast(mpi_moves_devices() if node.rank == 0 else None)
            why["gpu-aware"] = _first(comm, None if able else described)
        return why

    def free_bytes(self) -> int:
        return self.device.free_bytes()

    def distributed(self, problem):
        from drbench.device.matrix import device_matrices

        return device_matrices(problem, self._topology, self.device, self._choice, self._direct)

    def executor(self, trace, matrices, prefetch):
        from drbench.device.base import Resources
        from drbench.device.executor import DeviceExecutor

        case = self._case
        return DeviceExecutor(
            trace,
            matrices,
            prefetch=prefetch,
            get=case.get,
            resources=Resources(
                case.max_gemms or 1, case.max_accumulates or 1, case.copy_streams or 1
            ),
            collectives=self._nccl_group if self._nccl else None,
        )

    def record_columns(self, executor) -> dict:
        """Why ranks of a node do not reach each other's devices; how a program with signals sends
        them; and that parts of a kernel are separate GEMMs."""
        columns = {"reason": executor.matrices["C"].why_unreached}
        if executor.inbox is None:
            return columns
        columns["progress"] = "streams" if executor.inbox.why_hosts is None else "hosts"
        if any(getattr(step, "kernel", None) for step in executor.trace.steps):
            columns["blas_kernel"] = f"{self.keys['blas_kernel']} parts"
        return columns

    def _nccl_group(self, group):
        """The NCCL communicator of a process row or column, made once for all cases."""
        from drbench.device.gpu.nccl import nccl_group

        make = lambda: nccl_group(self._topology.group(group), self.device)
        return remembered(self._topology.resources, ("nccl", group), make)

    def peak(self) -> dict:
        """The largest device memory of a rank."""
        return {"peak_device_bytes": self._topology.comm.allreduce(self.device.peak_bytes, MPI.MAX)}

    def close(self) -> None:
        self.work.close()
        self.device.close()


def call_together(comm: MPI.Comm, action: Callable[[], Any]) -> Any:
    """The result of ``action()``; if it is refused on a rank, all ranks raise the error of the
    first such rank (collective)."""
    result = refusal = None
    try:
        result = action()
    except DrbenchError as error:
        refusal = error
    refusal = _first(comm, refusal)
    if refusal:
        raise refusal
    return result


def _first(comm: MPI.Comm, message):
    """The message of the first rank that has one (collective)."""
    return next(filter(None, comm.allgather(message)), None)


@functools.cache
def _pools() -> threadpoolctl.ThreadpoolController:
    """The thread pools of this process, found once: a search takes a millisecond, and cases load no
    more."""
    load_blas()
    return threadpoolctl.ThreadpoolController()
