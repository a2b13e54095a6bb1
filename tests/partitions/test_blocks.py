"""Block layouts of ScaLAPACK, COSTA and SLATE against elements that are dealt out one by one."""

import random

import numpy as np
import pytest

from drbench.errors import UnsupportedError, UsageError
from drbench.library.scalapack import columns_of, descriptor_of, layout_of
from drbench.partitions import LayoutError, layout_of_blocks, parse, partition


def local_arrays(layout):
    """By rank the rows and the columns of the whole matrix in the order of its local array."""
    arrays = {}
    for rank in range(layout.nprocs):
        rows, cols = layout.local_shape(rank)
        at = -np.ones((rows, cols, 2), int)
        for idx in layout.tiles_of(rank):
            (top, low), (left, right) = layout.tile_bounds(idx)
            down, across = layout.local_start(idx)
            region = np.stack(np.mgrid[top:low, left:right], axis=-1)
            at[down : down + low - top, across : across + right - left] = region
        arrays[rank] = at
    return arrays


def dealt(extent, sizes, repeats, owners, count):
    """For each process row its indices in order, one after the other."""
    held, x, left = [[] for _ in range(count)], 0, sizes[0]
    for index in range(extent):
        if not left:
            x += 1
            left = sizes[x] if x < len(sizes) else sizes[-1]
        held[owners[x % len(owners)]].append(index)
        left -= 1
    assert repeats or sum(sizes) == extent
    return held


