"""Every primitive of Table 1 on several layouts; answer what each of them got wrong, on any rank.

Every element of a matrix encodes its place and its replica: ``100·row + column + 1 000
000·(replica + 1)``.
"""

import itertools
import time

import numpy as np
from harness import answer, matrix, ranks

from drbench.errors import UnsupportedError, UsageError
from partitions import LayoutError

SHAPE = (23, 17)
#: Layouts for 4 ranks: one tile a rank, many, none; row- and column-major ranks; 1, 2 and 4
#: replicas.
LAYOUTS = (
    "block",
    "tiles:8x6@2x2:col",
    "tiles:40x40",
    "tiles:8x9@1x2/c2",
    "tiles:9x9@2x1:col/c2",
    "tiles:8x17/c4",
)


def element(bounds, replica):
    """What the tile of those bounds holds in a replica."""
    (row0, row1), (col0, col1) = bounds
    return 100.0 * np.arange(row0, row1)[:, None] + np.arange(col0, col1) + 1e6 * (replica + 1)


class Check:
    """Expectations about one matrix, noted when they fail, so that no rank leaves a collective call
    early."""

    def __init__(self, c, failures, refused):
        self.c, self.failures, self.refused = c, failures, refused
        self.comm, self.partition = c.context.comm, c.spec.partition
        self.rank, self.replica = self.comm.rank, c.placed.replica
        self.replicas = range(self.partition.replicas)
        self.tiles = list(itertools.product(*map(range, self.partition.grid_shape)))

    def fails(self, *what):
        self.failures.append(f"rank {self.rank}, {self.partition.text}: {what}"[:600])

    def equal(self, found, expected, *what):
        if not np.array_equal(found, expected):
            self.fails(*what, "is", found, "not", expected)

    def raises(self, error, call, *what):
        """The text of the error, which must come."""
        try:
            call()
        except error as raised:
            return str(raised)
        except Exception as raised:
            self.fails(*what, "raised", raised)
        else:
            self.fails(*what, "raised nothing")
        return ""

    def refill(self, values=element):
        """Own tiles as their elements say, seen by everyone."""
        self.c.fence()
        for idx in self.partition.tiles_of(self.rank):
            self.c.tile(idx)[...] = values(self.c.tile_bounds(idx), self.replica)
        self.c.fence()

    def everywhere(self, expected, *what):
        """Every tile of every replica, got by every rank, is ``expected(bounds, replica)``."""
        for replica, idx in itertools.product(self.replicas, self.tiles):
            self.equal(
                self.c.get_tile(idx, replica),
                expected(self.c.tile_bounds(idx), replica),
                *what,
                idx,
                replica,
            )

    def owners(self, idx, replica):
        return self.partition.owner(idx, replica)

    def others(self, idx, replica):
        """Whether this rank is the one after the owner: someone else, where there is someone
        else."""
        return (self.owners(idx, replica) + 1) % self.comm.size == self.rank


def shapes(c, check):
    """Primitives without transfers answer as the partition, which other tests verify."""
    check.equal(c.grid_shape(), check.partition.grid_shape, "grid_shape")
    for idx in check.tiles:
        check.equal(c.tile_bounds(idx), check.partition.tile_bounds(idx), "tile_bounds", idx)
    for region in [((0, 23), (0, 17)), ((4, 6), (3, 5)), ((5, 5), (0, 17)), ((7, 30), (2, 90))]:
        expected = check.partition.overlapping_tiles(*region)
        for replica in (None, *check.replicas):
            found = list(c.overlapping_tiles(region, replica))
            check.equal(found, expected, "overlapping_tiles", region)


def tile(c, check):
    """In place: equal, not a copy where it can be reached, writable by its owner, and refused with
    a way out elsewhere."""
    check.refill()
    for replica, idx in itertools.product(check.replicas, check.tiles):
        try:
            view = c.tile(idx, replica)
        except UnsupportedError as error:
            check.refused["tile"] += 1
            check.equal("get_tile" in str(error), True, "the way out of", str(error))
            check.equal(check.owners(idx, replica) != check.rank, True, "an own tile refused")
            continue
        check.equal(view, element(c.tile_bounds(idx), replica), "tile", idx, replica)
    c.fence()
    for idx in check.partition.tiles_of(check.rank):
        c.tile(idx, check.replica)[...] *= 2
        check.equal(
            c.tile(idx),
            2 * element(c.tile_bounds(idx), check.replica),
            "own tile written in place",
        )
    c.fence()
    check.everywhere(
        lambda bounds, replica: 2 * element(bounds, replica), "after the owners wrote in place"
    )


