"""Algorithms 1 and 2 of *Slicing Is All You Need*: multiply for any partitioning and replication.

Every rank multiplies its tiles of one matrix, the *stationary* one, which do not move. For each of
them it finds the tiles of the other two matrices that overlap with it, cuts all three to what they
have in common, gets what other ranks own, multiplies, and accumulates into the owner of C.

One text serves Algorithm 1 (Stationary C), Algorithm 2 (Stationary B) and Stationary A. Call the
axes of the stationary matrix p and q, and the third one the *free* axis. The matrix X has the axes
p and free, the matrix Y has q and free:

==========  ==  ==  ====  ==========  ==========
stationary  p   q   free  X           Y
==========  ==  ==  ====  ==========  ==========
C           m   n   k     A (m×k)     B (k×n)
B           k   n   m     A (m×k)     C (m×n)
A           m   k   n     C (m×n)     B (k×n)
==========  ==  ==  ====  ==========  ==========
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from drbench.partitions import part
from drbench.partitions.intervals import Pair, Range, between
from drbench.program.problem import AXES, Operand, Problem
from drbench.program.steps import Accumulate, Block, Fence, Gemm, Step, Steps

from .order import cut_evenly, hide_transfers, on_ring, rotated

FREE_AXIS = {"C": "k", "B": "m", "A": "n"}
_X_AND_Y = {"C": "AB", "B": "AC", "A": "CB"}


class LocalGemm(NamedTuple):
    """One local GEMM c += a·b: blocks of A, B and C, each inside one tile."""

    a: Block
    b: Block
    c: Block
    #: The last GEMM of a stationary tile that adds to this block: its partial sum is complete.
    last: bool = True


class Round(NamedTuple):
    """Local GEMMs that follow each other; no block is fetched twice in a round."""

    gemms: list[LocalGemm]
    #: A Fence comes before them (program.py says which): then ranks accumulate into tiles of C.
    fence: bool = False


def iteration_offset(tile: Pair) -> int:
    """By how many ranges the GEMMs of a stationary tile (i, j) are rotated (§4.2), and a replica's
    interval: i + j, so that ranks of a row or column of tiles begin with different owners.

    Examples
    --------
    >>> [iteration_offset((i, j)) for i in range(2) for j in range(3)]
    [0, 1, 2, 1, 2, 3]
    """
    i, j = tile
    return i + j


class Share:
    """One rank's share of the multiplication: tiles of the stationary matrix × an interval of the
    free axis.

    Parameters
    ----------
    problem, rank, stationary
        The multiplication; whose share; ``"A"``, ``"B"`` or ``"C"``.
    work : Operand, optional
        Another layout of the stationary matrix whose tiles the rank multiplies instead of those
        that it stores; they then move too.
    offset : str
        What the offset rotates: ``"axis"`` the whole free axis, and with it the interval of a
        replica; ``"interval"`` the order within that interval; ``"off"`` nothing.

    Examples
    --------
    The tiles of C in a row need A from four owners. The first replica has half of k:

    >>> problem = Problem(8, 8, 8, 8, "block:1x4/c2", "block:1x4/c2", "block:1x4/c2")
    >>> for offset in ("axis", "interval"):
    ...     print([Share(problem, rank, "C", offset=offset).interval for rank in (0, 1, 3)])
    [[(0, 4)], [(2, 6)], [(6, 8), (0, 2)]]
    [[(0, 4)], [(0, 4)], [(0, 4)]]
    """

    def __init__(
        self,
        problem: Problem,
        rank: int,
        stationary: str,
        work: Operand | None = None,
        offset: str = "axis",
    ):
        self.problem, self.rank, self.stationary, self.work = problem, rank, stationary, work
        self.stored = problem.operand(stationary)
        self.x, self.y = map(problem.operand, _X_AND_Y[stationary])
        (self.p, self.q), self.free = AXES[stationary], FREE_AXIS[stationary]
        self.layout = (work or self.stored).partition
        self.tiles = self.layout.tiles_of(rank)
        extent, replicas = problem.extent(self.free), self.layout.replicas
        # §4.1: each of c replicas multiplies 1/c of the free axis, here an interval that begins
        # i + j ranges later for tile (i, j), the rank's first, so that replicas differ in owners
        start, stop = part(extent, self.layout.replica_of(rank), replicas)
        self._rotates, self._interval_turns = offset, 0
        if offset == "axis" and replicas > 1 and self.tiles and extent:
            self._interval_turns = iteration_offset(self.tiles[0])
            ranges = common_ranges(self.free, (0, extent), self.x, self.y)
            shift, _ = ranges[self._interval_turns % len(ranges)]
            start, stop = start + shift, stop + shift
        self.interval: list[Range] = on_ring(start, stop, extent)

    def rotations(self, tile: Pair) -> dict[str, int]:
        """By how many ranges the GEMMs of a stationary tile are rotated along each axis."""
        turns = 0 if self._rotates == "off" else iteration_offset(tile)
        in_interval = turns - self._interval_turns  # which begins so many ranges later already
        return {self.p: turns, self.q: turns, self.free: in_interval}


def common_ranges(axis: str, bounds: Range, *matrices: Operand) -> list[Range]:
    """The ranges of an axis, within bounds, that are inside one tile of each of these matrices."""
    return between(sorted({cut for matrix in matrices for cut in matrix.cuts(axis, *bounds)}))


def local_gemms(share: Share, chunk: int | None = None) -> Iterator[Round]:
    """Yield the local GEMMs of one rank (Algorithms 1 and 2), a round for each range of the free
    axis; where blocks of X or Y move, a range is at most ``chunk`` elements long.

    Each tile's ranges are rotated by the iteration offset; then those whose blocks of X and Y are
    local are spread evenly between those that need transfers, to hide these.
    """
    rank, stationary, stored = share.rank, share.stationary, share.stored
    free_ranges = [  # within one tile of X and of Y (lines 29 to 31), each with its chunks
        (whole, cut_evenly(whole, chunk))
        for interval in share.interval
        for whole in common_ranges(share.free, interval, share.x, share.y)
    ]

    @cache  # the tiles of a row share those of X, the tiles of a column those of Y
    def overlapping_blocks(matrix: Operand, axis: str, bounds: Range) -> tuple[list, dict]:
        """Ranges of an axis of the tile (lines 29 to 31); for each free range the blocks there."""
        ranges = common_ranges(axis, bounds, matrix, *([stored] if share.work else []))
        replica, blocks = matrix.partition.replica_of(rank), {}
        for f in (f for whole, chunks in free_ranges for f in (whole, *chunks)):
            sides = ((s, f) if matrix.axes[0] == axis else (f, s) for s in ranges)
            blocks[f] = [matrix.block(*rows_and_cols, replica) for rows_and_cols in sides]
        return ranges, blocks

    for tile in share.tiles:  # lines 5 to 8
        p_bounds, q_bounds = share.layout.tile_bounds(tile)  # line 9
        p_ranges, x_blocks = overlapping_blocks(share.x, share.p, p_bounds)  # line 13
        q_ranges, y_blocks = overlapping_blocks(share.y, share.q, q_bounds)  # line 20
        turns, replica = share.rotations(tile), stored.partition.replica_of(rank)
        ps, qs = rotated(p_ranges, turns[share.p]), rotated(q_ranges, turns[share.q])
        # with Stationary B k is innermost: GEMMs that add to one block of C follow each other
        pairs = [(s, t) for t in qs for s in ps] if stationary == "B" else product(ps, qs)
        tile_blocks = [stored.block(s, t, replica) for s, t in pairs]
        moves = {f: any(b.owner != rank for b in (*x_blocks[f], *y_blocks[f])) for f in x_blocks}
        order = hide_transfers(rotated(free_ranges, turns[share.free]), moves, stationary == "C")
        for f in order:
            x, y = rotated(x_blocks[f], turns[share.p]), rotated(y_blocks[f], turns[share.q])
            if stationary == "C":  # C[m, n] += A[m, k]·B[k, n], complete after the last k
                complete, pairs = f == order[-1], zip(product(x, y), tile_blocks)
                yield Round([LocalGemm(a, b, c, complete) for (a, b), c in pairs])
            elif stationary == "B":  # C[m, n] = Σ A[m, k]·B[k, n] over the k of the tile
                pairs = zip(product(y, x), tile_blocks)
                yield Round([LocalGemm(a, b, c, a is x[-1]) for (c, a), b in pairs])
            else:  # Stationary A, the same with n free
                pairs = zip(product(x, y), tile_blocks)
                yield Round([LocalGemm(a, b, c, b is y[-1]) for (c, b), a in pairs])


def multiply(share: Share, rounds: Iterable[Round], operands) -> Steps:
    """Yield the steps of one rank (§4.2): get, get, multiply, accumulate.

    ``operands`` (fetch.py) gets each block once. ``yield`` returns the token of a step's value. The
    executor prefetches: it starts gets early.
    """
    partial: dict[Block, Step] = {}
    exclusive = True  # no other rank accumulates into this rank's tiles yet
    for gemms, fence in rounds:
        operands.next_round(gemms)
        if fence:
            yield Fence()
            exclusive = False
        for block_a, block_b, c, last in gemms:
            a = yield from operands.get(block_a)
            b = yield from operands.get(block_b)
            if c.owner == share.rank and exclusive:
                yield Gemm(a, b, into=c)  # C[m, n] += A[m, k]·B[k, n]
            else:
                partial[c] = yield Gemm(a, b, into=partial.get(c))  # None: a new local matrix
                if last:
                    yield Accumulate(partial.pop(c), c)
