"""Packing: few large GEMMs instead of many small ones, their operands copied together first.

Tiles that do not align divide a rank's work into thin GEMMs. A BLAS packs its operands again for
each of these: all of B for each range of m, all of A for each range of n, and it reads and writes C
for each short range of k. So blocks of A and of B are copied next to each other into *packed
operands* where that costs less than it saves, and multiplied in one call. The result for several
tiles of C is one partial sum in scratch memory, which is copied, or accumulated, block by block.

A rank multiplies lists of ranges of m, n and k
(:class:`~drbench.algorithms.universal.footprint.Footprint`). :func:`choose_packing` cuts each of
the three lists into groups; a group of each makes one GEMM. It decides the groups and the outermost
axis by the performance model's times of GEMMs and copies, for one rank's share alone and without
side effects.
"""

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

from drbench.model.machine import Machine
from drbench.partitions import ceil_div
from drbench.partitions.intervals import Range, length, split
from drbench.program.problem import REAL_OF, Problem

from .footprint import Footprint

#: Default model, without which nothing is packed: each rank one core of a server.
CORES = Machine.load(Path(__file__).with_name("cores.toml"))
#: A rank's operands are packed where that saves this share of its time, and these seconds.
_SHARE, _SAVED_S = 0.01, 1e-4
#: Elements of a group to try along each axis, with the whole axis and the ranges between tiles.
_LENGTHS = {"k": (512, 1024, 2048), "m": (1024, 2048, 4096), "n": (1024, 2048, 4096)}
#: Packed operands and scratch may have as many elements as a rank's tiles, or this number.
_LEAST_BUDGET = 1 << 22
#: The most sizes of GEMMs that one sum distinguishes.
_SIZES = 512

Group = list[Range]


@dataclass(frozen=True, slots=True)
class Packing:
    """How one rank's iteration space is cut into GEMMs of packed operands.

    Attributes
    ----------
    groups : dict of str to list of list of (int, int)
        For m, n and k, the groups of ranges.
    outer : str
        The axis of the outermost loop over groups, ``"m"``, ``"n"`` or ``"k"``.
    blocks, gemms : int
        GEMMs without packing, of single blocks, and with it.
    blocks_s, seconds : float
        Their seconds by the model, with all copies. If the model has links, both include transfers:
        overlapped with the GEMMs of blocks, not overlapped with packed GEMMs.
    copied : int
        Elements of A and B that are copied into packed operands, and of C from scratch memory.
    """

    groups: dict[str, list[Group]]
    outer: str
    blocks: int = 0
    gemms: int = 0
    blocks_s: float = 0.0
    seconds: float = 0.0
    copied: int = 0

    @property
    def description(self) -> str:
        """The packing as text.

        Examples
        --------
        >>> groups = {"m": [[(0, 4)]], "n": [[(0, 4), (8, 10)]], "k": [[(0, 6)], [(6, 8)]]}
        >>> Packing(groups, "k", 9, 2, 3e-3, 2e-3, 50).description
        '2 GEMMs of at most 4x6x6 for 9 of blocks, 50 elements copied: 2.000 ms for 3.000 ms'
        """
        sizes = "x".join(str(max(map(length, self.groups[axis]))) for axis in "mnk")
        return (
            f"{self.gemms} GEMM{'s' * (self.gemms != 1)} of at most {sizes} for {self.blocks} of "
            f"blocks, {self.copied} elements copied: {1e3 * self.seconds:.3f} ms for "
            f"{1e3 * self.blocks_s:.3f} ms"
        )


def cores(dtype: str) -> Machine | None:
    """:data:`CORES` for elements of a type; None for one that no BLAS of cores multiplies.

    Examples
    --------
    >>> [cores(dtype).compute.peak_flops for dtype in ("float32", "float64")]
    [128000000000.0, 64000000000.0]
    >>> cores("bfloat16")
    """
    return CORES.for_dtype(dtype) if REAL_OF.get(dtype, dtype) in ("float32", "float64") else None


