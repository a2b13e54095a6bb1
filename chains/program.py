"""A chain in given layouts as one program a rank: the steps of its products, functions and
redistributions, one after the other.

Nothing but data joins them: the scheduler sees one list, so that what the next product reads of
its weights is under way while this one multiplies. A Fence stands only where ranks read of each
other what was made since the last one; what goes round in collectives waits for its own pieces.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf
from typing import Any, NamedTuple

from algorithms.registry import get_algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.model.machine import Machine
from drbench.model.simulate import Simulator
from drbench.program.elementwise import Map
from drbench.program.group_steps import AllGather
from drbench.program.problem import ITEMSIZES, Operand, Problem
from drbench.program.redistribution import redistribute
from drbench.program.steps import (
    Copy,
    Fence,
    Get,
    Group,
    Part,
    Step,
)
from drbench.program.trace import Trace, no_collection, trace
from partitions import LayoutError, Partition, partition

from .description import Between, Chain, Product
from .joints import fences, renamed

#: What one rank reads of another to redistribute comes in so many panels at most.
_PANELS = 8
#: How a matrix comes into another layout: read one-sidedly, or gathered by a collective.
MOVES = ("read", "gather")


class Move(NamedTuple):
    """One redistribution: into which layout, and how (one of :data:`MOVES`)."""

    layout: str
    how: str

    def __str__(self) -> str:
        return f"{'→' if self.how == 'read' else '⇒'} {self.layout}"


class Way(NamedTuple):
    """How one product is made.

    Attributes
    ----------
    a, b : tuple of Move
        What is done to the operands first.
    algorithm : str
    options : tuple of (str, value)
        Settled.
    made : str
        The layout that the product is made in.
    c : tuple of Move
        What is done to it then.
    """

    a: tuple[Move, ...]
    b: tuple[Move, ...]
    algorithm: str
    options: tuple[tuple[str, Any], ...]
    made: str
    c: tuple[Move, ...]

    def __str__(self) -> str:
        told = [
            f"{name}{''.join(f' {move}' for move in moves)}"
            for name, moves in (("A", self.a), ("B", self.b))
            if moves
        ]
        kept = ("stationary", "strategy", "dataflow")
        how = ", ".join(f"{value}" for name, value in self.options if name in kept)
        told.append(f"{self.algorithm}{f' {how}' * bool(how)}")
        if self.c:
            told.append(f"C {self.made}{''.join(f' {move}' for move in self.c)}")
        return "; ".join(told)


@lru_cache(maxsize=1024)  # a partition of 512 ranks is checked once, not by every rank
def bound_partition(layout: str, shape: tuple[int, int], nprocs: int) -> Partition:
    """The partition of a layout that a chain takes: one tile a rank at most.

    Raises
    ------
    UsageError
        If the text is no layout.
    UnsupportedError
        If a rank has several tiles (our implementation).
    """
    try:
        found = partition(layout, shape, nprocs)
    except LayoutError as error:
        raise UsageError(f"layout {layout!r} of {shape[0]}x{shape[1]}: {error}") from None
    if any(len(found.tiles_of(rank)) > 1 for rank in range(nprocs)):
        raise UnsupportedError(
            f"layout {layout} deals several tiles to a rank (our implementation of chains). Use "
            "one with a tile a rank, as row, column, block or R."
        )
    return found


@dataclass
class Bound:
    """A chain on ranks, in layouts: what its program follows from. As a ``Trace.problem`` it tells
    the simulator element sizes and how many ranks there are.

    Parameters
    ----------
    chain : Chain
    nprocs : int
    layouts : dict of str to str
        Of every variable.
    ways : dict of str to Way
        Of every product, by the matrix it makes.
    dtype : str
    """

    chain: Chain
    nprocs: int
    layouts: dict[str, str]
    ways: dict[str, Way]
    dtype: str = "float32"
    updates = False
    plain = True

    @cached_property
    def problems(self) -> dict[tuple, Problem]:
        """Of every product, by what it makes and the layouts of its matrices: made once."""
        return {}

    @property
    def itemsize(self) -> int:
        return ITEMSIZES[self.dtype]

    @cached_property
    def operands(self) -> dict[str, Operand]:
        """Every matrix, those that are made on the way included, by name."""
        found = {}
        for name, matrix in self.chain.matrices.items():
            layout = self.layouts[self.chain.variable(name)]
            shape = matrix.rows, matrix.cols
            found[name] = Operand(name, bound_partition(layout, shape, self.nprocs))
        for each in self.chain.products:
            for name, moved, layouts in self.moves_of(each):
                matrix = self.chain.matrices[name]
                shape = matrix.rows, matrix.cols
                for layout in layouts:
                    label = f"{moved}@{layout}"
                    if label not in found:
                        found[label] = Operand(label, bound_partition(layout, shape, self.nprocs))
        return found

    def moves_of(self, each: Product) -> list[tuple[str, str, list[str]]]:
        """(matrix, how it is called then, layouts that it takes on the way) of one product."""
        way = self.ways[each.c]
        found = [
            (name, name, [move.layout for move in moves])
            for name, moves in ((each.a, way.a), (each.b, way.b))
        ]
        if way.c:
            found.append((each.c, f"{each.c}*", [way.made, *(move.layout for move in way.c[:-1])]))
        return found

    @property
    def itemsizes(self) -> dict[str, int]:
        return dict.fromkeys(self.operands, self.itemsize)

    def tile_bytes(self, rank: int) -> dict[str, int]:
        """Bytes of a rank's tiles of every matrix."""
        return {
            name: operand.partition.local_size(rank) * self.itemsize
            for name, operand in self.operands.items()
        }

    @property
    def written(self) -> list[str]:
        """Names of the matrices that the program makes."""
        given = {name for name, each in self.chain.matrices.items() if each.kind != "made"}
        return [name for name in self.operands if name not in given]


