"""The processor, the BLAS kernels that this environment selects, and those that it could have.
Kernels are measured in separate processes."""

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .python import PYTHON

#: Environment variables that pin OpenBLAS to the kernels and cache sizes of an older processor.
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: Variables for one thread in every BLAS.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_PROBE = """
import json, sys, time, numpy, threadpoolctl
pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
a = numpy.ones((1024, 1024), sys.argv[1]); b = a.copy(); took = []
for _ in range(9):
    began, start = time.perf_counter(), time.thread_time(); a @ b
    took.append((time.thread_time() - start, time.perf_counter() - began))
kernel = pools[0].get("architecture") if pools else None
share = sum(cpu for cpu, total in took) / sum(total for cpu, total in took)
print(json.dumps([kernel or "unknown", 2 * 1024**3 / min(took)[0], min(1, share)]))
"""


@dataclass(frozen=True)
class KernelSpeed:
    """Kernel architecture, FLOP/s of one thread on a 1024³ GEMM per CPU second, and the share of
    its core that it had: less than 1 means that other work runs."""

    name: str
    flops_per_s: float
    core_share: float = 1.0


def processor_name() -> str:
    """The model of the processor, else its architecture."""
    named = re.search(
        r"^model name\s*:(.*)", Path("/proc/cpuinfo").read_text("utf-8", "replace"), re.MULTILINE
    )
    return named[1].strip() if named else platform.machine()


def pinned(environ=os.environ) -> dict[str, str]:
    """The pinning variables that are set, with their values."""
    return {name: environ[name] for name in PINS if environ.get(name)}


def without_pins() -> dict[str, str]:
    """A copy of the environment without the pinning variables."""
    return {name: value for name, value in os.environ.items() if name not in PINS}


def measure_kernels(environ=os.environ, dtype: str = "float32", processes: int = 1) -> KernelSpeed:
    """Measure NumPy on one thread in each of several Python processes with this environment, all at
    once: the mean rate, and the smallest share of a core."""
    environ = {**environ, **ONE_THREAD}
    command = [*PYTHON, "-c", _PROBE, dtype]
    probe = lambda _: subprocess.run(command, env=environ, capture_output=True, check=True).stdout
    with ThreadPoolExecutor(processes) as pool:
        names, rates, shares = zip(*map(json.loads, pool.map(probe, range(processes))))
    return KernelSpeed(names[0], statistics.mean(rates), min(shares))


def without_weaker_pins(print_line: Callable[[str], None]) -> dict[str, str]:
    """The environment for ranks on this machine: without pins to other, slower kernels than the
    best of its processor, which is reported in one line."""
    if pinned():
        now, free = measure_kernels(), measure_kernels(without_pins())
        if now.name != free.name and free.flops_per_s > 1.05 * now.flops_per_s:
            names = " and ".join(f"{name}={value}" for name, value in pinned().items())
            print_line(
                f"{names} holds this processor to {now.name} kernels "
                f"({now.flops_per_s / 1e9:.0f} GFLOP/s per thread); unset for this run: "
                f"{free.name} kernels reach {free.flops_per_s / 1e9:.0f} GFLOP/s"
            )
            return without_pins()
    return dict(os.environ)
