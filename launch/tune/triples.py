"""Lower bounds of all triples of layouts at once.

The volume that the universal algorithm moves depends on two layouts at a time: the layout of the
stationary matrix determines the GEMMs of a rank, and this layout and that of another matrix
determine what the rank fetches of it, or adds to C. So the bound of a triple is the sum of two
numbers for each link of a rank, computed once per pair of layouts: a hundred thousand triples are
fast.

The bound never exceeds the simulated time, or the counted bytes, of any program of the triple:
every element that a rank multiplies is fetched at least once if another rank of its replica stores
it, every element of its partial sums is sent if another rank of its replica of C stores it, and the
other rank is busy as long; no GEMM is faster than its FLOPs at the rate of large GEMMs, nor, with
Stationary A or B on devices, than with full tiles along the axis that is cut. Some ranks are
examined, and of each its own links. For layouts with several tiles per rank transfers are not
bounded. Where the iteration offset moves the interval of a replica, which depends on all three
layouts, the bound is that of the best interval, and the estimate that of the interval without an
offset.
"""

from typing import NamedTuple

import numpy as np

from drbench.model.gemm import Compute
from drbench.model.machine import Machine
from drbench.partitions import Partition, part
from drbench.program.problem import AXES, Operand

#: Share of the shorter of GEMMs and transfers that an estimate assumes not to overlap.
_EXPOSED = 0.05
#: Most ranks that are examined, evenly spaced, and the last.
_EXAMINED = 8


class Links(NamedTuple):
    """The links that a rank's transfers occupy.

    Attributes
    ----------
    into, out : array of float
        Cost of a transferred byte, from each rank and to each rank, on each of the links.
    served_into, served_out : array of float
        The same for transfers that the other rank started.
    """

    into: np.ndarray
    out: np.ndarray
    served_into: np.ndarray
    served_out: np.ndarray


class Rates(NamedTuple):
    """The costs of transfers and GEMMs: seconds on a machine, bytes without one.

    Attributes
    ----------
    links : dict of int to Links
        By examined rank.
    moved : dict of str to float
        Bytes of an element of each matrix, over the share of the bandwidth that its transfers
        reach.
    compute : Compute or None
        None: GEMMs cost nothing.
    item : int
        Bytes of an element of A.
    cut_on : dict of str to str
        For a stationary matrix the axis that its GEMMs are cut along into separate GEMMs.
    """

    links: dict[int, Links]
    moved: dict[str, float]
    compute: Compute | None = None
    item: int = 4
    cut_on: dict[str, str] = {}


