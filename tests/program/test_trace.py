"""Tracing: which write into C comes first, what must be zeroed, and how often each value is
used."""

import gc
import random

import numpy as np
import pytest
from arena import ArenaRun
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import any_case, assign, home_of, operands, traces_of
from virtual_time import RandomDelays, drive

import drbench.program.trace
from drbench.algorithms import get_algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.program.group_steps import Fragment, Reduce, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    Group,
    Join,
    Scratch,
    Zero,
)
from drbench.program.trace import trace

M, N, K = 6, 8, 4
ONE = Problem(M, N, K, 1, "block", "block", "block")
TILED = Problem(M, N, K, 1, "block", "tiles:4x4", "tiles:3x4")  # C in four tiles of one rank


def writes(problem, regions, between=None):
    """A program that writes A[rows]·B[columns] into one region (row0, row1, col0, col1) of C after
    another."""
    for step in between or []:  # noqa: UP028  (a list has no send)
        yield step
    for row0, row1, col0, col1 in regions:
        a = yield Get(problem.a.block((row0, row1), (0, problem.k)))
        b = yield Get(problem.b.block((0, problem.k), (col0, col1)))
        yield Gemm(a, b, into=problem.c.block((row0, row1), (col0, col1)))


def betas(steps):
    return [step.beta for step in steps if type(step) is Gemm]


def zeroed(steps):
    return [step.block.tile for step in steps if type(step) is Zero]


def run(problem, program):
    """C after a program of one rank, element by element from NaN."""
    a, b = operands(problem)
    c = np.full((problem.m, problem.n), np.nan)
    for step in program.steps:
        if step.block is None or type(step) is Get:
            continue
        target = c[step.block.row0 : step.block.row1, step.block.col0 : step.block.col1]
        if type(step) is Zero:
            target[...] = 0
        else:
            x, y = (value.block for value in step.inputs)
            assign(target, a[x.row0 : x.row1] @ b[:, y.col0 : y.col1], step.beta)
    return c


def times_written(regions):
    count = np.zeros((M, N), int)
    for row0, row1, col0, col1 in regions:
        count[row0:row1, col0:col1] += 1
    return count


# -- beta
# -------------------------------------------------------------------------------------------------


def random_regions(chance, tile):
    """Bricks that fill a tile once without being a grid, or not all of them, some twice, and others
    that overlap them."""

    def cut(low, high):
        ends = sorted({low, high, *(chance.randint(low, high) for _ in "xx")})
        return zip(ends, ends[1:])

    def bricks():
        return [(*rows, *cols) for rows in cut(*tile.rows) for cols in cut(*tile.cols)]

    found = bricks()
    more = chance.choice((found, found, bricks()))
    return found[chance.randrange(4) == 0 :] + more[: chance.randrange(2)]


def test_exactly_the_tiles_that_first_writes_do_not_fill_once_are_zeroed():
    """Each is judged alone; but no tile that the program zeroes, and none of a result that is not
    fresh."""
    for seed in range(250):
        chance = random.Random(seed)
        problem, fresh = chance.choice((ONE, TILED)), chance.random() < 0.9
        tiles = {tile.tile: tile for tile in problem.c.own_tiles(0)}
        own = [tile for tile in tiles if chance.random() < 0.1]
        drawn = {tile: random_regions(chance, tiles[tile]) for tile in tiles}
        filled = {
            tile: (times_written({*drawn[tile]})[tuple(slice(*x) for x in (at.rows, at.cols))] == 1)
            for tile, at in tiles.items()
        }
        open_ = [tile for tile in tiles if not filled[tile].all() and tile not in own]
        order = [(tile, region) for tile in tiles for region in drawn[tile]]
        chance.shuffle(order)
        regions = [region for _, region in order]
        zeros = [Zero(problem.c.tile_block(tile)) for tile in own]
        program = trace(writes(problem, regions, zeros), problem, 0, fresh=fresh)
        assert zeroed(program.steps) == (open_ if fresh else []) + own
        added = [not fresh or tile in open_ + own for tile, _ in order]
        assert betas(program.steps) == [
            added[at] or region in regions[:at] for at, region in enumerate(regions)
        ]
        if fresh:
            a, b = operands(problem)
            assert (run(problem, program) == times_written(regions) * (a @ b)).all()


