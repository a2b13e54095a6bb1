"""Lower bounds of all triples of layouts at once.

The volume that the universal algorithm moves depends on two layouts at a time: the layout of the
stationary matrix determines the GEMMs of a rank, and this layout and that of another matrix
determine what the rank fetches of it, or adds to C. So the bound of a triple is the sum of two
numbers for each class of links, computed once per pair of layouts: a hundred thousand triples are
fast.

The bound never exceeds the simulated time, or the counted bytes, of any program of the triple:
every element that a rank multiplies is fetched at least once if another rank of its replica stores
it, every element of its partial sums is sent if another rank of its replica of C stores it, and the
other rank is busy as long; no GEMM is faster than its FLOPs at the rate of large GEMMs, nor, with
Stationary A or B on devices, than with full tiles along the axis that is cut. Three ranks are
examined. For layouts with several tiles per rank transfers are not bounded. Where the iteration
offset moves the interval of a replica, which depends on all three layouts, the bound is that of the
best interval, and the estimate that of the interval without an offset.
"""

from typing import NamedTuple

import numpy as np

from drbench.model.gemm import Compute
from drbench.model.machine import Machine
from drbench.program.problem import AXES, Operand
from partitions import Partition, part

#: Share of the shorter of GEMMs and transfers that an estimate assumes not to overlap.
_EXPOSED = 0.05


class Rates(NamedTuple):
    """The costs of transfers and GEMMs: seconds on a machine, bytes without one.

    Attributes
    ----------
    classes : dict of int to array of int
        For each examined rank the class of its link to each rank.
    moved : dict of str to array of float
        Cost of a transferred element of each matrix, by class of links.
    passive : array of float
        1 for each class on which a transfer keeps a link of the other rank busy as long, else 0.
    compute : Compute or None
        None: GEMMs cost nothing.
    cut_on : dict of str to str
        For a stationary matrix the axis that its GEMMs are cut along into separate GEMMs.
    """

    classes: dict[int, np.ndarray]
    moved: dict[str, np.ndarray]
    passive: np.ndarray
    compute: Compute | None = None
    cut_on: dict[str, str] = {}


