"""Packed operands: multiply few large GEMMs whose blocks are copied together first.

The program is Algorithm 1 with other GEMMs: :mod:`~drbench.algorithms.universal.packing` cuts a
rank's ranges of m, n and k into groups, and a group of each makes one GEMM. Its operands are packed
blocks; its result, of several tiles of C, is one partial sum in scratch memory, which is copied or
accumulated block by block.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from drbench.partitions.intervals import Range, between, length
from drbench.program.problem import Operand
from drbench.program.steps import (
    Accumulate,
    Block,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Pack,
    Scratch,
    Step,
    Steps,
)

from .algorithm1 import Share
from .fetch import Operands, cut_out
from .order import rotated, spread
from .packing import Group, Packing


@dataclass(eq=False, slots=True)
class Packed:
    """Blocks of one matrix that form one operand of a GEMM, or its result.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    parts : list of (int, int, Block)
        The row and column at which each block begins, and the block.
    """

    shape: tuple[int, int]
    parts: list[tuple[int, int, Block]]


class PackedGemm(NamedTuple):
    """One GEMM c += a·b of packed blocks; ``last`` as of a local GEMM of Algorithm 1."""

    a: Block | Packed
    b: Block | Packed
    c: Block | Packed
    last: bool
    #: After it the rank passes a Fence: from here on others may accumulate into its tiles of C.
    fence: bool = False


class PackedOperands(Operands):
    """Blocks that a rank has fetched, and operands that it has packed, while GEMMs need them."""

    def _fetch(self, operand: Block | Packed) -> Steps:
        if isinstance(operand, Block):
            return (yield from super()._fetch(operand))
        first = operand.parts[0][2]
        into = yield Scratch(operand.shape, first.matrix, first.transposed)
        blocks = []
        for row, col, block in operand.parts:
            blocks.append((yield Pack(block, into, row, col)))
        return (yield FilledScratch(into, blocks))


def multiply_packed(
    share: Share, packing: Packing, own_first: bool, result_is_local: bool
) -> Steps:
    """Yield the steps of one rank with packed operands.

    Parameters
    ----------
    share : Share
    packing : Packing
    own_first : bool
        GEMMs that compute parts of own tiles are first, then the rank passes a Fence.
    result_is_local : bool
        No rank accumulates into another's tiles, so that there is no Fence. Without either the
        Fence is before all GEMMs.
    """
    rank, operands = share.rank, PackedOperands(share)
    exclusive = True  # no other rank accumulates into this rank's tiles yet
    if not (result_is_local or own_first):
        yield Fence()
        exclusive = False
    partial: dict[Block | Packed, Step] = {}
    late: list[tuple[Step, Block]] = []  # for other ranks' tiles, complete before the Fence
    for gemms in packed_gemms(share, packing, own_first):
        operands.next_round([])
        for gemm in gemms:
            a = yield from operands.get(gemm.a)
            b = yield from operands.get(gemm.b)
            c = gemm.c
            if exclusive and isinstance(c, Block) and c.owner == rank:
                yield Gemm(a, b, into=c)  # C[m, n] += A[m, k] · B[k, n]
            else:
                partial[c] = yield Gemm(a, b, into=partial.get(c))
                for token, block in (yield from _blocks_of(partial, c)) if gemm.last else ():
                    if not exclusive:
                        yield Accumulate(token, block)
                    elif block.owner == rank:
                        yield Copy(token, into=block)
                    else:
                        late.append((token, block))
            if gemm.fence:
                yield Fence()
                exclusive = False
                for token, block in late:
                    yield Accumulate(token, block)


def _blocks_of(partial: dict, c: Block | Packed) -> Steps:
    """The tokens of the blocks of a complete partial sum, and the blocks."""
    total = partial.pop(c)
    if isinstance(c, Block):
        return [(total, c)]
    blocks = []
    for row, col, block in c.parts:
        blocks.append(((yield from cut_out(total, row, col, block.shape)), block))
    return blocks


def packed_gemms(
    share: Share, packing: Packing, own_first: bool = False
) -> Iterator[list[PackedGemm]]:
    """The GEMMs of one rank with packed operands, in rounds in which no operand is packed twice;
    with ``own_first`` one of them has a Fence after it.

    Groups of each axis are rotated by the iteration offset of the rank's first tile, and along the
    free axis those whose blocks are all local are spread between those that need transfers.
    """
    groups, outer, rank = packing.groups, packing.outer, share.rank
    a, b, c = share.problem.operands

    @cache
    def operand(matrix: Operand, *at: int) -> Block | Packed:
        return _packed(matrix, [groups[axis][x] for axis, x in zip(matrix.axes, at)], share)

    def moves(at: int) -> bool:
        """Whether a group of the free axis needs blocks of other ranks."""
        for matrix in (a, b):
            if share.free in matrix.axes:
                (other,) = {*matrix.axes} - {share.free}
                for x in order[other]:
                    pair = (at, x) if matrix.axes[0] == share.free else (x, at)
                    if owners(operand(matrix, *pair)) != {rank}:
                        return True
        return False

    by = share.rotations(share.tiles[0])
    order = {axis: rotated([*range(len(groups[axis]))], by[axis]) for axis in "mnk"}
    if len(order[share.free]) > 1:
        order[share.free] = spread(order[share.free], [moves(at) for at in order[share.free]])
    if outer == "n":
        pairs = [(i, j) for j in order["n"] for i in order["m"]]
    else:
        pairs = [(i, j) for i in order["m"] for j in order["n"]]
    if own_first:
        pairs.sort(key=lambda pair: rank not in owners(operand(c, *pair)))
    if outer == "k":
        sequence = [(i, j, x) for x in order["k"] for i, j in pairs]
    else:
        sequence = [(i, j, x) for i, j in pairs for x in order["k"]]
    fence = -1  # the last GEMM that computes a part of an own tile
    for at, (i, j, _) in enumerate(sequence if own_first else ()):
        if rank in owners(operand(c, i, j)):
            fence = at
    m, n, k = (len(groups[axis]) for axis in "mnk")
    alone = {"m": k * n, "n": k * m}.get(outer) == 1  # the inner axis uses one operand

    def round_of(numbered: tuple) -> object:
        at, (i, j, x) = numbered
        return x if outer == "k" else 0 if alone else {"m": i, "n": j}[outer] if k == 1 else at

    for _, numbered in itertools.groupby(enumerate(sequence), round_of):
        yield [
            PackedGemm(
                operand(a, i, x),
                operand(b, x, j),
                operand(c, i, j),
                x == order["k"][-1],
                at == fence,
            )
            for at, (i, j, x) in numbered
        ]


def owners(operand: Block | Packed) -> set[int]:
    """The ranks that own the blocks of an operand."""
    if isinstance(operand, Block):
        return {operand.owner}
    return {block.owner for _, _, block in operand.parts}


def _packed(matrix: Operand, groups: list[Group], share: Share) -> Block | Packed:
    """The blocks of a group of rows times one of columns, in the order in which they are copied.

    Operands are rotated by the offset of the rank's first tile, as in Algorithm 1. Sums of C begin
    at another block on each rank instead, so that ranks with the same sums do not add to one owner
    at the same time.
    """
    by = share.rotations(share.tiles[0]) if matrix.name != "C" else dict.fromkeys("mn", 0)
    rows, cols = (
        rotated(_starts(matrix, axis, group), by[axis]) for axis, group in zip(matrix.axes, groups)
    )
    replica = matrix.partition.replica_of(share.rank)
    parts = [
        (row, col, matrix.block(of_rows, of_cols, replica))
        for (row, of_rows), (col, of_cols) in itertools.product(rows, cols)
    ]
    if len(parts) == 1:
        return parts[0][2]
    shape = length(groups[0]), length(groups[1])
    return Packed(shape, parts if matrix.name != "C" else rotated(parts, share.rank))


def _starts(matrix: Operand, axis: str, group: Group) -> list[tuple[int, Range]]:
    """The ranges of a group between the tile boundaries of a matrix, and where they begin in the
    group."""
    starts, at = [], 0
    for start, stop in group:
        for fragment in between(matrix.cuts(axis, start, stop)):
            starts.append((at + fragment[0] - start, fragment))
        at += stop - start
    return starts
