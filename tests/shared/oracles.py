"""Slow, independent oracles for the tests: places of elements, and values of C.

Nothing here uses the index arithmetic under test: layouts are dealt out element by element from a
tile shape and a process grid, and programs are run step by step on one array per rank. That steps
are right in any order is what :mod:`drbench.check` proves.
"""

import itertools
import random
import re
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from drbench.algorithms import get_algorithm
from drbench.partitions import CyclicAxis, Partition, ProcessGrid, divisors, grid_places
from drbench.partitions.enumerate import KINDS
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Copy,
    Gemm,
    Get,
    Pack,
    ReplicaAdd,
    ReplicaGet,
)

universal = get_algorithm("universal")


class Violation(AssertionError):
    """A program breaks one of the rules it was checked against; ``rule`` is its text."""

    def __init__(self, rule, detail=""):
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


def require(held, rule, *detail):
    if not held:
        raise Violation(rule, " ".join(map(str, detail)))


def traces_of(problem, **options):
    """The universal program of every rank."""
    return [universal.trace(problem, rank, **options) for rank in range(problem.nprocs)]


def any_case(seed):
    """A random problem with random options, small enough to run in milliseconds."""
    rng = random.Random(seed)
    p = rng.choice([2, 3, 4, 5, 6])
    kinds = ["row", "column", "block", "tiles:3x2", "tiles:2x3", "tiles:2x2", "tiles:4x9"]
    texts = [f"{rng.choice(kinds)}/c{rng.choice(divisors(p))}" for _ in "ABC"]
    m, n, k = (rng.randint(3, 9) for _ in "mnk")
    options = {
        "stationary": rng.choice("ABC"),
        "chunk": rng.choice([None, None, 1, 2, 3]),
        "replicate_result": rng.random() < 0.3,
    }
    for name, value in (("fetch", "tile"), ("reduce", "push")):
        if rng.random() < 0.4:
            options[name] = value
    return Problem(m, n, k, p, *texts), options


# -- places of elements
# ---------------------------------------------------------------------------------------------


def home(partition, role="C"):
    """The place of each element of a matrix, by dealing it out by hand; ``role`` matters on grids.

    ``owner`` [replica, row, column] is a rank, ``tile`` and ``address`` [row, column] the number of
    the tile and the place in its owner's storage, ``width`` [row, column] the width of that tile,
    ``shape`` [rank] that of its local array and ``size`` [rank] its elements; ``replica`` [rank]
    and ``term`` [replica] are numbers.
    """
    if partition.text[:1] in "RPS_":
        return _by_placements(partition.shape, partition.text, partition.nprocs)
    if partition.text.startswith("grid:"):
        return _on_grid(partition.shape, partition.text, partition.nprocs, role)
    if re.search(r"[+*]|:from|/on", partition.text):
        return _in_blocks(partition.shape, partition.text, partition.nprocs)
    grid = partition.grid
    tiles = partition.tile_shape, (grid.rows, grid.cols), grid.order
    return _in_tiles(partition.shape, *tiles, partition.replicas)


def home_of(operand):
    """The place of each element of an operand as the GEMM reads it: of a transposed matrix,
    :func:`home` of the stored one with rows and columns exchanged."""
    at = home(operand.stored, operand.name)
    if not operand.transposed:
        return at
    flipped = {name: getattr(at, name).T for name in ("tile", "address", "width")}
    number = {(j, i): count for (i, j), count in at.number.items()}
    owner = at.owner.transpose(0, 2, 1)
    return SimpleNamespace(**{**vars(at), **flipped, "owner": owner, "number": number})


def _dealt(shape, held, cuts, terms):
    """The answer of :func:`home`: ``held`` are the rows, the columns and the replica of each rank,
    ``cuts`` the tiles along each dimension, all as lists of indices, ``terms`` that of each
    replica. A local array is all the rank's rows by all its columns."""
    at = SimpleNamespace(
        owner=np.full((len(terms), *shape), -1),
        tile=np.full(shape, -1),
        address=np.full(shape, -1),
        width=np.full(shape, -1),
        shape=[(len(rows), len(cols)) for rows, cols, _ in held],
        size=[len(rows) * len(cols) for rows, cols, _ in held],
        number={
            cell: x
            for x, cell in enumerate(itertools.product(*(range(len(each)) for each in cuts)))
        },
        replica=[replica for *_, replica in held],
        term=terms,
    )
    for rank, (rows, cols, replica) in enumerate(held):
        here = np.ix_(rows, cols)
        at.owner[replica][here], at.width[here] = rank, len(cols)
        at.address[here] = np.arange(at.size[rank]).reshape(len(rows), len(cols))
    for (i, j), number in at.number.items():  # row by row, the order in which tiles are stored
        at.tile[np.ix_(cuts[0][i], cuts[1][j])] = number
    return at


