"""What launching costs: the executor of devices on one that does nothing, for each product of a
program on one rank. ``python -m benchmarks gpu.device_executor``."""

import time

from mpi4py import MPI

from algorithms import get_algorithm
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import device_matrices
from drbench.device.threads import HostDevice, HostStream
from drbench.host.topology import Topology


class IdleStream(HostStream):
    """Forgets what it is given."""

    def __init__(self):
        self._failure = None

    def put(self, call=None):
        pass

    wait = synchronise = close = put

    def record(self, event):
        event.mark = None


class IdleDevice(HostDevice):
    poisons = False

    def stream(self, name, multiplies=False):
        return IdleStream()

    def gemm(self, a, b, c, beta, stream, alpha=1.0):
        pass


def microseconds(tile: int, n: int) -> tuple[int, float]:
    """Products of an n³ problem in square tiles, and microseconds of the host for each, the best of
    20 runs."""
    comm, algorithm = MPI.COMM_WORLD, get_algorithm("universal")
    options = algorithm.pick({"stationary": "C", "chunk": "none"})
    problem = algorithm.problem(n, n, n, 1, *[f"tiles:{tile}x{tile}@1x1"] * 3, **options)
    trace = algorithm.trace(problem, 0, **algorithm.resolve(problem, False, **options))
    with Topology(comm) as topology:
        device = IdleDevice(0, 0)
        best, products = float("inf"), sum(step.computes for step in trace.steps)
        with (
            device_matrices(problem, topology, device) as matrices,
            DeviceExecutor(trace, matrices) as executor,
        ):
            for _ in range(20):
                executor.prepare()
                start = time.perf_counter()
                executor.run()
                best = min(best, time.perf_counter() - start)
    return products, 1e6 * best / products


if __name__ == "__main__":
    for tile, n in ((2048, 8192), (256, 2048)):
        products, cost = microseconds(tile, n)
        print(
            f"{n}^3 in tiles of {tile}^2: {products} products, {cost:.1f} us each, without the "
            "call of cuBLAS"
        )
