"""One kernel launch shared by several GEMMs, in virtual time: workers that compute tiles in program
order.

A tile whose operands have not arrived blocks its worker, as in FLUX's and Triton-distributed's
kernels (they spin on a signal), and tiles are assigned in order. So the next part is assigned when
the last tile of this one has started and its own operands have arrived, and a part is done when its
last tile ends.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from drbench.mappings import grouped
from drbench.program.steps import Gemm, Step

from .gemm import Tiling
from .machine import Machine


class Workers:
    """Workers that compute the tiles of a kernel, which all take the same time.

    Parameters
    ----------
    tiling : Tiling
    free : float
        When they are available, in seconds of work.

    Examples
    --------
    Three workers and five tiles of 2 seconds; the next part, of one tile, has a free worker at
    once, but its operands arrive later:

    >>> workers = Workers(Tiling(1, 1, 1, 2.0, 3), 0.0)
    >>> workers.assign(5, 0.0), workers.assign(1, 3.0)
    ((2.0, 4.0), (3.0, 5.0))
    """

    def __init__(self, tiling: Tiling, free: float):
        self.tiling = tiling
        self._free = [(free, tiling.units)]  # a heap of (when, how many workers)

    def assign(self, tiles: int, at: float) -> tuple[float, float]:
        """Assign a part's tiles to the workers, from ``at`` on; return when the last tile starts
        and when it ends."""
        free, last, tile_s = self._free, at, self.tiling.tile_s
        early = 0  # workers that wait for the operands
        while free and free[0][0] <= at:
            early += heappop(free)[1]
        if early:
            heappush(free, (at, early))
        while tiles:
            last, count = heappop(free)
            if not free and tiles > count:  # all workers at once, as often as necessary
                waves = (tiles - 1) // count
                heappush(free, (last + waves * tile_s, count))
                tiles -= waves * count
                continue
            taken = min(count, tiles)
            tiles -= taken
            if count > taken:
                heappush(free, (last, count - taken))
            heappush(free, (last + tile_s, taken))
        merged = Counter()  # workers that are free at the same time are equal
        for when, count in free:
            merged[when] += count
        self._free = list(merged.items())
        heapify(self._free)
        return last, last + tile_s


def tilings(steps: Iterable[Step], machine: Machine, itemsize: int) -> dict[int, Tiling]:
    """The tiling of each kernel of a program: step index of a part -> its kernel's tiling. On a
    machine whose core computes and communicates there are no such kernels: parts are library calls.
    """
    if machine.adds_on_core:
        return {}
    parts = grouped(steps, lambda step: getattr(step, "kernel", None))
    parts.pop(None, None)
    by_step = {}
    for kernel, gemms in parts.items():
        shapes = Counter(gemm.extents[:2] for gemm in gemms)
        rights = len({gemm.inputs[1] for gemm in gemms})
        tiling = machine.compute.tiling(
            kernel.m, kernel.n, kernel.k, itemsize, kernel.units, shapes, rights
        )
        slow = tiling._replace(tile_s=tiling.tile_s * (1 + machine.kernel_slowdown))
        by_step.update((gemm.index, slow) for gemm in gemms)
    return by_step


def part_tiles(step: Gemm, tiling: Tiling) -> int:
    """Tiles of one of a kernel's parts."""
    return tiling.tiles(*step.extents[:2])
