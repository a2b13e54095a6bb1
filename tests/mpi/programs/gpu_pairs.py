"""The probe of pairs of GPUs on ranks whose CuPy is a fake (``fake_gpu.py``), with a fault; answers
its line.

``gpu_pairs.py LIBRARY FAULT HOW``: ``FAULT`` is one of :data:`FAULTS` or ``none``, ``HOW`` are
options of the fake for :func:`fake_cuda.shared_cupy`.
"""

import ctypes
import json
import sys
import time
from functools import partial

import numpy as np
from fake_cuda import CUDARuntimeError, memory, shared_cupy
from harness import ranks
from mpi4py import MPI

from drbench.device.gpu import cuda
from drbench.errors import CaseFailed
from drbench.launch.ranks import gpu_pairs

NBYTES = 1 << 18


def of_another(fake, address):
    """Whether an address is in memory of another rank."""
    return any(
        block.ctypes.data <= address < block.ctypes.data + block.nbytes
        for block in fake.runtime.opened.values()
    )


def copies(fake):
    """One byte of every copy out of another rank's memory is wrong."""
    right = fake.runtime.memcpyAsync

    def wrong(target, source, size, kind, stream):
        right(target, source, size, kind, stream)
        if of_another(fake, source):
            memory(target, size)[size // 2] ^= 1

    fake.runtime.memcpyAsync = wrong


def rows(fake):
    """The copy engine, which copies all rows, drops the last one."""
    cuda.CudaDevice._compared_rows = lambda *_: 0
    right = fake.runtime.memcpy2DAsync

    def wrong(*words):
        right(*words[:5], words[5] - 1, *words[6:])

    fake.runtime.memcpy2DAsync = wrong


def adds(fake):
    """Additions are not atomic: what others add meanwhile is lost."""
    library, right = fake.raw_module.library, fake.raw_module.library.launch_at

    def wrong(name, grid, block, pointers, sizes=None):
        if name.startswith("accumulate"):
            cell = lambda x: ctypes.cast(pointers[x], ctypes.POINTER(ctypes.c_int64))[0]
            target = memory(cell(0), cell(4) * cell(5) * 16).view(np.float32)
            before = target.copy()
            time.sleep(1e-3)
            target[:] = before
        right(name, grid, block, pointers, sizes)

    library.launch_at = wrong


def flags(fake, release=True):
    """No flag arrives at another rank; streams wait, and hosts do not. Without ``release`` a rank's
    own flags do not arrive either, after the test of them when a device is made."""
    waits, driver = [], fake.driver
    right = driver.cuStreamWriteValue32_v2

    def write(stream, address, value, flags):
        if of_another(fake, address.value) or not (release or value.value == 1):
            return 0
        return right(stream, address, value, flags)

    def wait(stream, address, value, flags):
        waits.append((address.value, value.value))
        return 0

    def query(event):
        late = lambda address, value: memory(address, 4).view(np.uint32)[0] < value
        waits[:] = [each for each in waits if late(*each)]
        return 600 * bool(waits)

    driver.cuStreamWriteValue32_v2, driver.cuStreamWaitValue32_v2 = write, wait
    fake.runtime.eventQuery = query


def ipc(fake):
    """CUDA opens no memory of other processes."""

    def refuse(handle):
        raise CUDARuntimeError(217)

    fake.runtime.ipcOpenMemHandle = refuse


def crash(fake):
    """An error of CUDA, in copies of rank 1 out of another rank's memory."""
    right = fake.runtime.memcpyAsync

    def fail(target, source, *words):
        if MPI.COMM_WORLD.rank and of_another(fake, source):
            raise CUDARuntimeError(700)
        right(target, source, *words)

    fake.runtime.memcpyAsync = fail


def no_fill(fake):
    """Rank 1 cannot fill its memory."""

    def fail(*words):
        raise CaseFailed("cannot fill")

    if MPI.COMM_WORLD.rank:
        cuda.CudaDevice.fill = fail


FAULTS = {each.__name__: each for each in (copies, rows, adds, flags, ipc, crash, no_fill)}
FAULTS |= {"none": lambda fake: None, "stuck": partial(flags, release=False)}


def main():
    library, fault, how = sys.argv[1:]
    how = json.loads(how)
    with ranks() as comm, shared_cupy(library, **how) as left:
        fake = cuda._import_cupy()
        FAULTS[fault](fake)
        gpu_pairs.main(NBYTES)
        assert left() == 0
        written = {number for what, _, number in fake.driver.calls if what == "write"}
        if fault == "none" and how == {"devices": comm.size}:  # no number twice, in both directions
            assert written == {*range(1, 51)}


if __name__ == "__main__":
    main()
