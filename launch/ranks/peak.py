"""What the cores multiply at most: the best of many GEMM shapes, all ranks at once.

No compiler may be at hand for a loop of dependent FMAs, and what no GEMM of this library reaches is
no peak that a run could come near; so the fastest shape counts, which is a lower bound of what the
hardware can. ``python -m launch.ranks.peak DTYPES SECONDS`` prints it as one line of JSON.
"""

import json
import statistics
import sys
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import threadpoolctl

from drbench.host.blas import Blas, load_blas
from drbench.host.topology import Topology
from drbench.measure.noise import LEAST_SHARE
from drbench.measure.roof import timed
from launch.cases.case import Case
from launch.cases.peaks import Peak, Peaks

#: Local products, (m, n, k): square and flat ones, where libraries come nearest their peak.
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
#: Seconds a sweep spends on it for each element type.
BUDGET_S = 0.5
#: A shape this far below the best one is not tried again.
_CLOSE = 0.93
#: Samples that the best shape has at least, whatever they take: one agrees with itself.
LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Found:
    """What was found on all ranks together.

    Attributes
    ----------
    gflops : float
        Best sample of the best shape, all ranks together.
    median_gflops : float
        Median of the samples of that shape: how sure the best one is.
    samples : int
        Of all shapes.
    shape : tuple of int
    core_share : float
        The share of its core that the rank with the least of it had, median of the samples of that
        shape.
    """

    gflops: float
    median_gflops: float
    samples: int
    shape: tuple[int, int, int]
    core_share: float


def best_gemm(comm, blas: Blas, dtype: str, budget_s: float = BUDGET_S) -> Found:
    """Multiply in many shapes, all ranks at once, for about so many seconds (collective)."""
    rng, largest = np.random.default_rng(comm.rank), [max(axes) for axes in zip(*SHAPES)]
    most = largest[0] * max(largest[1:])
    a, b, c = (rng.random(most).astype(dtype) for _ in "ABC")
    samples: dict = {shape: [] for shape in SHAPES}
    lost: dict = {shape: [] for shape in SHAPES}
    spent, best, fastest = 0.0, 0.0, SHAPES[0]
    for turn, shape in enumerate(cycle((SHAPES[0], *SHAPES))):
        m, n, k = shape
        known, every_one_tried = samples[shape], turn > len(SHAPES)
        if every_one_tried and spent >= budget_s:
            if len(samples[fastest]) >= LEAST_SAMPLES:
                break
            if shape != fastest:
                continue
        if every_one_tried and max(known) < _CLOSE * best:
            continue
        operands = a[: m * k].reshape(m, k), b[: k * n].reshape(k, n), c[: m * n].reshape(m, n)
        took = timed(comm, lambda operands=operands: blas.gemm(*operands, 0.0))
        spent += took.seconds
        if turn:  # the first touches memory and wakes threads
            known.append(comm.size * 2e-9 * m * n * k / took.seconds)
            lost[shape].append(took.lost)
            if known[-1] > best:
                best, fastest = known[-1], shape
    found, every = samples[fastest], sum(map(len, samples.values()))
    share = 1 - statistics.median(lost[fastest])
    return Found(max(found), statistics.median(found), every, fastest, share)


def measured(comm, dtype: str, threads: int, budget_s: float = BUDGET_S) -> dict:
    """The peak of the ranks at hand, each on so many threads: ``rank_gflops``, ``source`` and how
    sure it is (collective)."""
    with threadpoolctl.threadpool_limits(threads):
        blas = load_blas()
        found = best_gemm(comm, blas, dtype, budget_s)
    share = found.core_share
    kept = f", ranks had {100 * share:.0f} % of their cores" if share < LEAST_SHARE else ""
    return {
        "rank_gflops": found.gflops / comm.size,
        "median_gflops": found.median_gflops / comm.size,
        "core_share": share,
        "source": f"measured: best of {len(SHAPES)} GEMM shapes on {comm.size} x {threads} threads "
        f"at once ({found.samples} samples{kept}), {blas.info.library}, {blas.info.kernel} kernels",
        "library": f"{blas.info.library}, {blas.info.kernel} kernels",
    }


def peaks_here(comm, case: Case) -> Peaks:
    """The peak for one case, measured on the ranks that will run it; none for devices, whose
    peak a machine file or ``--peak`` gives (collective)."""
    if case.backend != "numpy":
        return {}
    with Topology(comm) as topology:
        threads = case.threads or topology.cores_per_rank
    found = measured(comm, case.dtype, threads)
    return {case.dtype: Peak("rank", found["rank_gflops"], found["source"])}


def main() -> None:
    from mpi4py import MPI

    dtypes, seconds = sys.argv[1].split(","), float(sys.argv[2])
    found = {dtype: measured(MPI.COMM_WORLD, dtype, 1, seconds) for dtype in dtypes}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
