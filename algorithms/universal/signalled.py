"""The universal algorithm with signals: what FLUX does for a row of ranks (*FLUX*, §3 and §4), for
any partitioning and replication.

What moves is cut into communication tiles, products begin as their tiles arrive, and what a rank
makes for another's tile of C is put into a slot there (``Push``), tile by tile, instead of being
accumulated: its owner adds it up beside its own products. Nobody waits at a Fence before, nobody
locks, and own products and those for others come in any order.

That needs to be known: who makes what for whom. It is, since the slicing of every rank follows from
the problem alone.

==========  =====================================  =================================================
stationary  cut along                              what leaves
==========  =====================================  =================================================
B           m, which A and C share                 sums over this rank's rows of B, by rows of C
A           n, which B and C share                 sums over this rank's columns of A, by columns
C           m or n if A or B alone moves and k is  nothing
            whole (AllGather + GEMM), else k
C, a grid   m, or n if more of B than of A comes   its terms of C, by rows or columns
==========  =====================================  =================================================

Ranks cannot wait for each other in a circle: all that a rank sends follows from its own products,
and what it waits for, it adds up at the end of its program.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from math import ceil
from operator import itemgetter
from typing import NamedTuple

from drbench.model.costs import step_cost
from drbench.model.machine import Machine
from drbench.program.problem import Operand, Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Add, Block, Gemm, Get, Join, Kernel, Step
from partitions import Grid, Partition, part

from .slicing import (
    Product,
    cut_out,
    free_axis,
    on_grid,
    result_stays,
    slices,
    widened,
)

#: A share of the axis that is cut is in so many tiles where nothing is said, if they are not
#: smaller than this.
_TILES, LEAST = 4, 128


def tile_of(
    problem: Problem, stationary: str, tile: int | None = None, grid: Grid | None = None
) -> int:
    """Elements of a communication tile, where ``tile`` leaves it open: a quarter of what lies
    between two tile boundaries of the axis that the matrices which move share, at least 128; of k a
    sixteenth, at least 256. Where terms of C leave, of m or n, the shorter. One that is given is no
    longer than what it cuts.

    Examples
    --------
    >>> tile_of(Problem(4096, 4096, 4096, 2, a="row", b="row", c="row"), "B")
    512
    >>> tile_of(Problem(4096, 4096, 4096, 8, *["grid:2x2x2"] * 3), "C", grid=Grid(2, 2, 2))
    256
    >>> tile_of(Problem(4096, 4096, 4096, 2, a="row", b="row", c="row"), "B", 1 << 20)
    2048
    """
    work, axes = _work(problem, stationary, grid), free_axis(stationary)
    if stationary == "C":
        axes = "mnk" if result_stays(problem, stationary, work) else "mn"
    if tile:
        return min(tile, max(max(_ranges(problem, axis, work)) for axis in axes))
    if axes == "mnk":
        share = problem.k // (work or problem.c).partition.replicas
        return max(2 * LEAST, ceil(share / (4 * _TILES)))
    counts = ((problem.extent(axis), len(_ranges(problem, axis, work))) for axis in axes)
    return max(LEAST, min(ceil(extent / count / _TILES) for extent, count in counts))


def _ranges(problem: Problem, axis: str, work: Operand | None) -> list[int]:
    """How far tile boundaries of an axis are apart."""
    extent = problem.extent(axis)
    cuts = {0, extent}
    for operand in (*problem.operands, *([work] if work else ())):
        if axis in operand.axes:
            cuts.update(operand.cuts(axis, 0, extent))
    bounds = sorted(cuts)
    return [stop - start for start, stop in zip(bounds, bounds[1:])] or [0]


def _work(problem: Problem, stationary: str, grid: Grid | None) -> Operand | None:
    """Who multiplies what, if products go by a grid."""
    return on_grid(problem, stationary, grid) if grid else None


def signalled(
    problem: Problem,
    rank: int,
    stationary: str,
    tile: int | None,
    machine: Machine | None = None,
    grid: Grid | None = None,
    widen: int = 1,
    sent: bool = False,
) -> Iterator[Step]:
    """The steps of one rank, but for what replicas do with each other.

    Parameters
    ----------
    problem : Problem
    rank : int
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    tile : int or None
        Elements of a communication tile along the axis that is cut; None cuts nothing.
    machine : Machine, optional
        Whose times the order goes by; without it what a rank moves is taken to last as long as its
        products.
    grid : Grid, optional
        Who multiplies what, where that does not go by the tiles of the stationary matrix.
    widen : int
        As of :func:`~algorithms.universal.slicing.widened`.
    sent : bool
        What ranks of other nodes need of this rank's tiles it sends them before all else, in the
        order in which they need it, and nobody fetches.

    Examples
    --------
    Two ranks, all by rows, B stays: A comes, and sums go, in two tiles of two rows each.

    >>> problem = Problem(8, 8, 8, 2, a="row", b="row", c="row")
    >>> program, token, steps = signalled(problem, 0, "B", 2), None, []
    >>> while type(token) is not Add:
    ...     token = program.send(token)
    ...     steps.append(type(token).__name__)
    >>> " ".join(steps)
    'Get Get Gemm Get Gemm Push Get Gemm Push Get Gemm Await Add'
    """
    everyone = _everyone(problem, stationary, tile, _Model(machine), grid, widen)
    products, kernels = everyone.products(rank), everyone.kernels(rank)
    left = Counter(product.c.key for product in products if product.c.owner != rank)
    held: dict[tuple, Step] = {}
    sums: dict[tuple, Step] = {}
    if sent:
        for other, block in everyone.wanted(rank):
            own = yield Get(block)
            yield Push(own, other, block.key)
    near = problem.near(rank)
    for product in products:
        operands = []
        for axis, blocks in ((1, product.a), (0, product.b)):
            for block in blocks:
                if block.key in held:
                    continue
                if sent and block.owner not in near:
                    held[block.key] = yield Await(block.owner, block.key, block)
                    continue
                whole = widened(problem, rank, block, widen)
                if whole.key not in held:
                    held[whole.key] = yield Get(whole)
                if whole is not block:
                    held[block.key] = yield from cut_out(held[whole.key], whole, block)
            tokens = [held[block.key] for block in blocks]
            operands.append((yield Join(tokens, axis)) if len(tokens) > 1 else tokens[0])
        a, b = operands
        c, kernel = product.c, kernels.get(everyone.launch(product, rank))
        if c.owner == rank:
            yield Gemm(a, b, into=c, kernel=kernel)
            continue
        sums[c.key] = yield Gemm(a, b, into=sums.get(c.key), kernel=kernel)
        left[c.key] -= 1
        if not left[c.key]:
            yield Push(sums.pop(c.key), c.owner, _name(c))
    for source, c in everyone.coming(rank):
        brought = yield Await(source, _name(c), c.shape)
        yield Add(brought, into=c, side=True)  # C[m, n] += what the source has summed up


def slots(problem: Problem, stationary: str, grid: Grid | None = None) -> list[int]:
    """Elements of each rank's slots: of all that others push to it.

    Examples
    --------
    >>> slots(Problem(8, 8, 8, 2, a="row", b="row", c="row"), "B")
    [32, 32]
    """
    found, c = [0] * problem.nprocs, problem.c.partition
    still = (_work(problem, stationary, grid) or problem.operand(stationary)).partition
    held: dict[tuple, dict[int, int]] = {}  # rows, columns and replica of C -> elements of owners
    for rank in range(problem.nprocs):
        for rows, cols in _made(problem, rank, stationary, still):
            region = rows, cols, c.replica_of(rank)
            if region not in held:
                held[region] = _held(c, *region)
            for owner, elements in held[region].items():
                if owner != rank:
                    found[owner] += elements
    return found


def sent(problem: Problem, stationary: str, grid: Grid | None = None) -> list[int]:
    """Elements of A and B that ranks of other nodes send each rank, if they are sent.

    Examples
    --------
    >>> sent(Problem(8, 8, 8, 2, a="row", b="row", c="row"), "C")
    [32, 32]
    """
    found = []
    for rank in range(problem.nprocs):
        products = _sliced(problem, rank, stationary, _work(problem, stationary, grid))
        blocks = {each.key: each for one in products for each in (one.a, one.b)}
        near = problem.near(rank)
        found.append(sum(each.size for each in blocks.values() if each.owner not in near))
    return found


def _made(problem: Problem, rank: int, stationary: str, still: Partition) -> set[tuple]:
    """The ranges of rows and of columns of C that a rank has terms of, by what it multiplies."""
    free = part(problem.extent(free_axis(stationary)), still.replica_of(rank), still.replicas)
    if free[0] == free[1]:
        return set()
    bounds = map(still.tile_bounds, still.tiles_of(rank))
    if stationary == "A":
        return {(rows, free) for rows, _ in bounds}
    return {(free, cols) for _, cols in bounds} if stationary == "B" else set(bounds)


def _held(c: Partition, rows: tuple, cols: tuple, replica: int) -> dict[int, int]:
    """Owner -> elements of a region of C that it holds in one replica."""
    sides = []
    for axis, ranks, (start, stop) in (
        (c.rows, c.places.rows, rows),
        (c.cols, c.places.cols, cols),
    ):
        side: Counter = Counter()
        for x in axis.covering(start, stop):
            low, high, at, _ = axis[x]
            side[ranks[at]] += min(high, stop) - max(low, start)
        sides.append(side)
    origin = c.places.replicas[replica]
    return {
        down + right + origin: height * width
        for down, height in sides[0].items()
        for right, width in sides[1].items()
    }


def cuts(problem: Problem, rank: int, stationary: str, grid: Grid | None = None) -> str:
    """The axis along which a rank's products are cut.

    Examples
    --------
    >>> cuts(Problem(8, 8, 8, 2, a="row", b="column", c="column"), 0, "C")
    'm'
    """
    products = _sliced(problem, rank, stationary, _work(problem, stationary, grid))
    return cut_along(products, rank, stationary)


def _sliced(problem: Problem, rank: int, stationary: str, work: Operand | None) -> list[Product]:
    groups = slices(problem, rank, stationary, work=work)
    return [product for group in groups for product in group]


class Work(NamedTuple):
    """One product c += a·b: blocks of A side by side, and below one another those of B."""

    a: tuple[Block, ...]
    b: tuple[Block, ...]
    c: Block

    @property
    def k(self) -> int:
        """Elements of k."""
        return sum(block.col1 - block.col0 for block in self.a)

    def beyond(self, near: Collection[int]) -> list[Block]:
        """The operands of other ranks than those near by."""
        return [block for block in (*self.a, *self.b) if block.owner not in near]


class _Everyone:
    """What each rank makes, pushes and awaits; found when it is asked for, and kept: each rank asks
    it of others too."""

    def __init__(
        self,
        problem: Problem,
        stationary: str,
        tile: int | None,
        machine: Machine | None,
        grid: Grid | None,
        widen: int,
    ):
        self.problem, self.stationary, self.tile, self.machine = problem, stationary, tile, machine
        self.widen = widen
        self.work = _work(problem, stationary, grid)
        self._products: dict[int, list[Work]] = {}
        self._pushed: dict[int, dict[int, list]] = {}
        self._axes: dict[int, str] = {}

    def products(self, rank: int) -> list[Work]:
        """Those of a rank in the order of simulated arrival."""
        if rank not in self._products:
            whole = _sliced(self.problem, rank, self.stationary, self.work)
            axis = self._axes[rank] = cut_along(whole, rank, self.stationary)
            found = parts(self.problem, whole, rank, self.tile, axis)
            if axis != "k" and self.machine is not None and not self.machine.adds_on_core:
                found = joined(self.problem, found)
            launch = lambda product: _launch(product, axis)
            how = launch, self.machine, self.widen
            self._products[rank] = arranged(found, rank, self.problem, *how)
        return self._products[rank]

    def launch(self, product: Work, rank: int) -> tuple | None:
        """What the parts of a kernel have in common."""
        return _launch(product, self._axes[rank])

    def kernels(self, rank: int) -> dict[tuple, Kernel]:
        """The kernels of a rank that consist of several parts."""
        shapes: dict[tuple, list] = {}
        for product in self.products(rank):
            name = self.launch(product, rank)
            if name is not None:
                shapes.setdefault(name, []).append((*product.c.shape, product.k))
        found = {}
        for name, each in shapes.items():
            m, n, k = each[0]
            if self._axes[rank] == "m":
                m = sum(shape[0] for shape in each)
            else:
                n = sum(shape[1] for shape in each)
            if len(each) > 1:
                found[name] = Kernel(m, n, k)
        return found

    def pushed(self, rank: int) -> dict[int, list[tuple[int, Block]]]:
        """owner -> what a rank pushes to it, each block with its turn among all."""
        if rank not in self._pushed:
            last: dict[tuple, Block] = {}
            for product in self.products(rank):
                if product.c.owner != rank:  # complete when the last product is made
                    last.pop(product.c.key, None)
                    last[product.c.key] = product.c
            found: dict[int, list] = {}
            for turn, c in enumerate(last.values()):
                found.setdefault(c.owner, []).append((turn, c))
            self._pushed[rank] = found
        return self._pushed[rank]

    def wanted(self, rank: int) -> list[tuple[int, Block]]:
        """What ranks of other nodes need of a rank's tiles, as (rank, block), in the order in which
        they do."""
        p, found = self.problem.nprocs, []
        for other in {*range(p)} - self.problem.near(rank):
            blocks = (each for one in self.products(other) for each in (*one.a, *one.b))
            mine = {each.key: each for each in blocks if each.owner == rank}
            found += [(x, (other - rank) % p, other, each) for x, each in enumerate(mine.values())]
        return [(other, each) for *_, other, each in sorted(found, key=itemgetter(0, 1))]

    def coming(self, rank: int) -> list[tuple[int, Block]]:
        """What others push into a rank's tiles of C, as (source, block), in the order in which it
        is expected."""
        if result_stays(self.problem, self.stationary, self.work):
            return []
        p = self.problem.nprocs
        found = [
            (turn, (source - rank) % p, source, c)
            for source in contributors(self.problem, rank, self.stationary, self.work)
            for turn, c in self.pushed(source).get(rank, ())
        ]
        return [(source, c) for *_, source, c in sorted(found, key=itemgetter(0, 1))]


class _Model(NamedTuple):
    """A machine, or none, as a key: two are the same if they are one object."""

    machine: Machine | None

    def __hash__(self):
        return id(self.machine)

    def __eq__(self, other):
        return self.machine is other.machine

    def __ne__(self, other):
        return not self == other


@lru_cache(maxsize=2)
def _everyone(
    problem: Problem,
    stationary: str,
    tile: int | None,
    model: _Model,
    grid: Grid | None,
    widen: int,
) -> _Everyone:
    return _Everyone(problem, stationary, tile, model.machine, grid, widen)


def contributors(
    problem: Problem, rank: int, stationary: str, work: Operand | None = None
) -> list[int]:
    """The other ranks that may have something to add to this rank's tiles of C: those of the same
    replica of it whose stationary tiles, or blocks of a grid, lie beside them.

    Examples
    --------
    >>> contributors(Problem(8, 8, 8, 4, a="block", b="block", c="block"), 0, "B")
    [2]
    """
    still = (work or problem.operand(stationary)).partition
    return _beside(still, problem.c.partition, stationary).of(rank)


class _Beside:
    """Whose stationary tiles lie beside whose tiles of C: ranks whose tiles have the same ranges
    are looked at once."""

    def __init__(self, still: Partition, c: Partition, stationary: str):
        shared = {"A": slice(0, 1), "B": slice(1, 2), "C": slice(0, 2)}[stationary]
        ranges = lambda partition, rank: frozenset(
            tuple(partition.tile_bounds(tile)[shared]) for tile in partition.tiles_of(rank)
        )
        self._mine = [(c.replica_of(rank), ranges(c, rank)) for rank in range(c.nprocs)]
        self._theirs: dict[tuple, list[int]] = {}
        for rank, (replica, _) in enumerate(self._mine):
            self._theirs.setdefault((replica, ranges(still, rank)), []).append(rank)
        self._found: dict[tuple, list[int]] = {}

    def of(self, rank: int) -> list[int]:
        """Those beside the tiles of C of a rank, in the same replica, without itself."""
        replica, mine = key = self._mine[rank]
        if key not in self._found:
            self._found[key] = sorted(
                other
                for (near, theirs), ranks in self._theirs.items()
                if near == replica and _overlap(theirs, mine)
                for other in ranks
            )
        return [other for other in self._found[key] if other != rank]


def _overlap(theirs: frozenset, mine: frozenset) -> bool:
    """Whether one of the ranges, along each axis, overlaps with one of the others."""
    return any(
        all(low < stop and start < high for (low, high), (start, stop) in zip(one, other))
        for one in theirs
        for other in mine
    )


_beside = lru_cache(maxsize=2)(_Beside)


def cut_along(products: list[Product], rank: int, stationary: str) -> str:
    """The axis along which a rank's products are cut: all matrices have it that move, or as many of
    them as can.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="column", c="column")
    >>> products = [product for group in slices(problem, 0, "C") for product in group]
    >>> cut_along(products, 0, "C")
    'm'
    """
    if stationary != "C":
        return free_axis(stationary)
    of_a, of_b = (_coming(products, operand, rank) for operand in (0, 1))
    if any(product.c.owner != rank for product in products):
        return "m" if of_a >= of_b else "n"
    once = len({product.c.key for product in products}) == len(products)
    if not once or bool(of_a) == bool(of_b):
        return "k"
    return "m" if of_a else "n"


def _coming(products: list[Product], operand: int, rank: int) -> int:
    """Elements of A (0) or B (1) that others have."""
    blocks = {product[operand].key: product[operand] for product in products}
    return sum(block.size for block in blocks.values() if block.owner != rank)


def _launch(product: Work, axis: str) -> tuple | None:
    """What the parts of a kernel have in common: the operand that they are not cut along. None
    where k is cut: such products add up to the same elements, one after another."""
    if axis == "k":
        return None
    return tuple(block.key for block in (product.b if axis == "m" else product.a))


def parts(
    problem: Problem, products: list[Product], rank: int, tile: int | None, axis: str
) -> list[Work]:
    """The products of a rank, each cut into tiles along an axis; none if nothing moves for any.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="row", b="row", c="row")
    >>> products = [product for group in slices(problem, 0, "B") for product in group]
    >>> [product.c for product in parts(problem, products, 0, 2, "m")]
    [C[0:2, 0:8]@0, C[2:4, 0:8]@0, C[4:6, 0:8]@1, C[6:8, 0:8]@1]
    """
    far = any(block.owner != rank for product in products for block in product[:3])
    if tile is None or not far:
        return [Work((a,), (b,), c) for a, b, c, *_ in products]
    ranges: dict[tuple, list] = {}
    found = []
    for product in products:
        whole = start, stop = _range(product, axis)
        if whole not in ranges:
            count = ceil((stop - start) / tile)
            cuts = [start + (stop - start) * x // count for x in range(count + 1)]
            ranges[whole] = list(zip(cuts, cuts[1:]))
        for cut in ranges[whole]:
            a, b, c = (
                _within(operand, block, axis, cut)
                for operand, block in zip(problem.operands, product[:3])
            )
            found.append(Work((a,), (b,), c))
    return found


def joined(problem: Problem, products: list[Work]) -> list[Work]:
    """The products of each sum as one, along k: parts of one launch, where products are launched.

    Examples
    --------
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="row")
    >>> products = [product for group in slices(problem, 0, "B") for product in group]
    >>> joined(problem, parts(problem, products, 0, None, "m"))[0]
    Work(a=(A[0:4, 0:4]@0, A[0:4, 4:8]@1), b=(B[0:8, 0:4]@0,), c=C[0:4, 0:4]@0)
    """
    sums: dict[tuple, list[Work]] = {}
    for product in products:
        sums.setdefault(product.c.key, []).append(product)
    found = []
    for each in sums.values():
        each.sort(key=lambda product: product.a[0].col0)
        a = _together(problem.a, [block for product in each for block in product.a], 1)
        b = _together(problem.b, [block for product in each for block in product.b], 0)
        found.append(Work(a, b, each[0].c))
    return found


def _together(operand: Operand, blocks: list[Block], axis: int) -> tuple[Block, ...]:
    """Blocks that follow each other along an axis, those of one tile without a gap as one."""
    found: list[Block] = []
    for block in blocks:
        last = found[-1] if found else None
        if last is not None and last.tile == block.tile:
            if axis and last.col1 == block.col0:
                rows, cols = (block.row0, block.row1), (last.col0, block.col1)
            elif not axis and last.row1 == block.row0:
                rows, cols = (last.row0, block.row1), (block.col0, block.col1)
            else:
                found.append(block)
                continue
            found[-1] = operand.block(rows, cols, block.replica)
        else:
            found.append(block)
    return tuple(found)


def _range(product: Product, axis: str) -> tuple[int, int]:
    a, b = product.a, product.b
    return {"m": (a.row0, a.row1), "k": (a.col0, a.col1), "n": (b.col0, b.col1)}[axis]


def _within(operand: Operand, block: Block, axis: str, cut: tuple[int, int]) -> Block:
    """The part of a block in a range of an axis; all of it if it does not have the axis."""
    if axis not in operand.axes:
        return block
    rows, cols = (block.row0, block.row1), (block.col0, block.col1)
    if operand.axes[0] == axis:
        return operand.block(cut, cols, block.replica)
    return operand.block(rows, cut, block.replica)


def arranged(
    products: list[Work],
    rank: int,
    problem: Problem,
    launch: Callable[[Work], tuple | None],
    machine: Machine | None = None,
    widen: int = 1,
) -> list[Work]:
    """The products of a rank in the order of simulated arrival.

    What others wait for comes first, as soon as all its tiles are here, each sum whole, those that
    go to other nodes before those that stay on this one; then what is its own, behind which the
    last of them are on their way. While nothing of that is here, products are made whose operands
    are at hand: sums for others from tiles of ranks near by, then what needs this rank's alone.
    Tiles come one after another, in the order in which they are needed.
    """
    near = problem.near(rank)
    far = lambda product: product.beyond(near)
    sums: dict[tuple, list[Work]] = {}
    for product in products:
        sums.setdefault(product.c.key, []).append(product)
    leave = [each for each in sums.values() if each[0].c.owner != rank]
    leave.sort(key=lambda each: each[0].c.owner in near)
    turns: dict[tuple | None, int] = {}
    for product in products:
        turns.setdefault(launch(product), len(turns))
    stay = [product for product in products if product.c.owner == rank]
    stay.sort(key=lambda product: turns[launch(product)])  # parts of a kernel follow each other
    due = [*leave, *([product] for product in stay if product.beyond({rank}))]
    product_s, get_s = _seconds(products, rank, problem, machine, widen)
    here, clock = {}, 0.0
    for block in (block for each in due for product in each for block in far(product)):
        whole = widened(problem, rank, block, widen)
        if whole.key not in here:
            clock += get_s(whole)
            here[whole.key] = clock
        here[block.key] = here[whole.key]
    at_hand = [product for each in leave for product in each if not far(product)]
    at_hand += [product for product in stay if not product.beyond({rank})]
    order: dict[int, Work] = {}
    now, beside = 0.0, 0  # of those at hand, how many are made

    def make(product: Work) -> float:
        if id(product) in order:
            return 0.0
        order[id(product)] = product
        return product_s(product)

    for each in due:
        arrival = max((here[block.key] for product in each for block in far(product)), default=0.0)
        while now < arrival and beside < len(at_hand):
            now += make(at_hand[beside])
            beside += 1
        now = max(now, arrival)
        for product in each:
            now += make(product)
    for product in at_hand:
        make(product)
    return list(order.values())


def _seconds(
    products: list[Work], rank: int, problem: Problem, machine: Machine | None, widen: int
) -> tuple[Callable[[Work], float], Callable[[Block], float]]:
    """What a product, and the way of a block to this rank, take on a machine; without one in
    multiply-adds, all that the rank moves as long as all its products."""
    itemsize = problem.itemsize
    if machine is not None:
        gemm_s = lru_cache(maxsize=None)(machine.compute.gemm_s)
        step_s = lambda cost: max(cost.link_s, cost.core_s)
        return (
            lambda product: gemm_s(*product.c.shape, product.k, itemsize),
            lambda block: step_s(step_cost(machine, Get(block), rank, itemsize)),
        )
    near = problem.near(rank)
    moved = {}
    for product in products:
        if product.c.owner not in near:
            moved[product.c.key] = product.c.size
        for block in product.beyond(near):
            whole = widened(problem, rank, block, widen)
            moved[whole.key] = whole.size
    size = lambda product: product.c.size * product.k
    each = sum(map(size, products)) / max(1, sum(moved.values()))
    return size, lambda block: block.size * each


def _name(c: Block) -> tuple[int, int, int, int]:
    """The key of a signal: the block of C, to which each rank contributes once."""
    return c.row0, c.row1, c.col0, c.col1