def choose_packing(
    share: Footprint,
    chunk: int | None = None,
    machine: Machine = CORES,
    copies: bool = True,
    always: bool = False,
) -> Packing | None:
    """The best packing of a rank's blocks; None if packing saves no time.

    Parameters
    ----------
    share : Footprint
    chunk : int, optional
        Longest range of the free axis in one GEMM.
    machine : Machine
        The performance model of GEMMs and copies.
    copies : bool
        Sums for the rank's own tiles are computed or copied there, not accumulated.
    always : bool
        Pack also where GEMMs of blocks are faster.

    Examples
    --------
    Eight rows of tiles of A meet B and C that are whole: a BLAS packs B eight times.

    >>> problem = Problem(2048, 2048, 2048, 1, "tiles:256x2048", "row", "row")
    >>> found = choose_packing(Footprint(problem, 0, "C"))
    >>> found.blocks, found.gemms, found.copied == 2048 * 2048, found.seconds < found.blocks_s
    (8, 1, True, True)
    >>> choose_packing(Footprint(Problem(2048, 2048, 2048, 1, "row", "row", "row"), 0, "C"))
    """
    problem = share.problem
    if not all(map(length, share.ranges.values())):
        return None  # a rank of empty tiles multiplies nothing
    atoms = {axis: share.cut(axis) for axis in "mnk"}
    if chunk:
        cut = (_chunks([span], chunk) for span in atoms[share.free])
        atoms[share.free] = [span for groups in cut for (span,) in groups]
    if not always and all(len(ranges) == 1 for ranges in atoms.values()):
        return None  # one GEMM of whole blocks
    costs = _Costs(share, machine, copies)
    transfer_s = _transfer_s(share, machine)
    blocks = {axis: _Cut(axis, [[span] for span in atoms[axis]], problem) for axis in "mnk"}
    blocks_s, number = costs.gemms_s(blocks)
    blocks_s = max(blocks_s, transfer_s)  # blocks arrive and leave while others are multiplied
    whole = (blocks[axis].total for axis in "mnk")
    whole_s = transfer_s + costs.compute.gemm_s(*whole, costs.itemsize)
    least_s = max(_SAVED_S, _SHARE * blocks_s)
    if not always and blocks_s - whole_s < least_s:
        return None  # nothing to gain even if copies were free
    tried = {axis: _tried(axis, share, chunk) for axis in "mnk"}
    tiles = (operand.partition.local_size(share.rank) for operand in problem.operands)
    budget = max(_LEAST_BUDGET, sum(tiles))
    best: tuple | None = None
    for cuts in itertools.product(*tried.values()):
        by_axis = dict(zip(tried, cuts))
        for outer in "kmn":
            seconds, copied, memory, again = costs.of(by_axis, outer)
            seconds += transfer_s  # at worst transfers hide behind no GEMM
            if memory > budget or (again and chunk):
                continue
            if best is None or seconds < best[0]:
                best = seconds, copied, by_axis, outer
    if best is None:
        return None
    seconds, copied, by_axis, outer = best
    if not always and blocks_s - seconds < least_s:
        return None
    groups = {axis: cut.groups for axis, cut in by_axis.items()}
    gemms = len(groups["m"]) * len(groups["n"]) * len(groups["k"])
    return Packing(groups, outer, number, gemms, blocks_s, seconds, copied)


class _Cut:
    """One axis divided into groups, with the counts for costs."""

    __slots__ = ("groups", "sizes", "total", "count", "most", "fragments", "single")

    def __init__(self, axis: str, groups: list[Group], problem: Problem):
        lengths = [length(group) for group in groups]
        self.groups, self.sizes, self.total = groups, Counter(lengths), sum(lengths)
        self.count, self.most = len(groups), max(lengths)
        #: By matrix: ranges between its tile boundaries in all groups; elements of those groups
        #: that are one such range.
        self.fragments: dict[str, int] = {}
        self.single: dict[str, int] = {}
        for operand in problem.operands:
            if axis not in operand.axes:
                continue
            cuts = partial(operand.cuts, axis)
            counts = [sum(len(cuts(*span)) - 1 for span in group) for group in groups]
            self.fragments[operand.name] = sum(counts)
            self.single[operand.name] = sum(n for n, count in zip(lengths, counts) if count == 1)


