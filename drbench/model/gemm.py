"""The time of one local GEMM: a roofline with tile-quantised efficiency over (m, n, k).

One model for all machines. A library has kernels for a few tile shapes and, for small m·n, divides
k over several workers; the fastest combination counts:

    blocks  = ⌈m / tile_m⌉ · ⌈n / tile_n⌉ · splits      thin matrices fill their tiles badly
    waves   = ⌈blocks / units⌉                          the last wave may be almost empty
    compute = waves · 2 · tile_m · tile_n · (⌈k / splits⌉ + k_ramp)
              / (sustained_flops / units · tile efficiency)
    memory  = bytes / (memory bandwidth · memory_share), of what is cached / cache bandwidth
    time    = launch + (compute^norm + memory^norm)^(1 / norm) + packing

With ``norm`` inf, the default, the longer one counts. GPUs need more constants: a multiprocessor
that waits for no other is faster (``burst``) than all of them together, which power limits; small
tiles do not hide the latency of each element of k (``step_s``); partial sums are added by a second
kernel (``split_s``). The efficiency of a tile falls with its edge-to-area ratio, ``1 / (1 + edge ·
(1/tile_m + 1/tile_n))``, relative to the best tile. Packing (nanoseconds for each element of A, B
and C) is the time in which CPU libraries copy operands into their own layout: cutting m repeats
the packing of B. C is read and written once for each ``k_block`` elements of k, so that cutting k
costs little. On GPUs packing is 0.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf
from typing import NamedTuple

from drbench.errors import UsageError

from .kernels import Fitted, norm
from .kernels.experts import ExpertGemms

#: Matrices B among which a repeated GEMM cycles, in measurements.
_COPIES = 5


class Tiling(NamedTuple):
    """The distribution of a GEMM over the workers of a kernel.

    Attributes
    ----------
    rows, cols : int
        Of a tile of the result.
    splits : int
        Ranges of k, each a tile of its own.
    tile_s : float
        Seconds of one tile on one worker.
    units : int
        Workers.
    """

    rows: int
    cols: int
    splits: int
    tile_s: float
    units: int

    def tiles(self, m: int, n: int) -> int:
        """Tiles of a part of the GEMM.

        Examples
        --------
        >>> Tiling(128, 256, 2, 1e-5, 132).tiles(300, 512)
        12
        """
        return -(-m // self.rows) * -(-n // self.cols) * self.splits


@dataclass(frozen=True)
class Compute(Fitted):
    """Constants of one device's local GEMMs and memory.

    Attributes
    ----------
    peak_flops : float
        Theoretical peak rate of one device, 100 % of percent_of_peak.
    peak_measured : bool
        peak_flops is a measured rate; then there is no percent of peak.
    sustained : float
        Share of the peak that large GEMMs reach within a full wave, 0 to 1.
    units : int
        Workers that tiles are assigned to: streaming multiprocessors, Xe cores.
    tiles : tuple of (int, int)
        Tile shapes of the library's kernels.
    fused_tiles : tuple of (int, int)
        Tile shapes that a kernel with parts may use; empty: all of tiles.
    splits : tuple of int
        Numbers of ranges that a kernel may split k into; must contain 1.
    edge : float
        Efficiency of a tile is 1 / (1 + edge (1 / rows + 1 / columns)), relative to the best.
    k_ramp : float
        Added to the k of every tile: cost of starting and ending it.
    memory_bytes_per_s : float
        Memory bandwidth of one device.
    launch_s : float
        Start of any kernel.
    pack_s : tuple of float
        BLAS packing for each element of A, B and C; three numbers.
    transposed_element_s : tuple of float
        Added for each element of A and of B that is stored transposed; two numbers.
    k_block : float
        C is read and written once for so many elements of k; inf: once.
    unit_bytes_per_s : float
        Memory bandwidth that one unit can use.
    burst : float
        Rate of a unit that waits for no other one, relative to that of all units together.
    step_s : float
        Added for each element of k of any tile.
    split_s : float
        Start of the sum over ranges of k.
    memory_share : float
        Reached share of the memory bandwidth.
    cache_bytes : float
        Size of the last cache, as far as operands use it; 0: none.
    cache_bytes_per_s : float
        Its bandwidth.
    result_bytes : float or None
        Moved for an element of C; without it C is read and written.
    norm : float
        Of the times of computing and of memory; inf: the longer one counts.
    quantise_s : float
        Start of the kernels that quantise A before a GEMM; not in the time of the GEMM.
    quantise_bytes : float
        Moved for an element of A by these kernels.
    experts : ExpertGemms or None
        GEMMs of experts in one launch.
    functions : dict of str to float
        Functions between GEMMs, by name (such as softmax): time of one element.
        They are those of :mod:`drbench.chains.model.functions`. For attention an element of the
        scores, without its GEMMs. A function that is not listed costs its memory traffic.

    Examples
    --------
    >>> compute = Compute(1e12, tiles=((128, 128),), units=4)
    >>> (
    ...     f"{compute.gemm_s(256, 256, 1000):.3g}",
    ...     f"{compute.gemm_s(256, 257, 1000):.3g}",
    ...     f"{compute.gemm_s(1, 256, 1000):.3g}",
    ... )
    ('0.000131', '0.000262', '0.000131')
    """

    peak_flops: float
    peak_measured: bool = False
    sustained: float = 1.0
    units: int = 1
    tiles: tuple[tuple[int, int], ...] = ((1, 1),)
    fused_tiles: tuple[tuple[int, int], ...] = ()
    splits: tuple[int, ...] = (1,)
    edge: float = 0.0
    k_ramp: float = 0.0
    memory_bytes_per_s: float = inf
    launch_s: float = 0.0
    pack_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    transposed_element_s: tuple[float, float] = (0.0, 0.0)
    k_block: float = inf
    unit_bytes_per_s: float = inf
    burst: float = 1.0
    step_s: float = 0.0
    split_s: float = 0.0
    memory_share: float = 1.0
    cache_bytes: float = 0.0
    cache_bytes_per_s: float = inf
    result_bytes: float | None = None
    norm: float = inf
    quantise_s: float = 0.0
    quantise_bytes: float = 0.0
    experts: ExpertGemms | None = None
    functions: dict[str, float] = field(default_factory=dict, hash=False)
    _known: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        super().__post_init__()
        if not self.tiles or 1 not in self.splits:
            raise UsageError(
                "compute needs at least one shape in tiles, and 1 in splits: a GEMM with k = 1 "
                f"is not split. Got tiles = {list(self.tiles)}, splits = {list(self.splits)}."
            )
        if not {*map(tuple, self.fused_tiles)} <= {*map(tuple, self.tiles)}:
            raise UsageError(
                "compute.fused_tiles must be shapes of compute.tiles, "
                f"got {list(self.fused_tiles)}. Add them to tiles, or leave them out."
            )

    @cached_property
    def _kernels(self) -> list[tuple[int, int, float]]:
        """Tile shapes with the seconds one worker spends on one element of k."""
        loss = {(tm, tn): 1 + self.edge * (1 / tm + 1 / tn) for tm, tn in map(tuple, self.tiles)}
        least = min(loss.values())
        worker = self.peak_flops * self.sustained * self.burst / self.units
        return [
            (tm, tn, 2 * tm * tn * loss[tm, tn] / least / worker + self.step_s) for tm, tn in loss
        ]

    def gemm_s(self, m: int, n: int, k: int, itemsize: int = 4, warm: bool = False) -> float:
        """Seconds of a local GEMM m×k times k×n; ``warm``: B is in the last cache, if several
        matrices as large fit there, as where one GEMM is repeated."""
        key = m, n, k, itemsize, warm
        seconds = self._known.get(key)
        if seconds is None:
            seconds = self._known[key] = self._gemm_s(*key)
        return seconds

    def _gemm_s(self, m, n, k, itemsize, warm) -> float:
        if not (m and n and k):  # nothing to multiply; an empty sum is still written
            return self.memory_s(m * n * itemsize)
        best, *_ = self._fastest({(m, n): 1}, k, itemsize, self.units)
        a, b, c = self.pack_s
        seconds = norm(best, self._traffic_s(m, n, k, itemsize, warm=warm), self.norm)
        seconds += self.launch_s + a * m * k + b * k * n
        seconds += c * m * n * max(1, ceil(k / self.k_block))
        return self.at_end(seconds, "any", m)

    def shared_s(self, m: int, n: int, k: int, itemsize: int = 4) -> float:
        """A lower bound in seconds of a GEMM next to others, whatever units it has: its operands
        pass through the memory of all, and all together are no faster than the sustained rate.

        Examples
        --------
        >>> Compute(4.0, memory_bytes_per_s=8.0).shared_s(2, 2, 4)  # 32 FLOPs, 96 bytes
        12.0
        """
        together_s = 2 * m * n * k / (self.peak_flops * self.sustained)
        return max(together_s, self._traffic_s(m, n, k, itemsize))

    def quantise_a_s(self, m: int, k: int) -> float:
        """Seconds of quantising A, m×k, before a GEMM."""
        return self.quantise_s + self.quantise_bytes * m * k / self._memory_rate

    def transposed_s(self, m: int, n: int, k: int, transposed: str) -> float:
        """Added seconds of m×k times k×n with operands that are stored transposed.

        Examples
        --------
        >>> compute = Compute(1e12, transposed_element_s=(0.5, 0.25))
        >>> [compute.transposed_s(2, 4, 8, transposed) for transposed in ("", "a", "b", "ab")]
        [0.0, 8.0, 8.0, 16.0]
        """
        a, b = self.transposed_element_s
        return a * m * k * ("a" in transposed) + b * k * n * ("b" in transposed)

    def tiles_s(self, m: int, n: int, k: int, axis: str) -> float:
        """A lower bound in seconds of all GEMMs that together are m×k times k×n, however these are
        cut, and whether they share launches or not: full tiles along ``axis``, m or n, and workers
        that never wait.

        Examples
        --------
        >>> compute = Compute(1e12, tiles=((128, 128),), units=4, k_ramp=24)
        >>> f"{compute.tiles_s(1000, 130, 1000, 'm'):.3g}"
        '0.000524'
        >>> f"{sum(compute.gemm_s(m, 130, 1000) for m in (256, 256, 256, 232)):.3g}"
        '0.000537'
        """
        together_s = 2 * m * n * k / (self.peak_flops * self.sustained)
        alone_s = min(
            per_k
            * (k + self.k_ramp)
            * (m / tm if axis == "m" else -(-m // tm))
            * (n / tn if axis == "n" else -(-n // tn))
            / self.units
            for tm, tn, per_k in self._kernels
        )
        return max(alone_s, together_s)  # a unit alone may be faster than all together

    def tiling(
        self,
        m: int,
        n: int,
        k: int,
        itemsize: int = 4,
        units: int | None = None,
        parts: Mapping[tuple[int, int], int] | None = None,
        rights: int = 1,
    ) -> Tiling:
        """The tiling of the fastest kernel for a GEMM whose parts are computed in one launch.

        Parameters
        ----------
        m, n, k : int
            Of the whole GEMM.
        itemsize : int
        units : int, optional
            Workers it may use, by default all.
        parts : dict, optional
            Rows and columns of a part -> number of such parts; a tile is inside one part.
        rights : int
            Number of different right operands of the parts, each k×n.

        Examples
        --------
        A GEMM in one part takes as long as the library's:

        >>> compute = Compute(1e12, tiles=((128, 128),), units=4, launch_s=1e-6)
        >>> tiling = compute.tiling(512, 256, 1000)
        >>> waves = tiling.tiles(512, 256) / tiling.units
        >>> waves * tiling.tile_s + 1e-6 == compute.gemm_s(512, 256, 1000)
        True
        """
        shapes = self.fused_tiles if parts else ()
        parts, units = parts or {(m, n): 1}, min(units or self.units, self.units)
        key = m, n, k, itemsize, units, rights, bool(shapes), *sorted(parts.items())
        tiling = self._known.get(key)
        if tiling is None:
            best, waves, tiles = self._fastest(parts, k, itemsize, units, shapes)
            waves = max(1, waves)
            seconds = norm(best, self._traffic_s(m, n, k, itemsize, rights), self.norm)
            seconds = self.at_end(seconds, "any", m) / waves
            tiling = self._known[key] = Tiling(*tiles, seconds, units)
        return tiling

    def _fastest(
        self,
        parts: Mapping[tuple[int, int], int],
        k: int,
        itemsize: int,
        units: int,
        shapes: Sequence[Sequence[int]] = (),
    ) -> tuple[float, int, tuple[int, int, int]]:
        """Seconds of a GEMM in parts, without its memory traffic; the waves of the fastest tiles
        (of some ``shapes``), and their (rows, columns, splits of k)."""
        fastest, allowed = (inf, 1, (1, 1, 1)), set(map(tuple, shapes))
        elements = sum(count * m * n for (m, n), count in parts.items())
        for tm, tn, per_k in self._kernels:
            if allowed and (tm, tn) not in allowed:
                continue
            blocks = sum(count * (-(-m // tm) * -(-n // tn)) for (m, n), count in parts.items())
            for splits in self.splits:
                if splits > k:
                    continue
                waves = -(-blocks * splits // units)
                seconds = waves * (-(-k // splits) + self.k_ramp) * per_k
                if splits > 1:  # partial sums are written and read again
                    seconds += self.split_s + 2 * splits * elements * itemsize / self._memory_rate
                if seconds < fastest[0]:
                    fastest = seconds, waves, (tm, tn, splits)
        if self.burst > 1:  # not all units together
            seconds, waves, tiles = fastest
            limit_s = 2 * elements * k / (self.peak_flops * self.sustained * units / self.units)
            fastest = max(seconds, limit_s), waves, tiles
        return fastest

    def grouped_s(
        self, rows: Sequence[int], n: int, k: int, itemsize: int = 4, separate: bool = False
    ) -> float:
        """Seconds of several local GEMMs, each with its number of rows and its own right operand:
        in one launch, or one after another (``separate``).

        Examples
        --------
        Tiles of small GEMMs share a wave of a common launch; GEMMs that fill waves gain nothing:

        >>> compute = Compute(1e12, tiles=((128, 128),), units=4)
        >>> one_by_one = compute.grouped_s((256, 130, 256), 256, 1000, separate=True)
        >>> round(one_by_one / compute.grouped_s((256, 130, 256), 256, 1000), 3)
        1.0
        >>> round(
        ...     compute.grouped_s((9, 9), 256, 1000, separate=True)
        ...     / compute.grouped_s((9, 9), 256, 1000)
        ... )
        2
        """
        if separate or len(rows) == 1:
            return sum(self.gemm_s(m, n, k, itemsize) for m in rows)
        parts = Counter((m, n) for m in rows)
        tiling = self.tiling(sum(rows), n, k, itemsize, None, parts, len(rows))
        tiles = sum(tiling.tiles(*part) * count for part, count in parts.items())
        return self.launch_s + -(-tiles // tiling.units) * tiling.tile_s

    def _traffic_s(
        self, m: int, n: int, k: int, itemsize: int, rights: int = 1, warm: bool = False
    ) -> float:
        """A lower bound in seconds of reading A and B, and writing C; A and C are cached if both
        fit, B only if it is ``warm``."""
        result = 2 * itemsize if self.result_bytes is None else self.result_bytes
        weights, others = itemsize * rights * k * n, itemsize * m * k + result * m * n
        cached = others if others <= self.cache_bytes else 0
        if warm and _COPIES * weights <= self.cache_bytes:
            cached += weights
        return (weights + others - cached) / self._memory_rate + cached / self.cache_bytes_per_s

    @property
    def _memory_rate(self) -> float:
        return self.memory_bytes_per_s * self.memory_share

    def memory_s(self, nbytes: float) -> float:
        """Seconds of a kernel that only moves bytes through memory."""
        return self.launch_s + nbytes / self._memory_rate
