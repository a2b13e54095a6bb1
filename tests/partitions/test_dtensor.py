"""Placements against a small model of DTensor: a list, chunked once per mesh dimension.

The model follows the documentation of DTensor and torch.chunk and shares no code
with the package.
"""

import itertools
import pickle
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import by_place, chunk, cyclic, elements_of, held_by_all

from drbench.partitions import (
    LayoutError,
    Partition,
    ProcessGrid,
    parse,
    partition,
    to_placements,
)
from drbench.partitions.dtensor import PlacementSpec

property_test = settings(max_examples=150, deadline=None)
R = None


def cut(values, parts, placement):
    """The part of a list for each coordinate of one mesh dimension."""
    if not isinstance(placement, tuple):
        return chunk(values, parts)
    every = [chunk(segment, parts) for segment in chunk(values, placement[1])]
    return [sum((segments[x] for segments in every), []) for x in range(parts)]


def dim_of(placement):
    """The matrix dimension that is cut; None for copies and terms."""
    dim = placement[0] if isinstance(placement, tuple) else placement
    return dim if dim in (0, 1) else None


def held_by_dtensor(shape, placements, mesh):
    """The elements of each rank of a row-major mesh: [(rows, columns)]."""
    held = []
    for coordinates in itertools.product(*map(range, mesh)):
        local = [list(range(shape[0])), list(range(shape[1]))]
        for placement, extent, coordinate in zip(placements, mesh, coordinates):
            if (dim := dim_of(placement)) is not None:
                local[dim] = cut(local[dim], extent, placement)[coordinate]
        held.append(tuple(local))
    return held


def as_elements(held):
    return [set(itertools.product(rows, cols)) for rows, cols in held]


def bound_to(shape, placed):
    """Placements, each with the extent of its mesh dimension, bound to a matrix."""
    placements, mesh = zip(*placed)
    return PlacementSpec(placements, mesh).bind(shape, prod(mesh))


def held_by_partition(bound):
    return [elements_of(bound, rank) for rank in range(bound.nprocs)]


anything = st.sampled_from([R, "P", 0, 1, (0, 1), (0, 2), (1, 2), (0, 3), (1, 4)])
meshes = st.lists(st.tuples(anything, st.integers(1, 4)), min_size=1, max_size=4).filter(
    lambda placed: prod(n for _, n in placed) <= 48
)
shapes = st.tuples(st.integers(0, 14), st.integers(0, 14))


@property_test
@given(shapes, meshes)
def test_ranks_hold_and_store_what_dtensor_gives_them(shape, placed):
    placements, mesh = zip(*placed)
    spec, bound = PlacementSpec(placements, mesh), bound_to(shape, placed)
    model = held_by_dtensor(shape, placements, mesh)
    assert held_by_partition(bound) == as_elements(model)
    for rank, (rows, cols) in enumerate(model):
        assert bound.local_shape(rank) == (len(rows), len(cols))
        places = {(x, y): (i, j) for x, i in enumerate(rows) for y, j in enumerate(cols)}
        assert by_place(bound, rank) == places
    assert bound.text == str(spec) and parse(bound.text) == spec


@property_test
@given(shapes, meshes)
def test_replicas_are_the_copies_and_terms_of_the_mesh(shape, placed):
    placements, mesh = zip(*placed)
    bound = bound_to(shape, placed)
    at = list(itertools.product(*map(range, mesh)))
    pick = lambda rank, *which: tuple(
        x for x, placement in zip(at[rank], placements) if placement in which
    )
    for one, other in itertools.product(range(bound.nprocs), repeat=2):
        q, r = bound.replica_of(one), bound.replica_of(other)
        assert (q == r) == (pick(one, R, "P") == pick(other, R, "P"))
        assert (bound.term_of(q) == bound.term_of(r)) == (pick(one, "P") == pick(other, "P"))
        assert (r in bound.copies(q)) == (bound.term_of(q) == bound.term_of(r))
    assert bound.terms == prod(n for d, n in placed if d == "P")
    for replica in range(bound.replicas):
        ranks = [rank for rank in range(bound.nprocs) if bound.replica_of(rank) == replica]
        assert bound.members(replica) == ranks
        for idx in itertools.product(*map(range, bound.grid_shape)):
            holders = [r for r in ranks if idx in bound.tiles_of(r)]
            assert holders == [bound.owner(idx, replica)]


@property_test
@given(shapes, meshes)
def test_the_transposed_partition_holds_every_element_where_it_was(shape, placed):
    bound = bound_to(shape, placed)
    flipped = bound.transposed()
    swapped = [{(j, i) for i, j in held} for held in held_by_partition(bound)]
    assert held_by_partition(flipped) == swapped
    assert flipped.transposed() == bound
    assert partition(flipped.text, flipped.shape, flipped.nprocs) == flipped


