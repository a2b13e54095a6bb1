"""Where a case's arrays live and its products run: on the cores (``numpy``), on GPUs (``cupy``), or
on worker threads that stand for one (``numpy-async``)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import threadpoolctl
from mpi4py import MPI

from drbench.common import TransportChoice
from drbench.errors import DrbenchError, UnsupportedError
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.matrix import distributed
from drbench.host.throttle import Throttle
from drbench.host.topology import Topology
from drbench.measure.roof import DeviceWork, HostWork
from launch.cases.case import Case

from .gpu_awareness import mpi_reads_devices


@contextmanager
def open_backend(
    case: Case, choice: TransportChoice, topology: Topology
) -> Iterator[HostBackend | DeviceBackend]:
    """The backend of a case, closed at its end, also after an error that all ranks found alike
    (collective).

    After any other this rank is about to end all, and letting go of communicators would wait for
    ranks that are elsewhere.

    Raises
    ------
    UnsupportedError
        On every rank, if one of them has no such device.
    """
    backend = (HostBackend if case.backend == "numpy" else DeviceBackend)(case, choice, topology)
    try:
        yield backend
    except DrbenchError:
        backend.close()
        raise
    backend.close()


class HostBackend:
    """The cores of a rank.

    Attributes
    ----------
    keys : dict
        Columns of the record.
    work : HostWork
        For the roof.
    """

    def __init__(self, case: Case, choice: TransportChoice, topology: Topology):
        self._case, self._choice, self._topology = case, choice, topology
        threads = case.threads or topology.cores_per_rank
        _pools().limit(limits=threads)
        self._blas = load_blas()
        self.work = HostWork(self._blas)
        self.keys = {
            "threads": threads,
            "blas": self._blas.info.library,
            "blas_kernel": self._blas.info.kernel,
        }
        self._yields = topology.node.size * threads > topology.cores

    def free_bytes(self) -> None:
        """Nothing lies on a device."""

    def distributed(self, problem):
        """A, B and C in windows, by name."""
        return distributed(problem, self._topology, self._choice)

    def fill(self, tile, fill, matrix: str, row0: int, col0: int) -> None:
        fill.into(tile, matrix, row0, col0)

    def executor(self, trace, matrices, prefetch, clock):
        """The executor of a trace; its link, if throttled, is its own."""
        throttle = None
        if self._choice.kind == "throttled":
            throttle = Throttle(self._choice.bandwidth_bytes_per_s, self._choice.latency_s)
        return Executor(
            trace,
            matrices,
            clock=clock,
            prefetch=prefetch,
            blas=self._blas,
            get=self._case.get,
            throttle=throttle,
            progress=self._case.progress,
            yields=self._yields,
        )

    def peak(self) -> dict:
        return {}

    def close(self) -> None:
        pass  # nothing is held


class DeviceBackend:
    """The device of a rank; attributes and methods as of :class:`HostBackend`."""

    def __init__(self, case: Case, choice: TransportChoice, topology: Topology):
        self._case, self._choice, self._topology = case, choice, topology
        self.keys, self._groups = {}, {}
        self.device = _everywhere(topology.comm, lambda: self._find_device())
        try:
            self._agree()
        except BaseException:  # no one has this backend yet who would close it
            self.device.close()
            raise

    def _agree(self) -> None:
        """What all ranks use, and what the record says of it (collective)."""
        case, topology, info = self._case, self._topology, self.device.info
        # an index tells nothing where every rank sees its own device only
        place = getattr(self.device, "bus_id", info.index)
        self._sharing = topology.node.allgather(place).count(place)
        if case.backend == "cupy":
            self.device.sharers = self._sharing
        direct = topology.comm.allreduce(self._mpi_reads(), MPI.LAND)
        self._nccl = (
            case.backend == "cupy" and (case.collectives or "nccl") == "nccl" and self._has_nccl()
        )
        if case.collectives == "nccl" and not self._nccl:
            raise UnsupportedError(
                f"--collectives nccl: {self._why_no_nccl}. Use --collectives staged."
            )
        self._direct = direct
        self.work = DeviceWork(self.device)
        kind = "nccl" if self._nccl else "gpu-aware" if direct else "staged"
        arithmetic = (
            case.compute
            or {"float32": "fp32", "float64": "fp64", "bfloat16:float32": "bf16"}[case.dtype]
        )
        self.keys |= {
            "blas": info.library,
            "blas_kernel": info.kernel,
            "device": info.name,
            "ranks_per_device": topology.comm.allreduce(self._sharing, MPI.MAX),
            "compute": arithmetic,
            "collectives": kind,
            "max_gemms": case.max_gemms or 1,
            "max_accumulates": case.max_accumulates or 1,
            "accumulate_blocks": case.accumulate_blocks,
        }

    def _find_device(self):
        case, node = self._case, self._topology.node
        if case.backend == "numpy-async":
            from drbench.device.threads import HostDevice

            threads = case.threads or self._topology.cores_per_rank
            _pools().limit(limits=threads)
            self.keys["threads"] = threads
            return HostDevice(case.seed * self._topology.comm.size + self._topology.comm.rank)
        from drbench.device.gpu.cuda import cuda_device

        return cuda_device(node.rank, node.size, case.compute or "auto", case.accumulate_blocks)

    def _mpi_reads(self) -> bool:
        """Whether MPI is given device memory."""
        asked = self._case.collectives
        if self._case.backend == "numpy-async":
            return asked == "gpu-aware"  # its memory is the host's
        if asked == "staged":
            return False
        able, why = mpi_reads_devices(self._topology.node)
        reasons = [
            reason for able, reason in self._topology.comm.allgather((able, why)) if not able
        ]
        if asked == "gpu-aware" and reasons:
            raise UnsupportedError(
                f"--collectives gpu-aware: {reasons[0]}. Use --collectives staged."
            )
        return not reasons

    def _has_nccl(self) -> bool:
        """Whether all ranks can use NCCL; why not is kept."""
        from drbench.device.gpu.nccl import why_no_nccl

        reasons = self._topology.comm.allgather(why_no_nccl(self._sharing))
        self._why_no_nccl = next((reason for reason in reasons if reason), None)
        return self._why_no_nccl is None

    def free_bytes(self) -> int:
        return self.device.free_bytes()

    def distributed(self, problem):
        from drbench.device.matrix import device_matrices

        return device_matrices(problem, self._topology, self.device, self._choice, self._direct)

    def fill(self, tile, fill, matrix: str, row0: int, col0: int) -> None:
        self.device.fill(tile, fill, matrix, row0, col0)

    def executor(self, trace, matrices, prefetch, clock):
        from drbench.device.executor import DeviceExecutor

        collectives = None
        if self._nccl:
            collectives = self._nccl_group
        return DeviceExecutor(
            trace,
            matrices,
            self.device,
            prefetch=prefetch,
            get=self._case.get,
            max_gemms=self._case.max_gemms or 1,
            max_accumulates=self._case.max_accumulates or 1,
            collectives=collectives,
        )

    def _nccl_group(self, group):
        """NCCL among the members of a process row or column, made once."""
        from drbench.device.gpu.nccl import nccl_group

        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = nccl_group(self._topology.group(group), self.device)
        return found

    def peak(self) -> dict:
        """Most device memory that a rank has held; nothing where the device's memory is the
        host's."""
        held = self.device.peak_bytes
        return (
            {}
            if held is None
            else {"peak_device_bytes": self._topology.comm.allreduce(held, MPI.MAX)}
        )

    def close(self) -> None:
        for group in self._groups.values():
            group.close()
        self.work.close()
        self.device.close()


def _everywhere(comm: MPI.Comm, find):
    """The device that ``find()`` gives; if it is refused on one rank, all are (collective)."""
    found = reason = None
    try:
        found = find()
    except DrbenchError as error:
        reason = error.status, str(error)
    refused = [each for each in comm.allgather(reason) if each]
    if refused:
        if found is not None:
            found.close()
        raise UnsupportedError(refused[0][1])
    return found


@functools.cache
def _pools() -> threadpoolctl.ThreadpoolController:
    """The thread pools of this process. Looking for them costs a millisecond, and no case loads
    more."""
    load_blas()
    return threadpoolctl.ThreadpoolController()