class _Costs:
    """Seconds of ways to divide a rank's work."""

    def __init__(self, share: Footprint, machine: Machine, copies: bool):
        self.compute, self.step_s = machine.compute, machine.step_s
        self.itemsize = share.problem.itemsize
        #: The share of the partial sums' elements that are copied into own tiles, unless they are
        #: computed there.
        c = share.problem.c
        sums = prod(length(share.ranges[axis]) for axis in c.axes)
        self.copied = 1 - share.remote(c) / sums if copies else 0.0

    def gemms_s(self, cuts: dict[str, _Cut]) -> tuple[float, int]:
        """Seconds of the GEMMs themselves, and their number."""
        sizes = [cuts[axis].sizes for axis in "mnk"]
        count = cuts["m"].count * cuts["n"].count * cuts["k"].count
        if len(sizes[0]) * len(sizes[1]) * len(sizes[2]) > _SIZES:  # the mean is precise enough
            mean = [cuts[axis].total // cuts[axis].count for axis in "mnk"]
            return count * (self.step_s + self.compute.gemm_s(*mean, self.itemsize)), count
        seconds = sum(
            x * y * z * self.compute.gemm_s(m, n, k, self.itemsize)
            for (m, x), (n, y), (k, z) in itertools.product(*(counts.items() for counts in sizes))
        )
        return seconds + count * self.step_s, count

    def of(self, cuts: dict[str, _Cut], outer: str) -> tuple[float, int, int, bool]:
        """Seconds, elements copied, elements of packed operands and scratch, and whether a block is
        read more than once."""
        m, n, k = (cuts[axis] for axis in "mnk")
        seconds, _ = self.gemms_s(cuts)
        copied, memory, again = 0, 0, False
        for name, across, along, other in (("A", m, k, n), ("B", n, k, m)):
            elements = across.total * along.total - across.single[name] * along.single[name]
            times = 1
            if other.count > 1 and outer != "k":
                leads = outer == ("m" if name == "A" else "n")
                copied_once = along.count == 1 and (leads or across.count == 1)
                times = 1 if copied_once else other.count
            again |= times > 1
            copied += times * elements
            fragments = across.fragments[name] * along.fragments[name]
            seconds += times * fragments * self.step_s if elements else 0.0
            if elements:
                held = across.total if outer == "k" else across.most
                memory += held * along.most * (1 if across.count * along.count == 1 else 2)
        elements = m.total * n.total - m.single["C"] * n.single["C"]
        if elements or self.copied < 1:
            scratch = m.most * n.most * (1 if m.count * n.count == 1 else 2)
            memory += m.total * n.total if outer == "k" else scratch
        if elements:
            copied += int(self.copied * elements)
            seconds += self.copied * m.fragments["C"] * n.fragments["C"] * self.step_s
        return (
            seconds + self.compute.memory_s(2 * copied * self.itemsize),
            copied,
            memory,
            again,
        )


def _transfer_s(share: Footprint, machine: Machine) -> float:
    """Seconds of the transfers of a rank's operands and partial sums, over the slower of its links
    to its neighbour and to the rank across; 0 where the machine has no links."""
    rank, ranks = share.rank, share.problem.nprocs
    others = {(rank + 1) % ranks, (rank + ranks // 2) % ranks} - {rank}
    links = [machine.link(rank, other) for other in others] if machine.links else []
    a_byte_s = max((1 / link.bandwidth_bytes_per_s for link in links), default=0.0)
    if not a_byte_s:
        return 0.0
    a, b, c = map(share.remote, share.problem.operands)
    sizes = share.problem.itemsizes
    return a_byte_s * (sizes["A"] * (a + b) + sizes["C"] * c / machine.accumulate_efficiency)


def _tried(axis: str, share: Footprint, chunk: int | None) -> list[_Cut]:
    """Ways to divide an axis: the whole, equal groups, at the tile boundaries of one matrix or of
    all."""
    runs, operands = share.ranges[axis], share.problem.operands
    most = chunk if chunk and axis == share.free else None
    total = length(runs)
    cuts = [_chunks(runs, min(limit, most or limit)) for limit in (total, *_LENGTHS[axis])]
    for of in (
        *([operand] for operand in operands if axis in operand.axes),
        *([[]] if axis == "k" else ()),
    ):
        atoms = share.cut(axis, *of)
        cuts.append([group for span in atoms for group in _chunks([span], most or total)])
    unique = {tuple(map(tuple, cut)): cut for cut in cuts}
    return [_Cut(axis, cut, share.problem) for cut in unique.values()]


def _chunks(runs: list[Range], limit: int) -> list[Group]:
    """The ranges one after another, divided into equal groups of at most a number of elements.

    Examples
    --------
    >>> _chunks([(0, 4), (10, 16)], 5)
    [[(0, 4), (10, 11)], [(11, 16)]]
    """
    total = length(runs)
    count = ceil_div(total, limit)
    return split(runs, [total * x // count for x in range(1, count + 1)])
