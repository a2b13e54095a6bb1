"""AllGather + GEMM and GEMM + ReduceScatter in communication tiles, written as in the papers of
FLUX and Triton-distributed: programs to test the simulator, independent of ``algorithms``."""

from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Accumulate, Add, Fence, Gemm, Get, Kernel, Zero
from drbench.program.trace import trace


def ring(rank, p, first=0):
    """The ranks after this one, itself first or last."""
    return [(rank + i) % p for i in range(first, first + p)]


def tiles(problem, p, tile):
    """rank -> rows of its communication tiles."""
    share = problem.m // p
    return {
        r: [(x, min(x + tile, (r + 1) * share)) for x in range(r * share, (r + 1) * share, tile)]
        for r in range(p)
    }


def ag_gemm(problem, rank, mode, tile, *, naive=False, split=False):
    """Every rank has rows of A and columns of B, and makes its columns of C."""
    p, own, at = problem.nprocs, problem.c.own_tiles(rank)[0], {}
    mine, columns, k = tiles(problem, p, tile), (own.col0, own.col1), (0, problem.k)
    kernel = None if split else Kernel(problem.m, own.shape[1], problem.k)
    block = lambda t: problem.a.block(t, k)
    b = yield Get(problem.b.block(k, columns))
    for t in mine[rank]:
        at[t] = yield Get(block(t))
    others = ring(rank, p, 1)[:-1]
    if mode == "pull":
        for r in others:
            for t in mine[r]:
                at[t] = yield Get(block(t))
    elif mode == "push":
        for r in reversed(others):
            for t in mine[rank]:
                yield Push(at[t], r, t)
    elif mode == "ring":
        for s in range(p - 1):
            for t in mine[(rank + s) % p]:
                yield Push(at[t], (rank - 1) % p, t)
            for t in mine[(rank + s + 1) % p]:
                at[t] = yield Await((rank + 1) % p, t, block(t))
    for r in range(p) if naive else ring(rank, p):
        for t in mine[r]:
            a = at[t] if t in at else (yield Await(r, t, block(t)))
            yield Gemm(a, b, into=problem.c.block(t, columns), kernel=kernel)


def gemm_rs(problem, rank, mode, tile, *, naive=False, split=False, units=None, side=True):
    """Every rank has columns of A and rows of B, and makes its rows of C."""
    p, own = problem.nprocs, problem.a.own_tiles(rank)[0]
    mine, inner, n = tiles(problem, p, tile), (own.col0, own.col1), (0, problem.n)
    kernel = None if split else Kernel(problem.m, problem.n, own.shape[1], units)
    b = yield Get(problem.b.block(inner, n))
    if mode == "reduce":
        yield Zero(problem.c.own_tiles(rank)[0])
        yield Fence()
    for r in range(p) if naive else ring(rank, p, 1):
        for t in mine[r]:
            a = yield Get(problem.a.block(t, inner))
            if r == rank and mode != "reduce":
                yield Gemm(a, b, into=problem.c.block(t, n), kernel=kernel)
                continue
            c = yield Gemm(a, b, kernel=kernel)
            if mode == "write":
                yield Push(c, r, t)
            elif mode == "pull":
                yield Offer(c, r, t)
            else:
                yield Accumulate(c, problem.c.block(t, n))
    if mode == "reduce":
        yield Fence()
        return
    sources = [(rank - i) % p for i in range(1, p)]
    if mode == "pull":  # a tile from all ranks, then the next
        for t in mine[rank]:
            came = []
            for source in sources:
                came.append((yield Take(source, t, (t[1] - t[0], problem.n))))
            yield Add(came, problem.c.block(t, n), concurrent=side)
        return
    for source in sources:
        for t in mine[rank]:
            came = yield Await(source, t, (t[1] - t[0], problem.n))
            yield Add(came, problem.c.block(t, n), concurrent=side)


def ag_traces(m, n, k, p, mode="pull", tile=None, dtype="float32", **options):
    problem = Problem(m, n, k, p, "row", "column", "column", dtype=dtype)
    program = lambda rank: ag_gemm(problem, rank, mode, tile or m // p, **options)
    return [trace(program(rank), problem, rank) for rank in range(p)]


def rs_traces(m, n, k, p, mode="write", tile=None, dtype="float32", **options):
    problem = Problem(m, n, k, p, "column", "row", "row", dtype=dtype)
    program = lambda rank: gemm_rs(problem, rank, mode, tile or m // p, **options)
    return [trace(program(rank), problem, rank) for rank in range(p)]