def traces(bound: Bound, first: bool = False) -> list[Trace]:
    """The programs of all ranks, or of the ``first`` alone.

    Where a Fence stands depends on what any rank reads of another, so all are made together.
    """
    ranks = range(1 if first else bound.nprocs)
    with no_collection():
        parts = [[steps for _, steps in _parts(bound, rank)] for rank in ranks]
        fenced = fences(parts)
        written = bound.written
        return [
            trace(
                _joined(steps, fenced),
                bound,  # type: ignore[arg-type]  # as far as it is asked
                rank,
                fresh=False,
                written=written[-1],
                ordered=written,
            )
            for rank, steps in zip(ranks, parts)
        ]


class Programs:
    """The programs of a chain, to be simulated: of all ranks, or of rank 0, which stands for all
    where it does what every other does at the same time (:func:`_folded`).

    Attributes
    ----------
    first : Trace
        Of rank 0.
    folded : tuple of str
        Names of the groups that one rank stands for; empty if all ranks are simulated.
    steps : int
        Of all programs that are simulated.
    """

    def __init__(self, bound: Bound, machine: Machine):
        self._bound = bound
        (self.first,) = traces(bound, first=True)
        self.folded = _folded(bound, self.first, machine)
        self.steps = len(self.first.steps) * (1 if self.folded else bound.nprocs)

    @cached_property
    def traces(self) -> list[Trace]:
        """Of the ranks that are simulated."""
        return [self.first] if self.folded else traces(self._bound)

    def simulator(self, machine: Machine) -> Simulator:
        """Simulations of the programs on a machine."""
        return Simulator(self.traces, machine)


def _folded(bound: Bound, first: Trace, machine: Machine) -> tuple[str, ...]:
    """The groups of a program whose ranks do the same at the same time: all have tiles of the same
    shapes, and move data by collectives of all ranks alone, over links of one kind or those that
    nodes have between them. Empty if they do not."""
    p, names = bound.nprocs, {"row"}
    for step in first.steps:
        if step.grouped and len(step.group) > 1:
            if step.kind != "ring" or len(step.group) < p:
                return ()
            collective = machine.collective(step.operation)
            links = {link.name: link for link in (machine.link(x, (x + 1) % p) for x in range(p))}
            if len(links) > 1 and not collective.across(step.group.members):
                return ()
            if (
                machine.torus
                or machine.adds_on_core
                or any(
                    link.own_timer and link.bandwidth_bytes_per_s < inf for link in links.values()
                )
            ):
                return ()
            names.add(step.group.name)
        elif not step.grouped and step.counter is not None and step.moved(0):
            return ()
    whole = [operand.partition for operand in bound.operands.values()]
    even = all(len({each.local_shape(rank) for rank in range(p)}) == 1 for each in whole)
    return tuple(names) if even else ()


def _joined(parts: list[list[Step]], fenced: Sequence[bool]) -> Iterator[Step]:
    for steps, fence in zip(parts, fenced):
        if fence:
            yield Fence()
        yield from (step for step in steps)  # a list takes nothing that is sent


def _collected(program: Generator[Step, Step, None]) -> list[Step]:
    """The steps of a program."""
    steps, token = [], None
    try:
        while True:
            token = program.send(token)
            steps.append(token)
    except StopIteration:
        return steps


# -- the parts of a program


def moved_bytes(bound: Bound) -> dict[str, int]:
    """Bytes that each operation moves from rank to rank, by the matrix it makes: those of what its
    operands and its result are redistributed by included."""
    found = {each.c: 0 for each in bound.chain.operations}
    with no_collection():
        for rank in range(bound.nprocs):
            for c, steps in _parts(bound, rank):
                elements = sum(size for step in steps for _, size in step.moved(rank))
                found[c] += elements * bound.itemsize
    return found


