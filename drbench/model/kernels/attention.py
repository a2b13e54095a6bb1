"""Seconds of fused attention kernels on GPUs: causal prefill, and one new token over a cache of
keys and values.

Latent attention (DeepSeek-V2, 2024) is the same with other sizes: heads of 192 columns of queries
and keys, 64 of them with positions, and 128 of values; its cache has 576 columns a token for all
heads, of which a new token multiplies 576 + 512.
"""

from dataclasses import dataclass
from math import ceil

from . import DataSheet, Fitted, norm

#: Columns of latent attention: queries and keys, values, those with positions, the cache, and the
#: products of a cached token.
_KEYS, _VALUES, _ROTARY, _CACHE, _LATENT, _PRODUCTS = 192, 128, 64, 576, 512, 1088
#: Rows of queries in a block and of keys in a tile; tokens of a range, and of a step of it.
_ROWS, _LEAST_ROWS, _RANGE, _STEP = 128, 16, 256, 32
#: Heads that a block of the grouped kernel serves: with a head size, and latent ones.
_GROUP, _LATENT_GROUP = 32, 64


@dataclass(frozen=True)
class PrefillAttention(Fitted):
    """Causal attention of whole sequences: RoPE with the write of the cache, then blocks of 128
    rows of queries, which the multiprocessors share; the longest block counts, too.

    Attributes
    ----------
    rope_s : float
        RoPE and all launches, without traffic.
    memory_share : float
        Share of the memory bandwidth.
    tensor_flops : float
        Rate of the products in bfloat16.
    block_s : float
        A block of rows without its tiles.
    balance : float
        Norm of shared work and longest block.
    fp8_flops : float
        Rate of the products if the cache has one byte an element; 0: always bfloat16.
    score_s : float
        Softmax of one score on one multiprocessor, beside the products.
    window_tiles : float
        Tiles of a block that a window does not need and that are computed.
        So a window that is little shorter than the sequence costs more than none.
    fp8_window_tiles : float
        The same with one byte an element.
    cast_s : float
        Conversion of latent queries, keys and values to one byte, without traffic.
    """

    rope_s: float
    memory_share: float
    tensor_flops: float
    block_s: float
    balance: float
    fp8_flops: float = 0.0
    score_s: float = 0.0
    window_tiles: float = 0.0
    fp8_window_tiles: float = 0.0
    cast_s: float = 0.0

    def prepare_s(
        self,
        sheet: DataSheet,
        batch: int,
        length: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        item: int = 2,
    ) -> float:
        """Seconds of RoPE and of writing the cache. A head size of 0 is latent attention."""
        used = item if self.fp8_flops else 2
        rewritten, cached = head_dim * (2 + used), 2 * kv_heads * head_dim
        seconds = self.rope_s
        if not head_dim:
            rewritten, cached = _ROTARY * (2 + 2), _CACHE
            if used == 1:
                rewritten, seconds = _LATENT * (2 + 1), seconds + self.cast_s
        moved = batch * length * (heads * rewritten + cached * (2 + item))
        return seconds + moved / (sheet.memory_bytes_per_s * self.memory_share)

    def attend_s(
        self,
        sheet: DataSheet,
        batch: int,
        length: int,
        heads: int,
        head_dim: int,
        window: int = 0,
        item: int = 2,
    ) -> float:
        """Seconds of softmax attention alone, without a launch; ``item`` bytes an element of the
        cache, and ``window`` tokens that a token sees, 0 for all before it."""
        used = item if self.fp8_flops else 2
        columns = 2 * head_dim or _KEYS + _VALUES
        rows = min(_ROWS, max(_LEAST_ROWS, length))
        blocks = longest = ceil(length / rows)
        extra = 0.0
        if 0 < window < length:
            longest = min(blocks, ceil(window / rows) + 1)
            extra = self.fp8_window_tiles if used == 1 else self.window_tiles
        tiles = longest * (blocks - (longest - 1) / 2) + extra * blocks
        flops_per_s = self.fp8_flops if used == 1 else self.tensor_flops
        tile_s = rows * rows * norm(2 * columns * sheet.units / flops_per_s, self.score_s, 2)
        shared_s = batch * heads * (tiles * tile_s + blocks * self.block_s) / sheet.units
        busy_s = norm(shared_s, longest * tile_s + self.block_s, self.balance)
        moved = batch * length * heads * columns * 2
        seconds = busy_s + moved / (sheet.memory_bytes_per_s * self.memory_share)
        return self.at_end(seconds, str(head_dim or "latent"), length)