@lru_cache(maxsize=512)
def _in_tiles(shape, tile_shape, grid, order, replicas):
    """Tiles from the front, dealt cyclically to process rows and columns."""
    cuts = [
        [list(range(extent))[x : x + tile] for x in range(0, extent, tile)]
        for extent, tile in zip(shape, tile_shape)
    ]
    cells = list(itertools.product(*map(range, grid)))
    if order == "col":
        cells.sort(key=lambda cell: cell[::-1])
    held = [
        [*(sum(along[at::every], []) for along, at, every in zip(cuts, cell, grid)), replica]
        for replica in range(replicas)
        for cell in cells
    ]
    return _dealt(shape, held, cuts, [0] * replicas)


@lru_cache(maxsize=512)
def _in_blocks(shape, text, nprocs):
    """Tiles of any sizes, dealt one by one to process rows and columns of some ranks."""
    layout, _, listed = text.partition("/on")
    ranks = []
    for item in filter(None, listed.split("+")):
        first, _, last = item.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    layout, _, factor = layout.partition("/c")
    sizes, _, at = layout.removeprefix("tiles:").partition("@")
    if "+" in at:
        owners = [[int(owner) for owner in side.split("+")] for side in at.split("x")]
        grid, column_major = [max(side) + 1 for side in owners], False
    else:
        grid, first, column_major = at.partition(":")[0], at.partition(":from")[2], ":col" in at
        grid = [int(count) for count in grid.split("x")]
        first = [int(x) for x in first.split("x")] if first else [0, 0]
        owners = [[(x + y) % count for y in range(count)] for count, x in zip(grid, first)]
    cuts, dealt = [], []
    for extent, side, mine, count in zip(shape, sizes.split("x"), owners, grid):
        given = [int(size) for size in side.removesuffix("*").split("+")]
        left, tiles, held = list(range(extent)), [], [[] for _ in range(count)]
        while left:
            size = given[min(len(tiles), len(given) - 1)]
            held[mine[len(tiles) % len(mine)]] += left[:size]
            tiles.append(left[:size])
            left = left[size:]
        cuts.append(tiles)
        dealt.append(held)
    cells = list(itertools.product(*map(range, grid)))
    if column_major:
        cells.sort(key=lambda cell: cell[::-1])
    replicas = int(factor or 1)
    held = [[[], [], 0] for _ in range(nprocs)]
    numbered = ((copy, cell) for copy in range(replicas) for cell in cells)
    for number, (copy, (i, j)) in enumerate(numbered):
        held[ranks[number] if ranks else number] = [dealt[0][i], dealt[1][j], copy]
    return _dealt(shape, held, cuts, [0] * replicas)


@lru_cache(maxsize=512)
def _on_grid(shape, text, nprocs, role):
    """Each rank's one tile: its block of the grid, dealt once more to those that share it."""
    parts = dict(zip("mnk", map(int, text.removeprefix("grid:").split("x"))))
    axes = {"A": "mk", "B": "kn", "C": "mn"}[role]
    (lacks,), within = set("mnk") - set(axes), "m" if role == "C" else "k"
    held, inner = [], axes.index(within)
    for at in itertools.product(*(range(parts[axis]) for axis in "mnk")):
        at = dict(zip("mnk", at))
        mine = [chunk(list(range(n)), parts[x])[at[x]] for n, x in zip(shape, axes)]
        mine[inner] = chunk(mine[inner], parts[lacks])[at[lacks]]
        held.append([*mine, 0])
    held += [[[], [], 0]] * (nprocs - len(held))
    cuts = [sorted({tuple(each[x]) for each in held if each[x]}) for x in (0, 1)]
    return _dealt(shape, held, cuts, [0])


