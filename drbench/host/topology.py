"""The ranks that share a node, and locks on its memory.

Locks are fcntl byte-range locks on one unlinked file under /dev/shm: a lock does not involve the
rank that owns the memory, costs about two microseconds, and the kernel releases it if its holder
dies. (``MPI.Win.Lock`` would wait for the target to enter MPI, which a computing rank does not.)
"""

import errno
import fcntl
import os
import tempfile
import threading
from functools import partial
from typing import Self

import numpy as np
from mpi4py import MPI

from drbench.errors import DrbenchError
from drbench.program.steps import Group

from .cores import CoreShare, occupancies
from .launcher import SHARED_MEMORY, TCP, prepare_mpi, refuse_strangers

_MPI_TYPES = {
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "complex64": MPI.C_FLOAT_COMPLEX,
    "complex128": MPI.C_DOUBLE_COMPLEX,
    "bfloat16": MPI.UINT16_T,
    "uint8": MPI.BYTE,
}
#: One owner's storage spans at most this many elements in the lock file's address space.
_OWNER_SPAN = 1 << 42


class ClosedTogether:
    """What all ranks close together, at the end of ``with``; also after an error that all ranks
    raise. After any other error one rank failed alone: the others do not close, and closing would
    wait for them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest) -> None:
        if kind is None or issubclass(kind, DrbenchError):
            self.close()
        else:
            self._let_go()

    def close(self) -> None:
        """Free it (collective)."""

    def _let_go(self) -> None:
        """Free what needs no other rank."""


class Topology(ClosedTogether):
    """The nodes of a communicator, according to MPI.

    Attributes
    ----------
    comm : MPI.Comm
        All ranks.
    node : MPI.Comm
        The ranks that share this rank's node.
    node_of : list of int
        For each rank, the lowest rank on its node.
    cores_per_rank : int
        Cores of a node, or of a machine of several (virtual ones, or containers), // ranks on it,
        at least 1; the smallest over all.
    locks : RangeLocks
        Of the tiles on this node.
    resources : dict
        Objects by key that take long to make, such as groups of NCCL; closed with this one.
    fastest_gemms : dict
        Fastest local GEMMs by problem, once they are known.
    """

    def __init__(self, comm: MPI.Comm):
        self.comm = comm
        self.node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        lowest, shares = zip(
            *comm.allgather((self.node.bcast(comm.rank), CoreShare.of_this_process()))
        )
        self.node_of: list[int] = list(lowest)
        kernels = [share.kernel for share in shares]
        self._occupancies = occupancies(lowest, shares) | occupancies(kernels, shares)
        self.cores_per_rank = min(max(1, cores // ranks) for ranks, cores in self._occupancies)
        self._groups: dict[Group, MPI.Comm] = {}
        self.resources: dict = {}
        self.fastest_gemms: dict = {}
        self.locks = RangeLocks(self.node)

    @property
    def nodes(self) -> int:
        """The number of nodes of the ranks."""
        return len(set(self.node_of))

    def oversubscribed(self, threads: int) -> bool:
        """Whether some node, or machine of several nodes, has fewer cores than threads, with
        ``threads`` for each of its ranks."""
        return any(ranks * threads > cores for ranks, cores in self._occupancies)

    def core_due(self, threads: int) -> float | None:
        """The share of a core that a rank with ``threads`` threads can have: 1 unless ranks share
        cores; None if threads of one rank share cores, too."""
        if not self.oversubscribed(threads):
            return 1.0
        return None if threads > 1 else min(cores / ranks for ranks, cores in self._occupancies)

    def group(self, group: Group) -> MPI.Comm:
        """The communicator of a process row or column; made once (collective over its members).

        A row and a column with the same members have different communicators.
        """
        comm = self._groups.get(group)
        if comm is None:
            chosen = self.comm.group.Incl(group.members)
            comm = self._groups[group] = self.comm.Create_group(chosen)
            chosen.Free()
        return comm

    def close(self) -> None:
        """Free all communicators made here, and the locks (collective)."""
        for resource in self.resources.values():
            resource.close()
        for comm in self._groups.values():
            comm.Free()
        self._groups.clear()
        self.locks.close()
        self.node.Free()


class RangeLocks:
    """Exclusive locks on element ranges of the storage of any rank of this node.

    Both methods raise RuntimeError if the kernel cannot lock: only this rank knows, and must end
    all ranks.

    Parameters
    ----------
    node : MPI.Comm
        Ranks that share the node; collective.
    """

    def __init__(self, node: MPI.Comm):
        path = None
        if node.rank == 0:
            folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
            # open from the start: no other run may take it for the file of a dead run
            self._file, path = tempfile.mkstemp(prefix="drbench-locks-", dir=folder)
        path = node.bcast(path)
        if node.rank:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        node.Barrier()
        if node.rank == 0:  # every rank has it open: the file is removed in any case
            os.unlink(path)
        self._thread = threading.Lock()  # fcntl locks belong to the process, not to the thread

    def try_acquire(self, owner: int, start: int, length: int) -> bool:
        """Lock elements [start, start + length) of ``owner``'s storage unless a part of them is
        locked."""
        return self._thread.acquire(blocking=False) and self._lock(
            fcntl.LOCK_EX | fcntl.LOCK_NB, owner, start, length
        )

    def acquire(self, owner: int, start: int, length: int) -> None:
        """Lock the range, sleeping in the kernel until it is free."""
        self._thread.acquire()
        self._lock(fcntl.LOCK_EX, owner, start, length)

    def _lock(self, how: int, owner: int, start: int, length: int) -> bool:
        """Lock the range and return True; if that fails, release the thread's lock."""
        try:
            fcntl.lockf(self._file, how, length, owner * _OWNER_SPAN + start)
            return True
        except OSError as error:
            self._thread.release()
            if error.errno in (errno.EAGAIN, errno.EACCES):  # another rank has locked a part
                return False
            raise RuntimeError(
                f"tiles cannot be locked: {error.strerror}. Use --transport rma, or let TMPDIR be "
                "on a file system that has locks left."
            ) from error

    def release(self, owner: int, start: int, length: int) -> None:
        """Unlock the range."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, length, owner * _OWNER_SPAN + start)
        self._thread.release()

    def close(self) -> None:
        """Close the file; any lock still held is released by the kernel."""
        os.close(self._file)


def start_mpi(comm: MPI.Intracomm | None = None) -> MPI.Intracomm:
    """Start MPI, unless it runs, with MPI_THREAD_MULTIPLE: below that MPICH's waits never yield the
    core, and a barrier of four ranks on two cores takes 10 ms instead of 20 us.

    Returns
    -------
    MPI.Comm
        ``comm``, or all ranks.

    Raises
    ------
    MissingError
        If a launcher has started several ranks of which MPI connects none. One that is to work
        alone gives MPI.COMM_SELF.
    OutOfMemory
        As of :func:`prepare_mpi`.
    """
    check = (
        partial(refuse_strangers, mpi_version()) if comm != MPI.COMM_SELF else lambda *size: None
    )
    if not MPI.Is_initialized():
        check()
        prepare_mpi()
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    check(MPI.COMM_WORLD.size)
    return MPI.COMM_WORLD if comm is None else comm


def tcp_settings() -> dict[str, tuple[str, str]]:
    """The settings of UCX for TCP after :func:`start_mpi`: for each variable its value, and the
    default of drbench. Empty if MPI is not built on UCX."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = "libucp" in maps.read()
    if not (loaded or "ucx" in MPI.Get_library_version().lower()):
        return {}
    return {name: (os.environ.get(name, ours), ours) for name, ours in TCP.items()}


def mpi_version() -> str:
    """Name and version of the MPI library, short."""
    line = MPI.Get_library_version().partition("\n")[0]
    return " ".join(line.replace("Version:", "").replace(",", " ").split()[:3])[:40]


def mpi_type(dtype: np.dtype) -> MPI.Datatype:
    """The MPI type of real and complex numbers; for bfloat16 and bytes a type of their bits, which
    MPI can move but not add (:func:`mpi_adds`)."""
    return _MPI_TYPES[dtype.name]


def mpi_adds(dtype: np.dtype) -> bool:
    """Whether MPI adds numbers of a type.

    Examples
    --------
    >>> mpi_adds(np.dtype("float32")), mpi_adds(np.dtype("uint8"))
    (True, False)
    """
    return dtype.kind in "fc"
