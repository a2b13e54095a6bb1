"""What the cores multiply at most: the best of some GEMM shapes, all ranks at once, each on one
thread.

No compiler may be at hand for a loop of dependent FMAs, and what no GEMM of this library reaches is
no peak that a run could come near; so the fastest shape counts, which is a lower bound of what the
hardware can. ``python -m launch.ranks.peak DTYPES SECONDS`` prints it as one line of JSON.
"""

import json
import statistics
import sys
from math import prod

import numpy as np
import threadpoolctl

from drbench.common import Clock
from drbench.host.blas import Blas, load_blas
from drbench.measure.roof import timed

#: Local GEMMs, (m, n, k): square and flat ones, where libraries come nearest their peak.
SHAPES = (
    (512, 512, 512),
    (1024, 1024, 512),
    (1024, 1024, 1024),
    (2048, 512, 512),
    (512, 512, 2048),
)
#: Samples of each at least, whatever they take: one agrees with itself.
LEAST_SAMPLES = 3


def best_gemm(comm, blas: Blas, dtype: str, budget_s: float) -> dict:
    """The best sample of the best shape, in GFLOP/s of all ranks together, the median of that
    shape, and the share of its core that the rank with the least of it had (collective)."""
    rng, found, start = np.random.default_rng(comm.rank), [], Clock.now()
    operands = {
        (m, n, k): [rng.random(size).astype(dtype) for size in ((m, k), (k, n), (m, n))]
        for m, n, k in SHAPES
    }
    multiply = lambda shape: timed(comm, lambda: blas.gemm(*operands[shape], 0.0))
    while comm.bcast(len(found) <= LEAST_SAMPLES or Clock.now() - start < budget_s):
        found.append({shape: multiply(shape) for shape in SHAPES})
    samples = found[1:]  # the first touch memory and wake threads
    best = min(SHAPES, key=lambda shape: min(each[shape].seconds for each in samples) / prod(shape))
    rates = [comm.size * 2e-9 * prod(best) / each[best].seconds for each in samples]
    return {
        "gflops": max(rates),
        "median_gflops": statistics.median(rates),
        "core_share": 1 - statistics.median(each[best].lost for each in samples),
    }


def main() -> None:
    from mpi4py import MPI

    comm, dtypes, seconds = MPI.COMM_WORLD, sys.argv[1].split(","), float(sys.argv[2])
    with threadpoolctl.threadpool_limits(1):
        found = {dtype: best_gemm(comm, load_blas(), dtype, seconds) for dtype in dtypes}
    if comm.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