def cuts_of(*ends, most=1):
    """Disjoint ranges between some of these ends, ascending: few, so that they often meet."""
    some = st.lists(st.sampled_from(ends), min_size=2, max_size=2 * most, unique=True)
    return some.map(sorted).map(lambda x: tuple(zip(x[::2], x[1::2])))


writers = st.tuples(
    st.sampled_from(["gemm", "copy", "reduce", "reduce-scatter"]),
    cuts_of(0, 1, 3),
    cuts_of(0, 3, 5, N, most=2),
    cuts_of(0, 1, K),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(writers, max_size=6), st.booleans(), st.integers(0, 99))
@example(  # a sum on a region that is written and on one that is not
    [("copy", ((0, 3),), ((0, 3),), ((0, K),)), ("gemm", ((0, 3),), ((3, 5),), ((0, K),))]
    + [("reduce-scatter", ((0, 3),), ((0, 3), (5, N)), ((0, K),))],
    False,
    0,
)
def test_gemms_copies_and_sums_on_any_regions_add_up(written, updates, seed):
    # each rank has all of A and B, and three rows of C
    problem = Problem(6, N, K, 2, "block/c2", "block/c2", "row", updates=updates)

    def program(rank):
        def multiplied(owner, rows, cols, ks, into=None):
            rows = 3 * owner + rows[0], 3 * owner + rows[1]
            a = yield Get(problem.a.block(rows, ks, rank))
            b = yield Get(problem.b.block(ks, cols, rank))
            return (yield Gemm(a, b, into=into and problem.c.block(rows, cols)))

        everyone = Group("row", (0, 1), rank)
        for kind, (rows,), columns, (ks,) in written:
            own = 3 * rank + rows[0], 3 * rank + rows[1]
            if kind == "reduce-scatter":
                parts, fragments = [], []
                for owner in (0, 1):
                    for cols in columns:
                        parts.append((yield from multiplied(owner, rows, cols, ks)))
                    if len(columns) == 2:
                        parts[-2:] = [(yield Join(parts[-2:], axis=1))]
                    height = 3 * owner + rows[0], 3 * owner + rows[1]
                    whole = problem.c.block((3 * owner, 3 * owner + 3), (0, N))
                    fragments.append(Fragment(whole, (height,), columns))
                token = yield Join(parts, axis=0)
                yield ReduceScatter(token, fragments, everyone, axis=0)
                continue
            for cols in columns:
                if kind == "gemm":
                    yield from multiplied(rank, rows, cols, ks, into=True)
                elif kind == "copy":
                    token = yield from multiplied(rank, rows, cols, ks)
                    yield Copy(token, into=problem.c.block(own, cols))
                else:
                    root = cols[0] % 2
                    token = yield from multiplied(root, rows, cols, ks)
                    there = 3 * root + rows[0], 3 * root + rows[1]
                    yield Reduce(token, problem.c.block(there, cols), everyone)

    traces = [trace(program(rank), problem, rank) for rank in (0, 1)]
    before = np.arange(6.0 * N).reshape(6, N) if updates else None
    run = ArenaRun(traces, 2, seed, beta=3.0 if updates else 0.0, before=before)
    drive(traces, 2, RandomDelays(seed), on=run.on)
    (a, b), count = operands(problem, seed), np.zeros((6, N, K))
    for kind, (rows,), columns, (ks,) in written:
        for cols in columns:
            for owner in (0, 1) if kind != "reduce" else (cols[0] % 2,):
                at = slice(3 * owner + rows[0], 3 * owner + rows[1])
                count[at, slice(*cols), slice(*ks)] += 1 if kind in ("gemm", "copy") else 2
    right = np.einsum("ijk,ik,kj->ij", count, a, b) + (3 * before if updates else 0)
    assert (run.memory.c()[0] == right).all()


# -- the universal program
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_values_are_counted_and_sums_computed_once_added_onto_one_by_one_and_sent_once(seed):
    """A value is used as often as later steps take it."""
    problem, options = any_case(seed)
    for program in traces_of(problem, **options):
        for place, step in enumerate(program.steps):
            takers = [later for later in program.steps for x in later.inputs if x is step]
            assert (step.index, step.uses) == (place, len(takers))
            assert all(value.index < place for value in step.inputs)
            if type(step) is Gemm and step.block is None:
                assert step.beta == (0.0 if step.onto is None else 1.0)
                assert step.onto is None or (step.onto is step.inputs[2] and step.onto.uses == 1)
                (taker,) = takers
                assert type(taker) is Accumulate or (type(taker) is Gemm and taker.onto is step)
                assert type(taker) is not Accumulate or taker.block.shape == step.shape


