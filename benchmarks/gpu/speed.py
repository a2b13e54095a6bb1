"""The speed of GEMMs, copies and accumulates on one GPU, alone and at the same time, as JSON lines.
One process; ``python -m benchmarks gpu.speed``.
"""

import json

from drbench.arrays import numpy_type
from drbench.device.address import at_address
from drbench.device.gpu.cuda import cuda_device
from drbench.host.fill import Fill
from drbench.launch.ranks.gpu_timer import Timer

_EXTENT, _ROWS, _WIDTH = 8192, 32768, 8192
_ALL = 65535  # blocks: as many as there is work for


def emit(**values) -> None:
    print(json.dumps(values), flush=True)


def matrix(device, rows, cols, matrix=None, dtype="float32"):
    """A matrix on the device until that is closed, filled like A or B."""
    dtype = numpy_type(dtype)
    memory = device.allocate(rows * cols * dtype.itemsize)
    made = at_address(memory.address, rows * cols, dtype).reshape(rows, cols)
    if matrix:
        device.fill(made, Fill("integer", 0, _EXTENT), matrix, 0, 0)
    return made


#: arithmetic: (dtype of A and B, of C, --compute).
_ARITHMETIC = {
    "fp32": ("float32", "float32", "auto"),
    "tf32": ("float32", "float32", "tf32"),
    "bf16": ("bfloat16", "float32", "auto"),
    "fp64": ("float64", "float64", "auto"),
}
_SHAPES = [
    *((n, n, n) for n in (512, 1024, 2048, 4096, _EXTENT)),
    *((thin, _EXTENT, _EXTENT) for thin in (128, 256, 512, 1024)),
    *((_EXTENT, thin, _EXTENT) for thin in (128, 512, 1024)),
    *((_EXTENT, _EXTENT, thin) for thin in (128, 256, 512, 1024, 2048)),
    (2048, 2048, _EXTENT),
]


def peak_rates() -> dict[str, float]:
    """Unsplit GEMMs of every arithmetic, of parts of larger matrices such as tiles; the largest
    rate of each, in FLOP/s."""
    best = {}
    for kind, (dtype, result, compute) in _ARITHMETIC.items():
        device = cuda_device(0, 1, compute)
        stream, timer = device.stream("GEMMs", multiplies=True), Timer(device)
        whole = [matrix(device, _EXTENT, _EXTENT, name, dtype) for name in "AB"]
        into = matrix(device, _EXTENT, _EXTENT, dtype=result)
        for m, n, k in _SHAPES:
            a, b, c = whole[0][:m, :k], whole[1][:k, :n], into[:m, :n]
            took = timer.behind(lambda: device.gemm(a, b, c, 0.0, stream), stream)
            rate = 2 * m * n * k / took
            emit(kind="product", arithmetic=kind, m=m, n=n, k=k, tflops=rate / 1e12, us=took * 1e6)
            best[kind] = max(best.get(kind, 0.0), rate)
        device.close()
    return best


def transfers() -> None:
    """Copies and accumulates inside the device, whole and strided, without other work."""
    device = cuda_device(0, 1, accumulate_blocks=_ALL)
    stream, timer = device.stream("transfers"), Timer(device)
    source, target = (matrix(device, _ROWS, _WIDTH, name) for name in "AB")
    nbytes = source.nbytes
    plain = timer.behind(lambda: device.copy(target, source, stream), stream)
    emit(kind="copy", what="whole", gb_per_s=nbytes / plain / 1e9)
    left, right = target[:, : _WIDTH // 2], source[:, _WIDTH // 2 :]
    half = timer.behind(lambda: device.copy(left, right, stream), stream)
    rate = {"gb_per_s": right.nbytes / half / 1e9, "of_plain": plain / 2 / half}
    emit(kind="copy", what="half of each row", **rate)
    for rows, what in ((source, "vectors"), (source[:, 1:], "elements")):
        into = target[:, : rows.shape[1]]
        for kind, work in (("accumulate", device.accumulate), ("add", device.add)):
            took = timer.behind(lambda: work(into, rows, stream), stream)
            of_plain = plain * (rows.size / source.size) / took
            # an accumulate reads two elements and writes one, a copy reads one and writes one
            more = {"of_plain": of_plain, "of_memory": 1.5 * of_plain}
            emit(kind=kind, what=what, gb_per_s=rows.size * 4 / took / 1e9, **more)
    device.close()


def overlap() -> None:
    """A GEMM at the same time as accumulates of a limited grid: the hidden share of the shorter
    time, and the time of both over that of the GEMM with the whole device."""
    alone_s: dict[str, float] = {}
    for arithmetic in ("fp32", "tf32"):
        for blocks in (_ALL, 32, 16, 12, 8, 4):
            device = cuda_device(0, 1, _ARITHMETIC[arithmetic][2], blocks)
            one, other = device.stream("GEMMs", multiplies=True), device.stream("transfers")
            timer = Timer(device)
            a, b, c = (matrix(device, _EXTENT, _EXTENT, name) for name in ("A", "B", None))
            source, target = (matrix(device, _EXTENT, _WIDTH, name) for name in "AB")
            multiply = lambda: device.gemm(a, b, c, 0.0, one)
            add = lambda: device.accumulate(target, source, other)
            single, gemm_s = timer.seconds(add, other), timer.seconds(multiply, one)
            alone_s.setdefault(arithmetic, gemm_s)
            count = max(1, round(gemm_s / single))
            many = lambda: [add() for _ in range(count)]
            transfers = timer.seconds(many, other)
            device.reserve(one, True)
            both = timer.together(one, {one: multiply, other: many})
            alone = timer.seconds(multiply, one)
            emit(
                kind="overlap",
                what="accumulates",
                arithmetic=arithmetic,
                blocks=None if blocks == _ALL else blocks,
                gb_per_s=count * source.nbytes / transfers / 1e9,
                product_ms=alone * 1e3,
                product_alone_ms=alone_s[arithmetic] * 1e3,
                transfers_ms=transfers * 1e3,
                both_ms=both * 1e3,
                hidden=(alone + transfers - both) / min(alone, transfers),
            )
            device.close()


if __name__ == "__main__":
    emit(kind="peaks", **{kind: rate / 1e12 for kind, rate in peak_rates().items()})
    transfers()
    overlap()
