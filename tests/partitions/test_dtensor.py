"""Placements against a small model of DTensor: a list, chunked once per mesh dimension.

The model follows the documentation of DTensor and torch.chunk and shares no code
with the package.
"""

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions import (
    LayoutError,
    Partition,
    PlacementSpec,
    ProcessGrid,
    parse,
    partition,
    to_placements,
)

property_test = settings(max_examples=150, deadline=None)
R = None


def chunk(values, chunks):
    """torch.chunk with the empty chunks that DTensor adds: equal pieces from the front."""
    size = 0
    while size * chunks < len(values):
        size += 1
    pieces, left = [], list(values)
    for _ in range(chunks):
        pieces.append(left[:size])
        left = left[size:]
    return pieces


def held_by_dtensor(shape, placements, mesh):
    """What each rank of a row-major mesh holds: [(rows, columns)]."""
    held = []
    for coordinates in product(*map(range, mesh)):
        local = [list(range(shape[0])), list(range(shape[1]))]
        for placement, extent, coordinate in zip(placements, mesh, coordinates):
            if placement is not R:
                local[placement] = chunk(local[placement], extent)[coordinate]
        held.append(tuple(local))
    return held


def held_by_partition(bound):
    """The elements of each rank, as a set."""
    return [
        {
            element
            for idx in bound.tiles_of(rank)
            for element in product(*(range(*span) for span in bound.tile_bounds(idx)))
        }
        for rank in range(bound.nprocs)
    ]


def as_elements(held):
    return [set(product(rows, cols)) for rows, cols in held]


def why_refused(shape, placements, mesh):
    """Which of the three documented reasons applies, by the model; None if none does."""
    real = [(d, n) for d, n in zip(placements, mesh) if n > 1]
    while real and real[0][0] is R:
        real.pop(0)
    dims = [d for d, _ in real]
    if R in dims:
        return "contiguous ranks"
    changes = sum(x != y for x, y in zip(dims, dims[1:]))
    if changes > 1:
        return "then the other"
    for d in (0, 1):
        counts = [n for dim, n in real if dim == d]
        nested = held_by_dtensor(shape, [d] * len(counts), counts)
        if [x[d] for x in nested] != chunk(range(shape[d]), prod(counts)):
            return "nested chunks"
    return None


@property_test
@given(
    st.tuples(st.integers(0, 14), st.integers(0, 14)),
    st.lists(st.tuples(st.sampled_from([R, 0, 1]), st.integers(1, 4)), min_size=1, max_size=3),
)
def test_ranks_hold_what_dtensor_gives_them_or_the_refusal_has_its_reason(shape, placed):
    placements, mesh = tuple(d for d, _ in placed), tuple(n for _, n in placed)
    spec = PlacementSpec(placements, mesh)
    reason = why_refused(shape, placements, mesh)
    if reason:
        with pytest.raises(LayoutError, match=reason) as caught:
            spec.bind(shape, prod(mesh))
        assert "\n" not in str(caught.value)
    else:
        bound = spec.bind(shape, prod(mesh))
        assert held_by_partition(bound) == as_elements(held_by_dtensor(shape, placements, mesh))
        assert bound.text == str(spec)


@pytest.mark.parametrize(
    "placements, named",
    [
        ("S(0)", "row"),
        ("S(1)", "column"),
        ("R", "row/c6"),
        ("R,R", "row/c6"),
        ("S(0),S(1)", "block"),
        ("S(0),S(1)@3x2", "block:3x2"),
        ("S(1),S(0)", "block:3x2:col"),
        ("S(1),S(0)@1x6", "row"),
        ("R,S(0)", "row/c2"),
        ("R,S(1)@3x2", "column/c3"),
        ("S(0),R@6x1", "row"),
        ("S(0),S(0)", "row"),
        ("R,S(0),S(1)@1x2x3", "block:2x3"),
    ],
)
def test_placements_equal_the_named_partition(placements, named):
    assert partition(placements, (12, 18), 6) == partition(named, (12, 18), 6)


