"""The costs of drbench as a library: a table of its bars, on a quiet machine.

python -m benchmarks library            # all, about three minutes
python -m benchmarks library calls      # or gemms, moves
"""

import statistics
import sys
from dataclasses import replace

import numpy as np

import drbench
from drbench.common import Clock

ROUNDS, CALLS = 9, 200


def slowest_s(comm, function):
    """Seconds of a call that all ranks begin at once, of the slowest."""
    comm.Barrier()
    start = Clock.now()
    function()
    return max(comm.allgather(Clock.now() - start))


def median_s(comm, function, calls):
    """Median seconds of a call, of the slowest rank."""
    comm.Barrier()
    times = []
    for _ in range(calls):
        start = Clock.now()
        function()
        times.append(Clock.now() - start)
    return max(comm.allgather(statistics.median(times)))


def best_median_us(comm, function, calls=CALLS):
    """Microseconds of a call: the best median of some rounds."""
    return min(median_s(comm, function, calls) for _ in range(ROUNDS)) * 1e6


def calls(ctx):
    """The cost of a call beyond its local GEMM."""
    n, comm = 16, ctx.comm
    A, B, C = (ctx.from_global(np.ones((n, n), "f4"), "row") for _ in range(3))
    copied = [np.ones(A.local.shape, "f4") for _ in range(2)]
    p = ctx.plan(A, B, C, stationary="C")
    blas, parts = ctx.ground.blas, np.array_split(np.arange(n), ctx.size)
    operands = [(A.local[:, part], np.ones((len(part), n), "f4")) for part in parts]
    gemms = [blas.prepared(a, b, C.local) for a, b in operands]

    def alone():
        for number, gemm in enumerate(gemms):
            gemm(float(number > 0), 1.0)

    def wrapped():
        a, b = (ctx.wrap(each, "row", (n, n)) for each in copied)
        drbench.multiply(a, b, "row")

    gemm = best_median_us(comm, alone)
    yield "the GEMM alone, n = 16", gemm, "us", None
    for name, function, bar in (
        ("a planned multiplication, beyond it", p, 50),
        ("multiply into a matrix, beyond it", lambda: drbench.multiply(A, B, C), 50),
        ("multiply into a new matrix, beyond it", lambda: A @ B, 50),
        ("both operands copied, beyond it", wrapped, 80),
    ):
        yield name, best_median_us(comm, function) - gemm, "us", bar
    firsts = []
    for number in range(20):
        shape = 64 + number, 64 + number
        X = ctx.from_global(np.ones(shape, "f4"), ("row", "column", "block")[number % 3])
        layout = ("block", "row", "column")[number // 3 % 3]
        firsts.append(slowest_s(comm, lambda: drbench.multiply(X, X, layout)))
    yield "first call of a layout", statistics.median(firsts) * 1e3, "ms", 10


#: Layouts of A, B and C, aligned with each other, misaligned and replicated.
LAYOUTS = (
    ("row", "row", "row"),
    ("block", "block", "block"),
    ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block"),
    ("tiles:700x500@2x1", "tiles:600x800@1x2", "row"),
    ("column", "tiles:300x2000@1x2", "tiles:1000x900@2x1"),
    ("row", "row/c2", "block"),
    ("tiles:256x256@2x1", "tiles:256x256@1x2", "block"),
)


def gemms(ctx):
    """Multiplications of 2048 x 2048 by the library over the same under ``drbench run``, in
    alternating rounds of one process."""
    from launch.cases.case import Case
    from launch.ranks.run_case import run_case

    n, comm = 2048, ctx.comm
    for texts in LAYOUTS:
        A, B = (ctx.from_global(np.ones((n, n), "f4"), text) for text in texts[:2])
        C = ctx.zeros((n, n), texts[2])
        for stationary in "CB":
            case = Case(n, n, n, *texts, options={"stationary": stationary})
            case = replace(case, threads=1, iters=8, budget=0.0, roof=False, check=False)
            ratios = []
            for number in range(ROUNDS):
                found = {}
                for who in ("run", "library") if number % 2 else ("library", "run"):
                    if who == "run":
                        found[who] = run_case(case, comm).median_s
                        continue
                    multiplication = lambda: drbench.multiply(A, B, C, stationary=stationary)
                    times = [slowest_s(comm, multiplication) for _ in range(10)]
                    found[who] = statistics.median(times[2:])
                ratios.append(found["library"] / found["run"])
            name = f"{', '.join(texts)}, S-{stationary}: time over run's"
            low, high = min(ratios), max(ratios)
            yield f"{name} ({low:.2f}-{high:.2f})", statistics.median(ratios), "", 1.03


def moves(ctx):
    """Redistributions next to copying as many bytes within a rank."""
    n, comm = 2048, ctx.comm
    for old, new in (
        ("row", "column"),
        ("column", "row"),
        ("row", f"row/c{ctx.size}"),
        ("row", "tiles:128x128@1x" + str(ctx.size)),
        ("tiles:128x128@1x" + str(ctx.size), "row"),
        ("P", "row"),
    ):
        A = ctx.zeros((n, n), old)
        C = ctx.zeros((n, n), new)
        source = np.zeros_like(C.local)
        copied = best_median_us(comm, lambda: np.copyto(C.local, source), 5)
        taken = best_median_us(comm, lambda: drbench.redistribute(A, C), 5)
        yield f"redistribute {old} to {new}, of memcpy's speed", copied / taken, "", 0.8


def main() -> None:
    tables = {each.__name__: each for each in (calls, gemms, moves)}
    with drbench.init(heap="256M") as ctx:
        for table in sys.argv[1:] or tables:
            for name, value, unit, bar in tables[table](ctx):
                if ctx.rank == 0:
                    wanted = "" if bar is None else f"bar {bar:g}"
                    print(f"{name:90} {value:10.3g} {unit:6} {wanted}", flush=True)


if __name__ == "__main__":
    main()