@property_test
@given(shapes, meshes, meshes)
def test_layouts_are_equal_exactly_when_the_same_ranks_hold_the_same_tiles(shape, one, other):
    one, other = (bound_to(shape, placed) for placed in (one, other))
    pickled = pickle.loads(pickle.dumps(one))
    assert pickled == one and pickled.text == one.text
    assert 0 in shape or (one == other) == (held_by_all(one) == held_by_all(other)), (one, other)
    assert one != other or hash(one) == hash(other)


def test_layouts_that_differ_only_in_who_holds_nothing_are_equal():
    """Two columns are stored on ranks 0 and 3, whichever dimensions of the mesh deal them."""
    one, other = (partition(f"{text}@3x3", (1, 2), 9) for text in ("S(1),S(0)", "S(1),S(1)"))
    assert one == other and hash(one) == hash(other)


@pytest.mark.parametrize(
    "written, canonical",
    [
        ("Shard(0)", "S(0)"),
        ("Replicate()", "R"),
        ("(Shard(dim=0), Replicate())@2x3", "S(0),R@2x3"),
        ("(S(1),)", "S(1)"),
        ("S(0), S(1) @2x03", "S(0),S(1)@2x3"),
        ("(Partial(sum), _StridedShard(dim=-1, sf=4))", "P,_S(1,4)"),
        ("_StridedShard(0, split_factor=2), P(sum)", "_S(0,2),P"),
        ("Partial('sum')", "P"),
    ],
)
def test_every_spelling_reads_to_the_short_one(written, canonical):
    assert str(parse(written)) == canonical
    assert str(parse(canonical)) == canonical


@property_test
@given(
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.tuples(st.integers(1, 13), st.integers(1, 13)),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from(["row", "col"])),
    st.integers(1, 3),
)
def test_placements_of_any_partition_mean_the_same_or_are_refused(shape, tile, grid, replicas):
    bound = cyclic(shape, tile, ProcessGrid(*grid), replicas)
    try:
        text = to_placements(bound)
    except LayoutError as error:
        assert "use block:" in str(error) and "\n" not in str(error)
        sizes = zip(shape, tile, grid[:2])
        assert any(len(chunk(range(n), parts)[0]) != min(t, n) for n, t, parts in sizes)
    else:
        spec = parse(text)
        mesh = spec.mesh or (bound.nprocs,)
        model = as_elements(held_by_dtensor(shape, spec.placements, mesh))
        assert held_by_partition(bound) == model


@pytest.mark.parametrize(
    "text, nprocs, way_out",
    [
        ("S(0),S(1)@2x2", 6, "S(0),S(1)@2x3"),
        ("S(0)@4", 6, "S(0)@6"),
        ("S(0),S(1)@4", 4, "S(0),S(1)@2x2"),
        ("R,S(0),S(1)", 8, "R,S(0),S(1)@2x2x2"),
        ("S(0)/c2", 8, "R,S(0)@2x4"),
        ("S(0),S(1)@0x4", 4, None),
        ("S(0)@", 4, None),
        ("S(2)", 4, None),
        ("R,row", 4, None),
        ("_S(0,0)", 4, None),
        ("_S(2,2)", 4, None),
        ("S(0),P(max)", 4, None),
        ("R", 0, None),
    ],
)
def test_impossible_placements_are_refused_in_one_line_with_a_way_out(text, nprocs, way_out):
    with pytest.raises(LayoutError) as caught:
        partition(text, (7, 12), nprocs)
    assert "\n" not in str(caught.value)
    if way_out:
        assert way_out in str(caught.value)
        assert partition(way_out, (7, 12), nprocs).nprocs == nprocs


@property_test
@given(shapes, meshes)
def test_placements_are_recovered_from_equivalent_partitions(shape, placed):
    bound = bound_to(shape, placed)
    text = to_placements(bound)
    assert partition(text, shape, bound.nprocs) == bound
    renamed = Partition.of(bound.rows, bound.cols, bound.places, "tiles of no name")
    try:  # by the strides of ranks alone
        text = to_placements(renamed)
    except LayoutError as error:
        assert "\n" not in str(error)
    else:
        assert partition(text, shape, bound.nprocs) == bound


@pytest.mark.parametrize(
    "text", ["S(0),R@2x2", "R,S(0)@2x2", "S(0),R,S(0)@2x2x2", "S(1),R,S(0)@2x3x2"]
)
def test_strides_of_ranks_identify_the_mesh_dimension(text):
    nprocs = prod(map(int, text.partition("@")[2].split("x")))
    bound = partition(text, (24, 24), nprocs)
    assert to_placements(Partition.of(bound.rows, bound.cols, bound.places, "no name")) == text


def test_placements_of_one_mesh_are_equal_where_all_ranks_hold_the_same():
    """A copy and a term hold the same tiles, and are not the same."""
    words = ("S(0)", "S(1)", "R", "P", "_S(0,2)")
    every = [partition(f"{x},{y}@2x2", (8, 8), 4) for x, y in itertools.product(words, repeat=2)]

    for one, other in itertools.product(every, repeat=2):
        assert (one == other) == (held_by_all(one) == held_by_all(other)), (one, other)
