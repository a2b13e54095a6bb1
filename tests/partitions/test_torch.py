"""Placements compared with PyTorch itself: the part of its DTensor on every rank of a mesh.

Without a process group: the rules are functions of a mesh's extents and a rank's coordinates.
"""

import itertools
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.partitions import parse, partition, to_placements

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor import _utils as rules  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

word = st.one_of(
    st.sampled_from([Replicate(), Partial(), Shard(0), Shard(1)]),
    st.builds(lambda d, f: _StridedShard(d, split_factor=f), st.integers(0, 1), st.integers(1, 5)),
)
meshes = st.lists(st.tuples(word, st.integers(1, 4)), min_size=1, max_size=4)
shapes = st.tuples(st.integers(1, 17), st.integers(1, 17))


def local_indices(shape, placements, mesh, at):
    """The part of a matrix of its own indices on torch's rank at these coordinates."""
    local = torch.arange(prod(shape)).reshape(shape)
    for placement, extent, coordinate in zip(placements, mesh, at):
        if hasattr(placement, "dim"):
            shards, _ = placement._split_tensor(local, extent, with_padding=False)
            local = shards[coordinate]
    return local


@settings(max_examples=300, deadline=None)
@given(shapes, meshes)
def test_every_local_tensor_is_torchs(shape, placed):
    placements, mesh = [p for p, _ in placed], [n for _, n in placed]
    text = f"{','.join(map(str, placements))}@{'x'.join(map(str, mesh))}"
    bound = partition(text, shape, prod(mesh))
    for rank, at in enumerate(itertools.product(*map(range, mesh))):
        size, offset = rules._compute_local_shape_and_global_offset(
            shape, mesh, list(at), placements
        )
        assert bound.local_shape(rank) == tuple(size)
        local = torch.full(size, -1)
        for idx in bound.tiles_of(rank):
            (top, bottom), (left, right) = bound.tile_bounds(idx)
            row, col = bound.local_start(idx)
            whole = torch.arange(prod(shape)).reshape(shape)[top:bottom, left:right]
            local[row : row + bottom - top, col : col + right - left] = whole
        assert torch.equal(local, local_indices(shape, placements, mesh, at))
        if bound.local_size(rank):
            first = bound.tile_bounds(bound.tiles_of(rank)[0])
            assert tuple(span.start for span in first) == tuple(offset)


@settings(max_examples=100, deadline=None)
@given(st.lists(word, min_size=1, max_size=2))
def test_placements_printed_by_torch_are_read(placements):
    short = parse(",".join(map(str, placements)))
    assert parse(str(placements)) == parse(str(tuple(placements))) == short
    assert parse(str(short)) == short


@settings(max_examples=100, deadline=None)
@given(shapes, meshes)
def test_placements_are_returned_as_those_of_torch(shape, placed):
    placements, mesh = [p for p, _ in placed], [n for _, n in placed]
    text = f"{','.join(map(str, placements))}@{'x'.join(map(str, mesh))}"
    assert to_placements(partition(text, shape, prod(mesh))) == text.replace(", ", ",").replace(
        "P(sum)", "P"
    )
