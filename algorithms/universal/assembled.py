"""Assembled products: few large ones instead of many small ones, their operands copied together
first.

Tiles that do not fit each other cut a rank's work into thin products. A library copies its operands
into an order of its own (it *packs* them) for each of these again: all of B for each piece of m,
all of A for each piece of n, and it passes over C for each short piece of k. So pieces of A and of
B are copied into *panels* where that costs less than it saves, and multiplied in one call. What
several tiles of C share is one product in scratch, which is copied, or accumulated, part by part.

All that a rank multiplies is a box: lists of ranges of m, n and k. :func:`assembly` cuts each of
the three lists into groups; a group of each makes a product. Which groups, and which of them lie
outermost, is decided by what the model of the cores says of products and copies: pure, of one
rank's box alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from drbench.model.machine import Machine
from drbench.program.problem import Operand, Problem
from drbench.program.steps import (
    Accumulate,
    Assemble,
    Block,
    Copy,
    Fence,
    Gemm,
    Get,
    Panel,
    Part,
    Scratch,
    Step,
    Zero,
)
from partitions import ceil_div, part
from partitions.intervals import Range, between, length, split, union

from .slicing import roles, rotated, spread

#: What ``--assemble`` takes.
ASSEMBLE = ("auto", "never", "always")

#: Cores where no model says more: each rank one of a server with AVX-512, running OpenBLAS. Packing
#: is what cutting m and n cost in results/measured/spr-2core/performance/pieces.csv.
CORES = Machine.from_dict(
    {
        "name": "cores",
        "step_s": 4e-6,
        "adds_on_core": True,
        "pieces_apart": True,
        "compute": {
            "peak_flops": 1.28e11,
            "launch_s": 2e-6,
            "pack_s": (5e-10, 1.3e-9, 4e-10),
            "k_block": 384.0,
            "memory_bytes_per_s": 1.6e10,
        },
        "dtypes": {"float64": {"peak_flops": 6.4e10, "pack_s": (1e-9, 2.6e-9, 8e-10)}},
    }
)
#: A rank's work is assembled where that saves this share of its time, and so many seconds.
_SHARE, _SAVED_S = 0.01, 1e-4
#: Elements of a group that are tried along each axis, besides all of it and those between tiles.
_LENGTHS = {"k": (512, 1024, 2048), "m": (1024, 2048, 4096), "n": (1024, 2048, 4096)}
#: Panels and scratch may take as many elements as a rank's tiles, or this many.
_ROOM = 1 << 22
#: Sizes of products that are told apart in one sum.
_SIZES = 512

Group = list[Range]


@dataclass(frozen=True, slots=True)
class Assembly:
    """How one rank's products are assembled.

    Attributes
    ----------
    groups : dict of str to list of list of (int, int)
        For m, n and k, the groups of ranges.
    outer : str
        The axis whose groups are taken one after the other, ``"m"``, ``"n"`` or ``"k"``.
    pieces, products : int
        Products without, and with it.
    pieces_s, seconds : float
        What they take by the model, with all copies; over links of the model also what comes and
        goes, beside the pieces if they take longer, and apart from the products.
    copied : int
        Elements of A and B that are copied into panels, and of C out of scratch.
    """

    groups: dict[str, list[Group]]
    outer: str
    pieces: int = 0
    products: int = 0
    pieces_s: float = 0.0
    seconds: float = 0.0
    copied: int = 0

    @property
    def about(self) -> str:
        """In words.

        Examples
        --------
        >>> groups = {"m": [[(0, 4)]], "n": [[(0, 4), (8, 10)]], "k": [[(0, 6)], [(6, 8)]]}
        >>> Assembly(groups, "k", 9, 2, 3e-3, 2e-3, 50).about
        '2 products of at most 4x6x6 for 9 pieces, 50 elements copied: 2.000 ms for 3.000 ms'
        """
        sizes = "x".join(str(max(map(length, self.groups[axis]))) for axis in "mnk")
        return (
            f"{self.products} product{'s' * (self.products != 1)} of at most {sizes} for "
            f"{self.pieces} pieces, {self.copied} elements copied: {1e3 * self.seconds:.3f} ms "
            f"for {1e3 * self.pieces_s:.3f} ms"
        )


def cores(dtype: str) -> Machine:
    """:data:`CORES` for elements of a type; of one that cores do not multiply, as they are.

    Examples
    --------
    >>> [cores(dtype).compute.peak_flops for dtype in ("float32", "float64", "bfloat16")]
    [128000000000.0, 64000000000.0, 128000000000.0]
    """
    return CORES.for_dtype(dtype) if dtype in ("float32", "float64") else CORES


class Box(NamedTuple):
    """What one rank multiplies.

    Attributes
    ----------
    ranges : dict of str to list of (int, int)
        Of m, n and k, rising, neighbours joined.
    operands : tuple of Operand
        A, B and C, and who multiplies what if that is a layout of its own.
    offset : int
        Where the rank begins among groups, so that ranks begin with different owners.
    free : str
        The free axis.
    """

    ranges: dict[str, list[Range]]
    operands: tuple[Operand, ...]
    offset: int
    free: str

    def cut(self, axis: str, *operands: Operand) -> list[Range]:
        """The ranges between the tile boundaries of these operands, by default of all."""
        having = [each for each in operands or self.operands if axis in each.axes]
        found: list[Range] = []
        for start, stop in self.ranges[axis]:
            cuts = {cut for each in having for cut in each.cuts(axis, start, stop)}
            found += between(sorted(cuts | {start, stop}))
        return found


def box_of(problem: Problem, rank: int, stationary: str, work: Operand | None = None) -> Box | None:
    """What a rank multiplies; None if it multiplies nothing.

    Examples
    --------
    >>> box_of(Problem(8, 8, 8, 2, "row", "tiles:8x2@1x2", "row"), 0, "B").ranges
    {'k': [(0, 8)], 'n': [(0, 2), (4, 6)], 'm': [(0, 8)]}
    """
    stored, _, _, (p, q, free) = roles(problem, stationary)
    layout = (work or stored).partition
    tiles = layout.tiles_of(rank)
    share = part(problem.extent(free), layout.replica_of(rank), layout.replicas)
    if not tiles or share.start >= share.stop:
        return None
    rows = [layout.tile_bounds((i, tiles[0][1]))[0] for i in dict.fromkeys(i for i, _ in tiles)]
    cols = [layout.tile_bounds((tiles[0][0], j))[1] for j in dict.fromkeys(j for _, j in tiles)]
    ranges = {p: union(rows), q: union(cols), free: [(share.start, share.stop)]}
    operands = (*problem.operands, work) if work else problem.operands
    return Box(ranges, operands, sum(tiles[0]), free)


def assembly(
    problem: Problem,
    rank: int,
    stationary: str,
    chunk: int | None = None,
    work: Operand | None = None,
    machine: Machine = CORES,
    copies: bool = True,
    always: bool = False,
) -> Assembly | None:
    """How the products of one rank are best assembled; None if they are not.

    Parameters
    ----------
    problem : Problem
    rank : int
    stationary : str
    chunk : int, optional
        Longest range of the free axis in one product.
    work : Operand, optional
        As of :func:`algorithms.universal.slicing.slices`.
    machine : Machine
        What says what products and copies take.
    copies : bool
        Sums for the rank's own tiles are made or copied there, not accumulated.
    always : bool
        Also where the pieces are faster.

    Examples
    --------
    Eight rows of tiles of A meet B and C that are whole: the pieces of m pack B eight times.

    >>> problem = Problem(2048, 2048, 2048, 1, "tiles:256x2048", "row", "row")
    >>> found = assembly(problem, 0, "C")
    >>> found.pieces, found.products, found.copied == 2048 * 2048, found.seconds < found.pieces_s
    (8, 1, True, True)
    >>> assembly(Problem(2048, 2048, 2048, 1, "row", "row", "row"), 0, "C")
    """
    box = box_of(problem, rank, stationary, work)
    if box is None:
        return None
    costs = _Costs(problem, box, rank, machine, copies)
    foreign_s = _foreign_s(problem, box, rank, machine)
    atoms = {axis: box.cut(axis) for axis in "mnk"}
    if chunk:
        cut = (_chunks([each], chunk) for each in atoms[box.free])
        atoms[box.free] = [each for groups in cut for (each,) in groups]
    pieces = {axis: _Cut(axis, [[each] for each in atoms[axis]], problem) for axis in "mnk"}
    pieces_s, number = costs.products_s(pieces)
    pieces_s = max(pieces_s, foreign_s)  # pieces come and go while others are multiplied
    whole_s = foreign_s + costs.compute.gemm_s(
        *(pieces[axis].total for axis in "mnk"), costs.itemsize
    )
    if not always and pieces_s - whole_s < max(_SAVED_S, _SHARE * pieces_s):
        return None  # nothing to gain even if copies were free
    tried = {axis: _tried(axis, box, problem, chunk) for axis in "mnk"}
    room = max(_ROOM, sum(each.partition.local_size(rank) for each in problem.operands))
    best: tuple | None = None
    for cuts in product(*tried.values()):
        by_axis = dict(zip(tried, cuts))
        for outer in "kmn":
            seconds, copied, memory, again = costs.of(by_axis, outer)
            seconds += foreign_s  # at worst nothing does
            if memory > room or (again and chunk):
                continue
            if best is None or seconds < best[0]:
                best = seconds, copied, by_axis, outer
    if best is None:
        return None
    seconds, copied, by_axis, outer = best
    if not always and pieces_s - seconds < max(_SAVED_S, _SHARE * pieces_s):
        return None
    groups = {axis: cut.groups for axis, cut in by_axis.items()}
    products = len(groups["m"]) * len(groups["n"]) * len(groups["k"])
    return Assembly(groups, outer, number, products, pieces_s, seconds, copied)


class _Cut:
    """One axis cut into groups: what the costs need to know."""

    __slots__ = ("groups", "sizes", "total", "count", "most", "pieces", "single")

    def __init__(self, axis: str, groups: list[Group], problem: Problem):
        lengths = [length(group) for group in groups]
        self.groups, self.sizes, self.total = groups, Counter(lengths), sum(lengths)
        self.count, self.most = len(groups), max(lengths)
        #: By matrix: ranges between its tile boundaries in all groups; elements of those groups
        #: that are one such range.
        self.pieces: dict[str, int] = {}
        self.single: dict[str, int] = {}
        for each in problem.operands:
            if axis not in each.axes:
                continue
            counts = [_pieces(each, axis, group) for group in groups]
            self.pieces[each.name] = sum(counts)
            self.single[each.name] = sum(n for n, count in zip(lengths, counts) if count == 1)


def _pieces(operand: Operand, axis: str, group: Group) -> int:
    return sum(len(operand.cuts(axis, *each)) - 1 for each in group)


class _Costs:
    """Seconds of ways to cut a rank's work."""

    def __init__(self, problem: Problem, box: Box, rank: int, machine: Machine, copies: bool):
        self.compute, self.step_s = machine.compute, machine.step_s
        self.itemsize = problem.itemsize
        #: The share of the products' elements that are copied into own tiles, unless they are made
        #: there.
        self.share = _owned(problem.c, box, rank) if copies else 0.0

    def products_s(self, cuts: dict[str, _Cut]) -> tuple[float, int]:
        """Of the products themselves, and how many there are."""
        sizes = [cuts[axis].sizes for axis in "mnk"]
        count = cuts["m"].count * cuts["n"].count * cuts["k"].count
        if len(sizes[0]) * len(sizes[1]) * len(sizes[2]) > _SIZES:  # the mean is near enough
            mean = [cuts[axis].total // cuts[axis].count for axis in "mnk"]
            return count * (self.step_s + self.compute.gemm_s(*mean, self.itemsize)), count
        seconds = sum(
            x * y * z * self.compute.gemm_s(m, n, k, self.itemsize)
            for (m, x), (n, y), (k, z) in product(*(each.items() for each in sizes))
        )
        return seconds + count * self.step_s, count

    def of(self, cuts: dict[str, _Cut], outer: str) -> tuple[float, int, int, bool]:
        """Seconds, elements copied, elements of panels and scratch, and whether a block is read
        more than once."""
        m, n, k = (cuts[axis] for axis in "mnk")
        seconds, _ = self.products_s(cuts)
        copied, memory, again = 0, 0, False
        for name, across, along, other in (("A", m, k, n), ("B", n, k, m)):
            elements = across.total * along.total - across.single[name] * along.single[name]
            times = 1
            if other.count > 1 and outer != "k":
                leads = outer == ("m" if name == "A" else "n")
                kept = along.count == 1 and (leads or across.count == 1)
                times = 1 if kept else other.count
            again |= times > 1
            copied += times * elements
            pieces = across.pieces[name] * along.pieces[name]
            seconds += times * pieces * self.step_s if elements else 0.0
            if elements:
                held = across.total if outer == "k" else across.most
                memory += held * along.most * (1 if across.count * along.count == 1 else 2)
        elements = m.total * n.total - m.single["C"] * n.single["C"]
        if elements or self.share < 1:
            one = m.most * n.most * (1 if m.count * n.count == 1 else 2)
            memory += m.total * n.total if outer == "k" else one
        if elements:
            copied += int(self.share * elements)
            seconds += self.share * m.pieces["C"] * n.pieces["C"] * self.step_s
        return (
            seconds + self.compute.memory_s(2 * copied * self.itemsize),
            copied,
            memory,
            again,
        )


def _foreign_s(problem: Problem, box: Box, rank: int, machine: Machine) -> float:
    """Seconds in which what a rank multiplies comes from other ranks, and its sums go to them, over
    the slower of its links to its neighbour and to the rank across; none where the machine has no
    links."""
    ranks = problem.nprocs
    others = {(rank + 1) % ranks, (rank + ranks // 2) % ranks} - {rank}
    links = [machine.link(rank, other) for other in others] if machine.links else []
    a_byte_s = max((1 / link.bandwidth_bytes_per_s for link in links), default=0.0)
    if not a_byte_s:
        return 0.0
    a, b, c = (
        (1 - _owned(each, box, rank)) * prod(length(box.ranges[axis]) for axis in each.axes)
        for each in problem.operands
    )
    return a_byte_s * problem.itemsize * (a + b + c / machine.accumulate_efficiency)


def _owned(operand: Operand, box: Box, rank: int) -> float:
    """The share of what a rank multiplies of a matrix, or adds to it, that lies in own tiles."""
    share, partition = 1.0, operand.partition
    here = partition.places.coords(rank) if partition.holds(rank) else None
    for at, (axis, layout) in enumerate(zip(operand.axes, (partition.rows, partition.cols))):
        cut = box.cut(axis, operand)
        mine = [each for each in cut if here and layout[layout.at(each[0])].coordinate == here[at]]
        share *= length(mine) / length(cut)
    return share


def _tried(axis: str, box: Box, problem: Problem, chunk: int | None) -> list[_Cut]:
    """Ways to cut an axis: as a whole, evenly, at the tile boundaries of one matrix or all."""
    runs = box.ranges[axis]
    most = chunk if chunk and axis == box.free else None
    total = length(runs)
    ways = [_chunks(runs, min(limit, most or limit)) for limit in (total, *_LENGTHS[axis])]
    for operands in ([each] for each in problem.operands if axis in each.axes):
        cut = box.cut(axis, *operands)
        ways.append([each for one in cut for each in _chunks([one], most or total)])
    if axis == "k":
        ways.append([each for one in box.cut(axis) for each in _chunks([one], most or total)])
    found = {tuple(map(tuple, way)): way for way in ways}
    return [_Cut(axis, way, problem) for way in found.values()]


def _chunks(runs: list[Range], limit: int) -> list[Group]:
    """The ranges one after another, cut into equal groups of at most so many elements.

    Examples
    --------
    >>> _chunks([(0, 4), (10, 16)], 5)
    [[(0, 4), (10, 11)], [(11, 16)]]
    """
    total = length(runs)
    count = ceil_div(total, limit)
    return split(runs, [total * x // count for x in range(1, count + 1)])


def multiplied(
    problem: Problem,
    rank: int,
    stationary: str,
    found: Assembly,
    stays: bool,
    own_first: bool = False,
    work: Operand | None = None,
) -> Iterator[Step]:
    """The steps of one rank with its products assembled.

    Parameters
    ----------
    found : Assembly
    stays : bool
        No rank adds to another's tile: sums are copied into own tiles, if they are not made there.
    own_first : bool
        Otherwise: own sums are copied before the Fence, when nobody accumulates yet.
    """
    box = box_of(problem, rank, stationary, work)
    assert box is not None, "what multiplies nothing is not assembled"
    c, replicas = problem.c, {op.name: op.partition.replica_of(rank) for op in problem.operands}
    if not stays and not own_first:
        for tile in c.own_tiles(rank):
            yield Zero(tile)
        yield Fence()  # every tile is ready for everyone's accumulates
    cells = _Cells(found.groups, c, replicas["C"], rank)
    order = _order(problem, box, found, replicas, rank)
    early = not stays and own_first  # before the Fence
    left = sum(cells.owned(i, j) for i, j in product(order["m"], order["n"])) if early else 0
    held: dict[tuple, Step] = {}
    sums: dict[tuple, Step] = {}
    late: list[tuple[Step, Block]] = []
    counted = Counter({(i, j): len(order["k"]) for i, j in product(order["m"], order["n"])})
    if early and not left:
        yield Fence()
        early = False
    for i, j, x in _sequence(order, found.outer, cells if early else None):
        _drop(held, found, i, j, x)
        a = yield from _operand(problem.a, "A", (i, x), found, replicas, held, box.offset)
        b = yield from _operand(problem.b, "B", (x, j), found, replicas, held, box.offset)
        into = cells.whole(i, j)
        counted[i, j] -= 1
        if into is not None and into.owner == rank and (stays or early):
            yield Gemm(a, b, into=into)
        else:
            sums[i, j] = yield Gemm(a, b, into=sums.get((i, j)))
            if not counted[i, j]:
                total = sums.pop((i, j))
                for token, block in (yield from _parts(total, cells.parts(i, j), rank)):
                    if block.owner == rank and (stays or early):
                        yield Copy(token, into=block)
                    elif early:
                        late.append((token, block))
                    else:
                        yield Accumulate(token, block)
        if early and not counted[i, j]:
            left -= cells.owned(i, j)
            if not left:
                yield Fence()
                early = False
                for token, block in late:
                    yield Accumulate(token, block)


class _Cells:
    """The blocks of C that the products of groups of m and n are for."""

    def __init__(self, groups: dict[str, list[Group]], c: Operand, replica: int, rank: int):
        self.c, self.replica, self.rank, self.groups = c, replica, rank, groups
        self.known: dict[tuple[int, int], list[tuple[int, int, Block]]] = {}

    def parts(self, i: int, j: int) -> list[tuple[int, int, Block]]:
        """The parts of one product: its row, its column, its block."""
        if (i, j) not in self.known:
            rows, cols = (
                _places(self.c, axis, self.groups[axis][at]) for axis, at in (("m", i), ("n", j))
            )
            self.known[i, j] = [
                (row, col, self.c.block(of_rows, of_cols, self.replica))
                for row, of_rows in rows
                for col, of_cols in cols
            ]
        return self.known[i, j]

    def whole(self, i: int, j: int) -> Block | None:
        """The block of a product that is for one."""
        parts = self.parts(i, j)
        return parts[0][2] if len(parts) == 1 else None

    def owned(self, i: int, j: int) -> bool:
        """Whether any of it is the rank's own."""
        return any(block.owner == self.rank for _, _, block in self.parts(i, j))


def _places(operand: Operand, axis: str, group: Group) -> list[tuple[int, Range]]:
    """The ranges of a group between the tile boundaries of a matrix, and where they begin in the
    group."""
    found, at = [], 0
    for start, stop in group:
        for piece in between(operand.cuts(axis, start, stop)):
            found.append((at + piece[0] - start, piece))
        at += stop - start
    return found


def _operand(
    operand: Operand,
    name: str,
    at: tuple[int, int],
    found: Assembly,
    replicas: dict[str, int],
    held: dict,
    offset: int,
) -> Iterator[Step]:
    """The token of a group of rows times one of columns of A or B: one block, or a panel."""
    if (name, *at) in held:
        return held[(name, *at)]
    rows, cols = (
        _places(operand, axis, found.groups[axis][x]) for axis, x in zip(operand.axes, at)
    )
    replica = replicas[name]
    if len(rows) * len(cols) == 1:
        token = yield Get(operand.block(rows[0][1], cols[0][1], replica))
    else:
        shape = tuple(length(found.groups[axis][x]) for axis, x in zip(operand.axes, at))
        panel = yield Scratch(shape, name, operand.transposed)
        blocks = []
        for (row, of_rows), (col, of_cols) in product(rotated(rows, offset), rotated(cols, offset)):
            block = operand.block(of_rows, of_cols, replica)
            blocks.append((yield Assemble(block, panel, row, col)))
        token = yield Panel(panel, blocks)
    held[(name, *at)] = token
    return token


def _parts(total: Step, parts: list[tuple[int, int, Block]], rank: int) -> Iterator[Step]:
    """The tokens of the parts of a sum, and their blocks; ranks begin with different ones."""
    found = []
    for row, col, block in rotated(parts, rank):
        token, (rows, cols) = total, block.shape
        if rows < total.shape[0]:
            token = yield Part(token, 0, row, row + rows)
        if cols < total.shape[1]:
            token = yield Part(token, 1, col, col + cols)
        found.append((token, block))
    return found


def _drop(held: dict, found: Assembly, i: int, j: int, x: int) -> None:
    """Let go of the panels that no later product takes, or that are copied again to save memory."""
    m, n, k = (len(found.groups[axis]) for axis in "mnk")
    stays = {
        "k": (lambda at: at[1] == x, lambda at: at[0] == x),
        "m": (lambda at: k == 1 and (at[0] == i or m == 1), lambda at: k * n == 1),
        "n": (lambda at: k * m == 1, lambda at: k == 1 and (at[1] == j or n == 1)),
    }[found.outer]
    for key in list(held):
        if not stays[key[0] == "B"](key[1:]):
            del held[key]


def _sequence(
    order: dict[str, list[int]], outer: str, first: _Cells | None
) -> Iterator[tuple[int, int, int]]:
    """The products as groups of m, n and k, in order; those that hold own parts of C first, if
    there are any such."""
    if outer == "n":
        pairs = [(i, j) for j in order["n"] for i in order["m"]]
    else:
        pairs = [(i, j) for i in order["m"] for j in order["n"]]
    if first is not None:
        pairs.sort(key=lambda pair: not first.owned(*pair))
    if outer == "k":
        yield from ((i, j, x) for x in order["k"] for i, j in pairs)
    else:
        yield from ((i, j, x) for i, j in pairs for x in order["k"])


def _order(
    problem: Problem, box: Box, found: Assembly, replicas: dict[str, int], rank: int
) -> dict[str, list[int]]:
    """The groups of each axis in the order in which they are worked off: by the offset, and along
    the free axis those that nothing is moved for between those that need transfers."""
    order = {axis: rotated(list(range(len(found.groups[axis]))), box.offset) for axis in "mnk"}
    free = box.free
    if len(order[free]) > 1:
        moves = [_moves(problem, box, found, free, at, replicas, rank) for at in order[free]]
        order[free] = spread(order[free], moves)
    return order


def _moves(problem, box, found, free, at, replicas, rank) -> bool:
    """Whether a block of A or B beside a group of the free axis is another rank's."""
    for operand in (problem.a, problem.b):
        if free not in operand.axes:
            continue
        (other,) = (axis for axis in operand.axes if axis != free)
        ours = _places(operand, free, found.groups[free][at])
        theirs = [each for group in found.groups[other] for each in _places(operand, other, group)]
        for (_, one), (_, two) in product(ours, theirs):
            rows, cols = (one, two) if operand.axes[0] == free else (two, one)
            if operand.block(rows, cols, replicas[operand.name]).owner != rank:
                return True
    return False