def is_dealt(layout, rows, cols, ranks):
    """Whether each rank of the grid, row by row, has its rows and columns, and others nothing."""
    arrays = local_arrays(layout)
    for rank, at in arrays.items():
        number = ranks.index(rank) if rank in ranks else None
        own = ([], []) if number is None else (rows[number // len(cols)], cols[number % len(cols)])
        if at.shape[:2] != (len(own[0]), len(own[1])):
            return False
        if at.size and not (at[:, 0, 0].tolist() == own[0] and at[0, :, 1].tolist() == own[1]):
            return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_scalapack_s_source_process_is_that_of_indxl2g(seed):
    chance = random.Random(seed)
    grid = chance.randint(1, 3), chance.randint(1, 4)
    shape = chance.randint(0, 14), chance.randint(0, 14)
    tile = chance.randint(1, 5), chance.randint(1, 5)
    source = tuple(map(chance.randrange, grid))
    text = "tiles:{}x{}@{}x{}:from{}x{}".format(*tile, *grid, *source)
    nprocs = grid[0] * grid[1]
    held = []
    for extent, size, count, first in zip(shape, tile, grid, source):
        # ScaLAPACK TOOLS: INDXG2P and INDXG2L, indices from 0
        own = [[] for _ in range(count)]
        for index in range(extent):
            own[(first + index // size) % count].append(
                (size * (index // (size * count)) + index % size, index)
            )
        held.append([[index for _, index in sorted(mine)] for mine in own])
    layout = partition(text, shape, nprocs)
    assert is_dealt(layout, *held, list(range(nprocs)))
    if 0 not in shape:
        numbers = descriptor_of(layout, 7, 99)
        again, extents, lld = layout_of(numbers, nprocs, "{}x{}".format(*grid), None)
        assert (extents, lld) == (shape, 99) and partition(again, shape, nprocs) == layout


@pytest.mark.parametrize("seed", range(100))
def test_tiles_of_any_sizes_on_any_process_rows_of_any_ranks(seed):
    chance = random.Random(seed)
    shape, sides, texts, owners = [], [], [], []
    for _ in "ij":
        sizes = [chance.randint(1, 4) for _ in range(chance.randint(2, 5))]
        repeats = chance.random() < 0.5
        shape.append(chance.randint(0, 20) if repeats else sum(sizes))
        owners.append([chance.randrange(3) for _ in range(chance.randint(2, 5))])
        texts.append("+".join(map(str, sizes)) + "*" * repeats)
        sides.append(dealt(shape[-1], sizes, repeats, owners[-1], max(owners[-1]) + 1))
    nprocs = len(sides[0]) * len(sides[1])
    at = "x".join("+".join(map(str, side)) for side in owners)
    text, ranks = f"tiles:{'x'.join(texts)}@{at}", list(range(nprocs))
    if chance.random() < 0.5:
        nprocs += chance.randint(0, 3)
        ranks = chance.sample(range(nprocs), len(ranks))
        text += "/on" + "+".join(map(str, ranks))
    layout = partition(text, tuple(shape), nprocs)
    assert is_dealt(layout, *sides, ranks)
    assert partition(str(parse(text)), tuple(shape), nprocs) == layout
    flipped = layout.transposed()
    assert flipped == partition(flipped.text, (shape[1], shape[0]), nprocs)
    for rank, arrays in local_arrays(layout).items():
        other = local_arrays(flipped)[rank]
        assert np.array_equal(arrays.transpose(1, 0, 2)[..., ::-1], other)


@pytest.mark.parametrize(
    "text", ["row", "column/c2", "block:1x2/c2", "tiles:2x3@2x2", "block:2x2:col"]
)
def test_on_ranks_moves_a_layout_to_them(text):
    ranks = [5, 0, 3, 1]
    layout, moved = partition(text, (9, 8), 4), partition(f"{text}/on5+0+3+1", (9, 8), 6)
    for number, rank in enumerate(ranks):
        assert moved.tiles_of(rank) == layout.tiles_of(number)
        assert moved.replica_of(rank) == layout.replica_of(number)
    assert not any(moved.holds(rank) for rank in (2, 4))
    for replica in range(layout.replicas):
        assert moved.members(replica) == sorted(ranks[x] for x in layout.members(replica))
        for tile in layout.overlapping_tiles((0, 9), (0, 8)):
            assert moved.owner(tile, replica) == ranks[layout.owner(tile, replica)]
    assert moved != layout and partition(moved.text, (9, 8), 6) == moved


@pytest.mark.parametrize("seed", range(60))
def test_blocks_with_owners_are_a_layout_or_no_product(seed):
    chance = random.Random(seed)
    sizes = [[chance.randint(1, 3) for _ in range(chance.randint(1, 4))] for _ in "ij"]
    grid = chance.randint(1, 3), chance.randint(1, 3)
    ranks = chance.sample(range(12), grid[0] * grid[1])
    down, right = ([chance.randrange(grid[x]) for _ in sizes[x]] for x in (0, 1))
    owners = [[ranks[i * grid[1] + j] for j in right] for i in down]
    text = layout_of_blocks(*sizes, owners)
    layout = partition(text, tuple(map(sum, sizes)), 12)
    for i, top in enumerate(np.cumsum([0, *sizes[0][:-1]])):
        for j, left in enumerate(np.cumsum([0, *sizes[1][:-1]])):
            assert layout.owner(layout.tile_index(int(top), int(left))) == owners[i][j]
    if len({*down}) > 1 and len({*right}) > 1:
        owners[0][0] = next(x for x in range(12) if x not in sum(owners, []))
        many = down.count(down[0]) > 1 or right.count(right[0]) > 1
        if many:
            with pytest.raises(LayoutError, match="but not all blocks of their rows"):
                layout_of_blocks(*sizes, owners)


@pytest.mark.parametrize(
    "text, said",
    [
        ("tiles:2x2@2x3:from2x0", "process 2x0 is not on the grid 2x3"),
        ("tiles:0+2x2@2x3", "has a tile of 0 elements"),
        ("tiles:1+2x2@2x3", "tiles of 1+2 have 3 elements, the matrix has 9 there"),
        ("tiles:1+2*x2@2x2", "needs 4 ranks, got 6"),
        ("tiles:1+2*@2x3", "is no tiles:SIZESxSIZES@GRID"),
        ("row/on0-6", "each rank after /on is one of 0 to 5"),
        ("row/on1+1", "named once"),
        ("row/on", "/on needs ranks"),
        ("row/on3-1", "/on needs ranks"),
        ("block:2x2/on0-2", "block:2x2 is for 4 ranks, got 3"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(text, said):
    with pytest.raises(LayoutError, match=said.replace("+", r"\+")) as error:
        partition(text, (9, 8), 6)
    assert "\n" not in str(error.value)


def test_what_is_no_descriptor_is_refused():
    with pytest.raises(UsageError, match="nine integers"):
        layout_of([1, 0, 4], 4, None, None)
    with pytest.raises(UsageError, match="nine integers"):
        layout_of([2, 0, 4, 4, 2, 2, 0, 0, 4], 4, None, None)
    of = lambda rsrc=0, mb=2: [1, 0, 4, 4, mb, 2, rsrc, 0, 4]
    with pytest.raises(UsageError, match="nine integers: .* got .*2.5"):
        layout_of(of(mb=2.5), 4, None, None)
    for grid in ("2by2", (2, 2)):
        with pytest.raises(UsageError, match="grid is a text such as 2x3"):
            layout_of(of(), 4, grid, None)
    with pytest.raises(UsageError, match=r"2x1 is for 2 ranks, got 4\. .*ranks=\[0, 1\]"):
        layout_of(of(), 4, "2x1", None)
    with pytest.raises(UsageError, match="RSRC = 2, CSRC = 0: .* rows are 0 to 1"):
        layout_of(of(rsrc=2), 4, "2x2", None)
    with pytest.raises(UsageError, match="copies .*ctx.wrap .*replicas"):
        layout_of(of(rsrc=-1), 4, "2x2", None)
    for text in ("row/c2", "tiles:1+2*x2@2x2", "S(0),R@2x2"):
        with pytest.raises(UnsupportedError, match="no descriptor"):
            descriptor_of(partition(text, (8, 8), 4), 0, 8)


@pytest.mark.parametrize("lld", [3, 4, 7])
@pytest.mark.parametrize("columns", [2, 5])
def test_the_elements_of_a_rank_are_found_in_every_array_that_fortran_allows(lld, columns):
    whole = np.asfortranarray(np.arange(lld * columns).reshape((lld, columns), order="F"))
    flat, needed = whole.reshape(-1, order="F"), lld * 1 + 3
    arrays = whole, whole[:3], flat, flat[:needed], flat[: lld * 2]
    for array in arrays:
        own = columns_of(array, lld, (3, 2), "rank 0")
        assert own.tolist() == whole[:3, :2].tolist() and np.shares_memory(own, array)
    for array in (flat[: needed - 1], whole[:2], whole[:, :1], flat.reshape(1, -1)):
        with pytest.raises(UsageError, match=rf"rank 0 has 3x2, LLD is {lld}, the array is"):
            columns_of(array, lld, (3, 2), "rank 0")


def test_an_lld_below_the_rows_is_refused_and_a_rank_without_elements_gives_any_array():
    for lld, rows in ((2, 3), (0, 0), (-1, 0)):
        with pytest.raises(UsageError, match=f"LLD is {lld}. Give LLD of at least {max(1, rows)}"):
            columns_of(np.zeros((3, 2)), lld, (rows, 2), "rank 0")
    for array in (np.zeros(0), np.zeros(1), np.zeros((0, 0)), np.zeros((4, 1))):
        for shape in ((0, 4), (3, 0), (0, 0)):
            assert columns_of(array, 4, shape, "rank 0").shape == shape
