"""Test whether MPI moves device memory: one process sends to itself and reads through a window.
Started by :mod:`drbench.launch.ranks.gpu_awareness`; it may crash."""

import sys


def main() -> None:
    import numpy as np

    from drbench.device.address import at_address
    from drbench.device.gpu.cuda import cuda_device
    from drbench.host.topology import MPI, start_mpi

    start_mpi()
    device = cuda_device(0, 1)
    size, stream = 1 << 18, device.stream("self-test")
    memory = device.allocate(8 * size)
    sent, received = (at_address(memory.address + place, size, "f4") for place in (0, 4 * size))
    numbers = device.allocate_host(4 * size).view("f4")
    numbers[:] = np.arange(size)
    device.copy(sent, numbers, stream)
    stream.synchronise()

    def check(transfer, wrong: str) -> None:
        device.zero(received.reshape(1, size), stream)
        stream.synchronise()
        transfer()
        if not (device.rows_of(received.reshape(1, size), np.arange(1)) == numbers).all():
            sys.exit(wrong)

    def send() -> None:
        MPI.COMM_SELF.Sendrecv([sent, size, MPI.FLOAT], 0, 0, [received, size, MPI.FLOAT], 0, 0)

    def read() -> None:
        window = MPI.Win.Create(sent, 4, comm=MPI.COMM_SELF)
        window.Lock_all()
        window.Rget([received, size, MPI.FLOAT], 0).Wait()
        window.Unlock_all()
        window.Free()

    check(send, "a message of device memory arrived wrong")
    check(read, "device memory read through a window was wrong")


if __name__ == "__main__":
    main()
