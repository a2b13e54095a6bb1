"""Which triples of layouts can still win: a lower bound for all of them at once.

What the universal algorithm moves depends on two layouts at a time: what a rank multiplies follows
from the layout of the stationary matrix alone, and what it fetches of another matrix, or adds to
C, from that one's and this. So the bound of a triple is the sum of two numbers a link class, which
are found for each pair of layouts, and a hundred thousand triples are judged in a moment.

The bound never exceeds the simulated time, or counted bytes, of any program of the triple:

* every element that a rank multiplies is fetched at least once, if its replica of the matrix has it
  elsewhere, and every element of its sums is sent, if its replica of C has it elsewhere; the owner
  is on the other end of all this, with links of its own;
* no product is faster than its FLOPs at the rate that large ones reach; with Stationary C on
  devices none is faster than its pieces of m and n, k being whole, for k alone is cut further; with
  Stationary A or B none is faster than tiles over all of its m and n that are never short along
  the axis that is cut further, nor wait for the last of a wave, each over all of k;
* copies of C are reduced, then given back, after a Fence each (:mod:`drbench.program.replicas`).

Layouts whose ranks hold several tiles are bounded by their products alone.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from drbench.model.machine import Machine
from drbench.program.problem import AXES, Operand
from partitions import Partition, part

#: How much of the shorter of products and transfers is taken not to overlap, in an estimate.
_EXPOSED = 0.05

#: The matrices beside the stationary one, C last.
_OTHERS = {"C": "AB", "B": "AC", "A": "BC"}


class Rates(NamedTuple):
    """What bounds are made of.

    Attributes
    ----------
    product_s : callable
        ``product_s(m, n, k)``: what no sum of products of those m and n with parts of k is faster
        than.
    flops_per_s : float
        Of large products.
    cut_s : callable
        ``cut_s(m, n, k, axis)``: the same if ``axis``, m or n, is cut anyhow, too.
    whole : bool
        Pieces may be copied together and multiplied at once.
    reads_s, sends_s : tuple of float
        Seconds an element of each class of links that a rank reads on, and sends on.
    owners : tuple of float
        1 for each class on which this occupies a link of the other rank for as long, else 0.
    """

    product_s: Callable
    flops_per_s: float
    cut_s: Callable
    whole: bool
    reads_s: tuple[float, ...]
    sends_s: tuple[float, ...]
    owners: tuple[float, ...]


def rates_of(machine: Machine, itemsize: int, ranks: int) -> Rates:
    """The rates of a machine, as a case sees it; no sum is sent faster than a copy. Links of pairs
    of ranks may all be busy at once."""
    compute = machine.compute
    splits, fastest = max(compute.splits), max(1.0, machine.accumulate_efficiency)
    ways = 4 if machine.torus else max(ranks - 1, 1)
    each = [
        itemsize / link.bandwidth_bytes_per_s / (ways if link.shared == "pair" else 1)
        for link in machine.links
    ] or [0.0]

    @cache
    def product_s(m: int, n: int, k: int) -> float:
        # as a function of k it is the least of straight lines, but for what rounding up adds
        return compute.gemm_s(m, n, k, itemsize) * k / (k + splits)

    return Rates(
        product_s,
        compute.peak_flops * compute.sustained,
        compute.tiles_s,
        machine.adds_on_core,
        tuple(seconds / machine.pull_efficiency for seconds in each),
        tuple(seconds / fastest for seconds in each),
        tuple(float(not link.own_timer) for link in machine.links) or (1.0,),
    )


def counts(itemsize: int) -> Rates:
    """Without a machine bytes are counted, and products are free."""
    each, nothing = (float(itemsize),), lambda *extents: 0.0
    return Rates(nothing, inf, nothing, True, each, each, (1.0,))


def _elements(tiles: np.ndarray, rows, cols) -> np.ndarray:
    """Elements that tiles, an array (layout, 4, rank), have of a region, or of each rank's own: an
    array (layout, rank)."""
    tall = np.minimum(tiles[:, 1], rows[1]) - np.maximum(tiles[:, 0], rows[0])
    wide = np.minimum(tiles[:, 3], cols[1]) - np.maximum(tiles[:, 2], cols[0])
    return tall.clip(0) * wide.clip(0)


class Sieve:
    """Lower bounds of all triples of some layouts of A, B and C.

    Parameters
    ----------
    layouts : dict of str to list of Operand
        Of each matrix.
    sizes : (int, int, int)
        m, n and k.
    rates : Rates
    classes : callable, optional
        ``classes(a, b)``: the number of the class of links between two ranks; None for one class.

    Examples
    --------
    Two ranks, all by columns, and B by rows; with Stationary C rank 0 lacks half of A, 32 elements,
    or half of A and half of its columns of B:

    >>> from drbench.program.problem import Problem
    >>> one, two = Problem(8, 8, 8, 2, *["column"] * 3), Problem(8, 8, 8, 2, b="row")
    >>> sieve = Sieve({"A": [one.a], "B": [one.b, two.b], "C": [one.c]}, (8, 8, 8), counts(1))
    >>> sieve.all()[0][..., 0].ravel().tolist()
    [32.0, 48.0]
    """

    def __init__(self, layouts, sizes, rates: Rates, classes: Callable | None = None):
        self.layouts, self.rates = layouts, rates
        self._cuts: dict = {}
        self.extents = dict(zip("mnk", sizes))
        self.nodes = classes or (lambda one, two: 0)
        nprocs = next(iter(layouts.values()))[0].partition.nprocs
        self.ranks = sorted({0, nprocs // 2, nprocs - 1})
        self.classes = {rank: self._near(rank, nprocs) for rank in self.ranks}
        self.single, self.tiles, self.replicas = {}, {}, {}
        for name, operands in layouts.items():
            parts = [each.partition for each in operands]
            self.single[name] = np.array([_single(each) for each in parts])
            tiles, replicas = zip(*map(_all_bounds, parts))
            self.tiles[name], self.replicas[name] = np.stack(tiles), np.stack(replicas)
        self.peers = {
            (name, rank): self._peers(name, rank) for name, rank in product(layouts, self.ranks)
        }
        self.finishing = np.array([self._finishing(each.partition) for each in layouts["C"]])

    def _near(self, rank: int, nprocs: int) -> list[list[int]]:
        """The other ranks by the class of links that joins them with this one; of the last class
        nobody: what is left of a region."""
        found = [[] for _ in self.rates.reads_s[:-1]]
        for other in range(nprocs) if found else ():
            number = self.nodes(rank, other) if other != rank else len(found)
            if number < len(found):
                found[number].append(other)
        return found

    def _finishing(self, c: Partition) -> float:
        """Seconds of the reduction of copies and of giving the result back: what one
        rank of the first copy reads, and then sends."""
        copies = len(c.copies())
        if copies == 1 or not _single(c) or self.rates.flops_per_s == inf:
            return 0.0  # bytes of other times of the busiest rank may be another's
        elements, here = c.local_size(0), c.copies(c.replica_of(0))
        members = [c.members(replica).index(0) for replica in here if 0 in c.members(replica)]
        others = [c.members(replica)[members[0]] for replica in here if 0 not in c.members(replica)]
        reads, sends = np.zeros(len(self.rates.reads_s)), np.zeros(len(self.rates.reads_s))
        for other in others:
            number = self.nodes(0, other)
            read_s, owner = elements * self.rates.reads_s[number], self.rates.owners[number]
            reads[number] += read_s
            sends[number] = max(sends[number] * owner + read_s, read_s)  # who reads has own links
        return reads.max() + sends.max()

    def _peers(self, name: str, rank: int) -> np.ndarray:
        """Which other ranks hold a rank's replica, by class of links: (class, layout, rank)."""
        replicas = self.replicas[name]
        same = replicas == replicas[:, rank : rank + 1]
        same[:, rank] = False
        found = np.zeros((len(self.rates.reads_s), *same.shape), dtype=bool)
        for number, others in enumerate(self.classes[rank]):
            found[number][:, others] = same[:, others]
        found[-1] = same & ~found[:-1].any(axis=0)
        return found

    def _loads(self, rank: int, name: str, ranges: dict) -> np.ndarray:
        """What a rank that multiplies those ranges of m, n and k reads of a matrix, or sends to it,
        by class of links: an array (class, layout)."""
        rows, cols = (ranges[axis] for axis in AXES[name])
        tiles = self.tiles[name]
        own = _elements(tiles[:, :, [rank]], rows, cols)[:, 0]
        near = [
            (_elements(tiles[:, :, others], rows, cols) * same[:, others]).sum(axis=1)
            for others, same in zip(self.classes[rank], self.peers[name, rank])
        ]
        whole = (rows[1] - rows[0]) * (cols[1] - cols[0])
        moved = np.stack([*near, whole - own - sum(near)])
        moved[:, ~self.single[name]] = 0
        rates = self.rates.sends_s if name == "C" else self.rates.reads_s
        return moved * np.array(rates)[:, None]

    def _serves(self, rank: int, name: str, every: dict) -> np.ndarray:
        """What others, who multiply those ranges each, read of a rank's tile, or send to it: as
        :meth:`_loads`."""
        elements = _elements(self.tiles[name][:, :, [rank]], *(every[axis] for axis in AXES[name]))
        moved = (elements * self.peers[name, rank]).sum(axis=2)
        rates = self.rates.sends_s if name == "C" else self.rates.reads_s
        return moved * (np.array(rates) * np.array(self.rates.owners))[:, None]

    def _ranges(self, x: int, still: Operand) -> dict[str, np.ndarray]:
        """The ranges of m, n and k that each rank multiplies: an array (2, rank) of each axis."""
        (free,) = {"m", "n", "k"} - {*still.axes}
        tiles, replicas = self.tiles[still.name][x], self.replicas[still.name][x]
        count = still.partition.replicas
        shares = np.array([tuple(part(self.extents[free], q, count)) for q in range(count)])
        return dict(zip((*still.axes, free), (tiles[:2], tiles[2:], shares[replicas].T)))

    def of(self, stationary: str) -> tuple[np.ndarray, np.ndarray]:
        """Bounds and estimates with one matrix stationary: arrays (layout of A, of B, of C)."""
        one, two = _OTHERS[stationary]
        counts = [len(self.layouts[name]) for name in (stationary, one, two)]
        bounds, guesses = np.zeros(counts), np.zeros(counts)
        for x, still in enumerate(self.layouts[stationary]):
            if not self.single[stationary][x]:
                continue
            every = self._ranges(x, still)
            for rank in self.ranks:
                ranges = {axis: tuple(ends[:, rank].tolist()) for axis, ends in every.items()}
                volume = float(np.prod([float(stop - start) for start, stop in ranges.values()]))
                if not volume:
                    continue
                work = 2 * volume / self.rates.flops_per_s
                pieces = self._pieces(stationary, ranges) if rank == 0 else work
                took, gave = zip(
                    *(
                        (self._loads(rank, name, ranges), self._serves(rank, name, every))
                        for name in (one, two)
                    )
                )
                if two == "C":  # sums leave where operands come, and the other way round
                    took, gave = (took[0], gave[1]), (gave[0], took[1])
                moves = np.maximum(_both(*took), _both(*gave))
                if stationary != "C" and not self.rates.whole:
                    work = max(work, self._cut_s(stationary, ranges))
                least = np.maximum(moves, pieces if stationary == "C" else work)
                np.maximum(bounds[x], least, out=bounds[x])
                likely = np.maximum(pieces, moves) + _EXPOSED * np.minimum(pieces, moves)
                np.maximum(guesses[x], likely, out=guesses[x])
        order = [(stationary, one, two).index(name) for name in "ABC"]
        return tuple(each.transpose(order) + self.finishing for each in (bounds, guesses))

    def _cut_s(self, stationary: str, ranges: dict) -> float:
        """Seconds of the products of a rank whatever they are cut in."""
        sizes = (ranges[axis][1] - ranges[axis][0] for axis in "mnk")
        return self.rates.cut_s(*sizes, {"A": "n", "B": "m"}[stationary])

    def _pieces(self, stationary: str, ranges: dict) -> np.ndarray | float:
        """Seconds of the products of a rank, cut along m and n where tiles are: an array (layout of
        one other matrix, of the second)."""
        k = ranges["k"][1] - ranges["k"][0]
        if self.rates.whole:
            return self.rates.product_s(*(ranges[axis][1] - ranges[axis][0] for axis in "mnk"))
        one, two = _OTHERS[stationary]
        axis = {"A": "m", "B": "n"}[one]
        of_one, first = _distinct(self._inner(name=one, axis=axis, within=ranges[axis]))
        if stationary == "C":
            of_two, second = _distinct(
                (frozenset(), cols) for cols in self._inner("B", "n", ranges["n"])
            )
        else:
            inside = (self._inner("C", each, ranges[each]) for each in "mn")
            of_two, second = _distinct(zip(*inside))
        table = np.empty((len(of_one), len(of_two)))
        for x, cuts in enumerate(of_one):
            for y, (rows, cols) in enumerate(of_two):
                rows, cols = (rows | cuts, cols) if axis == "m" else (rows, cols | cuts)
                table[x, y] = sum(
                    tall * wide * self.rates.product_s(m, n, k)
                    for m, tall in _lengths(ranges["m"], rows)
                    for n, wide in _lengths(ranges["n"], cols)
                )
        return table[first][:, second]

    def _inner(self, name: str, axis: str, within: tuple[int, int]) -> list[frozenset[int]]:
        """Tile boundaries strictly inside a range, of each layout of a matrix."""
        key = name, axis, within
        if key not in self._cuts:
            self._cuts[key] = [
                frozenset(each.cuts(axis, *within)[1:-1]) for each in self.layouts[name]
            ]
        return self._cuts[key]

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds and estimates of all triples: arrays (layout of A, of B, of C, stationary), that
        being C, B, A."""
        bounds, guesses = zip(*(self.of(stationary) for stationary in "CBA"))
        return np.stack(bounds, axis=-1), np.stack(guesses, axis=-1)


def _both(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Seconds of the busiest class of links that carry both: (layout of one, of the other)."""
    return (one[:, :, None] + two[:, None, :]).max(axis=0)


