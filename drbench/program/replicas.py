"""Reduction and broadcast between the replicas of one matrix, as steps any program can yield from.

If a reduction is pending (DTensor's Partial), each term is reduced and broadcast among its own
copies: the sum over the terms stays pending.

Both pull: the rank that needs the data reads it from the other replicas and adds or copies it into
its own tile. No other rank writes that tile, so no lock is needed, and the transfers are prefetched
like any others. A reduction may also be pushed, as in the repository of the paper's authors: the
other replicas add their tiles to the origin's, atomically.
"""

from collections.abc import Generator, Iterator

from .problem import Operand
from .steps import Add, Block, Copy, Fence, Get, ReplicaAdd, ReplicaGet, Step

#: Elements moved by one step: large enough for full bandwidth, small enough to stay in cache and to
#: overlap ...
_CHUNK = 1 << 18
#: ... but a tile is moved in about this many steps at most: with more, starting them costs more
#: than overlap gains.
_MOST_CHUNKS = 64


#: How replicas are reduced: the origin reads and adds, or the others add to it.
REDUCTIONS = ("pull", "push")


def reduce_replicas(
    operand: Operand, rank: int, origin: int = 0, how: str = "pull"
) -> Generator[Step, Step, None]:
    """Add the tiles of every other copy to those of the origin copy (paper, Table 1 and §4.2).

    Expects a Fence before, ends with a Fence. Yields nothing for a matrix without copies.

    Parameters
    ----------
    operand : Operand
    rank : int
    origin : int
        Number of the copy: the replica, or for a pending reduction the copy of each term.
    how : str
        One of :data:`REDUCTIONS`. Pushed tiles are sent in as many parts as there are copies that
        push, each of which begins with another part, so that they do not wait for each other.

    Examples
    --------
    >>> from drbench.program.problem import Problem
    >>> c = Problem(8, 8, 8, 2, c="row/c2").c
    >>> for rank in range(2):
    ...     print(*(type(step).__name__ for step in reduce_replicas(c, rank, how="push")))
    Fence
    Get ReplicaAdd Fence
    """
    own = operand.partition.replica_of(rank)
    copies = operand.partition.copies(own)
    if len(copies) == 1:
        return
    if how == "push":
        if own != copies[origin]:
            yield from _push(operand, rank, copies[origin], copies.index(own), len(copies) - 1)
    elif own == copies[origin]:
        for chunk in _chunks(operand, rank):
            for replica in copies:
                if replica != own:
                    pulled = yield ReplicaGet(_counterpart(operand, chunk, replica))
                    yield Add(pulled, into=chunk)
    yield Fence()


def broadcast_replica(operand: Operand, rank: int, origin: int = 0) -> Generator[Step, Step, None]:
    """Copy the tiles of the origin copy to every other copy (paper, Table 1). Fences and parameters
    as of :func:`reduce_replicas`."""
    own = operand.partition.replica_of(rank)
    copies = operand.partition.copies(own)
    if len(copies) == 1:
        return
    if own != copies[origin]:
        for chunk in _chunks(operand, rank):
            pulled = yield ReplicaGet(_counterpart(operand, chunk, copies[origin]))
            yield Copy(pulled, into=chunk)
    yield Fence()


def _push(
    operand: Operand, rank: int, origin: int, rotation: int, pushing: int
) -> Generator[Step, Step, None]:
    """Add the own tiles of a rank to the origin's, each in one part for each copy that pushes."""
    for tile in operand.own_tiles(rank):
        height = tile.row1 - tile.row0
        cuts = [tile.row0 + height * x // pushing for x in range(pushing + 1)]
        parts = [ends for ends in zip(cuts, cuts[1:]) if ends[0] < ends[1]]
        for x in range(len(parts)):
            rows = parts[(x + rotation) % len(parts)]
            part = operand.block(rows, tile.cols, tile.replica)
            token = yield Get(part)
            yield ReplicaAdd(token, _counterpart(operand, part, origin))


def _chunks(operand: Operand, rank: int) -> Iterator[Block]:
    """The own tiles of a rank in row panels of about ``_CHUNK`` elements, or of larger ones if
    there would be too many."""
    for tile in operand.own_tiles(rank):
        height = max(
            1, _CHUNK // (tile.col1 - tile.col0), -(-(tile.row1 - tile.row0) // _MOST_CHUNKS)
        )
        for row in range(tile.row0, tile.row1, height):
            yield operand.block((row, min(tile.row1, row + height)), tile.cols, tile.replica)


def _counterpart(operand: Operand, block: Block, replica: int) -> Block:
    return operand.block(block.rows, block.cols, replica)
