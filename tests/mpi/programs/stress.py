"""Every rank adds into every tile at once, again and again; answer for each job how many elements
lost an update.

``stress.py WHAT LAYOUT COUNT [WHAT LAYOUT COUNT ...]``. ``tiles``: so many rounds of
``accumulate_tile``, all ranks on the same tile of 200 000 elements at the same time. ``unlocked``:
the same with locks that lock nothing, to see that updates can be lost here. ``blocks``: a program
of so many Accumulates of overlapping parts of tiles, through the executor.
"""

import random
import sys
import time
from unittest import mock

import numpy as np
from harness import TRANSPORT, answer, fence, matrix, ranks

from drbench.host.executor import Executor
from drbench.host.fill import Fill
from drbench.host.matrix import distributed
from drbench.host.topology import RangeLocks, Topology
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Fence, Gemm, Get, Zero
from drbench.program.trace import trace

TILE = (400, 500)


def pattern(rows, cols):
    """Integers 1 to 7, unlike their neighbours."""
    return ((np.arange(*rows)[:, None] * 31 + np.arange(*cols) * 17) % 7 + 1).astype("f4")


def tiles(comm, layout, rounds):
    """Rank r adds (r + 1) times the pattern to each tile of its replica, in each round."""
    shape = (2 * TILE[0], 2 * TILE[1])
    with matrix(comm, layout, shape) as c:
        c.local[...] = 0
        work = [
            (idx, (comm.rank + 1) * pattern(*c.tile_bounds(idx)))
            for idx in np.ndindex(c.grid_shape())
        ]
        c.fence()
        start = time.perf_counter()
        for _ in range(rounds):
            for idx, value in work:
                c.accumulate_tile(idx, value)
        c.fence()
        seconds = time.perf_counter() - start
        members = c.spec.partition.members(c.placed.replica)
        total = rounds * sum(rank + 1 for rank in members)
        wrong = sum(
            int((c.get_tile(idx) != total * pattern(*c.tile_bounds(idx))).sum()) for idx, _ in work
        )
        return {
            "wrong": comm.allreduce(wrong),
            "adds": comm.allreduce(rounds * len(work)),
            "seconds": seconds,
            "protocols": sorted(set(c.placed.protocols)),
        }


def parts(problem, rank, count):
    """(rows, columns) of ``count`` parts of tiles of C, each in one tile; all ranks draw about the
    same ones."""
    chance = random.Random(1)  # the same on all ranks: they meet on the same parts ...
    own = random.Random(rank)
    for _ in range(count):
        idx = tuple(chance.randrange(extent) for extent in problem.c.partition.grid_shape)
        part = []
        for low, high in problem.c.partition.tile_bounds(idx):
            start, stop = sorted(chance.sample(range(low, high + 1), 2))
            # ... which overlap without being equal
            part.append((start, min(high, stop + own.randrange(3))))
        yield tuple(part)


def blocks(comm, layout, count):
    """Each part is A·B there, added once by each rank; A and B are local on all ranks."""
    m, n, k = 240, 300, 8
    problem = Problem(m, n, k, comm.size, "R", "R", layout)
    fill = Fill("integer", 0, k)

    def program(rank):
        for tile in problem.c.own_tiles(rank):
            yield Zero(tile)
        yield Fence()
        mine, into = problem.a.partition.replica_of(rank), problem.c.partition.replica_of(rank)
        for rows, cols in parts(problem, rank, count):
            a = yield Get(problem.a.block(rows, (0, k), mine))
            b = yield Get(problem.b.block((0, k), cols, mine))
            yield Accumulate((yield Gemm(a, b)), problem.c.block(rows, cols, into))
        yield Fence()

    with Topology(comm) as topology, distributed(problem, topology, TRANSPORT) as matrices:
        for name in "AB":
            for block, tile in matrices[name].own_blocks():
                fill.into(tile, name, block.row0, block.col0)
        c = matrices["C"]
        fence(c)
        with Executor(
            trace(program(comm.rank), problem, comm.rank), matrices, prefetch=3
        ) as executor:
            start = time.perf_counter()
            for _ in range(3):
                executor.run()
            seconds = time.perf_counter() - start
        times, size = np.zeros((m, n)), c.partition.ranks_per_replica
        for rank in range(c.replica * size, (c.replica + 1) * size):
            for rows, cols in parts(problem, rank, count):
                times[slice(*rows), slice(*cols)] += 1
        expected = times * (fill.rows("A", 0, m, k) @ fill.rows("B", 0, k, n))
        wrong = sum(
            int((tile != expected[block.row0 : block.row1, block.col0 : block.col1]).sum())
            for block, tile in c.own_blocks()
        )
        protocols = sorted(set(c.protocols))
    return {
        "wrong": comm.allreduce(wrong),
        "adds": 3 * count * comm.size,
        "seconds": seconds,
        "protocols": protocols,
    }


def unlocked(comm, layout, rounds):
    """Until an update was lost, ten times at most: on a busy machine ranks meet rarely."""
    nothing = lambda *args: None
    with mock.patch.multiple(RangeLocks, acquire=nothing, release=nothing):
        tried = (tiles(comm, layout, rounds) for _ in range(10))
        return next((found for found in tried if found["wrong"]), {"wrong": 0})


JOBS = {"tiles": tiles, "unlocked": unlocked, "blocks": blocks}


def main() -> None:
    words = iter(sys.argv[1:])
    with ranks() as comm:
        found = [JOBS[what](comm, layout, int(n)) for what, layout, n in zip(words, words, words)]
        answer(comm, found)


if __name__ == "__main__":
    main()
