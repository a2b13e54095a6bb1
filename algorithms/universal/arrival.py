"""The order of GEMMs whose partial sums are pushed: as their operands arrive, by simulation.

Each rank must know which rank pushes which partial sums to which owner. It does, since the slicing
of every rank follows from the problem alone.
"""

from collections.abc import Callable, Collection
from functools import cache, cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from drbench.mappings import grouped, remembered
from drbench.model.costs import step_cost
from drbench.model.machine import Machine
from drbench.partitions.intervals import Range
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Block, Get, Kernel

from .algorithm1 import FREE_AXIS, LocalGemm, Share, local_gemms
from .distribution import work_of
from .footprint import owners_of
from .order import cut_evenly


class PushedGemm(NamedTuple):
    """One GEMM c += a·b: blocks of A next to each other, of B one below the other."""

    a: tuple[Block, ...]
    b: tuple[Block, ...]
    c: Block
    #: No later GEMM of the rank adds to this partial sum: it is complete.
    last: bool = False
    #: The launch that the GEMM is a part of, on devices.
    kernel: Kernel | None = None

    @property
    def k(self) -> int:
        """Elements of k."""
        return sum(block.col1 - block.col0 for block in self.a)

    def from_outside(self, ranks: Collection[int]) -> list[Block]:
        """The operands whose owner is not in ``ranks``."""
        return [block for block in (*self.a, *self.b) if block.owner not in ranks]


class PartialSums:
    """The ranks that have partial sums of each range of C, and the ranks that own it: ranks with
    the same ranges are examined once."""

    def __init__(self, problem: Problem, stationary: str, work: str = "own", offset: str = "axis"):
        layout, c = work_of(problem, stationary, work), problem.c.partition
        self.ranks = range(problem.nprocs)
        self.makers: dict[tuple, list[int]] = {}  # (rows, columns, replica of C)
        for rank in self.ranks:
            for rows, cols in _summed(Share(problem, rank, stationary, layout, offset)):
                self.makers.setdefault((rows, cols, c.replica_of(rank)), []).append(rank)
        self.owners = {
            (rows, cols, replica): owners_of(c, [rows], [cols], replica)
            for rows, cols, replica in self.makers
        }

    @cached_property
    def slots(self) -> list[int]:
        """Elements of each rank's slots, for all partial sums that others push to it.

        Examples
        --------
        >>> PartialSums(Problem(8, 8, 8, 2, a="row", b="row", c="row"), "B").slots
        [32, 32]
        """
        sizes = [0] * len(self.ranks)
        for region, makers in self.makers.items():
            for owner, elements in self.owners[region].items():
                sizes[owner] += elements * (len(makers) - (owner in makers))
        return sizes

    def of(self, owner: int) -> list[int]:
        """The other ranks that have partial sums of a rank's tiles of C, in rising order.

        Examples
        --------
        >>> PartialSums(Problem(8, 8, 8, 4, a="block", b="block", c="block"), "B").of(0)
        [2]
        """
        sources = {
            rank
            for region, makers in self.makers.items()
            if owner in self.owners[region]
            for rank in makers
        }
        return sorted(sources - {owner})


partial_sums = lru_cache(maxsize=2)(PartialSums)


def _summed(share: Share) -> set[tuple]:
    """The ranges of rows and of columns of C that a rank has partial sums of."""
    ranges: set[tuple] = set()
    for rows, cols in map(share.layout.tile_bounds, share.tiles if share.interval else ()):
        sides = {share.p: [rows], share.q: [cols], share.free: share.interval}
        ranges |= {(x, y) for x in sides["m"] for y in sides["n"]}
    return ranges


