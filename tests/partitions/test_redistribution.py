"""What a redistribution moves is counted as dealing every element out by hand counts it."""

from collections import Counter
from itertools import product

import pytest

from partitions import LayoutError, flows, partition

TEXTS = [
    *("row", "column", "block", "block:1x6", "block:3x2:col", "row/c2", "block/c3", "row/c6"),
    *("tiles:2x3@3x2", "tiles:1x1@2x3", "tiles:4x1@1x3/c2", "R"),
]


def elements_of(part, rank):
    """Every (row, column) that a rank holds, one by one."""
    tiles = [part.tile_bounds(idx) for idx in part.tiles_of(rank)]
    return {(i, j) for rows, cols in tiles for i in range(*rows) for j in range(*cols)}


def by_hand(old, new):
    """Each element that a rank lacks comes from who holds it in that rank's old replica."""
    found = Counter()
    for target in range(new.nprocs):
        for row, col in elements_of(new, target) - elements_of(old, target):
            replica = old.replica_of(target)
            found[old.owner(old.tile_index(row, col), replica), target] += 1
    return found


@pytest.mark.parametrize("shape", [(12, 12), (7, 11), (1, 13), (5, 2)])
@pytest.mark.parametrize("old, new", product(TEXTS, repeat=2))
def test_flows_are_those_of_dealing_every_element_out(old, new, shape):
    old, new = (partition(text, shape, 6) for text in (old, new))
    told = list(flows(old, new))
    assert {(a, b): count for a, b, count in told} == by_hand(old, new)
    assert len({each[:2] for each in told}) == len(told) and all(each[2] > 0 for each in told)


def test_equal_partitions_move_nothing_and_different_matrices_are_refused():
    same = partition("block:1x4", (8, 8), 4), partition("block:1x4:col", (8, 8), 4)
    assert not list(flows(*same))
    for other in (partition("row", (8, 9), 4), partition("row", (8, 8), 2)):
        with pytest.raises(LayoutError, match="not one matrix"):
            list(flows(same[0], other))
