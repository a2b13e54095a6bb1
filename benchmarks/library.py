"""What drbench costs as a library: a table of its bars, on a quiet machine.

OMP_NUM_THREADS=1 mpiexec -n 2 python benchmarks/library.py            # all, about a minute
OMP_NUM_THREADS=1 mpiexec -n 2 python benchmarks/library.py calls      # or: moves, churn
"""

import gc
import statistics
import sys

import numpy as np

import drbench
from drbench.common import Clock

ROUNDS, CALLS, CHURN = 9, 200, 10_000


def best_median_us(comm, function, calls=CALLS):
    """Microseconds of a call: the best median of some rounds, of the slowest rank."""
    found = []
    for _ in range(ROUNDS):
        comm.Barrier()
        times = []
        for _ in range(calls):
            start = Clock.now()
            function()
            times.append(Clock.now() - start)
        found.append(max(comm.allgather(statistics.median(times))))
    return min(found) * 1e6


def calls(ctx):
    """What a call costs beyond its product."""
    n, comm = 16, ctx.comm
    A, B, C = (ctx.from_global(np.ones((n, n), "f4"), "row") for _ in range(3))
    copied = [np.ones(A.local.shape, "f4") for _ in range(2)]
    p = ctx.plan(A, B, C, stationary="C")
    blas, parts = ctx.ground.blas, np.array_split(np.arange(n), ctx.size)
    operands = [(A.local[:, part], np.ones((len(part), n), "f4")) for part in parts]

    def alone():
        for number, (a, b) in enumerate(operands):
            blas.gemm(a, b, C.local, float(number > 0))

    def wrapped():
        a, b = (ctx.wrap(each, "row", (n, n)) for each in copied)
        drbench.multiply(a, b, "row")

    product = best_median_us(comm, alone)
    yield "the product alone, n = 16", product, "us", None
    for name, function, bar in (
        ("a planned product, beyond it", p, 50),
        ("multiply into a matrix, beyond it", lambda: drbench.multiply(A, B, C), 50),
        ("multiply into a new matrix, beyond it", lambda: A @ B, 50),
        ("both operands copied, beyond it", wrapped, 80),
    ):
        yield name, best_median_us(comm, function) - product, "us", bar
    firsts = []
    for number in range(20):
        shape = 64 + number, 64 + number
        X = ctx.from_global(np.ones(shape, "f4"), ("row", "column", "block")[number % 3])
        comm.Barrier()
        start = Clock.now()
        drbench.multiply(X, X, ("block", "row", "column")[number // 3 % 3])
        firsts.append(max(comm.allgather(Clock.now() - start)))
    yield "first call of a layout", statistics.median(firsts) * 1e3, "ms", 10


def moves(ctx):
    """Redistributions beside copying as many bytes within a rank."""
    n, comm = 2048, ctx.comm
    for old, new in (
        ("row", "column"),
        ("column", "row"),
        ("row", f"row/c{ctx.size}"),
        ("row", "tiles:128x128@1x" + str(ctx.size)),
        ("P", "row"),
    ):
        A = ctx.zeros((n, n), old)
        C = ctx.zeros((n, n), new)
        source = np.zeros_like(C.local)
        copied = best_median_us(comm, lambda: np.copyto(C.local, source), 5)
        taken = best_median_us(comm, lambda: drbench.redistribute(A, C), 5)
        bar = None if old == "P" else 0.8  # a sum reads as often as there are terms
        yield f"redistribute {old} to {new}, of memcpy's speed", copied / taken, "", bar


def churn(ctx):
    """Random allocations, releases and products."""
    rng, held = np.random.default_rng(1), []
    texts = ["row", "column", "block", f"row/c{ctx.size}"]
    start, products = Clock.now(), 0
    for _ in range(CHURN):
        what = rng.random()
        if what < 0.4 or len(held) < 2:
            rows, cols = (int(each) for each in rng.integers(1, 64, 2))
            held.append(ctx.zeros((rows, cols), str(rng.choice(texts))))
        elif what < 0.7:
            del held[int(rng.integers(len(held)))]
        else:
            A = held[int(rng.integers(len(held)))]
            products += 1
            drbench.multiply(A, A.T, str(rng.choice(texts)))
        held = held[-16:]
    A = None
    held.clear()
    gc.collect()
    yield f"{CHURN} steps, {products} products", Clock.now() - start, "s", None
    yield "bytes lost", ctx.heap.taken, "bytes", 0


def main() -> None:
    tables = [each for each in (calls, moves, churn) if each.__name__ in (sys.argv[1:] or WHAT)]
    with drbench.init(heap="256M") as ctx:
        for table in tables:
            for name, value, unit, bar in table(ctx):
                if ctx.rank == 0:
                    wanted = "" if bar is None else f"bar {bar:g}"
                    print(f"{name:50} {value:10.3g} {unit:6} {wanted}", flush=True)


WHAT = ("calls", "moves", "churn")

if __name__ == "__main__":
    main()