class Arrivals:
    """The GEMMs of every rank in the order in which operands arrive, and the partial sums that
    ranks push to each other; planned on demand and kept, since each rank also needs that of others.

    Parameters
    ----------
    problem : Problem
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    work, offset : str
        As in :func:`~drbench.algorithms.universal.distribution.work_of`, and of
        :class:`~drbench.algorithms.universal.algorithm1.Share`.
    tile : int or None
        Elements of a communication tile along the axis that is divided; None divides nothing.
    machine : Machine, optional
        The performance model for the order; without it a rank's transfers take as long as its
        GEMMs.
    """

    def __init__(
        self,
        problem: Problem,
        stationary: str,
        work: str,
        offset: str,
        tile: int | None,
        machine: Machine | None,
    ):
        self.problem, self.stationary, self.tile, self.machine = problem, stationary, tile, machine
        self.work, self.offset = work_of(problem, stationary, work), offset
        self.sums = partial_sums(problem, stationary, work, offset)
        self._gemms: dict[int, list[PushedGemm]] = {}
        self._pushed: dict[int, dict[int, list]] = {}

    def gemms(self, rank: int) -> list[PushedGemm]:
        """The GEMMs of a rank in the order of simulated arrival."""
        return remembered(self._gemms, rank, lambda: self._ordered(rank))

    def _ordered(self, rank: int) -> list[PushedGemm]:
        share = Share(self.problem, rank, self.stationary, self.work, self.offset)
        whole = gemms_of(share)
        axis = cut_along(whole, rank, self.stationary)
        gemms = _cut(self.problem, whole, rank, self.tile, axis)
        launched = self.machine is not None and not self.machine.adds_on_core
        if axis != "k" and launched:
            gemms = _join(self.problem, gemms)

        def launch(gemm: PushedGemm) -> tuple | None:
            """The operand that the parts of a kernel share: the one that is not divided. None where
            k is divided: such GEMMs add to the same elements, one after another."""
            if axis == "k":
                return None
            return tuple(block.key for block in (gemm.b if axis == "m" else gemm.a))

        gemms = arrange(gemms, rank, self.problem, launch, self.machine)
        kernels = _kernels(gemms, launch, axis)
        ends = {gemm.c.key: x for x, gemm in enumerate(gemms)}
        return [
            gemm._replace(last=ends[gemm.c.key] == x, kernel=kernels.get(launch(gemm)))
            for x, gemm in enumerate(gemms)
        ]

    def arriving(self, rank: int) -> list[tuple[int, Block]]:
        """The partial sums that others push to a rank, as (source, block), in the order in which it
        adds them: the first of each source first, and each rank begins with the next source."""
        ranks = self.problem.nprocs
        pushes = [
            (position, (source - rank) % ranks, source, c)
            for source in self.sums.of(rank)
            for position, c in self._pushes(source).get(rank, ())
        ]
        return [(source, c) for *_, source, c in sorted(pushes, key=itemgetter(0, 1))]

    def _pushes(self, rank: int) -> dict[int, list[tuple[int, Block]]]:
        """Owner -> blocks that a rank pushes to it, each with its number among all."""
        if rank not in self._pushed:
            complete = [gemm.c for gemm in self.gemms(rank) if gemm.last]
            by_owner: dict[int, list] = {}
            for position, c in enumerate(c for c in complete if c.owner != rank):
                by_owner.setdefault(c.owner, []).append((position, c))
            self._pushed[rank] = by_owner
        return self._pushed[rank]


def arrivals(
    problem: Problem,
    stationary: str,
    work: str,
    offset: str,
    tile: int | None,
    machine: Machine | None,
) -> Arrivals:
    """The :class:`Arrivals` of all ranks, kept while ranks of the same problem need them."""
    cached = _cache(problem, stationary, work, offset, tile, id(machine))
    if not cached:  # they hold the machine, so that no other one has its id
        cached.append(Arrivals(problem, stationary, work, offset, tile, machine))
    return cached[0]


@lru_cache(maxsize=2)
def _cache(*asked) -> list[Arrivals]:
    return []


def gemms_of(share: Share) -> list[LocalGemm]:
    """The local GEMMs of a rank in the order of Algorithm 1."""
    return [gemm for round_ in local_gemms(share) for gemm in round_.gemms]