def rates_of(machine: Machine | None, sizes: dict[str, int], ranks: int) -> Rates:
    """The rates of a machine as a case sees it (:func:`drbench.launch.models.predict.seen_by`);
    partial sums are no faster than copies."""
    examined = sorted({ranks * at // _EXAMINED for at in range(_EXAMINED)} | {ranks - 1})
    if machine is None or not machine.links:
        into = np.tile([[1.0, 0.0]], (ranks, 1))
        links = Links(into, into[:, ::-1], into, into[:, ::-1])
        moved = {name: item * float(machine is None) for name, item in sizes.items()}
        return Rates(dict.fromkeys(examined, links), moved, machine and machine.compute, sizes["A"])
    # on cores slices may be packed and multiplied in one GEMM
    cut_on = {} if machine.adds_on_core else {"A": "n", "B": "m"}
    adds = max(1.0, machine.accumulate_efficiency)  # pushed ones are copies
    reached = {"A": machine.pull_efficiency, "B": machine.pull_efficiency, "C": adds}
    moved = {name: item / reached[name] for name, item in sizes.items()}
    links = {rank: _links_of(machine, rank, ranks) for rank in examined}
    return Rates(links, moved, machine.compute, sizes["A"], cut_on)


def _links_of(machine: Machine, rank: int, ranks: int) -> Links:
    """The links of one rank; on a torus those to its neighbours."""
    number: dict[tuple, int] = {}
    entries: list[list[tuple]] = [[], [], [], []]  # of Links
    for other in range(ranks):
        for at, ends in enumerate(((other, rank), (rank, other)) if other != rank else ()):
            link, resources = machine.route(*ends)
            seconds, shares = 1 / link.bandwidth_bytes_per_s, machine.shares(link)
            if link.own_timer:
                resources, shares = ((link.name, "in" if at == 0 else "out"),), ()
            elif machine.torus:
                resources = resources[-1:] if at == 0 else resources[:1]
            for resource, share in zip(resources, shares or (1.0,) * len(resources)):
                where = other, number.setdefault(resource, len(number)), seconds * share
                entries[at].append(where)
                if not link.own_timer:
                    entries[at + 2].append(where)
    costs = np.zeros((4, ranks, max(len(number), 1)))
    for cost, entry in zip(costs, entries):
        for other, resource, seconds in entry:
            cost[other, resource] += seconds
    return Links(*costs)


def bounds_of(
    layouts: dict[str, list[Operand]], sizes: tuple[int, int, int], rates: Rates
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds and estimates of all triples of some layouts of A, B and C, and about how many GEMMs a
    rank has: arrays (layout of A, of B, of C, stationary matrix in the order C, B, A).

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
    own_tiles = {
        name: _own_tiles([operand.partition for operand in operands])
        for name, operands in layouts.items()
    }
    shape = [*map(len, layouts.values()), 3]
    bounds, guesses, gemms = np.zeros(shape), np.zeros(shape), np.ones(shape)
    launch_s = rates.compute.launch_s if rates.compute else 0.0
    for which, name in enumerate("CBA"):
        others = [other for other in "ABC" if other != name]
        views = [
            np.moveaxis(array[..., which], "ABC".index(name), 0)
            for array in (bounds, guesses, gemms)
        ]
        for at, stationary in enumerate(layouts[name]):
            tiles, replicas = own_tiles[name]
            every = _ranges_multiplied(stationary, tiles[at], replicas[at], dict(zip("mnk", sizes)))
            for rank in rates.links:
                extents = [int(np.ptp(every[axis][:, rank])) for axis in "mnk"]
                if 0 in extents:
                    continue
                (first, first_cuts), (second, second_cuts) = (
                    _price_transfers(rank, other, *own_tiles[other], every, rates)
                    for other in others
                )
                moves = sure = (first[:, None] + second).max(axis=2)
                partition = stationary.partition
                if partition.replicas > 1 and partition.grid_shape != (1, 1):
                    first, second = (
                        _bound_transfers(rank, other, own_tiles[other][0], every, stationary, rates)
                        for other in others
                    )
                    sure = (first[:, None] + second).max(axis=2)
                count = np.maximum.outer(first_cuts, second_cuts)
                least, likely = _work(extents, rates, rates.cut_on.get(name))
                likely = likely + launch_s * (count - 1)
                guess = np.maximum(moves, likely) + _EXPOSED * np.minimum(moves, likely)
                for view, values in zip(views, (np.maximum(sure, least), guess, count)):
                    np.maximum(view[at], values, out=view[at])
    return bounds, guesses, gemms


def _work(extents: list[int], rates: Rates, cut_on: str | None) -> tuple[float, float]:
    """(lower bound, estimate) of the cost of a rank's GEMMs."""
    compute = rates.compute
    if compute is None:
        return 0.0, 0.0
    m, n, k = extents
    least = 2.0 * m * n * k / (compute.peak_flops * compute.sustained)
    if cut_on:
        least = max(least, compute.tiles_s(m, n, k, cut_on))
    return least, max(least, compute.gemm_s(m, n, k, rates.item))


def _own_tiles(partitions: list[Partition]) -> tuple[np.ndarray, np.ndarray]:
    """(row0, row1, col0, col1) of the one tile of each rank, an array (layout, 4, rank), and the
    replica of each, (layout, rank); zeros where it has none, or several.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> tiles, replicas = _own_tiles([partition("column/c2", (6, 8), 4)])
    >>> tiles[0].T.tolist(), replicas[0].tolist()
    ([[0, 6, 0, 4], [0, 6, 4, 8], [0, 6, 0, 4], [0, 6, 4, 8]], [0, 0, 1, 1])
    """
    tiles = np.zeros((len(partitions), 4, partitions[0].nprocs), dtype=np.int64)
    replicas = np.zeros(tiles[:, 0].shape, dtype=np.int64)
    for at, partition in enumerate(partitions):
        for rank in range(partition.nprocs):
            replicas[at, rank] = partition.replica_of(rank)
            if len(own := partition.tiles_of(rank)) == 1:
                rows, cols = partition.tile_bounds(own[0])
                tiles[at, :, rank] = *rows, *cols
    return tiles, replicas


def _ranges_multiplied(
    stationary: Operand, tiles: np.ndarray, replicas: np.ndarray, sizes: dict
) -> dict:
    """The ranges of m, n and k that each rank multiplies, by axis: arrays (2, rank)."""
    (free,) = sizes.keys() - {*stationary.axes}
    count = stationary.partition.replicas
    shares = np.array([tuple(part(sizes[free], replica, count)) for replica in range(count)])
    return dict(zip((*stationary.axes, free), (tiles[:2], tiles[2:], shares[replicas].T)))


def _price_transfers(
    rank: int, name: str, tiles: np.ndarray, replicas: np.ndarray, every: dict, rates: Rates
) -> tuple[np.ndarray, np.ndarray]:
    """The cost of a rank's transfers on each of its links for layouts of a matrix, if all ranks
    multiply those ranges, an array (layout, link); and how many tiles those ranges are in."""
    rows, cols = (every[axis] for axis in AXES[name])
    same = replicas == replicas[:, [rank]]
    same[:, rank] = False
    own = _elements(tiles, rows[:, [rank]], cols[:, [rank]]) * same
    served = _elements(tiles[:, :, [rank]], rows, cols) * same
    links = rates.links[rank]
    # partial sums use the opposite direction of operands
    if name == "C":
        cost = own @ links.out + served @ links.served_into
    else:
        cost = own @ links.into + served @ links.served_out
    return cost * rates.moved[name], 1 + np.count_nonzero(own, axis=1)


def _bound_transfers(
    rank: int, name: str, tiles: np.ndarray, every: dict, stationary: Operand, rates: Rates
):
    """The cost of a rank's own transfers in each direction for layouts of a matrix, if all its
    links are busy and its interval begins where its own tile has most of it: an array (layout,
    direction)."""
    needed = own = np.ones(len(tiles))
    for at, axis in enumerate(AXES[name]):
        (low, high), (start, stop) = tiles[:, 2 * at : 2 * at + 2, rank].T, every[axis][:, rank]
        shared = np.minimum(high, stop) - np.maximum(low, start)
        if axis not in stationary.axes:
            shared = np.minimum(high - low, stop - start)
        needed, own = needed * (stop - start), own * shared.clip(0)
    one_tile, links = tiles[:, :, rank].any(axis=1), rates.links[rank]
    busy = _all_busy(links.out if name == "C" else links.into)
    cost = (needed - own) * one_tile * busy * rates.moved[name]
    zero = np.zeros(len(tiles))
    return np.stack([zero, cost] if name == "C" else [cost, zero], axis=1)


def _all_busy(cost: np.ndarray) -> float:
    """The least cost of a byte if transfers with the other ranks are divided so that all links are
    busy as long; ``cost`` is that of a byte by rank and link.

    Examples
    --------
    Two ranks on a link each, and two on one link:

    >>> [_all_busy(np.array(cost)) for cost in ([[2.0, 0.0], [0.0, 2.0]], [[2.0], [2.0]])]
    [1.0, 2.0]
    """
    used = cost[cost.any(axis=1)]
    if not len(used):
        return 0.0
    rates = 1 / np.where(used > 0, used, np.inf).min(axis=0)
    return float((used @ rates).min() / rates.sum())


def _elements(tiles: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Elements of regions in tiles (layout, 4, rank): an array (layout, rank)."""
    tall = np.minimum(tiles[:, 1], rows[1]) - np.maximum(tiles[:, 0], rows[0])
    wide = np.minimum(tiles[:, 3], cols[1]) - np.maximum(tiles[:, 2], cols[0])
    return tall.clip(0) * wide.clip(0)
