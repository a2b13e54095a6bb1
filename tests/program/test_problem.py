"""The problem: extents, blocks and refusals."""

import itertools

import pytest
from oracles import check_block, home

from drbench.errors import (
    EXIT_CODES,
    DrbenchError,
    OutOfMemory,
    UnsupportedError,
    UsageError,
    exit_code_of,
)
from drbench.measure.roof import elements, gemms_to_try
from drbench.partitions import partition
from drbench.program.problem import Problem

LAYOUTS = [
    "row",
    "column",
    "block:2x3:col",
    "tiles:3x2",
    "tiles:2x5@3x2",
    "block/c2",
    "tiles:20x20",
    "row/c6",
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_every_block_of_every_tile_has_its_true_place(text):
    problem = Problem(7, 11, 5, 6, text, text, text)
    for operand in problem.operands:
        partition, at = operand.partition, home(operand.partition)
        tiles = itertools.product(*map(range, partition.grid_shape))
        for idx, replica in itertools.product(tiles, range(partition.replicas)):
            (top, bottom), (left, right) = partition.tile_bounds(idx)
            for row0, row1 in [
                (r, s) for r in range(top, bottom) for s in range(r + 1, bottom + 1)
            ]:
                for col0, col1 in [
                    (r, s) for r in range(left, right) for s in range(r + 1, right + 1)
                ]:
                    block = operand.block((row0, row1), (col0, col1), replica)
                    assert (block.tile, block.replica, block.matrix) == (idx, replica, operand.name)
                    assert (
                        block.shape == (row1 - row0, col1 - col0)
                        and block.size == block.shape[0] * block.shape[1]
                    )
                    check_block(at, block)


@pytest.mark.parametrize("text", LAYOUTS)
def test_own_tiles_are_every_element_of_every_replica_once(text):
    problem = Problem(7, 11, 5, 6, text, text, text)
    for operand in problem.operands:
        at = home(operand.partition)
        seen = at.owner * 0 - 1
        for rank in range(6):
            for tile in operand.own_tiles(rank):
                region = seen[tile.replica, tile.row0 : tile.row1, tile.col0 : tile.col1]
                assert (region == -1).all() and tile.owner == rank
                region[...] = rank
        assert (seen == at.owner).all()


@pytest.mark.parametrize("name, axes", [("A", "mk"), ("B", "kn"), ("C", "mn")])
def test_cuts_along_an_axis_are_tile_boundaries_of_the_right_dimension(name, axes):
    problem = Problem(7, 9, 8, 1, *["tiles:3x2"] * 3)
    operand = problem.operand(name)
    extents = {"m": 7, "n": 9, "k": 8}
    for axis, tile in zip(axes, (3, 2), strict=True):
        inside = [at for at in range(2, extents[axis]) if at % tile == 0 and at > 1]
        assert operand.cuts(axis, 1, extents[axis]) == [1, *inside, extents[axis]]


def test_a_ready_partition_is_used_unchanged():
    ready = partition("tiles:2x4@2x1", (6, 4), 2)
    problem = Problem(6, 5, 4, 2, a=ready)
    assert problem.a.partition is ready


@pytest.mark.parametrize(
    "m, n, k, p", list(itertools.product([1, 7, 64], [1, 12], [5, 30], [1, 2, 6, 7]))
)
def test_the_local_shapes_of_the_roof_together_hold_the_whole_work(m, n, k, p):
    problem = Problem(m, n, k, p)
    shapes = [(rows, cols, depth) for (rows,), cols, depth in problem.local_shapes()]
    for rows, cols, depth in shapes:
        assert rows * cols * depth * p >= m * n * k and rows <= m and cols <= n and depth <= k
    each_axis = {(-(-m // p), n, k), (m, -(-n // p), k)}
    split_k = (m, n, -(-k // p))
    assert each_axis <= set(shapes) and len(shapes) == len(set(shapes)) <= 6
    if p > 1:
        assert (split_k in shapes) == (m * n <= max(m * k, k * n))
    # for a shape along k alone no rank holds all of C where that is the largest
    if p > 1 and m * n > max(m * k, k * n):
        most = max(rows * cols for rows, cols, _ in shapes)
        assert elements(problem, gemms_to_try(problem, False))["C"] == most < m * n


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"m": -1}, "m must be at least 0, got -1"),
        ({"k": -3}, "k must be at least 0, got -3"),
        ({"nprocs": 0}, "nprocs must be at least 1"),
        ({"dtype": "int8"}, "bfloat16:float32, float16, float8, got 'int8'"),
        (
            {"nprocs": 3, "a": "block:2x2"},
            r"--a: block:2x2 is for 4 ranks, got 3. Use block:1x3 or block:3x1",
        ),
        ({"b": "colum"}, "--b: unknown partition 'colum'; did you mean column"),
        ({"nprocs": 4, "c": "row/c3"}, "--c: row/c3 .* Use one of 1, 2, 4"),
    ],
)
def test_an_invalid_problem_is_refused_with_the_remedy(arguments, words):
    with pytest.raises(UsageError, match=words):
        Problem(**{"m": 8, "n": 8, "k": 8, "nprocs": 4, **arguments})


def test_exit_codes_and_statuses_belong_together():
    assert sorted(EXIT_CODES.values()) == list(range(7))
    for kind in (DrbenchError, *DrbenchError.__subclasses__()):
        assert exit_code_of(kind("no")) == EXIT_CODES[kind.status]
    assert [exit_code_of(e("")) for e in (UsageError, UnsupportedError, OutOfMemory)] == [2, 3, 6]
    assert (
        exit_code_of(MemoryError()),
        exit_code_of(KeyError()),
        exit_code_of(KeyboardInterrupt()),
    ) == (6, 5, 5)


def test_problems_are_equal_if_their_fields_and_partitions_are():
    def make(c="row", **more):
        return Problem(8, 6, 4, 2, "row", partition("column", (4, 6), 2), c, **more)

    assert make() == make() and hash(make()) == hash(make())
    assert make() == Problem(8, 6, 4, 2, "row", "column", "row")
    differing = [make("column"), make("block"), make(dtype="float64"), make(transpose="a")]
    assert len({make(), *differing}) == 5
    assert make().a != make().b and make().a != "row"
