"""``--backend cupy`` on ranks whose CuPy is a fake: device memory is shared memory that other ranks
open by its handle, kernels are those of ``kernels.cu`` compiled for the host, cuBLAS reads the
addresses it is given. Answers the records of the cases.

``fake_gpu.py LIBRARY FILE``
"""

import json
import mmap
import os
import sys

import fake_cuda
import numpy as np
from harness import answer, ranks

import drbench.device.gpu.cuda as cuda
import drbench.device.gpu.ipc as ipc
from drbench.device.gpu.cuda_stream import Modules
from launch.ranks.case import Case, run_case


class SharedRuntime(fake_cuda.FakeRuntime):
    """Allocations are files in memory, and a handle is the name of one."""

    def __init__(self, rank, **options):
        super().__init__(**options)
        self.rank, self.files, self.mapped = rank, 0, {}

    def malloc(self, size):
        self.files += 1
        path = f"/dev/shm/drbench-fake-gpu-{os.getpid()}-{self.files}"
        with open(path, "wb+") as file:
            file.truncate(size)
            block = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        block[:] = 0xA5
        address = block.ctypes.data
        self.allocations[address], self.used = (block, size), self.used + size
        self.mapped[address] = path
        return address

    def free(self, address):
        os.unlink(self.mapped.pop(address))
        self.used -= self.allocations.pop(address)[1]

    def ipcGetMemHandle(self, address):
        return self.mapped[address].encode().ljust(64, b"\0")

    def ipcOpenMemHandle(self, handle):
        path = handle.rstrip(b"\0").decode()
        with open(path, "rb+") as file:
            block = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        self.opened[block.ctypes.data] = block
        return block.ctypes.data

    def ipcCloseMemHandle(self, address):
        del self.opened[address]


def main():
    library, path = sys.argv[1:]
    with open(path) as file:
        cases = json.load(file)
    with ranks() as comm:
        fake = fake_cuda.FakeCupy(fake_cuda.Library(library), devices=2)
        fake.runtime = SharedRuntime(comm.rank, devices=2)
        fake.cublas.runtime = fake.module.runtime = fake.cuda.runtime = fake.runtime
        without_peers = [case.pop("no_peers", False) for case in cases]  # of every case
        without_atomics = [case.pop("no_atomics", False) for case in cases]
        fake.runtime.peers, atomics = not any(without_peers), not any(without_atomics)
        ipc.Peers.__init__.__defaults__ = (lambda device, peer: atomics,)
        cuda._import_cupy = lambda: Modules(fake.cuda, fake.runtime, fake.cublas, fake.module)
        records = [
            run_case(Case(backend="cupy", iters=1, budget=0, warmup=0, **case), comm)
            for case in cases
        ]
        left = comm.allreduce(
            len(fake.runtime.allocations) + len(fake.runtime.opened) + fake.cublas.handles
        )
        answer(comm, {"records": [record.to_json_dict() for record in records], "left": left})


if __name__ == "__main__":
    main()
