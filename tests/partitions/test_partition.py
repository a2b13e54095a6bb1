"""Partitions against dealing a matrix out by hand, element by element."""

import itertools
import pickle
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import by_place, cyclic, held_by_all

from partitions import Interval, LayoutError, ProcessGrid, divisors, partition
from partitions.partition import explicit_text

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

# corner cases, in addition to those of hypothesis
CORNERS = {
    "one rank": cyclic((5, 7), (5, 7), ProcessGrid(1, 1)),
    "short edge tiles": cyclic((10, 7), (4, 3), ProcessGrid(2, 2)),
    "block-cyclic": cyclic((13, 11), (2, 3), ProcessGrid(2, 2), replicas=2),
    "column-major": cyclic((13, 11), (2, 3), ProcessGrid(3, 2, "col")),
    "ranks without a tile": cyclic((4, 4), (3, 3), ProcessGrid(3, 3)),
    "prime rank count": cyclic((10, 10), (2, 10), ProcessGrid(7, 1)),
    "no rows": cyclic((0, 5), (1, 2), ProcessGrid(2, 2)),
    "no columns": cyclic((5, 0), (2, 1), ProcessGrid(2, 2)),
    "no elements": cyclic((0, 0), (1, 1), ProcessGrid(2, 2)),
    "tile larger than the matrix": cyclic((3, 3), (50, 50), ProcessGrid(2, 2)),
    "a copy on every rank": cyclic((3, 4), (3, 4), ProcessGrid(1, 1), replicas=5),
}
corner = pytest.mark.parametrize("p", CORNERS.values(), ids=CORNERS.keys())


def split(extent, tile):
    """Cut a list of indices into tiles by taking from its front."""
    left, segments = list(range(extent)), []
    while left:
        segments.append(left[:tile])
        left = left[tile:]
    return segments


def deal(p):
    """Deal replica 0 out by hand: {tile index: (local rank, rows, columns)}."""
    i_j = [(i, j) for i in range(p.grid.rows) for j in range(p.grid.cols)]
    if p.grid.order == "col":
        i_j = [(i, j) for j in range(p.grid.cols) for i in range(p.grid.rows)]
    rank_at = {cell: rank for rank, cell in enumerate(i_j)}
    dealt = {}
    row_tiles = zip(split(p.shape[0], p.tile_shape[0]), cycle(range(p.grid.rows)))
    for ti, (rows, i) in enumerate(row_tiles):
        col_tiles = zip(split(p.shape[1], p.tile_shape[1]), cycle(range(p.grid.cols)))
        for tj, (cols, j) in enumerate(col_tiles):
            dealt[ti, tj] = rank_at[i, j], rows, cols
    return dealt


def elements(p, idx):
    rows, cols = p.tile_bounds(idx)
    return list(itertools.product(range(*rows), range(*cols)))


def check_tiles_match_dealing_by_hand(p):
    dealt = deal(p)
    for idx, (rank, rows, cols) in dealt.items():
        assert elements(p, idx) == list(itertools.product(rows, cols))
        for replica in range(p.replicas):
            assert p.owner(idx, replica) == replica * p.ranks_per_replica + rank
        assert p.tile_index(rows[0], cols[0]) == p.tile_index(rows[-1], cols[-1]) == idx
    assert p.grid_shape[0] * p.grid_shape[1] == len(dealt)


def check_each_replica_holds_every_element_once(p):
    for replica in range(p.replicas):
        ranks = [r for r in range(p.nprocs) if p.replica_of(r) == replica]
        held = Counter(e for r in ranks for idx in p.tiles_of(r) for e in elements(p, idx))
        assert held == Counter(itertools.product(range(p.shape[0]), range(p.shape[1])))


def check_owner_agrees_with_tiles_of(p):
    every_tile = list(itertools.product(range(p.grid_shape[0]), range(p.grid_shape[1])))
    for rank in range(p.nprocs):
        mine = [idx for idx in every_tile if p.owner(idx, p.replica_of(rank)) == rank]
        assert p.tiles_of(rank) == mine


