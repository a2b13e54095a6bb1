"""Reduction and broadcast between the replicas of one matrix, as steps any program can yield from.

Both pull: the rank that ends up with the data reads it from the other replicas and adds or copies
it into its own tile. Nobody else writes that tile, so no lock is needed, and the transfers are
prefetched like any others.
"""

from collections.abc import Generator, Iterator

from .problem import Operand
from .steps import Add, Block, Copy, Fence, ReplicaGet, Step

#: Elements moved by one step: large enough for full bandwidth, small enough to stay in cache and to
#: overlap ...
_PANEL = 1 << 18
#: ... but a tile is moved in about this many steps at most: beyond, starting them costs more than
#: overlap brings.
_MOST_PANELS = 64


def reduce_replicas(operand: Operand, rank: int, origin: int = 0) -> Generator[Step, Step, None]:
    """The origin replica's tiles += the same tiles of every other replica (paper, Table 1 and
    §4.2).

    Expects a Fence before, ends with a Fence. Yields nothing for a matrix without replicas.
    """
    partition = operand.partition
    if partition.replicas == 1:
        return
    if partition.replica_of(rank) == origin:
        for panel in _panels(operand, rank):
            for replica in range(partition.replicas):
                if replica != origin:
                    pulled = yield ReplicaGet(_counterpart(operand, panel, replica))
                    yield Add(pulled, into=panel)
    yield Fence()


def broadcast_replica(operand: Operand, rank: int, origin: int = 0) -> Generator[Step, Step, None]:
    """Every other replica's tiles = the origin replica's (paper, Table 1). Fences as
    :func:`reduce_replicas`."""
    partition = operand.partition
    if partition.replicas == 1:
        return
    if partition.replica_of(rank) != origin:
        for panel in _panels(operand, rank):
            pulled = yield ReplicaGet(_counterpart(operand, panel, origin))
            yield Copy(pulled, into=panel)
    yield Fence()


def _panels(operand: Operand, rank: int) -> Iterator[Block]:
    """The own tiles of a rank in row panels of about ``_PANEL`` elements, or of larger ones if
    there would be too many."""
    for tile in operand.own_tiles(rank):
        height = max(
            1, _PANEL // (tile.col1 - tile.col0), -(-(tile.row1 - tile.row0) // _MOST_PANELS)
        )
        for row in range(tile.row0, tile.row1, height):
            yield operand.block(
                (row, min(tile.row1, row + height)), (tile.col0, tile.col1), tile.replica
            )


def _counterpart(operand: Operand, block: Block, replica: int) -> Block:
    return operand.block((block.row0, block.row1), (block.col0, block.col1), replica)
