"""The speed of GEMMs, copies and accumulates on one GPU, alone and at the same time, as JSON lines;
``check`` has what is shown, the figure, its bar and whether that is met.
One process; ``python -m benchmarks gpu.speed``.
"""

import json

from drbench.arrays import numpy_type
from drbench.device.address import at_address
from drbench.device.gpu.cuda import cuda_device
from drbench.host.fill import Fill
from drbench.launch.ranks.gpu_timer import Timer

#: The extents of a GEMM and of a tile of one_rank.toml; rows and columns of what is moved.
_EXTENT, _TILE, _ROWS, _WIDTH = 8192, 2048, 32768, 8192
_ALL = 65535  # blocks: as many as there is work for


def emit(*check, **values) -> None:
    print(json.dumps(values | {"check": check} if check else values), flush=True)


def share_of(what: str, share: float, bar: float, gb_per_s: float) -> tuple:
    """The check of a share that is at least a bar."""
    return what, f"{share:.2f} ({gb_per_s:.0f} GB/s)", f">= {bar}", share >= bar


def matrix(device, rows, cols, matrix=None, dtype="float32"):
    """A matrix on the device until that is closed, filled like A or B."""
    dtype = numpy_type(dtype)
    memory = device.allocate(rows * cols * dtype.itemsize)
    array = at_address(memory.address, rows * cols, dtype).reshape(rows, cols)
    if matrix:
        device.fill(array, Fill("integer", 0, _EXTENT), matrix, 0, 0)
    return array


#: arithmetic: (dtype of A and B, of C, --compute).
_ARITHMETIC = {
    "fp32": ("float32", "float32", "auto"),
    "tf32": ("float32", "float32", "tf32"),
    "bf16": ("bfloat16", "float32", "auto"),
    "fp64": ("float64", "float64", "auto"),
}


def gemms() -> None:
    """Unsplit GEMMs of every arithmetic, of whole matrices and of parts such as tiles."""
    for kind, (dtype, result, compute) in _ARITHMETIC.items():
        device = cuda_device(0, 1, compute)
        stream, timer = device.stream("GEMMs", multiplies=True), Timer(device)
        whole = [matrix(device, _EXTENT, _EXTENT, name, dtype) for name in "AB"]
        whole.append(matrix(device, _EXTENT, _EXTENT, dtype=result))
        for n in (_TILE, _EXTENT):
            a, b, c = (operand[:n, :n] for operand in whole)
            took = timer.behind(lambda: device.gemm(a, b, c, 0.0, stream), stream)
            tflops = 2 * n**3 / took / 1e12
            check = (f"GEMM of {n} cubed, {kind}", f"{tflops:.1f} TFLOP/s", "", None)
            emit(*check, kind="product", arithmetic=kind, n=n, tflops=tflops)
        device.close()


def transfers() -> None:
    """Copies and accumulates inside the device, whole and strided, without other work."""
    device = cuda_device(0, 1, accumulate_blocks=_ALL)
    stream, timer = device.stream("transfers"), Timer(device)
    source, target = (matrix(device, _ROWS, _WIDTH, name) for name in "AB")
    plain = timer.behind(lambda: device.copy(target, source, stream), stream)
    emit(kind="copy", what="whole", gb_per_s=source.nbytes / plain / 1e9)
    left, right = target[:, : _WIDTH // 2], source[:, _WIDTH // 2 :]
    half = timer.behind(lambda: device.copy(left, right, stream), stream)
    rate = right.nbytes / half / 1e9
    emit(*share_of("strided copy / whole copy", plain / 2 / half, 0.9, rate))
    for kind, work, bar in (("accumulate", device.accumulate, 0.8), ("add", device.add, 0.9)):
        took = timer.behind(lambda: work(target, source, stream), stream)
        # an accumulate reads two elements and writes one, a copy reads one and writes one
        of_memory, what = 1.5 * plain / took, "memory, reading two and writing one"
        emit(*share_of(f"{kind} / {what}", of_memory, bar, source.nbytes / took / 1e9))
    device.close()


def overlap() -> None:
    """A GEMM at the same time as accumulates of a limited grid: the hidden share of the shorter
    time, and the time of both over that of the GEMM with the whole device."""
    alone_s: dict[str, float] = {}
    for arithmetic in ("fp32", "tf32"):
        for blocks in (_ALL, 32, 16, 12, 8, 4):
            device = cuda_device(0, 1, _ARITHMETIC[arithmetic][2], blocks)
            gemm_stream, other = device.stream("GEMMs", multiplies=True), device.stream("transfers")
            timer = Timer(device)
            a, b, c = (matrix(device, _EXTENT, _EXTENT, name) for name in ("A", "B", None))
            source, target = (matrix(device, _EXTENT, _WIDTH, name) for name in "AB")
            multiply = lambda: device.gemm(a, b, c, 0.0, gemm_stream)
            add = lambda: device.accumulate(target, source, other)
            single, gemm_s = timer.seconds(add, other), timer.seconds(multiply, gemm_stream)
            alone_s.setdefault(arithmetic, gemm_s)
            count = max(1, round(gemm_s / single))
            many = lambda: [add() for _ in range(count)]
            transfers = timer.seconds(many, other)
            device.reserve(gemm_stream, True)
            both = timer.together(gemm_stream, {gemm_stream: multiply, other: many})
            alone = timer.seconds(multiply, gemm_stream)
            rate, longer = count * source.nbytes / transfers / 1e9, both / alone_s[arithmetic]
            hidden = (alone + transfers - both) / min(alone, transfers)
            limited = None if blocks == _ALL else blocks
            emit(
                f"{arithmetic} GEMM with accumulates{f', {limited} blocks' if limited else ''}",
                f"{hidden:.2f} hidden, {longer:.2f} of the GEMM alone ({rate:.0f} GB/s)",
                ">= 0.8 hidden" * (blocks == 8),
                hidden >= 0.8 if blocks == 8 else None,
                kind="overlap",
                what="accumulates",
                arithmetic=arithmetic,
                blocks=limited,
                gb_per_s=rate,
                hidden=hidden,
                both_ms=both * 1e3,
                product_alone_ms=alone_s[arithmetic] * 1e3,
            )
            device.close()


if __name__ == "__main__":
    gemms()
    transfers()
    overlap()