def get_tile(c, check):
    """Every tile of every replica; the own replica by default; a copy."""
    check.refill()
    check.everywhere(element, "get_tile")
    for idx in check.tiles:
        mine = c.get_tile(idx)
        check.equal(
            mine, element(c.tile_bounds(idx), check.replica), "get_tile of the own replica", idx
        )
        check.equal(
            (mine.dtype, mine.flags.writeable, mine.flags.c_contiguous),
            (c.dtype, True, True),
            "kind of copy",
        )
        mine[...] = -1
    c.fence()
    check.everywhere(element, "after the copies were written to")


def get_tile_async(c, check):
    """All tiles under way at once; a request tests true by itself, and waits as often as wanted."""
    check.refill()
    wanted = [*itertools.product((None, *check.replicas), check.tiles)]
    started = [c.get_tile_async(idx, replica) for replica, idx in wanted]
    deadline = time.monotonic() + 20
    for _, request in started[::2]:
        done = request.Test()
        while not done and time.monotonic() < deadline:
            done = request.Test()
        check.equal(done, True, "done")
    for (replica, idx), (copy, request) in reversed([*zip(wanted, started)]):
        request.Wait()
        request.Wait()
        expected = element(c.tile_bounds(idx), check.replica if replica is None else replica)
        check.equal(copy, expected, "wait", idx, replica)


def put_tile(c, check):
    """Someone else overwrites every tile of one replica; a view with strides and another dtype will
    do."""
    for target in check.replicas:
        check.refill()
        for idx in check.tiles:
            if check.others(idx, target):
                value = element(c.tile_bounds(idx), target) + 7
                sparse = np.zeros((2 * value.shape[0], 3 * value.shape[1]))
                sparse[::2, ::3] = value
                c.put_tile(idx, sparse[::2, ::3], target)
        c.fence()
        check.everywhere(
            lambda bounds, replica: element(bounds, replica) + 7 * (replica == target),
            "put_tile",
            target,
        )
    check.refill()
    for idx in check.tiles:  # by default into the own replica: its last rank puts
        if check.rank == (check.replica + 1) * check.partition.ranks_per_replica - 1:
            c.put_tile(idx, element(c.tile_bounds(idx), 5))
    c.fence()
    check.everywhere(lambda bounds, replica: element(bounds, 5), "put_tile into the own replica")