def chunk(values, chunks):
    """torch.chunk with the empty chunks that DTensor adds: equal ranges from the front."""
    size = -(-len(values) // chunks)
    return [values[x * size : (x + 1) * size] for x in range(chunks)]


@lru_cache(maxsize=512)
def _by_placements(shape, text, nprocs):
    """As DTensor deals a matrix: coordinate by coordinate, a list of indices a dimension."""
    listed, _, mesh = text.partition("@")
    words = re.findall(r"_S\(\d,\d+\)|S\(\d\)|R|P", listed)
    mesh = [int(extent) for extent in mesh.split("x")] if mesh else [nprocs]
    held, terms, keys = [], set(), ({}, {})  # index -> its owner and its place
    for rank in range(nprocs):
        local, replica, term, stride, seen = [list(range(n)) for n in shape], 0, 0, nprocs, []
        for word, extent in zip(words, mesh, strict=True):
            stride //= extent
            at = rank // stride % extent
            if word in "RP":
                replica = replica * extent + at
                term = term * extent + at if word == "P" else term
                continue
            dim, *factor = map(int, re.findall(r"\d+", word))
            fragments = [
                chunk(fragment, extent)[at] for fragment in chunk(local[dim], *(factor or [1]))
            ]
            local[dim] = sum(fragments, [])
            seen.append((dim, at))
        held.append([*local, replica])
        terms.add((replica, term))
        for dim, key in enumerate(keys):
            who = [c for d, c in seen if d == dim]
            key |= {index: (who, place) for place, index in enumerate(local[dim])}
    cuts = [[], []]  # along each dimension: consecutive indices that one coordinate holds
    for key, found in zip(keys, cuts):
        for index in range(len(key)):
            who, place = key[index]
            if index and key[index - 1] == (who, place - 1):
                found[-1].append(index)
            else:
                found.append([index])
    return _dealt(shape, held, cuts, [term for _, term in sorted(terms)])


def by_place(part, rank):
    """Local (row, column) of a rank -> the element of the matrix that is there, tile by tile."""
    found = {}
    for idx in part.tiles_of(rank):
        rows, cols = part.tile_bounds(idx)
        top, left = part.local_start(idx)
        for i in range(*rows):
            for j in range(*cols):
                found[top + i - rows.start, left + j - cols.start] = i, j
    return found


def elements_of(part, rank):
    """Every (row, column) that a rank holds."""
    return {*by_place(part, rank).values()}


def held_by_all(part):
    """For each rank the copy, the term and the bounds of the tiles that it holds; None if it holds
    nothing."""
    return [
        (q, part.term_of(q), list(map(part.tile_bounds, part.tiles_of(rank))))
        if part.tiles_of(rank)
        else None
        for rank in range(part.nprocs)
        for q in [part.replica_of(rank)]
    ]


def check_block(at, block):
    """Check that a block is not empty, is inside one tile, and has the right owner and the right
    flag for whole rows of the local array."""
    rows, cols = at.tile.shape
    inside = 0 <= block.row0 < block.row1 <= rows and 0 <= block.col0 < block.col1 <= cols
    require(inside, "a block is a non-empty part of its matrix", block)
    first, last = (block.row0, block.col0), (block.row1 - 1, block.col1 - 1)
    require(
        at.tile[first] == at.tile[last] == at.number[block.tile],
        "a block is inside its tile",
        block,
        block.tile,
    )
    require(block.owner == at.owner[(block.replica, *first)], "a block names its owner", block)
    length = block.shape[not block.transposed]
    require(block.full == (length == at.width[first]), "a block knows whole stored rows", block)


# -- work of Algorithm 1
# ----------------------------------------------------------------------------------------------


def check_blocks(problem, traces, stationary):
    """Check that every rank reads and writes right blocks of its own replicas of A, B and C, and
    that those of the stationary matrix (None: there is none) are its own."""
    at = {op.name: home_of(op) for op in problem.operands}
    transposed = {op.name: op.transposed for op in problem.operands}
    checked = set()
    for rank, trace in enumerate(traces):
        for step in trace.steps:
            if type(step) not in (Get, Pack, Gemm, Accumulate) or step.block is None:
                continue
            block = step.block
            own = block.owner == rank
            require(block.replica == at[block.matrix].replica[rank], "a rank stays in its replica")
            require(block.matrix != stationary or own, "the stationary matrix does not move", step)
            require(type(step) is not Gemm or own, "a Gemm writes an own tile", step)
            key = *block.key, block.owner, block.tile, block.full
            if key not in checked:
                require(block.transposed == transposed[block.matrix], "it knows its storage", block)
                check_block(at[block.matrix], block)
                checked.add(key)


def replicas_moved(problem, traces, kind):
    """Count how often each element of each replica of C is moved between replicas by ``kind``
    (Add, ReplicaAdd or Copy).

    Returns
    -------
    ndarray of int, shape (replicas, m, n)
        For Add and ReplicaAdd indexed by the replica that is read, for Copy by the one that is
        written.
    """
    at = home(problem.c.partition)
    count = np.zeros(at.owner.shape, np.int16)
    for rank, trace in enumerate(traces):
        for step in trace.steps:
            if type(step) is not kind or (kind is Copy and type(step.inputs[0]) is not ReplicaGet):
                continue
            (pulled,) = step.inputs
            source, into = pulled.block, step.block
            require(
                type(pulled) is (Get if kind is ReplicaAdd else ReplicaGet),
                "replicas are read through ReplicaGet, own tiles are pushed",
                step,
            )
            own = source if kind is ReplicaAdd else into
            require(
                source.matrix == into.matrix == "C" and own.owner == rank,
                "a rank writes, or pushes, its own tile",
                step,
            )
            require(source.key[2:] == into.key[2:], "replicas are moved element by element", step)
            check_block(at, source)
            check_block(at, into)
            origin, other = (source, into) if kind is Copy else (into, source)
            term = at.term[other.replica]
            require(
                origin.replica == at.term.index(term),
                "the first copy, of a term if a sum is pending, is the origin",
                step,
            )
            count[other.replica, into.row0 : into.row1, into.col0 : into.col1] += 1
    return count


# -- values of C
# --------------------------------------------------------------------------------------------------


def operands(problem, seed=0):
    """Random integers for A and B, as float64, in which every GEMM and sum here is exact."""
    rng = np.random.default_rng(seed)
    shapes = problem.a.partition.shape, problem.b.partition.shape
    return [rng.integers(-99, 100, shape).astype(float) for shape in shapes]


class Memory:
    """The storage of all ranks: A and B dealt out to every replica, C full of NaN, or with values
    where they count: in the first replica (if a sum is pending, as its first term)."""

    def __init__(self, problem, a, b, c=None):
        self.at = {op.name: home_of(op) for op in problem.operands}
        self.flat, self.base = {}, {}
        held = np.full((len(self.at["C"].term), *problem.c.partition.shape), np.nan)
        if c is not None:
            for term in {*self.at["C"].term}:
                held[self.at["C"].term.index(term)] = 0 if term else c
        for name, values in {"A": a, "B": b, "C": held}.items():
            at = self.at[name]
            self.base[name] = np.concatenate([[0], np.cumsum(at.size)]).tolist()
            self.flat[name] = np.full(self.base[name][-1], np.nan)
            self.flat[name][self._places(name)] = values

    def _places(self, name):
        """Place in the flat memory of all ranks of each element of each replica."""
        at = self.at[name]
        return np.array(self.base[name])[at.owner] + at.address

    def view(self, block):
        """The block in its owner's storage; ndarray itself refuses to leave the memory."""
        at, flat = self.at[block.matrix], self.flat[block.matrix]
        if not block.size:
            return np.empty(block.shape)
        first = self.base[block.matrix][block.owner] + at.address[block.row0, block.col0]
        apart, item = at.width[block.row0, block.col0] * flat.itemsize, flat.itemsize
        strides = (item, apart) if block.transposed else (apart, item)
        return np.ndarray(block.shape, flat.dtype, flat, first * item, strides)

    def places_of(self, fragment, rank):
        """Place in the flat memory of each element of a fragment, which must be that rank's own."""
        at, ranges = self.at[fragment.block.matrix], (fragment.rows, fragment.cols)
        cells = np.ix_(
            *([x for start, stop in each for x in range(start, stop)] for each in ranges)
        )
        owners = at.owner[fragment.block.replica][cells]
        require((owners == rank).all(), "a rank takes part with its own tile", rank, fragment)
        return self.base[fragment.block.matrix][rank] + at.address[cells]

    def c(self):
        """C of every replica, shape (replicas, m, n)."""
        return self.flat["C"][self._places("C")]


def assign(target, value, beta):
    """target = beta·target + value, where beta 0 does not read target."""
    target[...] = value if beta == 0 else beta * target + value


def results(problem, c, everywhere=False):
    """Sums of the first copy of each term of C, or of every copy: one result a copy."""
    terms = home_of(problem.c).term
    copies = [[q for q, term in enumerate(terms) if term == each] for each in sorted({*terms})]
    return [c[[*each]].sum(axis=0) for each in zip(*copies)][: None if everywhere else 1]


@st.composite
def layouts(draw, shape, nprocs, most_tiles):
    """Any tile shape with at most so many tiles along an axis, on any grid, with any
    replication."""
    replicas = draw(st.sampled_from(divisors(nprocs)))
    rows = draw(st.sampled_from(divisors(nprocs // replicas)))
    order = draw(st.sampled_from(["row", "col"]))
    tile = [draw(st.integers(-(-extent // most_tiles), extent + 2)) for extent in shape]
    grid = ProcessGrid(rows, nprocs // replicas // rows, order)
    return cyclic(shape, tuple(tile), grid, replicas)


def cyclic(shape, tile, grid, replicas=1):
    """Tiles of one shape, dealt cyclically to a grid of ranks, and to each of its replicas."""
    axes = map(CyclicAxis, shape, tile, (grid.rows, grid.cols))
    return Partition.of(*axes, grid_places(grid, replicas), grid=grid)


def exhaustive(p, kinds=KINDS, factors=None):
    """Texts of A, B and C for every partitioning and replication."""
    factors = factors or list(itertools.product(divisors(p), repeat=3))
    for three, copies in itertools.product(itertools.product(kinds, repeat=3), factors):
        yield tuple(f"{text}/c{c}" if c > 1 else text for text, c in zip(three, copies))
