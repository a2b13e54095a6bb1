"""Does MPI move device memory? One process sends to itself and reads through a window. Started by :mod:`launch.gpu_awareness`; it may crash."""

from __future__ import annotations

import sys


def main() -> int:
    import cupy
    from mpi4py import MPI
    from drbench.devices.address import at_address
    size = 1 << 18
    source, target = cupy.arange(size, dtype="f4"), cupy.zeros(size, "f4")
    cupy.cuda.Device().synchronize()
    sent, received = (at_address(array.data.ptr, size, "f4") for array in (source, target))
    MPI.COMM_SELF.Sendrecv([sent, size, MPI.FLOAT], 0, 0, [received, size, MPI.FLOAT], 0, 0)
    if not bool((source == target).all()):
        print("a message of device memory arrived wrong", file=sys.stderr)
        return 1
    target.fill(0)
    cupy.cuda.Device().synchronize()
    window = MPI.Win.Create(sent, 4, comm=MPI.COMM_SELF)
    window.Lock_all()
    window.Rget([received, size, MPI.FLOAT], 0).Wait()
    window.Unlock_all()
    window.Free()
    if not bool((source == target).all()):
        print("device memory read through a window was wrong", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
