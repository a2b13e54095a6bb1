"""How fast one GPU multiplies, copies and adds, alone and beside each other, as JSON lines. One
process; ``python -m benchmarks.gpu_speed``.

``python -m benchmarks.gpu_speed peers`` under mpiexec: copies from, and adds into, another rank's
memory.
"""

import json
import statistics
import sys

import numpy as np

from drbench.common import numpy_type
from drbench.device.address import at_address
from drbench.device.gpu.cuda import CudaDevice, cuda_device
from drbench.host.fill import Fill

_EXTENT, _ROWS, _WIDTH = 8192, 32768, 8192


def say(**values) -> None:
    print(json.dumps(values), flush=True)


class Timer:
    """Times work on streams of a device, by events on them."""

    def __init__(self, device: CudaDevice):
        self.device, self.zero, self.one = (
            device,
            device.event(timed=True),
            device.event(timed=True),
        )

    def seconds(self, work, stream, repeats: int = 7) -> float:
        """Median of ``work()``, all of which goes to ``stream``, after two runs to warm up."""
        found = []
        for _x in range(repeats + 2):
            stream.record(self.zero)
            work()
            stream.record(self.one)
            self.one.synchronise()
            found.append(self.one.seconds_since(self.zero))
        return statistics.median(found[2:])

    def together(self, works: list, start, end) -> float:
        """Median of all ``works`` (pairs of a stream and a function) begun at once: from before the
        first to after the last."""
        found = []
        for _x in range(7):
            self.device.synchronise()
            start.record(self.zero)
            for stream, work in works:
                stream.wait(self.zero)
                work()
                done = self.device.event()
                stream.record(done)
                end.wait(done)
            end.record(self.one)
            self.one.synchronise()
            found.append(self.one.seconds_since(self.zero))
        return statistics.median(found[2:])


def matrix(device, memories, rows, cols, dtype="float32", matrix=None):
    """A matrix on the device, filled like A or B."""
    dtype = numpy_type(dtype)
    memories.append(device.allocate(rows * cols * dtype.itemsize))
    made = at_address(memories[-1].address, rows * cols, dtype).reshape(rows, cols)
    if matrix:
        device.fill(made, Fill("integer", 0, _EXTENT), matrix, 0, 0)
    return made


def products() -> dict[str, float]:
    """Unsplit products of every arithmetic; the largest rate of each, in FLOP/s."""
    best = {}
    for kind, dtype, compute in (
        ("fp32", "float32", "auto"),
        ("tf32", "float32", "tf32"),
        ("bf16", "bfloat16", "auto"),
        ("fp64", "float64", "auto"),
    ):
        device, memories = cuda_device(0, 1, compute), []
        stream, timer = device.stream("products"), Timer(device)
        for n in (4096, _EXTENT):
            a, b = (matrix(device, memories, n, n, dtype, name) for name in "AB")
            c = matrix(device, memories, n, n, "float32" if dtype == "bfloat16" else dtype)
            rate = 2 * n**3 / timer.seconds(lambda: device.gemm(a, b, c, 0.0, stream), stream)
            say(kind="product", arithmetic=kind, n=n, tflops=rate / 1e12)
            best[kind] = max(best.get(kind, 0.0), rate)
            for memory in memories:
                memory.free()
            memories.clear()
        device.close()
    return best


