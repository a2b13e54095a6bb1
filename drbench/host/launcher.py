"""What is known and decided before MPI starts: the launcher of this process, the settings of MPI,
and whether it can start; and how ranks end, so that the launcher passes on their last messages.
Imports no MPI, which mpi4py starts when it is imported."""

import ctypes
import fcntl
import os
import re
import shlex
import stat
import struct
import sys
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from drbench.errors import MissingError, OutOfMemory

#: Folder of the shared memory of a node's windows.
SHARED_MEMORY = "/dev/shm"
#: (size, rank) variables of the launchers: MPICH and its kin, Open MPI, MVAPICH, Cray PALS, Flux.
_VARIABLES = [
    ("PMI_SIZE", "PMI_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("PALS_SIZE", "PALS_RANKID"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
]
#: Those of torchrun, where it has set the third; that of Slurm.
_TORCHRUN = ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID")
SLURM = "SLURM_STEP_NUM_TASKS"
#: Variable for ranks that drbench itself started, with their number.
OURS = "DRBENCH_RANKS"
#: Steps from here on are batch scripts and shells of salloc (Slurm's SLURM_MAX_NORMAL_STEP_ID).
_FIRST_PSEUDO_STEP = 0xFFFFFFF0
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

#: How long a launcher may take to read what a rank has written, and to forward it.
_READ_S, _PASSED_ON_S = 10.0, 0.1
#: Seconds that MPI may take to end all ranks.
_ABORT_S = 5.0


@dataclass(frozen=True)
class Launched:
    """The environment variables of a launcher in this process."""

    size: int
    rank: int
    variable: str


def launched(environ=os.environ) -> Launched | None:
    """The number of ranks of the launcher and this rank; None without a launcher.

    Examples
    --------
    >>> launched({"PMI_SIZE": "4", "PMI_RANK": "2"})
    Launched(size=4, rank=2, variable='PMI_SIZE')
    >>> launched({}) is None
    True
    """
    by_torchrun = [_TORCHRUN[:2]] if _TORCHRUN[2] in environ else []
    for size, rank in _VARIABLES + by_torchrun:
        if environ.get(size, "").isdigit() and environ.get(rank, "").isdigit():
            return Launched(int(environ[size]), int(environ[rank]), size)
    if in_slurm_step(environ) and "SLURM_PROCID" in environ:
        size = environ.get(SLURM, environ.get("SLURM_NTASKS", "1"))
        return Launched(int(size), int(environ["SLURM_PROCID"]), SLURM)
    return None


def started_by_us() -> int:
    """The number of ranks that drbench started, if this is one of them, even if its launcher sets
    no variables; else 0."""
    return int(os.environ.get(OURS, 0))


def in_slurm_step(environ) -> bool:
    """Whether a process is in a step of srun, not in a batch script or a shell of salloc."""
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
    return step.isdigit() and int(step) < _FIRST_PSEUDO_STEP


def refuse_strangers(library: str, size: int | None = None) -> None:
    """Refuse to run on if a launcher has started several ranks of which each sees only itself.

    Parameters
    ----------
    library : str
        The MPI library, by name and version.
    size : int, optional
        The number of ranks that it sees; unknown before it starts.

    Raises
    ------
    MissingError
    """
    here = launched()
    if here is None:
        return
    # these may abort when they start
    aborts = here.variable.startswith("OMPI_") and library.startswith("MPICH")
    aborts |= size is None and lacks_pmi(library)
    if aborts or (size == 1 < here.size):
        raise MissingError(mismatch_message(here, library))


def lacks_pmi(library: str, environ=os.environ) -> bool:
    """Whether this MPI cannot connect to the srun that has started it, and would abort with code 1:
    Open MPI without PMIx, unless it was built with Slurm's PMI.

    Examples
    --------
    >>> step = {"SLURM_STEP_NUM_TASKS": "2"}
    >>> lacks_pmi("Open MPI v5", step), lacks_pmi("Open MPI v5", step | {"PMIX_RANK": "0"})
    (True, False)
    """
    connected = "PMIX_RANK" in environ or "OMPI_COMM_WORLD_RANK" in environ
    if connected or SLURM not in environ or not library.startswith("Open MPI"):
        return False
    match = re.search(r"(/.*)/libmpi\.so", Path("/proc/self/maps").read_text(encoding="utf-8"))
    return not (match and any(Path(match[1], "openmpi").glob("**/mca_pmix_s[12].so")))


def mismatch_message(here: Launched, library: str) -> str:
    """The error message for a launcher that started several ranks which see only themselves."""
    chosen, sibling = os.environ.get("MPI4PY_LIBMPI"), Path(sys.executable).parent / "mpiexec"
    started = (
        f"the launcher started {here.size} ranks ({here.variable}={here.size}) but the MPI "
        f"library here ({library}) would see only 1: "
    )
    if here.variable == _TORCHRUN[0]:
        program = shlex.join(sys.argv) if sys.argv[0] else "train.py"
        return (
            f"{started}torchrun starts no ranks of MPI. Use: mpiexec -n {here.size} python "
            f"{program}"
        )
    if here.variable == SLURM:
        return (
            f"{started}srun does not know the MPI that it starts. Add --mpi=pmi2 (MPICH) or "
            "--mpi=pmix (Open MPI) to srun, in a machine file to launch.launcher, or set "
            "SLURM_MPI_TYPE; srun --mpi=list shows the choices."
        )
    start = "Use the mpiexec of that library"
    if chosen:
        start = f"Use the mpiexec that belongs to MPI4PY_LIBMPI={chosen}"
    elif sibling.exists():
        start = f"Start with {sibling}"
    return (
        f"{started}launcher and library belong to different MPIs. {start}, or point "
        "MPI4PY_LIBMPI at your launcher's libmpi."
    )


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
    ranks = max(int(os.environ.get(name) or 1) for name in _ON_NODE)
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
    reads, number = getattr(ctypes.CDLL(None), "process_vm_readv", None), ctypes.c_int()
    part = (ctypes.c_void_p * 2)(ctypes.addressof(number), 4)
    if reads and reads(os.getpid(), part, 1, part, 1, 0) < 0:
        return False
    users = lambda pid: os.path.basename(os.path.realpath(f"/proc/{pid}/ns/user"))
    return users("self") in (_FIRST_USERS, users(os.getppid()))


def shared_memory_free() -> int | None:
    """Bytes free in the shared memory of a node's windows; None if that folder does not exist."""
    if not os.path.isdir(SHARED_MEMORY):
        return None
    space = os.statvfs(SHARED_MEMORY)
    return space.f_bavail * space.f_frsize


def until_heard() -> None:
    """Wait until the launcher has read what this rank wrote: output that it has not read when it
    ends all ranks is lost. Only a pipe reports how many bytes are unread; its reader gets a moment
    to forward them."""
    sys.stderr.flush()
    end = time.monotonic() + _READ_S
    while _unread(1) + _unread(2) and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(_PASSED_ON_S)


def end_ranks(comm, code: int) -> None:
    """End all ranks with an exit code, once the launcher has read what this one wrote; this rank
    alone if MPI does not: a hanging call may hold its lock."""
    until_heard()
    last = threading.Timer(_ABORT_S, os._exit, [code])
    last.daemon = True
    last.start()
    comm.Abort(code)
    os._exit(code)  # MPICH may return from it


def _unread(handle: int) -> int:
    """Unread bytes in a pipe; 0 for any other file.

    Examples
    --------
    >>> ours, theirs = os.pipe()
    >>> os.write(theirs, b"some"), _unread(theirs), os.read(ours, 4), _unread(theirs)
    (4, 4, b'some', 0)
    >>> os.close(ours), os.close(theirs)
    (None, None)
    """
    try:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            return 0
        return struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, b"    "))[0]
    except OSError:  # it was closed, or cannot tell
        return 0
