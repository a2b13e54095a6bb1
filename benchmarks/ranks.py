"""Starting benchmarks on ranks, one thread each."""

import subprocess
import sys

from launch.host.kernels import without_pins
from launch.host.mpi import mpiexec_command


def start(ranks: int, *words: str, env=None, **how) -> subprocess.CompletedProcess:
    """``python -m benchmarks WORDS`` on so many ranks."""
    environ = without_pins() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **(env or {})}
    python = [sys.executable, "-m", "mpi4py", "-m", "benchmarks", *words]
    return subprocess.run([*mpiexec_command(ranks), *python], env=environ, **how)