# -- the generator
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_is_restored_even_by_a_program_that_raises(collects):
    def broken():
        yield Fence()
        assert not gc.isenabled()
        raise UsageError("no")

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(UsageError):
            trace(broken(), ONE, 0)
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize(
    "options", [{"stationary": "D"}, {"stationary": "c"}, {"chunk": 0}, {"chunk": -4}]
)
def test_invalid_options_are_refused_with_the_remedy(options):
    universal = get_algorithm("universal")
    with pytest.raises(UsageError, match="must be"):
        universal.resolve(ONE, **options)
    with pytest.raises(UsageError, match="must be"):
        universal.trace(ONE, 0, **options)


def test_a_sum_of_thousands_of_terms_has_a_shape_and_a_place():
    """A chain of Adds and Gemms as long as there are ranks."""
    a, b = Scratch((2, 3)), Scratch((3, 4))
    first = total = Gemm(a, b)
    for _ in range(5000):
        total = Add(Gemm(a, b), into=total)
    assert total.shape == (2, 4) and total.location() == (first, 0, 0)


#: The layout of C, a step of rank 0 after it has its rows of A, all of B, and their product; and
#: what the message says.
WRONG = (
    ("row", lambda c, a, b, _: Gemm(b, a), r"rank 0: .* do not fit: Gemm\(%2 · %1"),
    ("row", lambda c, a, b, _: Gemm(a, b, into=c.block((0, 2), (0, N))), r"fit: .* -> C\[0:2, 0:8"),
    ("row", lambda c, a, b, _: Gemm(a, b, into=c.block((3, M), (0, N))), "C.3:6, .* of rank 1"),
    ("row", lambda c, a, b, _: Gemm(Scratch((3, K)), b), "rank 0, a Gemm, takes a value that no"),
    ("row", lambda c, a, b, _: c.block((0, 3), (0, N)), "yields steps, .* got a Block"),
    ("row/c2", lambda c, a, b, sum_: Accumulate(sum_, c.block((0, 3), (0, N), 1)), "of replica 0"),
)


@pytest.mark.parametrize("layout, step, message", WRONG)
def test_a_wrong_program_is_refused_in_a_line(layout, step, message):
    problem = Problem(M, N, K, 2, "row/c2", "row/c2", layout)

    def program():
        a = yield Get(problem.a.block((0, 3), (0, K)))
        b = yield Get(problem.b.block((0, K), (0, N)))
        yield step(problem.c, a, b, (yield Gemm(a, b)))

    with pytest.raises(UsageError, match=message):
        assert trace(program(), problem, 0).flops
    with pytest.raises(UsageError, match="yields its steps; got NoneType"):
        trace(None, problem, 0)


@pytest.mark.parametrize("seed", range(40))
def test_exactly_the_blocks_of_several_ranks_are_refused(seed):
    chance, (problem, _) = random.Random(seed), any_case(seed)
    for operand in problem.operands * 5:
        ends = [sorted(chance.sample(range(extent + 1), 2)) for extent in operand.partition.shape]
        owners = {*home_of(operand).owner[0][tuple(slice(*x) for x in ends)].flat}
        if len(owners) == 1:
            assert {operand.block(*ends).owner} == owners
        else:
            with pytest.raises(UsageError, match="belongs to several ranks"):
                operand.block(*ends)


def test_a_plan_of_too_many_steps_or_tiles_is_refused_before_it_fills_the_memory(monkeypatch):
    universal, texts = get_algorithm("universal"), ["tiles:1x1"] * 3
    with pytest.raises(UnsupportedError, match="A as tiles:1x1 has 800000000 tiles on each rank"):
        universal.resolve(Problem(40_000, 40_000, 40_000, 2, *texts))
    assert universal.trace(TILED, 0, stationary="C").steps
    monkeypatch.setattr(drbench.program.trace, "MOST_STEPS", 3)
    with pytest.raises(UnsupportedError, match="rank 0 would have more than 3 steps"):
        universal.trace(TILED, 0, stationary="C")