def check_tiles_fill_the_local_array(p):
    for rank in range(p.nprocs):
        filled = Counter()
        for idx in p.tiles_of(rank):
            (top, bottom), (left, right) = p.tile_bounds(idx)
            row, col = p.local_start(idx)
            filled.update(
                itertools.product(range(row, row + bottom - top), range(col, col + right - left))
            )
        rows, cols = p.local_shape(rank)
        assert filled == Counter(itertools.product(range(rows), range(cols)))  # no gap, no overlap


def check_local_shape_counts_rows_and_columns(p):
    dealt = deal(p).values()
    for rank in range(p.nprocs):
        local = rank % p.ranks_per_replica
        i, j = divmod(local, p.grid.cols)
        if p.grid.order == "col":
            j, i = divmod(local, p.grid.rows)
        # by process row and column: a rank of an extent-0 matrix may still have rows
        rows = [x for x, owner in zip_dealt(p.shape[0], p.tile_shape[0], p.grid.rows) if owner == i]
        cols = [x for x, owner in zip_dealt(p.shape[1], p.tile_shape[1], p.grid.cols) if owner == j]
        assert p.local_shape(rank) == (len(rows), len(cols))
        assert p.local_size(rank) == sum(len(r) * len(c) for who, r, c in dealt if who == local)


def zip_dealt(extent, tile, nprocs):
    for segment, owner in zip(split(extent, tile), cycle(range(nprocs))):
        yield from ((x, owner) for x in segment)


CHECKS = [
    check_tiles_match_dealing_by_hand,
    check_each_replica_holds_every_element_once,
    check_owner_agrees_with_tiles_of,
    check_tiles_fill_the_local_array,
    check_local_shape_counts_rows_and_columns,
]


@corner
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_at_every_corner(check, p):
    check(p)


@property_test
@given(layouts)
def test_tiles_and_owners_match_dealing_by_hand(p):
    check_tiles_match_dealing_by_hand(p)
    check_owner_agrees_with_tiles_of(p)


@property_test
@given(layouts)
def test_each_replica_holds_every_element_once(p):
    check_each_replica_holds_every_element_once(p)


@property_test
@given(layouts)
def test_local_storage_is_tiled_without_gap_or_overlap(p):
    check_tiles_fill_the_local_array(p)
    check_local_shape_counts_rows_and_columns(p)


@property_test
@given(layouts, ranges, ranges)
def test_overlapping_tiles_are_those_a_scan_of_all_tiles_finds(p, rows, cols):
    region = set(itertools.product(range(*rows), range(*cols)))
    found = [idx for idx in deal(p) if region & set(elements(p, idx))]
    assert p.overlapping_tiles(rows, cols) == found
    assert p.overlapping_tiles(Interval(*rows), Interval(*cols)) == found


@property_test
@given(layouts, ranges)
def test_cuts_are_the_ends_and_every_tile_boundary_between(p, span):
    for extent, tile, method in zip(p.shape, p.tile_shape, (p.rows.cuts, p.cols.cuts)):
        inside = [x for x in range(*span) if 0 <= x < extent]
        starts = {segment[0] for segment in split(extent, tile)}
        expected = [x for x in inside if x == inside[0] or x in starts]
        assert method(*span) == expected + ([inside[-1] + 1] if inside else [])


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


def test_the_text_is_ignored_by_equality_and_hash():
    p = partition("row", (8, 8), 4)
    q = partition("tiles:2x8@4x1", (8, 8), 4)
    assert p == q and hash(p) == hash(q) and p.text != q.text


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
        (lambda: p22.tile_bounds((0, -1)), ["tile (0, -1)", "3x3 tile grid"]),
        (lambda: p22.owner((9, 9)), ["tile (9, 9)", "3x3 tile grid"]),
        (lambda: p22.owner((0, 0), 2), ["replica 2", "from 0 to 1"]),
        (lambda: p22.owner((0, 0), -1), ["replica -1", "from 0 to 1"]),
        (lambda: p22.tiles_of(8), ["rank 8", "from 0 to 7"]),
        (lambda: p22.local_shape(-1), ["rank -1", "from 0 to 7"]),
        (lambda: CORNERS["no rows"].owner((0, 0)), ["tile (0, 0)", "0x3 tile grid"]),
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


def test_the_given_text_is_kept():
    one, other = (partition(text, (8, 8), 4) for text in ("block:1x4", "block:1x4:col"))
    assert one == other and (one.text, other.text) == ("block:1x4", "block:1x4:col")


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