def _parts(bound: Bound, rank: int) -> Iterator[tuple[str, list[Step]]]:
    """Steps of every product, function and redistribution of one rank, in order, with the matrix
    that the operation makes."""
    moved: set[str] = set()
    for each in bound.chain.operations:
        if isinstance(each, Between):
            yield each.c, _collected(_mapped(bound, each, rank))
            continue
        way, names = bound.ways[each.c], []
        for matrix, moves in ((each.a, way.a), (each.b, way.b)):
            name = matrix
            for move in moves:
                label = f"{matrix}@{move.layout}"
                if label not in moved:  # another product may have needed it already
                    moved.add(label)
                    yield each.c, _collected(_moved(bound, name, label, move, rank))
                name = label
            names.append(name)
        made = f"{each.c}*@{way.made}" if way.c else each.c
        yield each.c, _multiplied(bound, each, (*names, made), rank)
        for x, move in enumerate(way.c):
            label = each.c if x == len(way.c) - 1 else f"{each.c}*@{move.layout}"
            yield each.c, _collected(_moved(bound, made, label, move, rank))
            made = label


def _moved(bound: Bound, old: str, new: str, move: Move, rank: int) -> Generator[Step, Step, None]:
    before, after = bound.operands[old], bound.operands[new]
    if move.how == "read":
        yield from redistribute(before, after, rank, _PANELS)
        return
    whole = before.partition
    axis = 0 if whole.rows.parts > 1 else 1
    everyone = Group("row", tuple(range(bound.nprocs)), rank)
    pieces = [before.tile_block(whole.tiles_of(other)[0]) for other in range(bound.nprocs)]
    gathered = yield AllGather(pieces, everyone, axis=axis)
    start, replica = 0, after.partition.replica_of(rank)
    for piece in pieces:  # gathered columns lie one rank's after the other's
        stop = start + piece.shape[axis]
        if piece.size:
            part = yield Part(gathered, axis, start, stop)
            rows, cols = (piece.row0, piece.row1), (piece.col0, piece.col1)
            yield Copy(part, into=after.block(rows, cols, replica))
        start = stop


def gathers(before: Partition, after: Partition) -> bool:
    """Whether a collective can make the one of the other: every rank has a part of the rows, or of
    the columns, in order, and gets all."""
    p = before.nprocs
    if before.replicas > 1 or after.terms > 1 or len(after.copies()) != p or p == 1:
        return False
    tiles = [before.tiles_of(rank) for rank in range(p)]
    return all(len(each) == 1 for each in tiles) and (
        [each[0] for each in tiles] == [(x, 0) for x in range(p)]
        or [each[0] for each in tiles] == [(0, x) for x in range(p)]
    )


def problem_of(
    chain: Chain, each: Product, layouts: tuple[str, str, str], nprocs: int, dtype: str
) -> Problem:
    """A product with its matrices in layouts, as algorithms take it."""
    a, b, c = (chain.matrices[name] for name in (each.a, each.b, each.c))
    parts = [
        bound_partition(layout, (matrix.rows, matrix.cols), nprocs)
        for layout, matrix in zip(layouts, (a, b, c))
    ]
    k = a.rows if "a" in each.transpose else a.cols
    sizes: Any = c.rows, c.cols, k, nprocs
    return Problem(*sizes, *parts, dtype, each.transpose)


def _multiplied(bound: Bound, each: Product, names: Sequence[str], rank: int) -> list[Step]:
    """The steps of a product on matrices of these names."""
    way = bound.ways[each.c]
    a, b, c = (bound.operands[name].stored.text for name in names)
    problem = bound.problems.get((each.c, a, b, c))
    if problem is None:
        problem = problem_of(bound.chain, each, (a, b, c), bound.nprocs, bound.dtype)
        bound.problems[each.c, a, b, c] = problem
    found = get_algorithm(way.algorithm).trace(problem, rank, **dict(way.options))
    return renamed(found.steps, dict(zip("ABC", names)))


def _mapped(bound: Bound, each: Between, rank: int) -> Generator[Step, Step, None]:
    """Own tiles through a function."""
    sources = [bound.operands[name] for name in each.takes]
    for into in bound.operands[each.c].own_tiles(rank):
        rows, cols = (into.row0, into.row1), (into.col0, into.col1)
        if not into.size:
            continue
        tokens = []
        for x, source in enumerate(sources):
            replica = source.partition.replica_of(rank)
            tokens.append((yield Get(source.block(rows, each.function.taken(cols, x), replica))))
        yield Map(each.function, tuple(tokens), into)


def aligned(each: Between, chain: Chain, layout: str, nprocs: int) -> str | None:
    """Why a layout does not suit a function; None if every rank has what its tiles are made of."""
    c = chain.matrices[each.c]
    whole = bound_partition(layout, (c.rows, c.cols), nprocs)
    of = each.function
    takes = [
        bound_partition(layout, (chain.matrices[name].rows, chain.matrices[name].cols), nprocs)
        for name in each.takes
    ]
    if whole.terms > 1:
        return "its sum is pending"
    for rank in range(nprocs):
        for idx in whole.tiles_of(rank):
            rows, cols = whole.tile_bounds(idx)
            if not of.fits(rows, cols):
                return f"{of.name} needs whole units of {of.rows} rows and {of.gives} columns"
            for x, taken in enumerate(takes):
                bounds = [taken.tile_bounds(each) for each in taken.tiles_of(rank)]
                if bounds != [(rows, of.taken(cols, x))] and rows[0] < rows[1]:
                    return f"tiles of {each.c} and {each.takes[x]} do not lie together"
    return None
