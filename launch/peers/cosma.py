"""COSMA: its own benchmark program ``cosma_miniapp``, started on as many ranks; the times it prints
become a Record.

It fills its own matrices and prints whole milliseconds, sorted; C is not handed out, so nothing is
verified here, and the record says so in ``fill`` and leaves ``error`` empty.
"""

import os
import re
import shutil
import subprocess

from drbench.common import Clock
from drbench.errors import CaseFailed, UnsupportedError, UsageError
from drbench.host.cores import usable_cores
from drbench.measure.noise import is_noisy, time_columns
from drbench.measure.record import Record

from .base import Availability, Peer, Setting, layout_of_its_own
from .options import PEERS

_PROGRAM = "cosma_miniapp"
_GET = (
    "Build https://github.com/eth-cscs/COSMA (cmake -DCOSMA_BLAS=OPENBLAS -DCOSMA_SCALAPACK=OFF) "
    "with the MPI of drbench's mpiexec, "
    "and put cosma_miniapp on PATH."
)


def _available() -> Availability:
    path = shutil.which(_PROGRAM)
    if path is None:
        return Availability(False, f"no {_PROGRAM} on PATH", _GET)
    return Availability(True, path)


_layout = layout_of_its_own(
    "cosma chooses its own partitions", "Force its splits with --variant, such as sm2,pk2."
)


def _settings(nprocs: int) -> list[Setting]:
    """Its own choice; then one parallel split of each dimension."""
    return [
        Setting("its own choice", {}),
        *(
            Setting(f"p{axis}{nprocs}", {"options": {"variant": f"p{axis}{nprocs}"}})
            for axis in "mnk"
        ),
    ]


def read_times(text: str) -> list[float]:
    """Seconds of each repetition, from what cosma_miniapp prints.

    Raises
    ------
    CaseFailed
        If there is no line of times in it.

    Examples
    --------
    >>> read_times(
    ...     "Strategy = Matrix dimensions (m, n, k) = (64, 64, 64)\\nCOSMA TIMES [ms] = 12 13 \\n"
    ... )
    [0.012, 0.013]
    """
    found = re.search(r"COSMA TIMES \[ms\] =((?:\s+\d+(?:\.\d+)?)+)", text)
    if not found:
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise CaseFailed(f"{_PROGRAM} printed no times; its last line: {last[:200]}")
    return [float(word) / 1000 for word in found[1].split()]


def _launch(case, keys: dict, ranks: int, timeout: float | None = None) -> Record:
    """Run cosma_miniapp on that many ranks; the Record of what it printed."""
    from launch.host.mpi import mpiexec_command
    from launch.host.processes import running

    variant = PEER.pick(case.options).get("variant")
    if variant and not re.fullmatch(r"[sp][mnk]\d+(,[sp][mnk]\d+)*", variant):
        raise UsageError(
            f"--variant {variant!r} is no list of splits. Use s (sequential) or p (parallel), m, "
            "n or k, and a divisor: sm2,pk2."
        )
    command = [
        *mpiexec_command(ranks),
        _PROGRAM,
        "-m",
        case.m,
        "-n",
        case.n,
        "-k",
        case.k,
        "-r",
        case.iters + case.warmup,
        "-t",
        {"float32": "float", "float64": "double"}[case.dtype],
        *(["-s", variant] if variant else []),
    ]
    cores = usable_cores()
    threads = case.threads or max(1, cores // ranks)
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environ = {**os.environ, **dict.fromkeys(pools, str(threads))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with running(_PROGRAM, command, environ, **pipes) as process:
        text, _ = process.communicate(timeout=timeout)
    samples = read_times(text)[: case.iters]  # sorted: the slowest ones count as warm-up
    if not min(samples):
        raise UnsupportedError(
            "cosma_miniapp rounds to whole milliseconds and printed 0 for "
            f"{case.m}x{case.n}x{case.k}. Use a larger problem."
        )
    keys = keys | {
        "mode": "measured",
        "budget_s": 0.0,
        "ranks": ranks,
        "threads": threads,
        "fill": "its own",
        "dataflow": variant or "its own choice",
        "transport": "mpi",
        "backend": "cosma",
        "blas": "of cosma's build",
        "timestamp": Clock.date(),
    }
    # of its own making, or no question to it
    keys |= dict.fromkeys(("prefetch", "get", "progress", "seed", "a", "b", "c"))
    measured = time_columns(samples)
    return Record(
        **keys,
        status="ok",
        **measured,
        noisy=is_noisy(samples),
        oversubscribed=ranks * threads > cores,
        gflops=2 * case.m * case.n * case.k / measured["median_s"] / 1e9,
    )


PEER = Peer(
    "cosma",
    "COSMA's own benchmark program, on its own choice of partitions",
    _available,
    _settings,
    _layout,
    launch=_launch,
    options=PEERS["cosma"],
)
