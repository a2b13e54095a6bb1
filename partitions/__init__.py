"""Partitions of a matrix over ranks, as pure index arithmetic.

No communicator, no array, nothing beyond the standard library. Intervals are
half-open; an empty one is harmless everywhere.

A partition answers three questions: who owns a tile, what a tile covers, and which
tiles a region touches.

>>> p = partition("block", (10, 12), 6)
>>> p.owner((1, 2))
5
>>> p.tile_bounds((1, 2))
(Interval(start=5, stop=10), Interval(start=8, stop=12))
>>> p.overlapping_tiles(rows=(0, 5), cols=(3, 9))
[(0, 0), (0, 1), (0, 2)]
"""

from .arithmetic import (
    ProcessGrid,
    ceil_div,
    divisors,
    most_replicas,
    near_square,
    part,
)
from .axes import Axis, CyclicAxis, axis_of, balanced_axis, stored_runs
from .blocks import layout_of_blocks
from .dtensor import to_placements
from .enumerate import layouts
from .errors import LayoutError
from .grids import Grid, parse_grid, work_on
from .intervals import Interval, intersect
from .optimal_grids import frontier, optimal_grid
from .partition import Partition, replica_suffix
from .places import Places, grid_places
from .presets import PRESETS
from .redistribution import flows, sources, summed

# the function `partition` replaces the name of the module that defines it
from .text import extents, parse, partition, partition_kind, preset
