"""One-dimensional arithmetic against counting, listing and dealing."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions import Interval, LayoutError, ceil_div, intersect, local_extent, part
from partitions.arithmetic import covering, cuts

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
def test_parts_follow_one_another_and_cover_the_extent(extent, parts):
    pieces = [part(extent, q, parts) for q in range(parts)]
    assert [x for piece in pieces for x in members(piece)] == list(range(extent))


@given(extents, counts)
def test_parts_are_the_slices_of_a_list_cut_every_ceil(extent, parts):
    size = next(s for s in range(extent + 1) if s * parts >= extent)  # the ceiling, by search
    elements = list(range(extent))
    for q in range(parts):
        assert members(part(extent, q, parts)) == elements[q * size : (q + 1) * size]


@pytest.mark.parametrize("x, y", [*product(range(20), range(1, 8))])
def test_ceil_div_is_the_least_count_that_suffices(x, y):
    q = ceil_div(x, y)
    assert q * y >= x > (q - 1) * y


@pytest.mark.parametrize("n, block, nprocs", [*product([0, 1, 7, 12], [1, 3, 20], [1, 2, 5])])
def test_local_extents_match_dealing_elements_one_by_one(n, block, nprocs):
    dealt = [0] * nprocs
    for element in range(n):
        dealt[(element // block) % nprocs] += 1
    assert [local_extent(n, block, p, nprocs) for p in range(nprocs)] == dealt


@given(small, small, counts, extents)
def test_cuts_are_the_ends_and_the_tile_boundaries_between(start, stop, tile, extent):
    inside = [x for x in range(start, stop) if 0 <= x < extent]
    expected = [x for x in inside if x == inside[0] or x % tile == 0]
    expected += [inside[-1] + 1] if inside else []
    assert cuts(start, stop, tile, extent) == expected


@given(small, small, counts, extents)
def test_covering_lists_the_tiles_of_the_members(start, stop, tile, extent):
    touched = {x // tile for x in range(start, stop) if 0 <= x < extent}
    assert list(covering(start, stop, tile, extent)) == sorted(touched)


@pytest.mark.parametrize(
    "call",
    [
        lambda: part(-1, 0, 2),
        lambda: part(4, 2, 2),
        lambda: part(4, -1, 2),
        lambda: part(4, 0, 0),
        lambda: local_extent(-1, 1, 0, 1),
        lambda: local_extent(4, 0, 0, 1),
        lambda: local_extent(4, 1, 2, 2),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_line_that_says_the_range(call):
    with pytest.raises(LayoutError, match="it needs") as caught:
        call()
    assert "\n" not in str(caught.value)