@pytest.mark.parametrize(
    "written, canonical",
    [
        ("Shard(0)", "S(0)"),
        ("Replicate()", "R"),
        ("replicate", "R"),
        (" s( 1 ) , r ", "S(1),R"),
        ("(Shard(dim=0), Replicate())@2x3", "S(0),R@2x3"),
        ("[Shard(dim=-2)]", "S(0)"),
        ("(S(1),)", "S(1)"),
        ("S(0), S(1) @2x03", "S(0),S(1)@2x3"),
    ],
)
def test_every_spelling_reads_to_the_short_one(written, canonical):
    assert str(parse(written)) == canonical
    assert str(parse(canonical)) == canonical


NAMED = ["row", "column", "block", "block:2x6", "block:3x4:col", "row/c3", "block/c2", "column/c12"]


@pytest.mark.parametrize("text", NAMED)
@pytest.mark.parametrize("shape", [(24, 24), (7, 100), (1, 1), (0, 5), (13, 0)])
def test_named_partitions_come_back_through_placements(text, shape):
    bound = partition(text, shape, 12)
    assert partition(to_placements(bound), shape, 12) == bound


@property_test
@given(
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.tuples(st.integers(1, 13), st.integers(1, 13)),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from(["row", "col"])),
    st.integers(1, 3),
)
def test_placements_of_any_partition_mean_the_same_or_are_refused(shape, tile, grid, replicas):
    bound = Partition(shape, tile, ProcessGrid(*grid), replicas)
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


ERRORS = [
    ("S(0),R", 4, "use R,S(0)"),
    ("S(1),R@2x3", 6, "use R,S(1)@3x2"),
    ("S(0),S(0)@2x3", 6, "use S(0) on a 1-D mesh, or a multiple of 6"),
    ("S(0),S(1),S(0)@2x2x2", 8, "use S(0),S(1) or S(1),S(0)"),
    ("S(0),S(1)@2x2", 6, "use S(0),S(1)@2x3, or 4 ranks"),
    ("S(0)@4", 6, "use S(0)@6, or 4 ranks"),
    ("S(0),S(1)@4", 4, "write for example S(0),S(1)@2x2"),
    ("R,S(0),S(1)", 8, "write for example R,S(0),S(1)@2x2x2"),
    ("S(0),S(1)@0x4", 4, "every extent must be at least 1"),
    ("S(0)@", 4, "write for example @2x3"),
    ("S(2)", 4, "use S(0) (rows) or S(1) (columns)"),
    ("S", 4, "use R, S(0) (rows) or S(1) (columns)"),
    ("R,row", 4, "use R, S(0) (rows) or S(1) (columns)"),
    ("S(0)/c2", 4, "R,S(0)@2x4"),
    ("Partial()", 4, "sums are pending"),
    ("S(0),P(sum)", 4, "use R or S(d)"),
    ("_Partial", 4, "sums are pending"),
    ("R", 0, "use at least 1"),
]


@pytest.mark.parametrize("text, nprocs, fragment", ERRORS)
def test_what_cannot_be_is_refused_in_one_line_with_the_way_out(text, nprocs, fragment):
    with pytest.raises(LayoutError) as caught:
        partition(text, (7, 12), nprocs)
    assert fragment in str(caught.value) and "\n" not in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    "text, nprocs, way_out",
    [
        ("S(0),R@2x3", 6, "R,S(0)@3x2"),
        ("S(0),S(1)@2x2", 6, "S(0),S(1)@2x3"),
        ("S(0)@4", 6, "S(0)@6"),
        ("S(0),S(0)@3x4", 12, "S(0) on a 1-D mesh, or a multiple of 12"),
    ],
)
def test_the_way_out_of_a_refusal_is_accepted(text, nprocs, way_out):
    with pytest.raises(LayoutError) as caught:
        partition(text, (7, 12), nprocs)
    assert way_out in str(caught.value)
    assert partition(way_out.split()[0], (7, 12), nprocs).nprocs == nprocs
    if "multiple" in way_out:
        assert partition(text, (24, 12), nprocs) == partition("row", (24, 12), nprocs)


@pytest.mark.parametrize("placements", [(), (2,), (0, "R")])
def test_placements_that_are_none_cannot_be_built(placements):
    with pytest.raises(LayoutError, match="use R"):
        PlacementSpec(placements)
