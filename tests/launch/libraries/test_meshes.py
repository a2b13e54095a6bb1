"""Partitions as DTensor placements on one mesh: the same elements on the same ranks."""

import itertools
from math import prod

import numpy as np
import pytest
from oracles import exhaustive

from drbench.errors import UnsupportedError
from drbench.launch.libraries.jax import spec_of
from drbench.launch.libraries.meshes import find_placements, share_mesh
from drbench.partitions import partition
from drbench.partitions.enumerate import KINDS


def chunks_of_chunks(shape, placements, mesh, rank):
    """Rows and columns of a rank, cut as by torch: along one mesh dimension after another,
    outermost first."""
    ranges = [(0, extent) for extent in shape]
    coordinates = []
    for extent in reversed(mesh):
        rank, coordinate = divmod(rank, extent)
        coordinates.insert(0, coordinate)
    for placement, extent, coordinate in zip(placements, mesh, coordinates):
        if placement is not None:
            start, stop = ranges[placement]
            fragment = -(-(stop - start) // extent)
            ranges[placement] = (
                min(start + coordinate * fragment, stop),
                min(start + (coordinate + 1) * fragment, stop),
            )
    return tuple(ranges)


def owned(bound, rank):
    """Rows and columns of a rank's only tile."""
    rows, cols = bound.tile_bounds(bound.tiles_of(rank)[0])
    return (rows.start, rows.stop), (cols.start, cols.stop)


@pytest.mark.parametrize("nprocs", [2, 4, 8])
def test_every_triple_of_a_power_of_two_has_one_mesh_with_the_same_elements_on_each_rank(nprocs):
    shape = (16, 32)
    some = list(exhaustive(nprocs))[:: 7 if nprocs == 8 else 1]
    for texts in some:
        bound = [partition(text, shape, nprocs) for text in texts]
        together = share_mesh([find_placements(one) for one in bound])
        assert len({mesh for _, mesh in together}) == 1
        for one, (placements, mesh) in zip(bound, together):
            assert prod(mesh) == nprocs and len(placements) == len(mesh)
            assert [chunks_of_chunks(shape, placements, mesh, rank) for rank in range(nprocs)] == [
                owned(one, rank) for rank in range(nprocs)
            ]


@pytest.mark.parametrize(
    "text", [kind + suffix for kind, suffix in itertools.product(KINDS, ("", "/c2", "/c4"))]
)
def test_placements_are_read_back_as_the_same_partition(text):
    shape = (16, 32)
    bound = partition(text, shape, 4)
    placements, mesh = find_placements(bound)
    words = ",".join("R" if d is None else f"S({d})" for d in placements)
    assert partition(f"{words}@{'x'.join(map(str, mesh))}", shape, 4) == bound


def test_meshes_without_a_common_refinement_stay_separate():
    apart = [((0, 1), (2, 3)), ((0, 1), (3, 2)), ((0,), (6,))]
    assert share_mesh(apart) == apart


def test_block_cyclic_tiles_are_refused_with_a_remedy():
    with pytest.raises(UnsupportedError, match="dtensor: tiles:2x2.* use block"):
        find_placements(partition("tiles:2x2@2x2", (16, 16), 4))


def even_chunks(shape, spec, mesh, rank):
    """Rows and columns of a rank, as JAX cuts them: along the axes of a dimension together, the
    first of them slowest, into equal chunks."""
    coordinates = dict(zip(map(str, range(len(mesh))), np.unravel_index(rank, mesh)))
    extents = dict(zip(map(str, range(len(mesh))), mesh))
    ranges = []
    for extent, axes in zip(shape, spec):
        sizes = [extents[axis] for axis in axes]
        chunk = 0
        for axis, size in zip(axes, sizes):
            chunk = chunk * size + int(coordinates[axis])
        length = extent // prod(sizes)
        ranges.append((chunk * length, (chunk + 1) * length))
    return tuple(ranges)


PLACED = ["S(1),S(0)@2x{}", "S(0),S(0)@2x{}", "S(0),R@2x{}", "R,S(1)@2x{}", "S(1),R,S(0)@2x1x{}"]


@pytest.mark.parametrize("nprocs", [2, 4, 6, 8])
def test_a_partition_spec_gives_each_rank_its_elements(nprocs):
    shape = (48, 96)
    texts = [*KINDS, *(f"{kind}/c{copies}" for kind in KINDS for copies in (2, nprocs))]
    for text in [*texts, *(text.format(nprocs // 2) for text in PLACED)]:
        bound = partition(text, shape, nprocs)
        placements, mesh = find_placements(bound)
        spec = spec_of(shape, placements, mesh)
        for rank in range(nprocs):
            assert even_chunks(shape, spec, mesh, rank) == owned(bound, rank), text


@pytest.mark.parametrize(
    "text, words",
    [
        ("row", "23 rows on 4 ranks are not. Use a multiple of 4, or --algorithm universal"),
        ("column", "22 columns on 4 ranks are not"),
        ("block", "23 rows on 2 ranks are not"),
        ("row/c2", "23 rows on 2 ranks are not"),
        ("column/c2", None),
        ("R", None),
    ],
)
def test_jax_has_no_shards_of_unequal_size(text, words):
    bound = partition(text, (23, 22), 4)
    if words is None:
        spec_of(bound.shape, *find_placements(bound, "jax"))
        return
    with pytest.raises(UnsupportedError, match=f"jax cuts matrices evenly .*: {words}"):
        spec_of(bound.shape, *find_placements(bound, "jax"))


@pytest.mark.parametrize("text", ["tiles:2x2@2x2", "P,S(0)@2x2", "_S(0,2)"])
def test_other_maps_are_refused_in_the_name_of_the_library(text):
    with pytest.raises(UnsupportedError, match="^jax: "):
        find_placements(partition(text, (16, 16), 4), "jax")
