"""Check whether MPI reads and writes GPU memory: query MPI, then test it in a process that may
crash."""

import ctypes
import functools

from mpi4py import MPI

from drbench.host.topology import start_mpi
from drbench.launch.host.leftovers import mapped_files
from drbench.launch.host.processes import run_alone


@functools.cache
def mpi_moves_devices() -> tuple[bool, str]:
    """(whether MPI moves device memory, the evidence or the reason), for one process."""
    reported, how = mpi_reports()
    return try_it() if reported else (False, how)


def mpi_reports() -> tuple[bool, str]:
    """The report of MPI itself: ``mpi_memory_alloc_kinds`` (MPI 4.1), else
    ``MPIX_Query_cuda_support``. It is no proof that CUDA works."""
    start_mpi()
    info = MPI.COMM_WORLD.Get_info()
    kinds = info.Get("mpi_memory_alloc_kinds") or ""
    info.Free()
    if "cuda" in kinds:
        return True, f"mpi_memory_alloc_kinds is {kinds}"
    query = _find("MPIX_Query_cuda_support")
    if query is None:
        return (
            False,
            "MPI does not report that it reads device memory (neither mpi_memory_alloc_kinds nor "
            "MPIX_Query_cuda_support)",
        )
    able = bool(query())
    return able, f"MPIX_Query_cuda_support returns {'yes' if able else 'no'}"


def _find(name: str):
    """A function of the MPI library of this process, or None. mpi4py loads the library privately,
    so it is searched among the mapped files."""
    files = sorted(path for path in mapped_files() if "/libmpi" in path)
    functions = (getattr(ctypes.CDLL(path), name, None) for path in files)
    return next(filter(None, functions), None)


def try_it(*words: str) -> tuple[bool, str]:
    """Send device memory to this rank and read it through a window, in a separate process, which a
    wrong build may crash; ``words`` replace the arguments of Python."""
    _, failure = run_alone(*(words or ("-m", "drbench.launch.ranks.gpu_selftest")))
    if failure:
        return False, f"the self-test of MPI on device memory {failure}"
    return True, "device memory was sent and read through a window in a self-test"
