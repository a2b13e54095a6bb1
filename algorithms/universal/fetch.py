"""What a rank fetches for a block of A or B, and how long it keeps it (``-o fetch``)."""

from drbench.program.problem import Operand
from drbench.program.steps import Block, Get, Part, Step, Steps

from .algorithm1 import LocalGemm, Share

#: The parts of another rank's tile to fetch.
FETCH = ("slice", "tile", "rows")


class Operands:
    """The blocks of A and B that a rank has, while its GEMMs need them.

    Parameters
    ----------
    share : Share
    fetch : str
        ``"slice"``: the block of each GEMM, kept for a round; of the stationary matrix, where its
        owner does not multiply it, for all. ``"rows"``: whole rows of the tile, as it is stored,
        kept for the GEMMs of one stationary tile. ``"tile"``: the whole tile, kept for all.
    """

    def __init__(self, share: Share, fetch: str = "slice"):
        self.share, self.fetch = share, fetch
        self._reused = share.stationary if share.work else ""
        self._tokens: dict[object, Step] = {}
        self._wider: dict[tuple, Step] = {}
        self._tile: object = None

    def next_round(self, gemms: list[LocalGemm]) -> None:
        """Release the blocks of the last round, and rows of the last stationary tile."""
        self._tokens = {
            block: token
            for block, token in (self._tokens.items() if self._reused else ())
            if isinstance(block, Block) and block.matrix == self._reused
        }
        if self.fetch == "rows" and gemms:
            tile = gemms[0]["ABC".index(self.share.stationary)].tile
            if tile != self._tile:
                self._tile, self._wider = tile, {}

    def get(self, block: Block) -> Steps:
        """The token of a block: that of the rank's own tile costs nothing."""
        if (token := self._tokens.get(block)) is None:
            token = self._tokens[block] = yield from self._fetch(block)
        return token

    def _fetch(self, block: Block) -> Steps:
        region = self._region(block)
        if region is block:
            return (yield Get(block))
        if (token := self._wider.get(region.key)) is None:
            token = self._wider[region.key] = yield Get(region)
        at = block.row0 - region.row0, block.col0 - region.col0
        return (yield from cut_out(token, *at, block.shape))

    def _region(self, block: Block) -> Block:
        """The region to fetch for a block: whole rows only if this rank needs all of them."""
        if self.fetch == "slice" or block.owner == self.share.rank:
            return block
        operand = self.share.problem.operand(block.matrix)
        tile = operand.tile_block(block.tile, block.replica)
        if self.fetch == "tile":
            return tile
        low, high = tile.rows if block.transposed else tile.cols
        along, share = operand.axes[not block.transposed], self.share
        needed = share.interval if along == share.free else ()
        if not any(start <= low and high <= stop for start, stop in needed):
            return block
        return rows_of(operand, block, tile)


def rows_of(operand: Operand, block: Block, tile: Block) -> Block:
    """The whole rows of a tile, as it is stored, that contain a block."""
    rows, cols = (tile.rows, block.cols) if block.transposed else (block.rows, tile.cols)
    return operand.block(rows, cols, block.replica)


def cut_out(token: Step, row: int, col: int, shape: tuple[int, int]) -> Steps:
    """The token of the part of a value that begins at a row and a column."""
    for axis, start in enumerate((row, col)):
        if shape[axis] < token.shape[axis]:
            token = yield Part(token, axis, start, start + shape[axis])
    return token
