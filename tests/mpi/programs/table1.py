"""Every primitive of Table 1 on several layouts, next to a model: an array for each replica, on
which every rank does the same. Answers what differed from it, on any rank."""

import itertools
import time
from functools import partial

import numpy as np
from harness import answer, matrix, message_of, ranks

from drbench.errors import UnsupportedError, UsageError
from drbench.partitions import LayoutError

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
#: The first gives every element a value.
OPERATIONS = ("store", "errors", "put", "accumulate", "reduce", "broadcast")


class Table:
    """A matrix and its model; what differs is noted, so that no rank leaves a collective call
    early."""

    def __init__(self, c, seed):
        self.c, self.rng, self.wrong, self.refused = c, np.random.default_rng(seed), [], [0, 0]
        self.comm, self.partition = c.context.comm, c.spec.partition
        self.rank, self.own = self.comm.rank, c.placed.replica
        replicas, tiles = range(self.partition.replicas), map(range, c.grid_shape())
        self.places = [*itertools.product(replicas, itertools.product(*tiles))]
        self.model = np.zeros((len(replicas), *SHAPE))
        # the same memory transposed, and without the first row and column of tiles
        height, width = self.partition.tile_shape
        self.views = {
            "whole": (c, lambda i, j: (i, j), np.array),
            "transposed": (c.T, lambda i, j: (j, i), np.transpose),
            "part": (
                c[height:, width:],
                lambda i, j: (i - 1, j - 1) if i and j else None,
                np.array,
            ),
        }
        for view, *_ in self.views.values():
            view.fence()

    def note(self, right, *what):
        if not right:
            self.wrong.append(f"rank {self.rank}, {self.partition.text}: {what}"[:600])

    def named(self, replica):
        """The own replica is the default."""
        return None if replica == self.own else replica

    def of_model(self, replica, idx):
        """The part of the model that a tile is."""
        rows, columns = self.c.tile_bounds(idx)
        return self.model[replica, slice(*rows), slice(*columns)]

    def change(self, operation):
        """Do it to every tile of every replica; a rank that any draws does, or all do."""
        origin = int(self.rng.integers(self.partition.replicas))
        if operation in ("reduce", "broadcast"):
            if operation == "reduce":
                self.c.reduce_replicas(origin)
                self.model[origin] = self.model.sum(0)
            else:
                self.c.broadcast_replica(origin)
                self.model[:] = self.model[origin]
            return
        for replica, idx in self.places:
            held, who = self.of_model(replica, idx), int(self.rng.integers(self.comm.size))
            value = self.rng.integers(-9, 10, held.shape).astype(float)
            view, at, turned = self.views[str(self.rng.choice([*self.views]))]
            if at(*idx) is None:
                view, at, turned = self.views["whole"]
            given = turned(value), self.named(replica)
            if operation == "accumulate":
                added = self.accumulate(replica, view, at(*idx), *given)
                held += value * self.comm.allreduce(added)
                continue
            if operation == "put" and who == self.rank:
                sparse = np.zeros([2 * extent for extent in given[0].shape])
                sparse[::2, ::2] = given[0]
                view.put_tile(at(*idx), sparse[::2, ::2], given[1])
            elif operation == "store" and self.partition.owner(idx, replica) == self.rank:
                self.c.tile(idx)[...] = value
            held[...] = value
        self.c.fence()

    def accumulate(self, replica, view, idx, value, named):
        """What times the value this rank adds: nothing if it is refused, with the way out."""
        try:
            view.accumulate_tile(idx, value * 2**self.rank, named)
        except UnsupportedError as error:
            self.refused[1] += 1
            self.note(replica != self.own and "own replica" in str(error), str(error))
            return 0
        return 2**self.rank

    def check(self, operation):
        """Every rank reads every tile of every replica, in place and copied, all under way at once;
        a request tests true by itself, and waits as often as wanted."""
        started, deadline = [], time.monotonic() + 20
        for name, (view, at, turned) in self.views.items():
            for replica, idx in self.places:
                if at(*idx) is not None:
                    got = view.get_tile_async(at(*idx), self.named(replica))
                    expected = turned(self.of_model(replica, idx))
                    started.append((*got, expected, (operation, name, replica, idx)))
        for number, (copy, request, expected, what) in enumerate(reversed(started)):
            if number % 2:
                while not (done := request.Test()) and time.monotonic() < deadline:
                    pass
                self.note(done, *what, "is not done")
            request.Wait()
            request.Wait()
            self.note(np.array_equal(copy, expected), *what, copy, expected)
            kind = copy.dtype, copy.flags.writeable, copy.flags.c_contiguous
            self.note(kind == (self.c.dtype, True, True), *what, kind)
            copy[...] = -1
        for replica, idx in self.places:
            try:
                found = self.c.tile(idx, self.named(replica))
            except UnsupportedError as error:
                self.refused[0] += 1
                reached = self.partition.owner(idx, replica) == self.rank
                self.note("get_tile" in str(error) and not reached, str(error))
                found = self.c.get_tile(idx, replica)
            self.note(np.array_equal(found, self.of_model(replica, idx)), operation, idx, found)
        self.c.fence()

    def errors(self):
        """Whatever makes no sense is refused before anything moves."""
        c, beyond = self.c, self.partition.replicas
        rows, columns = self.of_model(0, (0, 0)).shape
        outside = (-1, 0), (0, -1), (c.grid_shape()[0], 0), (0, c.grid_shape()[1])
        shapes = (rows + 1, columns), (rows * columns,), (columns + 40, rows), ()
        writes, value = (c.put_tile, c.accumulate_tile), np.ones((rows, columns))
        calls = [c.tile, c.get_tile, c.get_tile_async]
        calls += [lambda idx, q, write=write: write(idx, value, q) for write in writes]
        refused = [("UsageError", "fence()", partial(c.T.get_tile, (0, 0)))]
        refused += [("LayoutError", "", partial(c.tile_bounds, (99, 0)))]
        refused += [("LayoutError", "", partial(call, x, None)) for call in calls for x in outside]
        refused += [
            ("UsageError", f"{rows}x{columns}", partial(write, (0, 0), np.ones(shape)))
            for write in writes
            for shape in shapes
        ]
        for q in (-1, beyond):
            of_replica = [partial(call, (0, 0), q) for call in calls]
            of_replica += [partial(c.overlapping_tiles, ((0, 1), (0, 1)), q)]
            of_replica += [partial(c.reduce_replicas, q), partial(c.broadcast_replica, q)]
            refused += [("UsageError", f"0 to {beyond - 1}, got {q}", call) for call in of_replica]
        for kind, words, call in refused:
            found, text = "no error", ""
            try:
                call()
            except (UsageError, LayoutError) as error:
                found, text = type(error).__name__, str(error)
            self.note(found == kind and words in text, kind, words, found, text)
        short = c.context.empty((8, 4), "row", "bfloat16")
        short.local[...] = 1
        short.fence()
        after = (self.rank + 1) % self.comm.size, 0
        error = message_of(lambda: short.accumulate_tile(after, np.ones((2, 4))))
        short.fence()
        if "mpi" in short.placed.protocols:
            self.note(error[0] == "UnsupportedError" and "Use float32" in error[1], error)
        else:
            self.note((short.local == 2).all(), "accumulate_tile of bfloat16", error)


def main() -> None:
    wrong, refused = [], np.zeros(2, int)
    with ranks() as comm:
        for x, layout in enumerate(LAYOUTS):
            with matrix(comm, layout, SHAPE, "float64" if x % 2 else "float32") as c:
                table = Table(c, x)
                for operation in OPERATIONS * 2:
                    table.errors() if operation == "errors" else table.change(operation)
                    table.check(operation)
                wrong += table.wrong
                refused += table.refused
                del table
        wrong, refused = comm.allreduce(wrong), comm.allreduce(refused)
        names = "tile", "accumulate"
        answer(comm, {"wrong": wrong[:20], "refused": dict(zip(names, refused.tolist()))})


if __name__ == "__main__":
    main()
