"""What is decided before MPI starts: its settings, and whether it can start. Imports no MPI, which
mpi4py starts when it is imported."""

import ctypes
import os

from drbench.common import SHARED_MEMORY
from drbench.errors import OutOfMemory

#: Settings of UCX for TCP, unless the environment has them: bytes that one system call, and one
#: progress call of MPI, may move. UCX's defaults are 8 KiB out and 64 KiB in.
TCP = {"UCX_TCP_TX_SEG_SIZE": "1M", "UCX_TCP_RX_SEG_SIZE": "1M"}
#: Setting of MPICH where a rank may not read the memory of another: MPICH finds that out in the
#: middle of its first large message only, and ends all ranks.
_NO_READS = {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}
_FIRST_USERS = "user:[4026531837]"  # the namespace of the machine, in every Linux
#: Shared memory that MPICH touches for each rank when it starts, without a check (1032 KiB).
_STARTS_IN = 1100 << 10
#: The ranks of a node, as launchers give them.
_ON_NODE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")


def prepare_mpi() -> None:
    """Set what MPI reads when it starts, unless the environment has it.

    Raises
    ------
    OutOfMemory
        If MPICH would crash for lack of shared memory.
    """
    _check_shared_memory()
    for name, value in (TCP | ({} if _reads_ranks() else _NO_READS)).items():
        os.environ.setdefault(name, value)


def _check_shared_memory() -> None:
    ranks = max(int(os.environ.get(name, "1")) for name in _ON_NODE)
    space = os.statvfs(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else None
    # other ranks may have taken their part already
    if space and (
        space.f_blocks * space.f_frsize < ranks * _STARTS_IN
        or space.f_bavail * space.f_frsize < _STARTS_IN
    ):
        raise OutOfMemory(
            f"MPI needs {ranks * _STARTS_IN >> 10} KiB of shared memory to start {ranks} ranks, "
            f"{SHARED_MEMORY} has {space.f_bavail * space.f_frsize >> 10} KiB free. Enlarge it: "
            f"mount -o remount,size=8G {SHARED_MEMORY} (containers: --shm-size=8g)."
        )


def _reads_ranks() -> bool:
    """Whether a rank may read the memory of another, as far as it finds out alone: it may read its
    own, and either is in no container, or in that of its launcher."""
    reads, one = getattr(ctypes.CDLL(None), "process_vm_readv", None), ctypes.c_int()
    part = (ctypes.c_void_p * 2)(ctypes.addressof(one), 4)
    if reads and reads(os.getpid(), part, 1, part, 1, 0) < 0:
        return False
    users = lambda pid: os.path.basename(os.path.realpath(f"/proc/{pid}/ns/user"))
    return users("self") in (_FIRST_USERS, users(os.getppid()))