def cut_along(gemms: list[LocalGemm], rank: int, stationary: str) -> str:
    """The axis along which a rank's blocks are divided: all matrices that move have it, or as many
    of them as possible.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="column", c="column")
    >>> cut_along(gemms_of(Share(problem, 0, "C")), 0, "C")
    'm'
    """
    if stationary != "C":
        return FREE_AXIS[stationary]
    of_a, of_b = (_fetched(gemms, operand, rank) for operand in (0, 1))
    if any(gemm.c.owner != rank for gemm in gemms):
        return "m" if of_a >= of_b else "n"
    once = len({gemm.c.key for gemm in gemms}) == len(gemms)
    if not once or bool(of_a) == bool(of_b):
        return "k"
    return "m" if of_a else "n"


def _fetched(gemms: list[LocalGemm], operand: int, rank: int) -> int:
    """Elements of A (0) or B (1) that others own."""
    blocks = {gemm[operand].key: gemm[operand] for gemm in gemms}
    return sum(block.size for block in blocks.values() if block.owner != rank)


def _kernels(gemms: list[PushedGemm], launch: Callable, axis: str) -> dict[tuple, Kernel]:
    """The kernels of a rank that consist of several parts."""
    shapes: dict[tuple, list] = {}
    for gemm in gemms:
        if (name := launch(gemm)) is not None:
            shapes.setdefault(name, []).append((*gemm.c.shape, gemm.k))
    kernels = {}
    for name, parts in shapes.items():
        m, n, k = parts[0]
        if axis == "m":
            m = sum(shape[0] for shape in parts)
        else:
            n = sum(shape[1] for shape in parts)
        if len(parts) > 1:
            kernels[name] = Kernel(m, n, k)
    return kernels


def _cut(
    problem: Problem, gemms: list[LocalGemm], rank: int, tile: int | None, axis: str
) -> list[PushedGemm]:
    """The GEMMs of a rank, each divided into communication tiles along an axis; not divided if none
    needs a transfer. Equal blocks are one object."""
    known: dict[tuple, Block] = {}
    remote = any(block.owner != rank for gemm in gemms for block in gemm[:3])
    parts_of = cache(lambda whole: cut_evenly(whole, tile if remote else None) or [whole])
    cuts = []
    for gemm in gemms:
        for cut in parts_of(_range(gemm, axis)):
            blocks = (
                _within(operand, block, axis, cut)
                for operand, block in zip(problem.operands, gemm[:3])
            )
            a, b, c = (known.setdefault(block.key, block) for block in blocks)
            cuts.append(PushedGemm((a,), (b,), c))
    return cuts


def _join(problem: Problem, gemms: list[PushedGemm]) -> list[PushedGemm]:
    """The GEMMs of each partial sum as one along k: parts of one launch, on devices."""
    sums = grouped(gemms, lambda gemm: gemm.c)
    known: dict[tuple, Block] = {}
    joined = []
    for c, terms in sums.items():
        terms.sort(key=lambda gemm: gemm.a[0].col0)
        a, b = (
            tuple(
                known.setdefault(block.key, block)
                for block in _merge(operand, [block for gemm in terms for block in gemm[x]], x)
            )
            for x, operand in enumerate(problem.operands[:2])
        )
        joined.append(PushedGemm(a, b, c))
    return joined