def rates_of(machine: Machine | None, sizes: dict[str, int], ranks: int) -> Rates:
    """The rates of a machine of :func:`.predict.seen_by`; partial sums are no faster than
    copies."""
    looked_at = {0, ranks // 2, ranks - 1}
    if machine is None or not machine.links:
        classes = {rank: np.zeros(ranks, dtype=int) for rank in looked_at}
        one = np.ones(1)
        moved = {name: one * (0 if machine else item) for name, item in sizes.items()}
        return Rates(classes, moved, one, machine and machine.compute)
    number = {link.name: at for at, link in enumerate(machine.links)}
    classes = {
        rank: np.array(
            [number[machine.link(rank, each).name] if each != rank else 0 for each in range(ranks)]
        )
        for rank in looked_at
    }
    fastest = max(1.0, machine.pull_efficiency, machine.accumulate_efficiency)
    pairs_at_once = 4 if machine.torus else max(ranks - 1, 1)  # links of pairs, all busy at once
    bandwidths = [
        link.bandwidth_bytes_per_s * fastest * (pairs_at_once if link.shared == "pair" else 1)
        for link in machine.links
    ]
    passive = np.array([float(not link.own_timer) for link in machine.links])
    # on cores slices may be packed and multiplied in one GEMM
    cut_on = {} if machine.adds_on_core else {"A": "n", "B": "m"}
    moved = {name: item / np.array(bandwidths) for name, item in sizes.items()}
    return Rates(classes, moved, passive, machine.compute, cut_on)


def bounds_of(
    layouts: dict[str, list[Operand]], sizes: tuple[int, int, int], rates: Rates
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and estimates of all triples of some layouts of A, B and C: arrays (layout of A, of B,
    of C, stationary matrix in the order C, B, A).

    Examples
    --------
    Two ranks, all by columns, and B by rows; with Stationary C rank 0 lacks half of A, 32 elements,
    or half of A and half of its columns of B:

    >>> from drbench.program.problem import Problem
    >>> one, two = Problem(8, 8, 8, 2, *["column"] * 3), Problem(8, 8, 8, 2, b="row")
    >>> layouts = {"A": [one.a], "B": [one.b, two.b], "C": [one.c]}
    >>> rates = rates_of(None, dict.fromkeys("ABC", 1), 2)
    >>> bounds_of(layouts, (8, 8, 8), rates)[0][..., 0].ravel().tolist()
    [32.0, 48.0]
    """
    held = {name: _held([each.partition for each in given]) for name, given in layouts.items()}
    shape = [*map(len, layouts.values()), 3]
    bounds, guesses = np.zeros(shape), np.zeros(shape)
    for which, name in enumerate("CBA"):
        others = [other for other in "ABC" if other != name]
        views = [np.moveaxis(each[..., which], "ABC".index(name), 0) for each in (bounds, guesses)]
        for at, still in enumerate(layouts[name]):
            every = _multiplied(still, *(each[at] for each in held[name]), dict(zip("mnk", sizes)))
            for rank in rates.classes:
                extents = [int(np.ptp(every[axis][:, rank])) for axis in "mnk"]
                if 0 in extents:
                    continue
                one, two = (_moved(rank, other, *held[other], every, rates) for other in others)
                moves = sure = (one[:, None] + two).max(axis=(2, 3))
                if still.partition.replicas > 1 and still.partition.grid_shape != (1, 1):
                    one, two = (_fewest(rank, x, held[x][0], every, still, rates) for x in others)
                    sure = (one[:, None] + two).max(axis=2)
                least, likely = _work(extents, rates, rates.cut_on.get(name))
                guess = np.maximum(moves, likely) + _EXPOSED * np.minimum(moves, likely)
                for view, found in zip(views, (np.maximum(sure, least), guess)):
                    np.maximum(view[at], found, out=view[at])
    return bounds, guesses


def _work(extents: list[int], rates: Rates, cut_on: str | None) -> tuple[float, float]:
    """(lower bound, estimate) of the cost of a rank's GEMMs."""
    compute = rates.compute
    if compute is None:
        return 0.0, 0.0
    m, n, k = extents
    least = 2.0 * m * n * k / (compute.peak_flops * compute.sustained)
    if cut_on:
        least = max(least, compute.tiles_s(m, n, k, cut_on))
    return least, max(least, compute.gemm_s(m, n, k))


def _held(partitions: list[Partition]) -> tuple[np.ndarray, np.ndarray]:
    """(row0, row1, col0, col1) of the one tile of each rank, an array (layout, 4, rank), and the
    replica of each, (layout, rank); zeros where it has none, or several.

    Examples
    --------
    >>> from partitions import partition
    >>> tiles, replicas = _held([partition("column/c2", (6, 8), 4)])
    >>> tiles[0].T.tolist(), replicas[0].tolist()
    ([[0, 6, 0, 4], [0, 6, 4, 8], [0, 6, 0, 4], [0, 6, 4, 8]], [0, 0, 1, 1])
    """
    tiles = np.zeros((len(partitions), 4, partitions[0].nprocs), dtype=np.int64)
    replicas = np.zeros(tiles[:, 0].shape, dtype=np.int64)
    for at, each in enumerate(partitions):
        for rank in range(each.nprocs):
            replicas[at, rank] = each.replica_of(rank)
            if len(of := each.tiles_of(rank)) == 1:
                rows, cols = each.tile_bounds(of[0])
                tiles[at, :, rank] = *rows, *cols
    return tiles, replicas


def _multiplied(still: Operand, tiles: np.ndarray, replicas: np.ndarray, sizes: dict) -> dict:
    """The ranges of m, n and k that each rank multiplies, by axis: arrays (2, rank)."""
    (free,) = sizes.keys() - {*still.axes}
    count = still.partition.replicas
    shares = np.array([tuple(part(sizes[free], each, count)) for each in range(count)])
    return dict(zip((*still.axes, free), (tiles[:2], tiles[2:], shares[replicas].T)))


def _moved(
    rank: int, name: str, tiles: np.ndarray, replicas: np.ndarray, every: dict, rates: Rates
) -> np.ndarray:
    """The cost of a rank's transfers in each direction for layouts of a matrix, if all ranks
    multiply those ranges: an array (layout, direction, class)."""
    rows, cols = (every[axis] for axis in AXES[name])
    same = replicas == replicas[:, [rank]]
    same[:, rank] = False
    moved = rates.moved[name]
    cost = np.eye(len(moved))[rates.classes[rank]] * moved
    own = (_elements(tiles, rows[:, [rank]], cols[:, [rank]]) * same) @ cost
    served = (_elements(tiles[:, :, [rank]], rows, cols) * same) @ (cost * rates.passive)
    # partial sums use the opposite direction of operands
    return np.stack([served, own] if name == "C" else [own, served], axis=1)


def _fewest(rank: int, name: str, tiles: np.ndarray, every: dict, still: Operand, rates: Rates):
    """The cost of a rank's own transfers in each direction for layouts of a matrix, if all its
    links are busy and its interval begins where its own tile has most of it: an array (layout,
    direction)."""
    needed = own = np.ones(len(tiles))
    for at, axis in enumerate(AXES[name]):
        (low, high), (start, stop) = tiles[:, 2 * at : 2 * at + 2, rank].T, every[axis][:, rank]
        shared = np.minimum(high, stop) - np.maximum(low, start)
        if axis not in still.axes:
            shared = np.minimum(high - low, stop - start)
        needed, own = needed * (stop - start), own * shared.clip(0)
    one_tile = tiles[:, :, rank].any(axis=1)
    with np.errstate(divide="ignore"):
        cost = (needed - own) * one_tile / (1 / rates.moved[name]).sum()
    zero = np.zeros(len(tiles))
    return np.stack([zero, cost] if name == "C" else [cost, zero], axis=1)


def _elements(tiles: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Elements of regions in tiles (layout, 4, rank): an array (layout, rank)."""
    tall = np.minimum(tiles[:, 1], rows[1]) - np.maximum(tiles[:, 0], rows[0])
    wide = np.minimum(tiles[:, 3], cols[1]) - np.maximum(tiles[:, 2], cols[0])
    return tall.clip(0) * wide.clip(0)