@dataclass(frozen=True)
class DecodeAttention(Fitted):
    """Attention of one new token of each sequence to its cache, whose tokens are split over idle
    multiprocessors in ranges of 256 or more.

    A block of the grouped kernel serves up to 32 heads that share keys and values (64 latent ones);
    in other groups each head is a block of a simpler kernel. A windowed cache is split by its whole
    length.

    Attributes
    ----------
    launch_s : float
        Start, with RoPE and the write of the new token.
    split_s : float
        A second kernel that joins the ranges.
    range_s : float
        Added for each range.
    split_blocks : int
        Blocks of a multiprocessor that splitting aims at; 0: the cache is not split.
    memory_share : float
        Share of the memory bandwidth; above 1 the cache was in L2.
    block_s : float
        A block of the grouped kernel.
    fp8_block_s : float
        The same with one byte an element; 0: no such rows, the same.
    head_s : float
        Added for each head of a block.
    head_token_s : float
        Added for each head and token of a block, 128 columns of keys and values.
    grouped_from : int
        Fewest heads of a group in the grouped kernel.
    single_block_s : float
        A block of the simpler kernel.
    single_token_s : float
        Added for each of its tokens, 128 columns of keys and values.
    """

    launch_s: float
    split_s: float
    range_s: float
    split_blocks: int
    memory_share: float
    block_s: float
    fp8_block_s: float
    head_s: float
    head_token_s: float
    grouped_from: int = 1
    single_block_s: float = 0.0
    single_token_s: float = 0.0

    def seconds(
        self,
        sheet: DataSheet,
        batch: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        tokens: int,
        window: int = 0,
        item: int = 2,
    ) -> float:
        """Seconds for caches of ``tokens`` tokens each, ``item`` bytes an element. A head size of 0
        is latent attention."""
        columns, products = 2 * head_dim * kv_heads, 2 * head_dim
        group, blocks = heads // kv_heads, batch * kv_heads
        if not batch * heads:
            return 0.0
        block_s = self.fp8_block_s or self.block_s if item == 1 else self.block_s
        if not head_dim:
            columns, products = _CACHE, _PRODUCTS
            block_s += self.head_s * min(heads, _LATENT_GROUP)
            token_s = _LATENT_GROUP * self.head_token_s
            blocks = batch * ceil(heads / _LATENT_GROUP)
        elif self.grouped_from <= group <= _GROUP:
            block_s = (block_s + self.head_s * group) * (256 + head_dim) / 384
            token_s = self.head_token_s * group
        else:
            block_s, token_s, blocks = self.single_block_s, self.single_token_s, batch * heads
        read = min(tokens, window or tokens)
        ranges = max(1, min(ceil(tokens / _RANGE), self.split_blocks * sheet.units // blocks))
        block_s += _STEP * ceil(read / _STEP) / ranges * token_s * products / 256
        moved = batch * (read * columns * item + heads * products * 2)
        moved_s = moved / (sheet.memory_bytes_per_s * self.memory_share)
        join_s = 0.0
        if ranges > 1:
            join_s = self.split_s + self.range_s * min(ranges, ceil(read / _RANGE))
        busy_s = ceil(blocks * ranges / sheet.units) * block_s
        seconds = self.launch_s + join_s + norm(busy_s, moved_s, 1.5)
        return self.at_end(seconds, str(head_dim or "latent"), tokens)
