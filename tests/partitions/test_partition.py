"""Partitions against dealing a matrix out by hand, element by element."""

import itertools
import pickle
from dataclasses import FrozenInstanceError
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import by_place, cyclic, held_by_all, home

from drbench.partitions import Interval, LayoutError, ProcessGrid, divisors, partition
from drbench.partitions.partition import explicit_text

# no time limit an example: the machine may be slow and noisy
property_test = settings(max_examples=120, deadline=None)

grids = st.builds(
    ProcessGrid, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["row", "col"])
)
layouts = st.builds(
    cyclic,
    shape=st.tuples(st.integers(0, 13), st.integers(0, 13)),
    tile=st.tuples(st.integers(1, 15), st.integers(1, 15)),  # also larger than the matrix
    grid=grids,
    replicas=st.integers(1, 3),
)
ranges = st.tuples(st.integers(-3, 17), st.integers(-3, 17))

CORNERS = [  # in addition to those of hypothesis
    cyclic((13, 11), (2, 3), ProcessGrid(3, 2, "col"), replicas=2),
    cyclic((4, 4), (3, 3), ProcessGrid(3, 3)),  # ranks without a tile
    cyclic((0, 5), (1, 2), ProcessGrid(2, 2)),
    cyclic((5, 0), (2, 1), ProcessGrid(2, 2)),
    cyclic((3, 4), (3, 4), ProcessGrid(1, 1), replicas=5),
]


@property_test
@given(layouts)
@example(CORNERS[0])
@example(CORNERS[1])
@example(CORNERS[2])
@example(CORNERS[3])
@example(CORNERS[4])
def test_every_rank_holds_and_stores_what_is_dealt_to_it(p):
    at = home(p)
    tiles = {number: idx for idx, number in at.number.items()}
    assert prod(p.grid_shape) == len(tiles)
    held = {rank: set() for rank in range(p.nprocs)}
    for replica, row, col in np.ndindex(at.owner.shape):
        idx, owner = tiles[at.tile[row, col]], at.owner[replica, row, col]
        held[owner].add(idx)
        assert (p.tile_index(row, col), p.owner(idx, replica)) == (idx, owner)
        (top, left), (first_row, first_col) = p.local_start(idx), map(min, p.tile_bounds(idx))
        place = top + row - first_row, left + col - first_col
        assert place == divmod(at.address[row, col], at.width[row, col])
    for idx, number in at.number.items():
        assert elements(p, idx) == [*map(tuple, np.argwhere(at.tile == number))]
    for rank, tiles in held.items():
        assert p.tiles_of(rank) == sorted(tiles) and p.replica_of(rank) == at.replica[rank]
        assert (p.local_shape(rank), p.local_size(rank)) == (at.shape[rank], at.size[rank])


def elements(p, idx):
    rows, cols = p.tile_bounds(idx)
    return list(itertools.product(range(*rows), range(*cols)))


@property_test
@given(layouts, ranges, ranges)
def test_overlapping_tiles_are_those_of_the_elements(p, rows, cols):
    at, region = home(p), itertools.product(range(*rows), range(*cols))
    inside = [(x, y) for x, y in region if 0 <= x < p.shape[0] and 0 <= y < p.shape[1]]
    numbers = {at.tile[each] for each in inside}
    found = [idx for idx, number in at.number.items() if number in numbers]
    assert p.overlapping_tiles(rows, cols) == found
    assert p.overlapping_tiles(Interval(*rows), Interval(*cols)) == found


@property_test
@given(layouts)
def test_the_explicit_text_reads_back_to_an_equal_partition(p):
    assert p.text == explicit_text(p)
    assert partition(p.text, p.shape, p.nprocs) == p


