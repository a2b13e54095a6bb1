"""What the cores multiply at most: the best of many GEMM shapes, all ranks at once, each on one
thread.

No compiler may be at hand for a loop of dependent FMAs, and what no GEMM of this library reaches is
no peak that a run could come near; so the fastest shape counts, which is a lower bound of what the
hardware can. ``python -m launch.ranks.peak DTYPES SECONDS`` prints it as one line of JSON.
"""

import json
import statistics
import sys
from itertools import cycle

import numpy as np
import threadpoolctl

from drbench.host.blas import Blas, load_blas
from drbench.measure.roof import timed

#: Local GEMMs, (m, n, k): square and flat ones, where libraries come nearest their peak.
SHAPES = (
    (512, 512, 512),
    (768, 768, 768),
    (1024, 1024, 512),
    (1024, 1024, 1024),
    (2048, 512, 512),
    (512, 2048, 512),
    (512, 512, 2048),
    (2048, 1024, 1024),
    (2048, 2048, 1024),
)
#: A shape this far below the best one is not tried again.
_CLOSE = 0.93
#: Samples that the best shape has at least, whatever they take: one agrees with itself.
LEAST_SAMPLES = 3


def best_gemm(comm, blas: Blas, dtype: str, budget_s: float) -> dict:
    """The best sample of the best shape, in GFLOP/s of all ranks together, the median of that
    shape, and the share of its core that the rank with the least of it had (collective)."""
    rng, largest = np.random.default_rng(comm.rank), [max(axes) for axes in zip(*SHAPES)]
    most = largest[0] * max(largest[1:])
    a, b, c = (rng.random(most).astype(dtype) for _ in "ABC")
    samples: dict = {shape: [] for shape in SHAPES}
    lost: dict = {shape: [] for shape in SHAPES}
    spent, best, fastest = 0.0, 0.0, SHAPES[0]
    for turn, shape in enumerate(cycle((SHAPES[0], *SHAPES))):
        m, n, k = shape
        all_tried = turn > len(SHAPES)
        if all_tried and spent >= budget_s:
            if len(samples[fastest]) >= LEAST_SAMPLES:
                break
            if shape != fastest:
                continue
        if all_tried and max(samples[shape]) < _CLOSE * best:
            continue
        operands = a[: m * k].reshape(m, k), b[: k * n].reshape(k, n), c[: m * n].reshape(m, n)
        took = timed(comm, lambda operands=operands: blas.gemm(*operands, 0.0))
        spent += took.seconds
        if turn:  # the first touches memory and wakes threads
            rate = comm.size * 2e-9 * m * n * k / took.seconds
            samples[shape].append(rate)
            lost[shape].append(took.lost)
            if rate > best:
                best, fastest = rate, shape
    return {
        "gflops": best,
        "median_gflops": statistics.median(samples[fastest]),
        "core_share": 1 - statistics.median(lost[fastest]),
        "shape": fastest,
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