def _merge(operand: Operand, blocks: list[Block], x: int) -> list[Block]:
    """Consecutive blocks along k, neighbours of one tile joined to one block."""
    ends = lambda block: block.rows if x else block.cols
    merged: list[Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if last is not None and last.tile == block.tile and ends(last)[1] == ends(block)[0]:
            along = ends(last)[0], ends(block)[1]
            sides = (along, last.cols) if x else (last.rows, along)
            merged[-1] = operand.block(*sides, block.replica)
        else:
            merged.append(block)
    return merged


def _range(gemm: LocalGemm, axis: str) -> Range:
    a, b = gemm.a, gemm.b
    return {"m": a.rows, "k": a.cols, "n": b.cols}[axis]


def _within(operand: Operand, block: Block, axis: str, cut: Range) -> Block:
    """The part of a block in a range of an axis; the block if it does not have the axis."""
    if axis not in operand.axes:
        return block
    rows, cols = (cut, block.cols) if operand.axes[0] == axis else (block.rows, cut)
    return operand.block(rows, cols, block.replica)


def arrange(
    gemms: list[PushedGemm],
    rank: int,
    problem: Problem,
    launch: Callable[[PushedGemm], tuple | None],
    machine: Machine | None = None,
) -> list[PushedGemm]:
    """The GEMMs of a rank in the order of simulated arrival.

    GEMMs for other ranks are first, each partial sum as a whole, as soon as its operands have
    arrived: those for ranks of other nodes before those for ranks of this node. GEMMs for own tiles
    follow and hide the last pushes. While no operand has arrived, GEMMs run whose operands need no
    transfer: for other ranks from tiles of this node, then for own tiles from own tiles. Transfers
    are simulated one after another, in the order in which GEMMs need them.
    """
    node = problem.ranks_of_node(rank)
    remote = lambda gemm: gemm.from_outside(node)
    sums = grouped(gemms, lambda gemm: gemm.c)
    positions: dict[tuple | None, int] = {}
    for gemm in gemms:
        positions.setdefault(launch(gemm), len(positions))
    pushed = [terms for c, terms in sums.items() if c.owner != rank]
    pushed.sort(key=lambda terms: terms[0].c.owner in node)
    own = [gemm for gemm in gemms if gemm.c.owner == rank]
    own.sort(key=lambda gemm: positions[launch(gemm)])  # parts of a kernel follow each other
    due = [*pushed, *([gemm] for gemm in own if gemm.from_outside({rank}))]
    gemm_s, get_s = _seconds(gemms, rank, problem, machine)
    arrives, clock = {}, 0.0
    for block in (block for terms in due for gemm in terms for block in remote(gemm)):
        if block not in arrives:
            clock += get_s(block)
            arrives[block] = clock
    ready = [gemm for terms in pushed for gemm in terms if not remote(gemm)]
    ready += [gemm for gemm in own if not gemm.from_outside({rank})]
    order: dict[int, PushedGemm] = {}
    now, filled = 0.0, 0  # the number of ready GEMMs that have run

    def run(gemm: PushedGemm) -> float:
        if id(gemm) in order:
            return 0.0
        order[id(gemm)] = gemm
        return gemm_s(gemm)

    for terms in due:
        arrival = max((arrives[block] for gemm in terms for block in remote(gemm)), default=0.0)
        while now < arrival and filled < len(ready):
            now += run(ready[filled])
            filled += 1
        now = max(now, arrival)
        for gemm in terms:
            now += run(gemm)
    for gemm in ready:
        run(gemm)
    return list(order.values())


def _seconds(
    gemms: list[PushedGemm], rank: int, problem: Problem, machine: Machine | None
) -> tuple[Callable[[PushedGemm], float], Callable[[Block], float]]:
    """Functions for the seconds of a GEMM, and of the transfer of a block to this rank; without a
    model in multiply-adds, where all transfers of the rank take as long as all its GEMMs."""
    itemsize = problem.itemsize
    if machine is not None:
        gemm_s = lru_cache(maxsize=None)(machine.compute.gemm_s)
        step_s = lambda cost: max(cost.link_s, cost.core_s)
        return (
            lambda gemm: gemm_s(*gemm.c.shape, gemm.k, itemsize),
            lambda block: step_s(step_cost(machine, Get(block), rank, itemsize)),
        )
    node = problem.ranks_of_node(rank)
    moved = {gemm.c: gemm.c.size for gemm in gemms if gemm.c.owner not in node}
    moved |= {block: block.size for gemm in gemms for block in gemm.from_outside(node)}
    size = lambda gemm: gemm.c.size * gemm.k
    per_element = sum(map(size, gemms)) / max(1, sum(moved.values()))
    return size, lambda block: block.size * per_element
