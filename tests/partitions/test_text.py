"""The text form of partitions: accepted texts, defaults, and refusals."""

from math import lcm, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.partitions import LayoutError, Partition, ProcessGrid, near_square, parse, partition
from drbench.partitions.axes import axis_of
from drbench.partitions.dtensor import PlacementSpec
from drbench.partitions.partition import explicit_text
from drbench.partitions.places import grid_places
from drbench.partitions.text import PartitionSpec, partition_kind

property_test = settings(max_examples=150, deadline=None)

extents = st.integers(1, 6)
replicas = st.integers(1, 4)
row_grids = st.builds(ProcessGrid, extents, extents)
grids = st.builds(ProcessGrid, extents, extents, st.sampled_from(["row", "col"]))
specs = st.one_of(
    st.builds(PartitionSpec, st.sampled_from(["row", "column"]), replicas=replicas),
    st.builds(PartitionSpec, st.just("block"), grid=st.none() | grids, replicas=replicas),
    st.builds(
        PartitionSpec,
        st.just("tiles"),
        tile=st.tuples(st.integers(1, 20), st.integers(1, 20)),
        grid=st.none() | grids,
        replicas=replicas,
    ),
    st.builds(PartitionSpec, st.just("traditional"), grid=st.none() | row_grids, replicas=replicas),
)
meshes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
placements = st.sampled_from([None, 0, 1])
placement_specs = st.one_of(
    st.lists(placements, min_size=1, max_size=2).map(lambda p: PlacementSpec(tuple(p))),
    meshes.flatmap(
        lambda mesh: st.tuples(*[placements] * len(mesh)).map(lambda p: PlacementSpec(p, mesh))
    ),
)
shapes = st.tuples(st.integers(0, 30), st.integers(0, 30))
roles = st.sampled_from(["A", "B", "C"])


def fitting_ranks(spec, other):
    """A number of ranks that the spec accepts, ``other`` if it leaves the choice."""
    return (spec.grid.size if spec.grid else other) * spec.replicas


@property_test
@given(specs | placement_specs)
def test_the_text_of_every_spec_reads_back_to_it(spec):
    assert parse(str(spec)) == spec
    assert parse(f"  {str(spec).upper()}\t") == spec


@property_test
@given(specs, shapes, extents, roles)
def test_the_text_of_a_bound_partition_binds_to_an_equal_one(spec, shape, other, role):
    nprocs = fitting_ranks(spec, other)
    bound = spec.bind(shape, nprocs, role)
    assert bound.text == str(spec) and bound.nprocs == nprocs
    assert partition(bound.text, shape, nprocs, role) == bound
    assert partition(explicit_text(bound), shape, nprocs) == bound


@property_test
@given(st.sampled_from(["row", "column", "block"]), shapes, st.integers(1, 20))
def test_default_tiles_give_every_rank_at_most_one_tile_of_the_least_such_extent(kind, shape, p):
    bound = partition(kind, shape, p)
    assert all(len(bound.tiles_of(rank)) <= 1 for rank in range(p))
    for extent, tile, parts in zip(shape, bound.tile_shape, (bound.grid.rows, bound.grid.cols)):
        assert tile * parts >= extent
        assert tile == 1 or (tile - 1) * parts < extent


@pytest.mark.parametrize(
    "text, nprocs, grid, tile, replicas",
    [
        ("row", 4, "4x1", (3, 10), 1),
        ("column", 4, "1x4", (12, 3), 1),
        ("block", 12, "3x4", (4, 3), 1),
        ("block", 7, "1x7", (12, 2), 1),
        ("block:3x2", 6, "3x2", (4, 5), 1),
        ("block:3x2:col", 6, "3x2:col", (4, 5), 1),
        ("block:03x2", 6, "3x2", (4, 5), 1),
        ("block:2x2/c2", 8, "2x2", (6, 5), 2),
        ("row/c4", 4, "1x1", (12, 10), 4),
        ("tiles:128x96", 6, "2x3", (128, 96), 1),
        ("tiles:2x3@3x2:col/c2", 12, "3x2:col", (2, 3), 2),
        ("BLOCK/C2", 8, "2x2", (6, 5), 2),
    ],
)
def test_each_form_binds_as_documented(text, nprocs, grid, tile, replicas):
    bound = partition(text, (12, 10), nprocs)
    assert (str(bound.grid), bound.tile_shape, bound.replicas) == (grid, tile, replicas)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize(
    "text", ["row", "column", "block", "tiles:3x3", "traditional", "S(0)", "R"]
)
def test_a_matrix_without_elements_has_no_tiles_on_any_rank(text, shape):
    bound = partition(text, shape, 4, role="A")
    assert prod(bound.grid_shape) == 0
    assert all(bound.tiles_of(rank) == [] for rank in range(4))


