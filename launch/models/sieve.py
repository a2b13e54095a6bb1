"""Lower bounds of all triples of layouts at once.

What the universal algorithm moves depends on two layouts at a time: what a rank multiplies follows
from the layout of the stationary matrix, and what it fetches of another matrix, or adds to C, from
that one's and this. So the bound of a triple is the sum of two numbers for each class of links,
found for each pair of layouts, and a hundred thousand triples take a moment.

The bound never exceeds the simulated time, or the counted bytes, of any program of the triple:
every element that a rank multiplies is fetched at least once if its replica of the matrix has it
elsewhere, every element of its partial sums is sent if its replica of C has it elsewhere, and the
other rank is busy as long; no GEMM is faster than its FLOPs at the rate that large ones reach, nor,
with Stationary A or B on devices, than tiles that are never short along the axis that is cut.
Three ranks are looked at. Of layouts with several tiles a rank the transfers are not bounded.
"""

from typing import NamedTuple

import numpy as np

from drbench.model.gemm import Compute
from drbench.model.machine import Machine
from drbench.program.problem import AXES, Operand
from partitions import Partition, part

#: How much of the shorter of GEMMs and transfers is taken not to overlap, in an estimate.
_EXPOSED = 0.05


class Rates(NamedTuple):
    """What moving and multiplying cost: seconds on a machine, without one bytes.

    Attributes
    ----------
    classes : dict of int to array of int
        For each rank that is looked at the class of its link to each rank.
    moved : array of float
        Cost of an element that moves, by class of links.
    passive : array of float
        1 for each class on which it keeps a link of the other rank busy as long, else 0.
    compute : Compute or None
        None: multiplying costs nothing.
    cut_on : dict of str to str
        For a stationary matrix the axis that its GEMMs are cut along, each being one of its own.
    """

    classes: dict[int, np.ndarray]
    moved: np.ndarray
    passive: np.ndarray
    compute: Compute | None = None
    cut_on: dict[str, str] = {}


def rates_of(machine: Machine | None, itemsize: int, ranks: int) -> Rates:
    """The rates of a machine, as a case sees it; no sum is sent faster than a copy."""
    looked_at = {0, ranks // 2, ranks - 1}
    if machine is None or not machine.links:
        classes = {rank: np.zeros(ranks, dtype=int) for rank in looked_at}
        one = np.ones(1)
        return Rates(classes, one * (0 if machine else itemsize), one, machine and machine.compute)
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
    # on cores pieces may be packed and multiplied at once
    cut_on = {} if machine.adds_on_core else {"A": "n", "B": "m"}
    return Rates(classes, itemsize / np.array(bandwidths), passive, machine.compute, cut_on)


def bounds_of(
    layouts: dict[str, list[Operand]], sizes: tuple[int, int, int], rates: Rates
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and estimates of all triples of some layouts of A, B and C: arrays (layout of A, of B,
    of C, stationary matrix), that being C, B, A.

    Examples
    --------
    Two ranks, all by columns, and B by rows; with Stationary C rank 0 lacks half of A, 32 elements,
    or half of A and half of its columns of B:

    >>> from drbench.program.problem import Problem
    >>> one, two = Problem(8, 8, 8, 2, *["column"] * 3), Problem(8, 8, 8, 2, b="row")
    >>> layouts = {"A": [one.a], "B": [one.b, two.b], "C": [one.c]}
    >>> bounds_of(layouts, (8, 8, 8), rates_of(None, 1, 2))[0][..., 0].ravel().tolist()
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
                moves = (one[:, None] + two).max(axis=(2, 3))
                least, likely = _work(extents, rates, rates.cut_on.get(name))
                guess = np.maximum(moves, likely) + _EXPOSED * np.minimum(moves, likely)
                for view, found in zip(views, (np.maximum(moves, least), guess)):
                    np.maximum(view[at], found, out=view[at])
    return bounds, guesses


def _work(extents: list[int], rates: Rates, cut_on: str | None) -> tuple[float, float]:
    """What the GEMMs of a rank cost at least, and likely."""
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
    """What a rank costs its links each way in layouts of a matrix, if all ranks multiply those
    ranges: an array (layout, way, class)."""
    rows, cols = (every[axis] for axis in AXES[name])
    same = replicas == replicas[:, [rank]]
    same[:, rank] = False
    cost = np.eye(len(rates.moved))[rates.classes[rank]] * rates.moved
    own = (_elements(tiles, rows[:, [rank]], cols[:, [rank]]) * same) @ cost
    served = (_elements(tiles[:, :, [rank]], rows, cols) * same) @ (cost * rates.passive)
    # partial sums leave where operands come
    return np.stack([served, own] if name == "C" else [own, served], axis=1)


def _elements(tiles: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Elements that tiles, (layout, 4, rank), have of regions: an array (layout, rank)."""
    tall = np.minimum(tiles[:, 1], rows[1]) - np.maximum(tiles[:, 0], rows[0])
    wide = np.minimum(tiles[:, 3], cols[1]) - np.maximum(tiles[:, 2], cols[0])
    return tall.clip(0) * wide.clip(0)
