"""Rank 0's last GEMM on a device is long, and rank 1 reads a tile from rank 0 during it.
``late_reads.py SECONDS``, those of the GEMM, answers the seconds of rank 1's run."""

import sys
import time

from harness import answer, ranks, restored
from host_device import HostDevice

from drbench.algorithms import get_algorithm
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import device_matrices
from drbench.host.topology import Topology

LONG_S = float(sys.argv[1])
LATE_S = LONG_S / 10


class Late(DeviceExecutor):
    """Reads from remote ranks begin late."""

    original = DeviceExecutor._get_remote

    def _get_remote(self, *words):
        begin = time.monotonic()
        while time.monotonic() < begin + LATE_S * self.rank:
            self.comm.Iprobe()  # serves rank 0, whose read is not late
            yield
        yield from Late.original(self, *words)


def slow(gemm):
    """A GEMM of a device that takes long on its stream."""

    def on(a, b, c, beta, stream, alpha=1.0):
        stream.put(lambda: time.sleep(LONG_S))
        gemm(a, b, c, beta, stream, alpha)

    return on


def main() -> None:
    with ranks() as comm, Topology(comm) as topology, restored((DeviceExecutor, "_get_remote")):
        DeviceExecutor._get_remote = Late._get_remote
        algorithm, device = get_algorithm("universal"), HostDevice(comm.rank, 0)
        if comm.rank == 0:
            device.gemm = slow(device.gemm)
        problem = algorithm.problem(64, 64, 64, comm.size, "row", "row", "row")
        options = algorithm.resolve(problem, False, stationary="C")
        trace = algorithm.trace(problem, comm.rank, **options)
        with (
            device_matrices(problem, topology, device) as matrices,
            DeviceExecutor(trace, matrices) as executor,
        ):
            comm.Barrier()
            begin = time.monotonic()
            executor.run()
            seconds = comm.gather(time.monotonic() - begin)
            comm.Barrier()
        device.close()
        answer(comm, seconds and seconds[1])


if __name__ == "__main__":
    main()