@property_test
@given(row_grids, st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)))
def test_traditional_tiles_align_along_m_n_and_k(grid, mnk):
    m, n, k = mnk
    text, p = f"traditional:{grid}", grid.size
    a = partition(text, (m, k), p, "A")
    b = partition(text, (k, n), p, "B")
    c = partition(text, (m, n), p, "C")
    assert a.rows.cuts(0, m) == c.rows.cuts(0, m)
    assert b.cols.cuts(0, n) == c.cols.cuts(0, n)
    assert a.cols.cuts(0, k) == b.rows.cuts(0, k)
    assert a.grid == b.grid == c.grid == grid


@pytest.mark.parametrize("rows, cols", [(2, 2), (2, 3), (3, 4), (4, 6)])
def test_traditional_deals_k_evenly_where_lcm_divides_it(rows, cols):
    k = 5 * lcm(rows, cols)
    text, p = f"traditional:{rows}x{cols}", rows * cols
    a = partition(text, (rows, k), p, "A")
    b = partition(text, (k, cols), p, "B")
    assert {a.local_shape(rank) for rank in range(p)} == {(1, k // cols)}
    assert {b.local_shape(rank) for rank in range(p)} == {(k // rows, 1)}


def test_traditional_defaults_to_the_near_square_grid_of_a_replica():
    bound = partition("traditional/c2", (24, 24), 24, "C")
    assert (bound.grid.rows, bound.grid.cols) == near_square(12)


@pytest.mark.parametrize(
    "text, nprocs, ways_out",
    [  # each a text and a number of ranks
        ("block:2x2", 3, [("block:1x3", 3), ("block:3x1", 3), ("block:2x2", 4)]),
        ("tiles:4x4@2x3:col/c2", 8, [("tiles:4x4@2x2:col/c2", 8), ("tiles:4x4@2x3:col/c2", 12)]),
        ("block:2x2", 1, [("block:1x1", 1)]),
        ("row/c3", 8, [("row/c4", 8)]),
        ("row", 0, []),
        ("row/c0", 4, []),
        ("row/2", 4, []),
        ("row/c2/c2", 4, []),
        ("column:", 4, []),
        ("block:", 4, []),
        ("block:2x2x2", 8, []),
        ("block:-2x2", 4, []),
        ("block:0x4", 4, []),
        ("block:2x2:diag", 4, []),
        ("tiles:16", 4, []),
        ("tiles:0x16", 4, []),
        ("tiles:16x16@4", 4, []),
        ("traditional:2x2:col", 4, [("traditional:2x2", 4)]),
        ("colum", 4, [("column", 4)]),
        ("", 4, []),
        ("row\nblock", 4, []),
    ],
)
def test_impossible_texts_are_refused_in_one_line_with_ways_out(text, nprocs, ways_out):
    with pytest.raises(LayoutError) as caught:
        partition(text, (12, 12), nprocs, "A")
    assert "\n" not in str(caught.value)
    for other, ranks in ways_out:
        assert (other.partition("/")[0] if ranks == nprocs else str(ranks)) in str(caught.value)
        assert partition(other, (12, 12), ranks, "A").nprocs == ranks


@pytest.mark.parametrize("role", [None, "", "a", "D"])
def test_traditional_refuses_a_role_that_is_no_operand(role):
    with pytest.raises(LayoutError, match="divides A, B and C differently"):
        partition("traditional", (8, 8), 4, role)


@property_test
@given(st.text(alphabet="rowcblktiesSR()01x:@/, \n#²", max_size=20) | st.text(max_size=8))
def test_any_text_reads_to_a_canonical_spec_or_one_line_of_refusal(text):
    try:
        spec = parse(text)
    except LayoutError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert parse(str(spec)) == spec


@pytest.mark.parametrize("kind", ["blocky", "rows", "tiles_of_two", "transposed_rows"])
def test_the_transposed_text_of_an_added_kind_reads_back(kind, monkeypatch):
    monkeypatch.setattr("drbench.partitions.text._ADDED", {})

    @partition_kind(kind)
    def uneven(details, shape, nprocs, role):
        rows, _ = axis_of(shape[0], [[(0, 1)], [(1, shape[0])]])
        cols, _ = axis_of(shape[1], [[(0, shape[1])]])
        return Partition.of(rows, cols, grid_places(ProcessGrid(2, 1)), kind)

    made = partition(kind, (8, 6), 2)
    flipped = made.transposed()
    assert [flipped.local_shape(rank) for rank in (0, 1)] == [(6, 1), (6, 7)]
    assert partition(flipped.text, (6, 8), 2) == flipped
    assert flipped.transposed() == made and flipped.transposed().text == kind