def accumulate_tile(c, check):
    """All ranks add to all tiles of their replica; then to those of the others', or are refused
    with a way out."""
    check.refill()
    for idx in check.tiles:
        rows, cols = c.tile_bounds(idx)
        c.accumulate_tile(idx, np.full((rows.extent, cols.extent), 2.0**check.rank))
    c.fence()
    size = check.partition.ranks_per_replica
    added = [sum(2.0**rank for rank in range(q * size, (q + 1) * size)) for q in check.replicas]
    check.everywhere(
        lambda bounds, replica: element(bounds, replica) + added[replica], "accumulate_tile"
    )
    for target in check.replicas:
        check.refill()
        count = 0
        for idx in check.tiles:
            rows, cols = c.tile_bounds(idx)
            try:
                c.accumulate_tile(idx, np.full((rows.extent, cols.extent), 1.0), target)
            except UnsupportedError as error:
                check.refused["accumulate"] += 1
                check.equal(target != check.replica, True, "refused in the own replica")
                check.equal("own replica" in str(error), True, "the way out of", str(error))
            else:
                count += 1
        check.equal(count in (0, len(check.tiles)), True, "refused for some tiles only")
        accepted = check.comm.allreduce(count // len(check.tiles))
        c.fence()
        check.everywhere(
            lambda bounds, replica: element(bounds, replica) + accepted * (replica == target),
            "into replica",
            target,
        )


def reduce_replicas(c, check):
    """The origin holds the sum; the others are as they were."""
    for origin in check.replicas[:2]:
        check.refill()
        c.reduce_replicas(origin)
        check.everywhere(
            lambda bounds, replica: (
                element(bounds, replica)
                if replica != origin
                else sum(element(bounds, q) for q in check.replicas)
            ),
            "reduce_replicas",
            origin,
        )


def broadcast_replica(c, check):
    """All replicas are as the origin's was."""
    for origin in check.replicas[:2]:
        check.refill()
        c.broadcast_replica(origin)
        check.everywhere(
            lambda bounds, replica: element(bounds, origin), "broadcast_replica", origin
        )


def transposed(c, check):
    """The transposed matrix and a part have the same primitives, on the same memory."""
    check.refill()
    flipped, (height, width) = c.T, check.partition.tile_shape
    flipped.fence()
    for i, j in check.tiles:
        if check.replica == 0 and check.others((i, j), 0):
            value = np.full(flipped.get_tile((j, i)).shape, 5.0)
            flipped.put_tile((j, i), value)
            flipped.accumulate_tile((j, i), value)
    flipped.fence()
    members, size = check.partition.members(0), check.comm.size
    changed = [idx for idx in check.tiles if (check.owners(idx, 0) + 1) % size in members]
    part = c[height:, width:]
    part.fence()
    for (i, j), replica in itertools.product(check.tiles, check.replicas):
        expected = element(c.tile_bounds((i, j)), replica)
        if replica == 0 and (i, j) in changed:
            expected = np.full(expected.shape, 10.0)
        check.equal(flipped.get_tile((j, i), replica), expected.T, "get_tile of .T", i, j)
        if i and j:
            check.equal(part.get_tile((i - 1, j - 1), replica), expected, "get_tile of a part")
    c.fence()


def errors(c, check):
    """Whatever makes no sense is refused before anything moves."""
    check.refill()
    unfenced = c.T
    text = check.raises(UsageError, lambda: unfenced.get_tile((0, 0)), "get_tile before a fence")
    check.equal("fence()" in text, True, text)
    beyond = check.partition.replicas
    rows, cols = (bound.extent for bound in c.tile_bounds((0, 0)))
    value = np.ones((rows, cols))
    calls = {
        "tile": lambda idx, q: c.tile(idx, q),
        "get_tile": lambda idx, q: c.get_tile(idx, q),
        "get_tile_async": lambda idx, q: c.get_tile_async(idx, q),
        "put_tile": lambda idx, q: c.put_tile(idx, value, q),
        "accumulate_tile": lambda idx, q: c.accumulate_tile(idx, value, q),
    }
    for name, call in calls.items():
        for replica in (-1, beyond):
            text = check.raises(
                UsageError, lambda: call((0, 0), replica), name, "of replica", replica
            )
            check.equal(f"0 to {beyond - 1}" in text and str(replica) in text, True, text)
        for idx in [(-1, 0), (0, -1), (c.grid_shape()[0], 0), (0, c.grid_shape()[1])]:
            check.raises(LayoutError, lambda: call(idx, None), name, "of tile", idx)
    check.raises(
        UsageError, lambda: c.overlapping_tiles(((0, 1), (0, 1)), beyond), "overlapping_tiles"
    )
    check.raises(LayoutError, lambda: c.tile_bounds((99, 0)), "tile_bounds")
    for call in (c.reduce_replicas, c.broadcast_replica):
        check.raises(UsageError, lambda: call(beyond), call.__name__)
        check.raises(UsageError, lambda: call(-1), call.__name__)
    for call in (c.put_tile, c.accumulate_tile):
        for wrong in (
            np.ones((rows + 1, cols)),
            np.ones(rows * cols),
            np.ones((cols + 40, rows)),
            3.0,
        ):
            text = check.raises(
                UsageError, lambda: call((0, 0), wrong), call.__name__, np.shape(wrong)
            )
            check.equal(f"{rows}x{cols}" in text, True, text)
    c.fence()
    check.everywhere(element, "after all these errors")
    short = c.context.empty((8, 4), "row", "bfloat16")
    short.local[...] = 1
    short.fence()
    add = lambda: short.accumulate_tile(((check.rank + 1) % check.comm.size, 0), np.ones((2, 4)))
    if "mpi" in short.placed.protocols:
        text = check.raises(UnsupportedError, add, "accumulate_tile of bfloat16 by MPI")
        check.equal("Use float32" in text, True, text)
    else:
        add()
        short.fence()
        check.equal(short.local, np.full((2, 4), 2), "accumulate_tile of bfloat16")


PRIMITIVES = (
    shapes,
    tile,
    get_tile,
    get_tile_async,
    put_tile,
    accumulate_tile,
    reduce_replicas,
    broadcast_replica,
    transposed,
    errors,
)


def main() -> None:
    failures = {primitive.__name__: [] for primitive in PRIMITIVES}
    refused = {"tile": 0, "accumulate": 0}
    with ranks() as comm:
        for x, layout in enumerate(LAYOUTS):
            with matrix(comm, layout, SHAPE, "float64" if x % 2 else "float32") as c:
                for primitive in PRIMITIVES:
                    primitive(c, Check(c, failures[primitive.__name__], refused))
        failures = {name: comm.allreduce(texts)[:20] for name, texts in failures.items()}
        refused = {name: comm.allreduce(count) for name, count in refused.items()}
        answer(comm, {"failures": failures, "refused": refused})


if __name__ == "__main__":
    main()
