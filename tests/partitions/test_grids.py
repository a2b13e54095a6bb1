"""Process grids against numbering the cells one by one."""

import itertools
from math import prod

import pytest
from oracles import elements_of

from drbench.partitions import LayoutError, ProcessGrid, divisors, near_square, partition

SHAPES = list(itertools.product([1, 2, 3, 5], [1, 2, 4]))


def test_divisors_divide_and_the_nearest_to_a_square_differ_least():
    for p in range(1, 130):
        assert divisors(p) == [d for d in range(1, p + 1) if p % d == 0]
        pairs = [(r, c) for r in range(1, p + 1) for c in range(r, p + 1) if r * c == p]
        assert near_square(p) == min(pairs, key=lambda pair: pair[1] - pair[0])


@pytest.mark.parametrize(
    "call, remedy",
    [
        (lambda: ProcessGrid(0, 2), "at least 1"),
        (lambda: divisors(0), "at least 1"),
        (lambda: near_square(-4), "at least 1"),
    ],
)
def test_cells_outside_the_grid_are_refused_in_one_line_with_the_remedy(call, remedy):
    with pytest.raises(LayoutError) as caught:
        call()
    assert remedy in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("role", "ABC")
@pytest.mark.parametrize("grid", [(1, 1, 2), (2, 1, 2), (1, 2, 1), (2, 2, 1), (3, 1, 1)])
def test_a_transposed_grid_holds_each_element_where_the_grid_does(role, grid):
    """Also where ranks are idle, which neither tiles nor placements can express."""
    text = "grid:{}x{}x{}".format(*grid)
    for nprocs in range(prod(grid), prod(grid) + 3):
        found = partition(text, (6, 4), nprocs, role=role)
        flipped = found.transposed()
        assert flipped.transposed() == found
        assert partition(flipped.text, (4, 6), nprocs, role=role) == flipped
        for rank in range(nprocs):
            here, there = (elements_of(p, rank) for p in (found, flipped))
            assert there == {(j, i) for i, j in here}
