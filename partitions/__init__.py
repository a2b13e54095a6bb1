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
    local_extent,
    most_replicas,
    near_square,
    part,
)
from .axes import Axis, Dealt, Listed, Segment, axis_of, levelled_axis, pieces, stored_runs
from .dtensor import PlacementSpec, parse_placements, to_placements
from .enumerate import (
    equal_replication,
    exhaustive,
    layouts,
    paired_replication,
    partition_triples,
    replication_triples,
)
from .errors import LayoutError
from .grids import (
    Grid,
    GridSpec,
    frontier,
    held,
    io_bound,
    moved,
    needed,
    optimal_grid,
    parse_grid,
    work_on,
)
from .intervals import Interval, intersect
from .partition import Partition, explicit_text, replica_suffix
from .places import Places, grid_places, mesh_places
from .presets import PRESETS, Preset
from .redistribution import check_one_matrix, flows, sources, summed

# the function `partition` takes the name of the module it is the front door of
from .text import PartitionSpec, extents, parse, partition, partition_kind, preset

__all__ = [
    "PRESETS",
    "Axis",
    "Dealt",
    "Grid",
    "GridSpec",
    "Interval",
    "LayoutError",
    "Listed",
    "Partition",
    "PartitionSpec",
    "PlacementSpec",
    "Places",
    "Preset",
    "ProcessGrid",
    "Segment",
    "axis_of",
    "ceil_div",
    "check_one_matrix",
    "divisors",
    "equal_replication",
    "exhaustive",
    "explicit_text",
    "extents",
    "flows",
    "frontier",
    "grid_places",
    "held",
    "intersect",
    "io_bound",
    "layouts",
    "levelled_axis",
    "local_extent",
    "mesh_places",
    "most_replicas",
    "moved",
    "near_square",
    "needed",
    "optimal_grid",
    "paired_replication",
    "parse",
    "parse_grid",
    "parse_placements",
    "part",
    "partition",
    "partition_kind",
    "partition_triples",
    "pieces",
    "preset",
    "replica_suffix",
    "replication_triples",
    "sources",
    "stored_runs",
    "summed",
    "to_placements",
    "work_on",
]
