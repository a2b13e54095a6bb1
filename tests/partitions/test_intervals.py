"""One-dimensional arithmetic against counting, listing and dealing."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drbench.partitions import Interval, LayoutError, ceil_div, intersect, part
from drbench.partitions.axes import CyclicAxis, axis_of, stored_runs
from drbench.partitions.intervals import between, length, split, union

small = st.integers(-5, 25)
extents = st.integers(0, 25)
counts = st.integers(1, 8)


def members(interval):
    start, stop = interval
    return list(range(start, stop))


@given(small, small)
def test_extent_counts_the_members(start, stop):
    interval = Interval(start, stop)
    assert interval.extent == len(members(interval))
    assert interval.empty == (not members(interval))


@given(small, small, small, small)
def test_intersection_holds_the_common_members_and_is_normalised(a, b, c, d):
    common = intersect((a, b), (c, d))
    assert members(common) == sorted(set(members((a, b))) & set(members((c, d))))
    assert common.stop >= common.start


def test_an_interval_is_a_plain_tuple():
    assert Interval(2, 5) == (2, 5) and hash(Interval(2, 5)) == hash((2, 5))


@given(extents, counts)
def test_parts_are_the_slices_of_a_list_cut_every_ceil(extent, parts):
    size = next(s for s in range(extent + 1) if s * parts >= extent)  # the ceiling, by search
    elements = list(range(extent))
    for q in range(parts):
        assert members(part(extent, q, parts)) == elements[q * size : (q + 1) * size]


@pytest.mark.parametrize("x, y", [*itertools.product(range(20), range(1, 8))])
def test_ceil_div_is_the_least_count_that_suffices(x, y):
    q = ceil_div(x, y)
    assert q * y >= x > (q - 1) * y


@given(small, small, counts, extents)
def test_cuts_are_the_ends_and_the_tile_boundaries_between(start, stop, tile, extent):
    inside = [x for x in range(start, stop) if 0 <= x < extent]
    expected = [x for x in inside if x == inside[0] or x % tile == 0]
    expected += [inside[-1] + 1] if inside else []
    assert CyclicAxis(extent, tile, 1).cuts(start, stop) == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: part(-1, 0, 2),
        lambda: part(4, 2, 2),
        lambda: part(4, -1, 2),
        lambda: part(4, 0, 0),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_line_with_the_range(call):
    with pytest.raises(LayoutError, match="it needs") as caught:
        call()
    assert "\n" not in str(caught.value)


ranges = st.lists(st.tuples(small, small).map(sorted).map(tuple), max_size=8)
disjoint = (
    st.lists(st.integers(0, 60), unique=True, max_size=16)
    .map(sorted)
    .map(lambda cuts: between(cuts)[::2])
)


def elements(ranges):
    """The elements in the order in which ranges list them."""
    return [x for each in ranges for x in members(each)]


@given(st.lists(small, max_size=8).map(sorted))
def test_between_covers_the_elements_from_the_first_cut_to_the_last(cuts):
    assert elements(between(cuts)) == (members((cuts[0], cuts[-1])) if cuts else [])


@given(ranges)
def test_a_union_is_the_set_of_elements_in_as_few_ranges_as_there_are_gaps(ranges):
    found, held = union(ranges), set(elements(ranges))
    assert elements(found) == sorted(held)
    assert len(found) == sum(x - 1 not in held for x in held)
    assert length(found) == len(held)


@given(disjoint, st.lists(st.integers(0, 70), max_size=5).map(sorted))
def test_a_split_slices_the_elements_at_the_ends(ranges, ends):
    listed, found = elements(ranges), split(ranges, ends)
    assert length(ranges) == len(listed)
    assert [elements(each) for each in found] == [listed[x:y] for x, y in zip([0, *ends], ends)]
    assert all(start < stop for each in found for start, stop in each)


@given(disjoint.filter(bool), st.integers(1, 3), st.data())
def test_runs_are_stored_as_their_elements_are_dealt_and_as_long_as_they_can_be(cut, parts, data):
    extent = cut[-1][1]
    bounds = sorted({0, *(x for each in cut for x in each)})
    held = [[] for _ in range(parts)]
    for segment in between(bounds):
        held[data.draw(st.integers(0, parts - 1))].append(segment)
    axis, _ = axis_of(extent, held)
    stored = {}  # element -> (coordinate, local index), dealt one by one
    for segment in map(axis.__getitem__, range(len(axis))):
        for x in members(segment[:2]):
            stored[x] = (
                segment.coordinate,
                sum(at[0] == segment.coordinate for at in stored.values()),
            )
    runs = stored_runs(axis, between(axis.cuts(0, extent)))
    assert elements(run[:2] for run in runs) == list(range(extent))
    for run in runs:
        assert [stored[x] for x in members(run[:2])] == [
            (run.coordinate, run.local + x) for x in range(run.stop - run.start)
        ]
    for one, other in between(runs):
        assert stored[other.start] != (one.coordinate, one.local + one.stop - one.start)
