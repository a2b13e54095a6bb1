"""Pushed partial sums: what FLUX does for a row of ranks (*FLUX*, §3 and §4), for any partitioning
and replication.

The program is Algorithm 1 with other blocks in another order. Blocks are divided into communication
tiles, GEMMs begin as their operands arrive (:mod:`~drbench.algorithms.universal.arrival`), and a
partial sum for another rank's tile of C is pushed into a slot there (``Push``), tile by tile,
instead of accumulated: the owner adds it while it computes its own GEMMs. No rank waits at a Fence
before, no rank locks, and GEMMs for own tiles and for others' run in any order.

Each rank must know which rank pushes which partial sums to which owner. It does, since the slicing
of every rank follows from the problem alone.

==========  =====================================  =================================================
stationary  cut along                              partial sums that are pushed
==========  =====================================  =================================================
B           m, which A and C share                 over this rank's rows of B, by rows of C
A           n, which B and C share                 over this rank's columns of A, by columns of C
C           m or n if A or B alone moves and k is  none
            whole (AllGather + GEMM), else k
C, a grid   m, or n if more of B than of A is      over this rank's part of k, by rows or columns
            fetched
==========  =====================================  =================================================

Ranks cannot deadlock: a rank's sends depend on its own GEMMs alone, and it waits for partial sums
of others at the end of its program.
"""

from math import ceil

from drbench.program.problem import Operand, Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Add, Block, Gemm, Join, Step, Steps

from .algorithm1 import FREE_AXIS, Share, common_ranges
from .arrival import Arrivals
from .distribution import cuts_rows, result_is_local, work_of
from .fetch import Operands

#: Default number of tiles in a rank's share of the axis that is divided, and their least size.
_TILES, _LEAST = 4, 128


def tile_of(
    problem: Problem, stationary: str, tile: int | None = None, work: str = "own"
) -> int | None:
    """Elements of a communication tile. If ``tile`` is None: a quarter of the range between two
    tile boundaries of the axis that the moving matrices share, at least 128; of k a sixteenth, at
    least 256. Where partial sums of C are pushed, of m or n, the shorter. A given one is limited to
    the length of that range.

    On several nodes, where every message costs core time: twice that, at least 512; rows that other
    ranks fetch are not divided, since MPI packs what is not contiguous.

    Examples
    --------
    >>> tile_of(Problem(4096, 4096, 4096, 2, a="row", b="row", c="row"), "B")
    512
    >>> tile_of(Problem(4096, 4096, 4096, 8, *["grid:2x2x2"] * 3), "C", work="2x2x2")
    256
    >>> tile_of(Problem(4096, 4096, 4096, 2, a="row", b="row", c="row"), "B", 1 << 20)
    2048
    """
    layout, axes = work_of(problem, stationary, work), FREE_AXIS[stationary]
    if stationary == "C":
        axes = "mnk" if result_is_local(problem, stationary, layout) else "mn"
    if tile is None and problem.nodes:
        tile = max(problem.m, problem.n, problem.k)
        if not cuts_rows(problem, stationary):
            tile = max(4 * _LEAST, 2 * _default_tile(problem, axes, layout))
    if tile is None:
        return _default_tile(problem, axes, layout)
    return min(tile, max(max(_ranges(problem, axis, layout)) for axis in axes))


def _default_tile(problem: Problem, axes: str, layout: Operand | None) -> int:
    if axes == "mnk":
        share = problem.k // (layout or problem.c).partition.replicas
        return max(2 * _LEAST, ceil(share / (4 * _TILES)))
    counts = ((problem.extent(axis), len(_ranges(problem, axis, layout))) for axis in axes)
    return max(_LEAST, min(ceil(extent / count / _TILES) for extent, count in counts))


def _ranges(problem: Problem, axis: str, layout: Operand | None) -> list[int]:
    """The distances between tile boundaries of an axis."""
    operands = [x for x in (*problem.operands, layout) if x and axis in x.axes]
    ranges = common_ranges(axis, (0, problem.extent(axis)), *operands)
    return [stop - start for start, stop in ranges] or [0]


class JoinedOperands(Operands):
    """Blocks that a rank has fetched; several along k are joined to one operand."""

    def join(self, blocks: tuple[Block, ...], axis: int) -> Steps:
        """The token of blocks that follow each other along an axis."""
        tokens = []
        for block in blocks:
            tokens.append((yield from self.get(block)))
        return (yield Join(tokens, axis)) if len(tokens) > 1 else tokens[0]


def multiply_pushed(share: Share, arrivals: Arrivals, fetch: str) -> Steps:
    """Yield the steps of one rank: get, multiply, push; then add what others have pushed.

    Parameters
    ----------
    share : Share
    arrivals : Arrivals
        The GEMMs of every rank, and what they push to each other.
    fetch : str
        As of :class:`~drbench.algorithms.universal.fetch.Operands`.
    """
    rank, operands = share.rank, JoinedOperands(share, fetch)
    partial: dict[Block, Step] = {}
    for gemm in arrivals.gemms(rank):
        a = yield from operands.join(gemm.a, axis=1)
        b = yield from operands.join(gemm.b, axis=0)
        c = gemm.c
        if c.owner == rank:
            yield Gemm(a, b, into=c, kernel=gemm.kernel)  # C[m, n] += A[m, k] · B[k, n]
            continue
        partial[c] = yield Gemm(a, b, into=partial.get(c), kernel=gemm.kernel)
        if gemm.last:
            yield Push(partial.pop(c), c.owner, _key(c))
    for source, c in arrivals.arriving(rank):
        arrived = yield Await(source, _key(c), c.shape)
        yield Add(arrived, into=c, concurrent=True)  # C[m, n] += the partial sum of the source


def _key(c: Block) -> tuple[int, int, int, int]:
    """The key of a signal: the block of C, to which each rank contributes once."""
    return *c.rows, *c.cols
