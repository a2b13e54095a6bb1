"""Partitions as DTensor placements on one mesh: the same elements on the same ranks."""

import itertools
from math import prod

import pytest
from oracles import exhaustive

from drbench.errors import UnsupportedError
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