def test_no_method_scans_the_tile_grid():
    far = 10**12  # 10²⁴ tiles: a scan would not return
    p = cyclic((far, far), (1, 1), ProcessGrid(64, 64), replicas=2)
    last = (far - 1, far - 1)
    assert p.owner(last, replica=1) == 8191
    assert p.tile_bounds(last) == ((far - 1, far), (far - 1, far))
    assert p.tile_index(*last) == last
    assert p.overlapping_tiles((far - 2, far), (5, 6)) == [(far - 2, 5), (far - 1, 5)]
    assert p.rows.cuts(far // 2, far // 2 + 2) == [far // 2, far // 2 + 1, far // 2 + 2]
    assert p.local_size(8191) == (far // 64) ** 2
    assert p.local_start(last) == (far // 64 - 1, far // 64 - 1)


def test_the_given_text_is_kept_and_ignored_by_equality_and_hash():
    p, q = (partition(text, (8, 8), 4) for text in ("block:1x4", "block:1x4:col"))
    assert p == q and hash(p) == hash(q)
    assert (p.text, q.text) == ("block:1x4", "block:1x4:col")


def test_a_partition_cannot_be_changed_but_can_be_pickled():
    p = partition("block:2x2:col/c2", (9, 9), 8)
    with pytest.raises(FrozenInstanceError):
        p.shape = (1, 1)
    again = pickle.loads(pickle.dumps(p))
    assert again == p and again.text == p.text and again.grid_shape == p.grid_shape


p22 = cyclic((10, 10), (4, 4), ProcessGrid(2, 2), replicas=2)


@pytest.mark.parametrize(
    "call, fragments",
    [
        (lambda: p22.tile_bounds((3, 0)), ["tile (3, 0)", "3x3 tile grid", "overlapping_tiles"]),
        (lambda: p22.owner((9, 9)), ["tile (9, 9)", "3x3 tile grid"]),
        (lambda: p22.owner((0, 0), 2), ["replica 2", "from 0 to 1"]),
        (lambda: p22.tiles_of(8), ["rank 8", "from 0 to 7"]),
        (lambda: p22.local_shape(-1), ["rank -1", "from 0 to 7"]),
        (lambda: CORNERS[2].owner((0, 0)), ["tile (0, 0)", "0x3 tile grid"]),
        (lambda: partition("row", (-1, 3), 1), ["-1x3", "at least 0"]),
        (lambda: partition("R", (3, -1), 1), ["3x-1", "at least 0"]),
    ],
)
def test_what_does_not_exist_is_refused_in_one_line_with_the_remedy(call, fragments):
    with pytest.raises(LayoutError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(fragment in message for fragment in fragments), message


@pytest.mark.parametrize("shape", [(8, 8), (5, 7), (1, 6), (0, 4), (3, 1)])
@pytest.mark.parametrize("nprocs", [1, 2, 4, 6])
def test_partitions_are_equal_when_the_same_ranks_hold_the_same_tiles(shape, nprocs):
    """Whatever their texts; compared tile by tile."""
    texts = [f"block:{r}x{nprocs // r}{order}" for r in divisors(nprocs) for order in ("", ":col")]
    texts += ["row", "column", "tiles:2x3", "tiles:9x9", f"tiles:3x3@1x{nprocs}", f"row/c{nprocs}"]
    bound = [partition(text, shape, nprocs) for text in texts]

    for one, other in itertools.product(bound, repeat=2):
        assert 0 in shape or (one == other) == (held_by_all(one) == held_by_all(other)), (
            one,
            other,
        )
        assert one != other or hash(one) == hash(other)


PLACED = [
    partition(text, (9, 7), 4)
    for text in ("S(0),S(0)@2x2", "R,P@2x2", "S(1),R@2x2", "_S(0,2),S(0)@2x2", "row", "block/c2")
]


@property_test
@given(st.one_of(layouts, st.sampled_from(PLACED)), st.data())
def test_a_part_leaves_every_element_with_its_ranks_in_a_range_of_their_arrays(p, data):
    (r0, r1), (c0, c1) = (
        sorted(data.draw(st.tuples(st.integers(0, extent), st.integers(0, extent))))
        for extent in p.shape
    )
    part = p.part((r0, r1), (c0, c1))
    assert part.shape == (r1 - r0, c1 - c0)
    for rank in range(p.nprocs):
        inside = {
            at: (row - r0, col - c0)
            for at, (row, col) in by_place(p, rank).items()
            if r0 <= row < r1 and c0 <= col < c1
        }
        top, left = min(inside, default=(0, 0))
        moved = {(row - top, col - left): element for (row, col), element in inside.items()}
        assert by_place(part, rank) == moved
        assert part.term_of(part.replica_of(rank)) == p.term_of(p.replica_of(rank))
        assert part.copies(part.replica_of(rank)) == p.copies(p.replica_of(rank))
    assert pickle.loads(pickle.dumps(part)) == part
    flipped = part.transposed()
    assert flipped == p.transposed().part((c0, c1), (r0, r1)) and flipped.transposed() == part
    (a, b), (c, d) = ((0, n // 2 + 1) if n else (0, 0) for n in part.shape)
    assert part.part((a, b), (c, d)).text == p.part((r0, r0 + b), (c0, c0 + d)).text