def transfers() -> None:
    """Copies and accumulates inside the device, whole and strided."""
    device, memories = cuda_device(0, 1), []
    stream, timer = device.stream("transfers"), Timer(device)
    source, target = (matrix(device, memories, _ROWS, _WIDTH, matrix=name) for name in "AB")
    nbytes = source.nbytes
    plain = timer.seconds(lambda: device.copy(target, source, stream), stream)
    say(kind="copy", what="whole", gb_per_s=nbytes / plain / 1e9)
    half = timer.seconds(
        lambda: device.copy(target[:, : _WIDTH // 2], source[:, _WIDTH // 2 :], stream), stream
    )
    say(
        kind="copy",
        what="half of each row",
        gb_per_s=nbytes / 2 / half / 1e9,
        of_plain=plain / 2 / half,
    )
    for rows, what in ((source, "vectors"), (source[:, 1:], "elements")):
        into = target[:, : rows.shape[1]]
        took = timer.seconds(lambda: device.accumulate(into, rows, stream), stream)
        say(
            kind="accumulate",
            what=what,
            blocks=None,
            gb_per_s=rows.size * 4 / took / 1e9,
            of_plain=plain * (rows.size / source.size) / took,
        )
    for memory in memories:
        memory.free()
    device.close()


def overlap() -> None:
    """A product beside copies, and beside accumulates of a limited grid: how much of the shorter
    time is hidden."""
    for blocks in (None, 64, 32, 16, 8):
        device, memories = cuda_device(0, 1, "tf32", blocks), []
        one, other, timer = device.stream("products"), device.stream("transfers"), Timer(device)
        a, b = (matrix(device, memories, _EXTENT, _EXTENT, matrix=name) for name in "AB")
        c = matrix(device, memories, _EXTENT, _EXTENT)
        source, target = (matrix(device, memories, _ROWS, _WIDTH, matrix=name) for name in "AB")
        multiply = lambda: device.gemm(a, b, c, 0.0, one)
        for what, work in (
            ("copies", lambda: device.copy(target, source, other)),
            ("accumulates", lambda: device.accumulate(target, source, other)),
        ):
            if what == "copies" and blocks is not None:
                continue
            alone, product = timer.seconds(work, other), timer.seconds(multiply, one)
            count = max(1, round(product / alone))
            many = lambda: [work() for _ in range(count)]
            alone = timer.seconds(many, other)
            both = timer.together([(one, multiply), (other, many)], one, one)
            say(
                kind="overlap",
                what=f"a product beside {count} {what}",
                blocks=blocks,
                product_ms=product * 1e3,
                transfers_ms=alone * 1e3,
                both_ms=both * 1e3,
                hidden=(product + alone - both) / min(product, alone),
            )
        for memory in memories:
            memory.free()
        device.close()


def peers() -> None:
    """Every rank copies from, and adds into, the next rank's memory: first one of them alone, then
    all at once."""
    from mpi4py import MPI

    from drbench.device.matrix import device_windows
    from drbench.host.topology import Topology

    comm = MPI.COMM_WORLD
    with Topology(comm) as topology:
        device, memories = cuda_device(topology.node.rank, topology.node.size), []
        size = 16384 * _WIDTH
        window = device_windows(topology, device, {"C": (size, np.dtype(np.float32))})["C"]
        stream, timer, right = device.stream("peers"), Timer(device), (comm.rank + 1) % comm.size
        own, far = matrix(device, memories, 16384, _WIDTH, matrix="A"), window.in_reach[right]
        works = dict.fromkeys(("plain copy", "get", "accumulate"))
        if far is None:
            say(kind="peer", rank=comm.rank, reached=False)
        else:
            far, mine = (
                far.reshape(16384, _WIDTH),
                window.in_reach[comm.rank].reshape(16384, _WIDTH),
            )
            works |= {
                "plain copy": lambda: device.copy(mine, own, stream),
                "get": lambda: device.copy(own, far, stream),
                "accumulate": lambda: device.accumulate(far, own, stream),
            }
        for together in (False, True):
            for what, work in works.items():  # ranks that reach nobody come to the barriers too
                comm.Barrier()
                if work is not None and (together or comm.rank == 0):
                    say(
                        kind="peer",
                        what=what,
                        rank=comm.rank,
                        all_at_once=together,
                        gb_per_s=own.nbytes / timer.seconds(work, stream) / 1e9,
                    )
                comm.Barrier()
        for memory in memories:
            memory.free()
        window.close()
        device.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["peers"]:
        peers()
    else:
        say(kind="peaks", **{kind: rate / 1e12 for kind, rate in products().items()})
        transfers()
        overlap()