def _all_bounds(partition: Partition) -> tuple[np.ndarray, np.ndarray]:
    """(row0, row1, col0, col1) of the one tile of each rank in an array (4, rank), and the replica
    of each; nothing where a rank has no tile, -1 where it is idle. A layout of several tiles has
    nothing either.

    Examples
    --------
    >>> from partitions import partition
    >>> found, replicas = _all_bounds(partition("column/c2", (6, 8), 4))
    >>> found.T.tolist(), replicas.tolist()
    ([[0, 6, 0, 4], [0, 6, 4, 8], [0, 6, 0, 4], [0, 6, 4, 8]], [0, 0, 1, 1])
    """
    places, nprocs = partition.places, partition.nprocs
    tiles, replicas = np.zeros((4, nprocs), dtype=np.int64), np.full(nprocs, -1)
    ends = []
    for axis, count in ((partition.rows, len(places.rows)), (partition.cols, len(places.cols))):
        of = np.zeros((2, count), dtype=np.int64)
        for segment in (axis[x] for x in range(len(axis))) if _single(partition) else ():
            of[:, segment.coordinate] = segment[:2]
        ends.append(of)
    rows, cols, copies = (np.array(each) for each in (places.rows, places.cols, places.replicas))
    ranks = rows[:, None, None] + cols[:, None] + copies
    tiles[:2, ranks] = ends[0][:, :, None, None]
    tiles[2:, ranks] = ends[1][:, None, :, None]
    replicas[ranks] = np.arange(len(copies))
    empty = (tiles[0] >= tiles[1]) | (tiles[2] >= tiles[3])
    tiles[:, empty] = 0
    return tiles, replicas


def _distinct(values) -> tuple[list, list[int]]:
    """Those that differ, and for each value which of them it is."""
    known: dict = {}
    at = [known.setdefault(value, len(known)) for value in values]
    return list(known), at


@lru_cache(maxsize=4096)
def _lengths(within: tuple[int, int], cuts: frozenset[int]) -> list[tuple[int, int]]:
    """The lengths of the pieces of a range, and how many there are of each."""
    ends = sorted({*within, *cuts})
    return list(Counter(stop - start for start, stop in zip(ends, ends[1:])).items())


def _single(partition: Partition) -> bool:
    """Whether no rank holds more than one tile."""
    rows, cols = partition.grid_shape
    return rows <= len(partition.places.rows) and cols <= len(partition.places.cols)
